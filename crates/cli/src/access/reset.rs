//! `holdfast access reset`: the way back in when no administrator can prove who it is.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use holdfast_core::Principal;
use holdfast_server::{NodeConfig, reset_access};

use super::secret_file::TokenOutput;
use super::token;
use crate::exit::{Code, Problem};
use crate::global::Global;
use crate::output;

const WARNING: &str = "\
`holdfast access reset` takes everything from all administrators, and makes one new administrator.

  * Users who may change the policy lose all roles and tokens. Their locks end within their TTL.
  * Other users, their roles and their sessions stay.
  * It happens when this node starts again, and needs a majority of the nodes.";

/// Makes a new administrator, and takes everything from the others: for operators who are locked out.
///
/// Run it on the machine of one node, as the user of the node, while that node is stopped. Then start the node.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 prepared; 64 the flag or the data is missing; 75 the node runs.

Examples:
  holdfast access reset --config node-1.toml
  holdfast access reset --config node-1.toml --i-am-locked-out --to admin.token"
)]
pub(crate) struct ResetArgs {
    /// The configuration of the node.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Confirms that all administrators are to lose everything.
    #[arg(long)]
    i_am_locked_out: bool,
    /// The new administrator.
    #[arg(long, value_name = "USER", default_value = "token:admin", value_parser = super::parse_principal)]
    user: Principal,
    #[command(flatten)]
    output: TokenOutput,
}

pub(super) fn run(args: ResetArgs, global: &Global) -> Result<ExitCode, Problem> {
    let wrong = |words: String| Problem::new(Code::Usage, words);
    if !args.i_am_locked_out {
        let words = format!("{WARNING}\n\nIf that is what you want, say --i-am-locked-out");
        return Err(wrong(words));
    }
    if !args.user.is_token() {
        return Err(wrong(format!("{} cannot have a token: say --user token:NAME", args.user)));
    }
    output::message(WARNING);
    let config = NodeConfig::load(&args.config).map_err(|error| wrong(error.to_string()))?;
    let new = token::random()?;
    let destination = args.output.write(&new)?;
    if let Err(error) = reset_access(&config, &args.user, &new) {
        destination.discard();
        let (code, words) = match error.is_in_use() {
            true => (Code::Busy, format!("{error}; stop the node first")),
            false => (Code::Usage, error.to_string()),
        };
        return Err(Problem::new(code, words));
    }
    output::message("start the node: from then on the token is that of the only administrator");
    destination.hand_over(global, &new, args.user.to_string(), None, None)
}
