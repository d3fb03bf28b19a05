//! A plain account of who holds and who waits, kept from the table's events. Whatever it cannot explain is a
//! broken promise.

use holdfast_core::{Command, EndReason, Event, LockTable, Outcome, RequestId, SessionId};

use super::moves::{LINGER_MS, Names, TTL_MS, session_number};
use super::{NAMES_MAX, SESSIONS_MAX};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Holder {
    pub(super) session: u8,
    pub(super) request: u8,
    pub(super) token: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Life {
    heard_at_ms: u64,
    stream_broke_at_ms: Option<u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Account {
    lives: [Option<Life>; SESSIONS_MAX],
    holders: [Option<Holder>; NAMES_MAX],
    /// Session and request.
    queues: [Vec<(u8, u8)>; NAMES_MAX],
    /// Acquires, by session and request, that will not be granted: their cancellation was confirmed.
    cancelled: Vec<(u8, u8)>,
    highest_token: u64,
}

/// Fails with the text unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($text:tt)+) => {
        if !$condition {
            return Err(format!($($text)+));
        }
    };
}

impl Account {
    pub(super) fn holder(&self, name: usize) -> Option<Holder> {
        self.holders[name]
    }

    pub(super) fn highest_token(&self) -> u64 {
        self.highest_token
    }

    /// Takes a command and what came of it into account.
    pub(super) fn take(
        &mut self,
        command: &Command,
        now_ms: u64,
        outcome: &Outcome,
        events: &[Event],
        names: &Names,
    ) -> Result<(), String> {
        if let (Command::Cancel { call, target }, Outcome::CancelDone) = (command, outcome) {
            self.cancelled.push(waiter(call.session, *target));
        }
        if let Some(session) = command.session()
            && let Some(life) = &mut self.lives[usize::from(session_number(session))]
        {
            match command {
                // A stream breaks once.
                Command::DetachStream { .. } => {
                    life.stream_broke_at_ms.get_or_insert(now_ms);
                }
                _ => *life = Life { heard_at_ms: now_ms, stream_broke_at_ms: None },
            }
        }
        events.iter().try_for_each(|event| self.happened(event, command, now_ms, names))
    }

    fn happened(
        &mut self,
        event: &Event,
        cause: &Command,
        now_ms: u64,
        names: &Names,
    ) -> Result<(), String> {
        let place = |name| names.number(name).ok_or_else(|| format!("no lock is called {name}"));
        match event {
            Event::SessionOpened { session, .. } => {
                let life = Life { heard_at_ms: now_ms, stream_broke_at_ms: None };
                let session = session_number(*session);
                let before = self.lives[usize::from(session)].replace(life);
                ensure!(before.is_none(), "session {session} opened twice");
            }
            Event::SessionEnded { session, reason, .. } => {
                let session = session_number(*session);
                let life = self.lives[usize::from(session)].take();
                let Some(life) = life else {
                    return Err(format!("session {session} ended and did not live"));
                };
                ensure!(may_end(life, *reason, cause, now_ms), "session {session} ended early");
                let holds = self.holders.iter().flatten().any(|holder| holder.session == session);
                let waits = self.queues.iter().flatten().any(|(waiting, _)| *waiting == session);
                ensure!(!holds && !waits, "session {session} ended and left something behind");
            }
            Event::Granted { name, session, request, token, .. } => {
                let (name, who) = (place(name)?, waiter(*session, *request));
                ensure!(self.lives[usize::from(who.0)].is_some(), "a grant to the dead");
                ensure!(!self.cancelled.contains(&who), "a grant to {who:?}, which was cancelled");
                ensure!(token.0 > self.highest_token, "token {token} went back");
                self.highest_token = token.0;
                let first = self.queues[name].first();
                ensure!(first.is_none_or(|first| *first == who), "somebody was overtaken");
                let holder = Holder { session: who.0, request: who.1, token: token.0 };
                ensure!(self.holders[name].replace(holder).is_none(), "two holders at once");
            }
            Event::Queued { name, session, request, .. } => {
                let (name, who) = (place(name)?, waiter(*session, *request));
                ensure!(self.holders[name].is_some(), "a queue before a free lock");
                ensure!(!self.cancelled.contains(&who), "{who:?} waits, and it was cancelled");
                self.queues[name].push(who);
            }
            Event::WaitEnded { names, session, request, .. } => {
                let who = waiter(*session, *request);
                for name in names.iter() {
                    let queue = &mut self.queues[place(name)?];
                    let stood = queue.iter().position(|other| *other == who);
                    ensure!(stood.is_some(), "a wait ended that had not begun");
                    queue.retain(|other| *other != who);
                }
            }
            Event::Released { name, session, token, .. } => {
                let holder = self.holders[place(name)?].take();
                let meant = (session_number(*session), token.0);
                let is_meant = holder.is_some_and(|holder| (holder.session, holder.token) == meant);
                ensure!(is_meant, "{meant:?} was released, and {holder:?} held it");
            }
            Event::HoldEnded { name, session, request, token, .. } => {
                ensure!(*cause == Command::Tick, "something but a tick took a hold away");
                let holder = self.holders[place(name)?].take();
                let (session, request) = waiter(*session, *request);
                let meant = Holder { session, request, token: token.0 };
                ensure!(holder == Some(meant), "{meant:?} ended, and {holder:?} held it");
            }
            Event::Refused { .. }
            | Event::Converted { .. }
            | Event::Proclaimed { .. }
            | Event::Reopened { .. }
            | Event::Intervened(_)
            | Event::Thawed { .. } => {}
        }
        Ok(())
    }

    /// Does the table say the same?
    pub(super) fn compare(&self, table: &LockTable, names: &Names) -> Result<(), String> {
        ensure!(table.last_token() == self.highest_token, "the table forgot a token");
        let alive = self.lives.iter().flatten().count();
        ensure!(table.session_count() == alive, "{alive} sessions should live");
        for (number, (holder, queue)) in self.holders.iter().zip(&self.queues).enumerate() {
            let name = names.get(number);
            let status = table.status(name, usize::MAX);
            let holders = status.holders.iter().map(|holder| (holder.session.0, holder.token.0));
            let expected = holder.map(|holder| (u64::from(holder.session) + 1, holder.token));
            ensure!(holders.eq(expected), "{name} should be held by {holder:?}");
            let waiters = status.waiters.iter().map(|waiter| waiter.session.0);
            let expected = queue.iter().map(|(session, _)| u64::from(*session) + 1);
            ensure!(waiters.eq(expected), "the queue of {name} should be {queue:?}");
            ensure!(holder.is_some() || queue.is_empty(), "{name} is free, and {queue:?} wait");
        }
        Ok(())
    }
}

fn waiter(session: SessionId, request: RequestId) -> (u8, u8) {
    (session_number(session), u8::try_from(request.0).unwrap_or(u8::MAX))
}

fn may_end(life: Life, reason: EndReason, cause: &Command, now_ms: u64) -> bool {
    let by_ttl = life.heard_at_ms + TTL_MS <= now_ms;
    let by_linger = life.stream_broke_at_ms.is_some_and(|at| at + LINGER_MS <= now_ms);
    match reason {
        EndReason::Closed => matches!(cause, Command::CloseSession { .. }),
        EndReason::Ttl => *cause == Command::Tick && by_ttl,
        _ => *cause == Command::Tick && (by_ttl || by_linger),
    }
}
