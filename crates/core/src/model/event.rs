//! What a command changed for others than its sender.

use alloc::boxed::Box;
use alloc::string::String;

use crate::model::access::change::ChangeAccess;
use crate::model::access::principal::Principal;
use crate::model::command::{Intervention, Mode, Owner};
use crate::model::id::{ActorId, FenceToken, PublicSessionId, RequestId, SessionId};
use crate::model::name::{LockName, Names};
use crate::model::outcome::Outcome;
use crate::model::slot::{MapEpoch, SlotSet};
use crate::model::time::LogicalTime;

/// A change in the table. The leader acts on it: it answers the parked call, or notifies the holder. Every replica can
/// record it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    SessionOpened {
        session: SessionId,
        public: PublicSessionId,
        owner: Box<Owner>,
        /// None if what the session does is not checked.
        principal: Option<Principal>,
    },
    SessionEnded {
        session: SessionId,
        public: PublicSessionId,
        reason: EndReason,
    },
    /// The session has ended, and later entries end the rest of its holds and waits. [`Event::SessionEnded`] follows
    /// when none is left. It is for the node itself: it is neither published nor watched.
    SessionEnding {
        session: SessionId,
        public: PublicSessionId,
        reason: EndReason,
    },
    /// A hold began, at once or after a wait.
    Granted {
        name: LockName,
        session: SessionId,
        request: RequestId,
        actor: ActorId,
        mode: Mode,
        token: FenceToken,
        metadata: Box<[u8]>,
    },
    /// A request took its place in the queue.
    Queued {
        name: LockName,
        session: SessionId,
        request: RequestId,
        actor: ActorId,
        mode: Mode,
    },
    /// The table refused a request: because of a limit, a freeze, a cycle of waits or an older actor. A busy lock alone
    /// causes no such event.
    Refused {
        names: Names,
        session: SessionId,
        request: RequestId,
        outcome: Outcome,
    },
    /// A queued request has its answer: `Granted`, `TimedOut`, `Cancelled`, or rejected because its
    /// session or the hold that it was to convert ended.
    WaitEnded {
        names: Names,
        session: SessionId,
        request: RequestId,
        outcome: Outcome,
    },
    /// A hold has another mode, and under `Exclusive` a new token. `request` is its acquire.
    Converted {
        name: LockName,
        session: SessionId,
        request: RequestId,
        mode: Mode,
        token: FenceToken,
        metadata: Box<[u8]>,
    },
    /// A hold has other metadata.
    Proclaimed {
        name: LockName,
        session: SessionId,
        token: FenceToken,
        metadata: Box<[u8]>,
    },
    /// The holder released it, or closed its session.
    Released {
        name: LockName,
        session: SessionId,
        /// The acquire of the hold.
        request: RequestId,
        token: FenceToken,
        granted_at: LogicalTime,
        /// The session was closed, and no release came before.
        by_close: bool,
    },
    /// The hold ended without a release by its holder.
    HoldEnded {
        name: LockName,
        session: SessionId,
        request: RequestId,
        token: FenceToken,
        granted_at: LogicalTime,
        reason: EndReason,
    },
    /// A lock delay is over.
    Reopened {
        name: LockName,
    },
    /// An operator intervened. The events that follow in the same command are its effects.
    Intervened(Intervention),
    /// An administrator changed who may do what. What follows in the same command came of it.
    AccessChanged {
        change: Box<ChangeAccess>,
        /// Of the policy that is in force now.
        generation: u64,
    },
    /// The group has adopted the policy of this generation from the root group. What follows in the same command came of
    /// it. It is for the node itself: it is neither published nor watched.
    PolicyAdopted {
        generation: u64,
    },
    /// The group owns these slots from here on, and no others. It is not for clients: it is neither published nor
    /// watched.
    OwnershipChanged {
        epoch: MapEpoch,
        slots: SlotSet,
    },
    /// A hold has come with its slot from another group. `session` has it from here on, under the token that it had. It
    /// is not for clients: it is neither published nor watched.
    HoldMovedIn {
        name: LockName,
        session: SessionId,
        /// The acquire of the hold.
        request: RequestId,
        actor: ActorId,
        mode: Mode,
        token: FenceToken,
    },
    /// The freeze of a prefix is over.
    Thawed {
        prefix: String,
    },
}

impl Event {
    /// Whether the event is published. A wait that ended with a grant is not: the grant has its own event. Nor is what
    /// concerns no client.
    pub fn is_publishable(&self) -> bool {
        !matches!(
            self,
            Event::WaitEnded { outcome: Outcome::Granted(_) | Outcome::GrantedAll(_), .. }
                | Event::SessionEnding { .. }
                | Event::PolicyAdopted { .. }
                | Event::OwnershipChanged { .. }
                | Event::HoldMovedIn { .. }
        )
    }
}

/// Why a hold or a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// Its TTL passed.
    Ttl,
    /// The hold's max-hold passed.
    MaxHold,
    /// The session was closed by its owner.
    Closed,
    /// The session's stream broke and did not come back within the linger time; its holds ended with it.
    Disconnected,
    /// The session to which the hold belonged expired by its TTL.
    SessionExpired,
    /// The session was ended by an operator.
    Killed,
    /// The hold was ended by an operator.
    Broken,
    /// The hold was taken away by an older actor.
    Wounded,
    /// The hold was handed to a waiter.
    Transferred,
    /// The hold has left with its slot for another group, and goes on there.
    Moved,
}
