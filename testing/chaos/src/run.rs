//! One run: clients at work, faults from the schedule, then peace, and the verdict.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use holdfast_sim::history::{History, Violation};

use crate::audited::AuditFile;
use crate::availability::Availability;
use crate::clients::{Calls, Clients};
use crate::cluster::{Cluster, ClusterError};
use crate::event_order;
use crate::fault::Fault;
use crate::late_expiry;
use crate::random::Random;
use crate::recorder::Recorder;
use crate::report::Report;
use crate::schedule::{self, Episode, Size};
use crate::verdict::{self, Evidence};

/// Longer than a client insists on one call.
const CLIENTS_END_WITHIN: Duration = Duration::from_secs(20);
/// A run of this length has everything in it that is to be seen.
const LONG_ENOUGH: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) nodes: u64,
    pub(crate) groups: u32,
    pub(crate) length: Duration,
}

pub(crate) async fn run(plan: &Plan, binary: &Path, dir: &Path) -> Result<Report, ClusterError> {
    let random = Random::new(plan.seed);
    let recorder = Recorder::new();
    let size = Size { nodes: plan.nodes, groups: plan.groups };
    let mut cluster = Cluster::start(binary, dir, size, &recorder).await?;
    let clients = Clients::start(cluster.client_addresses(), &cluster.division, &recorder, &random);

    let mut faults = BTreeMap::new();
    let started = Instant::now();
    for episode in schedule::plan(&random, size, plan.length) {
        // One that took longer than planned puts off the next ones, and leaves out the last.
        if started.elapsed().max(episode.begins) + episode.lasts > plan.length {
            say(started, &format!("{}: left out, there is no time left", episode.fault));
            continue;
        }
        play(&episode, started, &mut cluster, &mut faults).await?;
    }
    sleep_until(started + plan.length).await;
    let until = recorder.now();

    say(started, "all healed; the clients come to their end");
    let kept = clients.stop(CLIENTS_END_WITHIN).await;
    let mut violations: Vec<Violation> = verdict::convergence(&cluster).await.into_iter().collect();
    let mut calls = Calls::to(&cluster.client_addresses(), 0, &recorder)?;
    violations.extend(verdict::kept_locks(&mut calls, &kept).await);
    cluster.heal()?;
    if !cluster.wires_are_in_use().await {
        let what = "the nodes talk to each other past the wires, so no fault of them was one";
        violations.push(Violation { checker: "wires", what: what.to_owned() });
    }
    let snapshot_installs = cluster.snapshot_installs()?;
    cluster.stop().await?;
    let surprises = cluster.surprises.drain(..);
    violations.extend(surprises.map(|what| Violation { checker: "processes", what }));

    let history = recorder.history();
    let histories = cluster.division.split(&history);
    let nodes = cluster.ids();
    let files = nodes.iter().map(|node| AuditFile::read(dir, *node));
    let files = files.collect::<Result<Vec<_>, _>>()?;
    let checking = Instant::now();
    let evidence = Evidence { histories: &histories, files: &files, division: &cluster.division };
    violations.extend(verdict::judge(&evidence));
    violations.extend(verdict::blindness(&evidence));
    let mut silent_sessions_ended = 0;
    for (_, history) in &histories {
        let late_expiry = late_expiry::judge(history);
        violations.extend(late_expiry.violations);
        silent_sessions_ended += late_expiry.ended;
    }
    if plan.length >= LONG_ENOUGH {
        violations.extend(verdict::unseen(snapshot_installs, silent_sessions_ended));
    }
    let availability = |(group, history): &(u32, History)| {
        (*group, Availability::of(history, &cluster.quorum, until))
    };
    Ok(Report {
        seed: plan.seed,
        nodes: plan.nodes,
        length: plan.length,
        availability: histories.iter().map(availability).collect(),
        audited_events: files.iter().map(|file| file.events.len()).max().unwrap_or_default(),
        groups_with_common_gap: cluster
            .division
            .groups()
            .filter(|group| event_order::has_common_gap(*group, &files))
            .collect(),
        checking: checking.elapsed(),
        wall_clocks_jumped: cluster.clocks.can_jump(),
        kept_locks: kept.len(),
        snapshot_installs,
        silent_sessions_ended,
        history,
        faults,
        violations,
    })
}

async fn play(
    episode: &Episode,
    started: Instant,
    cluster: &mut Cluster,
    faults: &mut BTreeMap<&'static str, u64>,
) -> Result<(), ClusterError> {
    sleep_until(started + episode.begins).await;
    begin(&episode.fault, started, cluster, faults).await?;
    // It lasts from when it really began: one that heals at once would only look like a fault.
    let begun = Instant::now();
    if let Some((after, fault)) = &episode.second {
        sleep_until(begun + *after).await;
        begin(fault, started, cluster, faults).await?;
    }
    sleep_until(begun + episode.lasts).await;
    cluster.heal()?;
    say(started, "healed");
    Ok(())
}

async fn begin(
    fault: &Fault,
    started: Instant,
    cluster: &mut Cluster,
    faults: &mut BTreeMap<&'static str, u64>,
) -> Result<(), ClusterError> {
    match cluster.begin(fault).await? {
        Some(nodes) if nodes.is_empty() => say(started, &fault.to_string()),
        Some(nodes) => say(started, &format!("{} (node {nodes:?})", fault.kind())),
        None => {
            say(started, &format!("{fault}: left out, this machine cannot do it"));
            return Ok(());
        }
    }
    *faults.entry(fault.kind()).or_default() += 1;
    Ok(())
}

async fn sleep_until(at: Instant) {
    tokio::time::sleep_until(at.into()).await;
}

fn say(started: Instant, words: &str) {
    eprintln!("chaos: {:7.3} s  {words}", started.elapsed().as_secs_f64());
}
