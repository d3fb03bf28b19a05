//! `holdfast history`: what happened to a lock, as far as the cluster still keeps it.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use holdfast_client::unary::Past;
use holdfast_proto::v1;
use holdfast_server::utc;
use serde::Serialize;

use crate::duration::{self, in_words};
use crate::exit::Problem;
use crate::global::{Format, Global};
use crate::mode;
use crate::name;
use crate::one_shot;
use crate::output::{self, Show};
use crate::status::OwnerInfo;
use crate::text::{on_one_line, table};
use crate::token;
use crate::watch::{end_reason, kind_name};

/// Lists the recent events of a lock: time, event, owner, token.
#[derive(Debug, Args)]
#[command(
    after_help = "The cluster keeps the latest events of all locks in memory (65,536 by default). Older events are
in the audit files, if the nodes write them. Locks of the efficiency tier have no events.

Examples:
  holdfast history nightly-report
  holdfast history nightly-report --limit 10
  holdfast history nightly-report --since 15m
  holdfast history nightly-report --output json | jq '.events[] | select(.event == \"expired\")'"
)]
pub(crate) struct HistoryArgs {
    /// The lock's name.
    #[arg(value_parser = name::parse)]
    name: String,
    /// Only the latest N events.
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: u32,
    /// Only events of the last D, for example 15m.
    #[arg(long, value_name = "D", value_parser = duration::parse_above_zero)]
    since: Option<Duration>,
}

#[derive(Debug, Serialize)]
struct History {
    name: String,
    /// The latest last.
    events: Vec<PastEvent>,
    /// There were more, before those.
    is_cut: bool,
    kept: Kept,
}

/// From when on the cluster keeps events.
#[derive(Debug, Serialize)]
pub(crate) struct Kept {
    /// Everything since there was a cluster.
    from_the_beginning: bool,
    /// In the log.
    from_index: u64,
    /// When the first of what is kept happened; null if nothing is.
    since: Option<String>,
    since_unix_ms: Option<u64>,
}

#[derive(Debug, Serialize)]
pub(crate) struct PastEvent {
    pub(crate) event: String,
    pub(crate) time: String,
    pub(crate) unix_ms: u64,
    logical_time_ms: u64,
    group: u32,
    index: u64,
    number: u32,
    names: Vec<String>,
    pub(crate) session: String,
    /// Null if it is not known any more.
    pub(crate) owner: Option<OwnerInfo>,
    pub(crate) request_id: u64,
    actor: u64,
    pub(crate) mode: Option<&'static str>,
    #[serde(serialize_with = "token::as_text_if_any")]
    pub(crate) token: Option<u64>,
    /// How a hold ended.
    reason: Option<String>,
    /// In the cluster's time, which stands still while there is no leader.
    pub(crate) held_for_ms: Option<u64>,
    /// From the grant to the end, by the leaders' clocks; null if the grant is not among these events.
    held_for_wall_ms: Option<u64>,
    metadata: String,
    by: String,
    detail: String,
}

impl Kept {
    pub(crate) fn of(answer: &v1::HistoryResponse) -> Kept {
        let after = answer.kept_after.map_or(0, |position| position.index);
        Kept {
            from_the_beginning: after == 0,
            from_index: after.saturating_add(1),
            since: answer.kept_since_unix_ms.map(utc),
            since_unix_ms: answer.kept_since_unix_ms,
        }
    }

    /// What a reader has to know who does not find something; nothing if nothing can be missing.
    pub(crate) fn in_words(&self) -> Option<String> {
        if self.from_the_beginning {
            return None;
        }
        let from = match &self.since {
            Some(since) => format!("from {since} on (log entry {})", self.from_index),
            None => format!("from log entry {} on", self.from_index),
        };
        Some(format!("the cluster keeps events {from}; older ones are in the audit files"))
    }
}

/// The events of an answer, each with its owner.
pub(crate) fn events_of(answer: v1::HistoryResponse) -> Vec<PastEvent> {
    let owners = answer.owners.into_iter().map(|known| (known.public_session_id, known.owner));
    let owners: BTreeMap<String, Option<v1::Owner>> = owners.collect();
    let mut events: Vec<PastEvent> =
        answer.events.into_iter().map(|event| PastEvent::of(event, &owners)).collect();
    add_wall_times(&mut events);
    events
}

/// A hold begins with its grant, and a conversion does not end it.
fn add_wall_times(events: &mut [PastEvent]) {
    let mut granted_at: BTreeMap<(String, u64), u64> = BTreeMap::new();
    for event in events {
        let hold = (event.session.clone(), event.request_id);
        if event.event == "granted" {
            granted_at.insert(hold, event.unix_ms);
        } else if event.held_for_ms.is_some() {
            let granted_at = granted_at.remove(&hold);
            event.held_for_wall_ms = granted_at.map(|from| event.unix_ms.saturating_sub(from));
        }
    }
}

/// How long a lock was held, for people: by the clock on the wall, or else in the cluster's own time.
pub(crate) fn held_for_in_words(wall_ms: Option<u64>, cluster_ms: Option<u64>) -> Option<String> {
    match (wall_ms, cluster_ms) {
        (Some(ms), _) => Some(in_words(ms)),
        (None, Some(ms)) => Some(format!("{} of cluster time", in_words(ms))),
        (None, None) => None,
    }
}

impl PastEvent {
    fn of(event: v1::WatchEvent, owners: &BTreeMap<String, Option<v1::Owner>>) -> PastEvent {
        let position = event.position.unwrap_or_default();
        let has_mode = event.mode() != v1::Mode::Unspecified;
        PastEvent {
            event: kind_name(event.kind()),
            time: utc(event.unix_ms),
            unix_ms: event.unix_ms,
            logical_time_ms: event.logical_time_ms,
            group: position.group,
            index: position.index,
            number: position.number,
            owner: owners.get(&event.public_session_id).cloned().map(OwnerInfo::from),
            request_id: event.request_id,
            actor: event.actor,
            mode: has_mode.then(|| mode::as_word(event.mode())),
            token: (event.token > 0).then_some(event.token),
            reason: end_reason(&event),
            held_for_ms: event.held_for_ms,
            held_for_wall_ms: None,
            metadata: String::from_utf8_lossy(&event.metadata).into_owned(),
            names: event.names,
            session: event.public_session_id,
            by: event.by,
            detail: event.detail,
        }
    }

    /// A word of the audit file does not tell what happened to a client.
    fn reason_in_words(&self) -> Option<String> {
        let words = match self.reason.as_deref()? {
            "closed" => "its session was closed before a release: the program ended, or was killed",
            "session_expired" => "its client was not heard of for the session's TTL",
            "disconnected" => "its client's connection broke, and did not come back",
            "ttl" => "the TTL of the hold was over",
            "max_hold" => "its --max-hold was over",
            // The event's own word says it.
            "killed" | "broken" | "wounded" | "transferred" => return None,
            other => other,
        };
        Some(words.to_owned())
    }

    fn to_row(&self) -> Vec<String> {
        let details = [
            self.mode.map(str::to_owned),
            self.reason_in_words(),
            held_for_in_words(self.held_for_wall_ms, self.held_for_ms)
                .map(|span| format!("held for {span}")),
            (!self.by.is_empty()).then(|| format!("by {}", self.by)),
            (!self.detail.is_empty()).then(|| self.detail.clone()),
            (!self.metadata.is_empty()).then(|| format!("because: {}", self.metadata)),
        ];
        let details: Vec<String> = details.into_iter().flatten().collect();
        vec![
            self.time.clone(),
            self.event.clone(),
            self.session.clone(),
            self.owner.as_ref().map(OwnerInfo::in_words).unwrap_or_default(),
            self.token.map(|token| token.to_string()).unwrap_or_default(),
            on_one_line(&details.join(", ")),
        ]
    }
}

impl Show for History {
    fn to_table(&self) -> String {
        if self.events.is_empty() {
            return String::new();
        }
        let rows: Vec<Vec<String>> = self.events.iter().map(PastEvent::to_row).collect();
        table(&["TIME", "EVENT", "SESSION", "OWNER", "TOKEN", "DETAILS"], &rows)
    }
}

/// Whether it was never used, or that is only not known.
fn nothing_known(history: &History, since: Option<Duration>) -> String {
    let (name, kept) = (&history.name, history.kept.in_words());
    let within = since.map(|since| format!(" within {}", duration::as_written(since)));
    let within = within.unwrap_or_default();
    match kept {
        Some(kept) => format!("there are no events of '{name}'{within}: {kept}"),
        None if since.is_some() => format!("there are no events of '{name}'{within}"),
        None => format!(
            "there are no events of '{name}': no client has asked for it in the correctness tier. The efficiency tier \
             keeps no events"
        ),
    }
}

pub(crate) async fn run(args: HistoryArgs, global: &Global) -> Result<ExitCode, Problem> {
    let past = Past { limit: args.limit, within: args.since, token: None };
    let answer = one_shot::calls(global)?.history(&args.name, past).await?;
    let (kept, is_cut) = (Kept::of(&answer), answer.is_cut);
    let history = History { name: args.name, events: events_of(answer), is_cut, kept };
    let code = output::show(global.output, &history)?;
    if global.output == Format::Table {
        if history.events.is_empty() {
            output::message(&nothing_known(&history, args.since));
        } else if history.is_cut {
            output::message("there are older events; --limit shows more");
        } else if let Some(words) = history.kept.in_words() {
            output::message(&words);
        }
    }
    Ok(code)
}
