//! `ChangeAccess`, `AdoptPolicy`, and what the policy allows to the sessions.
//!
//! A session with an identity is checked here, in log order, so a change of the policy is in force for every command
//! after it, and for every request that waits. The node at which a client is connected checks before that, with the
//! policy that it knows; what it lets pass is checked again. A session without an identity is not checked.
//!
//! * To give something up is always allowed: release, cancel, close. So is the retry of a request that has its answer.
//! * A session whose identity may not connect any more is not kept alive by what it says. It ends within its TTL.
//! * A request that waits is compared with the policy when its turn comes.
//! * A group that adopts the policy of the root group does so in its own log. From there on all of this is true for the
//!   adopted policy.
//! * A change of the policy, or an intervention, needs the right to make it when it is applied. So an administrator who
//!   was revoked cannot undo that with a change that was under way.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::model::access::change::{AccessChange, ChangeAccess};
use crate::model::access::identity::Identity;
use crate::model::access::policy::Access;
use crate::model::access::principal::Principal;
use crate::model::access::verb::{Verb, Verbs};
use crate::model::command::{
    Acquire, AcquireAll, Action, Call, Command, HoldRef, Intervention, Member, Mode, OpenSession,
    Policy,
};
use crate::model::event::{EndReason, Event};
use crate::model::id::{RequestId, SessionId};
use crate::model::name::LockName;
use crate::model::outcome::{Outcome, Rejection};
use crate::model::rules_version::RulesVersion;
use crate::state::access::Grants;
use crate::state::session::Session;
use crate::state::table::LockTable;
use crate::state::wait::QueuePlace;

impl LockTable {
    pub(crate) fn change_access(
        &mut self,
        change: Box<ChangeAccess>,
        events: &mut Vec<Event>,
    ) -> Outcome {
        let from = if change.end_sessions { self.losers(&change.changes) } else { BTreeSet::new() };
        let of_roles = |change: &AccessChange| {
            matches!(
                change,
                AccessChange::PutRole { .. }
                    | AccessChange::DeleteRole { .. }
                    | AccessChange::Replace(_)
            )
        };
        let ends_strangers = self.rules() >= RulesVersion::FIVE
            && change.end_sessions
            && change.changes.iter().any(of_roles);
        let generation = match self.change_policy(
            change.expected,
            &change.changes,
            change.identity.as_deref(),
        ) {
            Ok(generation) => generation,
            Err(refusal) => return Outcome::Rejected(Rejection::AccessRefused(refusal)),
        };
        self.note_ended_sessions(&from, ends_strangers);
        events.push(Event::AccessChanged { change, generation });
        if ends_strangers || !from.is_empty() {
            let is_meant = |identity: &Identity| {
                from.contains(&identity.principal)
                    || (ends_strangers
                        && !self.access().allows_on_cluster(self.rules(), identity, Verb::Connect))
            };
            let ids = self.sessions_of(is_meant);
            ids.into_iter().for_each(|id| self.end_session(id, EndReason::Killed, events));
        }
        Outcome::AccessChanged { generation }
    }

    /// Whether the policy of this generation is newer than the own one.
    pub fn lacks_policy(&self, generation: u64) -> bool {
        let own = self.access().generation();
        #[cfg(feature = "planted")]
        if crate::planted::Bug::OlderPolicyAdopted.is_active() {
            return generation >= own.max(1);
        }
        generation > own
    }

    /// The policy of the root group becomes that of this group, unless this group has it already, or a later one. It also
    /// ends the sessions that the changes ended which this group has missed.
    pub(crate) fn adopt_policy(&mut self, policy: Access, events: &mut Vec<Event>) -> Outcome {
        let own = self.access().generation();
        if !self.lacks_policy(policy.generation()) {
            return Outcome::Done;
        }
        events.push(Event::PolicyAdopted { generation: policy.generation() });
        self.replace_policy(policy);
        #[cfg(feature = "planted")]
        if crate::planted::Bug::AdoptionEndsNoSessions.is_active() {
            return Outcome::Done;
        }
        let (policy, rules) = (self.access(), self.rules());
        let ids = self.sessions_of(|identity| policy.has_ended_since(own, rules, identity));
        ids.into_iter().for_each(|id| self.end_session(id, EndReason::Killed, events));
        Outcome::Done
    }

    fn sessions_of(&self, is_meant: impl Fn(&Identity) -> bool) -> Vec<SessionId> {
        if !self.has_identified_sessions() {
            return Vec::new();
        }
        let is_meant = |session: &Session| session.identity.as_deref().is_some_and(&is_meant);
        let sessions = self.session_map().iter().filter(|(_, session)| is_meant(session));
        sessions.map(|(id, _)| *id).collect()
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
            | AccessChange::SetQuotas(_)
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
            Command::ChangeAccess(change) => {
                change.identity.as_deref().map(|identity| self.grants_of_identity(identity))
            }
            Command::Intervene(Intervention { identity, .. }) => {
                identity.as_deref().map(|identity| self.grants_of_identity(identity))
            }
            _ => self.grants_of_session(command.session()?),
        }
    }

    /// Whether the policy allows the command.
    pub(crate) fn permit(&self, command: &Command, grants: &Grants) -> Result<(), Rejection> {
        let may = |call: &Call, needed: &dyn Fn() -> bool| {
            // Most requests are permitted: then the lookup of the session is spared.
            (may_connect(grants) && needed()) || self.is_answered(call)
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
            | Command::BeginTerm { .. }
            | Command::Tick
            | Command::EventsPublished { .. }
            | Command::AdoptRules { .. }
            | Command::AdoptPolicy(_)
            | Command::SetOwnership { .. }
            | Command::MoveSlots(_) => true,
            Command::Intervene(intervention) => may_intervene(grants, &intervention.action),
            Command::ChangeAccess(_) => grants.allow_cluster(Verb::Access),
        };
        if is_allowed { Ok(()) } else { Err(Rejection::PermissionDenied) }
    }

    /// Such a request changes nothing, and its sender has to learn what it holds.
    pub(super) fn is_answered(&self, call: &Call) -> bool {
        let session = self.live_session(call.session);
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

fn may_intervene(grants: &Grants, action: &Action) -> bool {
    let on_name = |verb, name: &LockName| grants.allow(Verbs::of(&[verb]), name);
    match action {
        Action::Break { name, .. } | Action::Reopen { name } => on_name(Verb::Break, name),
        Action::Transfer { name, .. } => on_name(Verb::Move, name),
        Action::SetPermits { name, .. } => on_name(Verb::SetPermits, name),
        Action::Freeze { prefix, .. } | Action::Thaw { prefix } => {
            grants.cover(Verbs::of(&[Verb::Freeze]), prefix)
        }
        Action::KillSession { .. } => grants.allow_cluster(Verb::KillSession),
        Action::SetLimits { .. } => grants.allow_cluster(Verb::ClusterChange),
    }
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
