//! `Watch`: what happens under a prefix, as it happens. The leader serves it; any other node passes it on.
//!
//! A watch never skips: it ends with words when it cannot go on, because the leader moved (resume at the
//! next one), the events were not read fast enough, or they are no longer kept.

mod follow;
mod snapshot;
mod tell;

use std::pin::Pin;

use holdfast_proto::v1::watch_service_server::WatchService;
use holdfast_proto::v1::{Failure, Reason, WatchFrame, WatchRequest};
use tokio_stream::Stream;
use tonic::{Request, Response, Status};

use super::Rpc;
use super::failure::refused;
use super::origin::Origin;
use super::route::Route;
use crate::driver::FIRST_GROUP;
use crate::events::Position;

/// What is asked for.
#[derive(Clone, Debug)]
struct Ask {
    prefix: String,
    start: Start,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    Snapshot,
    Now,
    After(Position),
}

impl Ask {
    fn decode(request: &WatchRequest) -> Result<Ask, Failure> {
        const PREFIX_BYTES_MAX: usize = holdfast_core::NAME_BYTES_MAX;
        let prefix = request.prefix.clone();
        if prefix.len() > PREFIX_BYTES_MAX || prefix.chars().any(char::is_control) {
            let words = "a prefix has at most 512 bytes and no control characters";
            return Err(refused(Reason::InvalidPrefix, words));
        }
        let start = match &request.after {
            None if request.without_snapshot => Start::Now,
            None => Start::Snapshot,
            Some(after) if after.group == FIRST_GROUP.0 => {
                Start::After(Position { index: after.index, number: after.number })
            }
            Some(after) => {
                let words = format!("there is no group {}; watch anew", after.group);
                return Err(refused(Reason::Compacted, words));
            }
        };
        Ok(Ask { prefix, start })
    }
}

#[tonic::async_trait]
impl WatchService for Rpc {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<WatchFrame, Status>> + Send>>;

    async fn watch(
        &self,
        request: Request<WatchRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let place = self.admit()?;
        let origin = Origin::of(request.metadata())?;
        let request = request.into_inner();
        let ask = Ask::decode(&request)?;
        match self.route(&origin).await? {
            Route::Here => Ok(Response::new(Box::pin(follow::start(self.clone(), ask, place)))),
            Route::There(mut leader) => {
                let request = origin.forwarded(self.membership.me, request);
                match leader.watch.watch(request).await {
                    Ok(frames) => Ok(Response::new(Box::pin(frames.into_inner()))),
                    Err(status) => Err(leader.failure(&status).into()),
                }
            }
        }
    }
}
