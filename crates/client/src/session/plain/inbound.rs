//! What the node sends on a stream without HTTP/2.

use std::time::{Duration, Instant};

use holdfast_proto::plain::{self, Pieces};
use holdfast_proto::v1::{Failure, ServerFrame};
use prost::Message;
use tonic::Status;

use super::halves::Reading;
use crate::connection::{KEEPALIVE_INTERVAL, KEEPALIVE_TIMEOUT, RESPONSE_BYTES_MAX};

/// Time in which this program did not look does not count as silence.
const SILENCE_STEP_MAX: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(in super::super) struct PlainInbound {
    socket: Reading,
    pieces: Pieces,
    silence: Silence,
}

impl PlainInbound {
    pub(super) fn new(socket: Reading, now: Instant) -> PlainInbound {
        let pieces = Pieces::new(RESPONSE_BYTES_MAX);
        PlainInbound { socket, pieces, silence: Silence::beginning(now) }
    }

    /// Nothing is lost if it is not waited for to the end.
    pub(in super::super) async fn message(&mut self) -> Result<Option<ServerFrame>, Status> {
        loop {
            let piece = self.pieces.next_piece();
            if let Some(piece) = piece.map_err(|error| Status::internal(error.to_string()))? {
                let broken = |error: prost::DecodeError| Status::internal(error.to_string());
                match piece.kind {
                    // All that it says is that the node is there.
                    plain::FRAME if piece.message.is_empty() => continue,
                    plain::FRAME => {
                        return plain::read_server_frame(&piece.message).map(Some).map_err(broken);
                    }
                    plain::END => {
                        let failure = Failure::decode(piece.message).map_err(broken)?;
                        return Err(failure.to_status());
                    }
                    // Of a later version.
                    _ => continue,
                }
            }
            match self.socket.read_buf(self.pieces.room()).await {
                Ok(0) => return Ok(None),
                Ok(_) => self.silence.is_broken(Instant::now()),
                Err(error) => return Err(Status::unavailable(error.to_string())),
            }
        }
    }

    /// Whether nothing has come for too long, though the node was asked. To be called every now and then.
    pub(in super::super) fn has_fallen_silent(&mut self, now: Instant) -> bool {
        self.silence.is_too_long(now)
    }
}

/// For how long nothing came, as far as this program looked.
#[derive(Debug)]
struct Silence {
    lasted: Duration,
    looked_at: Instant,
}

impl Silence {
    fn beginning(now: Instant) -> Silence {
        Silence { lasted: Duration::ZERO, looked_at: now }
    }

    fn is_broken(&mut self, now: Instant) {
        *self = Silence::beginning(now);
    }

    fn is_too_long(&mut self, now: Instant) -> bool {
        self.lasted += now.duration_since(self.looked_at).min(SILENCE_STEP_MAX);
        self.looked_at = now;
        self.lasted > KEEPALIVE_INTERVAL + KEEPALIVE_TIMEOUT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_given_up_after_some_seconds_in_which_nothing_came_and_not_after_a_pause_of_our_own()
     {
        let mut now = Instant::now();
        let mut silence = Silence::beginning(now);
        let mut after = |seconds: u64| {
            now += Duration::from_secs(seconds);
            now
        };
        for _ in 0..4 {
            assert!(!silence.is_too_long(after(1)));
        }
        silence.is_broken(after(1));
        for _ in 0..4 {
            assert!(!silence.is_too_long(after(1)));
        }
        assert!(silence.is_too_long(after(1)));
        silence.is_broken(after(0));
        // This program stood still, and whatever came meanwhile is yet to be read.
        assert!(!silence.is_too_long(after(3_600)));
    }
}
