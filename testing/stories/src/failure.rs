//! How a story can end otherwise than it is told.

use std::fmt;

/// Why a story did not end as it is told.
#[derive(Debug)]
pub(crate) enum StoryFailure {
    /// It ended in another way: the product does not do what it promises.
    Unexpected(String),
    /// This machine lacks something; that is told, and is no failure.
    Unsupported(String),
    /// It did not get to its end.
    Aborted(String),
}

impl fmt::Display for StoryFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoryFailure::Unexpected(words) => write!(f, "not as expected: {words}"),
            StoryFailure::Unsupported(words) => write!(f, "cannot be played here: {words}"),
            StoryFailure::Aborted(words) => write!(f, "broke off: {words}"),
        }
    }
}

impl<E: std::error::Error> From<E> for StoryFailure {
    fn from(error: E) -> StoryFailure {
        StoryFailure::Aborted(error.to_string())
    }
}

/// The ending that a story must have.
pub(crate) fn must(is_so: bool, what: impl Into<String>) -> Result<(), StoryFailure> {
    if is_so { Ok(()) } else { Err(StoryFailure::Unexpected(what.into())) }
}
