//! `holdfast cert client`

use std::process::ExitCode;

use clap::Args;
use holdfast_tls::Validity;

use super::directory::Directory;
use crate::exit::{Code, Problem};
use crate::global::Global;
use crate::output;

/// Issues the certificate of a client.
///
/// The cluster knows the client as the principal `cert:NAME`. A new certificate of the same name is the same principal.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  holdfast cert client billing
  holdfast cert client billing --days 30 --replace")]
pub(crate) struct ClientArgs {
    /// The name of the client: letters, digits, `.`, `_`, `@` and `-`.
    #[arg(value_name = "NAME")]
    name: String,
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

pub(crate) fn run(args: ClientArgs, global: &Global) -> Result<ExitCode, Problem> {
    let authority = args.directory.load_authority()?;
    let issued = authority
        .issue_client(&args.name, Validity::days(args.days))
        .map_err(|error| Problem::new(Code::Usage, error.to_string()))?;
    let stem = format!("client-{}", args.name);
    output::hand_over(global.output, &args.directory.write_issued(&stem, &issued, args.replace)?)
}
