//! The path of a unary call that changes something. Each verb says how it is decoded and answered; the rest is here.

use std::time::Duration;

use holdfast_core::{Command, Outcome};
use holdfast_proto::Guarantee;
use holdfast_proto::v1::{self, Failure, answer};
use holdfast_replica::GroupId;
use holdfast_service::{About, Admitted, Caller, Method, hidden_names};
use prost::Message;
use tokio::time::timeout;

use super::Rpc;
use super::credentials::bind;
use super::failure::{bug, took_too_long};
use super::hang_up::HangUpGuard;
use super::response::{self, ResponseContext};
use super::route::Destination;
use holdfast_proto::decode;

/// How long a call may take, beyond the time for which it is willing to wait in a queue.
pub(super) const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// A request of the client API that becomes one command.
pub(super) trait Verb: Message + Clone + 'static {
    const METHOD: Method;
    type Response: Message + Default;

    fn decode(self) -> Result<Command, Failure>;

    /// In which of the two the lock is, as it is on the wire.
    fn tier(&self) -> i32 {
        v1::Tier::Correctness.into()
    }

    /// The number of the group that it names, if it is about no lock; 0: the root group.
    fn group(&self) -> u32 {
        0
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
}

pub(super) async fn serve<V: Verb>(
    rpc: &Rpc,
    caller: Caller,
    request: V,
) -> Result<V::Response, Failure> {
    let _permit = rpc.door.begin(V::METHOD)?;
    let tier = decode::tier(request.tier())?;
    let mut command = request.clone().decode()?;
    bind(rpc.door.service(), &caller, &mut command);
    let may_be_undone = command.wait().filter(|_| !request.is_resumed_later());
    let about = match tier {
        v1::Tier::Efficiency => About::InMemory(&command),
        v1::Tier::Unspecified | v1::Tier::Correctness => About::Command(&command),
    };
    let groups = &rpc.membership.groups;
    let group = match tier {
        // It follows the root group.
        v1::Tier::Efficiency => GroupId::FIRST,
        v1::Tier::Unspecified | v1::Tier::Correctness => {
            let named = groups.with_number(decode::group(request.group()))?;
            groups.of_command(&command, named)
        }
    };
    let command = rpc.door.authorise(&caller, V::METHOD, about)?.admit(command);
    let mut guard = HangUpGuard::new(rpc, may_be_undone);
    let carried_out = async {
        match rpc.destination(&caller, V::METHOD, group).await? {
            Destination::Here => {
                if let (Command::OpenSession(open), Some(audit)) = (command.get(), &rpc.audit) {
                    audit.logged_in(&caller, open.session, open.public, true);
                }
                carry_out(rpc, &caller, &request, (tier, group), command, &mut guard).await
            }
            Destination::At(leader) => {
                rpc.forwarding.call(leader, &caller, V::METHOD, &request).await
            }
        }
    };
    let answer = timeout(request.patience(), carried_out).await;
    guard.answered();
    answer.unwrap_or_else(|_| Err(took_too_long()))
}

async fn carry_out<V: Verb>(
    rpc: &Rpc,
    caller: &Caller,
    request: &V,
    (tier, group): (v1::Tier, GroupId),
    command: Admitted<Command>,
    guard: &mut HangUpGuard,
) -> Result<V::Response, Failure> {
    let call = guard.arm(tier, group);
    let (mut answer, guarantee) = match tier {
        v1::Tier::Efficiency => (rpc.door.call_in_memory(command).await?, Guarantee::BestEffort),
        v1::Tier::Unspecified | v1::Tier::Correctness => {
            let traces = rpc.traces.as_ref();
            let traced = traces.and_then(|traces| {
                Some((traces, traces.received_call(command.get(), request.traceparent())?))
            });
            let answer = rpc.door.call(group, command, call).await;
            if let (Err(failure), Some((traces, acquire))) = (&answer, traced) {
                traces.failed(acquire, &failure.message);
            }
            (answer?, Guarantee::Linearizable)
        }
    };
    if let Ok(outcome) = &mut answer.result {
        hidden_names::in_outcome(outcome, &rpc.door.service().visible_names(caller));
    }
    let term = rpc.door.leadership(group).term;
    let is_opened = matches!(answer.result, Ok(Outcome::SessionOpen { .. }));
    let map = is_opened.then(|| rpc.door.group_map()).flatten();
    let (membership, map) = (&*rpc.membership, map.as_ref());
    let context = ResponseContext { membership, map, resumed: false, term, guarantee };
    match response::result(&answer, context) {
        answer::Result::Failure(failure) => Err(failure),
        result => {
            V::response(result).ok_or_else(|| bug("the lock table answered another question"))
        }
    }
}
