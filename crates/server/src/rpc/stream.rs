//! The session stream: many operations and answers on one connection, all of one session.
//!
//! The stream has two halves that know little of each other. Incoming frames are read by a task of
//! the stream (`serving` at the leader, `relay` elsewhere), which is also where its end is noticed. A plain connection that is
//! busy is lent to the driver, which reads what is common by itself (`ear`).
//! Outgoing frames ([`Outgoing`]) are pulled by the transport straight from the driver's deliveries; on a plain
//! connection the driver writes most of them by itself (`speaker`).
//!
//! How a stream ends decides how long its session lives: see `body_end`.

mod admit;
mod body_end;
mod ear;
mod frame;
mod incoming;
mod looks;
mod outgoing;
mod pen;
mod plain;
mod reading;
mod relay;
mod serving;
mod speaker;
mod unread;
mod view;
mod watched;

use std::sync::Arc;

use holdfast_proto::peer_v1::ForwardedFrame;
use holdfast_proto::v1::{ClientFrame, Failure};
use holdfast_service::{Caller, Method};
use tonic::{Request, Response, Status, Streaming};

use self::incoming::Incoming;
use self::outgoing::Words;
use self::relay::Relay;
use super::Rpc;
use super::grpc;
use super::route::Place;
use crate::connections::Call;
use holdfast_proto::decode::operation::Opening;

pub(super) use self::body_end::WatchBody;
pub(super) use self::ear::lent_max;
pub(super) use self::outgoing::Outgoing;
pub(super) use self::plain::serve as serve_plain;

/// Answers at once, before the first frame has come: a client may wait for the response's headers
/// before it sends anything.
pub(super) fn serve(
    rpc: &Rpc,
    request: Request<Streaming<ClientFrame>>,
) -> Result<Response<Outgoing>, Status> {
    let caller = grpc::caller(request.extensions())?;
    let call = request.extensions().get::<Arc<Call>>().cloned();
    let incoming = Incoming::new(request);
    Ok(Response::new(begin(rpc, caller, call, incoming)?))
}

/// A stream of a client of another node.
pub(super) fn serve_forwarded(
    rpc: &Rpc,
    caller: Caller,
    first: ForwardedFrame,
    frames: Streaming<ForwardedFrame>,
) -> Result<Outgoing, Failure> {
    begin(rpc, caller, None, Incoming::Forwarded { first: Some(first), frames })
}

fn begin(
    rpc: &Rpc,
    caller: Caller,
    call: Option<Arc<Call>>,
    mut incoming: Incoming,
) -> Result<Outgoing, Failure> {
    let permit = rpc.door.begin(Method::Session)?;
    let (words, outgoing) = outgoing::pair(rpc.clone(), None);
    let rpc = rpc.clone();
    tokio::spawn(async move {
        let _permit = permit;
        if let Err(failure) = run(&rpc, &caller, call.as_deref(), &mut incoming, &words).await {
            words.end(failure).await;
        }
    });
    Ok(outgoing)
}

async fn run(
    rpc: &Rpc,
    caller: &Caller,
    call: Option<&Call>,
    incoming: &mut Incoming,
    words: &Words,
) -> Result<(), Failure> {
    rpc.door.admit(caller, Method::Session, ())?;
    let Some(first) = incoming.first().await? else { return Ok(()) };
    // Until here its connection counted as idle.
    call.into_iter().for_each(Call::is_whole);
    let opening = Opening::decode(&first)?;
    let method = if opening.resumed { Method::ResumeSession } else { Method::OpenSession };
    match rpc.place(caller, Method::Session).await? {
        Place::Here => {
            let opening = rpc.door.admit(caller, method, opening)?;
            serving::serve(rpc, caller, opening, first, incoming, words).await
        }
        Place::At(leader) => {
            let there = || rpc.forwarding.address(leader);
            let _permit =
                rpc.door.begin_relay().map_err(|failure| Failure { leader: there(), ..failure })?;
            rpc.door.admit(caller, method, ())?;
            let relay = Relay { rpc, caller, leader, session: opening.session };
            relay.serve(first, incoming, words).await
        }
    }
}
