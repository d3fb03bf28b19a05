//! What the pages show, asked for page by page.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use axum::Json;
use holdfast_proto::v1::{
    EventKind, ListOrder, ListRequest, ListSessionsRequest, LockSummary, Mode, SessionInfo,
    WatchEvent,
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::api_error::ApiError;
use crate::query_params::QueryParams;
use crate::source::{RecentEvents, Source};
use crate::{Dashboard, shape};

const PAGE_SIZE: u32 = 50;
const PAGE_SIZE_MAX: u32 = 200;
const HISTORY_MAX: usize = 50;
const RECENT_MAX: usize = 200;
/// Sessions are looked through that many at a time, and that many in all.
pub(crate) const SESSIONS_AT_A_TIME: u32 = 1_000;
pub(crate) const SESSIONS_MAX: usize = 20_000;
const ELECTIONS_MAX: u32 = 200;

type Answer = Result<Json<Value>, ApiError>;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct LocksQuery {
    prefix: String,
    contains: String,
    /// The public id of a session.
    holder: String,
    sort: String,
    page: String,
    size: Option<u32>,
}

pub(crate) async fn locks<S: Source>(
    dashboard: Dashboard<S>,
    QueryParams(ask): QueryParams<LocksQuery>,
) -> Answer {
    let order = match ask.sort.as_str() {
        "" | "name" => ListOrder::Name,
        "queue" => ListOrder::QueueLength,
        "age" => ListOrder::HoldAge,
        other => {
            return Err(ApiError::bad_request(format!(
                "sort is name, queue or age, not '{other}'"
            )));
        }
    };
    let request = ListRequest {
        prefix: ask.prefix,
        contains: ask.contains,
        holder_public_session_id: ask.holder,
        order: order.into(),
        page: ask.page,
        page_size: ask.size.unwrap_or(PAGE_SIZE).clamp(1, PAGE_SIZE_MAX),
        ..Default::default()
    };
    let list = dashboard.source.list(request).await?;
    Ok(Json(json!({
        "locks": list.locks.iter().map(shape::summary).collect::<Vec<_>>(),
        "next": list.next_page,
        "matched": list.matched,
    })))
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LockQuery {
    name: String,
}

pub(crate) async fn lock<S: Source>(
    dashboard: Dashboard<S>,
    QueryParams(ask): QueryParams<LockQuery>,
) -> Answer {
    let why = dashboard.source.why(ask.name.clone()).await?;
    let wanted = RecentEvents { name: Some(ask.name), max: HISTORY_MAX, ..RecentEvents::default() };
    let history = dashboard.source.recent(wanted);
    Ok(Json(json!({
        "lock": why.status.as_ref().map(shape::status),
        "why": shape::why(&why),
        "history": history.iter().rev().map(shape::event).collect::<Vec<_>>(),
    })))
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RecentQuery {
    prefix: String,
    kinds: String,
}

pub(crate) async fn recent<S: Source>(
    dashboard: Dashboard<S>,
    QueryParams(ask): QueryParams<RecentQuery>,
) -> Answer {
    let kinds = kinds(&ask.kinds)?;
    let wanted = RecentEvents { name: None, prefix: ask.prefix, kinds, max: RECENT_MAX };
    let events = dashboard.source.recent(wanted);
    Ok(Json(json!({ "events": events.iter().rev().map(shape::event).collect::<Vec<_>>() })))
}

pub(crate) fn kinds(names: &str) -> Result<Vec<i32>, ApiError> {
    let names = names.split(',').filter(|name| !name.is_empty());
    names
        .map(|name| {
            let kind = shape::kind_from(name);
            let kind = kind
                .ok_or_else(|| ApiError::bad_request(format!("there is no event kind '{name}'")))?;
            Ok(kind.into())
        })
        .collect()
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct SessionsQuery {
    /// In the owner or the id.
    contains: String,
    sort: String,
    page: String,
}

/// Cluster-wide there are few of them compared with locks: they are looked through here.
pub(crate) async fn sessions<S: Source>(
    dashboard: Dashboard<S>,
    QueryParams(ask): QueryParams<SessionsQuery>,
) -> Answer {
    let first = match ask.page.as_str() {
        "" => 0,
        page => page.parse::<usize>().map_err(|_| ApiError::bad_request("page is a number"))?,
    };
    let (mut all, mut seen, mut page) = (Vec::new(), 0, String::new());
    let cut = loop {
        let request = ListSessionsRequest { page_size: SESSIONS_AT_A_TIME, page };
        let part = dashboard.source.sessions(request).await?;
        seen += part.sessions.len();
        all.extend(part.sessions.into_iter().filter(|session| has(session, &ask.contains)));
        page = part.next_page;
        if page.is_empty() || seen >= SESSIONS_MAX {
            break !page.is_empty();
        }
    };
    match ask.sort.as_str() {
        "" | "holds" => all.sort_by_key(|one| Reverse((one.hold_count, one.wait_count))),
        "age" => all.sort_by_key(|one| Reverse(one.age_ms)),
        "heard" => all.sort_by_key(|one| one.remaining_ms),
        other => {
            return Err(ApiError::bad_request(format!(
                "sort is holds, age or heard, not '{other}'"
            )));
        }
    }
    let end = first.saturating_add(PAGE_SIZE as usize).min(all.len());
    let shown = all.get(first..end).unwrap_or_default();
    Ok(Json(json!({
        "sessions": shown.iter().map(shape::session).collect::<Vec<_>>(),
        "matched": all.len(),
        "cut": cut,
        "next": if end < all.len() { end.to_string() } else { String::new() },
    })))
}

fn has(session: &SessionInfo, text: &str) -> bool {
    if text.is_empty() {
        return true;
    }
    let text = text.to_lowercase();
    let owner = session.owner.clone().unwrap_or_default();
    [owner.application, owner.host, owner.note, session.public_id.clone()]
        .iter()
        .any(|field| field.to_lowercase().contains(&text))
}

pub(crate) async fn freezes<S: Source>(dashboard: Dashboard<S>) -> Answer {
    let freezes = dashboard.source.freezes().await?;
    Ok(Json(json!({
        "freezes": freezes.freezes.iter().map(shape::frozen).collect::<Vec<_>>(),
    })))
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ElectionsQuery {
    prefix: String,
}

/// The owner of what `holdfast lock` or `acquire` holds ends so, in brackets or alone.
fn may_be_election(lock: &LockSummary) -> bool {
    let application = lock.owner.as_ref().map_or("", |owner| owner.application.as_str());
    let command = application.strip_suffix(')').unwrap_or(application);
    let is_of = |name: &str| {
        command.strip_suffix(name).is_some_and(|before| before.is_empty() || before.ends_with('('))
    };
    !is_of("holdfast lock") && !is_of("holdfast acquire")
}

/// An election is an exclusive lock whose holder publishes a value. `holdfast lock` and `holdfast acquire` name themselves
/// in the owner: what they hold with a reason is no election. What a program holds through the library with metadata looks
/// like an election, and is shown. Those that are vacant are in no table: that they were led lately is known from
/// the events.
pub(crate) async fn elections<S: Source>(
    dashboard: Dashboard<S>,
    QueryParams(ask): QueryParams<ElectionsQuery>,
) -> Answer {
    let request = ListRequest {
        prefix: ask.prefix.clone(),
        only_with_value: true,
        order: ListOrder::Name.into(),
        page_size: ELECTIONS_MAX,
        ..Default::default()
    };
    let list = dashboard.source.list(request).await?;
    let led: Vec<&LockSummary> = list.locks.iter().filter(|lock| may_be_election(lock)).collect();
    let wanted = RecentEvents { prefix: ask.prefix, max: usize::MAX, ..Default::default() };
    let events = dashboard.source.recent(wanted);
    let mut vacant: BTreeMap<&str, (&WatchEvent, Option<&WatchEvent>)> = BTreeMap::new();
    let mut terms: BTreeMap<&str, u64> = BTreeMap::new();
    for event in &events {
        let Some(name) = event.names.first() else { continue };
        match event.kind() {
            EventKind::Granted if event.mode() == Mode::Exclusive && !event.metadata.is_empty() => {
                *terms.entry(name).or_default() += 1;
                vacant.insert(name, (event, None));
            }
            EventKind::Released
            | EventKind::Expired
            | EventKind::Broken
            | EventKind::Wounded
            | EventKind::Killed
            | EventKind::Transferred => {
                if let Some((led, ended)) = vacant.get_mut(name.as_str())
                    && led.token == event.token
                {
                    *ended = Some(event);
                }
            }
            _ => {}
        }
    }
    for lock in &list.locks {
        vacant.remove(lock.name.as_str());
    }
    let vacant = vacant.into_iter().filter_map(|(name, (led, ended))| {
        let ended = ended?;
        Some(json!({
            "name": name,
            "last": shape::event(led),
            "ended": shape::event(ended),
        }))
    });
    Ok(Json(json!({
        "led": led.iter().map(|lock| {
            let mut shown = shape::summary(lock);
            shown["terms"] = json!(terms.get(lock.name.as_str()).copied().unwrap_or(0));
            shown
        }).collect::<Vec<_>>(),
        "vacant": vacant.take(ELECTIONS_MAX as usize).collect::<Vec<_>>(),
        "more": !list.next_page.is_empty(),
    })))
}

#[cfg(test)]
mod tests {
    use holdfast_proto::v1::Owner;

    use super::*;

    #[test]
    fn a_lock_taken_by_the_command_line_is_no_election() {
        for (application, expected) in [
            ("holdfast lock", false),
            ("billing (holdfast lock)", false),
            ("holdfast acquire", false),
            ("holdfast elect", true),
            ("billing (holdfast elect)", true),
            ("worker", true),
            ("my-holdfast lock", true),
        ] {
            let owner = Some(Owner { application: application.into(), ..Default::default() });
            let lock = LockSummary { owner, ..Default::default() };
            assert_eq!(may_be_election(&lock), expected, "{application}");
        }
    }
}
