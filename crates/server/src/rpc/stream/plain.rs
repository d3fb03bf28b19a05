//! A session's stream on a connection of its own, without HTTP/2. One task reads what the driver does not read by itself; another
//! writes what the driver does not write.
//!
//! What is said on it, and what its end means, is as in the call `Session`; see [`holdfast_proto::plain`] for what
//! is around the messages.

use std::future::poll_fn;
use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use holdfast_proto::failure::refused;
use holdfast_proto::plain::{self, FrameWriter, NotAPiece};
use holdfast_proto::v1::{Failure, Reason};
use holdfast_service::{Caller, Method, Protocol};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout, timeout_at};
use tonic::Status;

use super::super::Rpc;
use super::super::serve::RESPONSE_BYTES_MAX;
use super::incoming::{Incoming, Next, Received};
use super::outgoing::{self, Outgoing};
use super::pen::Pen;
use super::reading::Reading;
use super::run;
use super::unread::{Found, Unread};
use crate::connections::{Call, OpenConnection, late};

const LAST_WORD_TIMEOUT: Duration = Duration::from_secs(1);

/// Of a client that has greeted. Returns when the stream has ended.
pub(in crate::rpc) async fn serve(
    rpc: Rpc,
    socket: tokio::net::TcpStream,
    mut open: OpenConnection,
) {
    open.takes_another_descriptor();
    let (reading, pen) = match halves(socket) {
        Ok(halves) => halves,
        Err(error) => return tracing::warn!(%error, "a session's connection cannot be served"),
    };
    if pen.write(&plain::GREETING).await.is_err() {
        return;
    }
    let permit = match rpc.door.begin(Method::Session) {
        Ok(permit) => permit,
        Err(failure) => return write_end(&pen, failure).await,
    };
    let stopping = rpc.stopping.clone();
    let caller = Caller::client(Protocol::Framed, Some(open.connection().remote()));
    let conversation = converse(rpc, caller, open.connection().begin_session(), reading, pen);
    tokio::select! {
        () = conversation => {}
        () = open.closing() => tracing::debug!("a connection opened no session in time"),
        // It has had time for a last word.
        () = async { stopping.begun().await; sleep(LAST_WORD_TIMEOUT).await } => {}
    }
    drop(permit);
}

fn halves(socket: tokio::net::TcpStream) -> io::Result<(Reading, Pen)> {
    let socket = socket.into_std()?;
    Ok((Reading::new(socket.try_clone()?)?, Pen::new(socket)?))
}

async fn converse(rpc: Rpc, caller: Caller, call: Arc<Call>, reading: Reading, pen: Pen) {
    let (broken, pen) = (pen.broken(), Arc::new(pen));
    let (words, outgoing) = outgoing::pair(rpc.clone(), Some(Arc::clone(&pen)));
    // Whoever reads is not to look each time whether there is something to write.
    let mut writing = JoinSet::new();
    writing.spawn(write(pen, outgoing));
    let unread = Unread::new(words.echo(), broken).counted_by(Arc::clone(&call));
    let mut incoming = Incoming::Plain(PlainFrames::new(reading, unread));
    if let Err(failure) = run(&rpc, &caller, Some(&call), &mut incoming, &words).await {
        words.end(failure).await;
    }
    drop(words);
    writing.join_next().await;
    // To close a socket from which not all was read would take back what was said last.
    let _ = timeout(LAST_WORD_TIMEOUT, incoming.read_to_end()).await;
}

/// Until there is nothing more to say, or nobody to say it to.
async fn write(pen: Arc<Pen>, mut outgoing: Outgoing) {
    let mut frame = FrameWriter::default();
    while let Some(next) = poll_fn(|cx| outgoing.poll_frame(cx, &mut frame)).await {
        if let Err(status) = next {
            return write_end(&pen, Failure::from_status(&status)).await;
        }
        let Some(piece) = frame.finish(RESPONSE_BYTES_MAX) else {
            return write_end(&pen, too_large()).await;
        };
        if pen.write(piece).await.is_err() {
            return pen.end();
        }
        outgoing.is_written();
        frame.clear();
    }
    pen.end();
}

async fn write_end(pen: &Pen, failure: Failure) {
    pen.keep_to_the_task();
    let mut written = Vec::new();
    plain::put(&mut written, plain::END, &failure, RESPONSE_BYTES_MAX);
    // If nobody reads any more, there is nobody to tell.
    let _ = pen.write(&written).await;
    pen.end();
}

fn too_large() -> Failure {
    let words = format!("the answers have more than {RESPONSE_BYTES_MAX} bytes");
    Failure::from_status(&Status::out_of_range(words))
}

/// The frames of one client.
#[derive(Debug)]
pub(super) struct PlainFrames<R> {
    socket: R,
    unread: Unread,
}

impl<R: AsyncRead + Unpin> PlainFrames<R> {
    pub(super) fn new(socket: R, unread: Unread) -> PlainFrames<R> {
        PlainFrames { socket, unread }
    }

    /// What comes is not looked at.
    pub(super) async fn read_to_end(&mut self) {
        let mut unread = [0; 1_024];
        while !matches!(self.socket.read(&mut unread).await, Ok(0) | Err(_)) {}
    }

    /// Nothing is lost if it is not waited for to the end.
    pub(super) async fn next(&mut self) -> Result<Next, Failure> {
        loop {
            if let Some(next) = self.next_read()? {
                return Ok(next);
            }
            let deadline = self.unread.count()?;
            let read = self.socket.read_buf(self.unread.pieces.room());
            let read = match deadline {
                None => read.await,
                Some((moment, patience)) => {
                    timeout_at(moment, read).await.map_err(|_| late(patience))?
                }
            };
            match read {
                Ok(bytes) if bytes > 0 => {}
                ended => return Ok(Next::End(self.unread.ending(ended))),
            }
        }
    }

    /// Of what has been read.
    fn next_read(&mut self) -> Result<Option<Next>, Failure> {
        loop {
            let piece = match self.unread.found.take() {
                Some(Found::Piece(piece)) => piece,
                Some(Found::End(ending)) => return Ok(Some(Next::End(ending))),
                None => match self.unread.pieces.next_piece().map_err(not_a_piece)? {
                    Some(piece) => {
                        self.unread.begins_next_piece();
                        piece
                    }
                    None => return Ok(None),
                },
            };
            match piece.kind {
                plain::FRAME => return Ok(Some(Next::Frame(Received::Bytes(piece.message)))),
                plain::PING => self.unread.echo(),
                kind => {
                    let words = format!("a piece of kind {kind}, which no client sends");
                    return Err(refused(Reason::InvalidFrame, words));
                }
            }
        }
    }
}

impl PlainFrames<Reading> {
    /// For whoever reads it from now on.
    pub(super) fn into_parts(self) -> (TcpStream, Unread) {
        (self.socket.into_socket(), self.unread)
    }
}

fn not_a_piece(error: NotAPiece) -> Failure {
    refused(Reason::InvalidFrame, error.to_string())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use holdfast_proto::v1::{ClientFrame, KeepAliveRequest, Operation, operation};
    use proptest::prelude::*;

    use super::super::super::serve::REQUEST_BYTES_MAX;
    use super::super::body_end::Ending;
    use super::super::pen::Broken;
    use super::*;

    fn frame(acked_through: u64) -> ClientFrame {
        let heartbeat = operation::Kind::KeepAlive(KeepAliveRequest::default());
        ClientFrame { acked_through, operations: vec![Operation { kind: Some(heartbeat) }] }
    }

    /// What is made of these bytes, to the end; how many pings were answered.
    async fn all_of(bytes: &[u8]) -> (Vec<u64>, Result<Ending, Failure>, usize) {
        let echoes = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&echoes);
        let echo = move || {
            counted.fetch_add(1, Ordering::Relaxed);
        };
        let mut frames = PlainFrames::new(bytes, Unread::new(echo, Broken::default()));
        let mut seen = Vec::new();
        let end = loop {
            match frames.next().await {
                Ok(Next::Frame(frame)) => match frame.into_message() {
                    Ok(frame) => seen.push(frame.acked_through),
                    Err(failure) => break Err(failure),
                },
                Ok(Next::End(ending)) => break Ok(ending),
                Err(failure) => break Err(failure),
            }
        };
        (seen, end, echoes.load(Ordering::Relaxed))
    }

    fn pieces(kinds: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (number, kind) in kinds.iter().enumerate() {
            match *kind {
                plain::PING => plain::put(&mut bytes, plain::PING, &(), REQUEST_BYTES_MAX),
                kind => plain::put(&mut bytes, kind, &frame(number as u64), REQUEST_BYTES_MAX),
            };
        }
        bytes
    }

    #[tokio::test]
    async fn frames_come_as_they_were_sent_and_pings_are_answered() {
        let bytes = pieces(&[plain::FRAME, plain::PING, plain::FRAME, plain::PING]);
        assert_eq!(all_of(&bytes).await, (vec![0, 2], Ok(Ending::Finished), 2));
    }

    #[tokio::test]
    async fn a_client_that_ends_within_a_frame_has_been_cut_short() {
        let bytes = pieces(&[plain::FRAME, plain::FRAME]);
        let (seen, end, _) = all_of(&bytes[..bytes.len() - 1]).await;
        assert_eq!((seen, end), (vec![0], Ok(Ending::Disconnected)));
    }

    #[tokio::test]
    async fn what_no_client_sends_is_refused_in_words() {
        for (bytes, words) in [
            (pieces(&[plain::END]), "a piece of kind 2"),
            (vec![2, 0, 0, 0, plain::FRAME, 0xff], "not a frame"),
            (vec![0xff; 8], "a piece of 4294967295 bytes"),
        ] {
            let (_, end, _) = all_of(&bytes).await;
            let failure = end.unwrap_err();
            assert_eq!(failure.reason(), Reason::InvalidFrame);
            assert!(failure.message.starts_with(words), "{failure:?}");
        }
    }

    proptest! {
        #[test]
        fn whatever_comes_has_an_end(bytes: Vec<u8>) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let (_, end, _) = runtime.block_on(all_of(&bytes));
            prop_assert!(!matches!(end, Ok(Ending::CutOff)));
        }
    }
}
