//! Texts that are taken for tokens: refused without repeating them, or the token that was written.
//!
//! `FUZZ_CASES=100000 cargo test -p holdfast-proto --test fuzz_access_token` runs for longer.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "it is a test")]

#[path = "../../../fuzz/support.rs"]
#[allow(dead_code, clippy::print_stdout, reason = "it is shared by fuzz tests that use more of it")]
mod support;

use holdfast_proto::AccessToken;
use proptest::prelude::*;
use support::{cases, damage};

const CASES_USUAL: u32 = 2_000;

proptest! {
    #![proptest_config(cases(CASES_USUAL))]

    #[test]
    fn a_damaged_token_is_refused_or_is_another_token(damage in damage()) {
        let token = AccessToken::random().unwrap();
        let good = token.to_secret_text();
        let damaged = damage.of(good.as_bytes(), good.as_bytes());
        let text = String::from_utf8_lossy(&damaged);
        match text.parse::<AccessToken>() {
            Ok(parsed) => {
                prop_assert_eq!(parsed.to_secret_text(), &*text);
                prop_assert_eq!(parsed == token, *text == good);
                prop_assert_eq!(parsed.has_digest(&token.digest()), parsed.digest() == token.digest());
                let shown = format!("{:?}", parsed);
                prop_assert!(!shown.contains(&good[good.len() - 20..]));
            }
            Err(error) => prop_assert!(!error.to_string().contains(&good[20..])),
        }
    }

    #[test]
    fn any_text_is_refused_or_a_token_that_is_written_so(text in "(hft_)?\\PC{0,80}") {
        if let Ok(parsed) = text.parse::<AccessToken>() {
            prop_assert_eq!(parsed.to_secret_text(), text);
        }
    }
}
