//! Where the weaker tier is refused: the commonest mistake is a fast lock that guards a problem which needs a
//! correct one, so a program that knows which names these are can say it once.

use holdfast_proto::Guarantee;

use super::WhenDown;
use crate::error::GuaranteeRequired;

/// Names under a prefix, and the least that a lock of theirs has to be.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Requirement {
    /// Empty: all names.
    prefix: String,
    at_least: Guarantee,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Requirements(Vec<Requirement>);

fn strength(guarantee: Guarantee) -> u8 {
    match guarantee {
        Guarantee::BestEffort => 1,
        Guarantee::Linearizable => 2,
    }
}

impl Requirements {
    pub(crate) fn add(&mut self, prefix: String, at_least: Guarantee) {
        self.0.push(Requirement { prefix, at_least });
    }

    /// Whether locks of this name may be of this strength. The strictest of those that cover the name counts.
    pub(super) fn check(&self, name: &str, guarantee: Guarantee) -> Result<(), GuaranteeRequired> {
        match self.strictest(name) {
            Some(required) if strength(required.at_least) > strength(guarantee) => {
                Err(GuaranteeRequired {
                    name: name.to_owned(),
                    prefix: required.prefix.clone(),
                    required: required.at_least,
                })
            }
            _ => Ok(()),
        }
    }

    /// A name of which something is required is not gone without.
    pub(super) fn policy(&self, name: &str, when_down: WhenDown) -> WhenDown {
        match when_down {
            WhenDown::GoWithout if self.strictest(name).is_some() => WhenDown::Fail,
            other => other,
        }
    }

    fn strictest(&self, name: &str) -> Option<&Requirement> {
        let covering = self.0.iter().filter(|requirement| name.starts_with(&requirement.prefix));
        covering.max_by_key(|requirement| strength(requirement.at_least))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_strictest_requirement_that_covers_a_name_counts() {
        let mut requirements = Requirements::default();
        requirements.check("wallet/1", Guarantee::BestEffort).unwrap();
        requirements.add("wallet/".to_owned(), Guarantee::Linearizable);
        requirements.add(String::new(), Guarantee::BestEffort);
        requirements.check("cache/1", Guarantee::BestEffort).unwrap();
        requirements.check("wallet/1", Guarantee::Linearizable).unwrap();
        let refused = requirements.check("wallet/1", Guarantee::BestEffort).unwrap_err();
        assert_eq!(refused.prefix, "wallet/");
        let words = refused.to_string();
        assert!(words.contains("`wallet/`") && words.contains("leave out .tier("), "{words}");
    }

    #[test]
    fn a_required_guarantee_is_never_skipped() {
        let mut requirements = Requirements::default();
        requirements.add("a".to_owned(), Guarantee::BestEffort);
        for (name, when_down, then) in [
            ("a1", WhenDown::GoWithout, WhenDown::Fail),
            ("b1", WhenDown::GoWithout, WhenDown::GoWithout),
            ("a1", WhenDown::FallBack, WhenDown::FallBack),
        ] {
            assert_eq!(requirements.policy(name, when_down), then, "{name}");
        }
    }
}
