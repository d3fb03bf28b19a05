//! The same with faults. Scenarios of clusters with one group are played here with locks outside of the root group.

use std::collections::BTreeSet;
use std::time::Duration;

use holdfast_client::Guard;
use serde_json::json;

use super::{
    LONG_TTL, OTHER, all_free, all_held, hold_all, name_in, name_in_each, names_in, only,
    release_all, sessions_of,
};
use crate::cluster::GROUPS;
use crate::driver::Pending;
use crate::finding::{Checked, broken, ensure};
use crate::scenarios::faults;
use crate::scenarios::locks::TTL;
use crate::stage::Stage;

/// A caller goes away: its place in the queue goes, too.
pub(in crate::scenarios) async fn cancel(stage: &mut Stage<'_>) -> Checked {
    let name = name_in(stage, OTHER, "a#").await?;
    faults::cancel_wait(stage, &name).await
}

/// Cut off, a client keeps no lease in one group because another group answered later.
pub(in crate::scenarios) async fn cut_off(stage: &mut Stage<'_>) -> Checked {
    let ttl = Duration::from_secs(4);
    let (name, root) = (name_in(stage, OTHER, "a#").await?, name_in(stage, 1, "root#").await?);
    stage.connect("c", ttl).await?;
    stage.acquire(json!({"client": "c", "name": name})).await?;
    // No heartbeat is due yet. So the session of the first lock ends before that of the next one.
    tokio::time::sleep(ttl / 4).await;
    stage.acquire(json!({"client": "c", "name": root})).await?;
    faults::lose_when_cut_off(stage, ttl, [&name, &root]).await?;
    stage.close("c").await
}

/// The process stands still for longer than its TTL.
pub(in crate::scenarios) async fn stopped_past_ttl(stage: &mut Stage<'_>) -> Checked {
    let name = name_in(stage, OTHER, "a#").await?;
    stage.connect("c", Duration::from_secs(2)).await?;
    faults::lose_while_stopped(stage, &name).await?;
    stage.close("c").await
}

/// The answer to an acquire is lost. Requests in the root group have higher ids, and are acknowledged.
pub(in crate::scenarios) async fn answer_lost_acquire(stage: &mut Stage<'_>) -> Checked {
    let warm_up = name_in(stage, OTHER, "warm-up#").await?;
    let names = [name_in(stage, OTHER, "reader#").await?, name_in(stage, OTHER, "writer#").await?];
    stage.connect("c", LONG_TTL).await?;
    stage.acquire(json!({"client": "c", "name": warm_up})).await?;
    ask_root_often(stage).await?;
    faults::lose_answers_to_acquires(stage, [&names[0], &names[1]]).await?;
    stage.close("c").await
}

/// The answer to a release is lost. Requests in the root group have higher ids, and are acknowledged.
pub(in crate::scenarios) async fn answer_lost_release(stage: &mut Stage<'_>) -> Checked {
    let name = name_in(stage, OTHER, "a#").await?;
    stage.connect("c", LONG_TTL).await?;
    stage.acquire(json!({"client": "c", "name": name})).await?;
    ask_root_often(stage).await?;
    faults::lose_answer_to_release(stage, &name).await?;
    stage.close("c").await
}

/// The client gets some answers from the root group.
async fn ask_root_often(stage: &Stage<'_>) -> Checked {
    let name = name_in(stage, 1, "root#").await?;
    for _ in 0..5 {
        stage.acquire(json!({"client": "c", "name": name})).await?;
        stage.release(&name, "released").await?;
    }
    Ok(())
}

/// A hold ends while its client has no connection. The client has a hold with the same token in another group.
pub(in crate::scenarios) async fn broken_while_away(stage: &mut Stage<'_>) -> Checked {
    let names = [name_in(stage, 1, "root#").await?, name_in(stage, OTHER, "a#").await?];
    for broken_place in [0, 1] {
        stage.connect("c", LONG_TTL).await?;
        even_out(stage, &names).await?;
        let tokens = hold_all(stage, &names).await?;
        if tokens[0] != tokens[1] {
            return Err(broken(format!("the tokens in two groups must be equal: {tokens:?}")));
        }
        let of = |place: usize| (names[place].as_str(), tokens[place]);
        faults::break_while_away(stage, of(broken_place), of(1 - broken_place)).await?;
        stage.close("c").await?;
        all_free(stage, &names).await?;
    }
    Ok(())
}

/// The next tokens of a lock in the root group and of one in the other group are equal. Each group counts its own.
async fn even_out(stage: &Stage<'_>, [root, other]: &[String; 2]) -> Checked {
    let (root, other) = (rival_token(stage, root).await?, rival_token(stage, other).await?);
    let behind = if root < other { 1 } else { OTHER };
    let missing = usize::try_from(root.abs_diff(other)).map_err(broken)?;
    let mut acquires = Vec::new();
    for name in names_in(stage, behind, missing, "missing").await? {
        acquires.push(tokio::spawn(stage.rival.lock(stage.name(&name)).acquire()));
    }
    for acquire in acquires {
        drop(acquire.await.map_err(broken)?.map_err(broken)?);
    }
    Ok(())
}

/// The rival takes the lock and gives it back.
async fn rival_token(stage: &Stage<'_>, name: &str) -> Checked<u64> {
    let guard = stage.rival.lock(stage.name(name)).acquire().await.map_err(broken)?;
    let token = guard.token().map_err(broken)?;
    guard.release().await.map_err(broken)?;
    Ok(token)
}

/// A broken connection costs nothing in any group.
pub(in crate::scenarios) async fn connection_broken(stage: &mut Stage<'_>) -> Checked {
    stage.connect("c", LONG_TTL).await?;
    let names = name_in_each(stage, "a#").await?;
    let tokens = hold_all(stage, &names).await?;
    for round in 0..3 {
        stage.cluster.network.break_clients();
        let more = name_in_each(stage, &format!("b{round}-#")).await?;
        hold_all(stage, &more).await?;
        all_held(stage, &names, &tokens).await?;
        release_all(stage, &more).await?;
    }
    release_all(stage, &names).await?;
    for name in &names {
        let granted = stage.cluster.audit.count("granted", &stage.name(name));
        ensure(granted == 1, || format!("{granted} grants for one acquire of {name}"))?;
    }
    stage.close("c").await
}

/// Another node leads one of the groups: nothing is lost in any group.
pub(in crate::scenarios) async fn leader_moved(stage: &mut Stage<'_>) -> Checked {
    stage.connect("c", LONG_TTL).await?;
    let names = name_in_each(stage, "a#").await?;
    let tokens = hold_all(stage, &names).await?;
    let wanted = name_in(stage, OTHER, "wanted#").await?;
    let held = stage.rival.lock(stage.name(&wanted)).acquire().await.map_err(broken)?;
    let waiting =
        stage.start_acquire(json!({"client": "c", "name": wanted, "wait_ms": 50_000})).await?;
    stage.cluster.audit.wait_for_event("queued", &stage.name(&wanted)).await?;
    for round in 0..3 {
        stage.move_leader(OTHER).await?;
        let more = name_in_each(stage, &format!("b{round}-#")).await?;
        hold_all(stage, &more).await?;
        all_held(stage, &names, &tokens).await?;
    }
    waits_once(stage, &wanted, held, waiting).await?;
    release_all(stage, &names).await?;
    stage.close("c").await
}

/// The leader of one of the groups, and perhaps of others, is killed: holds and waits survive in all groups.
pub(in crate::scenarios) async fn leader_killed(stage: &mut Stage<'_>) -> Checked {
    stage.connect("c", LONG_TTL).await?;
    let names = name_in_each(stage, "a#").await?;
    let tokens = hold_all(stage, &names).await?;
    let wanted = name_in(stage, OTHER, "wanted#").await?;
    let held = stage.rival.lock(stage.name(&wanted)).acquire().await.map_err(broken)?;
    let waiting =
        stage.start_acquire(json!({"client": "c", "name": wanted, "wait_ms": 50_000})).await?;
    stage.cluster.audit.wait_for_event("queued", &stage.name(&wanted)).await?;
    let more = name_in_each(stage, "more#").await?;
    let leader = stage.cluster.leader_in(OTHER).await?;
    stage.cluster.nodes.kill(&[leader])?;
    for name in &more {
        let request = json!({"client": "c", "name": name, "wait_ms": 20_000});
        stage.acquire_again(request).await?;
    }
    all_held(stage, &names, &tokens).await?;
    waits_once(stage, &wanted, held, waiting).await?;
    release_all(stage, &names).await?;
    stage.cluster.nodes.start(leader)?;
    for group in 1..=GROUPS {
        stage.cluster.leader_in(group).await?;
    }
    stage.close("c").await
}

/// The wait that began before the fault gets the lock, and stood in the queue once.
async fn waits_once(
    stage: &Stage<'_>,
    name: &str,
    held: Guard,
    waiting: (String, Pending),
) -> Checked {
    held.release().await.map_err(broken)?;
    stage.granted(waiting).await?;
    let queued = stage.cluster.audit.count("queued", &stage.name(name));
    ensure(queued == 1, || format!("{queued} places in the queue for one acquire"))
}

/// A forked child has none of its parent's locks, and sessions of its own.
pub(in crate::scenarios) async fn fork(stage: &mut Stage<'_>) -> Checked {
    stage.connect("c", TTL).await?;
    let names = name_in_each(stage, "a#").await?;
    let tokens = hold_all(stage, &names).await?;
    let mut children = BTreeSet::new();
    for (parents, group) in names.iter().zip(1..) {
        let free = name_in(stage, group, "child#").await?;
        let request = json!({
            "op": "fork", "client": "c", "guard": parents, "busy": stage.name(parents), "free": stage.name(&free),
        });
        let child = stage.driver.ok(request).await?;
        ensure(child["token"]["kind"] == "lost", || {
            format!("the child's guard of {parents}: {}", child["token"])
        })?;
        ensure(child["busy"]["kind"] == "busy", || {
            format!("the child asks for its parent's lock: {}", child["busy"])
        })?;
        ensure(child["free"]["token"].is_string(), || {
            format!("the child's own lock: {}", child["free"])
        })?;
        children.extend(sessions_of(stage, &[free]).await?);
    }
    all_held(stage, &names, &tokens).await?;
    let parents = sessions_of(stage, &names).await?;
    ensure(!children.contains(only(&parents)?), || "a child used its parent's session".to_owned())?;
    stage.close("c").await
}
