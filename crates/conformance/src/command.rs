//! The command line, for what an operator does.

use std::path::Path;
use std::process::Stdio;

use crate::finding::{Checked, broken};

#[derive(Debug)]
pub(crate) struct Command {
    command: tokio::process::Command,
}

impl Command {
    pub(crate) fn new(holdfast: &Path) -> Command {
        let mut command = tokio::process::Command::new(holdfast);
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("HOLDFAST_")) {
            command.env_remove(name);
        }
        command.stdin(Stdio::null()).kill_on_drop(true);
        Command { command }
    }

    pub(crate) fn endpoints(mut self, endpoints: &str) -> Command {
        self.command.env("HOLDFAST_ENDPOINTS", endpoints);
        self
    }

    pub(crate) fn ca(mut self, ca: Option<&Path>) -> Command {
        if let Some(ca) = ca {
            self.command.env("HOLDFAST_CA", ca);
        }
        self
    }

    pub(crate) fn auth_file(mut self, file: &Path) -> Command {
        self.command.env("HOLDFAST_AUTH_FILE", file);
        self
    }

    /// What it printed. It must succeed.
    pub(crate) async fn run(mut self, arguments: &[&str]) -> Checked<String> {
        let output = self.command.args(arguments).output().await?;
        if !output.status.success() {
            let words = String::from_utf8_lossy(&output.stderr);
            return Err(broken(format!("holdfast {}: {words}", arguments.join(" "))));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}
