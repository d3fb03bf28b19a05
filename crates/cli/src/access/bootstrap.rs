//! `holdfast access bootstrap`: the first administrator of a new cluster.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use holdfast_client::Tls;
use holdfast_client::unary::Unary;
use holdfast_core::{BuiltInRole, Principal};
use holdfast_server::{NodeConfig, bootstrap_token, bootstrap_token_file};

use super::secret_file::TokenOutput;
use super::token;
use crate::exit::{Code, Problem};
use crate::global::Global;

/// A cluster that has just started elects its leader, and adopts its rules.
const PATIENCE: Duration = Duration::from_secs(15);

/// Makes the first administrator of a new cluster.
///
/// Run it on the machine of a node, as the user of the node. A node that demands credentials has written a token into its
/// data directory. This command uses it once: it creates the administrator and its token. From then on the token of the
/// data directory is refused.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 made; 77 the cluster has an administrator.

Examples:
  holdfast access bootstrap --config node-1.toml --to admin.token
  holdfast access bootstrap --config node-1.toml --user token:al --to al.token")]
pub(crate) struct BootstrapArgs {
    /// The configuration of the node.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// The administrator.
    #[arg(long, value_name = "USER", default_value = "token:admin", value_parser = super::parse_principal)]
    user: Principal,
    #[command(flatten)]
    output: TokenOutput,
}

/// For `holdfast dev --secure`: this client and a new token, which goes to a file, are the administrators.
pub(crate) async fn first_administrators(
    calls: &Unary,
    client: &Principal,
    token_file: &Path,
) -> Result<(), Problem> {
    let (new, user) = (token::random()?, super::parse_principal("token:dashboard"));
    let user = user.map_err(|words| Problem::new(Code::Usage, words))?;
    let roles = [BuiltInRole::Admin.name().to_owned()];
    let mut changes: Vec<_> = super::grants(client, &roles).collect();
    changes.extend(super::grants(&user, &roles));
    changes.push(token::put(&new, &user, None, "the dashboard".to_owned()));
    let destination = TokenOutput { to: Some(token_file.to_owned()) }.write(&new)?;
    let made = super::change(&calls.clone().timeout(PATIENCE), changes, false).await;
    made.map(drop).inspect_err(|_| destination.discard())
}

pub(super) async fn run(args: BootstrapArgs, global: &Global) -> Result<ExitCode, Problem> {
    let wrong = |words: String| Problem::new(Code::Usage, words);
    if !args.user.is_token() {
        return Err(wrong(format!("{} cannot have a token: say --user token:NAME", args.user)));
    }
    let config = NodeConfig::load(&args.config).map_err(|error| wrong(error.to_string()))?;
    bootstrap_token(&config.data_dir).map_err(|error| wrong(error.to_string()))?;
    let this_node = config.this_node().map_err(|error| wrong(error.to_string()))?;
    let address = config.listen.client.as_ref().unwrap_or(&this_node.client);
    // The authority of its clients, and of the nodes, is in most clusters the one of its own certificate.
    let authority = config.tls.as_ref().and_then(|tls| {
        let of_peers = config.peer_tls.as_ref().map(|tls| tls.ca.clone());
        tls.client_ca.clone().or(of_peers)
    });
    let tls = global.tls.clone().or_else(|| authority.map(Tls::new));
    // Another node has another token.
    let global = Global {
        endpoints: address.to_string(),
        output: global.output,
        tls,
        auth_file: Some(bootstrap_token_file(&config.data_dir)),
    };
    let calls = global.calls()?.timeout(PATIENCE);
    let new = token::random()?;
    let roles = [BuiltInRole::Admin.name().to_owned()];
    let mut changes: Vec<_> = super::grants(&args.user, &roles).collect();
    changes.push(token::put(&new, &args.user, None, "the first administrator".to_owned()));
    let destination = args.output.write(&new)?;
    match super::change(&calls, changes, false).await {
        Ok(generation) => {
            destination.hand_over(&global, &new, args.user.to_string(), Some(generation), None)
        }
        Err(problem) => {
            destination.discard();
            Err(problem)
        }
    }
}
