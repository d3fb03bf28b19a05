//! `holdfast who`: who held a lock under a token, and until when.

use std::collections::BTreeMap;
use std::process::ExitCode;

use clap::Args;
use holdfast_client::unary::{Past, TokenState};
use holdfast_proto::v1;
use holdfast_server::utc;
use serde::Serialize;

use crate::exit::Problem;
use crate::global::Global;
use crate::history::{self, Kept, PastEvent};
use crate::mode;
use crate::name;
use crate::one_shot;
use crate::output::{self, Show};
use crate::status::OwnerInfo;
use crate::text::table;
use crate::tier::TierArg;
use crate::token::{self, TokenArg};

/// Every event of the holds of one token that is told at a time.
const EVENTS_MAX: u32 = 1_000;
/// No hold that the cluster still knows had this token.
const NOT_FOUND: u8 = 1;

/// Shows the holder of a lock under a token: owner, from when, until when, how it ended.
///
/// Use it when a token turns up in a resource or in a log.
#[derive(Debug, Args)]
#[command(
    after_help = "The answer comes from the events that the cluster keeps in memory, and from the present holders.
Older holders are in the audit files, if the nodes write them.
Exit codes: 0 found; 1 not among these events, or the cluster has not granted the token yet.

Examples:
  holdfast who deploy --token 42
  holdfast who deploy --token \"$fence\"
  holdfast who deploy --token 42 --output json | jq -r '.holds[0].owner.host'"
)]
pub(crate) struct WhoArgs {
    /// The lock's name.
    #[arg(value_parser = name::parse)]
    name: String,
    /// The token: its number, or its full form.
    #[arg(long, value_name = "TOKEN", allow_negative_numbers = true, value_parser = TokenArg::parse)]
    token: TokenArg,
}

#[derive(Debug, Serialize)]
struct Who {
    name: String,
    #[serde(serialize_with = "token::as_text")]
    token: u64,
    /// Those of a shared run share a token.
    holds: Vec<Held>,
    /// Null if it was found.
    not_found: Option<String>,
    kept: Kept,
}

#[derive(Debug, Serialize)]
struct Held {
    session: String,
    /// Null if it is not known any more.
    owner: Option<OwnerInfo>,
    mode: Option<&'static str>,
    from: String,
    from_unix_ms: u64,
    /// Null: it still holds it.
    until: Option<String>,
    until_unix_ms: Option<u64>,
    /// In the cluster's time, which stands still while there is no leader.
    held_for_ms: Option<u64>,
    /// By the leaders' clocks; null if only its end is known.
    held_for_wall_ms: Option<u64>,
    /// As the events are called: `released`, `expired`, `broken`, ...; `converted` if it went on under another
    /// token.
    ended: Option<String>,
}

/// The holds of a token, from the events of their lives in order.
fn holds_of(token: u64, events: Vec<PastEvent>) -> Vec<Held> {
    let mut holds: BTreeMap<(String, u64), Held> = BTreeMap::new();
    for event in events {
        let hold = (event.session.clone(), event.request_id);
        let is_of_token = event.token == Some(token);
        let begins = matches!(event.event.as_str(), "granted" | "converted");
        match holds.get_mut(&hold) {
            // What it is called with the token is what counts: a downgrade keeps it.
            Some(held) if begins && is_of_token => held.mode = event.mode,
            Some(held) if held.until.is_none() && (begins || event.held_for_ms.is_some()) => {
                held.end(event);
            }
            Some(_) => {}
            None if begins && is_of_token => {
                holds.insert(hold, Held::since(event));
            }
            // Its beginning is no longer kept, but its end tells how long it was.
            None if event.held_for_ms.is_some() && is_of_token => {
                let from = event.unix_ms.saturating_sub(event.held_for_ms.unwrap_or(0));
                let mut held = Held::from_time(from, event.session.clone());
                held.end(event);
                held.held_for_wall_ms = None;
                holds.insert(hold, held);
            }
            None => {}
        }
    }
    let mut holds: Vec<Held> = holds.into_values().collect();
    holds.sort_by_key(|held| held.from_unix_ms);
    holds
}

impl Held {
    fn from_time(unix_ms: u64, session: String) -> Held {
        Held {
            session,
            owner: None,
            mode: None,
            from: utc(unix_ms),
            from_unix_ms: unix_ms,
            until: None,
            until_unix_ms: None,
            held_for_ms: None,
            held_for_wall_ms: None,
            ended: None,
        }
    }

    fn since(event: PastEvent) -> Held {
        let held = Held::from_time(event.unix_ms, event.session);
        Held { owner: event.owner, mode: event.mode, ..held }
    }

    fn end(&mut self, event: PastEvent) {
        self.until = Some(event.time);
        self.until_unix_ms = Some(event.unix_ms);
        let wall = event.unix_ms.saturating_sub(self.from_unix_ms);
        self.held_for_wall_ms = Some(wall);
        // The event of a conversion does not tell the cluster's time.
        self.held_for_ms = event.held_for_ms.or(Some(wall));
        self.ended = Some(event.event);
        self.owner = self.owner.take().or(event.owner);
    }

    /// Of one who holds it now, whose beginning is no longer kept.
    fn now(holder: v1::Holder, now_unix_ms: u64) -> Held {
        let from = now_unix_ms.saturating_sub(holder.held_for_ms);
        Held {
            mode: Some(mode::as_word(holder.mode())),
            owner: Some(OwnerInfo::from(holder.owner)),
            ..Held::from_time(from, holder.public_session_id)
        }
    }

    fn to_row(&self) -> Vec<String> {
        vec![
            self.session.clone(),
            self.owner.as_ref().map(OwnerInfo::in_words).unwrap_or_default(),
            self.mode.unwrap_or_default().to_owned(),
            self.from.clone(),
            self.until.clone().unwrap_or_else(|| "still held".to_owned()),
            history::held_for_in_words(self.held_for_wall_ms, self.held_for_ms).unwrap_or_default(),
            self.ended.clone().unwrap_or_default(),
        ]
    }
}

impl Show for Who {
    fn to_table(&self) -> String {
        if self.holds.is_empty() {
            return String::new();
        }
        let rows: Vec<Vec<String>> = self.holds.iter().map(Held::to_row).collect();
        table(&["SESSION", "OWNER", "MODE", "FROM", "UNTIL", "HELD FOR", "ENDED"], &rows)
    }
}

pub(crate) async fn run(args: WhoArgs, global: &Global) -> Result<ExitCode, Problem> {
    let WhoArgs { name, token } = args;
    let token = token.number_of(&name, TierArg::Correctness)?;
    let calls = one_shot::calls(global)?;
    let past = Past { limit: EVENTS_MAX, token: Some(token), within: None };
    let answer = calls.history(&name, past).await?;
    let (kept, now_unix_ms) = (Kept::of(&answer), answer.unix_ms);
    let mut holds = holds_of(token, history::events_of(answer));
    if holds.is_empty() {
        let holders = calls.status(&name).await?.holders.into_iter();
        let holders = holders.filter(|holder| holder.token == token);
        holds.extend(holders.map(|holder| Held::now(holder, now_unix_ms)));
    }
    let mut not_found = None;
    if holds.is_empty() {
        let state = calls.check_token(&name, token).await?;
        not_found = Some(match kept.in_words() {
            _ if state == TokenState::NeverGiven => {
                format!("the cluster has not granted token {token} of '{name}' yet")
            }
            Some(kept) => format!("no known hold of '{name}' had token {token}: {kept}"),
            None => format!("no hold of '{name}' had token {token}"),
        });
    }
    let who = Who { name, token, holds, not_found, kept };
    let code = output::show(global.output, &who)?;
    match &who.not_found {
        None => Ok(code),
        Some(words) => {
            output::message(words);
            Ok(NOT_FOUND.into())
        }
    }
}

#[cfg(test)]
mod tests {
    use holdfast_proto::v1::{EventKind, HistoryResponse, Mode, WatchEvent};

    use super::*;

    fn event(kind: EventKind, session: &str, token: u64, unix_ms: u64) -> WatchEvent {
        let (mode, held_for_ms) = match kind {
            EventKind::Granted => (Mode::Shared, None),
            EventKind::Converted => (Mode::Exclusive, None),
            EventKind::Proclaimed => (Mode::Unspecified, None),
            _ => (Mode::Unspecified, Some(500)),
        };
        WatchEvent {
            kind: kind.into(),
            public_session_id: session.to_owned(),
            request_id: 7,
            token,
            unix_ms,
            mode: mode.into(),
            held_for_ms,
            ..Default::default()
        }
    }

    fn told(token: u64, events: Vec<WatchEvent>) -> Vec<(String, u64, Option<u64>, String)> {
        let answer = HistoryResponse { events, ..Default::default() };
        let held = holds_of(token, history::events_of(answer)).into_iter();
        held.map(|held| {
            let ended = held.ended.unwrap_or_default();
            (held.session, held.from_unix_ms, held.until_unix_ms, ended)
        })
        .collect()
    }

    fn line(
        session: &str,
        from: u64,
        until: Option<u64>,
        ended: &str,
    ) -> (String, u64, Option<u64>, String) {
        (session.to_owned(), from, until, ended.to_owned())
    }

    #[test]
    fn readers_that_share_a_token_are_told_each_with_its_end() {
        let events = vec![
            event(EventKind::Granted, "a", 3, 1_000),
            event(EventKind::Granted, "b", 3, 2_000),
            event(EventKind::Proclaimed, "a", 3, 2_500),
            event(EventKind::Released, "a", 3, 3_000),
        ];
        let expected = [line("a", 1_000, Some(3_000), "released"), line("b", 2_000, None, "")];
        assert_eq!(told(3, events), expected);
    }

    #[test]
    fn a_hold_ends_under_its_token_when_it_is_converted_to_another() {
        let events = vec![
            event(EventKind::Granted, "a", 3, 1_000),
            event(EventKind::Converted, "a", 5, 2_000),
            event(EventKind::Expired, "a", 5, 4_000),
        ];
        assert_eq!(told(3, events.clone()), [line("a", 1_000, Some(2_000), "converted")]);
        let answer = HistoryResponse { events: events.clone(), ..Default::default() };
        let converted = holds_of(3, history::events_of(answer)).remove(0);
        assert_eq!(converted.held_for_ms, Some(1_000));
        assert_eq!(told(5, events), [line("a", 2_000, Some(4_000), "expired")]);
    }

    #[test]
    fn a_hold_over_an_outage_is_told_as_long_as_it_was_by_the_clock() {
        let events = vec![
            event(EventKind::Granted, "a", 3, 1_000),
            // Half a second in the cluster's time, which stood still.
            event(EventKind::Released, "a", 3, 61_000),
        ];
        let answer = HistoryResponse { events, ..Default::default() };
        let events = history::events_of(answer);
        let held = holds_of(3, events).remove(0);
        assert_eq!(held.held_for_ms, Some(500));
        assert_eq!(held.to_row()[5], "1m00s");
        let end_alone = HistoryResponse {
            events: vec![event(EventKind::Released, "a", 3, 61_000)],
            ..Default::default()
        };
        let held = holds_of(3, history::events_of(end_alone)).remove(0);
        assert_eq!(held.to_row()[5], "500ms of cluster time");
    }

    #[test]
    fn an_end_alone_tells_when_it_began() {
        let events = vec![event(EventKind::Broken, "a", 3, 4_000)];
        assert_eq!(told(3, events), [line("a", 3_500, Some(4_000), "broken")]);
    }
}
