//! What happened lately and is still kept, without following what comes.

use std::collections::VecDeque;

use holdfast_dashboard::RecentEvents;
use holdfast_proto::v1::WatchEvent;

use super::Scope;
use super::concerns::concerns;
use crate::events::{EventRing, EventRings, SharedEvent, kind, message};

const MAX: usize = 1_000;

/// The latest last. Between the groups, by the node's wall clock when it applied them.
pub(in crate::rpc) fn recent(events: &EventRings, wanted: &RecentEvents) -> Vec<WatchEvent> {
    let found = events.all().map(|ring| recent_of(ring, wanted)).collect();
    latest_of(found, wanted.max.min(MAX))
}

/// The latest of several lists, each of which keeps its order.
fn latest_of(mut lists: Vec<Vec<WatchEvent>>, max: usize) -> Vec<WatchEvent> {
    let mut latest = VecDeque::new();
    while latest.len() < max {
        let ends = lists.iter_mut().filter(|list| !list.is_empty());
        let last = ends.max_by_key(|list| list.last().map(|event| event.unix_ms));
        let Some(event) = last.and_then(Vec::pop) else { break };
        latest.push_front(event);
    }
    latest.into()
}

fn recent_of(events: &EventRing, wanted: &RecentEvents) -> Vec<WatchEvent> {
    let names = match &wanted.name {
        Some(name) => Scope::Only(name.clone()),
        None => Scope::Under(wanted.prefix.clone()),
    };
    let max = wanted.max.min(MAX);
    let mut found: VecDeque<SharedEvent> = VecDeque::new();
    events.look_through(|recorded| {
        let is_wanted = concerns(&recorded.event, &names)
            && (wanted.kinds.is_empty() || wanted.kinds.contains(&kind(&recorded.event)));
        if is_wanted {
            if found.len() == max {
                found.pop_front();
            }
            found.push_back(recorded.keep());
        }
    });
    found.iter().map(|recorded| message(recorded)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_of_all_groups_come_by_time_and_those_of_one_group_in_its_order() {
        let list = |group: u64, times: &[u64]| {
            let event = |unix_ms: &u64| WatchEvent {
                unix_ms: *unix_ms,
                token: group,
                ..Default::default()
            };
            times.iter().map(event).collect::<Vec<_>>()
        };
        let shown = |events: Vec<WatchEvent>| {
            events.iter().map(|event| (event.token, event.unix_ms)).collect::<Vec<_>>()
        };
        let lists = vec![list(1, &[10, 40]), list(2, &[20, 30])];
        assert_eq!(shown(latest_of(lists, 3)), [(2, 20), (2, 30), (1, 40)]);
        // The clock of the node went back.
        assert_eq!(shown(latest_of(vec![list(1, &[50, 10])], 9)), [(1, 50), (1, 10)]);
    }
}
