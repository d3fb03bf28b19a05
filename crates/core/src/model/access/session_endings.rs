//! Which sessions the changes of the policy have ended.
//!
//! A change with `end_sessions` ends sessions in the group that makes it. Another group adopts a later policy, and may
//! have missed some generations. So the policy says whose sessions have ended, and at which generation.
//!
//! # Invariants
//!
//! * A group that goes from one generation to a later one ends at least the sessions that one of the changes in between
//!   would have ended in it.
//! * What is stored is bounded. What does not fit ends more sessions than necessary, never fewer.

use alloc::collections::BTreeMap;

use super::principal::{Principal, read_principal, write_principal};
use crate::model::codec::{DecodeError, Reader, Sink, in_order};

/// Principals whose ended sessions are remembered.
const PRINCIPALS_REMEMBERED_MAX: usize = 1_000;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SessionEndings {
    /// The latest generation that ended all sessions of the principal.
    by_principal: BTreeMap<Principal, u64>,
    /// The present generation ended all sessions that may not connect under it.
    of_strangers: bool,
    /// Up to this generation, `by_principal` may miss some. A group with an older generation ends the sessions of all
    /// identities.
    forgotten_through: u64,
}

impl SessionEndings {
    /// A change follows the one that made this generation. Who could connect under this generation is not known any
    /// more.
    pub(super) fn begin_generation_after(&mut self, generation: u64) {
        if core::mem::take(&mut self.of_strangers) {
            self.forget_through(generation);
        }
    }

    pub(super) fn note(
        &mut self,
        generation: u64,
        principals: impl IntoIterator<Item = Principal>,
        of_strangers: bool,
    ) {
        self.of_strangers |= of_strangers;
        for principal in principals {
            self.by_principal.insert(principal, generation);
        }
        while self.by_principal.len() > PRINCIPALS_REMEMBERED_MAX {
            let oldest = self.by_principal.values().min().copied().unwrap_or(generation);
            self.forget_through(oldest);
        }
    }

    pub(super) fn forget_through(&mut self, generation: u64) {
        self.forgotten_through = self.forgotten_through.max(generation);
        self.by_principal.retain(|_, ended| *ended > generation);
    }

    /// Whether the sessions of the principal ended after that generation. `may_connect` is asked of the present policy.
    pub(super) fn contain_since(
        &self,
        generation: u64,
        principal: &Principal,
        may_connect: impl FnOnce() -> bool,
    ) -> bool {
        self.forgotten_through > generation
            || self.by_principal.get(principal).is_some_and(|ended| *ended > generation)
            || (self.of_strangers && !may_connect())
    }

    pub(super) fn write(&self, sink: &mut impl Sink) {
        sink.varint(self.forgotten_through);
        sink.u8(u8::from(self.of_strangers));
        sink.count(self.by_principal.len());
        for (principal, generation) in &self.by_principal {
            write_principal(sink, principal);
            sink.varint(*generation);
        }
    }

    /// Of a policy of this generation.
    pub(super) fn read(
        reader: &mut Reader<'_>,
        generation: u64,
    ) -> Result<SessionEndings, DecodeError> {
        let inconsistent = |what: &str| DecodeError::Inconsistent(what.into());
        let forgotten_through = reader.varint()?;
        let of_strangers = reader.bool("ended sessions of strangers")?;
        if forgotten_through > generation {
            return Err(inconsistent("sessions ended after the latest change"));
        }
        let mut read =
            SessionEndings { by_principal: BTreeMap::new(), of_strangers, forgotten_through };
        for _ in 0..reader.count()? {
            let principal = read_principal(reader)?;
            let ended = reader.varint()?;
            if ended <= forgotten_through || ended > generation {
                return Err(inconsistent("sessions ended at no possible generation"));
            }
            if read.by_principal.len() >= PRINCIPALS_REMEMBERED_MAX {
                return Err(inconsistent("too many principals with ended sessions"));
            }
            in_order(
                read.by_principal.last_key_value().map(|(last, _)| last),
                &principal,
                "principals with ended sessions",
            )?;
            read.by_principal.insert(principal, ended);
        }
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn generations_at_the_end_of_their_range_are_refused_and_not_computed_with() {
        let last = SessionEndings {
            by_principal: BTreeMap::from([(Principal::parse("token:a").unwrap(), u64::MAX)]),
            of_strangers: false,
            forgotten_through: u64::MAX,
        };
        let mut bytes = Vec::new();
        last.write(&mut bytes);
        let read = SessionEndings::read(&mut Reader::new(&bytes), u64::MAX);
        assert!(matches!(read, Err(DecodeError::Inconsistent(_))), "{read:?}");
    }
}
