//! Plays the scenarios with a driver, and tells what it found.

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use holdfast_conformance::vectors;

use crate::cluster::Clusters;
use crate::driver::Driver;
use crate::finding::{Checked, Finding, broken};
use crate::scenarios::{self, Level, SCENARIOS, Scenario};
use crate::stage::Stage;
use crate::vector_check::check_vectors;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The `holdfast` binary to run.
    #[arg(long)]
    holdfast: PathBuf,
    /// Only scenarios whose names contain this text.
    #[arg(long)]
    only: Option<String>,
    /// Keep going after so many findings.
    #[arg(long, default_value_t = 1_000)]
    findings_max: usize,
    /// The driver, and its arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    driver: Vec<String>,
}

/// How a driver can misbehave, and the scenario that must find it.
const MISBEHAVIOURS: [(&str, &str); 16] = [
    ("no-margin", "cut-off"),
    ("retry-new-id", "answer-lost-acquire"),
    ("ack-early", "answer-lost-release"),
    ("forget-cancel", "cancel-leaves-no-waiter"),
    ("no-clock", "blocked-loop"),
    ("chatty", "idle"),
    ("forget-position", "watch-resumes"),
    ("forget-position", "observe-resumes"),
    ("ignore-members", "members-changed"),
    ("trust-any-node", "tls-wrong-authority"),
    ("count-failures", "credential-revoked"),
    ("credential-once", "credential-rotated"),
    // As a client of the time before there were groups.
    ("ignore-map", "groups-locks"),
    ("ignore-map", "groups-acquire-all"),
    // In a group whose requests have other ids than those in the root group.
    ("retry-new-id", "groups-answer-lost-acquire"),
    ("ack-early", "groups-answer-lost-release"),
];

/// The scenario instead of that of [`MISBEHAVIOURS`], for a driver whose language has not what that one needs.
const SUBSTITUTES: [(&str, &str); 1] = [("no-clock", "cut-off")];

pub(crate) fn list() {
    for kind in vectors::KINDS {
        println!("L0 vectors-{kind}");
    }
    for scenario in SCENARIOS {
        println!("{} {}", scenario.level, scenario.name);
    }
}

/// Whether the driver follows the protocol.
pub(crate) async fn run(options: &Options) -> Result<bool, Finding> {
    let is_meant = |name: &str| options.only.as_ref().is_none_or(|only| name.contains(only));
    let driver = Driver::start(&options.driver, None).await?;
    let (mut passed, mut findings) = (0, Vec::new());
    for kind in vectors::KINDS.iter().filter(|kind| is_meant(&format!("vectors-{kind}"))) {
        match check_vectors(kind, &driver).await {
            Ok(count) => {
                println!("pass  L0 vectors-{kind}: {count} cases");
                passed += 1;
            }
            Err(Finding::Violation(words)) => {
                println!("FAIL  L0 vectors-{kind}: {words}");
                findings.push(format!("vectors-{kind}"));
            }
            Err(error) => return Err(error),
        }
    }
    drop(driver);
    let mut clusters = Clusters::new(&options.holdfast);
    let mut lacking = 0;
    for (number, scenario) in SCENARIOS.iter().filter(|it| is_meant(it.name)).enumerate() {
        if findings.len() >= options.findings_max {
            break;
        }
        // One driver each: what one scenario leaves behind does not touch the next.
        let driver = Driver::start(&options.driver, None).await?;
        if let Some(operation) = scenario.needs
            && driver.lacks(operation)
        {
            println!("none  {} {}: the language has no {operation}", scenario.level, scenario.name);
            lacking += 1;
            continue;
        }
        let began = Instant::now();
        let outcome = play(scenario, number, &mut clusters, &driver).await;
        let took = began.elapsed().as_secs_f64();
        match outcome {
            Ok(()) => {
                println!("pass  {} {} ({took:.1} s)", scenario.level, scenario.name);
                passed += 1;
            }
            Err(Finding::Violation(words)) => {
                println!("FAIL  {} {} ({took:.1} s): {words}", scenario.level, scenario.name);
                findings.push(scenario.name.to_owned());
            }
            Err(error) => return Err(error),
        }
    }
    println!("{passed} passed, {} failed, {lacking} that the language has not", findings.len());
    Ok(findings.is_empty() && passed > 0)
}

/// Whether every kind of misbehaviour is found, in the scenario that looks for it.
pub(crate) async fn misbehave(options: &Options) -> Result<bool, Finding> {
    let mut clusters = Clusters::new(&options.holdfast);
    let mut escaped = 0;
    for (number, (mode, name)) in MISBEHAVIOURS.into_iter().enumerate() {
        if options.only.as_ref().is_some_and(|only| !mode.contains(only.as_str())) {
            continue;
        }
        let driver = Driver::start(&options.driver, Some(mode)).await?;
        let scenario = match scenario_that_finds(mode, name, &driver)? {
            Ok(scenario) => scenario,
            Err(operation) => {
                println!("none     {mode}: the language has no {operation}");
                continue;
            }
        };
        match play(scenario, 100 + number, &mut clusters, &driver).await {
            Err(Finding::Violation(words)) => {
                println!("caught   {mode} by {}: {words}", scenario.name);
            }
            Ok(()) => {
                println!("ESCAPED  {mode}: {} found nothing", scenario.name);
                escaped += 1;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(escaped == 0)
}

/// The scenario, or its substitute; or else the operation that the language has not.
fn scenario_that_finds(
    mode: &str,
    name: &str,
    driver: &Driver,
) -> Checked<Result<&'static Scenario, &'static str>> {
    let mut lacking = "";
    let substitutes = SUBSTITUTES.iter().filter(|(it, _)| *it == mode).map(|(_, name)| *name);
    for name in std::iter::once(name).chain(substitutes) {
        let scenario = SCENARIOS.iter().find(|it| it.name == name);
        let scenario = scenario.ok_or_else(|| broken(format!("there is no scenario {name}")))?;
        match scenario.needs {
            Some(operation) if driver.lacks(operation) => lacking = operation,
            _ => return Ok(Ok(scenario)),
        }
    }
    Ok(Err(lacking))
}

async fn play(
    scenario: &Scenario,
    number: usize,
    clusters: &mut Clusters,
    driver: &Driver,
) -> Result<(), Finding> {
    let cluster = clusters.of(scenario.ground).await?;
    let rival = cluster.rival().await?;
    let prefix = format!("{number}-{}", scenario.name);
    let mut stage = Stage::new(cluster, driver, rival, prefix);
    let outcome = scenarios::play(scenario, &mut stage).await;
    let judged = match outcome {
        Ok(()) => stage.judge_tokens().await,
        other => other,
    };
    // The next scenario begins with whole wires and a driver that runs.
    stage.cluster.network.heal();
    if scenario.level == Level::Faults {
        driver.go_on()?;
    }
    judged
}
