//! What holds after every command of any history.
//!
//! The judge beside the table knows nothing of its insides: it follows the events, and from them
//! keeps its own account of who holds what and who stands where.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "it is a test")]

mod arbitrary;

use std::collections::BTreeMap;

use holdfast_core::command::{Action, Call, Mode, OpenSession};
use holdfast_core::{
    AccessChange, ChangeAccess, Command, EndReason, Event, FenceToken, Grants, Identity, Limits,
    LockName, LockTable, LogIndex, LogicalTime, MapEpoch, Outcome, Principal, Rejection, RequestId,
    RoleName, RulesVersion, SessionId, Slot, SlotSet, Span, Used, Verb, Verbs,
};
use proptest::prelude::*;

/// One step of a history: some time passes, then something is sent.
#[derive(Clone, Debug)]
struct Step {
    pause_ms: u64,
    send: Send,
}

#[derive(Clone, Debug)]
enum Send {
    /// As it is.
    AsIs(Command),
    /// Under a number that is new, about a token that is held: what a sensible client sends.
    Sensible(Command),
    /// Something that was sent before.
    Again(prop::sample::Index),
}

fn step() -> impl Strategy<Value = Step> {
    let send = prop_oneof![
        2 => arbitrary::command().prop_map(Send::AsIs),
        6 => arbitrary::command().prop_map(Send::Sensible),
        2 => any::<prop::sample::Index>().prop_map(Send::Again),
    ];
    (prop_oneof![Just(0_u64), 1_u64..200, 200_u64..1_500], send)
        .prop_map(|(pause_ms, send)| Step { pause_ms, send })
}

fn limits() -> impl Strategy<Value = Limits> {
    let small = Limits {
        sessions_max: 3,
        holds_per_session_max: 2,
        waits_per_session_max: 2,
        waiters_per_lock_max: 3,
        unacknowledged_answers_max: 5,
        remembered_losses_max: 1,
        expiries_per_tick_max: 1,
        reentries_max: 1,
        stored_permits_max: 1,
        freezes_max: 1,
        deadlock_walk_max: 2,
        promotion_walk_max: 2,
        ended_parts_per_entry_max: 1,
        ..Limits::default()
    };
    let slow_ends = Limits { ended_parts_per_entry_max: 1, ..Limits::default() };
    prop_oneof![2 => Just(Limits::default()), 1 => Just(small), 1 => Just(slow_ends)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn every_history_keeps_the_promises(
        limits in limits(),
        steps in proptest::collection::vec(step(), 1..120),
    ) {
        let mut judge = Judge::new(limits).with_users();
        for step in steps {
            judge.take(step);
        }
        judge.wait_for_the_end_of_everything();
    }
}

struct Judge {
    limits: Limits,
    table: LockTable,
    now: LogicalTime,
    index: u64,
    next_request: u64,
    sent: Vec<Sent>,
    holders: BTreeMap<LockName, Vec<Holder>>,
    queues: BTreeMap<LockName, Vec<Waiter>>,
    permits: BTreeMap<LockName, u32>,
    frozen: BTreeMap<String, LogicalTime>,
    sessions: BTreeMap<SessionId, Life>,
    /// As whom the sessions came last.
    identities: BTreeMap<SessionId, Identity>,
    highest_token: u64,
    /// In which slots may be granted, and since which epoch.
    slots: SlotSet,
    epoch: MapEpoch,
    /// What the snapshot that is being written must say.
    snapshot: Option<Vec<u8>>,
}

#[derive(Clone, Copy)]
struct Holder {
    session: SessionId,
    request: RequestId,
    token: FenceToken,
    mode: Mode,
}

#[derive(Clone, Copy)]
struct Waiter {
    session: SessionId,
    request: RequestId,
    mode: Mode,
}

/// When a session may end.
struct Life {
    ttl: Span,
    linger: Span,
    touched_at: LogicalTime,
    detached_at: Option<LogicalTime>,
    ended: Option<Ended>,
}

/// What ended a session, and when. Some of its holds and waits may be left.
#[derive(Clone)]
struct Ended {
    by: Command,
    at: LogicalTime,
}

struct Sent {
    command: Command,
    first: Outcome,
}

impl Judge {
    fn new(limits: Limits) -> Judge {
        Judge {
            table: LockTable::with_rules(limits.clone(), RulesVersion::NEWEST),
            limits,
            now: LogicalTime::ZERO,
            index: 0,
            next_request: 100,
            sent: Vec::new(),
            holders: BTreeMap::new(),
            queues: BTreeMap::new(),
            permits: BTreeMap::new(),
            frozen: BTreeMap::new(),
            sessions: BTreeMap::new(),
            identities: BTreeMap::new(),
            highest_token: 0,
            slots: SlotSet::ALL,
            epoch: MapEpoch(0),
            snapshot: None,
        }
    }

    /// Otherwise most of what sessions with an identity ask for would be refused.
    fn with_users(mut self) -> Judge {
        let user = RoleName::parse("user").unwrap();
        let grant = |principal| AccessChange::Grant {
            principal: Principal::parse(principal).unwrap(),
            role: user.clone(),
        };
        let changes = arbitrary::PRINCIPALS.map(grant).into();
        let (by, identity, expected, end_sessions) = ("token:root".into(), None, None, false);
        let change = ChangeAccess { by, identity, expected, changes, end_sessions };
        self.send(Command::ChangeAccess(Box::new(change)));
        self
    }

    /// What the session may do; none if it is not checked.
    fn grants(&self, session: SessionId) -> Option<Grants> {
        Some(self.table.access().grants(self.identities.get(&session)?))
    }

    fn may_connect(&self, session: SessionId) -> bool {
        self.grants(session).is_none_or(|grants| grants.allow_cluster(Verb::Connect))
    }

    /// In log order: what is granted, now or after a wait, is allowed by the policy as it is then.
    fn is_permitted(&self, session: SessionId, name: &LockName, mode: Mode) {
        let verbs = match mode {
            Mode::Exclusive => Verbs::of(&[Verb::Exclusive, Verb::Elect]),
            Mode::Shared => Verbs::of(&[Verb::Shared]),
            Mode::Permit { .. } => Verbs::of(&[Verb::Permit]),
        };
        let grants = self.grants(session);
        let is_permitted = grants.is_none_or(|grants| grants.allow_any(verbs, name));
        assert!(is_permitted && self.may_connect(session), "granted to a revoked principal");
    }

    fn take(&mut self, step: Step) {
        self.now = self.now.after(Span::from_ms(step.pause_ms));
        match step.send {
            Send::AsIs(command) => self.send_first(command),
            Send::Sensible(command) => {
                let command = self.sensible(command);
                self.send_first(command);
            }
            Send::Again(which) if !self.sent.is_empty() => {
                let Sent { command, first } = &self.sent[which.index(self.sent.len())];
                let (command, first) = (command.clone(), first.clone());
                self.send_again(command, &first);
            }
            Send::Again(_) => {}
        }
    }

    fn sensible(&mut self, mut command: Command) -> Command {
        self.next_request += 1;
        match &mut command {
            Command::Acquire(acquire) => acquire.call.request = RequestId(self.next_request),
            Command::AcquireAll(acquire) => acquire.call.request = RequestId(self.next_request),
            Command::Cancel { call, target } => {
                call.request = RequestId(self.next_request);
                let mut waits = self.queues.values().flatten();
                if let Some(waiter) = waits.next() {
                    (call.session, *target) = (waiter.session, waiter.request);
                }
            }
            Command::Abandon { session, request } => {
                let holder = self.holders.values().flatten().last();
                let waiter = self.queues.values().flatten().next();
                let waiter = waiter.map(|waiter| (waiter.session, waiter.request));
                let holder = holder.map(|holder| (holder.session, holder.request));
                let meant = if self.next_request.is_multiple_of(2) { waiter } else { holder };
                if let Some(meant) = meant {
                    (*session, *request) = meant;
                }
            }
            Command::Release { call, hold }
            | Command::Renew { call, hold, .. }
            | Command::Convert { call, hold, .. }
            | Command::Proclaim { call, hold, .. }
            | Command::Transfer { call, hold, .. } => {
                call.request = RequestId(self.next_request);
                if let Some(holder) = self.last_holder(&hold.name) {
                    (call.session, hold.token) = (holder.session, holder.token);
                    hold.acquire = RequestId(0);
                }
            }
            Command::SetOwnership { epoch, .. } => *epoch = MapEpoch(self.epoch.0 + 1),
            Command::Intervene(intervention) => {
                if let Action::Break { name, token: Some(token) }
                | Action::Transfer { name, token, .. } = &mut intervention.action
                    && let Some(holder) = self.last_holder(name)
                {
                    *token = holder.token;
                }
            }
            _ => {}
        }
        command
    }

    fn last_holder(&self, name: &LockName) -> Option<Holder> {
        self.holders.get(name)?.last().copied()
    }

    fn send_first(&mut self, command: Command) {
        let outcome = self.send(command.clone());
        if is_settled(&command, &outcome) {
            self.sent.push(Sent { command, first: outcome });
        }
    }

    fn send(&mut self, command: Command) -> Outcome {
        self.index += 1;
        self.snapshot_changes_nothing(&command);
        if self.snapshot.is_none() {
            self.snapshot = Some([b"head".to_vec(), self.table.encode()].concat());
            self.table.begin_snapshot(b"head");
        }
        let mut events = Vec::new();
        let used_before: Vec<_> = self.table.quota_use().map(|(_, _, used)| used).collect();
        let outcome =
            self.table.apply(LogIndex(self.index), self.now, command.clone(), &mut events);
        self.is_placed(&command, &outcome);
        if !matches!(command, Command::ChangeAccess(_) | Command::AdoptPolicy(_)) {
            self.quotas_are_kept(&used_before);
        }
        self.note_identity(&command, &outcome);
        self.note_touch(&command);
        if let Command::Abandon { session, request } = command {
            // From now on it is a new request.
            let is_other = |call: Call| (call.session, call.request) != (session, request);
            self.sent.retain(|sent| sent.command.wait().is_none_or(is_other));
        }
        for event in &events {
            self.follow(event, &command);
        }
        self.ends_are_told();
        self.compare();
        self.snapshot_is_of_its_moment();
        self.sent_twice_happens_once(&command, answered(&command, &outcome, &events));
        let has_done_all = events.len() < self.limits.expiries_per_tick_max
            && self.table.deferred_promotions() == 0
            && self.table.ending_session_count() == 0;
        if matches!(command, Command::Tick) && has_done_all {
            assert!(self.table.next_deadline().is_none_or(|next| next > self.now));
        }
        outcome
    }

    /// A group refuses a request because of its slots only if it does not own one of them, and says its epoch. An epoch
    /// that does not rise is refused.
    fn is_placed(&self, command: &Command, outcome: &Outcome) {
        match (command, outcome) {
            (Command::SetOwnership { epoch, .. }, Outcome::Done) => assert!(*epoch > self.epoch),
            (
                Command::SetOwnership { epoch, .. },
                Outcome::Rejected(Rejection::StaleEpoch { epoch: in_force }),
            ) => assert!(*epoch <= self.epoch && *in_force == self.epoch),
            (
                _,
                Outcome::Rejected(
                    Rejection::WrongGroup { epoch } | Rejection::SeveralGroups { epoch },
                ),
            ) => {
                assert_eq!(*epoch, self.epoch);
                assert!(names_of(command).any(|name| !self.owns(name)), "{command:?}");
                if let Command::Release { call, hold }
                | Command::Renew { call, hold, .. }
                | Command::Proclaim { call, hold, .. } = command
                {
                    let holders = self.holders.get(&hold.name).into_iter().flatten();
                    let is_here = holders.into_iter().any(|it| {
                        (it.session, it.token) == (call.session, hold.token)
                            && [RequestId(0), it.request].contains(&hold.acquire)
                    });
                    assert!(!is_here, "{command:?} is about a hold that is here");
                }
            }
            _ => {}
        }
    }

    fn owns(&self, name: &LockName) -> bool {
        self.slots.contains(Slot::of(name))
    }

    /// Nothing is added past a quota. What was taken before the quota was lowered is kept.
    fn quotas_are_kept(&self, used_before: &[Used]) {
        for ((subject, quota, now), before) in self.table.quota_use().zip(used_before) {
            for (limit, now, before) in [
                (quota.sessions, now.sessions, before.sessions),
                (quota.locks, now.locks, before.locks),
                (quota.waits, now.waits, before.waits),
            ] {
                let allowed = limit.map_or(u64::MAX, |limit| limit.max(before));
                assert!(now <= allowed, "{subject}: {now} of {quota:?}, before {before}");
            }
        }
    }

    /// The same command, sent later. It has the effect of a heartbeat, and the same answer. A heartbeat of a session
    /// that was due sets lines going that had waited for it to end.
    fn send_again(&mut self, command: Command, first: &Outcome) {
        let session = command.session().unwrap();
        if !self.may_connect(session) {
            // Its heartbeats are refused; it has its answer all the same.
            let again = self.send(command);
            assert!(is_same_answer(first, &again), "first {first:?}, then {again:?}");
            return;
        }
        let mut with_heartbeat = self.table.clone();
        let heartbeat = Command::Touch { session, acked_through: acked_through(&command) };
        let index = LogIndex(self.index + 1);
        let mut of_heartbeat = Vec::new();
        with_heartbeat.apply(index, self.now, heartbeat, &mut of_heartbeat);

        let mut with_retry = self.table.clone();
        let mut events = Vec::new();
        let second = with_retry.apply(index, self.now, command.clone(), &mut events);
        assert_eq!(events, of_heartbeat, "a retry did something: {command:?}");
        assert_eq!(with_retry.digest(), with_heartbeat.digest(), "a retry did something");
        assert!(is_same_answer(first, &second), "first {first:?}, then {second:?}");
        self.send(command);
    }

    /// A copy that is written and read back does the same as the original.
    fn snapshot_changes_nothing(&self, command: &Command) {
        let bytes = self.table.encode();
        let mut copy = LockTable::decode(&bytes, self.limits.clone()).expect("readable");
        assert_eq!(copy.encode(), bytes);
        let mut original = self.table.clone();
        let (mut events, mut copied_events) = (Vec::new(), Vec::new());
        let index = LogIndex(self.index);
        let outcome = original.apply(index, self.now, command.clone(), &mut events);
        let copied = copy.apply(index, self.now, command.clone(), &mut copied_events);
        assert_eq!((outcome, events), (copied, copied_events));
        assert_eq!(original.encode(), copy.encode());
    }

    /// However much changes while it is written.
    fn snapshot_is_of_its_moment(&mut self) {
        let step = self.index as usize % 3;
        if let Some(written) = self.table.continue_snapshot(step) {
            assert_eq!(Some(written), self.snapshot.take(), "a snapshot of another moment");
        }
    }

    fn sent_twice_happens_once(&self, command: &Command, first: &Outcome) {
        if command.session().is_none() || matches!(command, Command::CloseSession { .. }) {
            return;
        }
        let mut twice = self.table.clone();
        let mut events = Vec::new();
        let second = twice.apply(LogIndex(self.index), self.now, command.clone(), &mut events);
        assert_eq!(&second, first);
        assert_eq!(events, []);
        assert_eq!(twice.digest(), self.table.digest());
    }

    fn note_identity(&mut self, command: &Command, outcome: &Outcome) {
        if let Command::OpenSession(OpenSession { session, identity, .. })
        | Command::AttachStream { session, identity, .. } = command
            && matches!(outcome, Outcome::SessionOpen { .. })
        {
            match identity {
                Some(identity) => drop(self.identities.insert(*session, (**identity).clone())),
                None => drop(self.identities.remove(session)),
            }
        }
    }

    fn note_touch(&mut self, command: &Command) {
        if command.session().is_some_and(|session| !self.may_connect(session))
            && !matches!(command, Command::DetachStream { .. })
        {
            return;
        }
        let Some(life) = command.session().and_then(|id| self.sessions.get_mut(&id)) else {
            return;
        };
        if matches!(command, Command::Abandon { .. }) || life.ended.is_some() {
            return;
        }
        if matches!(command, Command::DetachStream { .. }) {
            // It may be without effect, which makes this account the more generous one; but one before
            // it may have had an effect, so the first since it was heard of counts.
            life.detached_at.get_or_insert(self.now);
        } else {
            life.touched_at = self.now;
            life.detached_at = None;
        }
    }

    /// An event tells of the end of a session, and from that on nothing of it is known to requests.
    fn ends_are_told(&self) {
        for (session, life) in &self.sessions {
            assert_eq!(life.ended.is_none(), self.table.has_session(*session), "{session:?}");
        }
    }

    /// Nothing begins for a session that has ended.
    fn lives(&self, session: SessionId) {
        let life = self.sessions.get(&session).expect("a session that is known");
        assert!(life.ended.is_none(), "something began for a session that had ended");
    }

    fn follow(&mut self, event: &Event, cause: &Command) {
        match event {
            Event::SessionOpened { session, .. } => {
                let Command::OpenSession(open) = cause else { panic!("opened by {cause:?}") };
                let life = Life {
                    ttl: open.ttl,
                    linger: open.linger,
                    touched_at: self.now,
                    detached_at: None,
                    ended: None,
                };
                assert!(self.sessions.insert(*session, life).is_none());
            }
            Event::SessionEnding { session, reason, .. } => {
                self.lives(*session);
                let ended = Ended { by: cause.clone(), at: self.now };
                let life = self.sessions.get_mut(session).expect("a session that is known");
                may_end(life, *reason, &ended);
                life.ended = Some(ended);
                self.sent.retain(|sent| sent.command.session() != Some(*session));
            }
            Event::SessionEnded { session, reason, .. } => {
                let life = self.sessions.remove(session).expect("a session that is known");
                self.identities.remove(session);
                let now = Ended { by: cause.clone(), at: self.now };
                may_end(&life, *reason, life.ended.as_ref().unwrap_or(&now));
                self.sent.retain(|sent| sent.command.session() != Some(*session));
            }
            Event::Granted { name, session, request, mode, token, .. } => {
                assert!(self.owns(name), "granted in a slot of another group");
                self.lives(*session);
                self.is_permitted(*session, name, *mode);
                self.may_be_granted(name, *session, *request, *mode, cause);
                let run = self.last_holder(name).filter(|_| *mode == Mode::Shared);
                match run {
                    Some(reader) => assert_eq!(*token, reader.token, "another token in one run"),
                    None => self.is_new(*token),
                }
                let holder =
                    Holder { session: *session, request: *request, token: *token, mode: *mode };
                self.holders.entry(name.clone()).or_default().push(holder);
            }
            Event::Queued { name, session, request, mode, .. } => {
                assert!(self.owns(name), "queued in a slot of another group");
                self.lives(*session);
                let waiter = Waiter { session: *session, request: *request, mode: *mode };
                let queue = self.queues.entry(name.clone()).or_default();
                match cause {
                    Command::Convert { .. } => queue.insert(0, waiter),
                    _ => queue.push(waiter),
                }
            }
            Event::WaitEnded { names, session, request, .. } => {
                for name in names.iter() {
                    let queue = self.queues.get_mut(name).expect("a queue");
                    let its =
                        |waiter: &Waiter| (waiter.session, waiter.request) == (*session, *request);
                    let place = queue.iter().position(its);
                    queue.remove(place.expect("a place in the queue"));
                    if queue.is_empty() {
                        self.queues.remove(name);
                    }
                }
            }
            Event::Converted { name, session, request, mode, token, .. } => {
                self.lives(*session);
                self.is_permitted(*session, name, *mode);
                let holders = self.holders.get_mut(name).expect("holders");
                let alone = holders.len() == 1;
                let its =
                    |holder: &&mut Holder| (holder.session, holder.request) == (*session, *request);
                let holder = holders.iter_mut().find(its).expect("a holder");
                let before = holder.token;
                (holder.mode, holder.token) = (*mode, *token);
                match mode {
                    Mode::Exclusive => {
                        assert!(alone, "a writer beside readers");
                        assert!(self.owns(name), "granted in a slot of another group");
                        assert!(!self.is_frozen(name), "granted what is frozen");
                        self.is_new(*token);
                    }
                    _ => assert_eq!(before, *token, "a downgrade keeps its token"),
                }
            }
            Event::Released { name, session, request, token, .. } => {
                let gone = self.remove_holder(name, |holder| {
                    (holder.session, holder.request, holder.token) == (*session, *request, *token)
                });
                assert!(gone.is_some(), "released what was not held");
            }
            Event::HoldEnded { name, session, request, token, reason, .. } => {
                let ended = self.sessions.get(session).and_then(|life| life.ended.as_ref());
                let with_session = ended.map_or(cause, |ended| &ended.by);
                match reason {
                    EndReason::Ttl | EndReason::MaxHold => {
                        assert!(matches!(cause, Command::Tick), "only a tick lets expire");
                    }
                    EndReason::SessionExpired | EndReason::Disconnected => {
                        assert!(matches!(with_session, Command::Tick), "only a tick lets expire");
                    }
                    EndReason::Killed => assert!(matches!(
                        with_session,
                        Command::Intervene(_) | Command::ChangeAccess(_) | Command::AdoptPolicy(_)
                    )),
                    EndReason::Wounded => assert!(
                        matches!(cause, Command::Acquire(_) | Command::AcquireAll(_)),
                        "only an acquire wounds"
                    ),
                    EndReason::Transferred => {
                        assert!(matches!(cause, Command::Transfer { .. } | Command::Intervene(_)))
                    }
                    _ => assert!(matches!(
                        cause,
                        Command::Intervene(_) | Command::ChangeAccess(_) | Command::AdoptPolicy(_)
                    )),
                }
                let gone = self.remove_holder(name, |holder| {
                    (holder.session, holder.request, holder.token) == (*session, *request, *token)
                });
                assert!(gone.is_some(), "ended what was not held");
            }
            Event::Thawed { prefix } => {
                let until = self.frozen.remove(prefix).expect("a freeze");
                let by_tick = matches!(cause, Command::Tick);
                assert!(!by_tick || until <= self.now, "thawed early");
            }
            Event::Intervened(intervention) => match &intervention.action {
                Action::Freeze { prefix, ttl } => {
                    self.frozen.insert(prefix.to_string(), self.now.after(*ttl));
                }
                Action::SetPermits { name, limit: Some(limit) } => {
                    self.permits.insert(name.clone(), *limit);
                }
                Action::SetPermits { name, limit: None } => {
                    self.permits.remove(name);
                }
                _ => {}
            },
            Event::HoldMovedIn { .. } => panic!("slots have come"),
            Event::OwnershipChanged { epoch, slots } => {
                assert!(*epoch > self.epoch, "the epoch went back");
                (self.epoch, self.slots) = (*epoch, slots.clone());
            }
            Event::AccessChanged { generation, .. } | Event::PolicyAdopted { generation } => {
                assert_eq!(*generation, self.table.access().generation());
            }
            Event::Refused { .. } | Event::Proclaimed { .. } | Event::Reopened { .. } => {}
        }
    }

    fn is_new(&mut self, token: FenceToken) {
        assert!(token.0 > self.highest_token, "token {token} is not new");
        self.highest_token = token.0;
    }

    fn is_frozen(&self, name: &LockName) -> bool {
        self.frozen.keys().any(|prefix| name.starts_with(prefix.as_str()))
    }

    fn remove_holder(
        &mut self,
        name: &LockName,
        is_meant: impl Fn(&Holder) -> bool,
    ) -> Option<Holder> {
        let holders = self.holders.get_mut(name)?;
        let place = holders.iter().position(is_meant)?;
        let gone = holders.remove(place);
        if holders.is_empty() {
            self.holders.remove(name);
        }
        Some(gone)
    }

    /// Nothing that conflicts holds it, and no client ahead is overtaken that would conflict.
    fn may_be_granted(
        &self,
        name: &LockName,
        session: SessionId,
        request: RequestId,
        mode: Mode,
        cause: &Command,
    ) {
        assert!(!self.is_frozen(name), "granted what is frozen");
        let holders = self.holders.get(name).map_or(&[][..], Vec::as_slice);
        let queue = self.queues.get(name).map_or(&[][..], Vec::as_slice);
        let its = |waiter: &Waiter| (waiter.session, waiter.request) == (session, request);
        let ahead = &queue[..queue.iter().position(its).unwrap_or(queue.len())];
        let handed_over = match cause {
            Command::Transfer { hold, .. } => hold.name == *name,
            Command::Intervene(intervention) => {
                matches!(&intervention.action, Action::Transfer { name: moved, .. } if moved == name)
            }
            _ => false,
        };
        let held = holders.iter().map(|holder| holder.mode);
        let awaited = ahead.iter().map(|waiter| waiter.mode).filter(|_| !handed_over);
        let in_the_way: Vec<Mode> = held.chain(awaited).collect();
        match mode {
            Mode::Exclusive => assert!(in_the_way.is_empty(), "not alone: {in_the_way:?}"),
            Mode::Shared => assert!(in_the_way.iter().all(|other| *other == Mode::Shared)),
            Mode::Permit { limit } => {
                let limit = self.permits.get(name).copied().unwrap_or(limit);
                assert!(in_the_way.iter().all(|other| matches!(other, Mode::Permit { .. })));
                assert!(in_the_way.len() < limit as usize, "too many permits out");
            }
        }
    }

    /// The table and this account of it agree.
    fn compare(&self) {
        self.table.check().expect("consistent");
        let ownership = self.table.ownership();
        assert_eq!((ownership.epoch(), ownership.slots()), (self.epoch, &self.slots));
        assert_eq!(self.table.last_token(), self.highest_token);
        let ending = self.table.ending_session_count();
        assert_eq!(self.table.session_count() + ending, self.sessions.len());
        for name in arbitrary::NAMES {
            let status = self.table.status(name, usize::MAX);
            let mut held: Vec<_> = status
                .holders
                .iter()
                .map(|holder| (holder.token, holder.mode, holder.session))
                .collect();
            let holders = self.holders.get(name).into_iter().flatten();
            let mut expected: Vec<_> = holders
                .map(|holder| (holder.token, holder.mode, arbitrary::public(holder.session)))
                .collect();
            held.sort_by_key(|(token, _, session)| (*token, *session));
            expected.sort_by_key(|(token, _, session)| (*token, *session));
            assert_eq!(held, expected);
            let waiting = status.waiters.iter().map(|waiter| (waiter.session, waiter.mode));
            let queue = self.queues.get(name).into_iter().flatten();
            assert!(
                waiting.eq(queue.map(|waiter| (arbitrary::public(waiter.session), waiter.mode)))
            );
        }
    }

    /// Left alone, everything ends, and nothing is left behind.
    fn wait_for_the_end_of_everything(&mut self) {
        while let Some(next) = self.table.next_deadline() {
            self.now = self.now.max(next);
            self.send(Command::Tick);
        }
        assert_eq!(self.table.lock_count(), 0);
        assert_eq!(self.table.freezes(), []);
        assert_eq!(self.table.waiter_count(), 0);
        assert_eq!((self.table.session_count(), self.table.ending_session_count()), (0, 0));
    }
}

/// Nothing ends early.
fn may_end(life: &Life, reason: EndReason, ended: &Ended) {
    let Ended { by: cause, at: now } = ended;
    if reason == EndReason::Closed {
        assert!(matches!(cause, Command::CloseSession { .. }));
        return;
    }
    if reason == EndReason::Killed {
        assert!(matches!(
            cause,
            Command::Intervene(_) | Command::ChangeAccess(_) | Command::AdoptPolicy(_)
        ));
        return;
    }
    assert!(matches!(cause, Command::Tick), "only a tick ends sessions");
    let by_ttl = life.touched_at.after(life.ttl) <= *now;
    let by_linger = life.detached_at.is_some_and(|at| at.after(life.linger) <= *now);
    match reason {
        EndReason::Ttl => assert!(by_ttl, "ended early"),
        _ => assert!(by_ttl || by_linger, "ended early"),
    }
}

/// The locks that a command is about.
fn names_of(command: &Command) -> impl Iterator<Item = &LockName> {
    let (one, many) = match command {
        Command::Acquire(acquire) => (Some(&acquire.name), None),
        Command::AcquireAll(acquire) => (None, Some(&acquire.members)),
        Command::Convert { hold, .. }
        | Command::Transfer { hold, .. }
        | Command::Release { hold, .. }
        | Command::Renew { hold, .. }
        | Command::Proclaim { hold, .. } => (Some(&hold.name), None),
        Command::Intervene(intervention) => match &intervention.action {
            Action::Break { name, .. }
            | Action::Reopen { name }
            | Action::Transfer { name, .. }
            | Action::SetPermits { name, .. } => (Some(name), None),
            _ => (None, None),
        },
        _ => (None, None),
    };
    let many = many.into_iter().flat_map(|members| members.iter().map(|member| &member.name));
    one.into_iter().chain(many)
}

/// Does the table know this request from now on?
fn is_settled(command: &Command, outcome: &Outcome) -> bool {
    let once = matches!(
        command,
        Command::Acquire(_)
            | Command::AcquireAll(_)
            | Command::Convert { .. }
            | Command::Cancel { .. }
            | Command::Release { .. }
            | Command::Renew { .. }
            | Command::Proclaim { .. }
            | Command::Transfer { .. }
    );
    let unknown = matches!(
        outcome,
        Outcome::Rejected(
            Rejection::UnknownSession
                | Rejection::TooManyUnacknowledged
                | Rejection::AnswerDiscarded
                | Rejection::RequestIdReused
                | Rejection::InvalidRequestId
                | Rejection::InvalidTtl
                | Rejection::InvalidMode
                | Rejection::DuplicateName
                | Rejection::PermissionDenied
                | Rejection::QuotaExceeded { .. }
                | Rejection::WrongGroup { .. }
                | Rejection::SeveralGroups { .. }
        )
    );
    once && !unknown
}

/// What the sender is told in the end: one that was queued may have had its turn by the time all was done.
fn answered<'a>(command: &Command, outcome: &'a Outcome, events: &'a [Event]) -> &'a Outcome {
    let Some(call) = command.wait() else { return outcome };
    let ended = events.iter().find_map(|event| match event {
        Event::WaitEnded { session, request, outcome, .. }
            if (*session, *request) == (call.session, call.request) =>
        {
            Some(outcome)
        }
        _ => None,
    });
    ended.unwrap_or(outcome)
}

fn is_same_answer(first: &Outcome, second: &Outcome) -> bool {
    use Outcome::{CancelNothing, CancelTooLate, Granted, GrantedAll, Queued, Rejected, Renewed};
    match (first, second) {
        (_, Rejected(Rejection::AnswerDiscarded)) => true,
        // A hold that was converted since has a later token.
        (Granted(first), Granted(second)) => first.token <= second.token,
        (Granted(_) | GrantedAll(_), Rejected(Rejection::GrantEnded)) => true,
        // Some may have been given back.
        (GrantedAll(first), GrantedAll(second)) => second.iter().all(|later| {
            first.iter().any(|grant| grant.name == later.name && grant.token <= later.token)
        }),
        // What became of the wait is told by its events.
        (Queued { .. }, _) => true,
        (CancelTooLate(first), CancelTooLate(second)) => second.len() <= first.len(),
        (CancelTooLate(_), CancelNothing) => true,
        (Renewed { deadline: first, .. }, Renewed { deadline: second, .. }) => first == second,
        (first, second) => first == second,
    }
}

fn acked_through(command: &Command) -> RequestId {
    match command {
        Command::Acquire(acquire) => acquire.call.acked_through,
        Command::AcquireAll(acquire) => acquire.call.acked_through,
        Command::Cancel { call, .. }
        | Command::Convert { call, .. }
        | Command::Release { call, .. }
        | Command::Renew { call, .. }
        | Command::Proclaim { call, .. }
        | Command::Transfer { call, .. } => call.acked_through,
        other => panic!("no request: {other:?}"),
    }
}
