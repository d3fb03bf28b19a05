//! Names that a caller may not see, in what it may: an answer about one lock tells of others.

use holdfast_core::{CycleLink, Outcome};
use holdfast_proto::v1::{StatusResponse, Waiter, WatchEvent, WhyResponse};

use crate::visible_names::VisibleNames;

/// In place of words that tell a hidden name.
const HIDDEN_CYCLE: &str = "deadlock";

pub fn in_status(status: &mut StatusResponse, visible: &VisibleNames) {
    let in_memory = status.efficiency.iter_mut().flat_map(|memory| &mut memory.waiters);
    status.waiters.iter_mut().chain(in_memory).for_each(|waiter| in_waiter(waiter, visible));
}

fn in_waiter(waiter: &mut Waiter, visible: &VisibleNames) {
    #[cfg(feature = "planted")]
    if crate::planted::Bug::HiddenNameShown.is_active() {
        return;
    }
    waiter.also.retain(|name| visible.contain(name));
}

pub fn in_why(why: &mut WhyResponse, visible: &VisibleNames) {
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
            // Who it is that is in the way, and nothing of how it waits there.
            link.waiter = link.waiter.take().map(|Waiter { public_session_id, owner, .. }| {
                Waiter { public_session_id, owner, ..Waiter::default() }
            });
        }
        if let Some(waiter) = &mut link.waiter {
            in_waiter(waiter, visible);
        }
    }
}

pub fn in_event(event: &mut WatchEvent, visible: &VisibleNames) {
    event.names.retain(|name| visible.contain(name));
    let links = event.cycle.len();
    event.cycle.retain(|link| visible.contain(&link.waits_for));
    if event.cycle.len() < links {
        event.detail = HIDDEN_CYCLE.to_owned();
    }
}

/// Of an answer to the caller.
pub fn in_outcome(outcome: &mut Outcome, visible: &VisibleNames) {
    if let Outcome::Deadlock(cycle) = outcome
        && !visible.are_all()
    {
        let shown = |link: &&CycleLink| visible.contain(&link.waits_for);
        *cycle = cycle.iter().filter(shown).cloned().collect();
    }
}

#[cfg(test)]
mod tests {
    use crate::{AuthMode, Caller, Protocol, Service};
    use holdfast_proto::v1::{Holder, Owner, WaitLink};

    use super::*;

    #[test]
    fn of_a_wait_for_a_hidden_lock_only_its_session_is_shown() {
        let service = Service::default().with_mode(AuthMode::Required);
        let visible = service.visible_names(&Caller::client(Protocol::Grpc, None));
        let waiter = Waiter {
            public_session_id: "p".into(),
            owner: Some(Owner { application: "billing".into(), ..Owner::default() }),
            position: 3,
            waiting_for_ms: 5,
            metadata: b"of the hidden lock".to_vec(),
            also: vec!["hidden/b".into()],
            ..Waiter::default()
        };
        let link = WaitLink {
            depth: 1,
            in_the_way_of: "hidden/a".into(),
            waits_for: "hidden/b".into(),
            waiter: Some(waiter.clone()),
            holders: vec![Holder::default()],
            holder_count: 1,
        };
        let mut why = WhyResponse { chain: vec![link], ..WhyResponse::default() };
        in_why(&mut why, &visible);
        let Waiter { public_session_id, owner, .. } = waiter;
        let waiter = Some(Waiter { public_session_id, owner, ..Waiter::default() });
        assert_eq!(why.chain, [WaitLink { depth: 1, waiter, ..WaitLink::default() }]);
    }
}
