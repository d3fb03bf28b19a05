//! How much a node serves at a time. Each kind of request has a limit of its own. So sessions, which last, leave room for
//! calls, which do not, and watches take no room from locks.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use holdfast_proto::failure::not_now;
use holdfast_proto::v1::{Failure, Reason};

use crate::method::Limit;

/// Twice as many as a cluster is planned for, all at its leader.
const SESSION_STREAMS_MAX: usize = 200_000;
const CALLS_MAX: usize = 100_000;
const WATCHES_MAX: usize = 100_000;
/// Streams that last and that a node relays to the leader.
pub const RELAYED_MAX: usize = 24_576;

/// Cheap to clone.
#[derive(Clone, Debug)]
pub struct ConcurrencyLimits {
    limits: Arc<[Counter; Limit::ALL.len()]>,
}

#[derive(Debug)]
struct Counter {
    taken: AtomicUsize,
    max: usize,
}

/// Room for one request, until it is dropped.
#[derive(Debug)]
pub struct Permit {
    limits: ConcurrencyLimits,
    limit: Limit,
}

impl Default for ConcurrencyLimits {
    fn default() -> ConcurrencyLimits {
        ConcurrencyLimits::new(|limit| match limit {
            Limit::Call => CALLS_MAX,
            Limit::Session => SESSION_STREAMS_MAX,
            Limit::Relayed => RELAYED_MAX,
            Limit::Watch => WATCHES_MAX,
            Limit::None => usize::MAX,
        })
    }
}

impl ConcurrencyLimits {
    pub fn new(max: impl Fn(Limit) -> usize) -> ConcurrencyLimits {
        let counter = |limit| Counter { taken: AtomicUsize::new(0), max: max(limit) };
        ConcurrencyLimits { limits: Arc::new(Limit::ALL.map(counter)) }
    }

    pub fn take(&self, limit: Limit) -> Result<Permit, Failure> {
        let counter = self.of(limit);
        let has_room = |taken| (taken < counter.max).then_some(taken + 1);
        match counter.taken.fetch_update(Ordering::AcqRel, Ordering::Acquire, has_room) {
            Ok(_) => Ok(Permit { limits: self.clone(), limit }),
            Err(_) => Err(not_now(Reason::Overloaded, in_words(limit, counter.max))),
        }
    }

    fn of(&self, limit: Limit) -> &Counter {
        &self.limits[limit as usize]
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.limits.of(self.limit).taken.fetch_sub(1, Ordering::AcqRel);
    }
}

fn in_words(limit: Limit, max: usize) -> String {
    let too_many = match limit {
        Limit::Call => format!("this node has {max} calls under way, as many as it may"),
        Limit::Session => format!("this node serves {max} streams of sessions, as many as it may"),
        Limit::Relayed => {
            format!(
                "this node does not lead and relays {max} streams to the leader, as many as it may"
            )
        }
        Limit::Watch => format!("this node serves {max} watches, as many as it may"),
        Limit::None => "this node serves as many requests as it may".to_owned(),
    };
    format!("{too_many}; try another node, or this one in a moment")
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITED: [Limit; 4] = [Limit::Call, Limit::Session, Limit::Relayed, Limit::Watch];

    #[test]
    fn a_kind_that_is_full_leaves_room_for_every_other() {
        for full in LIMITED {
            let limits = ConcurrencyLimits::new(|_| 3);
            let taken: Vec<Permit> = (0..3).map(|_| limits.take(full).unwrap()).collect();
            for limit in LIMITED {
                assert_eq!(limits.take(limit).is_ok(), limit != full, "{full:?}: {limit:?}");
            }
            drop(taken);
            assert!(limits.take(full).is_ok(), "{full:?}: there is room again");
        }
    }

    #[test]
    fn a_refusal_names_the_limit_and_may_be_retried() {
        let limits = ConcurrencyLimits::new(|limit| limit as usize + 1);
        for (limit, words) in
            [(Limit::Call, "1 calls"), (Limit::Session, "2 streams"), (Limit::Relayed, "3 streams")]
        {
            let _taken: Vec<Permit> = std::iter::from_fn(|| limits.take(limit).ok()).collect();
            let failure = limits.take(limit).unwrap_err();
            assert!(failure.message.contains(words), "{}", failure.message);
            assert_eq!(failure.reason(), Reason::Overloaded);
            assert!(failure.retryable && !failure.may_have_happened);
        }
    }

    #[test]
    fn the_sessions_that_a_cluster_is_planned_for_find_room() {
        const PLANNED: usize = 100_000;
        let limits = ConcurrencyLimits::default();
        let sessions: Vec<Permit> =
            (0..PLANNED).map(|_| limits.take(Limit::Session).unwrap()).collect();
        assert_eq!(sessions.len(), PLANNED);
        assert!(limits.take(Limit::Call).is_ok());
    }
}
