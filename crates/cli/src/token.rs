//! Fencing tokens on the command line: how JSON has them, and in which forms `--token` takes them.
//!
//! In JSON a token is a text of digits. Tokens reach up to 2^63, and after a restore they are above 2^53: JavaScript,
//! jq 1.6 and others that read every number as a double would round them to another token.

use holdfast_client::Guarantee;
use holdfast_proto::{Fence, TOKEN_LIMIT};
use serde::Serializer;

use crate::exit::{Code, Problem};
use crate::tier::TierArg;

/// A token as the user gave it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenArg {
    Number(u64),
    /// The full form, which belongs to one lock in one tier.
    Fence(Fence),
}

impl TokenArg {
    /// Tokens start at 1 and stay below 2^63.
    pub(crate) fn parse(text: &str) -> Result<TokenArg, String> {
        let is_token = |number: u64| (1..TOKEN_LIMIT).contains(&number);
        if let Some(number) = text.parse::<u64>().ok().filter(|number| is_token(*number)) {
            return Ok(TokenArg::Number(number));
        }
        match text.parse::<Fence>() {
            Ok(fence) if is_token(fence.number()) => Ok(TokenArg::Fence(fence)),
            Err(error) if text.starts_with("hf") => Err(error.to_string()),
            _ => Err("a token is a whole number from 1 on, such as the 42 in `token=42` of `holdfast acquire`, or the full \
                      form hf1.L.….42 that it prints as `fence=`"
                .to_owned()),
        }
    }

    /// The number, if the full form is that of this lock in this tier. A number alone does not say of what it is.
    pub(crate) fn number_of(self, name: &str, tier: TierArg) -> Result<u64, Problem> {
        let fence = match self {
            TokenArg::Number(number) => return Ok(number),
            TokenArg::Fence(fence) => fence,
        };
        let usage = |words: String| Err(Problem::new(Code::Usage, words));
        if !fence.is_for(name) {
            return usage(format!(
                "the token {fence} belongs to another lock than {name}; nothing was done: give the name and the token of \
                 one grant"
            ));
        }
        let of = match fence.guarantee() {
            Guarantee::Linearizable => TierArg::Correctness,
            Guarantee::BestEffort => TierArg::Efficiency,
        };
        if of != tier {
            return usage(format!(
                "the token {fence} is of the {} tier, where {name} is another lock than in the {} tier; nothing was done",
                of.as_word(),
                tier.as_word()
            ));
        }
        Ok(fence.number())
    }
}

/// Above this the tokens of a new cluster could run out.
const FLOOR_MAX: u64 = 1 << 62;

/// The highest token that a user knows of, of whichever lock.
pub(crate) fn parse_floor(text: &str) -> Result<u64, String> {
    let number = match TokenArg::parse(text)? {
        TokenArg::Number(number) => number,
        TokenArg::Fence(fence) => fence.number(),
    };
    if number > FLOOR_MAX {
        return Err(format!("{number} is above {FLOOR_MAX}, the highest token to go on from"));
    }
    Ok(number)
}

/// For `#[serde(serialize_with)]`.
pub(crate) fn as_text<S: Serializer>(token: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(token)
}

/// As [`as_text`]; null if there is none.
pub(crate) fn as_text_if_any<S: Serializer>(
    token: &Option<u64>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match token {
        Some(token) => serializer.collect_str(token),
        None => serializer.serialize_none(),
    }
}

/// As [`as_text`], of several.
pub(crate) fn as_texts<S: Serializer>(tokens: &[u64], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(tokens.iter().map(u64::to_string))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fence(guarantee: Guarantee, name: &str) -> TokenArg {
        let text = Fence::new(guarantee, name, 7).unwrap().to_string();
        TokenArg::parse(&text).unwrap()
    }

    #[test]
    fn a_number_and_the_full_form_of_the_lock_are_the_same_token() {
        assert_eq!(TokenArg::parse("42"), Ok(TokenArg::Number(42)));
        assert_eq!(TokenArg::Number(42).number_of("any", TierArg::Efficiency), Ok(42));
        let of_deploy = fence(Guarantee::Linearizable, "deploy");
        assert_eq!(of_deploy.number_of("deploy", TierArg::Correctness), Ok(7));
    }

    #[test]
    fn the_full_form_of_another_lock_or_tier_is_refused() {
        let of_deploy = fence(Guarantee::Linearizable, "deploy");
        let other_lock = of_deploy.number_of("deploi", TierArg::Correctness).unwrap_err();
        assert!(other_lock.words.contains("another lock than deploi"), "{other_lock:?}");
        let other_tier = of_deploy.number_of("deploy", TierArg::Efficiency).unwrap_err();
        assert!(other_tier.words.contains("of the correctness tier"), "{other_tier:?}");
        assert_eq!((other_lock.code, other_tier.code), (Code::Usage, Code::Usage));
    }

    #[test]
    fn tokens_go_on_from_a_number_or_from_a_full_form_that_leaves_room() {
        assert_eq!(parse_floor("4611686018427387904"), Ok(FLOOR_MAX));
        assert_eq!(parse_floor("hf1.L.5e8c9902207afaeb.42"), Ok(42));
        assert!(parse_floor("4611686018427387905").unwrap_err().contains("is above"));
        assert!(parse_floor("0").is_err());
    }

    #[test]
    fn what_is_no_token_is_told_what_one_looks_like() {
        for wrong in ["abc", "", "0", "-1", "9223372036854775808", "hf1.L.5e8c9902207afaeb.0"] {
            assert!(TokenArg::parse(wrong).unwrap_err().contains("token=42"), "{wrong}");
        }
        let cut = TokenArg::parse("hf1.L.5e8c9902207afaeb").unwrap_err();
        assert!(cut.contains("four parts"), "{cut}");
    }
}
