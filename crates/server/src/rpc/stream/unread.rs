//! What was read from a plain connection and is not carried out yet, whoever read it.

use std::fmt;
use std::io;

use holdfast_proto::plain::{Piece, Pieces};

use super::super::serve::REQUEST_BYTES_MAX;
use super::body_end::Ending;

pub(super) struct Unread {
    /// What the driver found, and did not carry out. It comes first.
    pub(super) found: Option<Found>,
    pub(super) pieces: Pieces,
    echo: Box<dyn Fn() + Send + Sync>,
}

#[derive(Debug)]
pub(super) enum Found {
    Piece(Piece),
    End(Ending),
}

impl Unread {
    /// `echo` says that somebody is here.
    pub(super) fn new(echo: impl Fn() + Send + Sync + 'static) -> Unread {
        Unread { found: None, pieces: Pieces::new(REQUEST_BYTES_MAX), echo: Box::new(echo) }
    }

    /// Answers a ping.
    pub(super) fn echo(&self) {
        (self.echo)();
    }

    /// What it means that no more could be read.
    pub(super) fn ending(&self, read: io::Result<usize>) -> Ending {
        match read {
            Ok(_) if self.pieces.is_empty() => Ending::Finished,
            Ok(_) => Ending::Disconnected,
            Err(error) => Ending::of_io(error.kind()),
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
