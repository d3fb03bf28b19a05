//! Names that a caller may not see, in what it may: an answer about one lock tells of others.

use holdfast_core::{CycleLink, Outcome};
use holdfast_proto::v1::{StatusResponse, Waiter, WatchEvent, WhyResponse};
use holdfast_service::VisibleNames;

/// In place of words that tell a hidden name.
const HIDDEN_CYCLE: &str = "deadlock";

pub(super) fn in_status(status: &mut StatusResponse, visible: &VisibleNames) {
    let in_memory = status.efficiency.iter_mut().flat_map(|memory| &mut memory.waiters);
    status.waiters.iter_mut().chain(in_memory).for_each(|waiter| in_waiter(waiter, visible));
}

fn in_waiter(waiter: &mut Waiter, visible: &VisibleNames) {
    waiter.also.retain(|name| visible.contain(name));
}

pub(super) fn in_why(why: &mut WhyResponse, visible: &VisibleNames) {
    if let Some(status) = &mut why.status {
        in_status(status, visible);
    }
    why.reserved.retain(|reserved| visible.contain(&reserved.name));
    for link in &mut why.chain {
        if !visible.contain(&link.in_the_way_of) {
            link.in_the_way_of.clear();
        }
        if !visible.contain(&link.waits_for) {
            link.waits_for.clear();
            link.holders.clear();
            link.holder_count = 0;
        }
        if let Some(waiter) = &mut link.waiter {
            in_waiter(waiter, visible);
        }
    }
}

pub(super) fn in_event(event: &mut WatchEvent, visible: &VisibleNames) {
    event.names.retain(|name| visible.contain(name));
    let links = event.cycle.len();
    event.cycle.retain(|link| visible.contain(&link.waits_for));
    if event.cycle.len() < links {
        event.detail = HIDDEN_CYCLE.to_owned();
    }
}

/// Of an answer to the caller.
pub(super) fn in_outcome(outcome: &mut Outcome, visible: &VisibleNames) {
    if let Outcome::Deadlock(cycle) = outcome
        && !visible.are_all()
    {
        let shown = |link: &&CycleLink| visible.contain(&link.waits_for);
        *cycle = cycle.iter().filter(shown).cloned().collect();
    }
}
