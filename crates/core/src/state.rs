//! What the lock table consists of: sessions, locks, queues, and the indexes over them. Each change keeps all of them
//! in step. What a command means is not known here.

pub(crate) mod access;
pub(crate) mod answers;
pub(crate) mod budget;
pub(crate) mod deadlines;
pub(crate) mod deferred;
mod dense_map;
pub(crate) mod ended_sessions;
pub(crate) mod freezes;
pub(crate) mod hold;
pub(crate) mod lock;
pub(crate) mod moves;
pub(crate) mod ownership;
pub(crate) mod prefix_map;
pub(crate) mod queue;
pub(crate) mod session;
pub(crate) mod session_waits;
pub(crate) mod size;
pub(crate) mod snapshot;
mod snapshot_map;
pub(crate) mod table;
mod unfinished_snapshot;
pub(crate) mod usage;
pub(crate) mod wait;
