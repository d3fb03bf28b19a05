//! `holdfast cert ca`

use std::process::ExitCode;

use clap::Args;
use holdfast_tls::{Authority, Validity};

use super::directory::Directory;
use crate::exit::{Code, Problem};
use crate::global::Global;
use crate::output;

/// Makes the authority that signs the certificates of a cluster.
///
/// Who has its key can make a node or a client of the cluster. Keep it where certificates are issued, and nowhere else.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  holdfast cert ca --cluster prod
  holdfast cert ca --cluster prod --dir /secure/holdfast --days 1825")]
pub(crate) struct CaArgs {
    /// The name of the cluster, as the nodes' configuration has it.
    #[arg(long, value_name = "NAME")]
    cluster: String,
    /// For how many days it is valid.
    #[arg(long, value_name = "N", default_value_t = Validity::AUTHORITY_DAYS,
          value_parser = clap::value_parser!(u32).range(1..=36_500))]
    days: u32,
    #[command(flatten)]
    directory: Directory,
}

pub(crate) fn run(args: CaArgs, global: &Global) -> Result<ExitCode, Problem> {
    let authority = Authority::create(&args.cluster, Validity::days(args.days))
        .map_err(|error| Problem::new(Code::Usage, error.to_string()))?;
    output::hand_over(global.output, &args.directory.write_authority(&authority)?)
}
