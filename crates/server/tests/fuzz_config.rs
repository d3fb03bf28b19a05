//! Configuration files with mistakes: refused in words, or one that can work.
//!
//! `FUZZ_CASES=100000 cargo test -p holdfast-server --test fuzz_config` runs for longer.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "it is a test")]
#![allow(clippy::print_stdout, reason = "a failure says where its input is kept")]

#[path = "../../../fuzz/support.rs"]
mod support;

use holdfast_server::NodeConfig;
use proptest::prelude::*;
use support::{Target, cases};

const CASES_USUAL: u32 = 500;

const CONFIG: Target =
    Target { manifest_dir: env!("CARGO_MANIFEST_DIR"), name: "config", feed: read_config };

fn read_config(input: &[Vec<u8>]) {
    for bytes in input {
        match NodeConfig::from_toml(&String::from_utf8_lossy(bytes)) {
            Ok(config) => {
                config.check().unwrap();
                assert_eq!(config.this_node().unwrap().id, config.node);
            }
            Err(error) => assert!(error.to_string().len() > 10, "{error}"),
        }
    }
}

#[test]
fn the_corpus_is_read() {
    CONFIG.replay(&[vec![NodeConfig::EXAMPLE.as_bytes().to_vec()]]);
}

proptest! {
    #![proptest_config(cases(CASES_USUAL))]

    #[test]
    fn a_damaged_file_is_refused_or_can_work(damage in support::damage()) {
        let example = NodeConfig::EXAMPLE.as_bytes();
        CONFIG.feed(&[damage.of(example, example)]);
    }

    #[test]
    fn a_file_with_another_number_or_text_is_refused_or_can_work(
        line: prop::sample::Index,
        value in prop_oneof![
            any::<u64>().prop_map(|number| number.to_string()),
            any::<i64>().prop_map(|number| number.to_string()),
            "\"[a-z0-9:.\\-]{0,20}\"",
            "\"(127\\.0\\.0\\.1|\\[::1\\]|localhost|\\[|:)?:?[0-9]{0,6}\"",
            Just("[]".to_owned()),
            Just("18446744073709551615".to_owned()),
        ],
    ) {
        let lines: Vec<&str> = NodeConfig::EXAMPLE.lines().filter(|line| line.contains('=')).collect();
        let line = line.get::<&str>(&lines);
        let key = line.split('=').next().unwrap();
        let changed = NodeConfig::EXAMPLE.replacen(line, &format!("{key}= {value}"), 1);
        CONFIG.feed(&[changed.into_bytes()]);
    }
}
