//! The one door between the front ends and the lock table.
//!
//! Every front end (gRPC calls, gRPC streams, framed connections, HTTP) decodes bytes, and encodes answers. What lies
//! between them happens here, for all front ends alike:
//!
//! 1. [`Service::begin`]: is there room for one more request of this kind?
//! 2. [`Service::authorise`]: may this [`Caller`] do that? What it may do becomes an [`Admitted`] value. The shards take
//!    no others.
//! 3. [`route`]: which node carries it out?
//!
//! # Invariants
//!
//! * [`Method`] is the table of all that a caller can ask for. Each row says what the method is, what its caller needs,
//!   which limit it counts for, and where it is carried out. A method without a row cannot be named, and a request that
//!   names no method is not admitted.
//! * Only [`Service::authorise`] makes an [`Authorised`] value, and only that makes an [`Admitted`] one.
//! * Nothing that a client sends claims an identity: [`identity_header`] finds such claims, and the front ends refuse them.
//! * No clock, no I/O, no thread: the simulation can run all of it.

mod access;
mod admit;
mod caller;
mod limits;
mod method;
mod needs;
mod route;
mod visible_names;

pub use access::{AuthMode, PolicyInForce, UnknownAuthMode};
pub use admit::{Admitted, Authorised, DenialObserver, Observer, Service};
pub use caller::{Caller, NotACaller, OnBehalfOf, Protocol, identity_header};
pub use limits::{ConcurrencyLimits, Permit, RELAYED_MAX};
pub use method::{Front, Kind, Limit, Method, Place, Row, Verb};
pub use needs::About;
pub use route::{Leader, Route, route};
pub use visible_names::VisibleNames;
