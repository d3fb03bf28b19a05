//! Stories about the lock table, as transcripts: `tests/scripts/*.txt`.
//!
//! `UPDATE_GOLDEN=1 cargo test -p holdfast-core --test golden` writes the answers into the scripts; read the difference
//! before you commit it.
//!
//! A command line is `[at TIME] WHO VERB [ARGUMENTS]`, for instance
//! `at 5s bob acquire wallet #1 wait=10s`. `#1` is the request id. Without `at`, no time has passed.
//! Answers stand flush left; what happened to others is indented below.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "it is a test")]

mod script;
mod world;

use std::path::Path;

#[test]
fn every_script_matches_its_golden_output() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts");
    let wrong = holdfast_golden::check_or_update(&folder, script::replay).unwrap();
    assert!(wrong.is_empty(), "{wrong:#?}");
}
