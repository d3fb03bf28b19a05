//! The session stream: many operations and answers on one connection, all of one session.
//!
//! The stream has two halves that know little of each other. Incoming frames are read by a task of
//! the stream (`serving` at the leader, `proxy` elsewhere), which is also where its end is noticed. A plain connection that is
//! busy is lent to the driver, which reads what is common by itself (`ear`).
//! Outgoing frames ([`Outgoing`]) are pulled by the transport straight from the driver's deliveries; on a plain
//! connection the driver writes most of them by itself (`speaker`).
//!
//! How a stream ends decides how long its session lives: see `body_end`.

mod body_end;
mod ear;
mod frame;
mod incoming;
mod looks;
mod outgoing;
mod pen;
mod plain;
mod proxy;
mod reading;
mod serving;
mod speaker;
mod unread;
mod view;
mod watched;

use std::sync::Arc;

use holdfast_proto::v1::{ClientFrame, Failure};
use tonic::{Request, Response, Status, Streaming};

use self::incoming::Incoming;
use self::outgoing::Words;
use super::Rpc;
use super::authorise::authorise;
use super::origin::Origin;
use super::places::Kind;
use super::route::Route;
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
    let place = rpc.admit(Kind::Session)?;
    let origin = Origin::of(request.metadata())?;
    let call = request.extensions().get::<Arc<Call>>().cloned();
    let mut incoming = Incoming::new(request);
    let (words, outgoing) = outgoing::pair(rpc.clone(), None);
    let rpc = rpc.clone();
    tokio::spawn(async move {
        let _place = place;
        if let Err(failure) = run(&rpc, &origin, call.as_deref(), &mut incoming, &words).await {
            words.end(failure).await;
        }
    });
    Ok(Response::new(outgoing))
}

async fn run(
    rpc: &Rpc,
    origin: &Origin,
    call: Option<&Call>,
    incoming: &mut Incoming,
    words: &Words,
) -> Result<(), Failure> {
    let Some(first) = incoming.first().await? else { return Ok(()) };
    // Until here its connection counted as idle.
    call.into_iter().for_each(Call::is_whole);
    let opening = Opening::decode(&first)?;
    authorise(&origin.principal, &opening.command)?;
    match rpc.route(origin).await? {
        Route::Here => serving::serve(rpc, origin, opening, first, incoming, words).await,
        Route::There(leader) => {
            let _place = rpc.admit(Kind::PassedOn).map_err(|failure| leader.instead(failure))?;
            proxy::serve(rpc, origin, leader, first, incoming, words).await
        }
    }
}
