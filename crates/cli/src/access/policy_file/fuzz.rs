//! Policy files with mistakes: refused in words, or a policy that is the same when it is shown and read again.
//!
//! `FUZZ_CASES=100000 cargo test -p holdfast --bins policy_file::fuzz` runs for longer.

#[path = "../../../../../fuzz/support.rs"]
#[allow(dead_code, clippy::print_stdout, reason = "it is shared by fuzz tests that use more of it")]
mod support;

use proptest::prelude::*;
use support::{cases, damage};

use super::tests::TEXT;
use super::{PolicyFile, differences, parse};

const CASES_USUAL: u32 = 500;

fn read(text: &str) {
    match parse(text) {
        Ok(roles) => {
            let shown = PolicyFile::of(&roles).to_toml().unwrap();
            assert_eq!(parse(&shown).as_ref(), Ok(&roles), "{text}\nis shown as\n{shown}");
            assert_eq!(differences(&roles, &roles), []);
        }
        Err(words) => assert!(words.len() > 10, "{words}"),
    }
}

proptest! {
    #![proptest_config(cases(CASES_USUAL))]

    #[test]
    fn a_damaged_policy_file_is_refused_or_is_a_policy(damage in damage()) {
        let damaged = damage.of(TEXT.as_bytes(), TEXT.as_bytes());
        read(&String::from_utf8_lossy(&damaged));
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
        read(&format!(
            "[[roles.{role:?}.rules]]\nverbs = {verbs:?}\n{pattern}[users]\n{principal:?} = {roles:?}\n"
        ));
    }
}
