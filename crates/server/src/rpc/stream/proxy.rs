//! A stream at a node that does not lead: frames are piped to the leader and back, unread.
//!
//! The leader has to learn how the stream ended, because only it can start the session's linger time.
//! When the client went away, the frames to the leader end. When this node leaves, or cannot tell, it
//! says so first, by a frame without operations: then the session keeps its TTL.

use std::pin::pin;
use std::time::Duration;

use holdfast_proto::v1::{ClientFrame, Failure, ServerFrame};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use super::super::Rpc;
use super::super::failure::{leader_did_not_answer, stopping};
use super::super::forward::Leader;
use super::super::origin::Origin;
use super::body_end::Ending;
use super::incoming::{Incoming, Next};
use super::outgoing::Words;

/// Frames on their way to the leader.
const FRAMES_MAX: usize = 16;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// How long the leader has to take what a client that has gone had sent.
const PASSING_ON_TIMEOUT: Duration = Duration::from_secs(1);

/// How long the leader has to take note that the stream ended.
const FAREWELL_TIMEOUT: Duration = Duration::from_secs(1);

pub(super) async fn serve(
    rpc: &Rpc,
    origin: &Origin,
    mut leader: Leader,
    first: ClientFrame,
    incoming: &mut Incoming,
    words: &Words,
) -> Result<(), Failure> {
    let (to_leader, frames) = mpsc::channel(FRAMES_MAX);
    // The channel is new and has room.
    let _ = to_leader.try_send(first);
    let request = origin.forwarded(rpc.membership.me, ReceiverStream::new(frames));
    let mut from_leader = match timeout(CONNECT_TIMEOUT, leader.client.session(request)).await {
        Ok(Ok(response)) => response.into_inner(),
        Ok(Err(status)) => return Err(leader.failure(&status)),
        Err(_) => {
            // If it gets through after all: the client lives.
            let _ = to_leader.try_send(ClientFrame::default());
            return Err(leader_did_not_answer(leader.address, false, "it took too long"));
        }
    };

    let (ending, last_word) = {
        let mut up = pin!(pump_up(incoming, &to_leader));
        let mut down = pin!(pump_down(&mut from_leader, &leader, words));
        tokio::select! {
            biased;
            ending = &mut up => match ending {
                Ok(ending) => (Some(ending), Ok(())),
                Err(failure) => (Some(Ending::CutOff), Err(failure)),
            },
            end = &mut down => return end,
            // What has come is passed on also if nobody can be answered any more, and its end tells how the client went.
            () = words.unheard() => tokio::select! {
                ending = timeout(PASSING_ON_TIMEOUT, up) => match ending {
                    Ok(ending) => (Some(ending.unwrap_or(Ending::CutOff)), Ok(())),
                    Err(_) => (None, Ok(())),
                },
                end = down => return end,
                () = rpc.stopping.begun() => (Some(Ending::CutOff), Ok(())),
            },
            () = rpc.stopping.begun() => (Some(Ending::CutOff), Err(stopping())),
        }
    };
    // More has come than the leader takes in time: how the client went is told all the same.
    let ending = match ending {
        Some(ending) => ending,
        None => incoming.fate().await,
    };
    let client_gone = ending.means_client_gone(false) && !rpc.stopping.has_begun();
    // The leader gone as well is the only way in which this can fail.
    let _ = timeout(FAREWELL_TIMEOUT, take_leave(client_gone, to_leader, from_leader)).await;
    last_word
}

/// Ends when the client's frames do, or with what the client did wrong.
async fn pump_up(
    incoming: &mut Incoming,
    to_leader: &mpsc::Sender<ClientFrame>,
) -> Result<Ending, Failure> {
    loop {
        match incoming.next().await? {
            Next::Frame(frame) => {
                let frame = frame.into_message()?;
                // The client's farewell: it lives, and so does this node's to the leader say.
                if frame.operations.is_empty() {
                    return Ok(Ending::CutOff);
                }
                if to_leader.send(frame).await.is_err() {
                    // The leader's answers end too, and say why.
                    std::future::pending::<()>().await;
                }
            }
            Next::End(ending) => return Ok(ending),
        }
    }
}

/// Ends when the leader's frames do.
async fn pump_down(
    from_leader: &mut Streaming<ServerFrame>,
    leader: &Leader,
    words: &Words,
) -> Result<(), Failure> {
    loop {
        match from_leader.message().await {
            Ok(Some(frame)) => {
                // If the client is gone, the end of its frames tells how. Until then the leader is not held up.
                let _ = words.frame(frame).await;
            }
            Ok(None) => return Ok(()),
            Err(status) => return Err(leader.failure(&status)),
        }
    }
}

/// Returns when the leader has ended its side. To hang up earlier could overtake the farewell.
async fn take_leave(
    client_gone: bool,
    to_leader: mpsc::Sender<ClientFrame>,
    mut from_leader: Streaming<ServerFrame>,
) {
    if !client_gone {
        let _ = to_leader.send(ClientFrame::default()).await;
    }
    drop(to_leader);
    while let Ok(Some(_)) = from_leader.message().await {}
}
