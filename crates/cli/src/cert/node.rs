//! `holdfast cert node`

use std::process::ExitCode;

use clap::Args;
use holdfast_tls::Validity;

use super::directory::Directory;
use crate::exit::{Code, Problem};
use crate::global::Global;
use crate::output;

/// Issues the certificate of a node.
///
/// It is for the client port, the HTTP port and the peer port. Clients compare the cluster's name in it, so the node may move to
/// another address. Hosts are needed by clients that compare those, such as browsers.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  holdfast cert node --id 1 --host locks-1.example.com --host 10.0.0.1
  holdfast cert node --id 1 --host locks-1.example.com --replace")]
pub(crate) struct NodeArgs {
    /// The id of the node.
    #[arg(long, value_name = "ID", value_parser = clap::value_parser!(u64).range(1..))]
    id: u64,
    /// A host name or an address of the node; may be given several times.
    #[arg(long = "host", value_name = "HOST")]
    hosts: Vec<String>,
    /// For how many days it is valid.
    #[arg(long, value_name = "N", default_value_t = Validity::LEAF_DAYS,
          value_parser = clap::value_parser!(u32).range(1..=36_500))]
    days: u32,
    /// Replaces the files of an earlier certificate.
    #[arg(long)]
    replace: bool,
    #[command(flatten)]
    directory: Directory,
}

pub(crate) fn run(args: NodeArgs, global: &Global) -> Result<ExitCode, Problem> {
    let authority = args.directory.load_authority()?;
    let issued = authority
        .issue_node(args.id, &args.hosts, Validity::days(args.days))
        .map_err(|error| Problem::new(Code::Usage, error.to_string()))?;
    let stem = format!("node-{}", args.id);
    output::hand_over(global.output, &args.directory.write_issued(&stem, &issued, args.replace)?)
}
