//! The path of a unary call that changes something. Each verb says how it is decoded and answered; the rest is here.

use std::time::Duration;

use holdfast_core::{Command, Outcome};
use holdfast_proto::Guarantee;
use holdfast_proto::v1::{self, Failure, Reason, answer};
use holdfast_replica::GroupId;
use holdfast_service::{About, Admitted, Caller, Method, hidden_names};
use prost::Message;
use tokio::time::timeout;

use super::Rpc;
use super::credentials::bind;
use super::every_group::{self, Parts, Scope};
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
    type Response: Message + Default + Clone + 'static;

    fn decode(self) -> Result<Command, Failure>;

    /// The tier of the lock, as its number on the wire.
    fn tier(&self) -> i32 {
        v1::Tier::Correctness.into()
    }

    /// If the request is about a session and not about a lock: the number of the group that it names, or 0 for all
    /// groups.
    fn session_group(&self) -> Option<u32> {
        None
    }

    /// The answer of all groups, from those of the groups that did something; at least one.
    fn merge_groups(parts: Vec<Self::Response>) -> Option<Self::Response> {
        parts.into_iter().next()
    }

    /// A group that fails with this reason has nothing that the request concerns; the answers of the other groups
    /// decide.
    const NOTHING_TO_DO: Option<Reason> = None;

    /// Whether this answer of one group is the answer of all, whatever became of the others.
    fn settles(_part: &Self::Response) -> bool {
        false
    }

    /// The `traceparent` of the span that the request is part of; empty if none.
    fn traceparent(&self) -> &str {
        ""
    }

    /// The caller may hang up and come back with the same request id.
    fn is_resumed_later(&self) -> bool {
        false
    }

    /// How long the call may take. After that the caller is told that the outcome is unknown.
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
    serve_part(rpc, caller, request, None).await
}

/// `part`: the group that the forwarding node named, if the request was forwarded for one group.
pub(super) async fn serve_part<V: Verb>(
    rpc: &Rpc,
    caller: Caller,
    request: V,
    part: Option<GroupId>,
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
    let scope = match (tier, request.session_group()) {
        // It follows the root group.
        (v1::Tier::Efficiency, _) => Scope::One(GroupId::FIRST),
        (_, Some(0)) => Scope::every(rpc, part),
        (_, Some(named)) => Scope::One(groups.with_number(named)?),
        (_, None) => Scope::One(groups.of_command(&command, GroupId::FIRST)),
    };
    let command = rpc.door.authorise(&caller, V::METHOD, about)?.admit(command);
    let mut guard = HangUpGuard::new(rpc, may_be_undone);
    let carried_out = async {
        match scope {
            Scope::One(group) => {
                in_group(rpc, &caller, &request, (tier, group), command, &mut guard).await
            }
            Scope::Every => {
                let parts = every_group::carry_out(rpc, |rpc, group| {
                    let (caller, request) = (caller.clone(), request.clone());
                    let command = command.clone();
                    async move {
                        // It waits in no queue, so nothing is undone.
                        let mut guard = HangUpGuard::new(&rpc, None);
                        let place = (tier, group);
                        in_group(&rpc, &caller, &request, place, command, &mut guard).await
                    }
                });
                merged::<V>(parts.await?)
            }
        }
    };
    let answer = timeout(request.patience(), carried_out).await;
    guard.answered();
    answer.unwrap_or_else(|_| Err(took_too_long()))
}

/// The answer of all groups.
fn merged<V: Verb>(parts: Parts<V::Response>) -> Result<V::Response, Failure> {
    if let Some(part) = parts.values().flatten().find(|part| V::settles(part)) {
        return Ok(part.clone());
    }
    let is_nothing_to_do = |failure: &Failure| Some(failure.reason()) == V::NOTHING_TO_DO;
    let answers = every_group::all_changed(parts, is_nothing_to_do)?;
    V::merge_groups(answers).ok_or_else(|| bug("no group has answered"))
}

async fn in_group<V: Verb>(
    rpc: &Rpc,
    caller: &Caller,
    request: &V,
    (tier, group): (v1::Tier, GroupId),
    command: Admitted<Command>,
    guard: &mut HangUpGuard,
) -> Result<V::Response, Failure> {
    match rpc.destination(caller, V::METHOD, group).await? {
        Destination::Here => {
            if let (Command::OpenSession(open), Some(audit)) = (command.get(), &rpc.audit) {
                audit.logged_in(caller, group, open.session, open.public, true);
            }
            carry_out(rpc, caller, request, (tier, group), command, guard).await
        }
        Destination::At(leader) => {
            rpc.forwarding.call_group((leader, group), caller, V::METHOD, request).await
        }
    }
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

#[cfg(test)]
mod tests {
    use holdfast_proto::failure::{not_now, refused};
    use holdfast_proto::v1::cancel_response::Outcome::{
        self, AlreadyEnded, AlreadyGranted, Cancelled,
    };
    use holdfast_proto::v1::{self, CancelRequest, CancelResponse, Grant};

    use super::*;

    fn of_groups(parts: Vec<Result<Outcome, Failure>>) -> Result<Outcome, Failure> {
        let response = |outcome| CancelResponse { outcome: Some(outcome), ..Default::default() };
        let parts = parts.into_iter().map(|part| part.map(response));
        let merged = merged::<CancelRequest>((1..).map(GroupId).zip(parts).collect());
        merged.map(|response| response.outcome.unwrap())
    }

    fn unknown_session() -> Failure {
        refused(Reason::UnknownSession, "there is no such session")
    }

    #[test]
    fn a_grant_in_one_group_is_told_whatever_the_others_say() {
        let granted = Ok(AlreadyGranted(Grant::default()));
        let others = [
            Ok(AlreadyEnded(v1::AlreadyEnded {})),
            Ok(Cancelled(v1::Cancelled {})),
            Err(unknown_session()),
            Err(not_now(Reason::NoQuorum, "no leader")),
        ];
        for first in 0..=others.len() {
            let mut parts = others.to_vec();
            parts.push(granted.clone());
            parts.rotate_left(first);
            let merged = of_groups(parts);
            assert!(matches!(merged, Ok(AlreadyGranted(_))), "{merged:?}");
        }
    }

    #[test]
    fn groups_in_which_the_session_is_not_open_leave_a_cancel_to_the_others() {
        let cancelled = of_groups(vec![Err(unknown_session()), Ok(Cancelled(v1::Cancelled {}))]);
        assert!(matches!(cancelled, Ok(Cancelled(_))), "{cancelled:?}");
        let nowhere = of_groups(vec![Err(unknown_session()), Err(unknown_session())]);
        assert_eq!(nowhere.unwrap_err().reason(), Reason::UnknownSession);
    }
}
