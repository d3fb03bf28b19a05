//! Why a verb did not succeed, and the exit code that says so.

use std::fmt;
use std::process::ExitCode;

#[derive(Debug)]
pub(crate) enum Failure {
    /// The command line makes no sense; nothing was run.
    Usage(String),
    /// A check or a test failed, or could not be run.
    Failed(String),
}

impl Failure {
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Failure::Usage(_) => ExitCode::from(64),
            Failure::Failed(_) => ExitCode::FAILURE,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Usage(message) | Failure::Failed(message) => f.write_str(message),
        }
    }
}
