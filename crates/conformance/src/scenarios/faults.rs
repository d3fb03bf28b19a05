//! Scenarios with faults.

use std::time::{Duration, Instant};

use holdfast_client::AcquireError;
use serde_json::json;

use super::locks::why;
use crate::driver::Reply;
use crate::finding::{Checked, broken, ensure, violation};
use crate::stage::{RECOVERY, Stage};

const TTL: Duration = Duration::from_secs(6);
const LONG_TTL: Duration = Duration::from_secs(30);
const WAIT: Duration = Duration::from_secs(20);

/// A broken connection costs nothing: hold and token stay.
pub(super) async fn connection_broken(stage: &mut Stage<'_>) -> Checked {
    stage.connect("c", TTL).await?;
    let token = stage.acquire(json!({"client": "c", "name": "a"})).await?;
    for round in 0..5 {
        stage.cluster.network.break_clients();
        let name = format!("b{round}");
        stage.acquire(json!({"client": "c", "name": name, "wait_ms": 5000})).await?;
        let now = stage.held("a", "a").await?;
        ensure(now == token, || format!("the token became {now}"))?;
    }
    stage.release("a", "released").await?;
    let granted = stage.cluster.audit.count("granted", &stage.name("a"));
    ensure(granted == 1, || format!("{granted} grants for one acquire"))?;
    stage.close("c").await
}

/// A cut that is shorter than the TTL costs nothing either.
pub(super) async fn short_cut(stage: &mut Stage<'_>) -> Checked {
    stage.connect("c", LONG_TTL).await?;
    let token = stage.acquire(json!({"client": "c", "name": "a"})).await?;
    stage.cluster.network.client_wires().for_each(|wire| wire.cut());
    tokio::time::sleep(Duration::from_secs(3)).await;
    stage.held("a", "a").await?;
    stage.cluster.network.heal();
    stage.acquire_again(json!({"client": "c", "name": "b", "wait_ms": 10_000})).await?;
    let now = stage.held("a", "a").await?;
    ensure(now == token, || format!("the token became {now}"))?;
    stage.release("a", "released").await?;
    stage.close("c").await
}

/// Cut off, a guard gives no token past 98 % of the TTL, and says so.
pub(super) async fn cut_off(stage: &mut Stage<'_>) -> Checked {
    let ttl = TTL + Duration::from_secs(2);
    stage.connect("c", ttl).await?;
    stage.acquire(json!({"client": "c", "name": "a"})).await?;
    // The last request that is answered is sent just before the cut.
    stage.acquire(json!({"client": "c", "name": "b"})).await?;
    lose_when_cut_off(stage, ttl, ["a", "b"]).await?;
    stage.close("c").await
}

/// The guards of these locks are lost when the client, which has this TTL, is cut off.
pub(super) async fn lose_when_cut_off(
    stage: &mut Stage<'_>,
    ttl: Duration,
    [name, other]: [&str; 2],
) -> Checked {
    stage.cluster.network.client_wires().for_each(|wire| wire.cut());
    let cut = Instant::now();
    // Whatever was answered was sent before the cut.
    let bound = ttl.mul_f64(0.98) - Duration::from_millis(2);
    let loss = stage.driver.send(json!({"op": "await_loss", "guard": other})).await?;
    let mut gave_up = None;
    while cut.elapsed() < ttl + Duration::from_millis(200) {
        let pending = stage.driver.send(json!({"op": "token", "guard": name})).await?;
        let asked = pending.asked.at;
        match stage.token_of(name, pending).await? {
            Ok(_) if asked > cut + bound => {
                let late = asked - cut - bound;
                return violation(format!(
                    "a token {late:?} after 98 % of the TTL, and no request was answered meanwhile"
                ));
            }
            Ok(_) => ensure(gave_up.is_none(), || "a lost guard gave a token again".to_owned())?,
            Err(_) => gave_up = Some(Instant::now()),
        }
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
    ensure(gave_up.is_some(), || "the guard was never lost".to_owned())?;
    loss.ok().await?;
    // Another client gets the lock when the session has ended.
    let next = stage.rival.lock(stage.name(name)).wait(WAIT).acquire().await.map_err(broken)?;
    stage.cluster.network.heal();
    stage.lost(name, name, "").await?;
    next.release().await.map_err(broken)?;
    stage
        .acquire_again(json!({"client": "c", "name": name, "wait_ms": 10_000, "as": "next"}))
        .await
        .map(drop)
}

/// The answer to an acquire is lost after the cluster carried it out: the acquire has one effect.
pub(super) async fn answer_lost_acquire(stage: &mut Stage<'_>) -> Checked {
    stage.connect("c", LONG_TTL).await?;
    stage.acquire(json!({"client": "c", "name": "warm-up"})).await?;
    lose_answers_to_acquires(stage, ["reader", "writer"]).await?;
    stage.close("c").await
}

/// The client, which has a session for them, takes the first lock shared and the second one for itself.
pub(super) async fn lose_answers_to_acquires(stage: &mut Stage<'_>, names: [&str; 2]) -> Checked {
    for (name, mode) in names.into_iter().zip(["shared", "exclusive"]) {
        stage.cluster.network.client_wires().for_each(|wire| wire.cut_answers());
        let pending =
            stage.start_acquire(json!({"client": "c", "name": name, "mode": mode})).await?;
        stage.cluster.audit.wait_for_event("granted", &stage.name(name)).await?;
        stage.cluster.network.break_clients();
        stage.cluster.network.heal();
        stage.granted(pending).await?;
        stage.held(name, name).await?;
        stage.release(name, "released").await?;
        stage.cluster.audit.wait_for_event("released", &stage.name(name)).await?;
        let granted = stage.cluster.audit.count("granted", &stage.name(name));
        ensure(granted == 1, || format!("{granted} grants for one acquire of {name}"))?;
    }
    Ok(())
}

/// The answer to a release is lost after the cluster carried it out: the caller learns that it was released.
pub(super) async fn answer_lost_release(stage: &mut Stage<'_>) -> Checked {
    stage.connect("c", LONG_TTL).await?;
    stage.acquire(json!({"client": "c", "name": "a"})).await?;
    lose_answer_to_release(stage, "a").await?;
    stage.close("c").await
}

/// The client holds the lock.
pub(super) async fn lose_answer_to_release(stage: &mut Stage<'_>, name: &str) -> Checked {
    stage.cluster.network.client_wires().for_each(|wire| wire.cut_answers());
    let release = stage.driver.send(json!({"op": "release", "guard": name})).await?;
    stage.cluster.audit.wait_for_event("released", &stage.name(name)).await?;
    stage.cluster.network.break_clients();
    stage.cluster.network.heal();
    let released = release.ok().await?;
    ensure(released["outcome"] == "released", || {
        format!("the lock was released, and the driver says {released}")
    })
}

/// Requests do not arrive, and answers would: the client notices, and its session lives on.
pub(super) async fn requests_cut(stage: &mut Stage<'_>) -> Checked {
    stage.connect("c", LONG_TTL).await?;
    let token = stage.acquire(json!({"client": "c", "name": "a"})).await?;
    stage.cluster.network.client_wires().for_each(|wire| wire.cut_requests());
    let pending = stage.start_acquire(json!({"client": "c", "name": "b", "wait_ms": 5000})).await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    stage.cluster.network.heal();
    stage.granted(pending).await?;
    let now = stage.held("a", "a").await?;
    ensure(now == token, || format!("the token became {now}"))?;
    let granted = stage.cluster.audit.count("granted", &stage.name("b"));
    ensure(granted <= 1, || format!("{granted} grants for one acquire"))?;
    stage.close("c").await
}

/// The leader is killed: holds and waits survive.
pub(super) async fn leader_killed(stage: &mut Stage<'_>) -> Checked {
    stage.connect("c", LONG_TTL).await?;
    let token = stage.acquire(json!({"client": "c", "name": "a"})).await?;
    let held = stage.rival.lock(stage.name("b")).acquire().await.map_err(broken)?;
    let waiting =
        stage.start_acquire(json!({"client": "c", "name": "b", "wait_ms": 30_000})).await?;
    stage.cluster.audit.wait_for_event("queued", &stage.name("b")).await?;
    let leader = stage.cluster.leader().await?;
    stage.cluster.nodes.kill(&[leader])?;
    stage.acquire(json!({"client": "c", "name": "d", "wait_ms": 20_000})).await?;
    let now = stage.held("a", "a").await?;
    ensure(now == token, || format!("the token became {now}"))?;
    held.release().await.map_err(broken)?;
    stage.granted(waiting).await?;
    stage.release("a", "released").await?;
    stage.cluster.nodes.start(leader)?;
    stage.cluster.leader().await?;
    let queued = stage.cluster.audit.count("queued", &stage.name("b"));
    ensure(queued == 1, || format!("{queued} places in the queue for one acquire"))?;
    stage.close("c").await
}

/// Another node leads: nothing is lost.
pub(super) async fn leader_moved(stage: &mut Stage<'_>) -> Checked {
    stage.connect("c", LONG_TTL).await?;
    let token = stage.acquire(json!({"client": "c", "name": "a"})).await?;
    for round in 0..3 {
        stage.move_leader(1).await?;
        let name = format!("b{round}");
        stage.acquire(json!({"client": "c", "name": name, "wait_ms": 10_000})).await?;
        let now = stage.held("a", "a").await?;
        ensure(now == token, || format!("the token became {now}"))?;
    }
    stage.close("c").await
}

/// The process stands still for longer than its TTL. Its first act afterwards is to ask for the token.
pub(super) async fn stopped_past_ttl(stage: &mut Stage<'_>) -> Checked {
    stage.connect("c", Duration::from_secs(2)).await?;
    lose_while_stopped(stage, "a").await?;
    stage.close("c").await
}

/// The client has a TTL of a few seconds.
pub(super) async fn lose_while_stopped(stage: &mut Stage<'_>, name: &str) -> Checked {
    stage.acquire(json!({"client": "c", "name": name})).await?;
    stage.held(name, name).await?;
    stage.driver.stop()?;
    let next = stage.rival.lock(stage.name(name)).wait(WAIT).acquire().await;
    let first = stage.driver.send(json!({"op": "token", "guard": name})).await?;
    stage.driver.go_on()?;
    let answer = stage.token_of(name, first).await?;
    let next = next.map_err(broken)?;
    if let Ok(token) = answer {
        return violation(format!(
            "the first call after a pause gave the token {token}, and another client holds the lock"
        ));
    }
    next.release().await.map_err(broken)?;
    stage
        .acquire_again(json!({"client": "c", "name": name, "wait_ms": 10_000, "as": "next"}))
        .await?;
    stage.lost(name, name, "").await
}

/// A caller goes away: its place in the queue goes, too.
pub(super) async fn cancel_leaves_no_waiter(stage: &mut Stage<'_>) -> Checked {
    cancel_wait(stage, "a").await
}

pub(super) async fn cancel_wait(stage: &mut Stage<'_>, short: &str) -> Checked {
    stage.connect("c", LONG_TTL).await?;
    let name = stage.name(short);
    let held = stage.rival.lock(&name).acquire().await.map_err(broken)?;
    let (_, waiting) =
        stage.start_acquire(json!({"client": "c", "name": short, "wait_ms": 30_000})).await?;
    stage.cluster.audit.wait_for_event("queued", &name).await?;
    stage.driver.ok(json!({"op": "cancel", "call": waiting.id})).await?;
    waiting.err("cancelled").await?;
    stage.cluster.audit.wait_for_event("wait_ended", &name).await?;
    held.release().await.map_err(broken)?;
    let next = stage.rival.lock(&name).acquire().await;
    ensure(next.is_ok(), || "a waiter that was cancelled got the lock".to_owned())?;
    stage.close("c").await
}

/// A cancel meets the grant: the driver holds the lock and knows it, or does not hold it.
pub(super) async fn cancel_races_grant(stage: &mut Stage<'_>) -> Checked {
    stage.connect("c", LONG_TTL).await?;
    for round in 0..20_u64 {
        let short = format!("a{round}");
        let name = stage.name(&short);
        let held = stage.rival.lock(&name).acquire().await.map_err(broken)?;
        let (_, waiting) =
            stage.start_acquire(json!({"client": "c", "name": short, "wait_ms": 30_000})).await?;
        stage.cluster.audit.wait_for_event("queued", &name).await?;
        let cancel = async {
            tokio::time::sleep(Duration::from_micros(round * 300)).await;
            stage.driver.call(json!({"op": "cancel", "call": waiting.id})).await
        };
        let (released, cancelled) = tokio::join!(held.release(), cancel);
        released.map_err(broken)?;
        cancelled?;
        match waiting.reply().await? {
            Reply::Ok(_) => stage.release(&short, "released").await?,
            Reply::Err(error) if error["kind"] == "cancelled" => {}
            other => return violation(format!("neither granted nor cancelled: {other}")),
        }
        // Either way the lock is free within a moment.
        match stage.rival.lock(&name).wait(RECOVERY).acquire().await {
            Ok(guard) => drop(guard.release().await),
            Err(AcquireError::TimedOut) => {
                return violation(format!("{name} stayed held after its caller went away"));
            }
            Err(error) => return Err(broken(error)),
        }
    }
    stage.close("c").await
}

/// A hold ends while its client has no connection: the client is told after its resume.
pub(super) async fn broken_while_away(stage: &mut Stage<'_>) -> Checked {
    stage.connect("c", LONG_TTL).await?;
    let token = stage.acquire(json!({"client": "c", "name": "a"})).await?;
    let kept = stage.acquire(json!({"client": "c", "name": "kept"})).await?;
    break_while_away(stage, ("a", token), ("kept", kept)).await?;
    stage.close("c").await
}

/// The client holds both locks. The first one is broken.
pub(super) async fn break_while_away(
    stage: &mut Stage<'_>,
    (name, token): (&str, u64),
    (kept_name, kept): (&str, u64),
) -> Checked {
    stage.cluster.network.client_wires().for_each(|wire| wire.cut());
    stage.cluster.network.break_clients();
    let full_name = stage.name(name);
    stage.cluster.calls()?.break_lock(&why(), &full_name, token).await.map_err(broken)?;
    let loss = stage.driver.send(json!({"op": "await_loss", "guard": name})).await?;
    stage.cluster.network.heal();
    loss.ok().await?;
    stage.lost(name, name, "").await?;
    let now = stage.held(kept_name, kept_name).await?;
    ensure(now == kept, || format!("the token of the other lock became {now}"))
}

/// A forked child has none of its parent's locks, and a session of its own.
pub(super) async fn fork(stage: &mut Stage<'_>) -> Checked {
    stage.connect("c", TTL).await?;
    let token = stage.acquire(json!({"client": "c", "name": "a"})).await?;
    let request = json!({
        "op": "fork", "client": "c", "guard": "a", "busy": stage.name("a"), "free": stage.name("child"),
    });
    let child = stage.driver.ok(request).await?;
    ensure(child["token"]["kind"] == "lost", || format!("the child's guard: {}", child["token"]))?;
    ensure(child["busy"]["kind"] == "busy", || {
        format!("the child asks for its parent's lock: {}", child["busy"])
    })?;
    ensure(child["free"]["token"].is_string(), || {
        format!("the child's own lock: {}", child["free"])
    })?;
    let now = stage.held("a", "a").await?;
    ensure(now == token, || format!("the parent's token became {now}"))?;
    let of = |name: &str| {
        let events = stage.cluster.audit.of(&stage.name(name));
        events.into_iter().find(|event| event.kind == "granted").map(|event| event.session)
    };
    stage.cluster.audit.wait_for_event("granted", &stage.name("child")).await?;
    ensure(of("a") != of("child"), || "the child used its parent's session".to_owned())?;
    stage.close("c").await
}

/// The program blocks what the library's session runs on, for longer than the TTL. The first thing that it does then is
/// to ask for the token.
pub(super) async fn blocked_loop(stage: &mut Stage<'_>) -> Checked {
    stage.connect("c", Duration::from_secs(2)).await?;
    stage.acquire(json!({"client": "c", "name": "a"})).await?;
    let block = stage.driver.send(json!({"op": "block", "ms": 8000, "guard": "a"})).await?;
    let next = stage.rival.lock(stage.name("a")).wait(WAIT).acquire().await.map_err(broken)?;
    match block.reply().await? {
        Reply::Err(error) if error["kind"] == "lost" => {}
        other => {
            return violation(format!(
                "the first call after a block, when another client holds the lock: {other}"
            ));
        }
    }
    next.release().await.map_err(broken)?;
    stage
        .acquire_again(json!({"client": "c", "name": "a", "wait_ms": 10_000, "as": "next"}))
        .await?;
    stage.lost("a", "a", "").await?;
    stage.close("c").await
}
