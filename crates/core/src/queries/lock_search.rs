//! Searches the table for locks: by prefix, text, holder or value, ranked by queue length or by age of the hold.
//!
//! A large table is searched in parts, so that other callers do not wait long. Each part shows the moment at which it
//! was read. Locks are visited in the order of their names. So of two locks with the same rank, the one with the lower
//! name comes first, and a later part only has to return locks with a higher rank than the last wanted one.

use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Bound;

use crate::model::command::Mode;
use crate::model::id::PublicSessionId;
use crate::queries::status::LockSummary;
use crate::state::lock::Lock;
use crate::state::table::LockTable;

/// What to search for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockSearch {
    pub prefix: String,
    /// A text anywhere in the name, ignoring the case of ASCII letters.
    pub contains: String,
    /// One of its holders.
    pub holder: Option<PublicSessionId>,
    /// Only locks that are held exclusively and with metadata.
    pub only_with_value: bool,
    pub rank: Rank,
}

/// By what locks are ranked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// Its name alone.
    #[default]
    Name,
    QueueLength,
    HoldAge,
}

/// The result of one part of a search.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockSearchPart {
    /// In order of names, with their ranks.
    pub found: Vec<(u64, LockSummary)>,
    /// How many locks matched, including those whose rank is too low.
    pub matched: usize,
    /// The next part begins after this name; none if the search is complete.
    pub next: Option<String>,
}

/// The range of one part of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SearchRange<'a> {
    pub after: Option<&'a str>,
    pub locks_max: usize,
    /// Return only locks with a higher rank; none: all.
    pub above: Option<u64>,
    /// The part ends when so many are found.
    pub found_max: usize,
}

impl LockTable {
    /// Searches one part of the table.
    pub fn search_locks(&self, search: &LockSearch, range: SearchRange<'_>) -> LockSearchPart {
        let prefix = search.prefix.as_str();
        let start = match range.after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        let mut result = LockSearchPart::default();
        let under = self.lock_map().from(start).take_while(|(name, _)| name.starts_with(prefix));
        for (looked_at, (name, lock)) in under.enumerate() {
            if looked_at == range.locks_max || result.found.len() == range.found_max {
                return result;
            }
            result.next = Some(String::from(name.as_str()));
            let matches = contains(name, &search.contains)
                && self.is_held_by(lock, search.holder)
                && (!search.only_with_value || has_value(lock));
            if !matches {
                continue;
            }
            result.matched += 1;
            let rank = search.rank.of(lock);
            if range.above.is_none_or(|above| rank > above) {
                result.found.push((rank, self.summary(name, lock)));
            }
        }
        result.next = None;
        result
    }

    /// The longest queue among the next `locks_max` locks, and the name after which to continue; none at the end.
    pub fn longest_queue(&self, after: Option<&str>, locks_max: usize) -> (usize, Option<String>) {
        let start = after.map_or(Bound::Included(""), Bound::Excluded);
        let (mut longest, mut next) = (0, None);
        for (looked_at, (name, lock)) in self.lock_map().from(start).enumerate() {
            if looked_at == locks_max {
                return (longest, next.map(String::from));
            }
            longest = longest.max(lock.waiter_count());
            next = Some(name.as_str());
        }
        (longest, None)
    }

    fn is_held_by(&self, lock: &Lock, holder: Option<PublicSessionId>) -> bool {
        let Some(holder) = holder else { return true };
        lock.holds().any(|hold| {
            self.session_map().get(&hold.session).is_some_and(|session| session.public == holder)
        })
    }
}

impl Rank {
    fn of(self, lock: &Lock) -> u64 {
        match self {
            Rank::Name => 0,
            Rank::QueueLength => lock.waiter_count() as u64,
            // An earlier grant ranks higher. A free lock has no age.
            Rank::HoldAge => {
                lock.holds().next().map_or(0, |hold| u64::MAX - hold.granted_at.as_ms())
            }
        }
    }
}

fn contains(name: &str, text: &str) -> bool {
    let (name, text) = (name.as_bytes(), text.as_bytes());
    text.is_empty() || name.windows(text.len()).any(|part| part.eq_ignore_ascii_case(text))
}

fn has_value(lock: &Lock) -> bool {
    let mut holds = lock.holds();
    holds.next().is_some_and(|hold| hold.mode == Mode::Exclusive && !hold.metadata().is_empty())
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use super::*;
    use crate::model::command::{Acquire, Call, Command, OpenSession, Owner, Terms};
    use crate::model::id::{ActorId, LogIndex, RequestId, SessionId};
    use crate::model::limits::Limits;
    use crate::model::name::LockName;
    use crate::model::time::LogicalTime;

    /// Ten locks, `lock/0` to `lock/9`; each was taken a second after the one before, and as many wait for
    /// `lock/n` as n says.
    fn table() -> LockTable {
        let mut table = LockTable::new(Limits::default());
        let mut index = 0;
        let mut apply = |at_ms: u64, command: Command| {
            index += 1;
            table.apply(LogIndex(index), LogicalTime::from_ms(at_ms), command, &mut Vec::new());
        };
        for session in 0..10 {
            apply(0, Command::OpenSession(open(session)));
        }
        for number in 0..10 {
            for session in 0..=number {
                apply(1_000 * number, acquire(session, number));
            }
        }
        table
    }

    fn open(session: u64) -> OpenSession {
        let ttl = Limits::default().ttl_max;
        let owner = Owner::default();
        let (session, public) = (SessionId(session.into()), PublicSessionId(session));
        OpenSession { session, public, stream: None, ttl, linger: ttl, owner, identity: None }
    }

    fn acquire(session: u64, number: u64) -> Command {
        let (session, request) = (SessionId(session.into()), RequestId(number + 1));
        let call = Call { session, request, acked_through: RequestId(0) };
        let metadata: &[u8] = if number == 3 { b"value" } else { b"" };
        let wait = Limits::default().wait_max;
        let terms = Terms { wait, metadata: metadata.into(), ..Terms::default() };
        let name = LockName::new(&format!("lock/{number}")).unwrap();
        let (actor, mode) = (ActorId(number), Mode::Exclusive);
        Command::Acquire(Acquire { call, actor, name, mode, terms })
    }

    fn part(after: Option<&str>, locks_max: usize, above: Option<u64>) -> SearchRange<'_> {
        SearchRange { after, locks_max, above, found_max: usize::MAX }
    }

    /// The last digits of the names that are found, all parts taken together.
    fn found(search: &LockSearch, locks_max: usize, above: Option<u64>) -> Vec<char> {
        let table = table();
        let (mut digits, mut after) = (Vec::new(), None);
        loop {
            let result = table.search_locks(search, part(after.as_deref(), locks_max, above));
            digits.extend(result.found.iter().filter_map(|(_, lock)| lock.name.chars().last()));
            after = result.next;
            if after.is_none() {
                return digits;
            }
        }
    }

    #[test]
    fn the_parts_of_a_lock_search_add_up_to_the_whole() {
        for locks_max in [1, 2, 3, 10, 100] {
            let all = LockSearch::default();
            assert_eq!(found(&all, locks_max, None), ('0'..='9').collect::<Vec<_>>());
            let some = LockSearch { contains: "CK/4".into(), ..LockSearch::default() };
            assert_eq!(found(&some, locks_max, None), ['4'], "{locks_max}");
            let none = LockSearch { prefix: "lock/9x".into(), ..LockSearch::default() };
            assert!(found(&none, locks_max, None).is_empty());
        }
    }

    #[test]
    fn the_longest_queue_is_found_part_by_part() {
        let table = table();
        assert_eq!(table.longest_queue(None, 100), (9, None));
        assert_eq!(table.longest_queue(None, 10), (9, None));
        let (longest, next) = table.longest_queue(None, 4);
        assert_eq!((longest, next.as_deref()), (3, Some("lock/3")));
        assert_eq!(table.longest_queue(next.as_deref(), 4), (7, Some("lock/7".into())));
        assert_eq!(table.longest_queue(Some("lock/9"), 4), (0, None));
    }

    #[test]
    fn a_lock_search_returns_only_higher_ranks_and_counts_all_matches() {
        let longest = LockSearch { rank: Rank::QueueLength, ..LockSearch::default() };
        assert_eq!(found(&longest, 4, Some(7)), ['8', '9']);
        let result = table().search_locks(&longest, part(None, 100, Some(7)));
        assert_eq!((result.matched, result.found[1].0), (10, 9));
        let oldest = LockSearch { rank: Rank::HoldAge, ..LockSearch::default() };
        let all = table().search_locks(&oldest, part(None, 100, None)).found;
        assert!(all.windows(2).all(|pair| pair[0].0 > pair[1].0), "the earlier the higher");
    }

    #[test]
    fn a_lock_search_by_holder_or_value_looks_only_at_holders() {
        let held = LockSearch { holder: Some(PublicSessionId(0)), ..LockSearch::default() };
        assert_eq!(found(&held, 3, None).len(), 10);
        let waits = LockSearch { holder: Some(PublicSessionId(1)), ..LockSearch::default() };
        assert!(found(&waits, 3, None).is_empty());
        let valued = LockSearch { only_with_value: true, ..LockSearch::default() };
        assert_eq!(found(&valued, 3, None), ['3']);
    }

    #[test]
    fn a_part_of_a_lock_search_ends_when_enough_is_found_and_returns_the_next_name() {
        let table = table();
        let result = table.search_locks(
            &LockSearch::default(),
            SearchRange { found_max: 3, ..part(None, 100, None) },
        );
        assert_eq!((result.found.len(), result.next.as_deref()), (3, Some("lock/2")));
        let last = table.search_locks(&LockSearch::default(), part(Some("lock/9"), 100, None));
        assert_eq!((last.found.len(), last.next), (0, None));
    }
}
