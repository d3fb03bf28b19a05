//! The examples of the client library are programs that run.

use std::path::Path;
use std::process::Command;

use crate::support::{Cluster, build_examples, output, text};

#[tokio::test(flavor = "multi_thread")]
async fn every_example_of_the_library_runs_and_says_what_it_should() {
    let directory = build_examples();
    let cluster = Cluster::start(3).await;
    for (name, expected) in [
        ("quick_start", &["send this fence with each write: hf1.L."][..]),
        ("critical_section", &["8 deposits of 100: the balance is 800", "is older than"]),
        ("cron_leader", &["9 runs, one leader after the other: true"]),
        ("semaphore", &["12 jobs, at most 3 at a time"]),
        ("bank_transfer", &["60 transfers, and there are still 400 in the bank"]),
        ("database_migration", &["version 2 after 1 migration, under token "]),
        (
            "cache_refresh",
            &[
                "served by: embedded",
                "8 workers, refreshes: 1",
                "a wallet in a hurry: `wallet/42` must not be held with less",
            ],
        ),
        ("inventory", &["5 of 5 sold to 12 buyers, 0 left"]),
        (
            "election",
            &[
                "no leader",
                "ann:8080 leads",
                "ann:8081 leads",
                "mine is over: Err",
                "ben:9090 leads",
            ],
        ),
    ] {
        let mut command = Command::new(directory.join(name));
        command.env("HOLDFAST_ENDPOINTS", cluster.endpoints());
        let ran = output(command).await;
        assert!(ran.status.success(), "{name}: {ran:?}");
        let said = text(&ran.stdout);
        for words in expected {
            assert!(said.contains(words), "{name} does not say '{words}':\n{said}");
        }
    }
}

#[test]
fn no_example_is_left_out() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../client/examples");
    let mut names: Vec<_> = std::fs::read_dir(sources)
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    names.sort();
    assert_eq!(
        names,
        [
            "bank_transfer",
            "cache_refresh",
            "critical_section",
            "cron_leader",
            "database_migration",
            "election",
            "inventory",
            "quick_start",
            "semaphore"
        ]
    );
}

#[test]
fn the_program_in_the_readme_is_an_example_that_runs() {
    let readme = include_str!("../../../../README.md");
    let shown = readme.split("```rust\n").nth(1).unwrap().split("```").next().unwrap();
    let example = include_str!("../../../client/examples/quick_start.rs");
    assert!(example.ends_with(shown), "{shown}");
}
