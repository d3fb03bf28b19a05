//! `holdfast snapshot save`: the state of the cluster at one moment, as a file.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use holdfast_client::unary::SnapshotPieces;
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
/// started. The cluster keeps serving meanwhile. The file gets its name when it is complete and on disk.
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
    index: u64,
}

impl Show for Saved {
    fn to_table(&self) -> String {
        let Saved { file, bytes, index } = self;
        format!("saved {bytes} bytes to {}, as of log index {index}\n", file.display())
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
    let mut pieces = calls.save_snapshot().await?;
    let Some(Kind::Header(header)) = pieces.next().await? else {
        let words = "the cluster sent something else than a snapshot";
        return Err(Problem::new(Code::Unavailable, words));
    };
    if !is_same_cluster(&begun_with, &calls.cluster_status().await?) {
        let words = "the nodes at these addresses have become those of another cluster meanwhile; nothing was saved";
        return Err(Problem::new(Code::Unavailable, words));
    }
    let mut writer = BackupWriter::begin(&args.file, &header)?;
    receive(&mut pieces, &mut writer).await?;
    let index = writer.index();
    let bytes = writer.finish(args.force)?;
    output::show(global.output, &Saved { file: args.file, bytes, index })
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

async fn receive(pieces: &mut SnapshotPieces, writer: &mut BackupWriter) -> Result<(), Problem> {
    let mut last_shown = Instant::now();
    while let Some(kind) = pieces.next().await? {
        let Kind::Piece(piece) = kind else {
            let words = "the cluster sent two snapshots at once";
            return Err(Problem::new(Code::Unavailable, words));
        };
        writer.take(&piece)?;
        if last_shown.elapsed() >= PROGRESS_EVERY {
            last_shown = Instant::now();
            let (received, total) = writer.progress();
            output::message(&format!("{received} of {total} bytes"));
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
}
