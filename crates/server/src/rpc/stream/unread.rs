//! What was read from a plain connection and is not carried out yet, whoever read it.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use holdfast_proto::plain::{Piece, Pieces};
use holdfast_proto::v1::Failure;
use tokio::time::Instant;

use super::super::serve::REQUEST_BYTES_MAX;
use super::body_end::Ending;
use super::pen::Broken;
use crate::connections::{Call, overloaded};

pub(super) struct Unread {
    /// What the driver found, and did not carry out. It comes first.
    pub(super) found: Option<Found>,
    pub(super) pieces: Pieces,
    echo: Box<dyn Fn() + Send + Sync>,
    broken: Broken,
    /// None: nothing is counted.
    call: Option<Arc<Call>>,
    /// Bytes of a large piece that has not come whole, and since when.
    large: Option<(usize, Instant)>,
}

/// What is smaller is not counted: no session has more than one such piece.
const LARGE_BYTES_MIN: usize = 32 * 1024;

#[derive(Debug)]
pub(super) enum Found {
    Piece(Piece),
    End(Ending),
}

impl Unread {
    /// `echo` says that somebody is here; `broken`, what whoever writes has found.
    pub(super) fn new(echo: impl Fn() + Send + Sync + 'static, broken: Broken) -> Unread {
        let pieces = Pieces::new(REQUEST_BYTES_MAX);
        Unread { found: None, pieces, echo: Box::new(echo), broken, call: None, large: None }
    }

    pub(super) fn counted_by(mut self, call: Arc<Call>) -> Unread {
        self.call = Some(call);
        self
    }

    /// Counts a large piece that has not come whole. Gives the moment by which it must have, and the time that it had.
    pub(super) fn count(&mut self) -> Result<Option<(Instant, Duration)>, Failure> {
        let Some(call) = &self.call else { return Ok(None) };
        let held = self.pieces.held();
        let held = if held < LARGE_BYTES_MIN { 0 } else { held };
        if held == 0 && self.large.is_none() {
            return Ok(None);
        }
        let (counted, since) = self.large.unwrap_or_else(|| (0, Instant::now()));
        if held > counted {
            call.take_bytes(held - counted).map_err(|too_much| overloaded(&too_much))?;
        } else {
            call.give_back(counted - held);
        }
        self.large = (held > 0).then_some((held, since));
        let patience = call.connection().limits().request_timeout;
        Ok(self.large.map(|(_, since)| (since + patience, patience)))
    }

    /// A piece came whole, and the next has its own time.
    pub(super) fn begins_next_piece(&mut self) {
        if let Some((_, since)) = &mut self.large {
            *since = Instant::now();
        }
    }

    /// Answers a ping.
    pub(super) fn echo(&self) {
        (self.echo)();
    }

    /// What it means that no more could be read.
    pub(super) fn ending(&self, read: io::Result<usize>) -> Ending {
        match (read, self.broken.kind()) {
            (Ok(_), Some(kind)) => Ending::of_io(kind),
            (Ok(_), None) if self.pieces.is_empty() => Ending::Finished,
            (Ok(_), None) => Ending::Disconnected,
            (Err(error), _) => Ending::of_io(error.kind()),
        }
    }
}

impl fmt::Debug for Unread {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Unread { found, pieces, .. } = self;
        formatter
            .debug_struct("Unread")
            .field("found", found)
            .field("pieces", pieces)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::*;

    #[test]
    fn an_end_after_a_broken_write_is_what_the_write_said() {
        let broken = |kind| Unread::new(|| {}, Broken::by(kind));
        let cases = [
            (Unread::new(|| {}, Broken::default()), Ending::Finished),
            (broken(ErrorKind::ConnectionReset), Ending::Disconnected),
            // Nobody knows whether such a client lives.
            (broken(ErrorKind::TimedOut), Ending::CutOff),
        ];
        for (unread, ending) in cases {
            assert_eq!(unread.ending(Ok(0)), ending);
            assert_eq!(unread.ending(Err(ErrorKind::TimedOut.into())), Ending::CutOff);
        }
    }
}
