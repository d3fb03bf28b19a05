//! The rule by which a resource lets a write pass.
//!
//! It has two parts. What can be said of a token without knowing any other is said by [`admit`], whose result,
//! a [`Claim`], is the only thing that the checkers take. What depends on those that came
//! before is said by [`HighWaterMark::raise`]: lower than the highest seen is refused, equal is the
//! same holder, higher is a new one.
//!
//! The second part must be one step with the write that it protects, and the mark must be as durable as the
//! data. How, is up to each checker.
//!
//! **One resource, one tier.** The numbers of linearizable and of best-effort tokens come from different
//! counters and cannot be compared. So [`Accepts`] names one of the two for a resource, and the
//! other is refused. A resource that moves from one tier to the other keeps its mark. If that is higher than
//! the tokens of the new tier, their writes are refused: too strict, never too lax.

use std::fmt;
use std::num::NonZeroU64;

use crate::token::{Fence, Guarantee, ParseFenceError};

/// Which tokens a resource takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Accepts {
    /// Those of the correctness tier.
    #[default]
    Linearizable,
    /// Those of the efficiency tier: for a resource where a duplicate write is a waste and no damage.
    BestEffort,
}

impl Accepts {
    fn guarantee(self) -> Guarantee {
        match self {
            Accepts::Linearizable => Guarantee::Linearizable,
            Accepts::BestEffort => Guarantee::BestEffort,
        }
    }
}

/// A token that belongs to the resource and is of the kind that it takes. Whether it is out of date is
/// not known yet.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Claim {
    resource: String,
    token: NonZeroU64,
}

impl Claim {
    pub fn resource(&self) -> &str {
        &self.resource
    }

    pub fn token(&self) -> u64 {
        self.token.get()
    }

    /// The token for a signed 64-bit column; every token fits.
    pub fn token_i64(&self) -> i64 {
        i64::try_from(self.token.get()).unwrap_or(i64::MAX)
    }
}

/// Why a write is refused, in words that say what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error(
        "the write to `{resource}` came without a fencing token: take the lock `{resource}` and \
         send its full token (`guard.fence()`, or HOLDFAST_FENCE) along"
    )]
    Missing { resource: String },
    #[error(
        "the fencing token for `{resource}` cannot be read: {error}; send the full token \
         (`guard.fence()`, or HOLDFAST_FENCE) as it was granted, not its number alone"
    )]
    Malformed { resource: String, error: ParseFenceError },
    #[error(
        "the fencing token for `{resource}` is empty, as that of a semaphore's permit is, which does \
         not exclude others and cannot be fenced: take the lock `{resource}` exclusively"
    )]
    NotFenceable { resource: String },
    #[error(
        "the fencing token for `{resource}` has the number 0, which is never granted: send the token \
         of a lock that is held"
    )]
    Zero { resource: String },
    #[error(
        "the fencing token belongs to another resource than `{resource}`: take the lock \
         `{resource}`, by exactly this name, and send its token"
    )]
    OtherResource { resource: String },
    #[error(
        "`{resource}` takes no best-effort token, since two holders of such a lock can overlap: take \
         the lock in the correctness tier; or, if a duplicate write does no damage, let the \
         resource accept best-effort tokens"
    )]
    BestEffort { resource: String },
    #[error(
        "`{resource}` takes best-effort tokens only, and this one is of the correctness tier; the \
         numbers of the two cannot be compared: take the lock in the efficiency tier; or let the \
         resource accept linearizable tokens, and those only"
    )]
    NotBestEffort { resource: String },
    #[error(
        "token {token} for `{resource}` is out of date, {highest} has been seen: the lock was lost and \
         another holder has it, or had it. Do not send this write again: acquire the lock again, and \
         begin with reading"
    )]
    Stale { resource: String, token: u64, highest: u64 },
}

/// A token as it arrives: as text, if it came at all, or read already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presented<'a> {
    Nothing,
    Text(&'a str),
    Fence(Fence),
}

impl<'a> From<&'a str> for Presented<'a> {
    fn from(text: &'a str) -> Presented<'a> {
        Presented::Text(text)
    }
}

impl<'a> From<&'a String> for Presented<'a> {
    fn from(text: &'a String) -> Presented<'a> {
        Presented::Text(text)
    }
}

impl<'a> From<Option<&'a str>> for Presented<'a> {
    fn from(text: Option<&'a str>) -> Presented<'a> {
        text.map_or(Presented::Nothing, Presented::Text)
    }
}

impl From<Fence> for Presented<'_> {
    fn from(fence: Fence) -> Presented<'static> {
        Presented::Fence(fence)
    }
}

/// All that can be said of a token without knowing any other. `resource` is the name that the lock has,
/// and must come from the resource itself, not from the caller.
pub fn admit<'a>(
    presented: impl Into<Presented<'a>>,
    resource: &str,
    accepts: Accepts,
) -> Result<Claim, Refusal> {
    let resource = resource.to_owned();
    let fence = match presented.into() {
        Presented::Nothing => return Err(Refusal::Missing { resource }),
        Presented::Text("") => return Err(Refusal::NotFenceable { resource }),
        Presented::Text(text) => match text.parse::<Fence>() {
            Ok(fence) => fence,
            Err(error) => return Err(Refusal::Malformed { resource, error }),
        },
        Presented::Fence(fence) => fence,
    };
    let Some(token) = NonZeroU64::new(fence.number()) else {
        return Err(Refusal::Zero { resource });
    };
    if !fence.is_for(&resource) {
        return Err(Refusal::OtherResource { resource });
    }
    if fence.guarantee() != accepts.guarantee() {
        return Err(match fence.guarantee() {
            Guarantee::BestEffort => Refusal::BestEffort { resource },
            Guarantee::Linearizable => Refusal::NotBestEffort { resource },
        });
    }
    Ok(Claim { resource, token })
}

/// The highest token that a resource has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct HighWaterMark(u64);

impl HighWaterMark {
    /// Of a resource that has seen none.
    pub const NONE: HighWaterMark = HighWaterMark(0);

    /// As it was kept with the data; 0 for none.
    pub fn from_token(token: u64) -> HighWaterMark {
        HighWaterMark(token)
    }

    /// 0 for none.
    pub fn token(self) -> u64 {
        self.0
    }

    /// Lets the claim pass and remembers it, or refuses it and stays.
    pub fn raise(&mut self, claim: &Claim) -> Result<(), Refusal> {
        if claim.token() < self.0 {
            return Err(self.stale(claim));
        }
        self.0 = claim.token();
        Ok(())
    }

    /// The refusal of a claim by a store that has this mark.
    pub(crate) fn stale(self, claim: &Claim) -> Refusal {
        Refusal::Stale { resource: claim.resource.clone(), token: claim.token(), highest: self.0 }
    }
}

impl fmt::Display for HighWaterMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::token::TOKEN_LIMIT;

    fn fence(guarantee: Guarantee, name: &str, number: u64) -> String {
        Fence::new(guarantee, name, number).unwrap().to_string()
    }

    fn linearizable(number: u64) -> String {
        fence(Guarantee::Linearizable, "wallet:42", number)
    }

    fn refusal<'a>(presented: impl Into<Presented<'a>>, accepts: Accepts) -> Refusal {
        admit(presented, "wallet:42", accepts).unwrap_err()
    }

    #[test]
    fn an_invalid_token_is_refused_with_what_to_do() {
        let other = fence(Guarantee::Linearizable, "wallet:43", 7);
        let best_effort = fence(Guarantee::BestEffort, "wallet:42", 7);
        let cases: [(Option<&str>, Accepts, &str); 8] = [
            (None, Accepts::Linearizable, "take the lock `wallet:42` and send its full token"),
            (Some(""), Accepts::Linearizable, "take the lock `wallet:42` exclusively"),
            (Some("7"), Accepts::Linearizable, "as it was granted, not its number alone"),
            (Some("hf2.L.0.1"), Accepts::Linearizable, "this build reads hf1"),
            (
                Some(&linearizable(0)),
                Accepts::Linearizable,
                "send the token of a lock that is held",
            ),
            (
                Some(&other),
                Accepts::Linearizable,
                "take the lock `wallet:42`, by exactly this name",
            ),
            (Some(&best_effort), Accepts::Linearizable, "take the lock in the correctness tier"),
            (Some(&linearizable(7)), Accepts::BestEffort, "take the lock in the efficiency tier"),
        ];
        for (text, accepts, words) in cases {
            let refusal = refusal(text, accepts).to_string();
            assert!(refusal.contains(words), "{text:?}: {refusal}");
        }
    }

    #[test]
    fn a_best_effort_token_passes_where_it_was_allowed() {
        let text = fence(Guarantee::BestEffort, "wallet:42", 7);
        let claim = admit(&text, "wallet:42", Accepts::BestEffort).unwrap();
        assert_eq!((claim.resource(), claim.token()), ("wallet:42", 7));
    }

    #[test]
    fn a_token_is_the_same_as_text_and_read() {
        let fence: Fence = linearizable(9).parse().unwrap();
        assert_eq!(
            admit(fence, "wallet:42", Accepts::Linearizable),
            admit(&linearizable(9), "wallet:42", Accepts::Linearizable)
        );
    }

    #[test]
    fn lower_is_refused_equal_is_the_same_holder_and_higher_is_a_new_one() {
        let claim = |number| admit(&linearizable(number), "wallet:42", Accepts::default()).unwrap();
        let mut mark = HighWaterMark::NONE;
        assert_eq!(mark.raise(&claim(5)), Ok(()));
        assert_eq!(mark.raise(&claim(5)), Ok(()));
        assert_eq!(mark.raise(&claim(9)), Ok(()));
        let stale = mark.raise(&claim(8)).unwrap_err();
        assert_eq!(stale, Refusal::Stale { resource: "wallet:42".into(), token: 8, highest: 9 });
        assert!(stale.to_string().contains("acquire the lock again, and begin with reading"));
        assert_eq!(mark.token(), 9);
    }

    proptest! {
        #[test]
        fn no_foreign_text_panics_the_token_parser(text in ".{0,60}", best_effort: bool) {
            let accepts = if best_effort { Accepts::BestEffort } else { Accepts::Linearizable };
            prop_assert!(admit(&text, "wallet:42", accepts).is_err());
        }

        #[test]
        fn a_mark_never_goes_back(numbers in prop::collection::vec(1..TOKEN_LIMIT, 1..30)) {
            let mut mark = HighWaterMark::NONE;
            for number in numbers {
                let claim = admit(&linearizable(number), "wallet:42", Accepts::default()).unwrap();
                let before = mark.token();
                let passed = mark.raise(&claim).is_ok();
                prop_assert_eq!(passed, number >= before);
                prop_assert_eq!(mark.token(), before.max(number));
            }
        }
    }
}
