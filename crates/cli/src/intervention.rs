//! What the commands of an operator have in common: who steps in, and why.

use clap::Args;
use holdfast_client::unary::Why;
use nix::unistd::{User, getuid};

const REASON_BYTES_MAX: usize = 512;

#[derive(Debug, Args)]
pub(crate) struct ReasonArgs {
    /// Why you do this. Recorded in the history, with your user name and host.
    #[arg(long, value_name = "TEXT", value_parser = parse_reason)]
    reason: String,
}

impl ReasonArgs {
    pub(crate) fn why(&self) -> Why {
        why(&self.reason)
    }
}

/// In the name of the user of this process.
pub(crate) fn why(reason: &str) -> Why {
    Why { by: by(), reason: reason.to_owned() }
}

/// Before anything is looked up, and with the name of the flag.
pub(crate) fn parse_reason(text: &str) -> Result<String, &'static str> {
    match text.trim() {
        "" => Err("must not be empty"),
        reason if reason.len() > REASON_BYTES_MAX => Err("must have at most 512 bytes"),
        reason => Ok(reason.to_owned()),
    }
}

/// `user@host`
fn by() -> String {
    let uid = getuid();
    let user = match User::from_uid(uid) {
        Ok(Some(user)) => user.name,
        _ => format!("uid {uid}"),
    };
    format!("{user}@{}", holdfast_client::host_name())
}
