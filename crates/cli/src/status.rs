//! `holdfast status`: who holds one lock, and who waits for it.

use std::process::ExitCode;

use clap::Args;
use holdfast_proto::v1;
use serde::Serialize;

use crate::duration::in_words;
use crate::exit::Problem;
use crate::freezes::Freeze;
use crate::global::Global;
use crate::mode;
use crate::name;
use crate::one_shot;
use crate::output::{self, Show};
use crate::owner;
use crate::text::{on_one_line, quoted, table};
use crate::token;

/// Shows the holders and the queue of a lock, and whether it is frozen or closed.
///
/// `holdfast why` also says what to do about it.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  holdfast status deploy
  holdfast status deploy --output json | jq -r '.holders[0].token'")]
pub(crate) struct StatusArgs {
    /// The lock's name.
    #[arg(value_parser = name::parse)]
    name: String,
}

#[derive(Debug, Serialize)]
struct LockStatus {
    name: String,
    held: bool,
    /// At most 100 of them.
    holders: Vec<Holder>,
    holder_count: u64,
    /// The first 100 at most.
    waiters: Vec<Waiter>,
    waiter_count: u64,
    /// Set by an operator; null if none is.
    permits: Option<u32>,
    /// Null unless a lock delay keeps it closed.
    closed_for_ms: Option<u64>,
    frozen: Option<Freeze>,
    /// The lock of the same name in the efficiency tier, which is another one; null if it is not in use.
    efficiency: Option<InMemory>,
    group: u32,
    applied_index: u64,
    logical_time_ms: u64,
}

#[derive(Debug, Serialize)]
struct InMemory {
    holders: Vec<Holder>,
    holder_count: u64,
    waiters: Vec<Waiter>,
    waiter_count: u64,
}

#[derive(Debug, Serialize)]
pub(crate) struct Holder {
    pub(crate) session: String,
    pub(crate) owner: OwnerInfo,
    actor: u64,
    mode: &'static str,
    /// Of a semaphore, else 0.
    permits: u32,
    #[serde(serialize_with = "token::as_text")]
    pub(crate) token: u64,
    pub(crate) held_for_ms: u64,
    /// Null if only the session bounds the hold.
    remaining_ms: Option<u64>,
    /// Null in the efficiency tier, where it is not known.
    session_remaining_ms: Option<u64>,
    /// How long ago the client last renewed the session; null if the client is not connected, or it is not known.
    last_renewed_ms: Option<u64>,
    /// Its client keeps the session alive, so the session's end moves on.
    renewed: bool,
    /// The client's connection is gone, since at most so long; null if it is there, or the client never had one.
    disconnected_for_ms_max: Option<u64>,
    /// How often the holder entered it again.
    reentries: u32,
    preemptible: bool,
    pub(crate) metadata: String,
}

#[derive(Debug, Serialize)]
pub(crate) struct Waiter {
    session: String,
    pub(crate) owner: OwnerInfo,
    actor: u64,
    mode: &'static str,
    permits: u32,
    /// What else it must get at the same moment.
    also: Vec<String>,
    /// It holds the lock shared, and wants it exclusively.
    converts: bool,
    pub(crate) position: u64,
    pub(crate) waiting_for_ms: u64,
    remaining_ms: u64,
    /// What its hold will show.
    metadata: String,
}

/// Who is behind a session, for all listings.
#[derive(Debug, Default, Serialize)]
pub(crate) struct OwnerInfo {
    application: String,
    host: String,
    pid: u32,
    note: String,
}

impl From<Option<v1::Owner>> for OwnerInfo {
    fn from(owner: Option<v1::Owner>) -> OwnerInfo {
        let v1::Owner { application, host, pid, note } = owner.unwrap_or_default();
        OwnerInfo { application, host, pid, note }
    }
}

impl OwnerInfo {
    /// Opened by `holdfast elect`.
    pub(crate) fn is_of_election(&self) -> bool {
        owner::command(&self.application) == Some("elect")
    }

    /// The program that runs under the lock, for a cell of a table.
    pub(crate) fn command(&self) -> String {
        if self.note.is_empty() { "-".to_owned() } else { on_one_line(&self.note) }
    }

    /// `application@host:pid`, as far as it is known.
    pub(crate) fn in_words(&self) -> String {
        let mut words = owner::shown(&self.application).to_owned();
        if !self.host.is_empty() {
            words += &format!("@{}", self.host);
        }
        if self.pid != 0 {
            words += &format!(":{}", self.pid);
        }
        words
    }
}

impl From<v1::StatusResponse> for LockStatus {
    fn from(answer: v1::StatusResponse) -> LockStatus {
        LockStatus {
            name: answer.name,
            held: !answer.holders.is_empty(),
            holders: answer.holders.into_iter().map(Holder::from).collect(),
            holder_count: answer.holder_count,
            permits: (answer.permits > 0).then_some(answer.permits),
            closed_for_ms: answer.closed_for_ms,
            frozen: answer.frozen.map(Freeze::from),
            waiters: answer.waiters.into_iter().map(Waiter::from).collect(),
            waiter_count: answer.waiter_count,
            efficiency: answer.efficiency.map(InMemory::from),
            group: answer.group,
            applied_index: answer.applied_index,
            logical_time_ms: answer.logical_time_ms,
        }
    }
}

impl From<v1::EfficiencyStatus> for InMemory {
    fn from(status: v1::EfficiencyStatus) -> InMemory {
        InMemory {
            holders: status.holders.into_iter().map(Holder::from).collect(),
            holder_count: status.holder_count,
            waiters: status.waiters.into_iter().map(Waiter::from).collect(),
            waiter_count: status.waiter_count,
        }
    }
}

impl From<v1::Holder> for Holder {
    fn from(holder: v1::Holder) -> Holder {
        let (ttl_ms, remaining_ms) = (holder.session_ttl_ms, holder.session_remaining_ms);
        Holder {
            last_renewed_ms: (holder.renewed && ttl_ms > 0)
                .then(|| ttl_ms.saturating_sub(remaining_ms)),
            mode: mode::as_word(holder.mode()),
            session: holder.public_session_id,
            owner: holder.owner.into(),
            actor: holder.actor,
            permits: holder.permits,
            reentries: holder.reentries,
            preemptible: holder.preemptible,
            token: holder.token,
            held_for_ms: holder.held_for_ms,
            remaining_ms: holder.remaining_ms,
            session_remaining_ms: Some(remaining_ms).filter(|ms| *ms > 0),
            renewed: holder.renewed,
            disconnected_for_ms_max: holder.disconnected_for_ms_max,
            metadata: String::from_utf8_lossy(&holder.metadata).into_owned(),
        }
    }
}

impl From<v1::Waiter> for Waiter {
    fn from(waiter: v1::Waiter) -> Waiter {
        Waiter {
            mode: mode::as_word(waiter.mode()),
            session: waiter.public_session_id,
            owner: waiter.owner.into(),
            actor: waiter.actor,
            permits: waiter.permits,
            also: waiter.also,
            converts: waiter.converts,
            position: waiter.position,
            waiting_for_ms: waiter.waiting_for_ms,
            remaining_ms: waiter.remaining_ms,
            metadata: String::from_utf8_lossy(&waiter.metadata).into_owned(),
        }
    }
}

impl Show for LockStatus {
    fn to_table(&self) -> String {
        let mut text = match &self.frozen {
            Some(freeze) => {
                format!("{} is frozen {}; it is {}\n", self.name, freeze.until(), self.state())
            }
            None => format!("{} is {}\n", self.name, self.state()),
        };
        if let Some(permits) = self.permits {
            text += &format!("an operator has set {permits} permits\n");
        }
        if let Some(for_ms) = self.closed_for_ms {
            text += &format!(
                "no client gets it for another {}: the lock delay of a lost hold; `holdfast reopen {} --reason TEXT` opens it \
                 now\n",
                in_words(for_ms),
                quoted(&self.name)
            );
        }
        if let Some(freeze) = &self.frozen {
            text += &format!("{}\n", freeze.in_words());
        }
        if !self.holders.is_empty() {
            text += &format!("\n{}", holder_table(&self.holders));
        }
        if self.waiter_count > 0 {
            text += &format!("\n{} waiting\n\n{}", self.waiter_count, waiter_table(&self.waiters));
        }
        if let Some(InMemory { holders, holder_count, waiters, waiter_count }) = &self.efficiency {
            text += &format!(
                "\nin the efficiency tier, where it is another lock, {holder_count} hold it and \
                 {waiter_count} wait (best effort)\n\n{}",
                holder_table(holders)
            );
            if *waiter_count > 0 {
                text += &format!("\n{}", waiter_table(waiters));
            }
        }
        text
    }
}

impl LockStatus {
    fn state(&self) -> String {
        match (self.holders.first(), self.holder_count) {
            (None, _) if self.closed_for_ms.is_some() => "closed".to_owned(),
            (None, _) if self.waiter_count > 0 && self.frozen.is_none() => {
                format!("free, but reserved; `holdfast why {}` says for whom", quoted(&self.name))
            }
            (None, _) => "free".to_owned(),
            (Some(Holder { mode: "shared", .. }), count) => format!("held shared by {count}"),
            (Some(Holder { mode: "permit", permits, .. }), count) => {
                format!("a semaphore: {count} of {} permits out", self.permits.unwrap_or(*permits))
            }
            _ => "held".to_owned(),
        }
    }
}

pub(crate) fn holder_table(holders: &[Holder]) -> String {
    let rows: Vec<Vec<String>> = holders.iter().map(Holder::to_row).collect();
    let headers =
        ["HOLDER", "OWNER", "COMMAND", "MODE", "TOKEN", "HELD FOR", "RENEWED", "ENDS IN", "REASON"];
    table(&headers, &rows)
}

const WAITER_HEADERS: [&str; 9] = [
    "PLACE",
    "WAITER",
    "OWNER",
    "COMMAND",
    "MODE",
    "WAITS FOR",
    "GIVES UP IN",
    "ALSO NEEDS",
    "REASON",
];

pub(crate) fn waiter_table(waiters: &[Waiter]) -> String {
    let rows: Vec<Vec<String>> = waiters.iter().map(Waiter::to_row).collect();
    table(&WAITER_HEADERS, &rows)
}

impl Holder {
    /// When it ends if the cluster hears nothing more from its client.
    fn end_ms(&self) -> Option<u64> {
        self.remaining_ms.into_iter().chain(self.session_remaining_ms).min()
    }

    /// Whether a renewal moves that end.
    fn ends_with_session(&self) -> bool {
        self.session_remaining_ms
            .is_some_and(|session| self.remaining_ms.is_none_or(|own| session < own))
    }

    /// For a cell of a table: how long ago the client renewed it.
    fn renewed_cell(&self) -> String {
        match (self.last_renewed_ms, self.renewed) {
            _ if self.disconnected_for_ms_max.is_some() => "connection lost".to_owned(),
            (Some(ms), _) => format!("{} ago", in_words(ms)),
            (None, true) => "connected".to_owned(),
            (None, false) => "not connected".to_owned(),
        }
    }

    /// For a cell of a table.
    fn ends_in_cell(&self) -> String {
        self.end_ms().map_or_else(|| "with its session".to_owned(), in_words)
    }

    /// Follows "its holder releases it, or".
    pub(crate) fn ends_in_words(&self) -> String {
        let Some(end_ms) = self.end_ms() else { return "it ends with its session".to_owned() };
        let end = format!("it ends in {}", in_words(end_ms));
        if !self.ends_with_session() {
            return end;
        }
        match (self.last_renewed_ms, self.renewed) {
            _ if self.disconnected_for_ms_max.is_some() => {
                format!("{end} unless its client connects again before")
            }
            (Some(ms), _) => format!(
                "{end} unless its client renews it before (last renewal {} ago)",
                in_words(ms)
            ),
            (None, true) => format!("{end} unless its client renews it before"),
            (None, false) => {
                format!("{end} unless its client, which is not connected, renews it before")
            }
        }
    }

    /// That the client cannot release it now, in words that follow others; nothing if it can.
    pub(crate) fn connection_lost(&self) -> String {
        self.disconnected_for_ms_max.map_or_else(String::new, |ms| {
            format!("; its client's connection is gone, for {} at most", in_words(ms))
        })
    }

    /// Its reason in words that follow others; nothing if it gave none.
    pub(crate) fn because(&self) -> String {
        match self.metadata.as_str() {
            "" => String::new(),
            value if self.owner.is_of_election() => format!(", value: {}", on_one_line(value)),
            reason => format!(", because: {}", on_one_line(reason)),
        }
    }

    fn to_row(&self) -> Vec<String> {
        let mut mode = mode::in_cell(self.mode, self.permits);
        if self.owner.is_of_election() {
            mode += ", election";
        }
        if self.preemptible {
            mode += ", preemptible";
        }
        if self.reentries > 0 {
            mode += &format!(", entered {} times", u64::from(self.reentries) + 1);
        }
        vec![
            self.session.clone(),
            self.owner.in_words(),
            self.owner.command(),
            mode,
            self.token.to_string(),
            in_words(self.held_for_ms),
            self.renewed_cell(),
            self.ends_in_cell(),
            on_one_line(&self.metadata),
        ]
    }
}

impl Waiter {
    fn to_row(&self) -> Vec<String> {
        let converts = if self.converts { ", converts" } else { "" };
        vec![
            self.position.to_string(),
            self.session.clone(),
            self.owner.in_words(),
            self.owner.command(),
            mode::in_cell(self.mode, self.permits) + converts,
            in_words(self.waiting_for_ms),
            in_words(self.remaining_ms),
            self.also.join(", "),
            on_one_line(&self.metadata),
        ]
    }
}

pub(crate) async fn run(args: StatusArgs, global: &Global) -> Result<ExitCode, Problem> {
    let answer = one_shot::calls(global)?.status(&args.name).await?;
    output::show(global.output, &LockStatus::from(answer))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(remaining_ms: Option<u64>, renewed: bool) -> Holder {
        let owner = v1::Owner {
            application: "billing (holdfast elect)".into(),
            host: "box".into(),
            pid: 7,
            note: "report.sh".into(),
        };
        Holder::from(v1::Holder {
            owner: Some(owner),
            remaining_ms,
            session_remaining_ms: 20_000,
            session_ttl_ms: 30_000,
            renewed,
            ..Default::default()
        })
    }

    #[test]
    fn the_end_of_a_hold_is_told_with_its_last_renewal() {
        for (remaining_ms, renewed, cells, words) in [
            (
                None,
                true,
                ["10.0s ago", "20.0s"],
                "it ends in 20.0s unless its client renews it before (last renewal 10.0s ago)",
            ),
            (
                None,
                false,
                ["not connected", "20.0s"],
                "it ends in 20.0s unless its client, which is not connected, renews it before",
            ),
            (Some(5_000), true, ["10.0s ago", "5.0s"], "it ends in 5.0s"),
        ] {
            let held = held(remaining_ms, renewed);
            assert_eq!([held.renewed_cell(), held.ends_in_cell()], cells);
            assert_eq!(held.ends_in_words(), words);
        }
    }

    #[test]
    fn a_lost_connection_is_told_with_the_end_of_the_hold() {
        let gone = Holder { disconnected_for_ms_max: Some(10_000), ..held(None, false) };
        assert_eq!(gone.renewed_cell(), "connection lost");
        assert_eq!(
            gone.ends_in_words(),
            "it ends in 20.0s unless its client connects again before"
        );
        assert_eq!(gone.connection_lost(), "; its client's connection is gone, for 10.0s at most");
        assert_eq!(held(None, true).connection_lost(), "");
    }

    #[test]
    fn owner_command_and_election_are_in_the_table() {
        let shown = holder_table(&[held(None, true)]);
        for word in ["billing@box:7", "report.sh", "election", "10.0s ago"] {
            assert!(shown.contains(word), "{word}: {shown}");
        }
        assert!(!shown.contains("holdfast elect"), "{shown}");
    }

    #[test]
    fn that_a_lock_is_frozen_comes_before_that_it_is_free() {
        let frozen = v1::Frozen {
            remaining_ms: 60_000,
            by: "ops@box".into(),
            reason: "migration".into(),
            ..Default::default()
        };
        let answer =
            v1::StatusResponse { name: "a".into(), frozen: Some(frozen), ..Default::default() };
        let shown = LockStatus::from(answer).to_table();
        assert!(shown.starts_with("a is frozen until 2"), "{shown}");
        assert!(shown.contains("(another 1m00s); it is free\nops@box froze"), "{shown}");
        let free = v1::StatusResponse { name: "a".into(), ..Default::default() };
        assert_eq!(LockStatus::from(free).to_table(), "a is free\n");
    }
}
