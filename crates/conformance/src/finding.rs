//! What a scenario found.

use std::io;

/// Why a scenario did not pass.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Finding {
    /// The driver does not follow the protocol.
    #[error("{0}")]
    Violation(String),
    /// The suite itself could not go on.
    #[error("the suite cannot go on: {0}")]
    Broken(String),
}

pub(crate) type Checked<T = ()> = Result<T, Finding>;

impl From<io::Error> for Finding {
    fn from(error: io::Error) -> Finding {
        Finding::Broken(error.to_string())
    }
}

pub(crate) fn violation<T>(words: impl Into<String>) -> Checked<T> {
    Err(Finding::Violation(words.into()))
}

pub(crate) fn broken(error: impl std::fmt::Display) -> Finding {
    Finding::Broken(error.to_string())
}

/// The driver must have done so.
pub(crate) fn ensure(is_so: bool, words: impl FnOnce() -> String) -> Checked {
    if is_so { Ok(()) } else { violation(words()) }
}
