use proptest::prelude::*;

use super::*;
use crate::v1::{CycleLink, EndReason, EventKind, Mode};

/// What `watch.proto` says, as it would be generated.
#[derive(Clone, PartialEq, Message)]
struct Generated {
    #[prost(message, repeated, tag = "1")]
    locks: Vec<LockSummary>,
    #[prost(bool, tag = "2")]
    snapshot_complete: bool,
    #[prost(message, repeated, tag = "3")]
    events: Vec<WatchEvent>,
    #[prost(message, optional, tag = "4")]
    position: Option<EventPosition>,
}

prop_compose! {
    fn any_event()(
        position in prop::option::of(any::<(u32, u64, u32)>()),
        numbers in any::<[u64; 5]>(),
        choices in (0..19_i32, 0..4_i32, 0..9_i32),
        names in prop::collection::vec(".{0,40}", 0..4),
        texts in any::<[String; 3]>(),
        metadata in prop::collection::vec(any::<u8>(), 0..200),
        held_for_ms in any::<Option<u64>>(),
        cycle in prop::collection::vec(any::<(String, u64, String)>(), 0..3),
        few in any::<bool>(),
    ) -> WatchEvent {
        let [public_session_id, by, detail] = if few { Default::default() } else { texts };
        let [logical_time_ms, unix_ms, request_id, actor, token] = numbers;
        WatchEvent {
            position: position
                .map(|(group, index, number)| EventPosition { group, index, number }),
            logical_time_ms,
            unix_ms,
            kind: choices.0,
            names,
            public_session_id,
            request_id: if few { 0 } else { request_id },
            actor: if few { 0 } else { actor },
            mode: choices.1,
            token,
            reason: choices.2,
            metadata: if few { Vec::new() } else { metadata },
            by,
            detail,
            held_for_ms,
            cycle: cycle
                .into_iter()
                .map(|(public_session_id, actor, waits_for)| CycleLink {
                    public_session_id,
                    actor,
                    waits_for,
                })
                .collect(),
        }
    }
}

prop_compose! {
    fn any_frame()(
        events in prop::collection::vec(any_event(), 0..5),
        locks in prop::collection::vec(".{0,20}", 0..3),
        snapshot_complete in any::<bool>(),
        position in prop::option::of(any::<u64>()),
    ) -> Generated {
        let locks = locks.into_iter().map(|name| LockSummary { name, ..Default::default() });
        let position = position.map(|index| EventPosition { index, ..Default::default() });
        Generated { locks: locks.collect(), snapshot_complete, events, position }
    }
}

fn borrowed(event: &WatchEvent) -> BorrowedEvent<'_> {
    BorrowedEvent {
        position: event.position.unwrap_or_default(),
        logical_time_ms: event.logical_time_ms,
        unix_ms: event.unix_ms,
        kind: EventKind::try_from(event.kind).unwrap(),
        public_session_id: &event.public_session_id,
        request_id: event.request_id,
        actor: event.actor,
        mode: Mode::try_from(event.mode).unwrap(),
        token: event.token,
        reason: EndReason::try_from(event.reason).unwrap(),
        metadata: &event.metadata,
        by: &event.by,
        detail: &event.detail,
        held_for_ms: event.held_for_ms,
        cycle: &event.cycle,
    }
}

proptest! {
    #[test]
    fn an_encoded_client_frame_is_the_message_of_the_proto(frame in any_frame()) {
        let ours = WatchFrame {
            locks: frame.locks.clone(),
            snapshot_complete: frame.snapshot_complete,
            events: frame.events.clone().into(),
            position: frame.position,
        };
        let bytes = frame.encode_to_vec();
        prop_assert_eq!(ours.encoded_len(), bytes.len());
        prop_assert_eq!(&ours.encode_to_vec(), &bytes);
        let decoded = WatchFrame::decode(&bytes[..]).unwrap();
        prop_assert_eq!(decoded.events.len(), frame.events.len());
        prop_assert_eq!(decoded.events.iter().collect::<Vec<_>>(), frame.events);
        prop_assert_eq!(decoded, ours);
    }

    #[test]
    fn an_event_is_encoded_alike_with_a_message_and_without(event in any_event()) {
        let event = WatchEvent { position: Some(event.position.unwrap_or_default()), ..event };
        let (mut one, mut other) = (WatchEvents::default(), WatchEvents::default());
        for _ in 0..2 {
            one.push(&event);
            other.push_borrowed(&borrowed(&event), event.names.iter().map(String::as_str));
        }
        prop_assert_eq!(one, other);
    }

    #[test]
    fn a_damaged_watch_frame_is_refused_or_fully_decodable(
        frame in any_frame(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = frame.encode_to_vec();
        prop_assume!(!bytes.is_empty());
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        for bytes in [&bytes[..], &bytes[..cut.index(bytes.len())]] {
            match (WatchFrame::decode(bytes), Generated::decode(bytes)) {
                (Ok(ours), Ok(theirs)) => {
                    prop_assert_eq!(ours.events.iter().collect::<Vec<_>>(), theirs.events);
                }
                (ours, theirs) => prop_assert_eq!(ours.is_ok(), theirs.is_ok()),
            }
        }
    }
}
