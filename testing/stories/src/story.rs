//! What a story is, and how it can end.

use std::fmt;
use std::pin::Pin;

use crate::stage::Stage;
use crate::tale::Tale;

#[derive(Debug)]
pub(crate) struct Story {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) nodes: u64,
    pub(crate) play: for<'a> fn(&'a mut Stage, &'a mut Tale) -> Playing<'a>,
}

pub(crate) type Playing<'a> = Pin<Box<dyn Future<Output = Result<(), Trouble>> + 'a>>;

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
