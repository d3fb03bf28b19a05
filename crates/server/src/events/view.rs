//! An event as everyone outside sees it: watchers, the audit file, Kafka. Nothing here shows a session's secret id.

use holdfast_core::command::Action;
use holdfast_core::{
    AccessChange, ChangeAccess, EndReason, Event, FenceToken, LockName, LogicalTime, Names,
    Outcome, PublicSessionId, SessionId,
};
use holdfast_proto::v1::{
    CycleLink, EndReason as WireReason, EventKind, Mode as WireMode, WatchEvent,
};

use holdfast_proto::encode::{deadlock, end_reason, mode as wire_mode};

use super::Recorded;

/// An event, without a copy of what it refers to. What does not apply is zero, empty or none.
#[derive(Clone, Debug)]
pub(crate) struct EventView<'a> {
    pub(crate) kind: EventKind,
    pub(crate) names: NamesView<'a>,
    pub(crate) session: SessionView,
    pub(crate) request_id: u64,
    pub(crate) actor: u64,
    pub(crate) mode: WireMode,
    pub(crate) token: u64,
    pub(crate) reason: WireReason,
    pub(crate) metadata: &'a [u8],
    pub(crate) by: &'a str,
    pub(crate) detail: String,
    pub(crate) held_for_ms: Option<u64>,
    pub(crate) cycle: Vec<CycleLink>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum NamesView<'a> {
    None,
    One(&'a str),
    Many(&'a Names),
}

/// A session, by what is at hand. The public id of a secret one is costly to compute: see
/// [`SessionTexts`](super::SessionTexts).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionView {
    None,
    Public(PublicSessionId),
    Secret(SessionId),
}

impl EventView<'_> {
    pub(crate) fn of(recorded: &Recorded) -> EventView<'_> {
        let held_for = |granted_at: LogicalTime| Some(recorded.at.since(granted_at).as_ms());
        match &recorded.event {
            Event::SessionOpened { public, .. } => EventView {
                session: SessionView::Public(*public),
                ..of_kind(EventKind::SessionOpened)
            },
            Event::SessionEnded { public, reason, .. } => EventView {
                session: SessionView::Public(*public),
                reason: end_reason(*reason),
                ..of_kind(EventKind::SessionEnded)
            },
            Event::Granted { name, session, request, actor, mode, token, metadata } => EventView {
                request_id: request.0,
                actor: actor.0,
                mode: wire_mode(*mode),
                metadata,
                ..of_hold(EventKind::Granted, name, *session, *token)
            },
            Event::Queued { name, session, request, actor, mode } => EventView {
                names: NamesView::One(name),
                session: SessionView::Secret(*session),
                request_id: request.0,
                actor: actor.0,
                mode: wire_mode(*mode),
                ..of_kind(EventKind::Queued)
            },
            Event::Refused { names, session, request, outcome } => EventView {
                names: NamesView::Many(names),
                session: SessionView::Secret(*session),
                request_id: request.0,
                detail: outcome_words(outcome),
                cycle: cycle(outcome),
                ..of_kind(EventKind::Refused)
            },
            Event::WaitEnded { names, session, request, outcome } => EventView {
                names: NamesView::Many(names),
                session: SessionView::Secret(*session),
                request_id: request.0,
                detail: outcome_words(outcome),
                cycle: cycle(outcome),
                ..of_kind(EventKind::WaitEnded)
            },
            Event::Converted { name, session, request, mode, token, metadata } => EventView {
                request_id: request.0,
                metadata,
                mode: wire_mode(*mode),
                ..of_hold(EventKind::Converted, name, *session, *token)
            },
            Event::Proclaimed { name, session, token, metadata } => {
                EventView { metadata, ..of_hold(EventKind::Proclaimed, name, *session, *token) }
            }
            Event::Released { name, session, request, token, granted_at, by_close } => EventView {
                request_id: request.0,
                held_for_ms: held_for(*granted_at),
                reason: if *by_close { WireReason::Closed } else { WireReason::Unspecified },
                ..of_hold(EventKind::Released, name, *session, *token)
            },
            Event::HoldEnded { name, session, request, token, reason, granted_at } => EventView {
                request_id: request.0,
                held_for_ms: held_for(*granted_at),
                reason: reason_of_hold(*reason),
                ..of_hold(ended_kind(*reason), name, *session, *token)
            },
            Event::Reopened { name } => {
                EventView { names: NamesView::One(name), ..of_kind(EventKind::Reopened) }
            }
            Event::AccessChanged { change, generation } => EventView {
                by: &change.by,
                detail: access_words(change, *generation),
                ..of_kind(EventKind::AccessChanged)
            },
            // For the audit alone, which has a name for it.
            Event::SessionEnding { public, reason, .. } => EventView {
                session: SessionView::Public(*public),
                reason: end_reason(*reason),
                ..of_kind(EventKind::Unspecified)
            },
            // Neither a watch nor the audit shows these two. A history tells with the first one why sessions ended.
            Event::PolicyAdopted { generation } => EventView {
                detail: format!("the policy has generation {generation}"),
                ..of_kind(EventKind::Unspecified)
            },
            Event::OwnershipChanged { .. } | Event::HoldMovedIn { .. } => {
                of_kind(EventKind::Unspecified)
            }
            Event::Thawed { prefix } => {
                EventView { names: NamesView::One(prefix), ..of_kind(EventKind::Thawed) }
            }
            Event::Intervened(intervention) => {
                let (kind, names) = match &intervention.action {
                    Action::Freeze { prefix, .. } => (EventKind::Frozen, NamesView::One(prefix)),
                    Action::Thaw { prefix } => (EventKind::Intervened, NamesView::One(prefix)),
                    Action::Break { name, .. }
                    | Action::Transfer { name, .. }
                    | Action::SetPermits { name, .. }
                    | Action::Reopen { name } => (EventKind::Intervened, NamesView::One(name)),
                    Action::KillSession { .. } | Action::SetLimits { .. } => {
                        (EventKind::Intervened, NamesView::None)
                    }
                };
                let detail = format!("{}: {}", verb(&intervention.action), intervention.reason);
                EventView { names, by: &intervention.by, detail, ..of_kind(kind) }
            }
        }
    }
}

impl<'a> NamesView<'a> {
    pub(crate) fn iter(self) -> impl Iterator<Item = &'a str> {
        let (one, many) = match self {
            NamesView::None => (None, None),
            NamesView::One(name) => (Some(name), None),
            NamesView::Many(names) => (None, Some(names)),
        };
        one.into_iter().chain(many.into_iter().flat_map(Names::iter).map(LockName::as_str))
    }
}

impl SessionView {
    pub(crate) fn public(self) -> Option<PublicSessionId> {
        match self {
            SessionView::None => None,
            SessionView::Public(public) => Some(public),
            SessionView::Secret(session) => {
                let secret = holdfast_proto::SessionId::from_bytes(session.0.to_be_bytes());
                secret.map(|secret| PublicSessionId(secret.public_number()))
            }
        }
    }
}

/// The message. A watch with many events has [`EventEncoder`](crate::rpc::EventEncoder) instead.
pub(crate) fn message(recorded: &Recorded) -> WatchEvent {
    let view = EventView::of(recorded);
    WatchEvent {
        position: Some(recorded.position.into()),
        logical_time_ms: recorded.at.as_ms(),
        unix_ms: recorded.unix_ms,
        kind: view.kind.into(),
        names: view.names.iter().map(str::to_owned).collect(),
        public_session_id: view.session.public().map_or_else(String::new, |id| id.to_string()),
        request_id: view.request_id,
        actor: view.actor,
        mode: view.mode.into(),
        token: view.token,
        reason: view.reason.into(),
        metadata: view.metadata.to_vec(),
        by: view.by.to_owned(),
        detail: view.detail,
        held_for_ms: view.held_for_ms,
        cycle: view.cycle,
    }
}

/// That of its [`message`].
pub(crate) fn kind(event: &Event) -> i32 {
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
        Event::AccessChanged { .. } => EventKind::AccessChanged,
        Event::SessionEnding { .. }
        | Event::PolicyAdopted { .. }
        | Event::OwnershipChanged { .. }
        | Event::HoldMovedIn { .. } => EventKind::Unspecified,
        Event::Intervened(intervention) => match &intervention.action {
            Action::Freeze { .. } => EventKind::Frozen,
            _ => EventKind::Intervened,
        },
    };
    kind.into()
}

fn of_kind<'a>(kind: EventKind) -> EventView<'a> {
    EventView {
        kind,
        names: NamesView::None,
        session: SessionView::None,
        request_id: 0,
        actor: 0,
        mode: WireMode::Unspecified,
        token: 0,
        reason: WireReason::Unspecified,
        metadata: &[],
        by: "",
        detail: String::new(),
        held_for_ms: None,
        cycle: Vec::new(),
    }
}

fn of_hold(
    kind: EventKind,
    name: &LockName,
    session: SessionId,
    token: FenceToken,
) -> EventView<'_> {
    EventView {
        names: NamesView::One(name),
        session: SessionView::Secret(session),
        token: token.0,
        ..of_kind(kind)
    }
}

/// As the metrics have it.
fn reason_of_hold(reason: EndReason) -> WireReason {
    match reason {
        EndReason::SessionExpired => WireReason::SessionExpired,
        reason => end_reason(reason),
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
        // No kind of its own yet: no server proposes a move of slots.
        EndReason::Moved => EventKind::Unspecified,
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
        Action::Reopen { .. } => "reopen".to_owned(),
        Action::SetLimits { bytes, locks } => {
            let bytes = bytes.map(|bytes| format!("{bytes} bytes"));
            let locks = locks.map(|locks| format!("{locks} locks"));
            let limits: Vec<String> = bytes.into_iter().chain(locks).collect();
            format!("limit the lock table to {}", limits.join(" and "))
        }
    }
}

/// What was changed, without digests of tokens.
fn access_words(change: &ChangeAccess, generation: u64) -> String {
    let words = change.changes.iter().map(|change| match change {
        AccessChange::PutRole { role, rules } => {
            format!("role {role} has {} rules", rules.len())
        }
        AccessChange::DeleteRole { role } => format!("role {role} is deleted"),
        AccessChange::Grant { principal, role } => format!("{principal} has role {role}"),
        AccessChange::Revoke { principal, role } => format!("{principal} loses role {role}"),
        AccessChange::Ban { principal } => format!("{principal} loses everything"),
        AccessChange::PutToken(token) => {
            format!("token {:016x} of {} is created", token.id.0, token.principal)
        }
        AccessChange::RevokeToken { id } => format!("token {:016x} is revoked", id.0),
        AccessChange::Replace(roles) => format!(
            "{} roles and {} principals replace all others",
            roles.roles.len(),
            roles.bindings.len()
        ),
        AccessChange::SetQuotas(quotas) => {
            let words = quotas.iter().map(|(subject, quota)| match quota.is_empty() {
                true => format!("{subject} has no quota"),
                false => format!("{subject} has the quota {quota}"),
            });
            words.collect::<Vec<_>>().join(", ")
        }
    });
    let words: Vec<String> = words.collect();
    let sessions = if change.end_sessions { ", and sessions end" } else { "" };
    format!("generation {generation}: {}{sessions}", words.join(", "))
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

fn cycle(outcome: &Outcome) -> Vec<CycleLink> {
    match outcome {
        Outcome::Deadlock(cycle) => deadlock(cycle).cycle,
        _ => Vec::new(),
    }
}
