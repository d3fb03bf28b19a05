//! Watches of locks, and observations of elections.

use std::time::Duration;

use holdfast_client::Guard;
use serde_json::{Value, json};

use super::locks::TTL;
use crate::finding::{Checked, broken, ensure, violation};
use crate::stage::Stage;

/// How long after it happened, or after a fault is over, something may be told.
const PATIENCE: Duration = Duration::from_secs(20);

/// What happened to a lock, as a watch tells it: the lock, the kind and the token.
pub(super) type SeenEvent = (String, String, String);

/// A watch tells what is, then what happens.
pub(super) async fn watch(stage: &mut Stage<'_>) -> Checked {
    stage.connect("c", TTL).await?;
    let held = stage.rival.lock(stage.name("held")).acquire().await.map_err(broken)?;
    begin_watch(stage, "w").await?;
    let snapshot = read_snapshot(stage, "w").await?;
    let lock = snapshot.iter().find(|lock| lock["name"] == stage.name("held"));
    ensure(lock.is_some_and(|lock| lock["holders"] == 1), || {
        format!("one lock is held, and the snapshot is {snapshot:?}")
    })?;
    let expected = take_and_release(stage, "a").await?;
    read_events(stage, "w", &expected).await?;
    // What the watching client does itself is told, too.
    let token = stage.acquire(json!({"client": "c", "name": "own"})).await?.to_string();
    let own = |kind: &str| (stage.name("own"), kind.to_owned(), token.clone());
    read_events(stage, "w", &[own("granted")]).await?;
    stage.release("own", "released").await?;
    read_events(stage, "w", &[own("released")]).await?;
    stage.driver.ok(json!({"op": "end_watch", "watch": "w"})).await?;
    held.release().await.map_err(broken)?;
    without_snapshot(stage).await?;
    stage.close("c").await
}

/// From when on it tells is not known, so something happens until it does.
async fn without_snapshot(stage: &Stage<'_>) -> Checked {
    let prefix = stage.name("");
    let request =
        json!({"op": "watch", "client": "c", "prefix": prefix, "as": "n", "snapshot": false});
    stage.driver.ok(request).await?;
    let mut next = Box::pin(next_items(stage, "n"));
    for _ in 0..200 {
        take_and_release(stage, "again").await?;
        let Ok(items) = tokio::time::timeout(Duration::from_millis(100), &mut next).await else {
            continue;
        };
        let items = items?;
        let is_event = |item: &Value| item.get("event").is_some();
        ensure(items.iter().all(is_event), || {
            format!("no snapshot was asked for, and the watch tells {items:?}")
        })?;
        return stage.driver.ok(json!({"op": "end_watch", "watch": "n"})).await.map(drop);
    }
    violation("a watch without a snapshot tells no events")
}

/// The connection breaks again and again. Each event is told once, in order.
pub(super) async fn watch_resumes(stage: &mut Stage<'_>) -> Checked {
    stage.connect("c", TTL).await?;
    begin_watch(stage, "w").await?;
    read_snapshot(stage, "w").await?;
    for round in 0..5 {
        let before = take_and_release(stage, &format!("before{round}")).await?;
        read_events(stage, "w", &before).await?;
        stage.cluster.network.client_wires().for_each(|wire| wire.cut());
        stage.cluster.network.break_clients();
        let meanwhile = take_and_release(stage, &format!("meanwhile{round}")).await?;
        stage.cluster.network.heal();
        read_events(stage, "w", &meanwhile).await?;
    }
    stage.driver.ok(json!({"op": "end_watch", "watch": "w"})).await?;
    stage.close("c").await
}

/// An observation tells each leader, each value and each vacancy.
pub(super) async fn observe(stage: &mut Stage<'_>) -> Checked {
    stage.connect("c", TTL).await?;
    begin_observation(stage, "o").await?;
    read_changes(stage, "o", &[vacant()]).await?;
    let leadership = lead(stage, "one").await?;
    read_changes(stage, "o", &[leader("one", &leadership)?]).await?;
    leadership.proclaim("two").await.map_err(broken)?;
    let two = leader("two", &leadership)?;
    read_changes(stage, "o", std::slice::from_ref(&two)).await?;
    // A later observation begins with the present leader.
    begin_observation(stage, "late").await?;
    read_changes(stage, "late", &[two]).await?;
    leadership.release().await.map_err(broken)?;
    for watch in ["o", "late"] {
        read_changes(stage, watch, &[vacant()]).await?;
        stage.driver.ok(json!({"op": "end_watch", "watch": watch})).await?;
    }
    stage.close("c").await
}

/// Leaders come and go while the connection is broken. The observation tells each once, in order.
pub(super) async fn observe_resumes(stage: &mut Stage<'_>) -> Checked {
    stage.connect("c", TTL).await?;
    begin_observation(stage, "o").await?;
    read_changes(stage, "o", &[vacant()]).await?;
    for round in 0..3 {
        stage.cluster.network.client_wires().for_each(|wire| wire.cut());
        stage.cluster.network.break_clients();
        let mut meanwhile = Vec::new();
        for turn in 0..2 {
            let value = format!("{round}-{turn}");
            let leadership = lead(stage, &value).await?;
            meanwhile.push(leader(&value, &leadership)?);
            leadership.release().await.map_err(broken)?;
            meanwhile.push(vacant());
        }
        stage.cluster.network.heal();
        read_changes(stage, "o", &meanwhile).await?;
    }
    stage.driver.ok(json!({"op": "end_watch", "watch": "o"})).await?;
    stage.close("c").await
}

pub(super) async fn begin_watch(stage: &Stage<'_>, watch: &str) -> Checked {
    let prefix = stage.name("");
    let request = json!({"op": "watch", "client": "c", "prefix": prefix, "as": watch});
    stage.driver.ok(request).await.map(drop)
}

async fn begin_observation(stage: &Stage<'_>, watch: &str) -> Checked {
    let request =
        json!({"op": "observe", "client": "c", "name": stage.name("election"), "as": watch});
    stage.driver.ok(request).await.map(drop)
}

async fn next_items(stage: &Stage<'_>, watch: &str) -> Checked<Vec<Value>> {
    let next = stage.driver.ok(json!({"op": "next", "watch": watch}));
    let Ok(told) = tokio::time::timeout(PATIENCE, next).await else {
        return violation(format!("`{watch}` tells nothing within {PATIENCE:?}"));
    };
    let told = told?;
    match told["items"].as_array() {
        Some(items) if !items.is_empty() => Ok(items.clone()),
        _ => violation(format!("`next` tells one item at least, and not {told}")),
    }
}

/// The locks of the snapshot, up to its end. Nothing else may come before the end.
pub(super) async fn read_snapshot(stage: &Stage<'_>, watch: &str) -> Checked<Vec<Value>> {
    let mut locks = Vec::new();
    loop {
        let mut items = next_items(stage, watch).await?.into_iter();
        for item in items.by_ref() {
            if item["snapshot_complete"] == true {
                let rest: Vec<Value> = items.collect();
                ensure(rest.is_empty(), || {
                    format!("nothing happened, and the watch tells {rest:?}")
                })?;
                return Ok(locks);
            }
            ensure(item["lock"].is_object(), || format!("{item} within the snapshot"))?;
            locks.push(item["lock"].clone());
        }
    }
}

/// Exactly these events come next.
async fn read_events(stage: &Stage<'_>, watch: &str, expected: &[SeenEvent]) -> Checked {
    let told = next_events(stage, watch, expected.len()).await?;
    ensure(told == expected, || format!("the watch tells {told:?}, and not {expected:?}"))
}

/// The next events, so many at least. Nothing but events may come.
pub(super) async fn next_events(
    stage: &Stage<'_>,
    watch: &str,
    count: usize,
) -> Checked<Vec<SeenEvent>> {
    let mut told = Vec::new();
    while told.len() < count {
        for item in next_items(stage, watch).await? {
            let event = &item["event"];
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            ensure(event.is_object(), || format!("{item}, though nothing was missed"))?;
            told.push((text(&event["names"][0]), text(&event["kind"]), text(&event["token"])));
        }
    }
    Ok(told)
}

/// Exactly these changes come next.
async fn read_changes(stage: &Stage<'_>, watch: &str, expected: &[Value]) -> Checked {
    let mut told = Vec::new();
    while told.len() < expected.len() {
        told.extend(next_items(stage, watch).await?);
    }
    ensure(told == expected, || format!("the observation tells {told:?}, and not {expected:?}"))
}

/// The rival takes a lock and gives it back. Returns what a watch must tell.
pub(super) async fn take_and_release(stage: &Stage<'_>, name: &str) -> Checked<Vec<SeenEvent>> {
    let name = stage.name(name);
    let guard = stage.rival.lock(&name).acquire().await.map_err(broken)?;
    let token = guard.token().map_err(broken)?.to_string();
    guard.release().await.map_err(broken)?;
    let told = |kind: &str| (name.clone(), kind.to_owned(), token.clone());
    Ok(vec![told("granted"), told("released")])
}

async fn lead(stage: &Stage<'_>, value: &str) -> Checked<Guard> {
    let name = stage.name("election");
    stage.rival.lock(name).metadata(value).acquire().await.map_err(broken)
}

fn leader(value: &str, leadership: &Guard) -> Checked<Value> {
    let epoch = leadership.token().map_err(broken)?.to_string();
    Ok(json!({"leader": {"value": value, "epoch": epoch}}))
}

fn vacant() -> Value {
    json!({"vacant": true})
}
