//! `List` with a search in it: by a part of the name, by holder, the longest queues or the longest holds
//! first. A large table is looked through in parts, each a linearizable read of its own.
//!
//! With several groups, each group is searched, and the first lines of all are merged.
//!
//! One search runs at a time on a node. Its result also answers the same search of other callers for 1.5 s: a search
//! costs the leader time in proportion to the table, and dashboards repeat theirs.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_core::{LockSearch, LockSearchPart, LockSummary, LogicalTime, Rank};
use holdfast_engine::{Query, ReadData};
use holdfast_proto::decode::page::{self, PageSize};
use holdfast_proto::encode::read;
use holdfast_proto::failure::refused;
use holdfast_proto::v1::{Failure, ListOrder, ListRequest, ListResponse, Reason};
use holdfast_replica::GroupId;
use holdfast_service::{About, Admitted, Caller, Method};
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::every_group::{self, Scope};
use super::failure::{bug, took_too_long};
use super::reads::{self, ReadRequest, changes_nothing};
use super::route::Destination;
use super::unary::CALL_TIMEOUT;
use super::{Rpc, merged_pages};

const TEXT_BYTES_MAX: usize = holdfast_core::NAME_BYTES_MAX;
/// Of a ranking, so many are kept.
const RANKED_MAX: usize = 1_000;
/// At least; a node may have one of each group that it leads.
const RANKINGS_KEPT: usize = 16;
/// For so long a ranking serves others too.
const RANKING_KEEPS: Duration = Duration::from_millis(1_500);
/// A page by name may be short if it takes longer than that to fill it.
const PAGE_PATIENCE: Duration = Duration::from_secs(2);

/// Rankings that were made lately.
pub(super) type Rankings = Arc<Mutex<Vec<Ranking>>>;

#[derive(Clone, Debug)]
pub(super) struct Ranking {
    group: GroupId,
    search: LockSearch,
    made: Instant,
    at: LogicalTime,
    matched: u64,
    locks: Arc<Vec<LockSummary>>,
}

pub(super) async fn serve(
    rpc: &Rpc,
    caller: Caller,
    request: ListRequest,
) -> Result<ListResponse, Failure> {
    serve_part(rpc, caller, request, None).await
}

/// For the group that a node names which asks all groups.
pub(super) async fn serve_part(
    rpc: &Rpc,
    caller: Caller,
    request: ListRequest,
    part: Option<GroupId>,
) -> Result<ListResponse, Failure> {
    if is_plain(&request) {
        return reads::serve_part(rpc, caller, request, part).await;
    }
    let _permit = rpc.door.begin(Method::List)?;
    let search = decode(&request)?;
    let about = About::Prefix(&search.prefix);
    let search = rpc.door.authorise(&caller, Method::List, about)?.admit(search);
    let found = async {
        match Scope::every(rpc, part) {
            Scope::One(group) => in_group(rpc, &caller, &request, group, search).await,
            Scope::Every => in_all_groups(rpc, &caller, &request, search).await,
        }
    };
    let found = timeout(CALL_TIMEOUT, found).await;
    changes_nothing(found.unwrap_or_else(|_| Err(took_too_long())))
}

/// One read answers it.
fn is_plain(request: &ListRequest) -> bool {
    request.contains.is_empty()
        && request.holder_public_session_id.is_empty()
        && !request.only_with_value
        && matches!(request.order(), ListOrder::Unspecified | ListOrder::Name)
}

fn decode(request: &ListRequest) -> Result<LockSearch, Failure> {
    let contains = request.contains.clone();
    if contains.len() > TEXT_BYTES_MAX || contains.chars().any(char::is_control) {
        let words = "contains has at most 512 bytes and no control characters";
        return Err(refused(Reason::InvalidPrefix, words));
    }
    let rank = match request.order() {
        ListOrder::Unspecified | ListOrder::Name => Rank::Name,
        ListOrder::QueueLength => Rank::QueueLength,
        ListOrder::HoldAge => Rank::HoldAge,
    };
    let holder = page::after_session(&request.holder_public_session_id)?;
    let (prefix, only_with_value) = (request.prefix.clone(), request.only_with_value);
    Ok(LockSearch { prefix, contains, holder, only_with_value, rank })
}

async fn in_group(
    rpc: &Rpc,
    caller: &Caller,
    request: &ListRequest,
    group: GroupId,
    search: Admitted<LockSearch>,
) -> Result<ListResponse, Failure> {
    let size = PageSize::new(request.page_size)?;
    match rpc.destination(caller, Method::List, group).await? {
        Destination::Here if search.get().rank == Rank::Name => {
            by_name(rpc, group, search, size, &request.page).await
        }
        Destination::Here => by_rank(rpc, group, search, size, &request.page).await,
        Destination::At(leader) => {
            rpc.forwarding.call_group((leader, group), caller, Method::List, request).await
        }
    }
}

/// A page of a ranking needs the first lines of each group, up to the end of the page.
async fn in_all_groups(
    rpc: &Rpc,
    caller: &Caller,
    request: &ListRequest,
    search: Admitted<LockSearch>,
) -> Result<ListResponse, Failure> {
    let size = PageSize::new(request.page_size)?;
    let is_ranked = search.get().rank != Rank::Name;
    let (first, end) = match is_ranked {
        true => lines_of_ranking(size, &request.page)?,
        false => (0, 0),
    };
    // The lines of all groups are in memory at once.
    let _permit = rpc.searches_of_all_groups.acquire().await;
    let asked = match is_ranked {
        true => {
            let page_size = u32::try_from(end).unwrap_or(u32::MAX);
            ListRequest { page_size, page: String::new(), ..request.clone() }
        }
        false => request.part(rpc.membership.groups.all().len()),
    };
    let parts = every_group::carry_out(rpc, |rpc, group| {
        let (caller, asked, search) = (caller.clone(), asked.clone(), search.clone());
        async move { in_group(&rpc, &caller, &asked, group, search).await }
    });
    let answers = every_group::all_answers(parts.await?)?;
    Ok(match is_ranked {
        true => merged_pages::by_rank(answers, request.order(), first, end),
        false => merged_pages::by_name(answers, size),
    })
}

/// The first line of a page, and the one after its last.
fn lines_of_ranking(size: PageSize, page: &str) -> Result<(usize, usize), Failure> {
    let first = match page {
        "" => 0,
        page => page.parse::<usize>().map_err(|_| page::not_ours())?,
    };
    Ok((first.min(RANKED_MAX), first.saturating_add(size.limit() - 1).min(RANKED_MAX)))
}

async fn by_name(
    rpc: &Rpc,
    group: GroupId,
    search: Admitted<LockSearch>,
    size: PageSize,
    page: &str,
) -> Result<ListResponse, Failure> {
    let started = Instant::now();
    let mut after = page::after_name(page)?;
    let mut locks = Vec::new();
    loop {
        let wanted = size.limit() - locks.len();
        let (at, part) = search_part(rpc, group, &search, after, None, wanted).await?;
        locks.extend(part.found.into_iter().map(|(_, lock)| read::summary(lock, at)));
        after = part.next;
        let full = locks.len() >= size.limit();
        if full || after.is_none() || started.elapsed() >= PAGE_PATIENCE {
            let last = size.cut(&mut locks).map(|lock| lock.name.clone());
            return Ok(ListResponse {
                locks,
                next_page: last.or(after).unwrap_or_default(),
                logical_time_ms: at.as_ms(),
                matched: None,
            });
        }
    }
}

async fn by_rank(
    rpc: &Rpc,
    group: GroupId,
    search: Admitted<LockSearch>,
    size: PageSize,
    page: &str,
) -> Result<ListResponse, Failure> {
    let (first, end) = lines_of_ranking(size, page)?;
    let ranking = ranking(rpc, group, search).await?;
    let end = end.min(ranking.locks.len());
    let shown = ranking.locks.get(first..end).unwrap_or_default();
    let more = end < ranking.locks.len();
    Ok(ListResponse {
        locks: shown.iter().map(|lock| read::summary(lock.clone(), ranking.at)).collect(),
        next_page: if more { end.to_string() } else { String::new() },
        logical_time_ms: ranking.at.as_ms(),
        matched: Some(ranking.matched),
    })
}

async fn ranking(
    rpc: &Rpc,
    group: GroupId,
    search: Admitted<LockSearch>,
) -> Result<Ranking, Failure> {
    let mut rankings = rpc.rankings.lock().await;
    rankings.retain(|ranking| ranking.made.elapsed() < RANKING_KEEPS);
    let is_meant = |made: &&Ranking| made.group == group && made.search == *search.get();
    if let Some(ranking) = rankings.iter().find(is_meant) {
        return Ok(ranking.clone());
    }
    let (mut best, mut matched, mut after, mut above) = (Vec::new(), 0, None, None);
    loop {
        let (at, part) = search_part(rpc, group, &search, after, above, usize::MAX).await?;
        matched += part.matched as u64;
        best.extend(part.found);
        // The sort is stable, and the parts come in the order of names.
        best.sort_by_key(|(rank, _)| Reverse(*rank));
        best.truncate(RANKED_MAX);
        if best.len() == RANKED_MAX {
            above = best.last().map(|(rank, _)| *rank);
        }
        after = part.next;
        if after.is_none() {
            let locks = Arc::new(best.into_iter().map(|(_, lock)| lock).collect());
            let made = Instant::now();
            let search = search.into_inner();
            let ranking = Ranking { group, search, made, at, matched, locks };
            if rankings.len() >= RANKINGS_KEPT.max(rpc.membership.groups.all().len()) {
                rankings.remove(0);
            }
            rankings.push(ranking.clone());
            return Ok(ranking);
        }
    }
}

async fn search_part(
    rpc: &Rpc,
    group: GroupId,
    search: &Admitted<LockSearch>,
    after: Option<String>,
    above: Option<u64>,
    found_max: usize,
) -> Result<(LogicalTime, LockSearchPart), Failure> {
    let part = Query::SearchLocks { search: search.get().clone(), after, above, found_max };
    let answer = rpc.door.read_for(group, search, part).await?;
    match answer.data {
        ReadData::LockSearch(part) => Ok((answer.at, part)),
        _ => Err(bug("the shard read something else")),
    }
}
