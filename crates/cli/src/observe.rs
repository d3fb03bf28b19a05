//! `holdfast observe`: who leads, as it changes.

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::Args;
use holdfast_client::{Observed, unary::CallError};
use serde_json::json;

use crate::exit::Problem;
use crate::global::{Format, Global};
use crate::name;
use crate::one_shot;
use crate::output;
use crate::text::on_one_line;

/// Prints the leader of an election, now and whenever it changes.
///
/// One line for each leader, each value and each vacancy, in order: text on a terminal, JSON in a pipe. The command
/// continues over broken connections and changes of the cluster's leader. If it may have missed leaders, it prints
/// that.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  holdfast observe scheduler
  holdfast observe scheduler --once
  holdfast observe scheduler | jq -r 'select(.event == \"leader\").value'")]
pub(crate) struct ObserveArgs {
    /// The election's name.
    #[arg(value_parser = name::parse)]
    name: String,
    /// Prints the present leader, or that there is none, and ends.
    #[arg(long)]
    once: bool,
}

pub(crate) async fn run(args: ObserveArgs, global: &Global) -> Result<ExitCode, Problem> {
    let as_json = global.output == Format::Json || !std::io::stdout().is_terminal();
    let mut observer = one_shot::calls(global)?.observe(&args.name);
    let mut told_something = false;
    loop {
        let observed = tokio::select! {
            observed = observer.next() => observed,
            () = output::reader_gone() => return Ok(ExitCode::SUCCESS),
        };
        let observed = match observed {
            Ok(observed) => observed,
            // Who has observed for a while wants to go on when the cluster is back.
            Err(CallError::Unavailable(unavailable)) if told_something => {
                let problem = Problem::from(&unavailable);
                output::message(&format!("{}; trying again", problem.first_line()));
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        told_something = true;
        let line = if as_json { in_json(&observed) } else { in_words(&observed) };
        if !output::line_to_stdout(&line)? || args.once {
            return Ok(ExitCode::SUCCESS);
        }
    }
}

fn in_json(observed: &Observed) -> String {
    match observed {
        Observed::Leader(leader) => json!({
            "event": "leader",
            "value": String::from_utf8_lossy(&leader.value),
            "epoch": leader.epoch.to_string(),
            "session": leader.session.to_string(),
        }),
        Observed::Missed { why } => json!({ "event": "missed", "why": why }),
        _ => json!({ "event": "vacant" }),
    }
    .to_string()
}

fn in_words(observed: &Observed) -> String {
    match observed {
        Observed::Leader(leader) => format!(
            "leader  {}  epoch {}  session {}",
            on_one_line(&String::from_utf8_lossy(&leader.value)),
            leader.epoch,
            leader.session
        ),
        Observed::Missed { why } => format!("missed  leaders may have come and gone: {why}"),
        _ => "vacant  no leader".to_owned(),
    }
}
