//! What was read from a framed connection and is not carried out yet.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Buf;
use holdfast_proto::failure::refused;
use holdfast_proto::plain::{GREETING, Piece, Pieces};
use holdfast_proto::v1::{Failure, Reason};

use super::super::super::message_sizes::REQUEST_BYTES_MAX;
use super::super::body_end::Ending;
use crate::connections::{Call, overloaded};

/// What is smaller is not counted: no connection has more than one such piece.
const LARGE_BYTES_MIN: usize = 32 * 1024;

#[derive(Debug)]
pub(super) struct ReadBuffer {
    pieces: Pieces,
    call: Arc<Call>,
    /// Bytes of a large piece that has not come whole, and since when.
    large: Option<(usize, Instant)>,
}

impl ReadBuffer {
    /// What it holds is counted by the call.
    pub(super) fn new(call: Arc<Call>) -> ReadBuffer {
        ReadBuffer { pieces: Pieces::new(REQUEST_BYTES_MAX), call, large: None }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.pieces.room().extend_from_slice(bytes);
    }

    /// Whether the client greets as it should. None: not enough has come to tell.
    pub(super) fn take_greeting(&mut self) -> Option<bool> {
        let read = self.pieces.room();
        let common = read.len().min(GREETING.len());
        if read[..common] != GREETING[..common] {
            return Some(false);
        }
        if common < GREETING.len() {
            return None;
        }
        read.advance(GREETING.len());
        Some(true)
    }

    /// None: more has to be read first.
    pub(super) fn next_piece(&mut self) -> Result<Option<Piece>, Failure> {
        let piece = self.pieces.next_piece();
        match piece.map_err(|error| refused(Reason::InvalidFrame, error.to_string()))? {
            Some(piece) => {
                // The next has its own time.
                if let Some((_, since)) = &mut self.large {
                    *since = Instant::now();
                }
                Ok(Some(piece))
            }
            None => self.count().map(|()| None),
        }
    }

    /// What comes does not count any more.
    pub(super) fn clear(&mut self) {
        if !self.pieces.is_empty() {
            self.pieces = Pieces::new(REQUEST_BYTES_MAX);
        }
        if let Some((counted, _)) = self.large.take() {
            self.call.give_back(counted);
        }
    }

    /// When a large piece must have come whole.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.large.map(|(_, since)| since + self.patience())
    }

    /// From the first byte of a large piece to its last.
    pub(super) fn patience(&self) -> Duration {
        self.call.connection().limits().request_timeout
    }

    /// What it means that no more could be read. A failed write says more than the end that is read after it, because
    /// the system tells a failure once.
    pub(super) fn ending(
        &self,
        read: io::Result<usize>,
        failed_write: Option<io::ErrorKind>,
    ) -> Ending {
        match (read, failed_write) {
            (Ok(_), Some(kind)) => Ending::of_io(kind),
            (Ok(_), None) if self.pieces.is_empty() => Ending::Finished,
            (Ok(_), None) => Ending::Disconnected,
            (Err(error), _) => Ending::of_io(error.kind()),
        }
    }

    /// Counts a large piece that has not come whole.
    fn count(&mut self) -> Result<(), Failure> {
        let held = self.pieces.held();
        let held = if held < LARGE_BYTES_MIN { 0 } else { held };
        if held == 0 && self.large.is_none() {
            return Ok(());
        }
        let (counted, since) = self.large.unwrap_or_else(|| (0, Instant::now()));
        if held > counted {
            self.call.take_bytes(held - counted).map_err(|too_much| overloaded(&too_much))?;
        } else {
            self.call.give_back(counted - held);
        }
        self.large = (held > 0).then_some((held, since));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use holdfast_proto::plain;
    use holdfast_proto::v1::ClientFrame;
    use std::io::ErrorKind;

    use super::*;
    use crate::connections::{Connections, Descriptors, OpenConnection, PortLimits};

    async fn buffer() -> (ReadBuffer, OpenConnection) {
        let port = Connections::new(PortLimits::of_http(), Descriptors::without_limit());
        let open = port.admit(IpAddr::V4(Ipv4Addr::LOCALHOST)).await.unwrap();
        (ReadBuffer::new(open.connection().begin_session()), open)
    }

    #[tokio::test]
    async fn a_greeting_is_known_as_soon_as_it_differs() {
        let (mut read, _open) = buffer().await;
        read.push(&GREETING[..2]);
        assert_eq!(read.take_greeting(), None);
        read.push(&GREETING[2..]);
        assert_eq!(read.take_greeting(), Some(true));
        let (mut read, _open) = buffer().await;
        read.push(&[GREETING[0], b'x']);
        assert_eq!(read.take_greeting(), Some(false));
    }

    #[tokio::test]
    async fn an_end_after_a_failed_write_has_the_cause_of_the_write() {
        let cases = [
            (None, Ending::Finished),
            (Some(ErrorKind::ConnectionReset), Ending::Disconnected),
            // What became of such a client is not known.
            (Some(ErrorKind::TimedOut), Ending::CutOff),
        ];
        let (read, _open) = buffer().await;
        for (failed_write, ending) in cases {
            assert_eq!(read.ending(Ok(0), failed_write), ending);
            let timed_out = Err(ErrorKind::TimedOut.into());
            assert_eq!(read.ending(timed_out, failed_write), Ending::CutOff);
        }
    }

    #[tokio::test]
    async fn an_end_within_a_piece_means_that_the_client_was_cut_short() {
        let (mut read, _open) = buffer().await;
        let mut bytes = Vec::new();
        assert!(plain::put(&mut bytes, plain::FRAME, &ClientFrame::default(), REQUEST_BYTES_MAX));
        read.push(&bytes);
        read.push(&bytes[..3]);
        assert!(read.next_piece().unwrap().is_some() && read.next_piece().unwrap().is_none());
        assert_eq!(read.ending(Ok(0), None), Ending::Disconnected);
    }

    #[tokio::test]
    async fn a_large_piece_that_has_not_come_whole_is_counted_and_has_a_deadline() {
        let (mut read, open) = buffer().await;
        let length = u32::try_from(2 * LARGE_BYTES_MIN).unwrap();
        read.push(&length.to_le_bytes());
        assert!(read.next_piece().unwrap().is_none() && read.deadline().is_none());
        read.push(&vec![0; LARGE_BYTES_MIN]);
        assert!(read.next_piece().unwrap().is_none() && read.deadline().is_some());
        read.clear();
        assert!(read.deadline().is_none());
        let bytes_max = open.connection().limits().bytes_per_connection_max;
        let length = u32::try_from(2 * bytes_max).unwrap();
        read.push(&length.to_le_bytes());
        read.push(&vec![0; bytes_max + 1]);
        assert_eq!(read.next_piece().unwrap_err().reason(), Reason::Overloaded);
    }
}
