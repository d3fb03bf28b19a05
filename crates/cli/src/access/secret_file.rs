//! A new token goes to a file that its owner alone can read, or to stdout.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use holdfast_proto::AccessToken;
use serde::Serialize;

use crate::exit::{Code, Problem};
use crate::global::Global;
use crate::output::{self, Show};

#[derive(Debug, Args)]
pub(super) struct TokenOutput {
    /// Writes the token into this new file, which only its owner can read, instead of to stdout.
    #[arg(long, value_name = "FILE")]
    pub(super) to: Option<PathBuf>,
}

/// A token, for its user. It is told once.
#[derive(Debug, Serialize)]
pub(super) struct NewToken {
    pub(super) id: String,
    pub(super) principal: String,
    /// Of the policy. Null if it is not changed yet.
    pub(super) generation: Option<u64>,
    pub(super) expires_at_unix_ms: Option<u64>,
    file: Option<PathBuf>,
    /// Null if it is in the file.
    token: Option<String>,
}

/// Where a token will go. The file is there before the cluster knows the token, so that none is lost.
pub(super) struct Destination {
    file: Option<PathBuf>,
}

impl TokenOutput {
    pub(super) fn write(self, token: &AccessToken) -> Result<Destination, Problem> {
        let Some(path) = self.to else { return Ok(Destination { file: None }) };
        let cannot = |error: std::io::Error| {
            let words = match error.kind() {
                std::io::ErrorKind::AlreadyExists => {
                    format!("{} exists; name a new file, or remove it", path.display())
                }
                _ => format!("cannot write {}: {error}", path.display()),
            };
            Problem::new(Code::Usage, words)
        };
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        let text = format!("{}\n", token.to_secret_text());
        file.and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()
        })
        .map_err(cannot)?;
        Ok(Destination { file: Some(path) })
    }
}

impl Destination {
    /// Nothing knows the token.
    pub(super) fn discard(&self) {
        if let Some(path) = &self.file {
            // It is of no use, and no harm.
            let _ = std::fs::remove_file(path);
        }
    }

    pub(super) fn hand_over(
        self,
        global: &Global,
        token: &AccessToken,
        principal: String,
        generation: Option<u64>,
        expires_at_unix_ms: Option<u64>,
    ) -> Result<ExitCode, Problem> {
        let secret = match &self.file {
            None => Some(token.to_secret_text()),
            Some(_) => None,
        };
        let shown = NewToken {
            id: format!("{:016x}", token.id),
            principal,
            generation,
            expires_at_unix_ms,
            file: self.file,
            token: secret,
        };
        output::message(&shown.in_words());
        output::hand_over(global.output, &shown)
    }
}

impl NewToken {
    fn in_words(&self) -> String {
        let NewToken { id, principal, .. } = self;
        match &self.file {
            Some(path) => format!(
                "{principal} has the token {id}; use it with --auth-file {}",
                shown_path(path)
            ),
            None => format!(
                "{principal} has the token {id}, which is told only now; keep it in a file that others cannot read \
                 (--to FILE)"
            ),
        }
    }
}

fn shown_path(path: &Path) -> String {
    crate::text::quoted(&path.to_string_lossy())
}

impl Show for NewToken {
    fn to_table(&self) -> String {
        match (&self.token, &self.file) {
            (Some(token), _) => format!("{token}\n"),
            (None, Some(path)) => format!("{}\n", path.display()),
            (None, None) => String::new(),
        }
    }
}
