//! `holdfast snapshot inspect`: what is in a snapshot file.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use holdfast_server::{FreezeLine, Inspection, LockLine, MemberLine, utc};
use serde::Serialize;

use crate::duration::in_words;
use crate::exit::Problem;
use crate::global::Global;
use crate::output::{self, Show};
use crate::text::{on_one_line, quoted, table};
use crate::token;

/// Shows what is in a snapshot file, and checks that it is complete.
///
/// The command needs no cluster. It reads and checks the whole file, including the lock table.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 complete; 64 the file is no snapshot, is damaged, or is of a newer version; 69 the
file cannot be read.

Examples:
  holdfast snapshot inspect locks.holdfast
  holdfast snapshot inspect locks.holdfast --locks billing/
  holdfast snapshot inspect locks.holdfast --locks '' --limit 1000000 --output json"
)]
pub(crate) struct InspectArgs {
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Also lists the locks whose names start with this; '' lists all.
    #[arg(long, value_name = "PREFIX")]
    locks: Option<String>,
    /// How many locks to list at most.
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 100)]
    limit: usize,
}

#[derive(Debug, Serialize)]
struct Report {
    cluster: String,
    /// Empty if the cluster had not chosen one yet.
    cluster_id: String,
    group: u32,
    index: u64,
    term: u64,
    logical_time_ms: u64,
    created: String,
    created_unix_ms: u64,
    made_by: String,
    bytes: u64,
    /// It is checked, so it is always right.
    checksum: String,
    snapshot_version: u8,
    table_version: u8,
    sessions: usize,
    locks: usize,
    waiters: usize,
    #[serde(serialize_with = "token::as_text")]
    last_token: u64,
    /// For how many locks an operator has set the number of permits.
    permits_set: usize,
    /// The first of these.
    permits: Vec<Permits>,
    freezes: Vec<Freeze>,
    members: Vec<Member>,
    /// Null unless it was asked for.
    listed_locks: Option<Vec<Lock>>,
}

#[derive(Debug, Serialize)]
struct Member {
    id: u64,
    role: &'static str,
    client_address: String,
    peer_address: String,
    data_dir_id: String,
}

#[derive(Debug, Serialize)]
struct Permits {
    name: String,
    permits: u32,
}

#[derive(Debug, Serialize)]
struct Freeze {
    prefix: String,
    remaining_ms: u64,
    by: String,
    reason: String,
}

#[derive(Debug, Serialize)]
struct Lock {
    name: String,
    mode: &'static str,
    holders: usize,
    waiters: usize,
    /// Of the first holder; 0 if it is free.
    #[serde(serialize_with = "token::as_text")]
    token: u64,
    application: String,
    host: String,
}

pub(super) fn run(args: &InspectArgs, global: &Global) -> Result<ExitCode, Problem> {
    let inspection = Inspection::of(&args.file)?;
    let listed = args.locks.as_ref().map(|prefix| inspection.locks(prefix, args.limit));
    let permits = inspection.permits(args.limit);
    output::show(global.output, &Report::of(inspection, permits, listed))
}

impl Report {
    fn of(
        inspection: Inspection,
        permits: Vec<(String, u32)>,
        listed: Option<Vec<LockLine>>,
    ) -> Report {
        Report {
            cluster: inspection.cluster,
            cluster_id: inspection.cluster_id,
            group: inspection.group,
            index: inspection.index,
            term: inspection.term,
            logical_time_ms: inspection.logical_time_ms,
            created: utc(inspection.created_unix_ms),
            created_unix_ms: inspection.created_unix_ms,
            made_by: inspection.made_by,
            bytes: inspection.file_bytes,
            checksum: format!("{:08x}", inspection.crc32c),
            snapshot_version: inspection.snapshot_version,
            table_version: inspection.table_version,
            sessions: inspection.sessions,
            locks: inspection.locks,
            waiters: inspection.waiters,
            last_token: inspection.last_token,
            permits_set: inspection.permits_set,
            permits: permits.into_iter().map(|(name, permits)| Permits { name, permits }).collect(),
            freezes: inspection.freezes.into_iter().map(Freeze::from).collect(),
            members: inspection.members.into_iter().map(Member::from).collect(),
            listed_locks: listed.map(|locks| locks.into_iter().map(Lock::from).collect()),
        }
    }
}

impl From<MemberLine> for Member {
    fn from(line: MemberLine) -> Member {
        let MemberLine { id, role, client_address, peer_address, data_dir_id } = line;
        Member { id, role, client_address, peer_address, data_dir_id }
    }
}

impl From<FreezeLine> for Freeze {
    fn from(line: FreezeLine) -> Freeze {
        let FreezeLine { prefix, remaining_ms, by, reason } = line;
        Freeze { prefix, remaining_ms, by, reason }
    }
}

impl From<LockLine> for Lock {
    fn from(line: LockLine) -> Lock {
        let LockLine { name, mode, holders, waiters, token, application, host } = line;
        Lock { name, mode, holders, waiters, token, application, host }
    }
}

impl Show for Report {
    fn to_table(&self) -> String {
        let or_unknown =
            |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
        let facts = [
            ("cluster", self.cluster.clone()),
            ("cluster id", or_unknown(&self.cluster_id)),
            ("group", self.group.to_string()),
            ("log index", format!("{} of term {}", self.index, self.term)),
            ("logical time", format!("{} ms", self.logical_time_ms)),
            (
                "created",
                format!(
                    "{} ({} ms after 1970), by version {}",
                    self.created, self.created_unix_ms, self.made_by
                ),
            ),
            ("size", format!("{} bytes", self.bytes)),
            ("checksum", format!("{}, right", self.checksum)),
            (
                "formats",
                format!("snapshot {}, table {}", self.snapshot_version, self.table_version),
            ),
            ("sessions", self.sessions.to_string()),
            ("locks", self.locks.to_string()),
            ("waiters", self.waiters.to_string()),
            ("last token", self.last_token.to_string()),
            ("permits set", self.permits_set.to_string()),
            ("freezes", self.freezes.len().to_string()),
        ];
        let mut text = String::new();
        for (what, value) in facts {
            text += &format!("{what:<13}{value}\n");
        }
        let members = self.members.iter().map(|member| {
            vec![
                member.id.to_string(),
                member.role.to_owned(),
                or_unknown(&member.client_address),
                or_unknown(&member.peer_address),
            ]
        });
        let headers = ["NODE", "ROLE", "CLIENTS", "PEERS"];
        text = text + "\n" + &table(&headers, &members.collect::<Vec<_>>());
        text += &self.what_operators_set();
        let Some(locks) = &self.listed_locks else { return text };
        let locks = locks.iter().map(|lock| {
            vec![
                lock.name.clone(),
                lock.mode.to_owned(),
                lock.holders.to_string(),
                lock.waiters.to_string(),
                lock.token.to_string(),
                lock.application.clone(),
                lock.host.clone(),
            ]
        });
        let headers = ["NAME", "MODE", "HOLDERS", "WAITERS", "TOKEN", "APPLICATION", "HOST"];
        text + "\n" + &table(&headers, &locks.collect::<Vec<_>>())
    }
}

impl Report {
    fn what_operators_set(&self) -> String {
        let mut text = String::new();
        if !self.permits.is_empty() {
            let permits = self.permits.iter();
            let rows: Vec<_> =
                permits.map(|one| vec![one.name.clone(), one.permits.to_string()]).collect();
            text = text + "\n" + &table(&["NAME", "PERMITS"], &rows);
        }
        if !self.freezes.is_empty() {
            let freezes = self.freezes.iter().map(|freeze| {
                vec![
                    quoted(&freeze.prefix),
                    in_words(freeze.remaining_ms),
                    on_one_line(&freeze.by),
                    on_one_line(&freeze.reason),
                ]
            });
            let headers = ["FROZEN PREFIX", "FOR ANOTHER", "BY", "REASON"];
            text = text + "\n" + &table(&headers, &freezes.collect::<Vec<_>>());
        }
        text
    }
}
