//! `SetOwnership`, and what a table refuses in slots that its group does not own.
//!
//! The check is in `apply`, in log order, so a client or a node with an old map can be slow, but never wrong: no two
//! groups grant one name, as long as the tables of no two groups own one slot at the same time.
//!
//! * What could grant, queue or set something is refused: acquire, acquire-all, a conversion to exclusive, a transfer, a
//!   number of permits. The refusal is not kept as the answer to the request, because the same request may succeed when
//!   the slot has come.
//! * What keeps a hold or gives it up is carried out while the hold is here: renew, proclaim, release, a conversion to
//!   shared, cancel, close. So are an operator's break and reopen, if the lock is in the table.
//! * A request that has its answer gets it, as always.
//! * A request that waits keeps its place until its time is up. It is not granted unless the slot comes back.
//! * A request of the first kind whose session is unknown here gets `wrong_group`, not `unknown_session`: its session
//!   may live in the group that owns the slot.

use alloc::vec::Vec;

use crate::model::command::{
    Acquire, AcquireAll, Action, Call, Command, HoldRef, Intervention, Mode,
};
use crate::model::event::Event;
use crate::model::name::LockName;
use crate::model::outcome::{Outcome, Rejection};
use crate::model::slot::{MapEpoch, SlotSet};
use crate::state::deferred::Promotion;
use crate::state::ownership::Ownership;
use crate::state::table::LockTable;

impl LockTable {
    /// Refuses a command that needs a slot which this group does not own.
    #[inline]
    pub(crate) fn check_ownership(&self, command: &Command) -> Result<(), Rejection> {
        if self.ownership().slots().is_all() {
            return Ok(());
        }
        self.check_slots(command)
    }

    #[cold]
    fn check_slots(&self, command: &Command) -> Result<(), Rejection> {
        let unless_answered = |call: &Call, name: &LockName| {
            if self.has_answer_for(call) { Ok(()) } else { self.check_name(name) }
        };
        let unless_here = |call: &Call, hold: &HoldRef| {
            if self.may_know_hold(call, hold) { Ok(()) } else { self.check_name(&hold.name) }
        };
        match command {
            Command::Acquire(Acquire { call, name, .. })
            | Command::Transfer { call, hold: HoldRef { name, .. }, .. } => {
                unless_answered(call, name)
            }
            Command::Convert { call, hold, to, .. } => match to {
                Mode::Shared => unless_here(call, hold),
                Mode::Exclusive | Mode::Permit { .. } => unless_answered(call, &hold.name),
            },
            Command::Release { call, hold }
            | Command::Renew { call, hold, .. }
            | Command::Proclaim { call, hold, .. } => unless_here(call, hold),
            Command::AcquireAll(acquire) if self.has_answer_for(&acquire.call) => Ok(()),
            Command::AcquireAll(acquire) => self.check_members(acquire),
            Command::Intervene(Intervention { action, .. }) => match action {
                // The lock may be held here, or closed by a lock delay.
                Action::Break { name, .. } | Action::Reopen { name }
                    if self.lock_map().contains_key(name) =>
                {
                    Ok(())
                }
                Action::Break { name, .. }
                | Action::Reopen { name }
                | Action::Transfer { name, .. }
                | Action::SetPermits { name, .. } => self.check_name(name),
                Action::Freeze { .. }
                | Action::Thaw { .. }
                | Action::KillSession { .. }
                | Action::SetLimits { .. } => Ok(()),
            },
            Command::OpenSession(_)
            | Command::AttachStream { .. }
            | Command::DetachStream { .. }
            | Command::Touch { .. }
            | Command::CloseSession { .. }
            | Command::Cancel { .. }
            | Command::Abandon { .. }
            | Command::BeginTerm { .. }
            | Command::Tick
            | Command::EventsPublished { .. }
            | Command::AdoptRules { .. }
            | Command::AdoptPolicy(_)
            | Command::ChangeAccess(_)
            | Command::SetOwnership { .. }
            | Command::MoveSlots(_) => Ok(()),
        }
    }

    /// Whether the request has its answer here. If something of the session has left, so may have what was acknowledged.
    fn has_answer_for(&self, call: &Call) -> bool {
        match self.live_session(call.session) {
            Some(session) if session.departed().is_some() => {
                session.answers.get(call.request).is_some()
                    || session.waits.contains(call.request)
                    || session.has_by(call.request)
            }
            _ => self.is_answered(call),
        }
    }

    /// Whether a request about a hold is answered here. If something of the session has left, so may have the hold.
    fn may_know_hold(&self, call: &Call, meant: &HoldRef) -> bool {
        let Some(session) = self.live_session(call.session) else { return true };
        session.departed().is_none()
            || session.answers.get(call.request).is_some()
            || session.lost_hold(meant.token, meant.acquire)
            || !matches!(self.find_meant(call, meant), Err(Rejection::NotHeld))
    }

    fn check_name(&self, name: &LockName) -> Result<(), Rejection> {
        let ownership = self.ownership();
        if ownership.covers(name) {
            return Ok(());
        }
        Err(Rejection::WrongGroup { epoch: ownership.epoch() })
    }

    /// If another group owns some of them, no group can take them all.
    fn check_members(&self, acquire: &AcquireAll) -> Result<(), Rejection> {
        let ownership = self.ownership();
        let owned = acquire.members.iter().filter(|member| ownership.covers(&member.name)).count();
        let epoch = ownership.epoch();
        match owned {
            owned if owned == acquire.members.len() => Ok(()),
            0 => Err(Rejection::WrongGroup { epoch }),
            _ => Err(Rejection::SeveralGroups { epoch }),
        }
    }

    /// The epoch only rises. What waits in slots that have come is granted as far as it can be.
    pub(crate) fn change_ownership(
        &mut self,
        epoch: MapEpoch,
        slots: SlotSet,
        events: &mut Vec<Event>,
    ) -> Outcome {
        if self.moves().is_open() {
            return Outcome::Rejected(Rejection::MoveUnderWay);
        }
        let before = self.ownership();
        if epoch <= before.epoch() {
            return Outcome::Rejected(Rejection::StaleEpoch { epoch: before.epoch() });
        }
        #[cfg(feature = "planted")]
        let epoch = match before.epoch() {
            // Epoch 0 means that all slots are owned, so even the planted bug raises the epoch at the first change.
            MapEpoch(0) => epoch,
            before if crate::planted::Bug::EpochNotRaised.is_active() => before,
            _ => epoch,
        };
        let gains = !before.slots().includes(&slots);
        self.set_ownership(Ownership { epoch, slots: slots.clone() });
        events.push(Event::OwnershipChanged { epoch, slots });
        if gains {
            // There may be a million locks with waiters, so later log entries go on with the work. The empty prefix
            // means all names.
            self.defer(Promotion::Prefix { prefix: "".into(), passed: None });
        }
        Outcome::Done
    }

    #[cfg(feature = "planted")]
    pub(crate) fn keep_wrong_group(&mut self, command: &Command, rejection: Rejection) {
        use crate::state::answers::{Question, Reply};
        if let Command::Acquire(Acquire { call, name, .. }) = command
            && rejection.is_of_placement()
            && crate::planted::Bug::WrongGroupKeptAsAnswer.is_active()
        {
            let question = Question::Acquire { name: name.clone() };
            self.answer(call, question, Reply::Rejected(rejection));
        }
    }
}
