//! `holdfast snapshot save`: the state of the cluster as a file.
//!
//! With several groups the file has one snapshot of each. They are saved one after the other: each at a moment of its
//! own, which is after the start of the command.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use holdfast_client::unary::{SnapshotPieces, Unary};
use holdfast_proto::v1::ClusterStatusResponse;
use holdfast_proto::v1::save_snapshot_chunk::Kind;
use holdfast_server::{BackupWriter, OfflineError};
use serde::Serialize;

use crate::exit::{Code, Problem};
use crate::global::Global;
use crate::one_shot;
use crate::output::{self, Show};

const PROGRESS_EVERY: Duration = Duration::from_secs(1);

/// Saves the state of the cluster to a file.
///
/// The file has the leader's state at one moment. It contains everything that was acknowledged before the command
/// started. The cluster keeps serving meanwhile. The file gets its name when it is complete and on disk. In a cluster
/// with several groups it has the state of each group, each at a moment of its own. If a group has no leader, nothing is
/// saved.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 saved; 64 the file exists already; 69 the cluster is unavailable, or the disk fails.

Examples:
  holdfast snapshot save /backup/locks.holdfast
  holdfast --endpoints 10.0.0.1:7420,10.0.0.2:7420 snapshot save locks.holdfast --force"
)]
pub(crate) struct SaveArgs {
    /// The file to write.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Overwrites an existing file.
    #[arg(long)]
    force: bool,
}

#[derive(Debug, Serialize)]
struct Saved {
    file: PathBuf,
    bytes: u64,
    /// Null with several groups, each of which has a log of its own.
    index: Option<u64>,
    groups: Vec<SavedGroup>,
}

#[derive(Debug, Serialize)]
struct SavedGroup {
    group: u32,
    index: u64,
}

impl Saved {
    fn new(file: PathBuf, bytes: u64, indexes: Vec<(u32, u64)>) -> Saved {
        let groups = indexes.into_iter().map(|(group, index)| SavedGroup { group, index });
        let groups: Vec<SavedGroup> = groups.collect();
        let index = match &groups[..] {
            [only] => Some(only.index),
            _ => None,
        };
        Saved { file, bytes, index, groups }
    }
}

impl Show for Saved {
    fn to_table(&self) -> String {
        let Saved { file, bytes, index, groups } = self;
        let file = file.display();
        match index {
            Some(index) => format!("saved {bytes} bytes to {file}, as of log index {index}\n"),
            None => {
                let indexes: Vec<String> = groups
                    .iter()
                    .map(|saved| format!("{} of group {}", saved.index, saved.group))
                    .collect();
                format!(
                    "saved {bytes} bytes of {} groups to {file}, as of log indexes {}\n",
                    groups.len(),
                    indexes.join(", ")
                )
            }
        }
    }
}

pub(super) async fn run(args: SaveArgs, global: &Global) -> Result<ExitCode, Problem> {
    // Before the cluster is asked for the snapshot.
    if args.file.as_os_str() == "-" {
        let words =
            "a snapshot is saved to a file, not to the standard output; ./- is a file of that name";
        return Err(Problem::new(Code::Usage, words));
    }
    BackupWriter::check_target(&args.file, args.force)?;
    let calls = one_shot::calls(global)?;
    let begun_with = calls.cluster_status().await?;
    let mut groups: Vec<u32> = begun_with.groups.iter().map(|status| status.group).collect();
    groups.sort_unstable();
    let group_count = groups.len();
    let mut writer = None;
    for group in groups {
        let part = Part { group, group_count };
        let saved = save_group(&calls, part, &begun_with, &args.file, writer).await;
        writer = Some(saved.map_err(|problem| part.name_in(problem))?);
    }
    let Some(writer) = writer else {
        let words = "the cluster shows no group whose state could be saved";
        return Err(Problem::new(Code::Unavailable, words));
    };
    let indexes = writer.indexes();
    let bytes = writer.finish(args.force)?;
    output::show(global.output, &Saved::new(args.file, bytes, indexes))
}

/// Which group is saved, and of how many.
#[derive(Clone, Copy, Debug)]
struct Part {
    group: u32,
    group_count: usize,
}

impl Part {
    fn is_of_several(self) -> bool {
        self.group_count > 1
    }

    fn name_in(self, problem: Problem) -> Problem {
        match self.is_of_several() {
            true => {
                let words = format!("group {} cannot be saved: {}", self.group, problem.words);
                Problem::new(problem.code, words)
            }
            false => problem,
        }
    }

    fn progress(self, (received, total): (u64, u64)) -> String {
        let of_group = match self.is_of_several() {
            true => format!("group {} of {}: ", self.group, self.group_count),
            false => String::new(),
        };
        format!("{of_group}{received} of {total} bytes")
    }
}

/// The first group begins the file, and each other one goes on with it.
async fn save_group(
    calls: &Unary,
    part: Part,
    begun_with: &ClusterStatusResponse,
    file: &Path,
    writer: Option<BackupWriter>,
) -> Result<BackupWriter, Problem> {
    // The only group needs no number, so that nodes of older builds understand the call.
    let of_group = match part.is_of_several() {
        true => calls.clone().in_group(part.group),
        false => calls.clone(),
    };
    let mut pieces = of_group.save_snapshot().await?;
    let Some(Kind::Header(header)) = pieces.next().await? else {
        let words = "the cluster sent something else than a snapshot";
        return Err(Problem::new(Code::Unavailable, words));
    };
    if !is_same_cluster(begun_with, &calls.cluster_status().await?) {
        let words = "the nodes at these addresses have become those of another cluster meanwhile; nothing was saved";
        return Err(Problem::new(Code::Unavailable, words));
    }
    let mut writer = match writer {
        None => BackupWriter::begin(file, &header)?,
        Some(mut writer) => {
            writer.next_group(&header)?;
            writer
        }
    };
    receive(&mut pieces, &mut writer, part).await?;
    Ok(writer)
}

/// Nodes keep their data directories. One that shows another was lost, or is of another cluster; a cluster in which
/// all that were known do is another one.
fn is_same_cluster(before: &ClusterStatusResponse, after: &ClusterStatusResponse) -> bool {
    let directories = |view: &ClusterStatusResponse| -> BTreeSet<String> {
        let known = view.nodes.iter().map(|node| node.directory_fingerprint.clone());
        known.filter(|directory| !directory.is_empty()).collect()
    };
    let (known, now) = (directories(before), directories(after));
    let is_kept = known.is_empty() || !known.is_disjoint(&now);
    before.cluster == after.cluster && is_kept
}

async fn receive(
    pieces: &mut SnapshotPieces,
    writer: &mut BackupWriter,
    part: Part,
) -> Result<(), Problem> {
    let mut last_shown = Instant::now();
    while let Some(kind) = pieces.next().await? {
        let Kind::Piece(piece) = kind else {
            let words = "the cluster sent two snapshots at once";
            return Err(Problem::new(Code::Unavailable, words));
        };
        writer.take(&piece)?;
        if last_shown.elapsed() >= PROGRESS_EVERY {
            last_shown = Instant::now();
            output::message(&part.progress(writer.progress()));
        }
    }
    Ok(())
}

impl From<OfflineError> for Problem {
    fn from(error: OfflineError) -> Problem {
        let code = if error.is_in_use() {
            Code::Busy
        } else if error.is_of_the_disk() {
            Code::Unavailable
        } else {
            Code::Usage
        };
        Problem::new(code, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use holdfast_proto::v1::NodeStatus;

    use super::*;

    fn view(directories: &[&str]) -> ClusterStatusResponse {
        let node = |directory: &&str| NodeStatus {
            directory_fingerprint: (*directory).to_owned(),
            ..NodeStatus::default()
        };
        let nodes = directories.iter().map(node).collect();
        ClusterStatusResponse { cluster: "dev".to_owned(), nodes, ..Default::default() }
    }

    #[test]
    fn a_cluster_of_the_same_name_on_other_directories_is_another_one() {
        let before = view(&["a", "b", ""]);
        assert!(!is_same_cluster(&before, &view(&["c", "d", ""])));
        assert!(is_same_cluster(&before, &view(&["a", "b", "c"])));
        assert!(is_same_cluster(&before, &view(&["d", "b"])), "one was replaced");
        assert!(is_same_cluster(&view(&["", ""]), &before), "nothing was known of it yet");
        let renamed = ClusterStatusResponse { cluster: "other".to_owned(), ..before.clone() };
        assert!(!is_same_cluster(&before, &renamed));
    }

    #[test]
    fn a_problem_names_its_group_if_there_are_several() {
        let problem = || Problem::new(Code::Unavailable, "no leader");
        let only = Part { group: 1, group_count: 1 };
        assert_eq!(only.name_in(problem()), problem());
        assert_eq!(only.progress((1, 2)), "1 of 2 bytes");
        let third = Part { group: 3, group_count: 4 };
        assert_eq!(third.name_in(problem()).words, "group 3 cannot be saved: no leader");
        assert_eq!(third.progress((1, 2)), "group 3 of 4: 1 of 2 bytes");
    }
}
