//! The lock table: the replicated state machine of Holdfast.
//!
//! [`LockTable`] is a plain value. [`LockTable::apply`] takes one command at a time, in log order, and changes the
//! table. It returns an [`Outcome`] for the sender of the command. It also returns [`Event`]s for all others concerned:
//! the waiter that was promoted, the holder that lost its lock, the watches. The caller of the table acts on them; the
//! table itself does no I/O.
//!
//! # Invariants
//!
//! * At any log index a lock has one exclusive holder, or shared holders, or permit holders. There are no more
//!   permit holders than permits, unless an operator has just lowered their number.
//! * Tokens come from one counter that only rises; every exclusive grant takes a new one.
//! * Waiters are served in log order: no waiter is granted what a waiter ahead of it waits for and could not share.
//!   Three requests go out of turn: a conversion, a transfer and a wound-wait request.
//! * An acquire-all holds all of its locks or none.
//! * Nothing is granted in a [`Slot`] that the table does not own, and the version of its slot map ([`MapEpoch`]) only
//!   rises.
//! * A request that is applied twice (same session, same [`RequestId`]) has the effect of one.
//! * Nothing expires except by [`Command::Tick`], and then only what is due at the tick's stamp.
//! * The same commands give the same bytes: [`LockTable::encode`] is canonical.
//! * A lock with no holder and no waiter costs no memory (unless it is closed by a lock delay).
//!
//! # What is deliberately absent
//!
//! No clock: time is the stamp that comes with each command. No I/O, no threads, no randomness, no
//! unordered map. The crate is `no_std`, so that none of these compiles here.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod model;
#[cfg(feature = "planted")]
pub mod planted;
mod queries;
mod rules;
mod state;

pub use model::access::change::{
    ACCESS_CHANGES_MAX, AccessChange, AccessRefusal, ChangeAccess, Roles, TokenId, TokenRecord,
};
pub use model::access::identity::{CLAIMED_ROLES_MAX, Identity};
pub use model::access::pattern::{Pattern, PatternError};
pub use model::access::policy::{
    Access, BOOTSTRAP_PRINCIPAL, NOTE_BYTES_MAX, POLICY_BYTES_MAX, PRINCIPALS_MAX, ROLES_MAX,
    ROLES_PER_PRINCIPAL_MAX, TOKENS_MAX,
};
pub use model::access::principal::{PRINCIPAL_BYTES_MAX, Principal, PrincipalError};
pub use model::access::quota::{QUOTA_MAX, QUOTAS_MAX, Quota, QuotaError, QuotaKind, QuotaSubject};
pub use model::access::role::{
    BuiltInRole, ROLE_NAME_BYTES_MAX, RULES_PER_ROLE_MAX, RoleName, RoleNameError, Rule,
};
pub use model::access::verb::{Scope, Verb, Verbs};
pub use model::batch::{Batch, BatchWriter};
pub use model::codec::DecodeError;
pub use model::command;
pub use model::command::Command;
pub use model::event::{EndReason, Event};
pub use model::id::{
    ActorId, FenceToken, LogIndex, PublicSessionId, RequestId, SessionId, StreamId,
};
pub use model::limits::{Limits, NAME_BYTES_MAX};
pub use model::name::{LockName, NameError, Names};
pub use model::outcome::{CycleLink, Grant, Intervened, Outcome, Rejection, ReleaseAnswer};
pub use model::publication::Publication;
pub use model::rules_version::RulesVersion;
pub use model::slot::{MapEpoch, SLOTS, Slot, SlotSet};
pub use model::slot_move::{Departures, GroupNumber, MoveEnd, MoveId, MoveStep};
pub use model::table_limits::TableLimits;
pub use model::time::{LogicalTime, Span};
pub use queries::lock_search::{LockSearch, LockSearchPart, Rank, SearchRange};
pub use queries::status::{
    FreezeInfo, HolderInfo, LockStatus, LockSummary, SessionSummary, TokenStanding, WaiterInfo,
};
pub use queries::why::{LockWhy, ReservedLock, WaitLink};
pub use rules::restore::{RestoreOptions, RestoreSummary};
pub use rules::slot_moves::{NextStep, next_step};
pub use state::access::{CompiledGrants, Grants};
pub use state::budget::SearchCost;
pub use state::moves::{Moves, Outgoing};
pub use state::ownership::Ownership;
pub use state::prefix_map::PrefixMap;
pub use state::snapshot::Digest;
pub use state::table::LockTable;
pub use state::usage::Used;
