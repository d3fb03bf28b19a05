//! An event as watchers see it. Nothing here shows a session's secret id.

use holdfast_core::command::Action;
use holdfast_core::{EndReason, Event, FenceToken, LockName, Outcome, SessionId};
use holdfast_proto::v1::{self, EventKind, WatchEvent};

use super::super::encode::{deadlock, end_reason, mode as wire_mode};
use super::Scope;
use super::follow::wire;
use crate::events::Recorded;

/// Is it about one of the names? Sessions are for those who watch everything.
pub(super) fn concerns(event: &Event, watched: &Scope) -> bool {
    let under = |name: &str| watched.covers(name);
    let overlaps = |other: &str| watched.overlaps(other);
    match event {
        Event::SessionOpened { .. } | Event::SessionEnded { .. } => watched.is_everything(),
        Event::Granted { name, .. }
        | Event::Queued { name, .. }
        | Event::Converted { name, .. }
        | Event::Proclaimed { name, .. }
        | Event::Released { name, .. }
        | Event::HoldEnded { name, .. }
        | Event::Reopened { name } => under(name),
        // The grant is told by itself.
        Event::WaitEnded { outcome: Outcome::Granted(_) | Outcome::GrantedAll(_), .. } => false,
        Event::Refused { names, .. } | Event::WaitEnded { names, .. } => {
            names.iter().any(|name| under(name))
        }
        Event::Thawed { prefix: thawed } => overlaps(thawed),
        Event::Intervened(intervention) => match &intervention.action {
            Action::Break { name, .. }
            | Action::Transfer { name, .. }
            | Action::SetPermits { name, .. } => under(name),
            Action::Freeze { prefix: other, .. } | Action::Thaw { prefix: other } => {
                overlaps(other)
            }
            Action::KillSession { .. } => watched.is_everything(),
        },
    }
}

pub(crate) fn event(recorded: &Recorded) -> WatchEvent {
    let told = match &recorded.event {
        Event::SessionOpened { public, .. } => WatchEvent {
            public_session_id: public.to_string(),
            ..of_kind(EventKind::SessionOpened)
        },
        Event::SessionEnded { public, reason, .. } => WatchEvent {
            public_session_id: public.to_string(),
            reason: end_reason(*reason).into(),
            ..of_kind(EventKind::SessionEnded)
        },
        Event::Granted { name, session, request, actor, mode, token, metadata } => WatchEvent {
            request_id: request.0,
            actor: actor.0,
            mode: wire_mode(*mode).into(),
            metadata: metadata.to_vec(),
            ..of_hold(EventKind::Granted, name, *session, *token)
        },
        Event::Queued { name, session, request, actor, mode } => WatchEvent {
            names: vec![name.as_str().to_owned()],
            public_session_id: public_id(*session),
            request_id: request.0,
            actor: actor.0,
            mode: wire_mode(*mode).into(),
            ..of_kind(EventKind::Queued)
        },
        Event::Refused { names, session, request, outcome } => WatchEvent {
            names: names.iter().map(|name| name.as_str().to_owned()).collect(),
            public_session_id: public_id(*session),
            request_id: request.0,
            detail: outcome_words(outcome),
            cycle: cycle(outcome),
            ..of_kind(EventKind::Refused)
        },
        Event::WaitEnded { names, session, request, outcome } => WatchEvent {
            names: names.iter().map(|name| name.as_str().to_owned()).collect(),
            public_session_id: public_id(*session),
            request_id: request.0,
            detail: outcome_words(outcome),
            cycle: cycle(outcome),
            ..of_kind(EventKind::WaitEnded)
        },
        Event::Converted { name, session, request, mode, token, metadata } => WatchEvent {
            request_id: request.0,
            metadata: metadata.to_vec(),
            mode: wire_mode(*mode).into(),
            ..of_hold(EventKind::Converted, name, *session, *token)
        },
        Event::Proclaimed { name, session, token, metadata } => WatchEvent {
            metadata: metadata.to_vec(),
            ..of_hold(EventKind::Proclaimed, name, *session, *token)
        },
        Event::Released { name, session, request, token, granted_at } => WatchEvent {
            request_id: request.0,
            held_for_ms: Some(recorded.at.since(*granted_at).as_ms()),
            ..of_hold(EventKind::Released, name, *session, *token)
        },
        Event::HoldEnded { name, session, request, token, reason, granted_at } => WatchEvent {
            request_id: request.0,
            held_for_ms: Some(recorded.at.since(*granted_at).as_ms()),
            reason: end_reason(*reason).into(),
            ..of_hold(ended_kind(*reason), name, *session, *token)
        },
        Event::Reopened { name } => {
            WatchEvent { names: vec![name.as_str().to_owned()], ..of_kind(EventKind::Reopened) }
        }
        Event::Thawed { prefix } => {
            WatchEvent { names: vec![prefix.clone()], ..of_kind(EventKind::Thawed) }
        }
        Event::Intervened(intervention) => {
            let (kind, names) = match &intervention.action {
                Action::Freeze { prefix, .. } => (EventKind::Frozen, vec![prefix.to_string()]),
                Action::Thaw { prefix } => (EventKind::Intervened, vec![prefix.to_string()]),
                Action::Break { name, .. }
                | Action::Transfer { name, .. }
                | Action::SetPermits { name, .. } => {
                    (EventKind::Intervened, vec![name.as_str().to_owned()])
                }
                Action::KillSession { .. } => (EventKind::Intervened, Vec::new()),
            };
            WatchEvent {
                names,
                by: intervention.by.to_string(),
                detail: format!("{}: {}", verb(&intervention.action), intervention.reason),
                ..of_kind(kind)
            }
        }
    };
    WatchEvent {
        position: Some(wire(recorded.position)),
        logical_time_ms: recorded.at.as_ms(),
        unix_ms: recorded.unix_ms,
        ..told
    }
}

/// As [`event`] tells it.
pub(super) fn kind(event: &Event) -> i32 {
    let kind = match event {
        Event::SessionOpened { .. } => EventKind::SessionOpened,
        Event::SessionEnded { .. } => EventKind::SessionEnded,
        Event::Granted { .. } => EventKind::Granted,
        Event::Queued { .. } => EventKind::Queued,
        Event::Refused { .. } => EventKind::Refused,
        Event::WaitEnded { .. } => EventKind::WaitEnded,
        Event::Converted { .. } => EventKind::Converted,
        Event::Proclaimed { .. } => EventKind::Proclaimed,
        Event::Released { .. } => EventKind::Released,
        Event::HoldEnded { reason, .. } => ended_kind(*reason),
        Event::Reopened { .. } => EventKind::Reopened,
        Event::Thawed { .. } => EventKind::Thawed,
        Event::Intervened(intervention) => match &intervention.action {
            Action::Freeze { .. } => EventKind::Frozen,
            _ => EventKind::Intervened,
        },
    };
    kind.into()
}

fn of_kind(kind: EventKind) -> WatchEvent {
    WatchEvent { kind: kind.into(), ..Default::default() }
}

fn of_hold(kind: EventKind, name: &LockName, session: SessionId, token: FenceToken) -> WatchEvent {
    WatchEvent {
        names: vec![name.as_str().to_owned()],
        public_session_id: public_id(session),
        token: token.0,
        ..of_kind(kind)
    }
}

fn ended_kind(reason: EndReason) -> EventKind {
    match reason {
        EndReason::Ttl
        | EndReason::MaxHold
        | EndReason::SessionExpired
        | EndReason::Disconnected => EventKind::Expired,
        EndReason::Closed => EventKind::Released,
        EndReason::Wounded => EventKind::Wounded,
        EndReason::Broken => EventKind::Broken,
        EndReason::Killed => EventKind::Killed,
        EndReason::Transferred => EventKind::Transferred,
    }
}

fn verb(action: &Action) -> String {
    match action {
        Action::Break { .. } => "break".to_owned(),
        Action::Transfer { to, .. } => format!("transfer to session {to}"),
        Action::Freeze { ttl, .. } => format!("freeze for {ttl}"),
        Action::Thaw { .. } => "thaw".to_owned(),
        Action::SetPermits { limit: Some(limit), .. } => format!("set permits to {limit}"),
        Action::SetPermits { limit: None, .. } => "forget the permits".to_owned(),
        Action::KillSession { session } => format!("kill session {session}"),
    }
}

fn outcome_words(outcome: &Outcome) -> String {
    match outcome {
        Outcome::TimedOut => "timed out".to_owned(),
        Outcome::Cancelled => "cancelled".to_owned(),
        Outcome::Deadlock(cycle) => {
            let links = cycle
                .iter()
                .map(|link| format!("session {} waits for {}", link.session, link.waits_for));
            format!("deadlock: {}", links.collect::<Vec<_>>().join(", "))
        }
        Outcome::Died { .. } => "an older actor is in the way".to_owned(),
        Outcome::Rejected(rejection) => rejection.to_string(),
        // Nothing else ends a wait or is a refusal.
        other => format!("{other:?}"),
    }
}

fn cycle(outcome: &Outcome) -> Vec<v1::CycleLink> {
    match outcome {
        Outcome::Deadlock(cycle) => deadlock(cycle).cycle,
        _ => Vec::new(),
    }
}

fn public_id(session: SessionId) -> String {
    let secret = holdfast_proto::SessionId::from_bytes(session.0.to_be_bytes());
    secret.map(|secret| secret.public_id().to_string()).unwrap_or_default()
}
