//! Events into the frames of a watch, without a message for each.

use std::borrow::Cow;
use std::cell::RefCell;

use holdfast_proto::v1::{BorrowedEvent, WatchEvents};
use holdfast_service::{VisibleNames, hidden_names};

use crate::events::{EventView, Recorded, SessionTexts, SessionView, message};

thread_local! {
    /// For all watches that this thread tells: one for each watch would cost more than all else of a watch.
    static PUBLIC_IDS: RefCell<SessionTexts> = RefCell::default();
}

/// Without the names that the reader may not see.
pub(crate) fn encode_events<'a>(
    events: impl Iterator<Item = &'a Recorded>,
    visible: &VisibleNames,
) -> WatchEvents {
    let hides = !visible.are_all();
    PUBLIC_IDS.with_borrow_mut(|public_ids| {
        let mut frame = WatchEvents::default();
        for recorded in events {
            if hides {
                let mut event = message(recorded);
                hidden_names::in_event(&mut event, visible);
                frame.push(&event);
                continue;
            }
            let view = EventView::of(recorded);
            let event = BorrowedEvent {
                position: recorded.position.into(),
                logical_time_ms: recorded.at.as_ms(),
                unix_ms: recorded.unix_ms,
                kind: view.kind,
                public_session_id: &public_id(public_ids, view.session),
                request_id: view.request_id,
                actor: view.actor,
                mode: view.mode,
                token: view.token,
                reason: view.reason,
                metadata: view.metadata,
                by: view.by,
                detail: &view.detail,
                held_for_ms: view.held_for_ms,
                cycle: &view.cycle,
            };
            frame.push_borrowed(&event, view.names.iter());
        }
        frame
    })
}

fn public_id(known: &mut SessionTexts, session: SessionView) -> Cow<'_, str> {
    let compute = || session.public().map_or_else(String::new, |public| public.to_string());
    let SessionView::Secret(secret) = session else { return Cow::Owned(compute()) };
    if known.get(secret).is_none() {
        known.keep(secret, &compute());
    }
    Cow::Borrowed(known.get(secret).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use holdfast_core::command::Mode;
    use holdfast_core::{
        ActorId, CycleLink, EndReason, Event, FenceToken, LockName, LogicalTime, Outcome,
        PublicSessionId, RequestId, SessionId,
    };
    use holdfast_replica::GroupId;

    use super::*;
    use crate::events::Position;

    #[test]
    fn a_frame_has_the_messages_that_are_made_one_by_one() {
        let name = LockName::new("a").unwrap();
        let (request, token, public) = (RequestId(3), FenceToken(4), PublicSessionId(5));
        let (mode, granted_at) = (Mode::Exclusive, LogicalTime::from_ms(1));
        let of_session = |session: SessionId| {
            let (name, metadata) = (name.clone(), Box::from(&b"why"[..]));
            let granted = Event::Granted {
                name: name.clone(),
                session,
                request,
                actor: ActorId(9),
                mode,
                token,
                metadata,
            };
            let names = [name.clone(), LockName::new("b").unwrap()].into_iter().collect();
            let link = |waits_for| CycleLink { session: public, actor: ActorId(9), waits_for };
            let outcome = Outcome::Deadlock(vec![link(name.clone())].into());
            let refused = Event::Refused { names, session, request, outcome };
            let released =
                Event::Released { name, session, request, token, granted_at, by_close: true };
            let ended = Event::SessionEnded { session, public, reason: EndReason::Closed };
            [granted, refused, released, ended]
        };
        // Two that share a place, in turn.
        let sessions = [7, 7 + 1_024, 7].map(SessionId);
        let events = sessions.into_iter().flat_map(of_session).zip(0..).map(|(event, number)| {
            let (position, at) =
                (Position { group: GroupId::FIRST, index: 2, number }, LogicalTime::from_ms(6));
            Recorded { position, at, unix_ms: 1_794_743_884_123, event, serial: 0 }
        });
        let events: Vec<Recorded> = events.collect();
        let frame = encode_events(events.iter(), &VisibleNames::all());
        assert_eq!(frame, events.iter().map(message).collect::<WatchEvents>());
        assert_eq!(frame.len(), 12);
    }
}
