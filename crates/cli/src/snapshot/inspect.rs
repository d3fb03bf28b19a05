//! `holdfast snapshot inspect`: what is in a snapshot file.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use holdfast_server::{FreezeLine, GroupInspection, Inspection, LockLine, MemberLine, utc};
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
    /// The file that `snapshot save` wrote.
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
    /// Null with several groups, as is all that each group has for itself.
    group: Option<u32>,
    index: Option<u64>,
    term: Option<u64>,
    logical_time_ms: Option<u64>,
    created: String,
    created_unix_ms: u64,
    made_by: String,
    bytes: u64,
    /// It is checked, so it is always right.
    checksum: Option<String>,
    snapshot_version: Option<u8>,
    table_version: Option<u8>,
    /// Of all groups. A client has a session in each group whose locks it uses.
    sessions: usize,
    locks: usize,
    waiters: usize,
    /// The highest of all groups.
    #[serde(serialize_with = "token::as_text")]
    last_token: u64,
    /// For how many locks an operator has set the number of permits.
    permits_set: usize,
    /// The first of these.
    permits: Vec<Permits>,
    freezes: Vec<Freeze>,
    members: Vec<Member>,
    groups: Vec<Group>,
    /// Null unless it was asked for.
    listed_locks: Option<Vec<Lock>>,
}

#[derive(Debug, Serialize)]
struct Group {
    group: u32,
    /// How many it owns.
    slots: usize,
    index: u64,
    term: u64,
    logical_time_ms: u64,
    created: String,
    created_unix_ms: u64,
    checksum: String,
    snapshot_version: u8,
    table_version: u8,
    sessions: usize,
    locks: usize,
    waiters: usize,
    #[serde(serialize_with = "token::as_text")]
    last_token: u64,
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
        let groups: Vec<Group> = inspection.groups.into_iter().map(Group::from).collect();
        let only = match &groups[..] {
            [only] => Some(only),
            _ => None,
        };
        Report {
            cluster: inspection.cluster,
            cluster_id: inspection.cluster_id,
            group: only.map(|group| group.group),
            index: only.map(|group| group.index),
            term: only.map(|group| group.term),
            logical_time_ms: only.map(|group| group.logical_time_ms),
            created: utc(inspection.created_unix_ms),
            created_unix_ms: inspection.created_unix_ms,
            made_by: inspection.made_by,
            bytes: inspection.file_bytes,
            checksum: only.map(|group| group.checksum.clone()),
            snapshot_version: only.map(|group| group.snapshot_version),
            table_version: only.map(|group| group.table_version),
            sessions: groups.iter().map(|group| group.sessions).sum(),
            locks: groups.iter().map(|group| group.locks).sum(),
            waiters: groups.iter().map(|group| group.waiters).sum(),
            last_token: groups.iter().map(|group| group.last_token).max().unwrap_or_default(),
            permits_set: inspection.permits_set,
            permits: permits.into_iter().map(|(name, permits)| Permits { name, permits }).collect(),
            freezes: inspection.freezes.into_iter().map(Freeze::from).collect(),
            members: inspection.members.into_iter().map(Member::from).collect(),
            groups,
            listed_locks: listed.map(|locks| locks.into_iter().map(Lock::from).collect()),
        }
    }
}

impl From<GroupInspection> for Group {
    fn from(inspected: GroupInspection) -> Group {
        Group {
            group: inspected.group,
            slots: inspected.slots,
            index: inspected.index,
            term: inspected.term,
            logical_time_ms: inspected.logical_time_ms,
            created: utc(inspected.created_unix_ms),
            created_unix_ms: inspected.created_unix_ms,
            checksum: format!("{:08x}", inspected.crc32c),
            snapshot_version: inspected.snapshot_version,
            table_version: inspected.table_version,
            sessions: inspected.sessions,
            locks: inspected.locks,
            waiters: inspected.waiters,
            last_token: inspected.last_token,
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
        let of_only_group = match &self.groups[..] {
            [only] => vec![
                ("group", only.group.to_string()),
                ("log index", format!("{} of term {}", only.index, only.term)),
                ("logical time", format!("{} ms", only.logical_time_ms)),
            ],
            groups => vec![("groups", groups.len().to_string())],
        };
        let is_right = match &self.groups[..] {
            [only] => vec![
                ("checksum", format!("{}, right", only.checksum)),
                (
                    "formats",
                    format!("snapshot {}, table {}", only.snapshot_version, only.table_version),
                ),
            ],
            _ => vec![("checksums", "right".to_owned())],
        };
        let created = format!(
            "{} ({} ms after 1970), by version {}",
            self.created, self.created_unix_ms, self.made_by
        );
        let facts = [
            vec![("cluster", self.cluster.clone()), ("cluster id", or_unknown(&self.cluster_id))],
            of_only_group,
            vec![("created", created), ("size", format!("{} bytes", self.bytes))],
            is_right,
            vec![
                ("sessions", self.sessions.to_string()),
                ("locks", self.locks.to_string()),
                ("waiters", self.waiters.to_string()),
                ("last token", self.last_token.to_string()),
                ("permits set", self.permits_set.to_string()),
                ("freezes", self.freezes.len().to_string()),
            ],
        ];
        let mut text = String::new();
        for (what, value) in facts.into_iter().flatten() {
            text += &format!("{what:<13}{value}\n");
        }
        text += &self.each_group();
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
    /// Nothing if there is only one.
    fn each_group(&self) -> String {
        if self.groups.len() < 2 {
            return String::new();
        }
        let rows = self.groups.iter().map(|group| {
            vec![
                group.group.to_string(),
                group.slots.to_string(),
                format!("{} of term {}", group.index, group.term),
                group.created.clone(),
                group.locks.to_string(),
                group.last_token.to_string(),
            ]
        });
        let headers = ["GROUP", "SLOTS", "LOG INDEX", "CREATED", "LOCKS", "LAST TOKEN"];
        "\n".to_owned() + &table(&headers, &rows.collect::<Vec<_>>())
    }

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
