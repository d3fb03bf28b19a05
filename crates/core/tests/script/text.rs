//! How outcomes and events are told in the golden scripts.

use holdfast_core::command::{Action, Intervention, Mode};
use holdfast_core::{
    Departures, Event, Grant, Intervened, LogicalTime, Names, Outcome, Publication, ReleaseAnswer,
};

use crate::world::World;

fn seconds(ms: u64) -> String {
    match (ms / 1_000, ms % 1_000) {
        (whole, 0) => format!("{whole}s"),
        (whole, rest) if rest % 100 == 0 => format!("{whole}.{}s", rest / 100),
        _ => format!("{ms}ms"),
    }
}

pub(super) fn time(time: LogicalTime) -> String {
    seconds(time.as_ms())
}

pub(super) fn ends(hold: Option<LogicalTime>, session: LogicalTime) -> String {
    let session = format!("session ends at {}", time(session));
    hold.map_or(session.clone(), |hold| format!("hold ends at {}, {session}", time(hold)))
}

fn grant_text(grant: &Grant) -> String {
    let (token, ends) = (grant.token, ends(grant.deadline, grant.session_deadline));
    format!("token {token}{}, {ends}", mode_text(grant.mode))
}

pub(super) fn outcome_text(outcome: &Outcome) -> String {
    match outcome {
        Outcome::SessionOpen { ttl, linger, departures, .. } => {
            let (ttl, linger) = (seconds(ttl.as_ms()), seconds(linger.as_ms()));
            format!("open: ttl {ttl}, linger {linger}{}", departures_text(*departures))
        }
        Outcome::Touched { departures, .. } => format!("touched{}", departures_text(*departures)),
        Outcome::SessionClosed => "closed".to_owned(),
        Outcome::Granted(grant) => format!("granted: {}", grant_text(grant)),
        Outcome::Queued { position } => format!("queued: position {position}"),
        Outcome::Busy => "busy".to_owned(),
        Outcome::TimedOut => "timed out".to_owned(),
        Outcome::Cancelled => "cancelled".to_owned(),
        Outcome::CancelDone => "done: it will not be granted".to_owned(),
        Outcome::CancelTooLate(grants) => format!("too late: holds {}", grants_text(grants)),
        Outcome::GrantedAll(grants) => format!("granted all: {}", grants_text(grants)),
        Outcome::Deadlock(cycle) => {
            let links = cycle.iter().map(|link| {
                let actor =
                    if link.actor.0 == 0 { String::new() } else { format!("/{}", link.actor.0) };
                format!("session {}{actor} waits for {}", link.session.0, link.waits_for)
            });
            format!("deadlock: {}", links.collect::<Vec<_>>().join(", "))
        }
        Outcome::Died { since } => {
            format!("died: an older one is in the way; since {}", time(*since))
        }
        Outcome::Proclaimed => "proclaimed".to_owned(),
        Outcome::Transferred { token } => format!("transferred: token {token}"),
        Outcome::Intervened(done) => match done {
            Intervened::Broken { holds } => format!("broken: {holds} holds"),
            Intervened::Transferred { token } => format!("transferred: token {token}"),
            Intervened::Frozen { until } => format!("frozen until {}", time(*until)),
            Intervened::Thawed => "thawed".to_owned(),
            Intervened::Reopened => "reopened".to_owned(),
            Intervened::PermitsSet => "permits set".to_owned(),
            Intervened::LimitsSet => "limits set".to_owned(),
            Intervened::SessionKilled => "killed".to_owned(),
        },
        Outcome::CancelNothing => "too late: it had ended without a hold".to_owned(),
        Outcome::Release(ReleaseAnswer::Released) => "released".to_owned(),
        Outcome::Release(ReleaseAnswer::StillHeld { remaining }) => {
            format!("still held: {remaining} times")
        }
        Outcome::Release(ReleaseAnswer::NotOwner) => "not owner".to_owned(),
        Outcome::Release(ReleaseAnswer::AlreadyReleased) => "already released".to_owned(),
        Outcome::Release(ReleaseAnswer::Expired) => "expired".to_owned(),
        Outcome::Renewed { deadline, session_deadline } => {
            format!("renewed: {}", ends(*deadline, *session_deadline))
        }
        Outcome::Published(Publication { events, through, index, term }) => {
            format!("published: {through} of {events}, up to entry {} and term {term}", index.0)
        }
        Outcome::AccessChanged { generation } => format!("policy {generation}"),
        Outcome::Done => "done".to_owned(),
        Outcome::Rejected(rejection) => format!("rejected: {rejection:?}"),
    }
}

/// Nothing if nothing has left.
fn departures_text(departures: Option<Departures>) -> String {
    let text =
        |it: Departures| format!("; {} gone, the last by the move of epoch {}", it.count, it.epoch);
    departures.map_or(String::new(), text)
}

pub(super) fn event_text(world: &World, event: &Event) -> String {
    match event {
        Event::AccessChanged { change, generation } => {
            format!("{} changes the policy to generation {generation}", change.by)
        }
        Event::PolicyAdopted { generation } => {
            format!("the group adopts the policy of generation {generation}")
        }
        Event::OwnershipChanged { epoch, slots } => {
            format!("the group owns {} slots at epoch {epoch}", slots.len())
        }
        Event::HoldMovedIn { name, session, request, token, mode, .. } => format!(
            "{} #{} has come with {name}{}: token {token}",
            world.name_of(*session),
            request.0,
            mode_text(*mode)
        ),
        Event::SessionOpened { session, .. } => {
            format!("{}'s session begins", world.name_of(*session))
        }
        Event::SessionEnded { session, reason, .. } => {
            format!("{}'s session ends: {reason:?}", world.name_of(*session))
        }
        Event::SessionEnding { session, reason, .. } => {
            format!("{}'s session is ending: {reason:?}", world.name_of(*session))
        }
        Event::Granted { name, session, request, token, mode, .. } => format!(
            "{} #{} holds {name}{}: token {token}",
            world.name_of(*session),
            request.0,
            mode_text(*mode)
        ),
        Event::Queued { name, session, request, mode, .. } => {
            format!(
                "{} #{} waits for {name}{}",
                world.name_of(*session),
                request.0,
                mode_text(*mode)
            )
        }
        Event::Refused { names, session, request, outcome } => format!(
            "{} #{} is refused {}: {}",
            world.name_of(*session),
            request.0,
            names_text(names),
            outcome_text(outcome)
        ),
        Event::WaitEnded { names, session, request, outcome } => format!(
            "{} #{} waits for {} no more: {}",
            world.name_of(*session),
            request.0,
            names_text(names),
            outcome_text(outcome)
        ),
        Event::Converted { name, session, request, mode, token, .. } => format!(
            "{} #{} now holds {name}{}: token {token}",
            world.name_of(*session),
            request.0,
            if *mode == Mode::Exclusive { " exclusively".to_owned() } else { mode_text(*mode) }
        ),
        Event::Proclaimed { name, session, metadata, .. } => format!(
            "{} says of {name}: '{}'",
            world.name_of(*session),
            String::from_utf8_lossy(metadata)
        ),
        Event::Reopened { name } => format!("{name} is open again"),
        Event::Thawed { prefix } => format!("{prefix}* is frozen no more"),
        Event::Intervened(Intervention { by, reason, action, .. }) => {
            format!("{by} steps in: {reason}: {}", action_text(action))
        }
        Event::Released { name, session, token, by_close, .. } => {
            let by_close = if *by_close { ", by its close" } else { "" };
            format!("{} gives {name} back: token {token}{by_close}", world.name_of(*session))
        }
        Event::HoldEnded { name, session, request, token, reason, .. } => format!(
            "{} #{} loses {name}: token {token}, {reason:?}",
            world.name_of(*session),
            request.0
        ),
    }
}

fn grants_text(grants: &[Grant]) -> String {
    let each = grants.iter().map(|grant| format!("{} under {}", grant.name, grant_text(grant)));
    each.collect::<Vec<_>>().join("; ")
}

fn names_text(names: &Names) -> String {
    names.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(" and ")
}

/// Exclusive needs no word.
pub(super) fn mode_text(mode: Mode) -> String {
    match mode {
        Mode::Exclusive => String::new(),
        Mode::Shared => " shared".to_owned(),
        Mode::Permit { limit } => format!(" as one of {limit}"),
    }
}

fn action_text(action: &Action) -> String {
    match action {
        Action::Break { name, .. } => format!("break {name}"),
        Action::Transfer { name, to, .. } => format!("transfer {name} to session {}", to.0),
        Action::Freeze { prefix, .. } => format!("freeze {prefix}*"),
        Action::Thaw { prefix } => format!("thaw {prefix}*"),
        Action::Reopen { name } => format!("reopen {name}"),
        Action::SetPermits { name, limit: Some(limit) } => format!("{name} gets {limit} permits"),
        Action::SetLimits { bytes, locks } => format!("limits of {bytes:?} bytes, {locks:?} locks"),
        Action::SetPermits { name, limit: None } => format!("forget the permits of {name}"),
        Action::KillSession { session } => format!("kill session {}", session.0),
    }
}
