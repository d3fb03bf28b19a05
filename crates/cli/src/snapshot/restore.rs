//! `holdfast snapshot restore`: a new cluster from a snapshot file.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use holdfast_server::{NodeConfig, restore};
use serde::Serialize;

use crate::exit::{Code, Problem};
use crate::global::Global;
use crate::new_cluster::{NewClusterArgs, NewClusterReport};
use crate::output::{self, Show};
use crate::text::quoted;

/// Creates the data directory of a new cluster's first node from a snapshot file.
///
/// Run it for ONE node, on its empty data directory. Add the other nodes with `holdfast cluster add`. The cluster gets
/// a new id, so nodes of the old cluster and of the new one refuse each other, even if both clusters have the same
/// name. All sessions end. New tokens are higher than all that the old cluster can have granted. The old cluster must
/// be stopped.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 restored; 64 the file is no snapshot, is damaged, or is of a newer version, the data
directory is not empty, or the configuration is wrong; 69 the disk fails.

Examples:
  holdfast snapshot restore locks.holdfast --config node-1.toml
  holdfast snapshot restore locks.holdfast --config node-1.toml --closed-for 0s"
)]
pub(crate) struct RestoreArgs {
    /// The file that `snapshot save` wrote.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The configuration of the new cluster's first node.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    #[command(flatten)]
    new: NewClusterArgs,
}

#[derive(Debug, Serialize)]
struct Report {
    data_dir: PathBuf,
    old_cluster: String,
    old_cluster_id: String,
    #[serde(flatten)]
    new: NewClusterReport,
    #[serde(skip)]
    config: String,
}

impl Show for Report {
    fn to_table(&self) -> String {
        format!(
            "restored cluster '{}' to {}\n{}{}",
            self.old_cluster,
            self.data_dir.display(),
            self.new.to_lines(),
            self.new.next_steps(&self.config)
        )
    }
}

pub(super) fn run(args: &RestoreArgs, global: &Global) -> Result<ExitCode, Problem> {
    let config = NodeConfig::load(&args.config)
        .map_err(|error| Problem::new(Code::Usage, error.to_string()))?;
    let restored = restore(&args.file, &config, (&args.new).into())?;
    let report = Report {
        data_dir: config.data_dir,
        new: NewClusterReport::of(&restored.new, restored.highest_node),
        old_cluster: restored.old_cluster,
        old_cluster_id: restored.old_cluster_id,
        config: quoted(&args.config.to_string_lossy()),
    };
    output::show(global.output, &report)
}
