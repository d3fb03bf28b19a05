//! A plain account of who holds and who waits, kept from the table's events. Whatever it cannot explain is a
//! broken promise.

use holdfast_core::command::{Action, Mode};
use holdfast_core::{
    Command, EndReason, Event, FenceToken, LockTable, Outcome, RequestId, SessionId,
};

use super::setup::{LINGER_MS, Names, PERMITS, TTL_MS, session_number};
use super::{NAMES_MAX, SESSIONS_MAX};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Holder {
    pub(super) session: u8,
    pub(super) request: u8,
    pub(super) token: u64,
    pub(super) mode: Mode,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Waiter {
    /// Session and request.
    who: (u8, u8),
    mode: Mode,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Life {
    last_contact_ms: u64,
    stream_broke_at_ms: Option<u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Account {
    lives: [Option<Life>; SESSIONS_MAX],
    holders: [Vec<Holder>; NAMES_MAX],
    queues: [Vec<Waiter>; NAMES_MAX],
    /// An operator has frozen the first name.
    frozen: bool,
    /// How many permits an operator has set for the first name.
    permits: Option<u32>,
    /// A lock delay keeps it closed.
    closed: [bool; NAMES_MAX],
    /// Acquires with a lock delay.
    with_delay: Vec<(u8, u8)>,
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
    /// One of those who hold it.
    pub(super) fn holder(&self, name: usize) -> Option<Holder> {
        self.holders[name].first().copied()
    }

    pub(super) fn holders(&self, name: usize) -> &[Holder] {
        &self.holders[name]
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
        if let Command::Acquire(acquire) = command
            && acquire.terms.lock_delay.is_some()
        {
            self.with_delay.push(waiter(acquire.call.session, acquire.call.request));
        }
        if let Some(session) = command.session()
            && let Some(life) = &mut self.lives[usize::from(session_number(session))]
        {
            match command {
                // A stream breaks once.
                Command::DetachStream { .. } => {
                    life.stream_broke_at_ms.get_or_insert(now_ms);
                }
                _ => *life = Life { last_contact_ms: now_ms, stream_broke_at_ms: None },
            }
        }
        events.iter().try_for_each(|event| self.happened(event, command, now_ms, names))?;
        self.nothing_in_part()
    }

    /// What one acquire wants of two locks it waits for in both queues, or in none.
    fn nothing_in_part(&self) -> Result<(), String> {
        let [first, second] = &self.queues;
        for waiter in first {
            let holds_other =
                self.holders[1].iter().any(|holder| (holder.session, holder.request) == waiter.who);
            ensure!(!holds_other, "{:?} holds a part of what it waits for", waiter.who);
        }
        for waiter in second {
            let holds_other =
                self.holders[0].iter().any(|holder| (holder.session, holder.request) == waiter.who);
            ensure!(!holds_other, "{:?} holds a part of what it waits for", waiter.who);
        }
        Ok(())
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
                let life = Life { last_contact_ms: now_ms, stream_broke_at_ms: None };
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
                let waits = self.queues.iter().flatten().any(|waiter| waiter.who.0 == session);
                ensure!(!holds && !waits, "session {session} ended and left something behind");
            }
            Event::Granted { name, session, request, token, mode, .. } => {
                let (name, who) = (place(name)?, waiter(*session, *request));
                ensure!(self.lives[usize::from(who.0)].is_some(), "a grant to the dead");
                ensure!(!self.cancelled.contains(&who), "a grant to {who:?}, which was cancelled");
                ensure!(!self.is_shut(name), "a grant behind a closed door");
                let run = self.holders[name].first();
                let joins = *mode == Mode::Shared
                    && run.is_some_and(|run| (run.mode, run.token) == (Mode::Shared, token.0));
                let fits = is_permit(*mode) && self.permits_left(name) > 0;
                ensure!(run.is_none() || joins || fits, "a grant ({mode:?}) beside {run:?}");
                self.takes_token(*token, joins)?;
                let ahead = self.queues[name].iter().take_while(|waiter| waiter.who != who);
                let ahead: Vec<Mode> = ahead.map(|waiter| waiter.mode).collect();
                let left_to_those_ahead = match mode {
                    Mode::Exclusive => ahead.is_empty(),
                    Mode::Shared => ahead.iter().all(|other| *other == Mode::Shared),
                    Mode::Permit { .. } => {
                        ahead.iter().all(|other| is_permit(*other))
                            && ahead.len() < self.permits_left(name)
                    }
                };
                ensure!(left_to_those_ahead || hands_over(cause), "a waiter was overtaken");
                let (session, request) = who;
                let holder = Holder { session, request, token: token.0, mode: *mode };
                self.holders[name].push(holder);
            }
            Event::Converted { name, session, request, mode, token, .. } => {
                let (name, who) = (place(name)?, waiter(*session, *request));
                let alone = self.holders[name].len() == 1;
                let held = self.held(name, who);
                ensure!(held.is_some(), "{who:?} converted what it does not hold");
                let kept = held.is_some_and(|held| held.token == token.0);
                if *mode == Mode::Exclusive {
                    ensure!(alone, "a writer beside readers");
                    ensure!(!self.is_shut(name), "an upgrade behind a closed door");
                    self.takes_token(*token, false)?;
                } else {
                    ensure!(kept, "a downgrade changed the token");
                }
                for holder in &mut self.holders[name] {
                    if (holder.session, holder.request) == who {
                        (holder.mode, holder.token) = (*mode, token.0);
                    }
                }
            }
            Event::Queued { name, session, request, mode, .. } => {
                let (name, who) = (place(name)?, waiter(*session, *request));
                let free = self.holders[name].is_empty() && self.queues[name].is_empty();
                let reserves = matches!(cause, Command::AcquireAll(_));
                let waits_for_nothing = free && !self.is_shut(name) && !reserves;
                ensure!(!waits_for_nothing, "a queue before a free lock");
                ensure!(!self.cancelled.contains(&who), "{who:?} waits, and it was cancelled");
                let waiter = Waiter { who, mode: *mode };
                match cause {
                    Command::Convert { .. } => self.queues[name].insert(0, waiter),
                    _ => self.queues[name].push(waiter),
                }
            }
            Event::WaitEnded { names, session, request, .. } => {
                let who = waiter(*session, *request);
                for name in names.iter() {
                    let queue = &mut self.queues[place(name)?];
                    let stood = queue.iter().any(|other| other.who == who);
                    ensure!(stood, "a wait ended that had not begun");
                    queue.retain(|other| other.who != who);
                }
            }
            Event::Released { name, session, request, token, .. } => {
                self.ends(place(name)?, waiter(*session, *request), *token)?;
            }
            Event::HoldEnded { name, session, request, token, reason, .. } => {
                let may_be = match (reason, cause) {
                    (EndReason::Wounded, Command::Acquire(_) | Command::AcquireAll(_)) => true,
                    (EndReason::Broken | EndReason::Killed, Command::Intervene(_)) => true,
                    (EndReason::Transferred, cause) => hands_over(cause),
                    (_, cause) => *cause == Command::Tick,
                };
                ensure!(may_be, "a hold ended ({reason:?}) by {cause:?}");
                let (name, who) = (place(name)?, waiter(*session, *request));
                self.ends(name, who, *token)?;
                if *reason != EndReason::Transferred && self.with_delay.contains(&who) {
                    self.closed[name] = true;
                }
            }
            Event::Reopened { name } => {
                let was_closed = std::mem::take(&mut self.closed[place(name)?]);
                ensure!(was_closed, "{name} was opened, and it was not closed");
            }
            Event::Intervened(intervention) => match intervention.action {
                Action::Freeze { .. } => self.frozen = true,
                Action::SetPermits { limit, .. } => self.permits = limit,
                _ => {}
            },
            Event::Thawed { .. } => {
                ensure!(std::mem::take(&mut self.frozen), "it thawed, and was not frozen");
            }
            // The commands of the model have no identities.
            Event::AccessChanged { .. } => return Err(String::from("the policy was changed")),
            Event::PolicyAdopted { .. } => return Err(String::from("a policy was adopted")),
            Event::OwnershipChanged { .. } => return Err(String::from("slots were taken")),
            Event::HoldMovedIn { .. } => return Err(String::from("slots have come")),
            // The sessions of the model are small.
            Event::SessionEnding { .. } => return Err(String::from("a session ends in parts")),
            Event::Refused { .. } | Event::Proclaimed { .. } => {}
        }
        Ok(())
    }

    fn held(&self, name: usize, who: (u8, u8)) -> Option<&Holder> {
        self.holders[name].iter().find(|holder| (holder.session, holder.request) == who)
    }

    fn ends(&mut self, name: usize, who: (u8, u8), token: FenceToken) -> Result<(), String> {
        let held = self.held(name, who).copied();
        let is_meant = held.is_some_and(|held| held.token == token.0);
        ensure!(is_meant, "the hold of {who:?} under {token} ended, and it had {held:?}");
        self.holders[name].retain(|holder| (holder.session, holder.request) != who);
        Ok(())
    }

    fn is_shut(&self, name: usize) -> bool {
        self.closed[name] || (self.frozen && name == 0)
    }

    /// How many more could be held; nothing beside a holder that wants it all.
    fn permits_left(&self, name: usize) -> usize {
        let limit = self.permits.filter(|_| name == 0).unwrap_or(PERMITS) as usize;
        let holders = &self.holders[name];
        let all_are_permits = holders.iter().all(|holder| is_permit(holder.mode));
        if all_are_permits { limit.saturating_sub(holders.len()) } else { 0 }
    }

    fn takes_token(&mut self, token: FenceToken, joins: bool) -> Result<(), String> {
        ensure!(joins || token.0 > self.highest_token, "token {token} went back");
        self.highest_token = self.highest_token.max(token.0);
        Ok(())
    }

    /// Does the table say the same?
    pub(super) fn compare(&self, table: &LockTable, names: &Names) -> Result<(), String> {
        ensure!(table.last_token() == self.highest_token, "the table forgot a token");
        let alive = self.lives.iter().flatten().count();
        ensure!(table.session_count() == alive, "{alive} sessions should live");
        for (number, (holders, queue)) in self.holders.iter().zip(&self.queues).enumerate() {
            let name = names.get(number);
            let status = table.status(name, usize::MAX);
            let said = status.holders.iter().map(|holder| (holder.session.0, holder.token.0));
            let mut expected: Vec<&Holder> = holders.iter().collect();
            expected.sort_by_key(|holder| (holder.session, holder.request));
            let expected =
                expected.iter().map(|holder| (u64::from(holder.session) + 1, holder.token));
            ensure!(said.eq(expected), "{name} should be held by {holders:?}");
            let waiters = status.waiters.iter().map(|waiter| waiter.session.0);
            let expected = queue.iter().map(|waiter| u64::from(waiter.who.0) + 1);
            ensure!(waiters.eq(expected), "the queue of {name} should be {queue:?}");
            let reserved = queue.first().is_some_and(|first| {
                let elsewhere = self.queues.iter().flatten().filter(|it| it.who == first.who);
                elsewhere.count() > 1
            });
            let could_be_taken = holders.is_empty()
                || (queue.first().is_some_and(|first| is_permit(first.mode))
                    && self.permits_left(number) > 0);
            let fine = !could_be_taken || queue.is_empty() || reserved || self.is_shut(number);
            ensure!(fine, "{name} is free, and {queue:?} wait");
        }
        Ok(())
    }
}

fn is_permit(mode: Mode) -> bool {
    matches!(mode, Mode::Permit { .. })
}

/// A lock goes to a chosen one, past those who came before.
fn hands_over(cause: &Command) -> bool {
    match cause {
        Command::Transfer { .. } => true,
        Command::Intervene(intervention) => matches!(intervention.action, Action::Transfer { .. }),
        _ => false,
    }
}

fn waiter(session: SessionId, request: RequestId) -> (u8, u8) {
    (session_number(session), u8::try_from(request.0).unwrap_or(u8::MAX))
}

fn may_end(life: Life, reason: EndReason, cause: &Command, now_ms: u64) -> bool {
    let by_ttl = life.last_contact_ms + TTL_MS <= now_ms;
    let by_linger = life.stream_broke_at_ms.is_some_and(|at| at + LINGER_MS <= now_ms);
    match reason {
        EndReason::Closed => matches!(cause, Command::CloseSession { .. }),
        EndReason::Killed => matches!(cause, Command::Intervene(_)),
        EndReason::Ttl => *cause == Command::Tick && by_ttl,
        _ => *cause == Command::Tick && (by_ttl || by_linger),
    }
}
