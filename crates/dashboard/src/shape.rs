//! The wire's messages as the page wants them. Numbers that may exceed what a browser can count exactly
//! (tokens, actors) travel as text; bytes travel as text too, with what is no UTF-8 replaced.

use holdfast_proto::v1::{
    EventKind, Frozen, HoldTimes, Holder, LockSummary, Mode, NodeRole, Owner, SessionInfo,
    StatusResponse, WaitLink, Waiter, WatchEvent, WhyResponse,
};
use serde_json::{Value, json};

pub(crate) fn summary(lock: &LockSummary) -> Value {
    json!({
        "name": lock.name,
        "mode": mode_of(lock.mode, lock.permits),
        "holders": lock.holder_count,
        "waiters": lock.waiter_count,
        "token": token(lock.token),
        "session": lock.public_session_id,
        "owner": owner(lock.owner.as_ref()),
        "held_for_ms": lock.held_for_ms,
        "metadata": text(&lock.metadata),
    })
}

pub(crate) fn status(status: &StatusResponse) -> Value {
    json!({
        "name": status.name,
        "holders": status.holders.iter().map(holder).collect::<Vec<_>>(),
        "holder_count": status.holder_count,
        "waiters": status.waiters.iter().map(waiter).collect::<Vec<_>>(),
        "waiter_count": status.waiter_count,
        "closed_for_ms": status.closed_for_ms,
        "frozen": status.frozen.as_ref().map(frozen),
        "permits": status.permits,
        "group": status.group,
        "applied_index": status.applied_index,
    })
}

pub(crate) fn why(why: &WhyResponse) -> Value {
    json!({
        "chain": why.chain.iter().map(link).collect::<Vec<_>>(),
        "chain_is_cut": why.chain_is_cut,
        "reserved": why.reserved.iter().map(|lock| json!({
            "name": lock.name,
            "session": lock.public_session_id,
            "owner": owner(lock.owner.as_ref()),
        })).collect::<Vec<_>>(),
        "hold_times": why.hold_times.as_ref().map(hold_times),
        "estimated_wait_ms": why.estimated_wait_ms,
    })
}

pub(crate) fn holder(holder: &Holder) -> Value {
    json!({
        "session": holder.public_session_id,
        "owner": owner(holder.owner.as_ref()),
        "actor": holder.actor.to_string(),
        "mode": mode_of(holder.mode, holder.permits),
        "token": token(holder.token),
        "held_for_ms": holder.held_for_ms,
        "remaining_ms": holder.remaining_ms,
        "session_remaining_ms": holder.session_remaining_ms,
        "metadata": text(&holder.metadata),
        "reentries": holder.reentries,
        "preemptible": holder.preemptible,
    })
}

pub(crate) fn waiter(waiter: &Waiter) -> Value {
    json!({
        "session": waiter.public_session_id,
        "owner": owner(waiter.owner.as_ref()),
        "actor": waiter.actor.to_string(),
        "mode": mode_of(waiter.mode, waiter.permits),
        "position": waiter.position,
        "waiting_for_ms": waiter.waiting_for_ms,
        "remaining_ms": waiter.remaining_ms,
        "also": waiter.also,
        "converts": waiter.converts,
        "metadata": text(&waiter.metadata),
    })
}

pub(crate) fn frozen(frozen: &Frozen) -> Value {
    json!({
        "prefix": frozen.prefix,
        "remaining_ms": frozen.remaining_ms,
        "by": frozen.by,
        "reason": frozen.reason,
    })
}

pub(crate) fn role(role: NodeRole) -> &'static str {
    match role {
        // Older nodes do not say, and know nothing but voters.
        NodeRole::Voter | NodeRole::Unspecified => "voter",
        NodeRole::Learner => "learner",
        NodeRole::Entering => "entering",
        NodeRole::Leaving => "leaving",
    }
}

pub(crate) fn session(session: &SessionInfo) -> Value {
    json!({
        "session": session.public_id,
        "owner": owner(session.owner.as_ref()),
        "ttl_ms": session.ttl_ms,
        "remaining_ms": session.remaining_ms,
        "age_ms": session.age_ms,
        // Whatever it says moves its deadline to a TTL from then. A grace may have moved it further.
        "heard_ms_ago": session.ttl_ms.saturating_sub(session.remaining_ms),
        "holds": session.hold_count,
        "waits": session.wait_count,
        "connected": session.connected,
    })
}

pub(crate) fn event(event: &WatchEvent) -> Value {
    json!({
        "position": position(event),
        "unix_ms": event.unix_ms,
        "kind": kind(event.kind()),
        "names": event.names,
        "session": event.public_session_id,
        "mode": mode_of(event.mode, 0),
        "token": token(event.token),
        "held_for_ms": event.held_for_ms,
        "metadata": text(&event.metadata),
        "by": event.by,
        "detail": event.detail,
        "cycle": event.cycle.iter().map(|link| json!({
            "session": link.public_session_id,
            "waits_for": link.waits_for,
        })).collect::<Vec<_>>(),
    })
}

/// By which a stream goes on after a break.
pub(crate) fn position(event: &WatchEvent) -> String {
    event.position.map_or(String::new(), |position| {
        format!("{}.{}.{}", position.group, position.index, position.number)
    })
}

pub(crate) fn kind(kind: EventKind) -> String {
    kind.as_str_name().trim_start_matches("EVENT_KIND_").to_ascii_lowercase()
}

pub(crate) fn kind_from(name: &str) -> Option<EventKind> {
    EventKind::from_str_name(&format!("EVENT_KIND_{}", name.to_ascii_uppercase()))
}

fn link(link: &WaitLink) -> Value {
    json!({
        "depth": link.depth,
        "in_the_way_of": link.in_the_way_of,
        "waits_for": link.waits_for,
        "waiter": link.waiter.as_ref().map(waiter),
        "holders": link.holders.iter().map(holder).collect::<Vec<_>>(),
        "holder_count": link.holder_count,
    })
}

fn hold_times(times: &HoldTimes) -> Value {
    json!({ "holds": times.holds, "median_ms": times.median_ms, "longest_ms": times.longest_ms })
}

pub(crate) fn owner(owner: Option<&Owner>) -> Value {
    owner.map_or(Value::Null, |owner| {
        json!({
            "application": owner.application,
            "host": owner.host,
            "pid": owner.pid,
            "note": owner.note,
        })
    })
}

fn mode_of(mode: i32, permits: u32) -> String {
    match Mode::try_from(mode) {
        Ok(Mode::Shared) => "shared".to_owned(),
        Ok(Mode::Permit) if permits > 0 => format!("permit of {permits}"),
        Ok(Mode::Permit) => "permit".to_owned(),
        Ok(Mode::Exclusive) => "exclusive".to_owned(),
        _ => String::new(),
    }
}

fn token(token: u64) -> String {
    if token == 0 { String::new() } else { token.to_string() }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
