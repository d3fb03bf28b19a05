//! The logic of a shard, without I/O: the replicas of its groups, the callers and streams that wait for them, and the
//! order in which it sends, writes and answers.
//!
//! [`Engine`] is pure, like the replica below it: no I/O, no clock, no thread. The server runs it on a shard thread,
//! and the simulation runs the same code. A host does this in a loop:
//!
//! ```text
//! call / frame / read / peer_message / stream_closed ...   inputs, in any order
//! handle_time(now)                                         the time, after the other inputs of the turn
//! advance(now) -> Step                                     until it rests; after each call: take_effects, in order
//!     Step::GoOn     call it again
//!     Step::Write    make `turns` durable, then call `disk_done`, or `disk_full` and try the same again later
//!     Step::Rest     wait for input, at most for `idle_for_at_most`
//!     Step::Stop     the engine has ended
//! ```
//!
//! # Invariants
//!
//! * An answer, a vote or an acknowledgement leaves only after the write that it depends on is durable.
//! * Each caller gets one answer, with three exceptions, in which its reply handle is dropped: a leadership transfer
//!   that an operator asks for while the disk is full; a progress report of the Kafka publisher (`EventsPublished`),
//!   while some node runs an older version that cannot read such an entry; a waiting call whose client has sent it
//!   again.
//! * A stream gets one list of answers before the write of each pass, and one at the end of the turn, in order.
//!   Notices, which no request asked for, go to the session's latest stream.
//! * While the disk is full, every call is refused, and a refused call is never carried out later.
//! * The same inputs give the same effects, if the election timeout is fixed.

mod answer;
mod boot_time;
mod callers;
mod effect;
mod engine;
mod heartbeats;
mod host;
mod leader_lease;
mod log;
mod peer_registry;
pub mod planted;
mod query;
mod request_owners;
mod streams;

pub use answer::{
    Answer, ChangeAnswer, Delivery, ReplyTo, StreamKey, Touched, TouchesAnswer, Unavailable, Wait,
};
pub use boot_time::BootTime;
pub use effect::{Effect, Step, StopCause, TierChange};
pub use engine::{Engine, EngineConfig, Now};
pub use heartbeats::is_deferrable;
pub use host::Host;
pub use leader_lease::LeaderLease;
pub use log::{LogError, Obstacle, TurnLog, to_durable, to_wal_snapshot};
pub use query::{Query, ReadAnswer, ReadData, STATUS_SHOWN_MAX, WholeState};
pub use request_owners::{CallRef, LiveCall};
pub use streams::{CutOff, Streams};
