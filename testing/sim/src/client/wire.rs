//! Between a client's frames and what the simulated nodes take and give: the front end of a node, with the product's own
//! conversions.

use holdfast_core::command::{OpenSession, Policy};
use holdfast_core::{
    Command, Identity, LogicalTime, Outcome, PublicSessionId, RequestId, SessionId,
};
use holdfast_proto::decode::Scope;
use holdfast_proto::decode::operation::{self, Opening, StreamOperation};
use holdfast_proto::encode::{self, OpenContext};
use holdfast_proto::plain::BorrowedOperation;
use holdfast_proto::v1::answer::Result as AnswerResult;
use holdfast_proto::v1::notice::Kind;
use holdfast_proto::v1::{self, Answer, ClientFrame, Failure, Reason, ServerFrame};
use holdfast_proto::{Guarantee, v1::HoldEnded};

use holdfast_replica::NodeId;

use crate::history::{Input, Take};
use crate::message::{AnswerBody, Body, Notice, Refusal};

/// The first operation of a stream: its stream, its request, and what the lock table hears.
pub(super) fn opening(
    frame: &ClientFrame,
    session: SessionId,
    is_unary: bool,
    as_whom: Option<Identity>,
) -> Option<Opening> {
    let mut opening = Opening::decode(frame).ok()?;
    if let Command::OpenSession(OpenSession { identity, .. })
    | Command::AttachStream { identity, .. } = &mut opening.command
    {
        *identity = as_whom.map(Box::new);
    }
    if let Command::OpenSession(open) = &mut opening.command {
        // The simulation knows sessions by their public ids: see `session_of`.
        open.public = PublicSessionId(session.0 as u64);
        open.stream = open.stream.filter(|_| !is_unary);
    }
    Some(opening)
}

/// The later operations of a stream.
pub(super) fn operations(frame: ClientFrame, session: SessionId) -> Vec<(RequestId, Body)> {
    let scope = Scope::Stream { session, acked_through: RequestId(frame.acked_through) };
    let decoded = frame.operations.into_iter().map(|operation| {
        let (request, decoded) = operation::decode(BorrowedOperation::Message(operation), scope);
        match decoded {
            Ok(StreamOperation::Change(_, command)) => Some((request, Body::Command(command))),
            Ok(StreamOperation::Status(name)) => Some((request, Body::Status(name))),
            Err(_) => None,
        }
    });
    decoded.flatten().collect()
}

/// How the history tells what was asked. An attached stream keeps a session alive and does nothing else that a client can
/// see, so the history calls it a touch.
pub(super) fn input(body: &Body) -> Input {
    let command = match body {
        Body::Status(name) => return Input::Status { name: name.clone() },
        Body::Command(command) => command.clone(),
    };
    match command {
        Command::OpenSession(open) => Input::OpenSession { ttl_ms: open.ttl.as_ms() },
        Command::CloseSession { .. } => Input::CloseSession,
        Command::Acquire(it) => {
            let members = vec![holdfast_core::command::Member { name: it.name, mode: it.mode }];
            Input::Take(Box::new(Take { actor: it.actor, all: false, members, terms: it.terms }))
        }
        Command::AcquireAll(it) => {
            let members = it.members.into_vec();
            Input::Take(Box::new(Take { actor: it.actor, all: true, members, terms: it.terms }))
        }
        Command::Cancel { target, .. } => Input::Cancel { target },
        Command::Release { hold, .. } => Input::Release { name: hold.name, token: hold.token },
        Command::Renew { hold, ttl, .. } => {
            let ttl_ms = ttl.map(holdfast_core::Span::as_ms);
            Input::Renew { name: hold.name, token: hold.token, ttl_ms }
        }
        Command::Convert { hold, to, wait, policy, .. } => {
            let wait_ms = wait.as_ms();
            Input::Convert { name: hold.name, token: hold.token, to, wait_ms, policy }
        }
        Command::Proclaim { hold, .. } => Input::Proclaim { name: hold.name, token: hold.token },
        Command::Transfer { hold, to, .. } => {
            Input::Transfer { name: hold.name, token: hold.token, to }
        }
        Command::Intervene(intervention) => Input::Intervene(intervention.action),
        _ => Input::Touch,
    }
}

/// The history calls an attached stream a touch, and its answer too.
pub(super) fn recorded(is_touch: bool, outcome: &Outcome) -> Outcome {
    match outcome {
        Outcome::SessionOpen { ttl, departures, .. } if is_touch => {
            Outcome::Touched { ttl: *ttl, departures: *departures }
        }
        outcome => outcome.clone(),
    }
}

/// What a node answers, as its frame.
pub(super) fn answer_frame(
    request: RequestId,
    told: &AnswerBody,
    endpoints: &[usize],
    is_touch: bool,
) -> ServerFrame {
    let mut notices = Vec::new();
    let result = match told {
        AnswerBody::Queued => {
            let queued = v1::Queued { request_id: request.0, position: 1 };
            return notice_frame(Kind::Queued(queued));
        }
        AnswerBody::Status { .. } => Some(AnswerResult::Status(Box::default())),
        AnswerBody::Refused(refusal) => Some(AnswerResult::Failure(refused(*refusal))),
        AnswerBody::Outcome { at, outcome, losses } => {
            notices.extend(losses.iter().map(|(token, acquire)| {
                let acquire_request_id = acquire.map_or(0, |acquire| acquire.0);
                let ended = HoldEnded { token: token.0, acquire_request_id, ..Default::default() };
                v1::Notice { kind: Some(Kind::HoldEnded(ended)) }
            }));
            outcome_result(*at, outcome, endpoints, is_touch)
        }
    };
    let answer = Answer { request_id: request.0, result };
    ServerFrame { answers: vec![answer], notices }
}

fn outcome_result(
    at: LogicalTime,
    outcome: &Outcome,
    endpoints: &[usize],
    resumed: bool,
) -> Option<AnswerResult> {
    if let Outcome::SessionOpen { ttl, linger, public, .. } = outcome {
        let endpoints = endpoints.iter().map(|node| address(*node)).collect();
        let context = OpenContext { endpoints, leader: String::new(), term: 1, map: None, resumed };
        return Some(encode::session_open(at, *public, *ttl, *linger, context));
    }
    encode::outcome(at, outcome, Guarantee::Linearizable)
}

fn refused(refusal: Refusal) -> Failure {
    let (reason, leader) = match refusal {
        Refusal::Elsewhere { leader } => (Reason::NotLeader, leader),
        Refusal::OutOfSpace => (Reason::OutOfSpace, None),
        Refusal::Overloaded => (Reason::Overloaded, None),
    };
    let leader = leader_address(leader);
    Failure { reason: reason.into(), leader, retryable: true, ..Failure::default() }
}

pub(super) fn notice(notice: &Notice) -> ServerFrame {
    notice_frame(match notice {
        Notice::HoldEnded { name, acquire } => Kind::HoldEnded(HoldEnded {
            name: name.as_str().to_owned(),
            acquire_request_id: acquire.0,
            reason: v1::EndReason::Unspecified.into(),
            token: 0,
        }),
        Notice::SessionEnded => Kind::SessionEnded(v1::SessionEnded::default()),
        Notice::LeaderMoved { leader } => {
            Kind::LeaderMoved(v1::LeaderMoved { leader: leader_address(*leader) })
        }
    })
}

fn notice_frame(kind: Kind) -> ServerFrame {
    ServerFrame { answers: Vec::new(), notices: vec![v1::Notice { kind: Some(kind) }] }
}

/// Under which a client finds some node of the cluster, whichever they are.
pub(super) const CLUSTER: &str = "cluster:1";

pub(super) fn address(node: usize) -> String {
    format!("node-{node}:1")
}

fn leader_address(leader: Option<NodeId>) -> String {
    leader.map(|leader| address(leader.0 as usize - 1)).unwrap_or_default()
}

/// None for [`CLUSTER`].
pub(super) fn node_at(address: &str) -> Option<usize> {
    address.strip_prefix("node-")?.strip_suffix(":1")?.parse().ok()
}

/// An acquire as a program asks for it.
pub(super) fn acquire(take: Take) -> holdfast_client_core::session::Request {
    let Take { actor, all, members, terms } = take;
    let ms = |span: Option<holdfast_core::Span>| span.map(holdfast_core::Span::as_ms);
    let (wait_ms, ttl_ms, max_hold_ms) = (terms.wait.as_ms(), ms(terms.ttl), ms(terms.max_hold));
    let (policy, lock_delay_ms) = (policy(terms.policy).into(), ms(terms.lock_delay));
    let since_ms = terms.since.map(LogicalTime::as_ms);
    let (actor, preemptible) = (actor.0, terms.preemptible);
    let member = |member: holdfast_core::command::Member| v1::Member {
        name: member.name.as_str().to_owned(),
        mode: encode::mode(member.mode).into(),
        permits: encode::permits(member.mode),
    };
    let mut members: Vec<v1::Member> = members.into_iter().map(member).collect();
    if all || members.len() != 1 {
        return holdfast_client_core::session::Request::AcquireAll(v1::AcquireAllRequest {
            members,
            wait_ms,
            ttl_ms,
            max_hold_ms,
            actor,
            policy,
            since_ms,
            preemptible,
            lock_delay_ms,
            ..Default::default()
        });
    }
    let v1::Member { name, mode, permits } = members.remove(0);
    holdfast_client_core::session::Request::Acquire(v1::AcquireRequest {
        name,
        mode,
        permits,
        wait_ms,
        ttl_ms,
        max_hold_ms,
        actor,
        policy,
        since_ms,
        preemptible,
        lock_delay_ms,
        reentrant: terms.reentrant,
        ..Default::default()
    })
}

pub(super) fn policy(policy: Policy) -> v1::Policy {
    match policy {
        Policy::Wait => v1::Policy::Wait,
        Policy::Detect => v1::Policy::Detect,
        Policy::WaitDie => v1::Policy::WaitDie,
        Policy::WoundWait => v1::Policy::WoundWait,
    }
}
