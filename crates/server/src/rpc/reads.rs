//! `Status`, `List`, `ListSessions`: linearizable reads. They change nothing, so one that failed
//! never "may have happened".

use std::time::Duration;

use holdfast_core::{LockName, LockStatus, LogicalTime};
use holdfast_engine::{Query, ReadAnswer, ReadData, STATUS_SHOWN_MAX, Unavailable};
use holdfast_proto::decode::lock_name;
use holdfast_proto::decode::page::{self, PageSize};
use holdfast_proto::encode::read::{self, frozen, holder_in_memory, session, summary, waiter};
use holdfast_proto::failure::rejected;
use holdfast_proto::v1::{
    EfficiencyStatus, Failure, ListFreezesRequest, ListFreezesResponse, ListRequest, ListResponse,
    ListSessionsRequest, ListSessionsResponse, StatusRequest, StatusResponse,
};
use holdfast_replica::GroupId;
use holdfast_service::{About, Admitted, Caller, Method, VisibleNames, hidden_names};
use prost::Message;
use tokio::time::timeout;

use super::every_group::{self, Scope};
use super::failure::{bug, took_too_long, unavailable};
use super::route::Destination;
use super::unary::CALL_TIMEOUT;
use super::{Rpc, merged_pages};
use crate::efficiency_tier::EfficiencyTier;
use crate::membership::Membership;

/// How long the status of a lock waits for what only the root group's leader knows.
const ROOT_PATIENCE: Duration = Duration::from_millis(300);

/// Holders, and waiters.
pub(super) const SHOWN_MAX: usize = 100;

/// A request of the client API that becomes one query.
pub(super) trait ReadRequest: Message + Clone + 'static {
    const METHOD: Method;
    type Response: Message + Default;

    fn query(&self) -> Result<Query, Failure>;

    /// None if the answer is not one to this query.
    fn response(&self, answer: ReadAnswer, group: GroupId) -> Option<Self::Response>;

    /// What each of so many groups is asked, if all are.
    fn part(&self, _groups: usize) -> Self {
        self.clone()
    }

    /// The answer of all groups, from those of each. None if this is not read of all groups.
    fn merge_groups(&self, _parts: Vec<Self::Response>) -> Option<Self::Response> {
        None
    }

    /// With several groups: whether the leader of the root group knows something that no other node knows.
    const IS_PARTLY_OF_ROOT: bool = false;

    /// Adds it, from the answer of that leader.
    fn add_from_root(_response: &mut Self::Response, _of_root: Self::Response) {}

    /// Takes away the names that the caller may not see.
    fn hide(_response: &mut Self::Response, _visible: &VisibleNames) {}

    /// What the node knows besides the lock table.
    fn complete(&self, _response: &mut Self::Response, _rpc: &Rpc) -> Result<(), Failure> {
        Ok(())
    }
}

pub(super) async fn serve<L: ReadRequest>(
    rpc: &Rpc,
    caller: Caller,
    request: L,
) -> Result<L::Response, Failure> {
    serve_part(rpc, caller, request, None).await
}

/// For the group that a node names which asks all groups.
pub(super) async fn serve_part<L: ReadRequest>(
    rpc: &Rpc,
    caller: Caller,
    request: L,
    part: Option<GroupId>,
) -> Result<L::Response, Failure> {
    let _permit = rpc.door.begin(L::METHOD)?;
    let query = request.query()?;
    let scope = scope(rpc, &query, part)?;
    let query = rpc.door.authorise(&caller, L::METHOD, about(&query))?.admit(query);
    let read = async {
        match scope {
            Scope::One(group) => {
                if !L::IS_PARTLY_OF_ROOT || part.is_some() || group == GroupId::FIRST {
                    return in_group(rpc, &caller, &request, group, query).await;
                }
                let of_root = in_group(rpc, &caller, &request, GroupId::FIRST, query.clone());
                let of_root = timeout(ROOT_PATIENCE, of_root);
                let of_group = in_group(rpc, &caller, &request, group, query);
                let (response, of_root) = tokio::join!(of_group, of_root);
                let mut response = response?;
                // Without a root group there is no efficiency tier.
                if let Ok(Ok(of_root)) = of_root {
                    L::add_from_root(&mut response, of_root);
                }
                Ok(response)
            }
            Scope::Every => {
                // The pages of all groups are in memory at once.
                let _permit_of_all = rpc.reads_of_all_groups.acquire().await;
                let part = request.part(rpc.membership.groups.all().len());
                let part_query = part.query()?;
                let query = query.map(|_| part_query);
                let parts = every_group::carry_out(rpc, |rpc, group| {
                    let (caller, request, query) = (caller.clone(), part.clone(), query.clone());
                    async move { in_group(&rpc, &caller, &request, group, query).await }
                });
                let answers = every_group::all_answers(parts.await?)?;
                request
                    .merge_groups(answers)
                    .ok_or_else(|| bug("a read of one group was asked of all"))
            }
        }
    };
    changes_nothing(timeout(CALL_TIMEOUT, read).await.unwrap_or_else(|_| Err(took_too_long())))
}

async fn in_group<L: ReadRequest>(
    rpc: &Rpc,
    caller: &Caller,
    request: &L,
    group: GroupId,
    query: Admitted<Query>,
) -> Result<L::Response, Failure> {
    match rpc.destination(caller, L::METHOD, group).await? {
        Destination::Here => here(rpc, caller, request, group, query).await,
        Destination::At(leader) => {
            rpc.forwarding.call_group((leader, group), caller, L::METHOD, request).await
        }
    }
}

/// So a read that failed never "may have happened".
pub(super) fn changes_nothing<T>(read: Result<T, Failure>) -> Result<T, Failure> {
    read.map_err(|failure| Failure { may_have_happened: false, ..failure })
}

/// The groups that answer.
fn scope(rpc: &Rpc, query: &Query, part: Option<GroupId>) -> Result<Scope, Failure> {
    let groups = &rpc.membership.groups;
    let what = match query {
        Query::Status { name, .. } | Query::Why { name, .. } | Query::Token { name, .. } => {
            return Ok(Scope::One(part.unwrap_or_else(|| groups.owner_of(name.as_str()))));
        }
        // For the efficiency tier, which follows the root group.
        Query::Confirm { .. } | Query::Admit { .. } => return Ok(Scope::One(GroupId::FIRST)),
        // The root group has the policy, and the others adopt it.
        Query::Access => return Ok(Scope::One(GroupId::FIRST)),
        Query::List { .. }
        | Query::SearchLocks { .. }
        | Query::Sessions { .. }
        | Query::Freezes => {
            return Ok(Scope::every(rpc, part));
        }
        Query::Owners(_) => "find the owners of sessions",
        Query::Snapshot => "save a snapshot",
    };
    groups.only_with_one(what).map(|()| Scope::One(GroupId::FIRST))
}

fn about(query: &Query) -> About<'_> {
    match query {
        Query::Status { name, .. } | Query::Why { name, .. } | Query::Token { name, .. } => {
            About::Name(name)
        }
        Query::List { prefix, .. } => About::Prefix(prefix),
        Query::SearchLocks { search, .. } => About::Prefix(&search.prefix),
        Query::Freezes => About::VisibleNames,
        Query::Sessions { .. }
        | Query::Owners(_)
        | Query::Access
        | Query::Confirm { .. }
        | Query::Admit { .. }
        | Query::Snapshot => About::Nothing,
    }
}

async fn here<L: ReadRequest>(
    rpc: &Rpc,
    caller: &Caller,
    request: &L,
    group: GroupId,
    query: Admitted<Query>,
) -> Result<L::Response, Failure> {
    let answer = rpc.door.read(group, query).await?;
    let mut response =
        request.response(answer, group).ok_or_else(|| bug("the shard read something else"))?;
    request.complete(&mut response, rpc)?;
    let visible = rpc.door.service().visible_names(caller);
    if !visible.are_all() {
        L::hide(&mut response, &visible);
    }
    Ok(response)
}

impl ReadRequest for StatusRequest {
    const METHOD: Method = Method::Status;
    type Response = StatusResponse;

    fn query(&self) -> Result<Query, Failure> {
        let name = lock_name(&self.name)?;
        // The leader of the root group is asked, too, for the holders of the efficiency tier.
        Ok(Query::Status { name, shown_max: SHOWN_MAX, is_owner_asked: false })
    }

    fn response(&self, answer: ReadAnswer, group: GroupId) -> Option<StatusResponse> {
        let ReadData::Status(status) = answer.data else { return None };
        Some(lock_status(&self.name, status, answer.at, answer.applied_index, group))
    }

    fn hide(response: &mut StatusResponse, visible: &VisibleNames) {
        hidden_names::in_status(response, visible);
    }

    const IS_PARTLY_OF_ROOT: bool = true;

    fn add_from_root(response: &mut StatusResponse, of_root: StatusResponse) {
        response.efficiency = of_root.efficiency;
    }

    fn complete(&self, response: &mut StatusResponse, rpc: &Rpc) -> Result<(), Failure> {
        response.efficiency = in_efficiency_tier(rpc.door.memory(), &self.name, SHOWN_MAX);
        Ok(())
    }
}

impl ReadRequest for ListRequest {
    const METHOD: Method = Method::List;
    type Response = ListResponse;

    fn query(&self) -> Result<Query, Failure> {
        Ok(Query::List {
            prefix: self.prefix.clone(),
            after: page::after_name(&self.page)?,
            limit: PageSize::new(self.page_size)?.limit(),
        })
    }

    fn response(&self, answer: ReadAnswer, _: GroupId) -> Option<ListResponse> {
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

    fn part(&self, groups: usize) -> ListRequest {
        let page_size = merged_pages::part_size(self.page_size, groups);
        ListRequest { page_size, ..self.clone() }
    }

    fn merge_groups(&self, parts: Vec<ListResponse>) -> Option<ListResponse> {
        Some(merged_pages::by_name(parts, PageSize::new(self.page_size).ok()?))
    }
}

impl ReadRequest for ListFreezesRequest {
    const METHOD: Method = Method::ListFreezes;
    type Response = ListFreezesResponse;

    fn query(&self) -> Result<Query, Failure> {
        Ok(Query::Freezes)
    }

    fn response(&self, answer: ReadAnswer, _: GroupId) -> Option<ListFreezesResponse> {
        let ReadData::Freezes(freezes) = answer.data else { return None };
        Some(ListFreezesResponse {
            logical_time_ms: answer.at.as_ms(),
            freezes: freezes.into_iter().map(|freeze| frozen(freeze, answer.at)).collect(),
        })
    }

    fn merge_groups(&self, parts: Vec<ListFreezesResponse>) -> Option<ListFreezesResponse> {
        Some(merged_pages::freezes(parts))
    }

    /// A freeze concerns a caller that may read a name under its prefix.
    fn hide(response: &mut ListFreezesResponse, visible: &VisibleNames) {
        response.freezes.retain(|freeze| visible.reach(&freeze.prefix));
    }
}

impl ReadRequest for ListSessionsRequest {
    const METHOD: Method = Method::ListSessions;
    type Response = ListSessionsResponse;

    fn query(&self) -> Result<Query, Failure> {
        Ok(Query::Sessions {
            after: page::after_session(&self.page)?,
            limit: PageSize::new(self.page_size)?.limit(),
        })
    }

    fn response(&self, answer: ReadAnswer, _: GroupId) -> Option<ListSessionsResponse> {
        let ReadData::Sessions(mut sessions) = answer.data else { return None };
        let last = PageSize::new(self.page_size).ok()?.cut(&mut sessions);
        let next_page = last.map(|session| session.public.to_string()).unwrap_or_default();
        Some(ListSessionsResponse {
            sessions: sessions.into_iter().map(|info| session(info, answer.at)).collect(),
            next_page,
            logical_time_ms: answer.at.as_ms(),
        })
    }

    /// A session that is open in all groups is on the page of each.
    fn merge_groups(&self, parts: Vec<ListSessionsResponse>) -> Option<ListSessionsResponse> {
        Some(merged_pages::sessions(parts, PageSize::new(self.page_size).ok()?))
    }
}

/// The same for a client that asked on a stream.
pub(super) fn status_on_stream(
    membership: &Membership,
    memory: &EfficiencyTier,
    group: GroupId,
    name: &LockName,
    answer: &Result<Box<ReadAnswer>, Unavailable>,
) -> Result<StatusResponse, Failure> {
    let ReadAnswer { at, applied_index, data } = &**answer.as_ref().map_err(|reason| {
        let failure = unavailable(*reason, membership);
        Failure { may_have_happened: false, ..failure }
    })?;
    let status = match data {
        ReadData::Status(status) => status,
        ReadData::Refused(rejection) => return Err(rejected(*rejection)),
        _ => return Err(bug("the shard read something else")),
    };
    let mut response = lock_status(name.as_str(), status.clone(), *at, *applied_index, group);
    response.efficiency = in_efficiency_tier(memory, name.as_str(), STATUS_SHOWN_MAX);
    // There can be 255 of them, of 512 bytes each.
    let in_memory = response.efficiency.iter_mut().flat_map(|memory| &mut memory.waiters);
    response.waiters.iter_mut().chain(in_memory).for_each(|waiter| waiter.also.clear());
    Ok(response)
}

fn in_efficiency_tier(
    memory: &EfficiencyTier,
    name: &str,
    shown_max: usize,
) -> Option<EfficiencyStatus> {
    let (now, status) = memory.status(name, shown_max)?;
    Some(EfficiencyStatus {
        holders: status.holders.into_iter().map(|info| holder_in_memory(info, now)).collect(),
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
    group: GroupId,
) -> StatusResponse {
    read::lock_status(name, status, now, applied_index, group.0)
}
