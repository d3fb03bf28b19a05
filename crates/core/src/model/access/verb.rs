//! What a principal can be allowed to do.

use alloc::vec::Vec;
use core::fmt;

macro_rules! verbs {
    ($($verb:ident = $bit:literal, $name:literal, $scope:ident;)*) => {
        /// A right; docs/security.md lists what each one allows. Its bit is part of stored and sent formats, so it
        /// never changes.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Verb {
            $($verb,)*
        }

        impl Verb {
            pub const ALL: &'static [Verb] = &[$(Verb::$verb,)*];

            const fn bit(self) -> u32 {
                match self {
                    $(Verb::$verb => 1 << $bit,)*
                }
            }

            /// The verb's name in policy files and on the command line.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Verb::$verb => $name,)*
                }
            }

            pub const fn scope(self) -> Scope {
                match self {
                    $(Verb::$verb => Scope::$scope,)*
                }
            }
        }
    };
}

/// What a rule grants a verb for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Lock names that match a pattern.
    Names,
    /// The cluster as a whole.
    Cluster,
}

verbs! {
    Read = 0, "read", Names;
    Shared = 1, "shared", Names;
    Exclusive = 2, "exclusive", Names;
    Permit = 3, "permit", Names;
    Elect = 4, "elect", Names;
    Wound = 5, "wound", Names;
    Transfer = 6, "transfer", Names;
    Efficiency = 7, "efficiency", Names;
    Break = 8, "break", Names;
    Move = 9, "move", Names;
    Freeze = 10, "freeze", Names;
    SetPermits = 11, "set-permits", Names;
    Connect = 12, "connect", Cluster;
    Sessions = 13, "sessions", Cluster;
    KillSession = 14, "kill-session", Cluster;
    ClusterRead = 15, "cluster-read", Cluster;
    ClusterChange = 16, "cluster-change", Cluster;
    Snapshot = 17, "snapshot", Cluster;
    Metrics = 18, "metrics", Cluster;
    Access = 19, "access", Cluster;
}

impl Verb {
    pub fn parse(name: &str) -> Option<Verb> {
        Verb::ALL.iter().copied().find(|verb| verb.name() == name)
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A set of verbs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Verbs(u32);

impl Verbs {
    pub const NONE: Verbs = Verbs(0);

    pub const fn of(verbs: &[Verb]) -> Verbs {
        let mut bits = 0;
        let mut rest = verbs;
        while let [verb, others @ ..] = rest {
            bits |= verb.bit();
            rest = others;
        }
        Verbs(bits)
    }

    pub const fn contains(self, verb: Verb) -> bool {
        self.0 & verb.bit() != 0
    }

    pub const fn contains_all(self, others: Verbs) -> bool {
        self.0 & others.0 == others.0
    }

    /// The union of both sets.
    pub const fn and(self, others: Verbs) -> Verbs {
        Verbs(self.0 | others.0)
    }

    pub const fn without(self, others: Verbs) -> Verbs {
        Verbs(self.0 & !others.0)
    }

    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The verbs of one scope.
    pub fn within(self, scope: Scope) -> Verbs {
        self.iter().filter(|verb| verb.scope() == scope).collect()
    }

    pub fn iter(self) -> impl Iterator<Item = Verb> {
        Verb::ALL.iter().copied().filter(move |verb| self.contains(*verb))
    }

    pub(crate) const fn bits(self) -> u32 {
        self.0
    }

    /// `None` if a bit is set that stands for no verb.
    pub(crate) fn from_bits(bits: u64) -> Option<Verbs> {
        let bits = u32::try_from(bits).ok()?;
        let known = Verbs::of(Verb::ALL);
        (bits & !known.0 == 0).then_some(Verbs(bits))
    }
}

impl FromIterator<Verb> for Verbs {
    fn from_iter<I: IntoIterator<Item = Verb>>(verbs: I) -> Verbs {
        Verbs::of(&verbs.into_iter().collect::<Vec<_>>())
    }
}

impl fmt::Display for Verbs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, verb) in self.iter().enumerate() {
            if at > 0 {
                f.write_str(" ")?;
            }
            f.write_str(verb.name())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_verb_has_a_bit_and_a_name_of_its_own() {
        let mut seen = Verbs::NONE;
        for verb in Verb::ALL {
            assert!(!seen.contains(*verb), "{verb}");
            seen = seen.and(Verbs::of(&[*verb]));
            assert_eq!(Verb::parse(verb.name()), Some(*verb));
        }
        assert_eq!(Verbs::from_bits(seen.bits().into()), Some(seen));
        assert_eq!(Verbs::from_bits(1 << 31), None);
        assert_eq!(Verbs::from_bits(1 << 40), None);
        assert_eq!(Verb::parse("brake"), None);
    }
}
