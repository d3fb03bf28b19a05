//! `Status`, `List`, `ListSessions`: linearizable reads. They change nothing, so one that failed
//! never "may have happened".

use holdfast_core::command::{Mode, Owner};
use holdfast_core::{
    FreezeInfo, HolderInfo, LockName, LockStatus, LockSummary, LogicalTime, SessionSummary,
    WaiterInfo,
};
use holdfast_proto::v1;
use holdfast_proto::v1::{
    EfficiencyStatus, Failure, Holder, ListFreezesRequest, ListFreezesResponse, ListRequest,
    ListResponse, ListSessionsRequest, ListSessionsResponse, SessionInfo, StatusRequest,
    StatusResponse, Waiter,
};
use tokio::time::timeout;
use tonic::{Request, Response, Status};

use super::Rpc;
use super::decode::lock_name;
use super::encode::{mode, permits};
use super::failure::{bug, took_too_long, unavailable};
use super::forward::Leader;
use super::origin::Origin;
use super::page::{self, PageSize};
use super::places::Kind;
use super::route::Route;
use super::unary::CALL_TIMEOUT;
use crate::driver::{FIRST_GROUP, Query, ReadAnswer, ReadData, SHOWN_ON_STREAM_MAX, Unavailable};
use crate::membership::Membership;
use crate::memory_tier::MemoryTier;

/// Holders, and waiters.
pub(super) const SHOWN_MAX: usize = 100;

/// A request of the client API that becomes one query.
pub(super) trait Look: Clone + Send + Sync + 'static {
    type Response: Send;

    fn query(&self) -> Result<Query, Failure>;

    /// None if the answer is not one to this query.
    fn response(&self, answer: ReadAnswer) -> Option<Self::Response>;

    /// What the node knows besides the lock table.
    fn complete(&self, _response: &mut Self::Response, _rpc: &Rpc) -> Result<(), Failure> {
        Ok(())
    }

    fn forward(
        request: Request<Self>,
        leader: Leader,
    ) -> impl Future<Output = Result<Response<Self::Response>, Status>> + Send;
}

pub(super) async fn serve<L: Look>(
    rpc: &Rpc,
    request: Request<L>,
) -> Result<Response<L::Response>, Status> {
    let _place = rpc.admit(Kind::Call)?;
    let origin = Origin::of(request.metadata())?;
    let request = request.into_inner();
    let query = request.query()?;
    let looked = timeout(CALL_TIMEOUT, look(rpc, &origin, request, query)).await;
    let response = looked
        .unwrap_or_else(|_| Err(took_too_long()))
        .map_err(|failure| Failure { may_have_happened: false, ..failure })?;
    Ok(Response::new(response))
}

async fn look<L: Look>(
    rpc: &Rpc,
    origin: &Origin,
    request: L,
    query: Query,
) -> Result<L::Response, Failure> {
    match rpc.route(origin).await? {
        Route::Here => {
            let answer = rpc.read(query).await?;
            let mut response =
                request.response(answer).ok_or_else(|| bug("the driver read something else"))?;
            request.complete(&mut response, rpc)?;
            Ok(response)
        }
        Route::There(leader) => {
            let request = origin.forwarded(rpc.membership.me, request);
            match L::forward(request, leader.clone()).await {
                Ok(response) => Ok(response.into_inner()),
                Err(status) => Err(leader.failure(&status)),
            }
        }
    }
}

impl Look for StatusRequest {
    type Response = StatusResponse;

    fn query(&self) -> Result<Query, Failure> {
        let name = lock_name(&self.name)?;
        Ok(Query::Status { name, shown_max: SHOWN_MAX })
    }

    fn response(&self, answer: ReadAnswer) -> Option<StatusResponse> {
        let ReadData::Status(status) = answer.data else { return None };
        Some(lock_status(&self.name, status, answer.at, answer.applied_index))
    }

    fn complete(&self, response: &mut StatusResponse, rpc: &Rpc) -> Result<(), Failure> {
        response.efficiency = in_efficiency_tier(&rpc.memory, &self.name, SHOWN_MAX);
        Ok(())
    }

    async fn forward(
        request: Request<Self>,
        mut leader: Leader,
    ) -> Result<Response<StatusResponse>, Status> {
        leader.client.status(request).await
    }
}

impl Look for ListRequest {
    type Response = ListResponse;

    fn query(&self) -> Result<Query, Failure> {
        Ok(Query::List {
            prefix: self.prefix.clone(),
            after: page::after_name(&self.page)?,
            limit: PageSize::new(self.page_size)?.limit(),
        })
    }

    fn response(&self, answer: ReadAnswer) -> Option<ListResponse> {
        let ReadData::List(mut locks) = answer.data else { return None };
        let last = PageSize::new(self.page_size).ok()?.cut(&mut locks);
        let next_page = last.map(|lock| lock.name.as_str().to_owned()).unwrap_or_default();
        Some(ListResponse {
            locks: locks.into_iter().map(|lock| summary(lock, answer.at)).collect(),
            next_page,
            logical_time_ms: answer.at.as_ms(),
            matched: None,
        })
    }

    async fn forward(
        request: Request<Self>,
        mut leader: Leader,
    ) -> Result<Response<ListResponse>, Status> {
        leader.client.list(request).await
    }
}

impl Look for ListFreezesRequest {
    type Response = ListFreezesResponse;

    fn query(&self) -> Result<Query, Failure> {
        Ok(Query::Freezes)
    }

    fn response(&self, answer: ReadAnswer) -> Option<ListFreezesResponse> {
        let ReadData::Freezes(freezes) = answer.data else { return None };
        Some(ListFreezesResponse {
            logical_time_ms: answer.at.as_ms(),
            freezes: freezes.into_iter().map(|freeze| frozen(freeze, answer.at)).collect(),
        })
    }

    async fn forward(
        request: Request<Self>,
        mut leader: Leader,
    ) -> Result<Response<ListFreezesResponse>, Status> {
        leader.operator.list_freezes(request).await
    }
}

impl Look for ListSessionsRequest {
    type Response = ListSessionsResponse;

    fn query(&self) -> Result<Query, Failure> {
        Ok(Query::Sessions {
            after: page::after_session(&self.page)?,
            limit: PageSize::new(self.page_size)?.limit(),
        })
    }

    fn response(&self, answer: ReadAnswer) -> Option<ListSessionsResponse> {
        let ReadData::Sessions(mut sessions) = answer.data else { return None };
        let last = PageSize::new(self.page_size).ok()?.cut(&mut sessions);
        let next_page = last.map(|session| session.public.to_string()).unwrap_or_default();
        Some(ListSessionsResponse {
            sessions: sessions.into_iter().map(|info| session(info, answer.at)).collect(),
            next_page,
            logical_time_ms: answer.at.as_ms(),
        })
    }

    async fn forward(
        request: Request<Self>,
        mut leader: Leader,
    ) -> Result<Response<ListSessionsResponse>, Status> {
        leader.client.list_sessions(request).await
    }
}

/// The same for somebody who asked on a stream.
pub(super) fn status_on_stream(
    membership: &Membership,
    memory: &MemoryTier,
    name: &LockName,
    answer: &Result<Box<ReadAnswer>, Unavailable>,
) -> Result<StatusResponse, Failure> {
    let ReadAnswer { at, applied_index, data } = &**answer.as_ref().map_err(|reason| {
        let failure = unavailable(*reason, membership);
        Failure { may_have_happened: false, ..failure }
    })?;
    let ReadData::Status(status) = data else { return Err(bug("the driver read something else")) };
    let mut response = lock_status(name.as_str(), status.clone(), *at, *applied_index);
    response.efficiency = in_efficiency_tier(memory, name.as_str(), SHOWN_ON_STREAM_MAX);
    // There can be 255 of them, of 512 bytes each.
    let in_memory = response.efficiency.iter_mut().flat_map(|memory| &mut memory.waiters);
    response.waiters.iter_mut().chain(in_memory).for_each(|waiter| waiter.also.clear());
    Ok(response)
}

fn in_efficiency_tier(
    memory: &MemoryTier,
    name: &str,
    shown_max: usize,
) -> Option<EfficiencyStatus> {
    let (now, status) = memory.status(name, shown_max)?;
    Some(EfficiencyStatus {
        holders: status.holders.into_iter().map(|info| in_memory(info, now)).collect(),
        waiters: status.waiters.into_iter().map(|info| waiter(info, now)).collect(),
        holder_count: status.holder_count as u64,
        waiter_count: status.waiter_count as u64,
    })
}

pub(super) fn lock_status(
    name: &str,
    status: LockStatus,
    now: LogicalTime,
    applied_index: u64,
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
        group: FIRST_GROUP.0,
        applied_index,
        efficiency: None,
    }
}

pub(super) fn holder(info: HolderInfo, now: LogicalTime) -> Holder {
    Holder {
        public_session_id: info.session.to_string(),
        owner: Some(owner(info.owner)),
        actor: info.actor.0,
        mode: mode(info.mode).into(),
        token: info.token.0,
        held_for_ms: now.since(info.granted_at).as_ms(),
        remaining_ms: info.deadline.map(|deadline| deadline.since(now).as_ms()),
        session_remaining_ms: info.session_deadline.since(now).as_ms(),
        metadata: info.metadata.into_vec(),
        permits: permits(info.mode),
        reentries: info.reentries,
        preemptible: info.preemptible,
        renewed: info.session_connected,
    }
}

/// The efficiency tier does not know when the session ends.
fn in_memory(info: HolderInfo, now: LogicalTime) -> Holder {
    Holder { session_remaining_ms: 0, ..holder(info, now) }
}

pub(super) fn waiter(info: WaiterInfo, now: LogicalTime) -> Waiter {
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

pub(super) fn frozen(info: FreezeInfo, now: LogicalTime) -> v1::Frozen {
    v1::Frozen {
        prefix: info.prefix,
        remaining_ms: info.until.since(now).as_ms(),
        by: info.by.into(),
        reason: info.reason.into(),
    }
}

pub(super) fn summary(lock: LockSummary, now: LogicalTime) -> v1::LockSummary {
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

fn session(info: SessionSummary, now: LogicalTime) -> SessionInfo {
    SessionInfo {
        public_id: info.public.to_string(),
        owner: Some(owner(info.owner)),
        ttl_ms: info.ttl.as_ms(),
        remaining_ms: info.deadline.since(now).as_ms(),
        age_ms: now.since(info.opened_at).as_ms(),
        hold_count: info.hold_count as u64,
        wait_count: info.wait_count as u64,
        connected: info.connected,
    }
}

pub(super) fn owner(owner: Owner) -> v1::Owner {
    v1::Owner { application: owner.application, host: owner.host, pid: owner.pid, note: owner.note }
}
