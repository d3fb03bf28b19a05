//! Stories about the lock table, as transcripts: `tests/scripts/*.txt`.
//!
//! A script is a list of blocks. A block is one or more command lines, a line of four dashes, and
//! what the table answered. `UPDATE_GOLDEN=1 cargo test -p holdfast-core --test golden` writes the
//! answers into the scripts; read the difference before you commit it.
//!
//! A command line is `[at TIME] WHO VERB [ARGUMENTS]`, for instance
//! `at 5s bob acquire wallet #1 wait=10s`. `#1` is the request id. Without `at`, no time has passed.
//! Answers stand flush left; what happened to others is indented below.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "it is a test")]

mod script;
mod world;

use std::fs;
use std::path::PathBuf;

#[test]
fn every_script_tells_what_it_told_before() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/scripts");
    let update = std::env::var_os("UPDATE_GOLDEN").is_some();
    let mut paths: Vec<PathBuf> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty());
    let mut wrong = Vec::new();
    for path in paths {
        let expected = fs::read_to_string(&path).unwrap();
        assert!(expected.starts_with("# "), "{} does not say what it is about", path.display());
        let actual = script::replay(&expected);
        if actual == expected {
            continue;
        }
        if update {
            fs::write(&path, actual).unwrap();
        } else {
            wrong.push(format!("{}\n{}", path.display(), first_difference(&expected, &actual)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn first_difference(expected: &str, actual: &str) -> String {
    let mut lines = expected.lines().zip(actual.lines()).enumerate();
    match lines.find(|(_, (expected, actual))| expected != actual) {
        Some((number, (expected, actual))) => {
            format!("  line {}:\n  - {expected}\n  + {actual}", number + 1)
        }
        None => "  one is longer than the other".to_owned(),
    }
}
