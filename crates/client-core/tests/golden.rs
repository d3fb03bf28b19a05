//! Stories about a client's session, as transcripts: `tests/scripts/*.txt`.
//!
//! They tell what the session wants of its driver. `UPDATE_GOLDEN=1 cargo test -p holdfast-client-core --test golden`
//! writes the answers into the scripts; read the difference before you commit it.
//!
//! A command line is `[at TIME] VERB [ARGUMENTS]`; the verbs are in `script/mod.rs`. Before a command at a later time,
//! the session is woken at each of its timeouts until then. Each line of an answer begins with the time.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "it is a test")]

mod script;

use std::path::Path;

/// One test, because planted bugs are active in the whole process.
#[test]
fn every_script_matches_its_golden_output_and_planted_bugs_change_one() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts");
    let wrong = holdfast_golden::check_or_update(&folder, script::replay).unwrap();
    assert!(wrong.is_empty(), "{wrong:#?}");
    #[cfg(feature = "planted")]
    for (bug, script) in planted::CAUGHT_BY {
        holdfast_client_core::planted::activate(Some(*bug));
        let wrong = holdfast_golden::wrong_scripts(&folder, script::replay).unwrap();
        holdfast_client_core::planted::activate(None);
        assert!(
            wrong.iter().any(|wrong| wrong.name == *script),
            "{bug:?} does not change {script}"
        );
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
        (Bug::AckEarly, "resume"),
        (Bug::ForgetCancel, "abandoned"),
        (Bug::FailureIsSample, "refused"),
        (Bug::OlderMapTaken, "groups"),
        (Bug::SeveralGroupsSent, "groups"),
        (Bug::GroupNotTold, "groups"),
        (Bug::MapIgnored, "groups"),
    ];
}
