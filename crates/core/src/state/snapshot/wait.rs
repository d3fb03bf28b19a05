//! A wait in a snapshot, with the places where it stands.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use super::answer;
use crate::model::codec::{DecodeError, Reader, Sink};
use crate::model::command::{Mode, Terms};
use crate::model::id::{ActorId, FenceToken, RequestId};
use crate::model::time::LogicalTime;
use crate::state::queue::Ticket;
use crate::state::wait::{Converts, QueuePlace, Wait};

pub(super) fn write(wait: &Wait, sink: &mut impl Sink) {
    answer::write_question(&wait.question, sink);
    sink.varint(wait.actor.0);
    sink.varint(wait.queued_at.as_ms());
    sink.varint(wait.deadline.as_ms());
    match wait.converts {
        None => sink.u8(0),
        Some(converts) => {
            sink.u8(1);
            sink.varint(converts.acquire.0);
            sink.varint(converts.token.0);
        }
    }
    wait.terms.encode(sink);
    sink.count(wait.places.as_slice().len());
    for place in wait.places.as_slice() {
        sink.bytes(place.name.as_bytes());
        sink.varint(place.ticket.0);
        place.mode.encode(sink);
    }
}

pub(super) fn read(reader: &mut Reader<'_>) -> Result<Wait, DecodeError> {
    let question = answer::read_question(reader)?;
    let actor = ActorId(reader.varint()?);
    let queued_at = LogicalTime::from_ms(reader.varint()?);
    let deadline = LogicalTime::from_ms(reader.varint()?);
    let converts = match reader.bool("wait")? {
        false => None,
        true => Some(Converts {
            acquire: RequestId(reader.varint()?),
            token: FenceToken(reader.varint()?),
        }),
    };
    let terms = Box::new(Terms::decode(reader)?);
    let mut places = Vec::new();
    for _ in 0..reader.count()? {
        let name = reader.name()?;
        let ticket = Ticket(reader.varint()?);
        places.push(QueuePlace { name, ticket, mode: Mode::decode(reader)? });
    }
    if places.is_empty() || (converts.is_some() && places.len() > 1) {
        return Err(DecodeError::Inconsistent(String::from("a wait stands in no place")));
    }
    let places = places.into_iter().collect();
    Ok(Wait { actor, places, queued_at, deadline, terms, question, converts })
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use super::*;
    use crate::model::name::LockName;
    use crate::state::answers::Question;

    /// A wait that stands in so many places, written and read.
    fn restored(place_count: u64, converts: bool) -> Result<usize, DecodeError> {
        let name = |number| LockName::new(&format!("lock/{number}")).unwrap();
        let place = |number| QueuePlace {
            name: name(number),
            ticket: Ticket(number),
            mode: Mode::Exclusive,
        };
        let converts = converts.then_some(Converts { acquire: RequestId(1), token: FenceToken(1) });
        let wait = Wait {
            actor: ActorId(0),
            places: (0..place_count).map(place).collect(),
            queued_at: LogicalTime::ZERO,
            deadline: LogicalTime::ZERO,
            terms: Box::default(),
            question: Question::Acquire { name: name(0) },
            converts,
        };
        let mut bytes = Vec::new();
        write(&wait, &mut bytes);
        read(&mut Reader::new(&bytes)).map(|wait| wait.places.as_slice().len())
    }

    #[test]
    fn a_wait_stands_somewhere_and_a_conversion_in_one_place() {
        assert_eq!(restored(1, false), Ok(1));
        assert_eq!(restored(2, false), Ok(2));
        assert_eq!(restored(1, true), Ok(1));
        assert!(restored(0, false).is_err());
        assert!(restored(0, true).is_err());
        assert!(restored(2, true).is_err());
    }
}
