//! What the driver hears of a client by itself: pings, and frames of nothing but looks, and acquires and releases of the correctness
//! tier, with nothing wrong about them. All else it leaves to the stream's task, as it lies.

use std::io::{self, ErrorKind, Read};
use std::net::TcpStream;

use holdfast_core::{RequestId, SessionId};
use holdfast_proto::decode::Scope;
use holdfast_proto::plain::{self, BorrowedOperation, Piece};
use holdfast_proto::v1::{Tier, operation};
use holdfast_service::{Caller, Service};
use mio::net::TcpStream as WatchedSocket;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::admit::{AdmittedOperation, admit};
use super::incoming::Received;
use super::looks::Looks;
use super::plain::PlainFrames;
use super::reading::Reading;
use super::unread::{Found, Unread};
use crate::driver::{self, AfterHearing, Heard};

#[cfg(test)]
mod tests;

/// Sessions that a driver hears though others could do it at the same time: to wake them takes as long.
const LENT_MAX: usize = 8;
/// The same if there is only one other.
const LENT_BESIDE_ONE_MAX: usize = 4_096;

/// Of something longer than this more can be made than the driver has time for.
const PIECE_BYTES_MAX: usize = 32 * 1024;

/// How many sessions may lend their connections, by how many threads there are for clients.
pub(in crate::rpc) fn lent_max() -> usize {
    match Handle::try_current().map(|runtime| runtime.metrics().num_workers()) {
        Ok(1) => LENT_BESIDE_ONE_MAX,
        _ => LENT_MAX,
    }
}

/// A connection on its way to the driver, or back.
#[derive(Debug)]
pub(super) struct Lent {
    pub(super) socket: TcpStream,
    pub(super) unread: Unread,
}

impl From<PlainFrames<Reading>> for Lent {
    fn from(frames: PlainFrames<Reading>) -> Lent {
        let (socket, unread) = frames.into_parts();
        Lent { socket, unread }
    }
}

impl Lent {
    /// For the stream's task.
    pub(super) fn into_frames(self) -> io::Result<PlainFrames<Reading>> {
        Ok(PlainFrames::new(Reading::new(self.socket)?, self.unread))
    }
}

#[derive(Debug)]
pub(super) struct Ear {
    pub(super) unread: Unread,
    pub(super) session: SessionId,
    pub(super) caller: Caller,
    pub(super) service: Service,
    pub(super) looks: Looks,
    pub(super) back: oneshot::Sender<Lent>,
    /// One of those that may be lent.
    pub(super) _place: OwnedSemaphorePermit,
}

impl driver::Ear for Ear {
    fn hear(
        &mut self,
        socket: &mut WatchedSocket,
        scratch: &mut [u8],
        heard: &mut Heard,
    ) -> AfterHearing {
        // What came before: while the task read it, or more of it than fits into a turn.
        match self.take_pieces(heard) {
            AfterHearing::Silence => {}
            after => return after,
        }
        let has_more = match socket.read(scratch) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => return AfterHearing::Silence,
            Err(error) if error.kind() == ErrorKind::Interrupted => true,
            Ok(bytes) if bytes > 0 => {
                self.unread.pieces.room().extend_from_slice(&scratch[..bytes]);
                bytes == scratch.len()
            }
            ended => {
                self.unread.found = Some(Found::End(self.unread.ending(ended)));
                return AfterHearing::GiveBack;
            }
        };
        match self.take_pieces(heard) {
            AfterHearing::Silence if has_more => AfterHearing::More,
            after => after,
        }
    }

    fn give_back(self: Box<Self>, socket: WatchedSocket) {
        let Ear { unread, back, .. } = *self;
        // A task that has ended wants nothing more.
        let _ = back.send(Lent { socket: socket.into(), unread });
    }
}

impl Ear {
    /// Of what has been read.
    fn take_pieces(&mut self, heard: &mut Heard) -> AfterHearing {
        while !heard.is_much() {
            if self.unread.pieces.announced().is_some_and(|bytes| bytes > PIECE_BYTES_MAX) {
                return AfterHearing::GiveBack;
            }
            match self.unread.pieces.next_piece() {
                Ok(None) => return AfterHearing::Silence,
                Ok(Some(piece)) if piece.kind == plain::PING => {
                    heard.pings += 1;
                    self.unread.echo();
                }
                Ok(Some(piece)) if self.take(&piece, heard) => {}
                Ok(Some(piece)) => {
                    self.unread.found = Some(Found::Piece(piece));
                    return AfterHearing::GiveBack;
                }
                // The task finds the same.
                Err(_) => return AfterHearing::GiveBack,
            }
        }
        AfterHearing::More
    }

    /// All of a frame or nothing.
    fn take(&self, piece: &Piece, heard: &mut Heard) -> bool {
        let (operations, looks) = (heard.operations.len(), heard.looks.len());
        heard.bytes += piece.message.len();
        let is_taken = piece.kind == plain::FRAME && self.take_frame(piece, heard).is_some();
        if !is_taken {
            heard.operations.truncate(operations);
            self.looks.end(heard.looks.len() - looks);
            heard.looks.truncate(looks);
        }
        is_taken
    }

    fn take_frame(&self, piece: &Piece, heard: &mut Heard) -> Option<()> {
        let mut received = Received::Bytes(piece.message.clone());
        let frame = received.open().ok()?;
        if !are_common(&frame.operations) {
            return None;
        }
        let acked_through = RequestId(frame.acked_through);
        let scope = Scope::Stream { session: self.session, acked_through };
        heard.operations.reserve(frame.operations.len());
        for operation in frame.operations {
            match admit(&self.service, &self.caller, operation, scope) {
                (request, Ok(AdmittedOperation::Change(_, command))) => {
                    heard.operations.push((request, command.into_inner()));
                }
                (request, Ok(AdmittedOperation::Status(name))) if self.looks.begin() => {
                    heard.looks.push((request, name.into_inner()));
                }
                _ => return None,
            }
        }
        Some(())
    }
}

/// Such as come by the thousand. An empty frame is a farewell.
pub(super) fn are_common(operations: &[BorrowedOperation<'_>]) -> bool {
    let is_common = |operation: &BorrowedOperation<'_>| match operation {
        BorrowedOperation::Acquire(acquire) => acquire.tier != Tier::Efficiency as i32,
        BorrowedOperation::Release(release) => release.tier != Tier::Efficiency as i32,
        BorrowedOperation::Message(operation) => {
            matches!(operation.kind, Some(operation::Kind::Status(_)))
        }
    };
    !operations.is_empty() && operations.iter().all(is_common)
}
