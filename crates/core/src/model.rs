//! Plain data: what goes into the lock table, what comes out, and how that is written. Nothing here knows the table.

pub(crate) mod access;
pub(crate) mod batch;
pub(crate) mod codec;
pub mod command;
pub(crate) mod event;
pub(crate) mod id;
pub(crate) mod limits;
pub(crate) mod mode;
pub(crate) mod name;
pub(crate) mod outcome;
pub(crate) mod publication;
pub(crate) mod rules_version;
pub(crate) mod slot;
pub(crate) mod slot_move;
pub(crate) mod table_limits;
pub(crate) mod time;
