//! Which group of the cluster each lock is in, and what of a history is about each group.
//!
//! Each group orders its own locks, and has tokens and sessions of its own. So the checkers judge each group for
//! itself, as they do with the only group of a cluster.
//!
//! A client without groups in its requests has one session in all groups under one id. Opening it, keeping it alive and
//! closing it is done in each group, and belongs into the history of each. If it is refused, it is not known in which
//! groups it was done: then each history has it without an answer.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_core::{LockName, Outcome, RequestId, SessionId, Slot};
use holdfast_proto::{GroupMap, InvalidGroupMap, v1};
use holdfast_sim::history::{ClientOperation, History, Input, Output, StoreWrite};

#[derive(Clone, Debug)]
pub(crate) struct Division {
    map: GroupMap,
}

impl Division {
    pub(crate) fn of_one_group() -> Division {
        Division { map: GroupMap::of_one_group(String::new()) }
    }

    /// By the map in the answer to an open; a cluster with one group tells none.
    pub(crate) fn of(map: Option<v1::GroupMap>) -> Result<Division, InvalidGroupMap> {
        match map {
            Some(map) => Ok(Division { map: GroupMap::decode(map)? }),
            None => Ok(Division::of_one_group()),
        }
    }

    pub(crate) fn groups(&self) -> impl ExactSizeIterator<Item = u32> + '_ {
        self.map.groups()
    }

    pub(crate) fn group_of(&self, name: &str) -> u32 {
        self.map.owner_of(Slot::of(name))
    }

    /// The histories of all groups, in the order of their numbers.
    pub(crate) fn split(&self, history: &History) -> Vec<(u32, History)> {
        let acquires = acquires(history);
        let groups_of = |operation: &ClientOperation| -> BTreeSet<u32> {
            let name = match &operation.input {
                Input::Cancel { target } => acquires.get(&(operation.session, *target)).copied(),
                input => name_of(input),
            };
            match name {
                Some(name) => BTreeSet::from([self.group_of(name.as_str())]),
                None => self.groups().collect(),
            }
        };
        let mut operations: BTreeMap<u32, Vec<ClientOperation>> = BTreeMap::new();
        for operation in &history.operations {
            let groups = groups_of(operation);
            for group in &groups {
                let mut operation = operation.clone();
                if groups.len() > 1 && is_refused(&operation) {
                    operation.returned = None;
                }
                operations.entry(*group).or_default().push(operation);
            }
        }
        let mut of_group = |group: u32| {
            let is_here = |write: &&StoreWrite| self.group_of(write.name.as_str()) == group;
            History {
                operations: operations.remove(&group).unwrap_or_default(),
                writes: history.writes.iter().filter(is_here).cloned().collect(),
                end: history.end,
                ..History::default()
            }
        };
        self.groups().map(|group| (group, of_group(group))).collect()
    }
}

/// What each acquire is about.
fn acquires(history: &History) -> BTreeMap<(SessionId, RequestId), &LockName> {
    let acquires = history.operations.iter().filter_map(|operation| match &operation.input {
        Input::Acquire { name, .. } => Some(((operation.session, operation.request), name)),
        _ => None,
    });
    acquires.collect()
}

fn name_of(input: &Input) -> Option<&LockName> {
    match input {
        Input::Acquire { name, .. }
        | Input::Release { name, .. }
        | Input::Renew { name, .. }
        | Input::Convert { name, .. }
        | Input::Proclaim { name, .. }
        | Input::Transfer { name, .. }
        | Input::Status { name } => Some(name),
        // Its locks are in one group, or it is refused.
        Input::Take(take) => take.members.first().map(|member| &member.name),
        Input::OpenSession { .. }
        | Input::Touch
        | Input::CloseSession
        | Input::Cancel { .. }
        | Input::Intervene(_) => None,
    }
}

fn is_refused(operation: &ClientOperation) -> bool {
    matches!(&operation.returned, Some((_, Output::Outcome(Outcome::Rejected(_)))))
}

#[cfg(test)]
pub(crate) mod tests {
    use holdfast_core::command::Mode;
    use holdfast_core::{
        FenceToken, Grant, LogicalTime, MapEpoch, PublicSessionId, Rejection, Span,
    };
    use holdfast_sim::history::RealTime;

    use super::*;

    /// Of two groups.
    pub(crate) fn halves() -> Division {
        let map = GroupMap::with_equal_shares(MapEpoch(1), 2);
        Division::of(Some(map.encode())).unwrap()
    }

    /// A name of a lock in this group.
    pub(crate) fn name_in(group: u32) -> LockName {
        let mut names = (0..).map(|number| format!("lock {number}"));
        LockName::new(&names.find(|name| halves().group_of(name) == group).unwrap()).unwrap()
    }

    fn operation(request: u64, input: Input, at: u64, outcome: Outcome) -> ClientOperation {
        ClientOperation {
            session: SessionId(1),
            request: RequestId(request),
            input,
            invoked: RealTime(at),
            returned: Some((RealTime(at + 1), Output::Outcome(outcome))),
            last_sent: RealTime(at),
        }
    }

    fn acquire(request: u64, name: &LockName, token: u64, at: u64) -> ClientOperation {
        let grant = Grant {
            name: name.clone(),
            acquire: RequestId(request),
            token: FenceToken(token),
            mode: Mode::Exclusive,
            deadline: None,
            session_deadline: LogicalTime::ZERO,
        };
        let input =
            Input::Acquire { name: name.clone(), wait_ms: 0, ttl_ms: None, max_hold_ms: None };
        operation(request, input, at, Outcome::Granted(grant))
    }

    fn requests(history: &History) -> Vec<u64> {
        history.operations.iter().map(|operation| operation.request.0).collect()
    }

    #[test]
    fn each_group_has_its_locks_and_all_have_the_session() {
        let span = Span::from_ms(1_000);
        let public = PublicSessionId(1);
        let opened = Outcome::SessionOpen { public, ttl: span, linger: span, departures: None };
        let (first, second) = (name_in(1), name_in(2));
        let cancel = Input::Cancel { target: RequestId(3) };
        let history = History {
            operations: vec![
                operation(1, Input::OpenSession { ttl_ms: 1_000 }, 0, opened),
                acquire(2, &first, 7, 10),
                // Tokens of two groups are not comparable.
                acquire(3, &second, 1, 20),
                operation(4, cancel, 30, Outcome::CancelNothing),
                operation(5, Input::Touch, 40, Outcome::Rejected(Rejection::UnknownSession)),
            ],
            end: RealTime(100),
            ..History::default()
        };
        let histories = halves().split(&history);
        let numbers: Vec<u32> = histories.iter().map(|(group, _)| *group).collect();
        assert_eq!(numbers, [1, 2]);
        assert_eq!(requests(&histories[0].1), [1, 2, 5]);
        assert_eq!(requests(&histories[1].1), [1, 3, 4, 5]);
        for (_, history) in &histories {
            let last = history.operations.last().unwrap();
            assert!(last.returned.is_none(), "it may live on in this group");
            assert!(history.operations[0].returned.is_some());
        }
        let whole = Division::of_one_group().split(&history);
        assert_eq!(whole.len(), 1);
        assert_eq!(requests(&whole[0].1), [1, 2, 3, 4, 5]);
        assert!(whole[0].1.operations[4].returned.is_some());
    }
}
