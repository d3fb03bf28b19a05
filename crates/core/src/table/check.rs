//! What is always true of a table between two commands. Tests and the simulation ask after every
//! command; a snapshot that does not pass is refused.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;

use super::LockTable;
use super::answers::{Question, Reply};
use super::deadlines::{Deadlines, Due};
use super::resource::{Hold, Resource};
use super::session::Session;
use crate::id::{FenceToken, SessionId};
use crate::name::LockName;

/// Fails the check with the text unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($text:tt)+) => {
        if !$condition {
            return Err(format!($($text)+));
        }
    };
}

impl LockTable {
    /// Does the table contradict itself? If so, says how. It looks at everything, so it is as slow as
    /// the table is large.
    pub fn check(&self) -> Result<(), String> {
        let mut tokens = BTreeSet::new();
        let mut deadlines = Deadlines::default();
        let (mut hold_count, mut wait_count) = (0, 0);
        for (id, session) in &self.sessions {
            self.check_session(session)?;
            deadlines.insert(session.deadline, Due::Session(*id));
            hold_count += session.holds.len();
            wait_count += session.waits.len();
        }
        let mut waiters = 0;
        for (name, resource) in &self.resources {
            let hold = resource.hold.as_ref().ok_or(format!("{name} is in the table but free"))?;
            self.check_hold(name, hold, &mut tokens)?;
            if let Some(deadline) = hold.deadline() {
                deadlines.insert(deadline, Due::Hold(hold.session, hold.request));
            }
            self.check_queue(name, resource, &mut deadlines)?;
            waiters += resource.waiter_count();
        }
        ensure!(hold_count == self.resources.len(), "a session holds what is not held by it");
        ensure!(wait_count == waiters, "a session waits where it does not stand");
        ensure!(waiters == self.waiter_count, "{waiters} wait, counted {}", self.waiter_count);
        ensure!(deadlines == self.deadlines, "the index of deadlines is not exact");
        let public_ids: BTreeSet<_> =
            self.sessions.iter().map(|(id, session)| (session.public, *id)).collect();
        ensure!(public_ids == self.public_ids, "the index of public ids is not exact");
        ensure!(self.last_token <= FenceToken::MAX.0, "the last token is too high");
        Ok(())
    }

    fn check_session(&self, session: &Session) -> Result<(), String> {
        let public = session.public;
        ensure!(session.opened_at <= self.now, "session {public} was opened in the future");
        ensure!(
            session.opened_at_token <= self.last_token
                && session.losses().iter().all(|token| token.0 <= self.last_token),
            "session {public} knows a token that was not granted yet"
        );
        for (request, answer) in session.answers.iter() {
            ensure!(
                request > session.answers.acked_through(),
                "session {public} keeps an acknowledged answer"
            );
            ensure!(
                !session.waits.contains_key(&request),
                "session {public} waits for what is answered"
            );
            let held = session.holds.get(&request);
            ensure!(
                held.is_none_or(|name| answer.reply == Reply::Granted
                    && answer.question == Question::Acquire { name: name.clone() }),
                "session {public} holds what its answer denies"
            );
        }
        for request in session.holds.keys() {
            ensure!(
                *request <= session.answers.acked_through()
                    || session.answers.get(*request).is_some(),
                "session {public} has no answer for what it holds"
            );
            ensure!(
                !session.waits.contains_key(request),
                "session {public} both holds and waits by one request"
            );
        }
        Ok(())
    }

    fn check_hold(
        &self,
        name: &LockName,
        hold: &Hold,
        tokens: &mut BTreeSet<FenceToken>,
    ) -> Result<(), String> {
        let session = self.known(name, hold.session)?;
        ensure!(
            session.holds.get(&hold.request) == Some(name),
            "the holder of {name} does not know it"
        );
        ensure!(
            session.opened_at_token < hold.token.0 && hold.token.0 <= self.last_token,
            "{name} is held under token {}, which was not granted to its session",
            hold.token
        );
        ensure!(tokens.insert(hold.token), "token {} was granted twice", hold.token);
        ensure!(hold.granted_at <= self.now, "{name} is granted in the future");
        let bounds = hold.bounds();
        ensure!(
            bounds.deadline.is_some()
                || (bounds.ttl.is_none() && bounds.max_hold_end.is_none() && !bounds.graced),
            "{name} has a TTL and no deadline"
        );
        ensure!(
            bounds.max_hold_end.is_none() || bounds.deadline <= bounds.max_hold_end,
            "{name} is held past its max-hold"
        );
        Ok(())
    }

    fn check_queue(
        &self,
        name: &LockName,
        resource: &Resource,
        deadlines: &mut Deadlines,
    ) -> Result<(), String> {
        let Some(queue) = &resource.queue else { return Ok(()) };
        ensure!(!queue.is_empty(), "{name} has a queue in which nobody stands");
        ensure!(queue.iter().count() == queue.len(), "the queue of {name} is miscounted");
        for (ticket, waiter) in queue.iter() {
            let (id, request) = (waiter.claim.session, waiter.claim.request);
            let wait = self.known(name, id)?.waits.get(&request);
            ensure!(
                wait.is_some_and(|wait| wait.name == *name && wait.ticket == ticket),
                "a waiter of {name} does not know it"
            );
            ensure!(waiter.queued_at <= self.now, "a waiter of {name} is from the future");
            ensure!(ticket.0 < u64::MAX / 2, "the queue of {name} runs out of tickets");
            deadlines.insert(waiter.deadline, Due::Wait(id, request));
        }
        Ok(())
    }

    fn known(&self, name: &LockName, id: SessionId) -> Result<&Session, String> {
        self.sessions.get(&id).ok_or(format!("{name} is held or awaited by an unknown session"))
    }
}
