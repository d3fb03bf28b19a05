//! Looking at the table without changing it.

pub(crate) mod status;
pub(crate) mod survey;
pub(crate) mod why;
