//! `holdfast access whoami`: who the cluster takes this client for.

use std::process::ExitCode;

use clap::Args;
use serde::Serialize;

use crate::exit::Problem;
use crate::global::Global;
use crate::output::{self, Show};

/// Shows who the cluster takes this client for, its roles, and what the node demands.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  holdfast access whoami
  holdfast --auth-file billing.token access whoami --output json")]
pub(crate) struct WhoamiArgs {}

#[derive(Debug, Serialize)]
struct Whoami {
    /// `anonymous` if this client has not proved who it is.
    principal: String,
    /// That the policy gives.
    roles: Vec<String>,
    /// That the credential names.
    claimed_roles: Vec<String>,
    /// `off`, `permissive` or `required`.
    mode: String,
    generation: u64,
}

impl Show for Whoami {
    fn to_table(&self) -> String {
        let roles: Vec<&str> =
            self.roles.iter().chain(&self.claimed_roles).map(String::as_str).collect();
        let roles = if roles.is_empty() { "none".to_owned() } else { roles.join(", ") };
        let mode = match &*self.mode {
            "off" => "off: every client may do everything but see and change the policy",
            "permissive" => "permissive: as off, and the nodes log what they would deny",
            "required" => "required: a client may do what its roles allow",
            other => other,
        };
        format!(
            "principal   {}\nroles       {roles}\nmode        {mode}\ngeneration  {}\n",
            self.principal, self.generation
        )
    }
}

pub(super) async fn run(global: &Global) -> Result<ExitCode, Problem> {
    let found = global.calls()?.who_am_i().await?;
    output::show(
        global.output,
        &Whoami {
            principal: found.principal,
            roles: found.roles,
            claimed_roles: found.claimed_roles,
            mode: found.mode,
            generation: found.generation,
        },
    )
}
