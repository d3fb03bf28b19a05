//! `ChangeAccess`, and what the policy allows to the sessions.
//!
//! A session with an identity is checked here, in log order, so a change of the policy is in force for every command
//! after it, and for every request that waits. The node at which a client is connected checks before that, with the
//! policy that it knows; what it lets pass is checked again. A session without an identity is not checked.
//!
//! * To give something up is always allowed: release, cancel, close. So is the retry of a request that has its answer.
//! * A session whose identity may not connect any more is not kept alive by what it says. It ends within its TTL.
//! * A request that waits is compared with the policy when its turn comes.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::model::access::change::{AccessChange, ChangeAccess};
use crate::model::access::principal::Principal;
use crate::model::access::verb::{Verb, Verbs};
use crate::model::command::{
    Acquire, AcquireAll, Call, Command, HoldRef, Member, Mode, OpenSession, Policy,
};
use crate::model::event::{EndReason, Event};
use crate::model::id::{RequestId, SessionId};
use crate::model::name::LockName;
use crate::model::outcome::{Outcome, Rejection};
use crate::state::access::Grants;
use crate::state::table::LockTable;
use crate::state::wait::QueuePlace;

impl LockTable {
    pub(crate) fn change_access(
        &mut self,
        change: Box<ChangeAccess>,
        events: &mut Vec<Event>,
    ) -> Outcome {
        let from = if change.end_sessions { self.losers(&change.changes) } else { BTreeSet::new() };
        let generation = match self.change_policy(change.expected, &change.changes) {
            Ok(generation) => generation,
            Err(refusal) => return Outcome::Rejected(Rejection::AccessRefused(refusal)),
        };
        events.push(Event::AccessChanged { change, generation });
        if !from.is_empty() {
            let is_meant = |principal: &Principal| from.contains(principal);
            let of_them = self.session_map().iter().filter(|(_, session)| {
                session.identity.as_ref().is_some_and(|identity| is_meant(&identity.principal))
            });
            let ids: Vec<SessionId> = of_them.map(|(id, _)| *id).collect();
            ids.into_iter().for_each(|id| self.end_session(id, EndReason::Killed, events));
        }
        Outcome::AccessChanged { generation }
    }

    /// The principals from which something is taken by name.
    fn losers(&self, changes: &[AccessChange]) -> BTreeSet<Principal> {
        let loser = |change: &AccessChange| match change {
            AccessChange::Revoke { principal, .. } | AccessChange::Ban { principal } => {
                Some(principal.clone())
            }
            AccessChange::RevokeToken { id } => {
                self.access().token(*id).map(|token| token.principal.clone())
            }
            AccessChange::PutRole { .. }
            | AccessChange::DeleteRole { .. }
            | AccessChange::Grant { .. }
            | AccessChange::PutToken(_)
            | AccessChange::Replace(_) => None,
        };
        changes.iter().filter_map(loser).collect()
    }

    /// What the sender of the command may do; none if it is not checked.
    pub(crate) fn grants_of_sender(&mut self, command: &Command) -> Option<Arc<Grants>> {
        match command {
            Command::OpenSession(OpenSession { identity, .. })
            | Command::AttachStream { identity, .. } => {
                identity.as_deref().map(|identity| self.grants_of_identity(identity))
            }
            _ => self.grants_of_session(command.session()?),
        }
    }

    /// Whether the policy allows the command.
    pub(crate) fn permit(&self, command: &Command, grants: &Grants) -> Result<(), Rejection> {
        let may = |call: &Call, needed: &dyn Fn() -> bool| {
            self.is_answered(call) || (may_connect(grants) && needed())
        };
        let is_allowed = match command {
            Command::OpenSession(_) | Command::AttachStream { .. } | Command::Touch { .. } => {
                may_connect(grants)
            }
            Command::Acquire(Acquire { call, name, mode, terms, .. }) => {
                may(call, &|| may_take(grants, name, *mode, terms.policy))
            }
            Command::AcquireAll(AcquireAll { call, members, terms, .. }) => may(call, &|| {
                let take =
                    |member: &Member| may_take(grants, &member.name, member.mode, terms.policy);
                members_checked(members).iter().all(take)
            }),
            Command::Convert { call, hold, to, .. } => {
                may(call, &|| grants.allow_any(to.verbs(), &hold.name))
            }
            Command::Renew { call, hold, .. } | Command::Proclaim { call, hold, .. } => {
                may(call, &|| grants.allow_any(self.verbs_of_hold(call, hold), &hold.name))
            }
            Command::Transfer { call, hold, .. } => {
                may(call, &|| grants.allow(Verbs::of(&[Verb::Transfer]), &hold.name))
            }
            Command::Release { .. }
            | Command::Cancel { .. }
            | Command::Abandon { .. }
            | Command::CloseSession { .. }
            | Command::DetachStream { .. }
            | Command::Intervene(_)
            | Command::BeginTerm { .. }
            | Command::Tick
            | Command::EventsPublished { .. }
            | Command::AdoptRules { .. }
            | Command::ChangeAccess(_) => true,
        };
        if is_allowed { Ok(()) } else { Err(Rejection::PermissionDenied) }
    }

    /// Such a request changes nothing, and its sender has to learn what it holds.
    fn is_answered(&self, call: &Call) -> bool {
        let session = self.session_map().get(&call.session);
        session.is_some_and(|session| session.knows(call.request))
    }

    /// What is needed to keep the hold. If there is no such hold, there is nothing to keep.
    fn verbs_of_hold(&self, call: &Call, meant: &HoldRef) -> Verbs {
        let any = Verbs::of(&[Verb::Shared, Verb::Exclusive, Verb::Permit, Verb::Elect]);
        self.find_meant(call, meant).map_or(any, |hold| hold.mode.verbs())
    }

    /// Whether a request that waits may still be granted.
    pub(crate) fn may_be_granted(&mut self, id: SessionId, request: RequestId) -> bool {
        #[cfg(feature = "planted")]
        if crate::planted::Bug::RevokedWaiterGranted.is_active() {
            return true;
        }
        let Some(grants) = self.grants_of_session(id) else { return true };
        let session = self.session_map().get(&id);
        let Some(wait) = session.and_then(|session| session.waits.get(request)) else {
            return true;
        };
        let may_hold = |place: &QueuePlace| grants.allow_any(place.mode.verbs(), &place.name);
        may_connect(&grants) && wait.places.as_slice().iter().all(may_hold)
    }
}

/// Whether what a session says keeps it alive.
pub(crate) fn may_connect(grants: &Grants) -> bool {
    grants.allow_cluster(Verb::Connect)
}

fn may_take(grants: &Grants, name: &LockName, mode: Mode, policy: Policy) -> bool {
    let may_wound = match policy {
        Policy::WoundWait => grants.allow(Verbs::of(&[Verb::Wound]), name),
        Policy::Detect | Policy::Wait | Policy::WaitDie => true,
    };
    may_wound && grants.allow_any(mode.verbs(), name)
}

/// All of them, unless a bug is planted.
fn members_checked(members: &[Member]) -> &[Member] {
    #[cfg(feature = "planted")]
    if crate::planted::Bug::LastMemberUnchecked.is_active()
        && let [checked @ .., _] = members
    {
        return checked;
    }
    members
}

impl Mode {
    /// Any of these allows to hold so. Whether a candidate or the user of a lock asks is not known to the table.
    fn verbs(self) -> Verbs {
        match self {
            Mode::Exclusive => Verbs::of(&[Verb::Exclusive, Verb::Elect]),
            Mode::Shared => Verbs::of(&[Verb::Shared]),
            Mode::Permit { .. } => Verbs::of(&[Verb::Permit]),
        }
    }
}
