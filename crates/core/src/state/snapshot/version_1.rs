//! Snapshots of 0.1: exclusive locks only, the waiters of a lock told with the lock.

use alloc::boxed::Box;

use super::hold;
use crate::model::codec::{DecodeError, Reader, in_order};
use crate::model::command::{Mode, Policy, Terms};
use crate::model::id::{ActorId, RequestId, SessionId};
use crate::model::name::LockName;
use crate::model::time::{LogicalTime, Span};
use crate::state::answers::Question;
use crate::state::queue::Ticket;
use crate::state::table::LockTable;
use crate::state::wait::{QueuePlace, QueuePlaces, Wait};

/// Tickets began at 1 then. They begin higher now, so that there is room before them.
const TICKETS_BEFORE: u64 = 1 << 62;

impl LockTable {
    pub(super) fn read_version_1(&mut self, reader: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.read_head(reader)?;
        for _ in 0..reader.count()? {
            self.read_session(reader, 1)?;
        }
        self.read_ended(reader, 1)?;
        let mut last = None;
        for _ in 0..reader.count()? {
            let name = reader.name()?;
            in_order(last.as_ref(), &name, "locks")?;
            self.restore_hold(&name, hold::read_version_1(reader)?);
            let mut last_ticket = None;
            for _ in 0..reader.count()? {
                let ticket = Ticket(reader.varint()?.saturating_add(TICKETS_BEFORE));
                in_order(last_ticket.replace(ticket), ticket, "waiters")?;
                let (session, request, wait) = read_waiter(&name, ticket, reader)?;
                self.restore_wait(session, request, wait)?;
            }
            last = Some(name);
        }
        Ok(())
    }
}

fn read_waiter(
    name: &LockName,
    ticket: Ticket,
    reader: &mut Reader<'_>,
) -> Result<(SessionId, RequestId, Wait), DecodeError> {
    let session = SessionId::decode(reader)?;
    let request = RequestId(reader.varint()?);
    let actor = ActorId(reader.varint()?);
    let mode = Mode::decode(reader)?;
    let (ttl, max_hold) =
        (reader.optional()?.map(Span::from_ms), reader.optional()?.map(Span::from_ms));
    let metadata = Box::from(reader.bytes()?);
    let queued_at = LogicalTime::from_ms(reader.varint()?);
    let deadline = LogicalTime::from_ms(reader.varint()?);
    let terms = Terms {
        wait: deadline.since(queued_at),
        policy: Policy::Wait,
        ttl,
        max_hold,
        metadata,
        ..Terms::default()
    };
    let places = QueuePlaces::One(QueuePlace { name: name.clone(), ticket, mode });
    let terms = Box::new(terms);
    let question = Question::Acquire { name: name.clone() };
    let wait = Wait { actor, places, queued_at, deadline, terms, question, converts: None };
    Ok((session, request, wait))
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::model::codec::Sink;
    use crate::model::limits::Limits;

    #[test]
    fn a_waiter_keeps_its_terms() {
        let mut bytes = Vec::new();
        SessionId(1).encode(&mut bytes);
        bytes.varint(7);
        bytes.varint(0);
        Mode::Exclusive.encode(&mut bytes);
        bytes.optional(Some(5_000));
        bytes.optional(Some(9_000));
        bytes.bytes(b"note");
        bytes.varint(1_000);
        bytes.varint(4_000);
        let name = LockName::new("wallet").unwrap();
        let read = read_waiter(&name, Ticket(1), &mut Reader::new(&bytes));
        let (session, request, wait) = read.unwrap();
        assert_eq!((session, request), (SessionId(1), RequestId(7)));
        let terms = Terms {
            wait: Span::from_secs(3),
            policy: Policy::Wait,
            ttl: Some(Span::from_secs(5)),
            max_hold: Some(Span::from_secs(9)),
            metadata: Box::from(*b"note"),
            ..Terms::default()
        };
        assert_eq!(*wait.terms, terms);
    }

    #[test]
    fn there_is_room_before_those_who_wait() {
        let bytes = include_bytes!("../../../tests/fixtures/version-1/snapshot-6");
        let table = LockTable::decode(bytes, Limits::default()).unwrap();
        let first = table.locks.get("wallet").and_then(|lock| lock.queue().first());
        assert!(first.is_some_and(|(ticket, _)| ticket.0 > TICKETS_BEFORE), "{first:?}");
        assert!(TICKETS_BEFORE > u64::from(u32::MAX));
    }
}
