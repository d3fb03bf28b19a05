//! Scenarios without faults: every mode, and every kind of error.

use std::time::Duration;

use holdfast_client::unary::Why;
use serde_json::json;

use crate::finding::{Checked, broken, ensure, violation};
use crate::stage::Stage;

pub(super) const TTL: Duration = Duration::from_secs(10);
const WAIT: Duration = Duration::from_secs(10);

pub(super) fn why() -> Why {
    Why { by: "conformance".to_owned(), reason: "a scenario".to_owned() }
}

pub(super) async fn exclusive(stage: &mut Stage<'_>) -> Checked {
    stage.connect("c", TTL).await?;
    let first = stage.acquire(json!({"client": "c", "name": "a"})).await?;
    let given = stage.driver.ok(json!({"op": "token", "guard": "a"})).await?;
    let fence = given["fence"].as_str().unwrap_or_default();
    let is_full = fence.starts_with("hf1.L.") && fence.ends_with(&format!(".{first}"));
    ensure(is_full, || format!("`{fence}` is not the full form of the token {first}"))?;
    let name = stage.name("a");
    if stage.rival.lock(&name).acquire().await.is_ok() {
        return violation("another client got the lock while the driver held it");
    }
    stage.release("a", "released").await?;
    stage.driver.err(json!({"op": "token", "guard": "a"}), "lost").await?;
    let again = stage.acquire(json!({"client": "c", "name": "a"})).await?;
    ensure(again > first, || format!("the second token, {again}, is not above {first}"))?;
    stage.release("a", "released").await?;
    stage.close("c").await
}

pub(super) async fn busy_and_timed_out(stage: &mut Stage<'_>) -> Checked {
    stage.connect("c", TTL).await?;
    let held = stage.rival.lock(stage.name("a")).acquire().await.map_err(broken)?;
    let request = json!({"op": "acquire", "client": "c", "name": stage.name("a"), "as": "a"});
    stage.driver.err(request.clone(), "busy").await?;
    let mut waiting = request;
    waiting["wait_ms"] = json!(300);
    stage.driver.err(waiting, "timed_out").await?;
    held.release().await.map_err(broken)?;
    let granted = stage.cluster.audit.count("granted", &stage.name("a"));
    ensure(granted <= 1, || format!("{granted} grants, and only the rival was to have one"))?;
    stage.close("c").await
}

pub(super) async fn queue(stage: &mut Stage<'_>) -> Checked {
    stage.connect("c", TTL).await?;
    let held = stage.rival.lock(stage.name("a")).acquire().await.map_err(broken)?;
    let before = held.token().map_err(broken)?;
    let waiting =
        stage.start_acquire(json!({"client": "c", "name": "a", "wait_ms": 20_000})).await?;
    stage.cluster.audit.wait_for_event("queued", &stage.name("a")).await?;
    held.release().await.map_err(broken)?;
    let token = stage.granted(waiting).await?;
    ensure(token > before, || format!("the token {token} is not above the rival's {before}"))?;
    stage.release("a", "released").await?;
    stage.close("c").await
}

pub(super) async fn shared(stage: &mut Stage<'_>) -> Checked {
    stage.connect("c", TTL).await?;
    let one =
        stage.acquire(json!({"client": "c", "name": "a", "mode": "shared", "as": "one"})).await?;
    let two =
        stage.acquire(json!({"client": "c", "name": "a", "mode": "shared", "as": "two"})).await?;
    ensure(one == two, || format!("readers have one token, and not {one} and {two}"))?;
    stage.release("one", "released").await?;
    stage.held("a", "two").await?;
    if stage.rival.lock(stage.name("a")).acquire().await.is_ok() {
        return violation("a writer got the lock while a reader held it");
    }
    stage.release("two", "released").await?;
    stage.close("c").await
}

pub(super) async fn permits(stage: &mut Stage<'_>) -> Checked {
    stage.connect("c", TTL).await?;
    let request = |guard: &str| json!({"client": "c", "name": "a", "mode": "permit", "permits": 2, "as": guard});
    stage.acquire(request("one")).await?;
    stage.acquire(request("two")).await?;
    let given = stage.driver.ok(json!({"op": "token", "guard": "one"})).await?;
    ensure(given["fence"] == "", || format!("a permit has the full form {}", given["fence"]))?;
    let mut third = request("three");
    third["op"] = json!("acquire");
    third["name"] = json!(stage.name("a"));
    stage.driver.err(third, "busy").await?;
    stage.release("one", "released").await?;
    stage.acquire(request("three")).await?;
    stage.close("c").await
}

pub(super) async fn reentrant(stage: &mut Stage<'_>) -> Checked {
    stage.connect("c", TTL).await?;
    let request = |guard: &str| json!({"client": "c", "name": "a", "reentrant": true, "actor": 1, "as": guard});
    let one = stage.acquire(request("one")).await?;
    let two = stage.acquire(request("two")).await?;
    ensure(one == two, || format!("one hold has one token, and not {one} and {two}"))?;
    stage.release("one", "released").await?;
    stage.held("a", "two").await?;
    stage.release("two", "released").await?;
    let free = stage.rival.lock(stage.name("a")).wait(WAIT).acquire().await.map_err(broken)?;
    free.release().await.map_err(broken)?;
    stage.close("c").await
}

pub(super) async fn acquire_all(stage: &mut Stage<'_>) -> Checked {
    stage.connect("c", TTL).await?;
    let names = [stage.name("b"), stage.name("a")];
    let request = json!({"op": "acquire_all", "client": "c", "names": names, "as": "both"});
    let both = stage.driver.ok(request.clone()).await?;
    let tokens = both["tokens"].as_array().cloned().unwrap_or_default();
    ensure(tokens.len() == 2, || format!("two locks have two tokens, and not {tokens:?}"))?;
    stage.driver.ok(json!({"op": "release", "guard": "both"})).await?;
    let held = stage.rival.lock(stage.name("a")).wait(WAIT).acquire().await.map_err(broken)?;
    stage.driver.err(request, "busy").await?;
    let other = stage.rival.lock(stage.name("b")).acquire().await;
    ensure(other.is_ok(), || "a part of an acquire-all that was busy is held".to_owned())?;
    held.release().await.map_err(broken)?;
    stage.close("c").await
}

pub(super) async fn convert(stage: &mut Stage<'_>) -> Checked {
    stage.connect("c", TTL).await?;
    let read = stage.acquire(json!({"client": "c", "name": "a", "mode": "shared"})).await?;
    let request =
        |mode: &str| json!({"op": "convert", "guard": "a", "mode": mode, "wait_ms": 1000});
    stage.driver.ok(request("exclusive")).await?;
    let write = stage.held("a", "a").await?;
    ensure(write > read, || format!("the writer's token {write} is not above {read}"))?;
    stage.driver.ok(request("shared")).await?;
    let again = stage.held("a", "a").await?;
    ensure(again == write, || format!("from exclusive to shared the token stays, {write}"))?;
    let reader = stage.rival.lock(stage.name("a")).shared().acquire().await.map_err(broken)?;
    let mut at_once = request("exclusive");
    at_once["wait_ms"] = json!(0);
    stage.driver.err(at_once, "busy").await?;
    stage.held("a", "a").await?;
    reader.release().await.map_err(broken)?;
    stage.release("a", "released").await?;
    stage.close("c").await
}

pub(super) async fn deadlock(stage: &mut Stage<'_>) -> Checked {
    for (client, name) in [("c", "a"), ("d", "b")] {
        stage.connect(client, TTL).await?;
        stage.acquire(json!({"client": client, "name": name, "actor": 0})).await?;
    }
    let waiting = stage
        .start_acquire(
            json!({"client": "c", "name": "b", "wait_ms": 20_000, "actor": 0, "as": "b2"}),
        )
        .await?;
    stage.cluster.audit.wait_for_event("queued", &stage.name("b")).await?;
    let closing = json!({
        "op": "acquire", "client": "d", "name": stage.name("a"), "wait_ms": 20_000, "actor": 0, "as": "a2",
    });
    let error = stage.driver.err(closing, "deadlock").await?;
    let links = error["cycle"].as_array().map_or(0, Vec::len);
    ensure(links == 2, || format!("the cycle has two links, and not {links}"))?;
    stage.release("b", "released").await?;
    stage.granted(waiting).await?;
    stage.close("c").await?;
    stage.close("d").await
}

pub(super) async fn died(stage: &mut Stage<'_>) -> Checked {
    // The rival's session is the older one.
    let held = stage.rival.lock(stage.name("a")).acquire().await.map_err(broken)?;
    stage.connect("c", TTL).await?;
    let request = json!({
        "op": "acquire", "client": "c", "name": stage.name("a"), "wait_ms": 5000, "policy": "wait_die", "as": "a",
    });
    let error = stage.driver.err(request, "died").await?;
    let has_age = error["since"].as_str().is_some_and(|since| since.parse::<u64>().is_ok());
    ensure(has_age, || format!("`died` tells the age to ask again with, and not {error}"))?;
    held.release().await.map_err(broken)?;
    stage.close("c").await
}

pub(super) async fn rejected(stage: &mut Stage<'_>) -> Checked {
    stage.connect("c", TTL).await?;
    let long = "x".repeat(513);
    for (request, reason) in [
        (json!({"name": ""}), "invalid_name"),
        (json!({"name": long}), "invalid_name"),
        (json!({"name": stage.name("a"), "ttl_ms": 1, "auto_renew": false}), "invalid_ttl"),
    ] {
        let mut request = request;
        for (key, value) in [("op", "acquire"), ("client", "c"), ("as", "wrong")] {
            request[key] = json!(value);
        }
        let error = stage.driver.err(request, "rejected").await?;
        ensure(error["reason"] == reason, || format!("expected {reason}, and got {error}"))?;
    }
    stage.cluster.calls()?.freeze(&why(), &stage.prefix, WAIT).await.map_err(broken)?;
    let request = json!({"op": "acquire", "client": "c", "name": stage.name("a"), "as": "a"});
    let error = stage.driver.err(request, "rejected").await;
    stage.cluster.calls()?.thaw(&why(), &stage.prefix).await.map_err(broken)?;
    let error = error?;
    let is_frozen = error["reason"] == "frozen" && error["retryable"] == true;
    ensure(is_frozen, || format!("a freeze is rejected as frozen and retryable: {error}"))?;
    stage.close("c").await
}

pub(super) async fn broken_by_operator(stage: &mut Stage<'_>) -> Checked {
    stage.connect("c", TTL).await?;
    let token = stage.acquire(json!({"client": "c", "name": "a"})).await?;
    let loss = stage.driver.send(json!({"op": "await_loss", "guard": "a"})).await?;
    let name = stage.name("a");
    stage.cluster.calls()?.break_lock(&why(), &name, token).await.map_err(broken)?;
    let told = loss.ok().await?;
    ensure(told["reason"] == "broken", || format!("the guard was told {told}"))?;
    stage.lost("a", "a", "broken").await?;
    stage.acquire(json!({"client": "c", "name": "a", "as": "next"})).await?;
    stage.held("a", "next").await?;
    stage.lost("a", "a", "broken").await?;
    stage.close("c").await
}

pub(super) async fn session_killed(stage: &mut Stage<'_>) -> Checked {
    stage.connect("c", TTL).await?;
    stage.acquire(json!({"client": "c", "name": "a"})).await?;
    stage.acquire(json!({"client": "c", "name": "b", "mode": "shared"})).await?;
    let calls = stage.cluster.calls()?;
    let status = calls.status(&stage.name("a")).await.map_err(broken)?;
    let session = status.holders.first().map(|holder| holder.public_session_id.clone());
    let session = session.ok_or_else(|| broken("the lock has no holder"))?;
    let loss = stage.driver.send(json!({"op": "await_loss", "guard": "b"})).await?;
    calls.kill_session(&why(), &session).await.map_err(broken)?;
    loss.ok().await?;
    stage.lost("a", "a", "").await?;
    stage.lost("b", "b", "").await?;
    // The next request opens another session.
    stage.acquire(json!({"client": "c", "name": "a", "wait_ms": 5000, "as": "next"})).await?;
    stage.lost("a", "a", "").await?;
    stage.held("a", "next").await?;
    stage.close("c").await
}

pub(super) async fn transfer(stage: &mut Stage<'_>) -> Checked {
    stage.connect("c", TTL).await?;
    let before = stage.acquire(json!({"client": "c", "name": "a"})).await?;
    let waits = stage.rival.lock(stage.name("a")).wait(WAIT);
    let waits = tokio::spawn(waits.acquire());
    stage.cluster.audit.wait_for_event("queued", &stage.name("a")).await?;
    let status = stage.cluster.calls()?.status(&stage.name("a")).await.map_err(broken)?;
    let to = status.waiters.first().map(|waiter| waiter.public_session_id.clone());
    let wrong = json!({"op": "transfer", "guard": "a", "to": "0000000000000001"});
    stage.driver.err(wrong, "rejected").await?;
    stage.held("a", "a").await?;
    let request = json!({"op": "transfer", "guard": "a", "to": to});
    let after = stage.driver.ok(request).await?;
    let after = after["token"].as_str().and_then(|token| token.parse::<u64>().ok());
    let guard = waits.await.map_err(broken)?.map_err(broken)?;
    let token = guard.token().map_err(broken)?;
    ensure(after == Some(token) && token > before, || {
        format!("handed over from {before} to {token}, and the driver says {after:?}")
    })?;
    stage.lost("a", "a", "transferred").await?;
    guard.release().await.map_err(broken)?;
    stage.close("c").await
}

pub(super) async fn own_ttl(stage: &mut Stage<'_>) -> Checked {
    stage.connect("c", TTL).await?;
    let request = json!({"client": "c", "name": "a", "ttl_ms": 700, "auto_renew": false});
    stage.acquire(request).await?;
    let loss = stage.driver.ok(json!({"op": "await_loss", "guard": "a"})).await?;
    let is_own = loss["reason"] == "own_time_over" || loss["reason"] == "hold_ttl";
    ensure(is_own, || format!("the hold's own time is over, and the guard was told {loss}"))?;
    stage.lost("a", "a", "").await?;
    let request = json!({"client": "c", "name": "b", "max_hold_ms": 700});
    stage.acquire(request).await?;
    stage.driver.ok(json!({"op": "await_loss", "guard": "b"})).await?;
    stage.lost("b", "b", "").await?;
    stage.close("c").await
}

pub(super) async fn renew(stage: &mut Stage<'_>) -> Checked {
    stage.connect("c", TTL).await?;
    let request = json!({"client": "c", "name": "a", "ttl_ms": 1500, "auto_renew": false});
    stage.acquire(request).await?;
    stage.driver.ok(json!({"op": "renew", "guard": "a", "ttl_ms": 8000})).await?;
    tokio::time::sleep(Duration::from_millis(2500)).await;
    stage.held("a", "a").await?;
    // A renewal can shorten a hold.
    stage.driver.ok(json!({"op": "renew", "guard": "a", "ttl_ms": 500})).await?;
    stage.driver.ok(json!({"op": "await_loss", "guard": "a"})).await?;
    stage.lost("a", "a", "").await?;
    stage.close("c").await
}

pub(super) async fn auto_renew(stage: &mut Stage<'_>) -> Checked {
    stage.connect("c", TTL).await?;
    let request = json!({"client": "c", "name": "a", "ttl_ms": 900, "auto_renew": true});
    let token = stage.acquire(request).await?;
    for _ in 0..10 {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let now = stage.held("a", "a").await?;
        ensure(now == token, || format!("the token became {now} by a renewal"))?;
    }
    stage.release("a", "released").await?;
    stage.close("c").await
}

pub(super) async fn election(stage: &mut Stage<'_>) -> Checked {
    stage.connect("c", TTL).await?;
    let request = json!({
        "op": "campaign", "client": "c", "name": stage.name("a"), "value": "worker-7", "wait_ms": 5000, "as": "lead",
    });
    let lead = stage.driver.ok(request).await?;
    let status = stage.cluster.calls()?.status(&stage.name("a")).await.map_err(broken)?;
    let holder = status.holders.first().ok_or_else(|| broken("the election has no leader"))?;
    let epoch = holder.token.to_string();
    ensure(lead["epoch"] == epoch && holder.metadata == b"worker-7", || {
        format!("the leader has the epoch {epoch}, and the driver says {lead}")
    })?;
    stage.release("lead", "released").await?;
    stage.close("c").await
}

pub(super) async fn efficiency(stage: &mut Stage<'_>) -> Checked {
    stage.connect("c", TTL).await?;
    let request = json!({"client": "c", "name": "efficiency", "tier": "efficiency"});
    stage.acquire(request.clone()).await?;
    let given = stage.driver.ok(json!({"op": "token", "guard": "efficiency"})).await?;
    let is_best_effort = given["fence"].as_str().is_some_and(|it| it.starts_with("hf1.B."));
    ensure(is_best_effort, || format!("a best-effort token has a B, and not {given}"))?;
    // Its holds end with the connection, at once.
    let loss = stage.driver.send(json!({"op": "await_loss", "guard": "efficiency"})).await?;
    stage.cluster.network.break_clients();
    loss.ok().await?;
    stage.lost("efficiency", "efficiency", "").await?;
    let mut again = request;
    (again["as"], again["wait_ms"]) = (json!("again"), json!(5000));
    stage.acquire(again).await?;
    stage.release("again", "released").await?;
    stage.close("c").await
}

pub(super) async fn close(stage: &mut Stage<'_>) -> Checked {
    stage.connect("c", TTL).await?;
    stage.acquire(json!({"client": "c", "name": "a"})).await?;
    let status = stage.cluster.calls()?.status(&stage.name("a")).await.map_err(broken)?;
    let session = status.holders.first().map(|holder| holder.public_session_id.clone());
    stage.close("c").await?;
    let ended = |events: &[crate::audit::Event]| {
        events
            .iter()
            .any(|event| event.kind == "session_ended" && Some(&event.session) == session.as_ref())
    };
    stage.cluster.audit.wait_for("the end of the closed session", ended).await?;
    stage.lost("a", "a", "").await?;
    let request = json!({"op": "acquire", "client": "c", "name": stage.name("a"), "as": "b"});
    stage.driver.err(request, "closed").await?;
    let free = stage.rival.lock(stage.name("a")).acquire().await;
    ensure(free.is_ok(), || "the lock of a closed session is not free".to_owned())
}

pub(super) async fn unavailable(stage: &mut Stage<'_>) -> Checked {
    // Nothing listens there.
    let nowhere = json!({
        "op": "connect", "as": "n", "endpoints": ["127.0.0.1:1"], "ttl_ms": 3000, "request_timeout_ms": 1500,
    });
    stage.driver.err(nowhere, "unavailable").await?;
    let wrong = json!({"op": "connect", "as": "n", "endpoints": ["localhost"], "ttl_ms": 3000});
    stage.driver.err(wrong, "invalid").await.map(drop)
}
