//! A cluster whose locks are divided over several Raft groups.
//!
//! Which group a lock is in, the nodes say. So a client that has another opinion is found out.

pub(super) mod faults;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::json;

use super::idle::{BYTES_OF_A_HEARTBEAT, PIECES_OF_A_HEARTBEAT, WAKE_UPS_OF_A_HEARTBEAT, sent};
use super::locks::{TTL, why};
use super::watching::{SeenEvent, begin_watch, next_events, read_snapshot, take_and_release};
use crate::audit::Event;
use crate::cluster::GROUPS;
use crate::finding::{Checked, broken, ensure, violation};
use crate::stage::{RECOVERY, Stage, ms};

const LONG_TTL: Duration = Duration::from_secs(30);
const WAIT: Duration = Duration::from_secs(20);
/// A group that is not the root group.
const OTHER: u32 = 3;

/// The last part of a name of a lock in this group. `pattern` has a `#`, which becomes a number.
async fn name_in(stage: &Stage<'_>, group: u32, pattern: &str) -> Checked<String> {
    let calls = stage.cluster.calls()?;
    for number in 0..1_000 {
        let short = pattern.replace('#', &number.to_string());
        if calls.status(&stage.name(&short)).await.map_err(broken)?.group == group {
            return Ok(short);
        }
    }
    Err(broken(format!("no name in group {group}")))
}

/// As [`name_in`], one in each group, that in the root group first.
async fn name_in_each(stage: &Stage<'_>, pattern: &str) -> Checked<Vec<String>> {
    let mut names = Vec::new();
    for group in 1..=GROUPS {
        names.push(name_in(stage, group, pattern).await?);
    }
    Ok(names)
}

/// The client takes all of them. Their tokens.
async fn hold_all(stage: &Stage<'_>, names: &[String]) -> Checked<Vec<u64>> {
    let mut tokens = Vec::new();
    for name in names {
        tokens.push(stage.acquire(json!({"client": "c", "name": name, "wait_ms": 5000})).await?);
    }
    Ok(tokens)
}

/// So many names of locks in this group.
async fn names_in(
    stage: &Stage<'_>,
    group: u32,
    count: usize,
    pattern: &str,
) -> Checked<Vec<String>> {
    let first = name_in(stage, group, &format!("{{{pattern}-#}}/")).await?;
    Ok((0..count).map(|number| format!("{first}{number}")).collect())
}

/// As [`hold_all`], with all requests under way at once.
async fn hold_all_at_once(
    stage: &Stage<'_>,
    names: &[String],
    wait: Duration,
) -> Checked<Vec<u64>> {
    let mut pending = Vec::new();
    for name in names {
        let request = json!({"client": "c", "name": name, "wait_ms": ms(wait)});
        pending.push(stage.start_acquire(request).await?);
    }
    let mut tokens = Vec::new();
    for acquire in pending {
        tokens.push(stage.granted(acquire).await?);
    }
    Ok(tokens)
}

/// The guards are held, under these tokens.
async fn all_held(stage: &Stage<'_>, names: &[String], tokens: &[u64]) -> Checked {
    for (name, token) in names.iter().zip(tokens) {
        let now = stage.held(name, name).await?;
        ensure(now == *token, || format!("the token of {name} became {now}"))?;
    }
    Ok(())
}

async fn release_all(stage: &Stage<'_>, names: &[String]) -> Checked {
    for name in names {
        stage.release(name, "released").await?;
    }
    Ok(())
}

/// Another client gets each of them at once.
async fn all_free(stage: &Stage<'_>, names: &[String]) -> Checked {
    for name in names {
        match stage.rival.lock(stage.name(name)).acquire().await {
            Ok(guard) => drop(guard.release().await),
            Err(error) => return violation(format!("{name} is not free: {error}")),
        }
    }
    Ok(())
}

/// The public ids of the sessions that were granted these locks.
async fn sessions_of(stage: &Stage<'_>, names: &[String]) -> Checked<BTreeSet<String>> {
    for name in names {
        stage.cluster.audit.wait_for_event("granted", &stage.name(name)).await?;
    }
    let all: Vec<String> = names.iter().map(|name| stage.name(name)).collect();
    let is_meant = |event: &Event| {
        event.kind == "granted" && event.names.iter().any(|name| all.contains(name))
    };
    let events = stage.cluster.audit.events().into_iter().filter(is_meant);
    Ok(events.map(|event| event.session).collect())
}

/// In which groups a session with this public id was opened.
fn groups_of(stage: &Stage<'_>, session: &str) -> BTreeSet<u64> {
    let is_meant = |event: &Event| event.kind == "session_opened" && event.session == session;
    stage.cluster.audit.events().into_iter().filter(is_meant).map(|event| event.group).collect()
}

/// In which groups the client that has these locks opened a session: once in each.
async fn opened_once(stage: &Stage<'_>, names: &[String]) -> Checked<BTreeSet<u64>> {
    let sessions = sessions_of(stage, names).await?;
    let session = only(&sessions)?;
    let is_opened = |event: &Event| event.kind == "session_opened" && event.session == session;
    let opened: Vec<u64> = {
        let events = stage.cluster.audit.events().into_iter();
        events.filter(is_opened).map(|event| event.group).collect()
    };
    let groups = BTreeSet::from_iter(opened.iter().copied());
    ensure(opened.len() == groups.len(), || {
        format!("the client opened sessions in the groups {opened:?}")
    })?;
    Ok(groups)
}

/// The only one of them.
fn only(sessions: &BTreeSet<String>) -> Checked<&str> {
    match (sessions.first(), sessions.len()) {
        (Some(session), 1) => Ok(session),
        _ => violation(format!("a client has one id in all groups, and not {sessions:?}")),
    }
}

/// One client holds locks in all groups, under one session id. What is about a hold goes to its group.
pub(super) async fn locks(stage: &mut Stage<'_>) -> Checked {
    stage.connect("c", TTL).await?;
    let names = name_in_each(stage, "a#").await?;
    let first = hold_all(stage, &names).await?;
    all_held(stage, &names, &first).await?;
    for name in &names {
        if stage.rival.lock(stage.name(name)).acquire().await.is_ok() {
            return violation("another client got a lock while the driver held it");
        }
    }
    let sessions = sessions_of(stage, &names).await?;
    let groups = groups_of(stage, only(&sessions)?);
    ensure(groups == (1..=u64::from(GROUPS)).collect(), || {
        format!("locks in all groups are held in one session each, and not in {groups:?}")
    })?;
    release_all(stage, &names).await?;
    let second = hold_all(stage, &names).await?;
    for ((name, first), second) in names.iter().zip(&first).zip(&second) {
        ensure(second > first, || {
            format!("the second token of {name}, {second}, is not above {first}")
        })?;
    }
    release_all(stage, &names).await?;
    changes_of_a_hold(stage).await?;
    stage.close("c").await
}

/// A hold outside of the root group is renewed, converted and handed over.
async fn changes_of_a_hold(stage: &Stage<'_>) -> Checked {
    let name = name_in(stage, OTHER, "changes#").await?;
    let request = json!({
        "client": "c", "name": name, "mode": "shared", "ttl_ms": 2000, "auto_renew": false, "as": "g",
    });
    let read = stage.acquire(request).await?;
    stage.driver.ok(json!({"op": "renew", "guard": "g", "ttl_ms": 20_000})).await?;
    let convert = json!({"op": "convert", "guard": "g", "mode": "exclusive", "wait_ms": 1000});
    stage.driver.ok(convert).await?;
    let write = stage.held(&name, "g").await?;
    ensure(write > read, || format!("the writer's token {write} is not above {read}"))?;
    let full_name = stage.name(&name);
    let waits = tokio::spawn(stage.rival.lock(&full_name).wait(WAIT).acquire());
    stage.cluster.audit.wait_for_event("queued", &full_name).await?;
    let status = stage.cluster.calls()?.status(&full_name).await.map_err(broken)?;
    let to = status.waiters.first().map(|waiter| waiter.public_session_id.clone());
    stage.driver.ok(json!({"op": "transfer", "guard": "g", "to": to})).await?;
    let guard = waits.await.map_err(broken)?.map_err(broken)?;
    stage.lost(&name, "g", "transferred").await?;
    guard.release().await.map_err(broken).map(drop)
}

/// Locks with one tag are taken together. Locks in several groups are refused, and nothing is sent.
pub(super) async fn acquire_all(stage: &mut Stage<'_>) -> Checked {
    stage.connect("c", LONG_TTL).await?;
    let apart = name_in_each(stage, "apart#").await?;
    let tag = name_in(stage, OTHER, "{order-#}/a").await?;
    let tagged = [tag.clone(), tag.replace("/a", "/b")];
    let request = |names: &[String], guard: &str| {
        let names: Vec<String> = names.iter().map(|name| stage.name(name)).collect();
        json!({"op": "acquire_all", "client": "c", "names": names, "as": guard})
    };
    let before = settled(stage).await?;
    let error = stage.driver.err(request(&apart[..], "apart"), "rejected").await?;
    let is_right = error["reason"] == "several_groups" && error["retryable"] == false;
    ensure(is_right, || {
        format!("locks in several groups are rejected as several_groups, not retryable: {error}")
    })?;
    let after = sent(stage);
    ensure(after == before, || {
        format!("a refusal that the client knows by itself: it sent {before:?}, then {after:?}")
    })?;
    all_free(stage, &apart).await?;
    let both = stage.driver.ok(request(&tagged, "both")).await?;
    let tokens = both["tokens"].as_array().map_or(0, Vec::len);
    ensure(tokens == 2, || format!("two locks have two tokens, and not {both}"))?;
    for name in &tagged {
        if stage.rival.lock(stage.name(name)).acquire().await.is_ok() {
            return violation("another client got a lock of an acquire-all");
        }
    }
    stage.driver.ok(json!({"op": "release", "guard": "both"})).await?;
    all_free(stage, &tagged).await?;
    stage.close("c").await
}

/// What was sent, once nothing more is: sessions move to their leaders at first.
async fn settled(stage: &Stage<'_>) -> Checked<(u64, u64)> {
    let give_up = Instant::now() + RECOVERY;
    let mut before = sent(stage);
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let now = sent(stage);
        if now == before {
            return Ok(now);
        }
        before = now;
        ensure(Instant::now() < give_up, || "a client without requests sends all the time".into())?;
    }
}

/// A wait outside of the root group ends with a grant, or when its time is over.
pub(super) async fn waits(stage: &mut Stage<'_>) -> Checked {
    stage.connect("c", TTL).await?;
    let name = name_in(stage, OTHER, "a#").await?;
    let full_name = stage.name(&name);
    let held = stage.rival.lock(&full_name).acquire().await.map_err(broken)?;
    let before = held.token().map_err(broken)?;
    let request = json!({"op": "acquire", "client": "c", "name": full_name, "as": "no"});
    stage.driver.err(request.clone(), "busy").await?;
    let mut waiting = request;
    waiting["wait_ms"] = json!(300);
    stage.driver.err(waiting, "timed_out").await?;
    stage.cluster.audit.wait_for_event("wait_ended", &full_name).await?;
    let waiting =
        stage.start_acquire(json!({"client": "c", "name": name, "wait_ms": 20_000})).await?;
    stage
        .cluster
        .audit
        .wait_for("the second wait", |events| {
            let is_meant =
                |event: &&Event| event.kind == "queued" && event.names.contains(&full_name);
            events.iter().filter(is_meant).count() == 2
        })
        .await?;
    held.release().await.map_err(broken)?;
    let token = stage.granted(waiting).await?;
    ensure(token > before, || format!("the token {token} is not above the rival's {before}"))?;
    stage.release(&name, "released").await?;
    stage.close("c").await
}

/// The end of one hold leaves those in other groups alone. An operator who kills the session ends it in all groups.
pub(super) async fn losses(stage: &mut Stage<'_>) -> Checked {
    stage.connect("c", TTL).await?;
    let names = name_in_each(stage, "a#").await?;
    let mut tokens = hold_all(stage, &names).await?;
    let place = OTHER as usize - 1;
    let broken_name = &names[place];
    let loss = stage.driver.send(json!({"op": "await_loss", "guard": broken_name})).await?;
    let calls = stage.cluster.calls()?;
    let full_name = stage.name(broken_name);
    calls.break_lock(&why(), &full_name, tokens[place]).await.map_err(broken)?;
    loss.ok().await?;
    stage.lost(broken_name, broken_name, "broken").await?;
    let (before, after) = (&names[..place], &names[place + 1..]);
    all_held(stage, before, &tokens[..place]).await?;
    all_held(stage, after, &tokens[place + 1..]).await?;
    tokens[place] = stage.acquire(json!({"client": "c", "name": broken_name})).await?;
    all_held(stage, &names, &tokens).await?;

    let killed = sessions_of(stage, &names).await?;
    let mut losses = Vec::new();
    for name in &names {
        losses.push(stage.driver.send(json!({"op": "await_loss", "guard": name})).await?);
    }
    calls.kill_session(&why(), only(&killed)?).await.map_err(broken)?;
    for (loss, name) in losses.into_iter().zip(&names) {
        loss.ok().await?;
        stage.lost(name, name, "").await?;
    }
    // The next requests open another session in each group, under one id again.
    let again = name_in_each(stage, "again#").await?;
    let tokens = hold_all(stage, &again).await?;
    all_held(stage, &again, &tokens).await?;
    let next = sessions_of(stage, &again).await?;
    ensure(only(&next)? != only(&killed)?, || "a session id was used again".to_owned())?;
    for name in &names {
        stage.lost(name, name, "").await?;
    }
    stage.close("c").await
}

/// The efficiency tier is in the root group, whatever the name.
pub(super) async fn efficiency(stage: &mut Stage<'_>) -> Checked {
    stage.connect("c", TTL).await?;
    let name = name_in(stage, OTHER, "efficiency-#").await?;
    let request = json!({"client": "c", "name": name, "tier": "efficiency"});
    stage.acquire(request).await?;
    let status = stage.cluster.calls()?.status(&stage.name(&name)).await.map_err(broken)?;
    let holders = status.efficiency.unwrap_or_default().holders;
    let session = holders.first().map(|holder| holder.public_session_id.clone());
    let Some(session) = session else {
        return violation("the lock has no holder in the efficiency tier");
    };
    stage.release(&name, "released").await?;
    // By this event, a session that was opened in another group before is in the files, too.
    let ordinary = name_in(stage, 1, "ordinary#").await?;
    stage.acquire(json!({"client": "c", "name": ordinary})).await?;
    let holder = sessions_of(stage, &[ordinary]).await?;
    ensure(only(&holder)? == session, || {
        format!(
            "{holder:?} has an ordinary lock of the root group, and {session} one of the efficiency tier"
        )
    })?;
    let groups = groups_of(stage, &session);
    ensure(groups == BTreeSet::from([1]), || {
        format!(
            "locks of the efficiency tier need a session in the root group, and not in {groups:?}"
        )
    })?;
    stage.close("c").await
}

/// To close the client ends its sessions in all groups.
pub(super) async fn close(stage: &mut Stage<'_>) -> Checked {
    stage.connect("c", TTL).await?;
    let names = name_in_each(stage, "a#").await?;
    hold_all(stage, &names).await?;
    let session = sessions_of(stage, &names).await?;
    let session = only(&session)?;
    stage.close("c").await?;
    let ended_in = |events: &[Event]| -> BTreeSet<u64> {
        let is_meant = |event: &&Event| event.kind == "session_ended" && event.session == session;
        events.iter().filter(is_meant).map(|event| event.group).collect()
    };
    let in_all = |events: &[Event]| ended_in(events) == (1..=u64::from(GROUPS)).collect();
    stage.cluster.audit.wait_for("the end of the closed session in all groups", in_all).await?;
    for name in &names {
        stage.lost(name, name, "").await?;
        let request = json!({"op": "acquire", "client": "c", "name": stage.name(name), "as": "b"});
        stage.driver.err(request, "closed").await?;
    }
    all_free(stage, &names).await
}

/// A client has sessions, and sends heartbeats, in the root group and in the groups whose locks it uses.
pub(super) async fn idle(stage: &mut Stage<'_>) -> Checked {
    const HEARTBEATS: u32 = 4;
    let ttl = Duration::from_secs(6);
    stage.connect("c", ttl).await?;
    let names = names_in(stage, OTHER, 20, "a").await?;
    let tokens = hold_all_at_once(stage, &names, WAIT).await?;
    // What the last answers caused is over by the next heartbeat.
    tokio::time::sleep(ttl / 3).await;
    let (before, wakes) = (sent(stage), stage.driver.wake_ups()?);
    tokio::time::sleep(ttl / 3 * HEARTBEATS).await;
    let (now, wakes) = (sent(stage), stage.driver.wake_ups()?.saturating_sub(wakes));
    let (bytes, pieces) = (now.0 - before.0, now.1 - before.1);
    let used = BTreeSet::from([1, u64::from(OTHER)]);
    // The window may begin and end with one.
    let heartbeats = used.len() as u64 * u64::from(HEARTBEATS + 1);
    ensure(bytes > 0, || "the client sent no heartbeat, or not over the wires".to_owned())?;
    ensure(bytes <= heartbeats * BYTES_OF_A_HEARTBEAT, || {
        format!("an idle client sent {bytes} bytes in {heartbeats} heartbeats")
    })?;
    ensure(pieces <= heartbeats * PIECES_OF_A_HEARTBEAT, || {
        format!("an idle client sent {pieces} times in {heartbeats} heartbeats")
    })?;
    ensure(wakes <= heartbeats * WAKE_UPS_OF_A_HEARTBEAT, || {
        format!("an idle client woke {wakes} times in {heartbeats} heartbeats")
    })?;
    all_held(stage, &names, &tokens).await?;
    let groups = opened_once(stage, &names).await?;
    ensure(groups == used, || {
        format!("locks of group {OTHER} alone are used, and there are sessions in {groups:?}")
    })?;
    stage.close("c").await
}

/// A client that is connected to nothing asks for locks outside of the root group first, and learns where they are.
pub(super) async fn unconnected(stage: &mut Stage<'_>) -> Checked {
    // However short the wait is: the locks are free.
    let wait = Duration::from_millis(100);
    for count in [1, 20] {
        let names = names_in(stage, OTHER, count, &format!("of-{count}")).await?;
        let mut request = stage.connect_request("c", LONG_TTL);
        request["when_needed"] = json!(true);
        stage.driver.ok(request).await?;
        let tokens = hold_all_at_once(stage, &names, wait).await?;
        all_held(stage, &names, &tokens).await?;
        let groups = opened_once(stage, &names).await?;
        ensure(groups.is_subset(&BTreeSet::from([1, u64::from(OTHER)])), || {
            format!("only locks of group {OTHER} are used, and there are sessions in {groups:?}")
        })?;
        for name in &names {
            let granted = stage.cluster.audit.count("granted", &stage.name(name));
            ensure(granted == 1, || format!("{granted} grants for one acquire of {name}"))?;
        }
        stage.close("c").await?;
    }
    Ok(())
}

/// What happens before a round of [`watch`].
enum WatchFault {
    None,
    LeaderMoves,
    StreamBreaks,
}

/// A watch tells what happens in all groups, each event once, and those of a lock in order. It goes on after a break.
pub(super) async fn watch(stage: &mut Stage<'_>) -> Checked {
    stage.connect("c", LONG_TTL).await?;
    let names = name_in_each(stage, "a#").await?;
    begin_watch(stage, "w").await?;
    read_snapshot(stage, "w").await?;
    // In the last rounds, some groups have no events since the break.
    for (fault, quiet) in [
        (WatchFault::None, 0),
        (WatchFault::LeaderMoves, 0),
        (WatchFault::StreamBreaks, 1),
        (WatchFault::StreamBreaks, 2),
        (WatchFault::StreamBreaks, 3),
    ] {
        match fault {
            WatchFault::None => {}
            // The events of this group come from another node; those of the others go on.
            WatchFault::LeaderMoves => stage.move_leader(OTHER).await?,
            WatchFault::StreamBreaks => {
                stage.cluster.network.client_wires().for_each(|wire| wire.cut());
                stage.cluster.network.break_clients();
            }
        }
        let mut expected: Vec<SeenEvent> = Vec::new();
        for name in &names[quiet..] {
            expected.extend(take_and_release(stage, name).await?);
        }
        stage.cluster.network.heal();
        let mut told = next_events(stage, "w", expected.len()).await?;
        // There is no order between the groups.
        let by_name = |one: &SeenEvent, other: &SeenEvent| one.0.cmp(&other.0);
        told.sort_by(by_name);
        expected.sort_by(by_name);
        ensure(told == expected, || format!("the watch tells {told:?}, and not {expected:?}"))?;
    }
    stage.driver.ok(json!({"op": "end_watch", "watch": "w"})).await?;
    stage.close("c").await
}
