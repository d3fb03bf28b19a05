//! How long a lock was held lately, as far as the ring of events goes back.

use std::collections::HashMap;

use holdfast_core::{Event, LogicalTime, RequestId, SessionId};

use crate::events::EventRing;

/// The last ones count.
const HOLDS_MAX: usize = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HoldTimes {
    pub(crate) holds: u32,
    pub(crate) median_ms: u64,
    pub(crate) longest_ms: u64,
}

/// None if no hold of it both began and ended lately.
pub(crate) fn of(events: &EventRing, name: &str) -> Option<HoldTimes> {
    let mut began: HashMap<(SessionId, RequestId), LogicalTime> = HashMap::new();
    let mut lasted_ms: Vec<u64> = Vec::new();
    // What was learned from an event that has gone meanwhile is still true.
    events.look_through(|recorded| match &recorded.event {
        Event::Granted { name: granted, session, request, .. } if **granted == *name => {
            began.insert((*session, *request), recorded.at);
        }
        Event::Released { name: ended, session, request, .. }
        | Event::HoldEnded { name: ended, session, request, .. }
            if **ended == *name =>
        {
            if let Some(start) = began.remove(&(*session, *request)) {
                lasted_ms.push(recorded.at.since(start).as_ms());
            }
        }
        _ => {}
    });
    let mut lately = lasted_ms.split_off(lasted_ms.len().saturating_sub(HOLDS_MAX));
    lately.sort_unstable();
    Some(HoldTimes {
        holds: u32::try_from(lately.len()).unwrap_or(u32::MAX),
        median_ms: *lately.get(lately.len() / 2)?,
        longest_ms: *lately.last()?,
    })
}

#[cfg(test)]
mod tests {
    use holdfast_core::command::Mode;
    use holdfast_core::{ActorId, FenceToken, LockName, LogIndex};
    use holdfast_replica::GroupId;

    use super::*;
    use crate::events::Position;

    fn record(ring: &EventRing, at_ms: u64, event: Event) {
        ring.record(&mut vec![(LogIndex(at_ms), LogicalTime::from_ms(at_ms), event)], 0, None);
    }

    fn hold(ring: &EventRing, name: &str, request: u64, from_ms: u64, to_ms: u64) {
        let name = LockName::new(name).unwrap();
        let (session, request, token) = (SessionId(1), RequestId(request), FenceToken(request));
        let granted_at = LogicalTime::from_ms(from_ms);
        let granted = Event::Granted {
            name: name.clone(),
            session,
            request,
            actor: ActorId(0),
            mode: Mode::Exclusive,
            token,
            metadata: Box::default(),
        };
        record(ring, from_ms, granted);
        record(
            ring,
            to_ms,
            Event::Released { name, session, request, token, granted_at, by_close: false },
        );
    }

    #[test]
    fn only_holds_of_this_lock_that_began_and_ended_count() {
        let ring = EventRing::of_root(1_000);
        ring.restart_after(0);
        assert_eq!(of(&ring, "a"), None);
        hold(&ring, "b", 1, 1, 900);
        assert_eq!(of(&ring, "a"), None);
        for (request, from, lasts) in [(2, 1_000, 10), (3, 2_000, 500), (4, 3_000, 30)] {
            hold(&ring, "a", request, from, from + lasts);
        }
        let times = HoldTimes { holds: 3, median_ms: 30, longest_ms: 500 };
        assert_eq!(of(&ring, "a"), Some(times));
    }

    #[test]
    fn forgotten_holds_do_not_count() {
        let ring = EventRing::of_root(3);
        ring.restart_after(0);
        hold(&ring, "a", 1, 10, 1_000);
        hold(&ring, "a", 2, 2_000, 2_005);
        let times = HoldTimes { holds: 1, median_ms: 5, longest_ms: 5 };
        assert_eq!(of(&ring, "a"), Some(times));
        assert!(ring.keeps(Position { group: GroupId::FIRST, index: 10, number: 0 }));
    }
}
