//! Admission: what happens to each request between the front ends and the lock table.
//!
//! Every front end (gRPC calls, gRPC streams, framed connections, HTTP) decodes bytes, and encodes answers. What lies
//! between them happens here, for all front ends alike:
//!
//! 1. [`Service::begin`]: is there room for one more request of this kind?
//! 2. [`Service::authorise`]: may this [`Caller`] do that, is it within its rate quotas, and can the audit file be
//!    written, where the configuration demands that? If so, the action becomes an [`Admitted`] value. The two ways to
//!    the shard (`rpc/door.rs` and `shard/framed.rs` of the server) take only such values.
//! 3. [`route`]: which node carries it out?
//!
//! # Invariants
//!
//! * [`Method`] is the table of all that a caller can ask for. Each row says what the method is, what its caller needs,
//!   which limit it counts for, and where it is carried out. The enum and the rows come from one macro, so every
//!   [`Method`] has a row. A request that names no method is not admitted.
//! * Only [`Service::authorise`] makes an [`Authorised`] value, and only that makes an [`Admitted`] one.
//! * No identity is taken from a header that names one: [`identity_header`] finds such headers, and
//!   the front ends refuse requests that carry one.
//! * No clock, no I/O, no thread. The host says what time it is. The simulation uses this crate's `route`.

mod access;
mod admit;
mod audit_gate;
mod caller;
pub mod hidden_names;
mod limits;
mod method;
mod needs;
#[cfg(feature = "planted")]
pub mod planted;
mod rates;
mod route;
mod visible_names;

pub use access::{
    AuthMode, PolicyInForce, ShownToken, UnknownAuthMode, token_is_over, unknown_token,
};
pub use admit::{Admitted, Authorised, DenialObserver, JwtVerifier, Observer, Service};
pub use audit_gate::{AuditGate, OnAuditFailure, UnknownOnAuditFailure};
pub use caller::{Caller, Credential, NotACaller, OnBehalfOf, Protocol, identity_header};
pub use limits::{ConcurrencyLimits, Permit, RELAYED_MAX};
pub use method::{CarriedOutBy, Front, Kind, Limit, Method, Row, Verb};
pub use needs::About;
pub use rates::TokenBucket;
pub use route::{Leader, Route, route};
pub use visible_names::VisibleNames;
