//! Do the events of each group fit what the clients were told? From the audit files of all nodes:
//!
//! - A node has the events of a group once, in the order of their positions.
//! - Nodes that have the event at a position agree about it.
//! - A lock has events in the group that owns its slot, and in no other.
//! - Tokens rise with the positions of the grants in a group.
//! - Each grant that a client was told of is an event of its group, with its token, unless all files have a gap there.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_core::{FenceToken, Grant, Outcome};
use holdfast_sim::history::{ClientOperation, History, Output, Violation};

use crate::audited::{AuditFile, AuditedEvent, AuditedGap, Position};
use crate::division::Division;

const CHECKER: &str = "events";

/// The events of a group, each once.
type GroupEvents<'a> = BTreeMap<Position, &'a AuditedEvent>;

pub(crate) fn judge(
    files: &[AuditFile],
    division: &Division,
    histories: &[(u32, History)],
) -> Vec<Violation> {
    let mut wrong = Vec::new();
    let mut groups: BTreeMap<u32, GroupEvents<'_>> = BTreeMap::new();
    for file in files {
        let mut last: BTreeMap<u32, Position> = BTreeMap::new();
        for event in &file.events {
            let AuditedEvent { group, at, .. } = event;
            let node = file.node;
            if last.insert(*group, *at).is_some_and(|before| before >= *at) {
                wrong.push(format!(
                    "node {node}, group {group}: {at:?} is not after the event before it"
                ));
            }
            let known = groups.entry(*group).or_default().entry(*at).or_insert(event);
            if *known != event {
                wrong.push(format!("node {node} has {event:?}, and another node {known:?}"));
            }
        }
    }
    for (group, history) in histories {
        let events = groups.remove(group).unwrap_or_default();
        check_names(*group, &events, division, &mut wrong);
        check_tokens(*group, &events, &mut wrong);
        check_grants(*group, &events, files, history, &mut wrong);
    }
    let others = groups.keys().map(|group| format!("there are events of group {group}"));
    wrong.extend(others);
    wrong.into_iter().map(|what| Violation { checker: CHECKER, what }).collect()
}

fn check_names(group: u32, events: &GroupEvents<'_>, division: &Division, wrong: &mut Vec<String>) {
    for event in events.values() {
        for name in &event.names {
            let owner = division.group_of(name);
            if owner != group {
                wrong.push(format!("{name} is in group {owner}, and group {group} has {event:?}"));
            }
        }
    }
}

fn check_tokens(group: u32, events: &GroupEvents<'_>, wrong: &mut Vec<String>) {
    let mut highest = FenceToken(0);
    for event in events.values().filter(|event| event.kind == "granted") {
        let Some(token) = event.token else {
            wrong.push(format!("group {group}: a grant has no token: {event:?}"));
            continue;
        };
        if token <= highest {
            wrong.push(format!("group {group}: {event:?} after token {highest}"));
        }
        highest = token.max(highest);
    }
}

fn check_grants(
    group: u32,
    events: &GroupEvents<'_>,
    files: &[AuditFile],
    history: &History,
    wrong: &mut Vec<String>,
) {
    let granted = events.values().filter(|event| event.kind == "granted");
    let granted = granted.flat_map(|event| {
        event.names.iter().filter_map(|name| Some((name.as_str(), event.token?)))
    });
    let granted: BTreeSet<(&str, FenceToken)> = granted.collect();
    if granted.is_empty() {
        return wrong.push(format!("no grant of group {group} is in any audit file"));
    }
    let is_hidden = has_common_gap(group, files);
    for operation in &history.operations {
        for grant in grants(operation) {
            let is_there = granted.contains(&(grant.name.as_str(), grant.token));
            if !is_there && !is_hidden {
                wrong.push(format!(
                    "{} was granted under {} to a client, and no event of group {group} says so",
                    grant.name, grant.token
                ));
            }
        }
    }
}

/// What the client was told that it holds.
fn grants(operation: &ClientOperation) -> &[Grant] {
    match &operation.returned {
        Some((_, Output::Outcome(Outcome::Granted(grant)))) => std::slice::from_ref(grant),
        Some((_, Output::Outcome(Outcome::GrantedAll(grants)))) => grants,
        _ => &[],
    }
}

/// Whether there is an entry of the group whose events are in a gap of every file. Then it is not known which grants
/// there were.
pub(crate) fn has_common_gap(group: u32, files: &[AuditFile]) -> bool {
    let covers = |gap: &AuditedGap, index: u64| {
        gap.group == group && gap.after_index < index && index <= gap.index
    };
    let gaps = files.iter().flat_map(|file| &file.gaps).filter(|gap| gap.group == group);
    // If there is one, there is one where a gap begins.
    gaps.map(|gap| gap.after_index + 1)
        .any(|index| files.iter().all(|file| file.gaps.iter().any(|gap| covers(gap, index))))
}

#[cfg(test)]
mod tests {
    use holdfast_core::command::Mode;
    use holdfast_core::{LogicalTime, RequestId, SessionId};
    use holdfast_sim::history::{Input, RealTime};

    use super::*;
    use crate::division::tests::{halves, name_in};

    /// Three nodes have the same events: in each of two groups, a lock is granted and released three times.
    fn sound() -> (Vec<AuditFile>, History) {
        let mut file = AuditFile::default();
        let mut history = History::default();
        for index in 1..=3 {
            for group in 1..=2 {
                let name = name_in(group);
                let token = FenceToken(index + u64::from(100 * (2 - group)));
                for (number, kind) in [(0, "granted"), (1, "released")] {
                    file.events.push(AuditedEvent {
                        group,
                        at: (index, number),
                        kind: kind.into(),
                        names: vec![name.to_string()],
                        token: Some(token),
                        public_session_id: "1".into(),
                        request_id: index,
                    });
                }
                history.operations.push(granted(name_in(group), token));
            }
        }
        let files = (1..=3).map(|node| AuditFile { node, ..file.clone() });
        (files.collect(), history)
    }

    fn granted(name: holdfast_core::LockName, token: FenceToken) -> ClientOperation {
        let grant = Grant {
            name: name.clone(),
            acquire: RequestId(1),
            token,
            mode: Mode::Exclusive,
            deadline: None,
            session_deadline: LogicalTime::ZERO,
        };
        ClientOperation {
            session: SessionId(1),
            request: RequestId(1),
            input: Input::Acquire { name, wait_ms: 0, ttl_ms: None, max_hold_ms: None },
            invoked: RealTime(0),
            returned: Some((RealTime(1), Output::Outcome(Outcome::Granted(grant)))),
            last_sent: RealTime(0),
        }
    }

    fn verdict(spoil: impl FnOnce(&mut Vec<AuditFile>, &mut History)) -> String {
        let (mut files, mut history) = sound();
        spoil(&mut files, &mut history);
        let violations = judge(&files, &halves(), &halves().split(&history));
        violations.into_iter().map(|violation| violation.what + "\n").collect()
    }

    #[test]
    fn sound_files_are_acquitted() {
        assert_eq!(verdict(|_, _| ()), "");
    }

    #[test]
    fn the_events_of_two_groups_that_are_swapped_are_found() {
        let words = verdict(|files, _| {
            for event in files.iter_mut().flat_map(|file| &mut file.events) {
                event.group = 3 - event.group;
            }
        });
        assert!(words.contains("is in group 1, and group 2 has"), "{words}");
        assert!(words.contains("and no event of group 1 says so"), "{words}");
    }

    #[test]
    fn a_token_that_goes_back_in_its_group_is_found() {
        let words = verdict(|files, history| {
            for event in files.iter_mut().flat_map(|file| &mut file.events) {
                // In group 2, whose tokens are 1 to 3: those of group 1 are higher, and do not matter.
                if event.token == Some(FenceToken(2)) {
                    event.token = Some(FenceToken(9));
                }
            }
            history.operations[3] = granted(name_in(2), FenceToken(9));
        });
        assert!(words.starts_with("group 2: ") && words.lines().count() == 1, "{words}");
    }

    #[test]
    fn an_event_that_comes_twice_or_differs_on_one_node_is_found() {
        let words = verdict(|files, _| {
            let again = files[0].events[0].clone();
            files[0].events.push(again);
        });
        assert!(words.contains("node 1, group 1: (1, 0) is not after"), "{words}");
        let words = verdict(|files, _| files[1].events[2].request_id = 77);
        assert!(words.contains("node 2 has ") && words.contains("77"), "{words}");
    }

    #[test]
    fn a_grant_that_no_node_wrote_down_is_found_unless_all_have_a_gap_there() {
        let remove = |files: &mut Vec<AuditFile>| {
            for file in files {
                file.events.retain(|event| !(event.group == 2 && event.at.0 == 2));
            }
        };
        let words = verdict(|files, _| remove(files));
        assert!(words.contains("was granted under 2 to a client"), "{words}");
        let gap = AuditedGap { group: 2, after_index: 1, index: 3 };
        let words = verdict(|files, _| {
            remove(files);
            files[0].gaps.push(gap);
        });
        assert!(words.contains("was granted under 2 to a client"), "{words}");
        let words = verdict(|files, _| {
            remove(files);
            files.iter_mut().for_each(|file| file.gaps.push(gap));
        });
        assert_eq!(words, "");
    }
}
