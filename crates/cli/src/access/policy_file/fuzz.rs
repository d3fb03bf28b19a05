//! Policy files with mistakes: refused soon, with the line that is wrong, or a policy that is the same when it is shown and
//! read again.
//!
//! `FUZZ_CASES=100000 cargo test -p holdfast --bins policy_file::fuzz` runs for longer.

#[path = "../../../../../fuzz/support.rs"]
#[allow(dead_code, clippy::print_stdout, reason = "it is shared by fuzz tests that use more of it")]
mod support;

use std::time::{Duration, Instant};

use proptest::prelude::*;
use support::{cases, damage};

use super::tests::TEXT;
use super::{PolicyFile, differences, parse};

const CASES_USUAL: u32 = 500;

/// What a policy file is made of.
const TOKENS: [&str; 24] = [
    "[",
    "]",
    "[[",
    "]]",
    "\n",
    ".",
    "=",
    " ",
    ",",
    "\"",
    "'",
    "{",
    "}",
    "#",
    "roles",
    "users",
    "quotas",
    "rules",
    "verbs",
    "pattern",
    "\"cert:a\"",
    "\"read\"",
    "locks",
    "1",
];

/// Far more than a file of this size takes, and less than anything that grows without a bound.
const PATIENCE: Duration = Duration::from_secs(5);

fn read(bytes: &[u8]) {
    let begun = Instant::now();
    let parsed = parse(bytes);
    let shown = String::from_utf8_lossy(bytes);
    assert!(begun.elapsed() < PATIENCE, "{shown}");
    match parsed {
        Ok(content) => {
            let again = PolicyFile::of(&content).to_toml().unwrap();
            let parsed = parse(again.as_bytes());
            assert_eq!(parsed.as_ref(), Ok(&content), "{shown}\nis shown as\n{again}");
            assert_eq!(differences(&content, &content), []);
        }
        Err(error) => {
            let lines = bytes.split(|byte| *byte == b'\n').count();
            assert!((1..=lines).contains(&error.line), "{error} of {lines} lines in\n{shown}");
            assert!(!error.words.is_empty(), "{shown}");
        }
    }
}

proptest! {
    #![proptest_config(cases(CASES_USUAL))]

    #[test]
    fn a_damaged_policy_file_is_refused_or_is_a_policy(damage in damage()) {
        let damaged = damage.of(TEXT.as_bytes(), TEXT.as_bytes());
        read(&damaged);
    }

    #[test]
    fn any_bytes_are_refused_or_a_policy(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        read(&bytes);
    }

    #[test]
    fn any_tokens_of_toml_are_refused_or_a_policy(
        tokens in proptest::collection::vec(
            prop::sample::select(&TOKENS[..]),
            0..60,
        ),
    ) {
        read(tokens.concat().as_bytes());
    }

    #[test]
    fn a_policy_file_with_other_words_is_refused_or_is_a_policy(
        role in "[a-z*/ .\"-]{0,8}",
        verbs in proptest::collection::vec("(read|exclusive|connect|metrics|access|[a-z]{0,6})", 0..4),
        pattern in proptest::option::of("[a-z/*]{0,6}"),
        principal in "(cert|token|jwt|node|anonymous)?:?[a-z:/]{0,8}",
        roles in proptest::collection::vec("(reader|user|admin|[a-z]{0,8})", 0..3),
    ) {
        let pattern = pattern.map(|pattern| format!("pattern = {pattern:?}\n")).unwrap_or_default();
        let text = format!(
            "[[roles.{role:?}.rules]]\nverbs = {verbs:?}\n{pattern}[users]\n{principal:?} = {roles:?}\n"
        );
        read(text.as_bytes());
    }
}

/// A file may be large and deep. Neither costs more than its size.
#[test]
fn a_large_policy_file_and_a_deep_one_are_read_soon() {
    let roles: String = (0..5_000)
        .map(|number| format!("[[roles.r{number}.rules]]\nverbs = [\"read\"]\npattern = \"a/*\"\n"))
        .collect();
    let users: String =
        (0..5_000).map(|number| format!("\"cert:u{number}\" = [\"reader\"]\n")).collect();
    read(format!("{roles}[users]\n{users}").as_bytes());
    read(format!("users = {}", "[".repeat(100_000)).as_bytes());
    read(format!("users = {}", "{a=".repeat(100_000)).as_bytes());
    read(vec![b'['; 100_000].as_slice());
    read(format!("{}=1", "a.".repeat(100_000)).as_bytes());
}
