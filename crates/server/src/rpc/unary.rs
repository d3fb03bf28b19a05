//! The path of a unary call that changes something. Each verb says how it is decoded, answered and
//! forwarded; the rest is here.

use std::time::Duration;

use holdfast_core::Command;
use holdfast_proto::Guarantee;
use holdfast_proto::v1::{self, Failure, answer};
use tokio::time::timeout;
use tonic::{Request, Response, Status};

use super::Rpc;
use super::authorise::authorise;
use super::failure::{bug, took_too_long};
use super::forward::Leader;
use super::hang_up::HangUpGuard;
use super::origin::Origin;
use super::places::Kind;
use super::response::{self, ResponseContext};
use super::route::Route;
use holdfast_proto::decode;

/// How long a call may take, beyond the time for which it is willing to wait in a queue.
pub(super) const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// A request of the client API that becomes one command.
pub(super) trait Verb: Clone + Send + Sync + 'static {
    type Response: Send;

    fn decode(self) -> Result<Command, Failure>;

    /// In which of the two the lock is, as it is on the wire.
    fn tier(&self) -> i32 {
        v1::Tier::Correctness.into()
    }

    /// Of which span it is part; empty: none.
    fn traceparent(&self) -> &str {
        ""
    }

    /// The caller may hang up and come back with the same request id.
    fn is_resumed_later(&self) -> bool {
        false
    }

    /// Past it the caller is told that the outcome is not known.
    fn patience(&self) -> Duration {
        CALL_TIMEOUT
    }

    /// None if the answer is not one to this verb.
    fn response(result: answer::Result) -> Option<Self::Response>;

    fn forward(
        request: Request<Self>,
        leader: Leader,
    ) -> impl Future<Output = Result<Response<Self::Response>, Status>> + Send;
}

pub(super) async fn serve<V: Verb>(
    rpc: &Rpc,
    request: Request<V>,
) -> Result<Response<V::Response>, Status> {
    let _place = rpc.admit(Kind::Call)?;
    let origin = Origin::of(request.metadata())?;
    let request = request.into_inner();
    let tier = decode::tier(request.tier())?;
    let command = request.clone().decode()?;
    authorise(&origin.principal, &command)?;
    let may_be_undone = command.wait().filter(|_| !request.is_resumed_later());
    let mut guard = HangUpGuard::new(rpc, may_be_undone);
    let carried_out =
        timeout(request.patience(), carry_out(rpc, &origin, request, tier, command, &mut guard))
            .await;
    guard.answered();
    let response = carried_out.unwrap_or_else(|_| Err(took_too_long()))?;
    Ok(Response::new(response))
}

async fn carry_out<V: Verb>(
    rpc: &Rpc,
    origin: &Origin,
    request: V,
    tier: v1::Tier,
    command: Command,
    guard: &mut HangUpGuard,
) -> Result<V::Response, Failure> {
    match rpc.route(origin).await? {
        Route::Here => {
            let call = guard.arm(tier);
            let (answer, guarantee) = match tier {
                v1::Tier::Efficiency => (rpc.call_in_memory(command).await?, Guarantee::BestEffort),
                v1::Tier::Unspecified | v1::Tier::Correctness => {
                    let answer = match &rpc.traces {
                        None => rpc.abandonable_call(command, call).await,
                        Some(traces) => {
                            let traced = traces.received_call(&command, request.traceparent());
                            let answer = rpc.abandonable_call(command, call).await;
                            if let (Err(failure), Some(acquire)) = (&answer, traced) {
                                traces.failed(acquire, &failure.message);
                            }
                            answer
                        }
                    };
                    (answer?, Guarantee::Linearizable)
                }
            };
            let term = rpc.driver.leadership().term;
            let around =
                ResponseContext { membership: &rpc.membership, resumed: false, term, guarantee };
            match response::result(&answer, around) {
                answer::Result::Failure(failure) => Err(failure),
                result => V::response(result)
                    .ok_or_else(|| bug("the lock table answered another question")),
            }
        }
        Route::There(leader) => {
            let request = origin.forwarded(rpc.membership.me, request);
            match V::forward(request, leader.clone()).await {
                Ok(response) => Ok(response.into_inner()),
                Err(status) => Err(leader.failure(&status)),
            }
        }
    }
}
