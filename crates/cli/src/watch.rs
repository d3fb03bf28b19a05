//! `holdfast watch`: what happens, line by line.

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use holdfast_client::unary::Watched;
use holdfast_proto::v1;
use serde_json::json;

use crate::cli::{Format, Global};
use crate::exit::Problem;
use crate::one_shot;

/// Shows what is held under a prefix, and then everything that happens there.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  holdfast watch
  holdfast watch billing/
  holdfast watch --changes-only --output json | jq -c 'select(.event == \"broken\")'

One line each. It goes on over a change of leader without a gap; where it cannot, it says so on
stderr and begins anew. It is for eyes and dashboards: do not decide by it who holds a lock.")]
pub(crate) struct WatchArgs {
    /// Only names that start with this; without it everything, sessions included.
    #[arg(default_value = "")]
    prefix: String,
    /// Only what happens from now on, not what is held already.
    #[arg(long)]
    changes_only: bool,
}

pub(crate) async fn run(args: WatchArgs, global: &Global) -> Result<ExitCode, Problem> {
    let mut watch = one_shot::calls(global)?.watch(&args.prefix);
    if args.changes_only {
        watch = watch.without_snapshot();
    }
    loop {
        let lines: Vec<String> = match watch.next().await? {
            Watched::Snapshot { locks, .. } => {
                locks.iter().map(|lock| held(lock, global.output)).collect()
            }
            Watched::Events(events) => {
                events.iter().map(|event| happened(event, global.output)).collect()
            }
            Watched::StartedAnew { why } => {
                crate::output::say(&format!("the watch begins anew: {why}"));
                continue;
            }
            _ => continue,
        };
        let mut out = std::io::stdout().lock();
        for line in lines {
            // Whoever reads has gone: that is how a watch usually ends.
            if writeln!(out, "{line}").is_err() {
                return Ok(ExitCode::SUCCESS);
            }
        }
        if out.flush().is_err() {
            return Ok(ExitCode::SUCCESS);
        }
    }
}

fn held(lock: &v1::LockSummary, format: Format) -> String {
    match format {
        Format::Json => json!({
            "event": "held",
            "names": [lock.name],
            "session": lock.public_session_id,
            "token": lock.token,
            "holder_count": lock.holder_count,
            "waiter_count": lock.waiter_count,
            "held_for_ms": lock.held_for_ms,
        })
        .to_string(),
        Format::Table if lock.holder_count == 0 => {
            format!("{:<14} {}  {} waiting", "free", lock.name, lock.waiter_count)
        }
        Format::Table => format!(
            "{:<14} {}  session {}  token {}  {} waiting",
            "held", lock.name, lock.public_session_id, lock.token, lock.waiter_count
        ),
    }
}

fn happened(event: &v1::WatchEvent, format: Format) -> String {
    let kind = kind_name(event.kind());
    match format {
        Format::Json => {
            let position = event.position.unwrap_or_default();
            json!({
                "event": kind,
                "position": { "group": position.group, "index": position.index, "number": position.number },
                "logical_time_ms": event.logical_time_ms,
                "unix_ms": event.unix_ms,
                "names": event.names,
                "session": event.public_session_id,
                "request_id": event.request_id,
                "actor": event.actor,
                "token": event.token,
                "by": event.by,
                "detail": event.detail,
            })
            .to_string()
        }
        Format::Table => {
            let mut line = format!("{kind:<14} {}", event.names.join(" "));
            let mut add = |label: &str, value: &str| {
                if !value.is_empty() {
                    line.push_str("  ");
                    line.push_str(label);
                    line.push_str(value);
                }
            };
            add("session ", &event.public_session_id);
            add("token ", &number(event.token));
            add("by ", &event.by);
            add("", &event.detail);
            line
        }
    }
}

fn number(value: u64) -> String {
    if value == 0 { String::new() } else { value.to_string() }
}

/// As in `EVENT_KIND_SESSION_OPENED`: `session_opened`.
fn kind_name(kind: v1::EventKind) -> String {
    let name = kind.as_str_name();
    name.strip_prefix("EVENT_KIND_").unwrap_or(name).to_ascii_lowercase()
}
