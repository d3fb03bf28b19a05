//! Stories about a client's session, as transcripts: `tests/scripts/*.txt`.
//!
//! A script is a list of blocks. A block is one or more command lines, a line of four dashes, and what the session then
//! wants of its driver. `UPDATE_GOLDEN=1 cargo test -p holdfast-client-core --test golden` writes the answers into the
//! scripts; read the difference before you commit it.
//!
//! A command line is `[at TIME] VERB [ARGUMENTS]`; the verbs are in `script/mod.rs`. Before a command at a later time,
//! the session is woken at each of its timeouts until then. Each line of an answer begins with the time.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "it is a test")]

mod script;

use std::fs;
use std::path::PathBuf;

/// The scripts whose transcript is another one than the file has, with the first difference.
fn wrong_scripts(update: bool) -> Vec<(String, String)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/scripts");
    let mut paths: Vec<PathBuf> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty());
    let mut wrong = Vec::new();
    for path in paths {
        let expected = fs::read_to_string(&path).unwrap();
        assert!(expected.starts_with("# "), "{} does not say what it is about", path.display());
        let actual = script::replay(&expected);
        if actual != expected {
            if update {
                fs::write(&path, &actual).unwrap();
            } else {
                let name = path.file_stem().unwrap().to_string_lossy().into_owned();
                wrong.push((name, first_difference(&expected, &actual)));
            }
        }
    }
    wrong
}

fn first_difference(expected: &str, actual: &str) -> String {
    let mut lines = expected.lines().zip(actual.lines()).enumerate();
    match lines.find(|(_, (expected, actual))| expected != actual) {
        Some((number, (expected, actual))) => {
            format!("line {}:\n  - {expected}\n  + {actual}", number + 1)
        }
        None => "one is longer than the other".to_owned(),
    }
}

/// One test, because planted bugs are active in the whole process.
#[test]
fn every_script_tells_what_it_told_before_and_planted_bugs_change_one() {
    let wrong = wrong_scripts(std::env::var_os("UPDATE_GOLDEN").is_some());
    assert!(wrong.is_empty(), "{wrong:#?}");
    #[cfg(feature = "planted")]
    for (bug, script) in planted::CAUGHT_BY {
        holdfast_client_core::planted::activate(Some(*bug));
        let wrong = wrong_scripts(false);
        holdfast_client_core::planted::activate(None);
        assert!(wrong.iter().any(|(name, _)| name == script), "{bug:?} does not change {script}");
    }
}

#[cfg(feature = "planted")]
mod planted {
    use holdfast_client_core::planted::Bug;

    /// Each bug, and the script that shows it.
    pub(crate) const CAUGHT_BY: &[(Bug, &str)] = &[
        (Bug::NoMargin, "lease"),
        (Bug::HoldDeadlineIgnored, "lease"),
        (Bug::BestEffortKeptWithoutLeader, "efficiency_tier"),
        (Bug::LingerIgnored, "lease"),
        (Bug::ResumeLosesLoss, "resume"),
        (Bug::ResendUnderNewId, "resume"),
        (Bug::TokenPastLease, "lease"),
        (Bug::LeaseFromAnswer, "lease"),
        (Bug::LeaseFromLastSending, "resume"),
        (Bug::NoticeEndsNewerHold, "losses"),
        (Bug::NeverHalfOpen, "circuit"),
        (Bug::AbandonedGrantKept, "abandoned"),
    ];
}
