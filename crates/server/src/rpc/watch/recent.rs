//! What happened lately and is still kept, without following what comes.

use std::collections::VecDeque;

use holdfast_dashboard::RecentEvents;
use holdfast_proto::v1::WatchEvent;

use super::Scope;
use super::concerns::concerns;
use crate::events::{EventRing, SharedEvent, kind, message};

const MAX: usize = 1_000;

/// The latest last.
pub(in crate::rpc) fn recent(events: &EventRing, wanted: RecentEvents) -> Vec<WatchEvent> {
    let names = match wanted.name {
        Some(name) => Scope::Only(name),
        None => Scope::Under(wanted.prefix),
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
