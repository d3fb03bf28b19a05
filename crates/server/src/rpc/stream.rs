//! The session stream: many operations and answers on one connection, all of one session.
//!
//! There are two front ends. They share how frames are decoded and admitted (`admit`) and how answers are encoded
//! (`answers`, `frame`).
//!
//! - A framed connection belongs to the shard, from its greeting to its close (`framed`).
//! - The call `Session` of gRPC has a task, which reads incoming frames (`serving`); the transport pulls outgoing ones
//!   ([`Outgoing`]).
//!
//! At a node that does not lead, a task passes the frames of either on to the leader (`relay`).
//!
//! How a stream ends decides how long its session lives: see `body_end`.

mod admit;
mod answers;
mod body_end;
mod byte_room;
mod frame;
mod framed;
mod incoming;
mod outgoing;
mod read_quota;
mod relay;
mod serving;

use std::sync::Arc;

use holdfast_proto::decode::operation::Opening;
use holdfast_proto::peer_v1::ForwardedFrame;
use holdfast_proto::v1::{ClientFrame, Failure};
use holdfast_replica::NodeId;
use holdfast_service::{Caller, Method};
use tonic::{Request, Response, Status, Streaming};

use self::incoming::Incoming;
use self::outgoing::OutgoingSender;
use self::relay::Relay;
use super::Rpc;
use super::credentials::bind_opening;
use super::grpc;
use super::route::Destination;

pub(super) use self::body_end::WatchBody;
pub(super) use self::framed::{FramedConnection, FramedFrontEnd};
pub(super) use self::outgoing::Outgoing;

/// Answers at once, before the first frame has come: a client may wait for the response's headers
/// before it sends anything.
pub(super) fn serve(
    rpc: &Rpc,
    request: Request<Streaming<ClientFrame>>,
) -> Result<Response<Outgoing>, Status> {
    let caller = grpc::caller(request.extensions())?;
    Ok(Response::new(begin(rpc, caller, Incoming::new(request))?))
}

/// A stream of a client of another node.
pub(super) fn serve_forwarded(
    rpc: &Rpc,
    caller: Caller,
    first: ForwardedFrame,
    frames: Streaming<ForwardedFrame>,
) -> Result<Outgoing, Failure> {
    begin(rpc, caller, Incoming::Forwarded { first: Some(first), frames })
}

fn begin(rpc: &Rpc, caller: Caller, mut incoming: Incoming) -> Result<Outgoing, Failure> {
    let permit = rpc.door.begin(Method::Session)?;
    let connection = incoming.call().map(|call| Arc::clone(call.connection()));
    let (sender, outgoing) = outgoing::pair(rpc, connection);
    let rpc = rpc.clone();
    tokio::spawn(async move {
        let _permit = permit;
        if let Err(failure) = run(&rpc, &caller, &mut incoming, &sender).await {
            sender.end(failure).await;
        }
    });
    Ok(outgoing)
}

async fn run(
    rpc: &Rpc,
    caller: &Caller,
    incoming: &mut Incoming,
    sender: &OutgoingSender,
) -> Result<(), Failure> {
    rpc.admit_session(caller, Method::Session, ())?;
    let Some(first) = incoming.first().await? else { return Ok(()) };
    // Until here its connection counted as idle.
    if let Some(call) = incoming.call() {
        call.is_whole();
    }
    let opening = Opening::decode(&first)?;
    let group = rpc.membership.groups.with_number(opening.group)?;
    match rpc.destination(caller, Method::Session, group).await? {
        Destination::Here => {
            let (named, mut opening) = (opening.session, opening);
            bind_opening(rpc.door.service(), caller, &mut opening);
            let opening = rpc.admit_session(caller, method_of(&opening), opening)?;
            rpc.note_login(caller, opening.get());
            serving::serve(rpc, caller, (named, opening), first, incoming, sender).await
        }
        Destination::At(leader) => {
            relay(rpc, caller, leader, &opening, first, incoming, sender).await
        }
    }
}

/// The leader serves the session, and this node passes on what both sides say.
async fn relay(
    rpc: &Rpc,
    caller: &Caller,
    leader: NodeId,
    opening: &Opening,
    first: ClientFrame,
    incoming: &mut Incoming,
    sender: &OutgoingSender,
) -> Result<(), Failure> {
    let there = || rpc.forwarding.address(leader);
    let _permit =
        rpc.door.begin_relay().map_err(|failure| Failure { leader: there(), ..failure })?;
    rpc.admit_session(caller, method_of(opening), ())?;
    let relay = Relay { rpc, caller, leader, session: opening.session };
    relay.serve(first, incoming, sender).await
}

fn method_of(opening: &Opening) -> Method {
    if opening.resumed { Method::ResumeSession } else { Method::OpenSession }
}
