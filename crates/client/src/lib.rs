//! The client of Holdfast: one session, one stream, many locks.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use holdfast_client::Client;
//!
//! let client = Client::connect("127.0.0.1:7420").await?;
//! let guard = client.lock("wallet:user_123").wait(Duration::from_secs(10)).acquire().await?;
//! // Send the fence to the resource with every write: it refuses one that is out of date.
//! let fence = guard.fence()?;
//! # let _ = fence;
//! guard.release().await?;
//! # Ok(())
//! # }
//! ```
//!
//! Several locks at one moment, or none; no order of taking them has to be agreed on:
//!
//! ```no_run
//! # async fn example(client: holdfast_client::Client) -> Result<(), Box<dyn std::error::Error>> {
//! # use std::time::Duration;
//! let both = client.lock_all(["account/1", "account/2"]).wait(Duration::from_secs(10)).acquire().await?;
//! let tokens = both.tokens()?;
//! # let _ = tokens;
//! both.release().await?;
//! # Ok(())
//! # }
//! ```
//!
//! Several locks, one after the other, without deadlock: an older request never gives way to a
//! younger one. A request that is refused retries with its original start time (`since`), so in time
//! it is the oldest, and is no longer refused.
//!
//! ```no_run
//! # use std::time::Duration;
//! # use holdfast_client::{AcquireError, Client, Guard, Since};
//! async fn both(client: &Client, first: &str, second: &str) -> Result<[Guard; 2], AcquireError> {
//!     let wait = Duration::from_secs(10);
//!     let mut since = Since::NOW;
//!     loop {
//!         let died = match client.lock(first).wait(wait).wait_die().since(since).acquire().await {
//!             Ok(one) => {
//!                 let age = one.since();
//!                 match client.lock(second).wait(wait).wait_die().since(age).acquire().await {
//!                     Ok(other) => return Ok([one, other]),
//!                     // `one` is dropped here, which releases the first lock.
//!                     Err(error) => error,
//!                 }
//!             }
//!             Err(error) => error,
//!         };
//!         let AcquireError::Died { since: age } = died else { return Err(died) };
//!         since = age;
//!     }
//! }
//! ```
//!
//! An election of a leader, and work that ends when the process leads no longer; see [`Election`]:
//!
//! ```no_run
//! # async fn example(client: holdfast_client::Client) -> Result<(), Box<dyn std::error::Error>> {
//! # async fn lead(_: u64) {}
//! let leadership = client.election("reports").campaign("worker-7:8080").await?;
//! leadership.run_while_held(lead(leadership.epoch()?)).await?;
//! # Ok(())
//! # }
//! ```
//!
//! What the library takes care of:
//! - it keeps the session alive, follows the leader, and resends each unanswered request under the
//!   same request id, so that every operation takes effect once;
//! - each time a [`Guard`] is asked for its token, it reads a clock that also runs while the
//!   machine sleeps. It gives no token once the lock may have ended, whether or not a message has
//!   said so;
//! - a dropped guard is released, and a dropped `acquire` leaves no waiter behind;
//! - in a cluster of several Raft groups it has a session in each group whose locks it uses. Names with the same `{tag}`
//!   are in one group, and only such names can be taken together with [`Client::lock_all`];
//! - if no node has served the session for some seconds, calls fail at once; [`Client::circuit`]
//!   shows when that is so.
//!
//! Caveats:
//! - a program that is killed keeps its locks for its TTL, unless it has a [`companion`]. The end of a connection is
//!   no evidence of death, so the default linger is the TTL. A guard is never trusted for longer than the servers keep
//!   the lock: with a shorter [`ClientBuilder::linger`] its lease is as short;
//! - the work of releasing is done by a task: before the process ends, `release().await` the guards
//!   or [`Client::close`] the client, or else the locks are freed only by companion, linger or TTL.
//!
//! [`blocking`] is for programs without tokio; [`unary`] is the thin wrapper for single calls. What the client decides is
//! in the crate `holdfast-client-core`, which is pure; this one has the sockets, the clock and the tasks.
//!
//! Spans (of the crate `tracing`): `connect`; `acquire`; and `hold`, one for each operation on a
//! granted lock.

mod acquire_call;
mod auth_file;
pub mod blocking;
mod builder;
mod circuit;
mod client;
pub mod companion;
mod connection;
mod efficiency;
mod election;
mod error;
mod guard;
mod guard_all;
mod known_nodes;
mod lease_watch;
mod limits;
mod lock;
mod lock_all;
mod lock_options;
mod metrics;
mod served_by;
mod session;
mod status;
mod tls;
pub mod unary;

pub use auth_file::{AuthFileError, ShowToken};
pub use builder::ClientBuilder;
pub use circuit::Circuit;
pub use client::{Client, host_name};
pub use connection::NodeChannel;
pub use efficiency::{Efficiency, EfficiencyCounts, EfficiencyStatus, ServedBy, WhenDown};
pub use election::{CampaignError, Candidate, Election, Leader, Leadership, Observed, Observer};
pub use error::{
    AcquireError, CloseError, ConnectError, ConvertError, EfficiencyDown, GuaranteeRequired,
    InvalidEfficiency, NotInThisTier, ProclaimError, ReleaseError, RenewError, TransferError,
};
pub use guard::Guard;
pub use guard_all::GuardAll;
pub use holdfast_client_core::circuit::CircuitState;
pub use holdfast_client_core::endpoints::InvalidEndpoints;
pub use holdfast_client_core::error::{
    Cycle, CycleLink, LossReason, Lost, Rejection, Since, Unavailable, UnavailableCause,
};
pub use holdfast_client_core::hold::ReleaseOutcome;
pub use holdfast_client_core::lease;
pub use holdfast_client_core::tier::Tier;
pub use holdfast_proto::v1::Owner;
pub use holdfast_proto::{Fence, Guarantee, PublicSessionId, SessionId};
pub use lock::LockRequest;
pub use lock_all::{LockAllRequest, Member};
pub use lock_options::Policy;
pub use metrics::ClientMetrics;
pub use tls::{Tls, TlsError};
pub use unary::{Watch, Watched};

/// The seed for random retry delays, so that clients that started together do not retry together.
/// It needs no secrecy: where the system gives no randomness, all clients use the same seed.
fn jitter_seed() -> u64 {
    getrandom::u64().unwrap_or(0)
}
