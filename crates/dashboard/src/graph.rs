//! `/api/graph`: who waits for whom, around the longest queues; and the cycles that were refused.

use axum::Json;
use holdfast_proto::v1::{EventKind, ListOrder, ListRequest};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::api_error::ApiError;
use crate::source::{RecentEvents, Source};
use crate::{Dashboard, shape};

/// A larger drawing is not readable.
const LOCKS_MAX: u32 = 30;
const WAITERS_SHOWN_MAX: usize = 8;
const HOLDERS_SHOWN_MAX: usize = 4;
const CYCLES_MAX: usize = 50;

pub(crate) async fn serve<S: Source>(dashboard: Dashboard<S>) -> Result<Json<Value>, ApiError> {
    let request = ListRequest {
        order: ListOrder::QueueLength.into(),
        page_size: LOCKS_MAX,
        ..Default::default()
    };
    let list = dashboard.source.list(request).await?;
    let mut asked = JoinSet::new();
    for lock in list.locks.into_iter().filter(|lock| lock.waiter_count > 0) {
        let source = dashboard.source.clone();
        asked.spawn(async move { source.status(lock.name).await });
    }
    let mut locks = Vec::new();
    while let Some(answer) = asked.join_next().await {
        // It may have been freed since.
        let waited_for = answer.ok().and_then(Result::ok).filter(|status| status.waiter_count > 0);
        locks.extend(waited_for);
    }
    locks.sort_by(|one, other| {
        (other.waiter_count, &one.name).cmp(&(one.waiter_count, &other.name))
    });
    let shown = locks.iter().map(|lock| {
        json!({
            "name": lock.name,
            "holder_count": lock.holder_count,
            "waiter_count": lock.waiter_count,
            "holders": lock.holders.iter().take(HOLDERS_SHOWN_MAX).map(shape::holder)
                .collect::<Vec<_>>(),
            "waiters": lock.waiters.iter().take(WAITERS_SHOWN_MAX).map(shape::waiter)
                .collect::<Vec<_>>(),
        })
    });
    let refused = dashboard.source.recent(RecentEvents {
        kinds: vec![EventKind::Refused.into()],
        max: usize::MAX,
        ..Default::default()
    });
    let cycles = refused.iter().rev().filter(|event| !event.cycle.is_empty());
    Ok(Json(json!({
        "locks": shown.collect::<Vec<_>>(),
        "more": list.next_page.parse::<u64>().is_ok() && locks.len() >= LOCKS_MAX as usize,
        "cycles": cycles.take(CYCLES_MAX).map(shape::event).collect::<Vec<_>>(),
    })))
}
