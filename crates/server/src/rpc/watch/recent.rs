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
    let mut found: Vec<WatchEvent> =
        events.all().flat_map(|ring| recent_of(ring, wanted)).collect();
    found.sort_by_key(|event| event.unix_ms);
    found.split_off(found.len().saturating_sub(wanted.max.min(MAX)))
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
