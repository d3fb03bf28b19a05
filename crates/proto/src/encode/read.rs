//! What reads show of the lock table.

use holdfast_core::command::{Mode, Owner};
use holdfast_core::{
    FreezeInfo, HolderInfo, LockStatus, LockSummary, LockWhy, LogicalTime, ReservedLock,
    SessionSummary, WaitLink, WaiterInfo,
};

use super::{mode, permits};
use crate::v1::{self, Holder, SessionInfo, StatusResponse, Waiter, WhyResponse};

pub fn lock_status(
    name: &str,
    status: LockStatus,
    now: LogicalTime,
    applied_index: u64,
    group: u32,
) -> StatusResponse {
    StatusResponse {
        name: name.to_owned(),
        holders: status.holders.into_iter().map(|info| holder(info, now)).collect(),
        waiters: status.waiters.into_iter().map(|info| waiter(info, now)).collect(),
        holder_count: status.holder_count as u64,
        waiter_count: status.waiter_count as u64,
        closed_for_ms: status.closed_until.map(|until| until.since(now).as_ms()),
        frozen: status.frozen.map(|freeze| frozen(freeze, now)),
        permits: status.permits.unwrap_or(0),
        logical_time_ms: now.as_ms(),
        group,
        applied_index,
        efficiency: None,
    }
}

/// What stands between a client and a lock, as far as the lock table knows.
pub fn why(
    name: &str,
    why: LockWhy,
    now: LogicalTime,
    applied_index: u64,
    group: u32,
) -> WhyResponse {
    WhyResponse {
        status: Some(lock_status(name, why.status, now, applied_index, group)),
        chain: why.chain.into_iter().map(|link| wait_link(link, now)).collect(),
        chain_is_cut: why.chain_is_cut,
        reserved: why.reserved.into_iter().map(reserved).collect(),
        hold_times: None,
        estimated_wait_ms: None,
    }
}

pub fn holder(info: HolderInfo, now: LogicalTime) -> Holder {
    Holder {
        public_session_id: info.session.to_string(),
        owner: Some(owner(info.owner)),
        actor: info.actor.0,
        mode: mode(info.mode).into(),
        token: info.token.0,
        held_for_ms: now.since(info.granted_at).as_ms(),
        remaining_ms: info.deadline.map(|deadline| deadline.since(now).as_ms()),
        session_remaining_ms: info.session_deadline.since(now).as_ms(),
        session_ttl_ms: info.session_ttl.as_ms(),
        metadata: info.metadata.into_vec(),
        permits: permits(info.mode),
        reentries: info.reentries,
        preemptible: info.preemptible,
        renewed: info.session_connected,
        disconnected_for_ms_max: info.disconnected_after.map(|after| now.since(after).as_ms()),
    }
}

/// The efficiency tier does not know when the session ends.
pub fn holder_in_memory(info: HolderInfo, now: LogicalTime) -> Holder {
    let known = holder(info, now);
    Holder { session_remaining_ms: 0, session_ttl_ms: 0, disconnected_for_ms_max: None, ..known }
}

pub fn waiter(info: WaiterInfo, now: LogicalTime) -> Waiter {
    Waiter {
        public_session_id: info.session.to_string(),
        owner: Some(owner(info.owner)),
        actor: info.actor.0,
        mode: mode(info.mode).into(),
        position: info.position,
        waiting_for_ms: now.since(info.queued_at).as_ms(),
        remaining_ms: info.deadline.since(now).as_ms(),
        permits: permits(info.mode),
        also: info.also.iter().map(|name| name.as_str().to_owned()).collect(),
        converts: info.converts,
        metadata: info.metadata.into_vec(),
    }
}

pub fn frozen(info: FreezeInfo, now: LogicalTime) -> v1::Frozen {
    v1::Frozen {
        prefix: info.prefix,
        remaining_ms: info.until.since(now).as_ms(),
        by: info.by.into(),
        reason: info.reason.into(),
    }
}

pub fn summary(lock: LockSummary, now: LogicalTime) -> v1::LockSummary {
    let awaited = v1::LockSummary {
        name: lock.name.as_str().to_owned(),
        holder_count: lock.holder_count as u64,
        waiter_count: lock.waiter_count as u64,
        ..Default::default()
    };
    let Some(first) = lock.first_holder else { return awaited };
    v1::LockSummary {
        mode: mode(first.mode).into(),
        token: first.token.0,
        public_session_id: first.session.to_string(),
        owner: Some(owner(first.owner)),
        held_for_ms: now.since(first.granted_at).as_ms(),
        permits: match first.mode {
            // What an operator has set is in force, whatever its holders stated.
            Mode::Permit { limit } => lock.permits.unwrap_or(limit),
            Mode::Exclusive | Mode::Shared => 0,
        },
        metadata: first.metadata.into_vec(),
        ..awaited
    }
}

pub fn session(info: SessionSummary, now: LogicalTime) -> SessionInfo {
    SessionInfo {
        public_id: info.public.to_string(),
        owner: Some(owner(info.owner)),
        ttl_ms: info.ttl.as_ms(),
        remaining_ms: info.deadline.since(now).as_ms(),
        age_ms: now.since(info.opened_at).as_ms(),
        hold_count: info.hold_count as u64,
        wait_count: info.wait_count as u64,
        connected: info.connected,
        principal: info.principal.map(|principal| principal.to_string()).unwrap_or_default(),
    }
}

pub fn owner(owner: Owner) -> v1::Owner {
    v1::Owner { application: owner.application, host: owner.host, pid: owner.pid, note: owner.note }
}

pub fn wait_link(link: WaitLink, now: LogicalTime) -> v1::WaitLink {
    v1::WaitLink {
        depth: link.depth,
        in_the_way_of: link.in_the_way_of.as_str().to_owned(),
        waits_for: link.waits_for.as_str().to_owned(),
        waiter: Some(waiter(link.waiter, now)),
        holders: link.holders.into_iter().map(|info| holder(info, now)).collect(),
        holder_count: link.holder_count as u64,
    }
}

pub fn reserved(reserved: ReservedLock) -> v1::ReservedLock {
    v1::ReservedLock {
        name: reserved.name.as_str().to_owned(),
        public_session_id: reserved.session.to_string(),
        owner: Some(owner(reserved.owner)),
    }
}
