//! Looking at the table without changing it.

pub(crate) mod lock_search;
pub(crate) mod status;
pub(crate) mod why;
