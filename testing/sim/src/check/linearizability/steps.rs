//! What clients asked and were told, as steps of a plain lock.
//!
//! An answer that does not tell what happened (none at all, or that the session is gone by now) leaves it open:
//! the operation may have taken effect at any time, or never. Waits that ended without a grant did nothing
//! and are left out; so is what the model does not know (see [`Kinds`]).

use std::collections::{BTreeMap, BTreeSet};

use holdfast_core::command::Mode;
use holdfast_core::{
    Event, FenceToken, LockName, Outcome, Rejection, ReleaseAnswer, RequestId, SessionId,
};

use super::kinds::Kinds;
use super::label::Label;
use super::lifetimes::Lifetimes;
use super::model::Action;
use super::search::Step;
use crate::check::evidence::Evidence;
use crate::check::findings::Which;
use crate::check::promises::Promises;
use crate::history::{ClientOperation, History, Input, Output, RealTime};

pub(super) fn by_name<'a>(
    history: &'a Evidence<'_>,
    promises: &'a Promises,
) -> BTreeMap<LockName, Vec<Step<'a>>> {
    let log = Log::of(history);
    let mut translation = Translation {
        lifetimes: Lifetimes::of(history, promises),
        cancelled: Cancelled::of(history),
        closings: closings(history),
        kinds: Kinds::of(history),
        log: log.as_ref(),
        steps: BTreeMap::new(),
    };
    for operation in &history.operations {
        translation.add(operation);
    }
    match &log {
        // The log tells when each hold of a closed session ended: that of a large one may end after the answer.
        Some(log) => translation.add_ends(log),
        None => {
            let closings = history.operations.iter().filter(|it| it.input == Input::CloseSession);
            closings.for_each(|operation| translation.add_closing(operation));
        }
    }
    translation.steps
}

/// When each session was first asked to close.
fn closings(history: &History) -> BTreeMap<SessionId, RealTime> {
    let mut closings = BTreeMap::new();
    for operation in history.operations.iter().filter(|it| it.input == Input::CloseSession) {
        closings.entry(operation.session).or_insert(operation.invoked);
    }
    closings
}

/// What contradicts itself in any order.
pub(super) fn contradictions(history: &History) -> Vec<String> {
    let kinds = Kinds::of(history);
    let mut released = BTreeSet::new();
    let mut expired = BTreeMap::new();
    let mut found = Vec::new();
    for operation in &history.operations {
        match (&operation.input, &operation.returned) {
            (Input::Status { name }, Some((_, Output::Status { holder: None, waiters })))
                if *waiters > 0
                    && kinds.is_plain(name)
                    && operation.invoked >= history.granting_from(name) =>
            {
                found.push(format!(
                    "{name}: {}, asked at {} us, saw {waiters} waiters before a free lock",
                    Which(operation.session, operation.request),
                    operation.invoked.0
                ));
            }
            (
                Input::Release { name, token },
                Some((_, Output::Outcome(Outcome::Release(answer)))),
            ) if kinds.is_plain(name) => {
                let hold = (name, operation.session, *token);
                match answer {
                    ReleaseAnswer::Released => drop(released.insert(hold)),
                    ReleaseAnswer::Expired => drop(expired.insert(hold, operation.request)),
                    _ => {}
                }
            }
            _ => {}
        }
    }
    for ((name, session, token), request) in expired {
        if released.contains(&(name, session, token)) {
            found.push(format!(
                "{name}: {} was told that the hold under {token} had expired, and it was released",
                Which(session, request)
            ));
        }
    }
    found
}

/// What the log knows of holds.
struct Log<'a> {
    granted: BTreeMap<(SessionId, RequestId), Vec<GrantInLog<'a>>>,
    /// By how many acquires a session was granted a token: of a run of readers it can be several.
    times: BTreeMap<(SessionId, FenceToken), usize>,
    ended: Vec<(&'a LockName, SessionId, FenceToken, RealTime)>,
    /// When it was decided to end a large session.
    decided: BTreeMap<SessionId, RealTime>,
    converted: Vec<(&'a LockName, SessionId, Mode, FenceToken, RealTime)>,
}

struct GrantInLog<'a> {
    name: &'a LockName,
    mode: Mode,
    token: FenceToken,
    applied: RealTime,
}

impl Log<'_> {
    /// None if the log was not recorded.
    fn of<'a>(history: &'a Evidence<'_>) -> Option<Log<'a>> {
        if history.replicated.is_empty() {
            return None;
        }
        let mut log = Log {
            granted: BTreeMap::new(),
            times: BTreeMap::new(),
            ended: Vec::new(),
            decided: BTreeMap::new(),
            converted: Vec::new(),
        };
        for entry in history.log() {
            for event in &entry.events {
                match event {
                    Event::Granted { name, session, request, mode, token, .. } => {
                        let (mode, token, applied) = (*mode, *token, entry.first_applied);
                        let grant = GrantInLog { name, mode, token, applied };
                        log.granted.entry((*session, *request)).or_default().push(grant);
                        *log.times.entry((*session, token)).or_default() += 1;
                    }
                    Event::Converted { name, session, mode, token, .. } => {
                        log.converted.push((name, *session, *mode, *token, entry.first_applied));
                    }
                    Event::HoldEnded { name, session, token, .. }
                    | Event::Released { name, session, token, by_close: true, .. } => {
                        log.ended.push((name, *session, *token, entry.first_applied));
                    }
                    Event::SessionEnding { session, .. } => {
                        log.decided.insert(*session, entry.first_applied);
                    }
                    _ => {}
                }
            }
        }
        Some(log)
    }
}

/// What cancellations told about their targets.
#[derive(Default)]
struct Cancelled {
    for_good: BTreeSet<(SessionId, RequestId)>,
    too_late: BTreeMap<(SessionId, RequestId), (FenceToken, RealTime)>,
}

impl Cancelled {
    fn of(history: &History) -> Cancelled {
        let mut cancelled = Cancelled::default();
        for operation in &history.operations {
            let Input::Cancel { target } = operation.input else { continue };
            let target = (operation.session, target);
            match &operation.returned {
                Some((_, Output::Outcome(Outcome::CancelDone))) => {
                    cancelled.for_good.insert(target);
                }
                Some((returned, Output::Outcome(Outcome::CancelTooLate(grants)))) => {
                    for grant in grants {
                        cancelled.too_late.insert(target, (grant.token, *returned));
                    }
                }
                _ => {}
            }
        }
        cancelled
    }
}

struct Translation<'a, 'log> {
    lifetimes: Lifetimes<'a>,
    cancelled: Cancelled,
    closings: BTreeMap<SessionId, RealTime>,
    kinds: Kinds<'a>,
    log: Option<&'log Log<'a>>,
    steps: BTreeMap<LockName, Vec<Step<'a>>>,
}

impl<'a> Translation<'a, '_> {
    fn add(&mut self, operation: &'a ClientOperation) {
        let session = operation.session;
        let answer = operation.returned.as_ref();
        let returned = answer.map(|(returned, _)| *returned);
        let outcome = match answer {
            Some((_, Output::Outcome(outcome))) => Some(outcome),
            _ => None,
        };
        match (&operation.input, outcome) {
            (Input::Acquire { .. } | Input::Take(_), outcome) => {
                self.add_acquire(operation, outcome);
            }
            (Input::Release { name, token }, outcome) => {
                let token = *token;
                match outcome {
                    Some(Outcome::Release(ReleaseAnswer::Released)) => {
                        self.push(operation, name, Action::Release { session, token }, returned);
                    }
                    Some(Outcome::Release(ReleaseAnswer::StillHeld { .. })) => {
                        self.push(operation, name, Action::Holds { session, token }, returned);
                    }
                    // Such a session gets the answers of an ended one. The log tells when the hold ends.
                    Some(Outcome::Release(_)) if self.outlives_decision(operation, name, token) => {
                    }
                    Some(Outcome::Release(answer)) => {
                        // Closing gives everything back and forgets the answers: then a copy of the very
                        // release that did it is told so too.
                        let is_closed = self.closings.get(&session).is_some_and(|closing| {
                            returned.is_some_and(|returned| *closing <= returned)
                        });
                        if is_closed && *answer == ReleaseAnswer::AlreadyReleased {
                            self.push(operation, name, Action::Release { session, token }, None);
                        }
                        self.push_holds_not(operation, name, token);
                    }
                    Some(Outcome::Rejected(rejection)) if did_nothing(*rejection) => {}
                    _ => self.push(operation, name, Action::Release { session, token }, None),
                }
            }
            (Input::Renew { name, token, .. }, Some(Outcome::Renewed { .. }))
            | (Input::Proclaim { name, token }, Some(Outcome::Proclaimed)) => {
                let action = Action::Holds { session, token: *token };
                self.push(operation, name, action, returned);
            }
            (
                Input::Renew { name, token, .. }
                | Input::Proclaim { name, token }
                | Input::Convert { name, token, .. }
                | Input::Transfer { name, token, .. },
                Some(Outcome::Rejected(Rejection::NotHeld)),
            ) => self.push_holds_not(operation, name, *token),
            (Input::Cancel { .. }, Some(Outcome::CancelTooLate(grants))) => {
                for grant in grants {
                    let action = Action::Holds { session, token: grant.token };
                    self.push(operation, &grant.name, action, returned);
                }
            }
            (Input::Status { name }, _) => {
                if let Some((_, Output::Status { holder, .. })) = answer {
                    self.push(operation, name, Action::SawHolder(*holder), returned);
                }
            }
            _ => {}
        }
    }

    fn add_acquire(&mut self, operation: &'a ClientOperation, outcome: Option<&Outcome>) {
        let returned = operation.returned.as_ref().map(|(returned, _)| *returned);
        let key = (operation.session, operation.request);
        let in_log = self.log.map(|log| log.granted.get(&key).map_or(&[][..], |grants| grants));
        let enters_again = operation.input.terms().is_some_and(|terms| terms.reentrant);
        match outcome {
            Some(Outcome::Granted(_) | Outcome::GrantedAll(_)) => {
                for grant in operation.grants() {
                    let (name, token) = (&grant.name, Some(grant.token));
                    if enters_again && in_log.is_some_and(|in_log| in_log.is_empty()) {
                        let (session, token) = (operation.session, grant.token);
                        self.push(operation, name, Action::Holds { session, token }, returned);
                    } else {
                        self.push_grant(operation, name, grant.mode, token, returned);
                    }
                }
                // A retry is told only what is still held.
                for grant in in_log.into_iter().flatten() {
                    if operation.grants().iter().all(|told| told.name != *grant.name) {
                        let (token, applied) = (Some(grant.token), Some(grant.applied));
                        self.push_grant(operation, grant.name, grant.mode, token, applied);
                    }
                }
            }
            Some(Outcome::Busy) => {
                for name in operation.input.acquires() {
                    if self.kinds.is_plain(name) {
                        self.push(operation, name, Action::SawHeld, returned);
                    }
                }
            }
            Some(
                Outcome::TimedOut
                | Outcome::Cancelled
                | Outcome::Deadlock(_)
                | Outcome::Died { .. },
            ) => {}
            Some(Outcome::Rejected(rejection)) if did_nothing(*rejection) => {}
            // It is not told, but the log knows.
            _ if in_log.is_some() => {
                for grant in in_log.into_iter().flatten() {
                    let (token, applied) = (Some(grant.token), Some(grant.applied));
                    self.push_grant(operation, grant.name, grant.mode, token, applied);
                }
            }
            _ if self.cancelled.for_good.contains(&key) => {}
            outcome => {
                let (token, known) = match (self.cancelled.too_late.get(&key), outcome) {
                    (_, Some(Outcome::Rejected(Rejection::GrantEnded))) => (None, returned),
                    (Some((token, known)), _) => (Some(*token), Some(*known)),
                    (None, _) => (None, None),
                };
                for name in operation.input.acquires() {
                    self.push_grant(operation, name, Mode::Exclusive, token, known);
                }
            }
        }
    }

    fn push_grant(
        &mut self,
        operation: &'a ClientOperation,
        name: &LockName,
        mode: Mode,
        token: Option<FenceToken>,
        returned: Option<RealTime>,
    ) {
        if !self.is_judged(name) {
            return;
        }
        let session = operation.session;
        let action = match (mode, token) {
            (Mode::Shared, Some(token)) => Action::Join { session, token },
            (Mode::Permit { .. }, Some(token)) => Action::Permit { session, token },
            _ => Action::Grant { session, token },
        };
        self.push(operation, name, action, returned);
        let may_end_from = match self.log {
            // The log tells each end, as a step of its own.
            Some(_) => None,
            None => Some(self.lifetimes.may_end_from(operation, token)),
        };
        if let Some(step) = self.steps.get_mut(name).and_then(|steps| steps.last_mut()) {
            step.may_end_from = may_end_from;
        }
    }

    /// Closing counts under every name at which the session may have been granted something.
    fn add_closing(&mut self, operation: &'a ClientOperation) {
        let session = operation.session;
        let returned = match &operation.returned {
            Some((returned, Output::Outcome(Outcome::SessionClosed))) => Some(*returned),
            _ => None,
        };
        let was_granted = |step: &Step<'_>| match step.action {
            Action::Grant { session: other, .. }
            | Action::Join { session: other, .. }
            | Action::Permit { session: other, .. } => other == session,
            _ => false,
        };
        for steps in self.steps.values_mut() {
            if steps.iter().any(was_granted) {
                steps.push(Step {
                    action: Action::Close { session },
                    invoked: operation.invoked,
                    returned,
                    may_end_from: None,
                    label: Label::Closes(session),
                });
            }
        }
    }

    /// Does the model know what can happen to this lock?
    fn is_judged(&self, name: &LockName) -> bool {
        self.log.is_some() || self.kinds.is_plain(name)
    }

    fn add_ends(&mut self, log: &Log<'_>) {
        for (name, session, to, token, applied) in &log.converted {
            self.steps.entry((*name).clone()).or_default().push(Step {
                action: Action::Convert { session: *session, to: *to, token: *token },
                invoked: *applied,
                returned: Some(*applied),
                may_end_from: None,
                label: Label::Converts(*session, *token),
            });
        }
        for (name, session, token, applied) in &log.ended {
            if !self.is_judged(name) {
                continue;
            }
            self.steps.entry((*name).clone()).or_default().push(Step {
                action: Action::End { session: *session, token: *token },
                invoked: *applied,
                returned: Some(*applied),
                may_end_from: None,
                label: Label::Ends(*session, *token),
            });
        }
    }

    /// Whether the end of the session was decided before the answer, and the hold ended after it.
    fn outlives_decision(
        &self,
        operation: &ClientOperation,
        name: &LockName,
        token: FenceToken,
    ) -> bool {
        let (Some(log), Some((returned, _))) = (self.log, &operation.returned) else {
            return false;
        };
        let session = operation.session;
        let is_decided = log.decided.get(&session).is_some_and(|decided| decided <= returned);
        let ends_later = |(ended, of, under, at): &(&LockName, SessionId, FenceToken, RealTime)| {
            (*ended, *of, *under) == (name, session, token) && at > returned
        };
        is_decided && log.ended.iter().any(ends_later)
    }

    /// Of several holds under one token it is not known which was meant; the others may be held still.
    fn push_holds_not(
        &mut self,
        operation: &'a ClientOperation,
        name: &LockName,
        token: FenceToken,
    ) {
        let session = operation.session;
        let times = self.log.and_then(|log| log.times.get(&(session, token)));
        if times.is_none_or(|times| *times == 1) {
            let returned = operation.returned.as_ref().map(|(returned, _)| *returned);
            self.push(operation, name, Action::HoldsNot { session, token }, returned);
        }
    }

    fn push(
        &mut self,
        operation: &'a ClientOperation,
        name: &LockName,
        action: Action,
        returned: Option<RealTime>,
    ) {
        if !self.is_judged(name) {
            return;
        }
        self.steps.entry(name.clone()).or_default().push(Step {
            action,
            invoked: operation.invoked,
            returned,
            may_end_from: None,
            label: Label::Asked(operation),
        });
    }
}

/// A refusal after which neither this nor any other copy of the request takes effect. `PermissionDenied` is none:
/// nodes do not remember a denial, so another copy of the request may come when the caller has the right again.
fn did_nothing(rejection: Rejection) -> bool {
    matches!(
        rejection,
        Rejection::TooManyHolds
            | Rejection::TooManyWaits
            | Rejection::QueueFull
            | Rejection::Frozen
            | Rejection::AlreadyHeld
            | Rejection::OtherPermits { .. }
            | Rejection::NoPermitsSet
            | Rejection::InvalidMode
            | Rejection::InvalidRequestId
            | Rejection::InvalidTtl
            | Rejection::InvalidWait
            | Rejection::InvalidMetadata
            | Rejection::InvalidOwner
    )
}
