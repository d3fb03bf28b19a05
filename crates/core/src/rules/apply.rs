//! One command of the log: checked, carried out, and what it has freed goes to the next in line.

use alloc::vec::Vec;

use crate::model::command::{Call, Command, HoldRef};
use crate::model::event::Event;
use crate::model::id::LogIndex;
use crate::model::outcome::{Outcome, Rejection};
use crate::model::time::LogicalTime;
use crate::rules::access::may_connect;
use crate::state::hold::Hold;
use crate::state::table::LockTable;

impl LockTable {
    /// Carries out one command of the log entry at `index`, which is stamped `at`. A stamp lower than
    /// an earlier one counts as that: time does not go back.
    ///
    /// The outcome is for the sender; what happened to others is appended to `events`, in order.
    pub fn apply(
        &mut self,
        index: LogIndex,
        at: LogicalTime,
        command: Command,
        events: &mut Vec<Event>,
    ) -> Outcome {
        self.begin_command(index, at);
        // Every request in the log renews its session, even if it is refused. The two exceptions are reports about the
        // session, not requests of it. A session that may not connect any more is not renewed.
        let grants = self.grants_of_sender(&command);
        if !matches!(command, Command::DetachStream { .. } | Command::Abandon { .. })
            && let Some(session) = command.session()
            && grants.as_deref().is_none_or(may_connect)
        {
            self.touch(session);
        }
        let sender_ended = command.session().and_then(|session| self.ending_of(session));
        let in_tick = command == Command::Tick;
        let before = events.len();
        let checked = command.check_under(self.limits(), self.rules());
        let permit = || grants.map_or(Ok(()), |grants| self.permit(&command, &grants));
        let owned = || self.check_ownership(&command);
        let outcome = match checked.and_then(|()| permit()).and_then(|()| owned()) {
            Ok(()) => match sender_ended {
                Some(reason) => LockTable::answer_of_ended(&command, reason),
                None => self.carry_out(command, events),
            },
            Err(rejection) => {
                #[cfg(feature = "planted")]
                self.keep_wrong_group(&command, rejection);
                Outcome::Rejected(rejection)
            }
        };
        self.continue_endings(events);
        self.continue_moves(events);
        self.promote_freed(in_tick, events);
        self.continue_deferred(in_tick, events);
        self.finish_ending(events);
        self.count_events(events.get(before..).unwrap_or_default());
        outcome
    }

    fn carry_out(&mut self, command: Command, events: &mut Vec<Event>) -> Outcome {
        match command {
            Command::OpenSession(open) => self.open_session(open, events),
            Command::AttachStream { session, stream, identity } => {
                self.attach_stream(session, stream, identity)
            }
            Command::DetachStream { session, stream } => self.detach_stream(session, stream),
            Command::Touch { session, acked_through } => self.heartbeat(session, acked_through),
            Command::CloseSession { session } => self.close_session(session, events),
            Command::Acquire(acquire) => self.acquire(acquire, events),
            Command::AcquireAll(acquire) => self.acquire_all(acquire, events),
            Command::Convert { call, hold, to, wait, policy } => {
                self.convert(call, hold, to, wait, policy, events)
            }
            Command::Cancel { call, target } => self.cancel(call, target, events),
            Command::Abandon { session, request } => self.abandon(session, request, events),
            Command::Release { call, hold } => self.release(call, hold, events),
            Command::Renew { call, hold, ttl } => self.renew(call, hold, ttl),
            Command::Proclaim { call, hold, metadata } => {
                self.proclaim(call, hold, metadata, events)
            }
            Command::Transfer { call, hold, to } => self.transfer(call, hold, to, events),
            Command::Intervene(intervention) => self.intervene(intervention, events),
            Command::BeginTerm { grace } => self.begin_term(grace),
            Command::Tick => self.tick(events),
            Command::EventsPublished { through, index, term } => {
                self.events_published(through, index, term)
            }
            Command::AdoptRules { version } => {
                self.set_rules(version);
                Outcome::Done
            }
            Command::ChangeAccess(change) => self.change_access(change, events),
            Command::AdoptPolicy(policy) => self.adopt_policy(*policy, events),
            Command::SetOwnership { epoch, slots } => self.change_ownership(epoch, slots, events),
            Command::MoveSlots(step) => self.move_slots(*step, events),
        }
    }

    /// The hold that the sender of a request means.
    pub(crate) fn find_meant(&self, call: &Call, meant: &HoldRef) -> Result<&Hold, Rejection> {
        let lock = self.lock_map().get(&meant.name).ok_or(Rejection::NotHeld)?;
        lock.find_meant(call.session, meant)
    }
}
