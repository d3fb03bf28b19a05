//! Judges what the tables of several groups do by their events alone.
//!
//! * A name is held in one group only, also while it is on its way, and by holders whose modes go together.
//! * Each grant of a name has a higher token than all before, whichever group made it.
//! * What leaves arrives once, as it was; nothing else arrives.
//! * Waiters of one lock are served in their order, however often they move.
//! * Nothing ends before its time, counted without the time on the way.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_core::command::Mode;
use holdfast_core::{
    ActorId, Command, EndReason, Event, FenceToken, LockName, MoveId, Outcome, Rejection,
    RequestId, SessionId,
};

use crate::groups::{NO_TOKEN, TTL_MS};

/// A hold, wherever it is.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) name: LockName,
    pub(crate) session: SessionId,
    pub(crate) request: RequestId,
    pub(crate) actor: ActorId,
    pub(crate) mode: Mode,
    pub(crate) token: FenceToken,
    /// None on its way.
    pub(crate) group: Option<usize>,
    /// From where it has left, on its way, and as whose.
    pub(crate) left: Option<(usize, SessionId)>,
    pub(crate) is_of_several: bool,
    pub(crate) is_converted: bool,
    /// It has a TTL of its own, of which so much is left since then.
    ttl: Option<Clock>,
    pub(crate) own_ttl_ms: Option<u64>,
}

#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    pub(crate) session: SessionId,
    pub(crate) request: RequestId,
    pub(crate) group: Option<usize>,
    pub(crate) left: Option<(usize, SessionId)>,
    names: Vec<LockName>,
    mode: Mode,
    actor: ActorId,
    /// The order in which they have come, over all groups.
    order: u64,
    is_of_several: bool,
    clock: Clock,
    ttl_ms: Option<u64>,
}

/// So much time is left, counted from a moment in the time of a group.
#[derive(Clone, Copy, Debug)]
struct Clock {
    left_ms: u64,
    since_ms: u64,
}

impl Clock {
    fn stop(&mut self, now: u64) {
        self.left_ms = self.left_ms.saturating_sub(now - self.since_ms);
    }

    fn is_over(self, now: u64) -> bool {
        now - self.since_ms >= self.left_ms
    }
}

type Key = (LockName, SessionId, RequestId);

#[derive(Debug, Default)]
pub(crate) struct Judge {
    held: BTreeMap<Key, Held>,
    waiting: BTreeMap<(SessionId, RequestId), Waiting>,
    highest: BTreeMap<LockName, FenceToken>,
    order: u64,
    /// Sessions in each group, with the time that they have at least.
    sessions: BTreeMap<(usize, SessionId), Clock>,
    /// The time that guests have at least when they arrive.
    on_their_way: BTreeMap<SessionId, u64>,
    guests: BTreeMap<SessionId, MoveId>,
    ended: Vec<SessionId>,
    renewals: BTreeSet<(SessionId, RequestId)>,
    /// The requests that were granted locks, or waited for some. No two have one id.
    begun: BTreeMap<RequestId, u64>,
    /// Guests of moves of which not all has come yet.
    arrived: BTreeSet<(usize, SessionId)>,
    /// When a guest or a hold last arrived in each group.
    last_arrival: BTreeMap<usize, u64>,
    commands: u64,
}

impl Judge {
    pub(crate) fn holds(&self) -> Vec<Held> {
        self.held.values().cloned().collect()
    }

    pub(crate) fn held(&self, name: &LockName, id: SessionId, request: RequestId) -> Option<&Held> {
        self.held.get(&(name.clone(), id, request))
    }

    pub(crate) fn own_ttl_ms(
        &self,
        name: &LockName,
        id: SessionId,
        request: RequestId,
    ) -> Option<u64> {
        self.held(name, id, request)?.own_ttl_ms
    }

    pub(crate) fn waits(&self) -> Vec<Waiting> {
        self.waiting.values().cloned().collect()
    }

    pub(crate) fn guests(&self, at: usize) -> Vec<SessionId> {
        let here = self.sessions.keys().filter(|(group, _)| *group == at);
        here.map(|(_, id)| *id).filter(|id| self.is_guest(*id)).collect()
    }

    pub(crate) fn is_guest(&self, id: SessionId) -> bool {
        self.guests.contains_key(&id)
    }

    pub(crate) fn follow(
        &mut self,
        at: usize,
        now: u64,
        moving: Option<MoveId>,
        cause: &Command,
        events: &[Event],
    ) {
        self.commands += 1;
        if let Some(session) = cause.session()
            && !matches!(cause, Command::DetachStream { .. } | Command::Abandon { .. })
            && let Some(clock) = self.sessions.get_mut(&(at, session))
        {
            *clock = Clock { left_ms: TTL_MS, since_ms: now };
        }
        // A retry renews nothing.
        if let Command::Renew { call, hold, .. } = cause
            && self.renewals.insert((call.session, call.request))
        {
            let key = (hold.name.clone(), call.session, hold.acquire);
            if let Some(held) = self.held.get_mut(&key)
                && held.group == Some(at)
                && let Some(own) = held.own_ttl_ms
            {
                held.ttl = Some(Clock { left_ms: own, since_ms: now });
            }
        }
        for event in events {
            self.take(at, now, moving, cause, event);
        }
    }

    fn take(
        &mut self,
        at: usize,
        now: u64,
        moving: Option<MoveId>,
        cause: &Command,
        event: &Event,
    ) {
        match event {
            Event::OwnershipChanged { .. } => self.settle(at, now),
            Event::SessionOpened { session, .. } => {
                if self.is_guest(*session) {
                    self.arrived.insert((at, *session));
                    self.last_arrival.insert(at, now);
                }
                let left_ms = self.on_their_way.get(session).copied().unwrap_or(TTL_MS);
                self.sessions.insert((at, *session), Clock { left_ms, since_ms: now });
            }
            Event::SessionEnding { session, reason, .. }
            | Event::SessionEnded { session, reason, .. } => {
                if let Some(clock) = self.sessions.remove(&(at, *session))
                    && *reason == EndReason::Ttl
                {
                    assert!(clock.is_over(now), "a session ended before its time");
                }
                self.ended.push(*session);
            }
            Event::Granted { name, session, request, actor, mode, token, .. } => {
                self.granted(at, now, cause, name, (*session, *request), *actor, *mode, *token);
            }
            Event::Released { name, session, request, token, .. } => {
                let held = self.held.remove(&(name.clone(), *session, *request));
                let held = held.expect("what is released was held");
                assert_eq!((held.group, held.token), (Some(at), *token));
            }
            Event::HoldEnded { name, session, request, token, reason, .. } => {
                let key = (name.clone(), *session, *request);
                let mut held = self.held.remove(&key).expect("what ends was held");
                assert_eq!((held.group, held.token), (Some(at), *token));
                match reason {
                    EndReason::Moved => {
                        let id = moving.expect("it leaves by a move");
                        if let Some(ttl) = &mut held.ttl {
                            ttl.stop(now);
                        }
                        held.left = Some((at, *session));
                        held.group = None;
                        held.session = self.guest_of(at, now, id, *session);
                        let key = (name.clone(), held.session, *request);
                        assert!(self.held.insert(key, held).is_none(), "it leaves twice");
                    }
                    EndReason::Ttl => {
                        let ttl = held.ttl.expect("it has a TTL");
                        assert!(ttl.is_over(now), "a hold ended before its time");
                    }
                    _ => {}
                }
            }
            Event::HoldMovedIn { name, session, request, actor, mode, token } => {
                let held = self.held.get_mut(&(name.clone(), *session, *request));
                let held = held.expect("what arrives has left");
                assert_eq!(held.group, None, "{name} arrives twice");
                assert_eq!((held.actor, held.mode, held.token), (*actor, *mode, *token));
                held.group = Some(at);
                held.left = None;
                self.last_arrival.insert(at, now);
                if let Some(ttl) = &mut held.ttl {
                    ttl.since_ms = now;
                }
            }
            Event::Queued { name, session, request, actor, mode } => {
                self.queued(at, now, cause, name, (*session, *request), *actor, *mode);
            }
            Event::WaitEnded { session, request, outcome, .. } => {
                let wait = self.waiting.remove(&(*session, *request));
                let mut wait = wait.expect("what ends has waited");
                assert_eq!(wait.group, Some(at));
                match outcome {
                    Outcome::Rejected(Rejection::WrongGroup { .. }) => {
                        let id = moving.expect("it leaves by a move");
                        wait.clock.stop(now);
                        wait.group = None;
                        wait.left = Some((at, *session));
                        wait.session = self.guest_of(at, now, id, *session);
                        let key = (wait.session, *request);
                        assert!(self.waiting.insert(key, wait).is_none(), "it leaves twice");
                    }
                    Outcome::Rejected(Rejection::SeveralGroups { .. }) => {
                        assert!(wait.is_of_several && moving.is_some());
                    }
                    Outcome::TimedOut => {
                        assert!(wait.clock.is_over(now), "a wait ended before its time");
                    }
                    _ => {}
                }
            }
            _ => {}
        }
    }

    /// All of a move is there. The times of its guests begin when the last part is in. The group may own the slots later:
    /// one entry counts the times of some guests.
    fn settle(&mut self, at: usize, now: u64) {
        let since_ms = self.last_arrival.remove(&at).unwrap_or(now);
        let arrived = std::mem::take(&mut self.arrived);
        let (here, elsewhere) = arrived.into_iter().partition(|(group, _)| *group == at);
        self.arrived = elsewhere;
        let here: BTreeSet<(usize, SessionId)> = here;
        for (_, guest) in here {
            if let Some(clock) = self.sessions.get_mut(&(at, guest)) {
                clock.since_ms = clock.since_ms.max(since_ms);
            }
            for held in self.held.values_mut() {
                if (held.group, held.session) == (Some(at), guest)
                    && let Some(ttl) = &mut held.ttl
                {
                    ttl.since_ms = ttl.since_ms.max(since_ms);
                }
            }
        }
    }

    /// What leaves of a session, and how long the session has at least where that arrives.
    fn guest_of(&mut self, at: usize, now: u64, id: MoveId, session: SessionId) -> SessionId {
        let guest = id.guest(session);
        let mut clock = self.sessions[&(at, session)];
        clock.stop(now);
        let left = self.on_their_way.entry(guest).or_insert(clock.left_ms);
        *left = clock.left_ms.min(*left);
        self.guests.insert(guest, id);
        guest
    }

    #[expect(clippy::too_many_arguments, reason = "they are the fields of the event")]
    fn granted(
        &mut self,
        at: usize,
        now: u64,
        cause: &Command,
        name: &LockName,
        (session, request): (SessionId, RequestId),
        actor: ActorId,
        mode: Mode,
        token: FenceToken,
    ) {
        if !self.waiting.contains_key(&(session, request)) {
            self.begin(request);
        }
        // What is on its way to a guest that has ended meanwhile ends with it.
        self.forget_what_ended_on_its_way();
        for held in self.held.values().filter(|held| held.name == *name) {
            let both_read = (held.mode, mode) == (Mode::Shared, Mode::Shared);
            assert!(both_read, "{name} is granted in group {at}, and held: {held:?}");
            assert_eq!(held.token, token, "readers have one token");
            assert_eq!(held.group, Some(at), "{name} is granted while it is on its way");
        }
        let highest = self.highest.entry(name.clone()).or_insert(NO_TOKEN);
        let joins = self.held.keys().any(|(held, ..)| held == name);
        assert!(token > *highest || joins, "{name} is granted under {token} after {highest}");
        *highest = token.max(*highest);
        let own = self.waiting.get(&(session, request));
        let order = own.map_or(u64::MAX, |wait| wait.order);
        if own.is_none_or(|wait| !wait.is_of_several) && !is_of_several(cause) {
            let overtaken = self.waiting.values().find(|wait| {
                let both_read = (wait.mode, mode) == (Mode::Shared, Mode::Shared);
                wait.names == [name.clone()] && wait.order < order && !both_read
            });
            assert!(overtaken.is_none(), "{name} is granted before {overtaken:?}");
        }
        let own_ttl_ms = match (own, cause) {
            (Some(wait), _) => wait.ttl_ms,
            (None, Command::Acquire(acquire)) => acquire.terms.ttl.map(|ttl| ttl.as_ms()),
            (None, Command::AcquireAll(acquire)) => acquire.terms.ttl.map(|ttl| ttl.as_ms()),
            _ => None,
        };
        let is_of_several = own.map_or(is_of_several(cause), |wait| wait.is_of_several);
        let held = Held {
            name: name.clone(),
            session,
            request,
            actor,
            mode,
            token,
            group: Some(at),
            left: None,
            is_of_several,
            is_converted: false,
            ttl: own_ttl_ms.map(|left_ms| Clock { left_ms, since_ms: now }),
            own_ttl_ms,
        };
        self.held.insert((name.clone(), session, request), held);
    }

    /// A command carries the request out. Later ones are copies.
    fn begin(&mut self, request: RequestId) {
        let by = *self.begun.entry(request).or_insert(self.commands);
        assert_eq!(by, self.commands, "{request:?} is carried out twice");
    }

    #[expect(clippy::too_many_arguments, reason = "they are the fields of the event")]
    fn queued(
        &mut self,
        at: usize,
        now: u64,
        cause: &Command,
        name: &LockName,
        (session, request): (SessionId, RequestId),
        actor: ActorId,
        mode: Mode,
    ) {
        if let Some(wait) = self.waiting.get_mut(&(session, request)) {
            if wait.group.is_none() {
                assert_eq!((wait.actor, wait.mode), (actor, mode));
                wait.group = Some(at);
                wait.left = None;
                wait.clock.since_ms = now;
            }
            assert_eq!(wait.group, Some(at));
            if !wait.names.contains(name) {
                assert!(is_of_several(cause), "a wait has come to another lock");
                wait.names.push(name.clone());
            }
            return;
        }
        let terms = match cause {
            Command::Acquire(acquire) => &acquire.terms,
            Command::AcquireAll(acquire) => &acquire.terms,
            other => panic!("{other:?} waits"),
        };
        self.begin(request);
        self.order += 1;
        let wait = Waiting {
            session,
            request,
            group: Some(at),
            left: None,
            names: vec![name.clone()],
            mode,
            actor,
            order: self.order,
            is_of_several: is_of_several(cause),
            clock: Clock { left_ms: terms.wait.as_ms(), since_ms: now },
            ttl_ms: terms.ttl.map(|ttl| ttl.as_ms()),
        };
        self.waiting.insert((session, request), wait);
    }

    /// What has left has arrived, unless its guest has ended meanwhile.
    pub(crate) fn expect_nothing_on_its_way(&mut self) {
        self.forget_what_ended_on_its_way();
        let held = self.held.values().find(|held| held.group.is_none());
        assert!(held.is_none(), "it never arrived: {held:?}");
        let wait = self.waiting.values().find(|wait| wait.group.is_none());
        assert!(wait.is_none(), "it never arrived: {wait:?}");
    }

    fn forget_what_ended_on_its_way(&mut self) {
        let ended = &self.ended;
        self.held.retain(|_, held| held.group.is_some() || !ended.contains(&held.session));
        self.waiting.retain(|_, wait| wait.group.is_some() || !ended.contains(&wait.session));
    }

    pub(crate) fn expect_nothing(&self) {
        assert!(self.held.is_empty(), "{:?}", self.held);
        assert!(self.waiting.is_empty(), "{:?}", self.waiting);
    }
}

fn is_of_several(cause: &Command) -> bool {
    matches!(cause, Command::AcquireAll(_))
}
