//! How a story can end otherwise than it is told.

use std::fmt;

/// Why a story did not end as it is told.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// It ended in another way: the product does not do what it promises.
    NotAsTold(String),
    /// This machine lacks something; that is told, and is no failure.
    CannotBePlayed(String),
    /// It did not get to its end.
    Broke(String),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::NotAsTold(words) => write!(f, "not as told: {words}"),
            Trouble::CannotBePlayed(words) => write!(f, "cannot be played here: {words}"),
            Trouble::Broke(words) => write!(f, "broke off: {words}"),
        }
    }
}

impl<E: std::error::Error> From<E> for Trouble {
    fn from(error: E) -> Trouble {
        Trouble::Broke(error.to_string())
    }
}

/// The ending that a story must have.
pub(crate) fn must(is_so: bool, what: impl Into<String>) -> Result<(), Trouble> {
    if is_so { Ok(()) } else { Err(Trouble::NotAsTold(what.into())) }
}
