//! The elections that this node has seen and that may not be published yet.
//!
//! They are no events of the lock table: each node learns of them by itself, and the next leader publishes what
//! its predecessors could not.

use std::collections::VecDeque;

use holdfast_replica::Leadership;

use crate::audit::line;
use crate::events::Position;
use crate::shard::unix_ms;

/// More than there are in an outage of any length that is still of interest.
const KEPT_MAX: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Elections {
    /// By term, with the line that tells of it.
    seen: VecDeque<(u64, Vec<u8>)>,
    last_term: u64,
}

impl Elections {
    /// The present leader. Nothing if there is none, or if it is known.
    pub(super) fn note(&mut self, now: Leadership, position: Position) {
        if now.leader.is_none() || now.term <= self.last_term {
            return;
        }
        self.last_term = now.term;
        self.seen.push_back((now.term, line::leadership(now, position, unix_ms())));
        if self.seen.len() > KEPT_MAX {
            self.seen.pop_front();
        }
    }

    /// Those up to this term are published.
    pub(super) fn published(&mut self, term: u64) {
        while self.seen.front().is_some_and(|(seen, _)| *seen <= term) {
            self.seen.pop_front();
        }
    }

    /// The lines that are left, and the last term of them.
    pub(super) fn waiting(&self) -> (Option<u64>, impl Iterator<Item = &[u8]>) {
        let last = self.seen.back().map(|(term, _)| *term);
        (last, self.seen.iter().map(|(_, line)| line.as_slice()))
    }
}

#[cfg(test)]
mod tests {
    use holdfast_replica::GroupId;
    use holdfast_replica::NodeId;

    use super::*;

    fn led(leader: Option<u64>, term: u64) -> Leadership {
        Leadership { leader: leader.map(NodeId), is_here: leader == Some(1), term }
    }

    #[test]
    fn each_election_is_kept_until_it_is_published() {
        let mut elections = Elections::default();
        for now in [led(Some(2), 3), led(Some(2), 3), led(None, 4), led(Some(1), 5)] {
            elections.note(now, Position::start_of(GroupId::FIRST));
        }
        let texts = |elections: &Elections| -> Vec<String> {
            elections.waiting().1.map(|line| String::from_utf8_lossy(line).into_owned()).collect()
        };
        let both = texts(&elections);
        assert_eq!(both.len(), 2, "{both:?}");
        assert!(both[0].contains("\"leader\":2,\"term\":3"), "{both:?}");
        assert!(both[1].contains("this node leads"), "{both:?}");
        elections.published(3);
        assert_eq!((elections.waiting().0, texts(&elections).len()), (Some(5), 1));
        elections.published(5);
        assert_eq!((elections.waiting().0, texts(&elections).len()), (None, 0));
        for term in 6..600 {
            elections.note(led(Some(1), term), Position::start_of(GroupId::FIRST));
        }
        assert_eq!(texts(&elections).len(), KEPT_MAX);
    }
}
