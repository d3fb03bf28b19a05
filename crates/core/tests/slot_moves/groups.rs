//! Three groups, each with a table, a log and a time of its own, and slots that move between them: on a schedule that a
//! seed decides. Clients send to the right group and to wrong ones; steps of moves come late, twice and by old knowledge.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_core::command::{
    Acquire, AcquireAll, Call, HoldRef, Member, Mode, OpenSession, Owner, Policy, Terms,
};
use holdfast_core::{
    ActorId, Command, EndReason, Event, FenceToken, GroupNumber, Limits, LockName, LockTable,
    LogIndex, LogicalTime, MapEpoch, MoveId, MoveStep, NextStep, Outcome, PublicSessionId,
    Rejection, RequestId, RulesVersion, SessionId, Slot, SlotSet, Span, next_step,
};

use crate::clients::{Care, Clients, Granted};
use crate::judge::{Judge, Waiting};

/// Some names share a slot.
pub(crate) const NAMES: [&str; 7] = ["a", "b", "{t}/1", "{t}/2", "{t}/3", "wallet", "keys"];
pub(crate) const GROUPS: usize = 3;
const SESSIONS: u128 = 4;
/// It asks for what the others may have lost.
const NEWCOMER: SessionId = SessionId(SESSIONS + 1);
pub(crate) const TTL_MS: u64 = 20_000;
/// The time of each group at the beginning.
const STARTS_MS: [u64; GROUPS] = [0, 1_000_000, 2_000_000];
const HEARTBEAT_MS: u64 = 3_000;
const ROUNDS_MAX: usize = 2_000;

/// `SplitMix64`.
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let value = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> Option<T> {
        let at = self.below(from.len().max(1) as u64) as usize;
        from.get(at).cloned()
    }
}

struct Group {
    table: LockTable,
    now: u64,
    index: u64,
    /// Some states of the past, as a slow node may know them.
    past: Vec<LockTable>,
    log: Vec<(LogIndex, LogicalTime, Command)>,
}

pub(crate) struct Groups {
    limits: Limits,
    groups: Vec<Group>,
    judge: Judge,
    clients: Clients,
    rng: Rng,
    epoch: u64,
    requests: u64,
    steps: Vec<(usize, MoveStep)>,
    commands: Vec<(usize, Command)>,
    to_abort: BTreeSet<MoveId>,
    /// Each group has its slots.
    is_founded: bool,
    /// What happened, so that a test can tell that it tests something.
    pub(crate) seen: BTreeMap<&'static str, usize>,
}

pub(crate) fn name(text: &str) -> LockName {
    LockName::new(text).unwrap()
}

/// One history, from its first command until nothing is held any more.
pub(crate) fn play(seed: u64) -> BTreeMap<&'static str, usize> {
    play_with(seed, Care::Careful)
}

/// As [`play`], with clients of this kind.
pub(crate) fn play_with(seed: u64, care: Care) -> BTreeMap<&'static str, usize> {
    let mut groups = Groups::new(seed, care);
    let rounds = 40 + groups.rng.below(260);
    for _ in 0..rounds {
        groups.act();
    }
    groups.finish_moves();
    groups.expect_one_home();
    groups.ask_again();
    groups.go_on_without_guests();
    groups.end_everything();
    groups.replay();
    groups.seen
}

impl Groups {
    fn new(seed: u64, care: Care) -> Groups {
        let mut rng = Rng(seed);
        let mut limits = Limits { ..Limits::default() };
        if rng.percent(70) {
            limits.move_steps_max = 1 + rng.below(40) as usize;
        }
        if rng.percent(50) {
            limits.move_part_bytes = 1 + rng.below(600) as usize;
        }
        if rng.percent(20) {
            limits.ended_parts_per_entry_max = 1;
        }
        let groups = (0..GROUPS).map(|at| Group {
            table: LockTable::with_rules(limits.clone(), RulesVersion::NEWEST),
            now: STARTS_MS[at],
            index: 0,
            past: Vec::new(),
            log: Vec::new(),
        });
        let mut groups = Groups {
            limits: limits.clone(),
            groups: groups.collect(),
            judge: Judge::default(),
            clients: Clients::new(care, STARTS_MS),
            rng,
            epoch: 1,
            requests: 0,
            steps: Vec::new(),
            commands: Vec::new(),
            to_abort: BTreeSet::new(),
            is_founded: false,
            seen: BTreeMap::new(),
        };
        for at in 0..GROUPS {
            let own = |slot: &Slot| usize::from(slot.number()) % GROUPS == at;
            let slots = SlotSet::ALL.iter().filter(own).collect();
            groups.apply(at, Command::SetOwnership { epoch: MapEpoch(1), slots });
        }
        groups.is_founded = true;
        for at in 0..GROUPS {
            (1..=SESSIONS).for_each(|session| groups.open(at, SessionId(session)));
        }
        groups
    }

    fn open(&mut self, at: usize, session: SessionId) {
        let ttl = Span::from_ms(TTL_MS);
        let open = OpenSession {
            session,
            public: PublicSessionId(session.0 as u64),
            stream: None,
            ttl,
            linger: ttl,
            owner: Owner::default(),
            identity: None,
        };
        self.apply(at, Command::OpenSession(open));
    }

    fn apply(&mut self, at: usize, command: Command) -> Outcome {
        let group = &mut self.groups[at];
        if self.rng.percent(15) {
            group.past.push(group.table.clone());
        }
        group.index += 1;
        let (index, now) = (LogIndex(group.index), LogicalTime::from_ms(group.now));
        group.log.push((index, now, command.clone()));
        let mut events = Vec::new();
        let before = group.table.ownership().clone();
        let moving = group.table.moves().outgoing().map(|outgoing| outgoing.id());
        let outcome = group.table.apply(index, now, command.clone(), &mut events);
        group.table.check().expect("the table contradicts itself");
        let after = group.table.ownership();
        let rises = after.epoch() > before.epoch();
        assert!(rises || *after == before, "the slots change without a higher epoch");
        let moving = moving.or(group.table.moves().outgoing().map(|outgoing| outgoing.id()));
        let now = group.now;
        self.clients.pass(at, now);
        self.give_up_what_is_closed(&events);
        self.judge.follow(at, now, moving, &command, &events);
        events.iter().for_each(|event| self.tell_clients(at, &command, event));
        if self.is_founded {
            self.expect_one_owner();
        }
        outcome
    }

    /// Answers and notices get lost. What a client does itself, it knows.
    fn tell_clients(&mut self, at: usize, cause: &Command, event: &Event) {
        match event {
            Event::Granted { name, session, request, mode, token, .. } => {
                let own_ttl_ms = self.judge.own_ttl_ms(name, *session, *request);
                let (session, request, mode, token) = (*session, *request, *mode, *token);
                let granted = Granted { name, request, at, session, mode, token, own_ttl_ms };
                self.clients.expect_free(granted);
                if self.rng.percent(80) {
                    let asked = match cause {
                        Command::Acquire(Acquire { call, .. })
                        | Command::AcquireAll(AcquireAll { call, .. }) => Some(call),
                        _ => None,
                    };
                    let asked = asked.map(|call| (call.session, call.request));
                    self.clients.believe(granted, asked == Some((session, request)));
                }
            }
            Event::Released { name, request, .. } => self.clients.gives_up(name, *request),
            Event::HoldEnded { name, session, request, reason: EndReason::Moved, .. } => {
                let key = (name.clone(), *request, at, *session);
                if self.rng.percent(30) {
                    self.clients.is_told_of_departure(&key);
                }
            }
            Event::SessionEnding { session, reason: EndReason::Closed, .. }
            | Event::SessionEnded { session, reason: EndReason::Closed, .. } => {
                self.clients.closes(at, *session);
            }
            _ => {}
        }
    }

    /// A client that closes a session gives up what that has, and what is on its way to it. The entry may drop the latter
    /// at once, so this comes before the judge follows the entry.
    fn give_up_what_is_closed(&mut self, events: &[Event]) {
        let closed: Vec<SessionId> = events
            .iter()
            .filter_map(|event| match event {
                Event::SessionEnding { session, reason: EndReason::Closed, .. }
                | Event::SessionEnded { session, reason: EndReason::Closed, .. } => Some(*session),
                _ => None,
            })
            .collect();
        if closed.is_empty() {
            return;
        }
        for held in self.judge.holds().iter().filter(|held| closed.contains(&held.session)) {
            self.clients.gives_up(&held.name, held.request);
        }
    }

    /// No slot has two.
    fn expect_one_owner(&self) {
        for (at, group) in self.groups.iter().enumerate() {
            for other in &self.groups[at + 1..] {
                let (one, two) = (group.table.ownership(), other.table.ownership());
                assert!(!one.slots().overlaps(two.slots()), "a slot has two owners");
                assert!(
                    one.epoch() != two.epoch() || one.epoch() == MapEpoch(1),
                    "two groups changed their slots by one epoch"
                );
            }
        }
    }

    fn note(&mut self, what: &'static str) {
        *self.seen.entry(what).or_default() += 1;
    }

    fn act(&mut self) {
        match self.rng.below(100) {
            0..50 => self.ask(),
            50..58 => self.pass_time(),
            58..64 => self.begin_move(),
            64..90 => self.drive(true),
            90..94 => self.repeat_step(),
            94..96 => {
                let open = self.groups.iter().filter_map(|it| it.table.moves().outgoing());
                self.to_abort.extend(open.map(|outgoing| outgoing.id()));
            }
            _ => self.crash(),
        }
    }

    fn pass_time(&mut self) {
        let at = self.rng.below(GROUPS as u64) as usize;
        self.groups[at].now += self.rng.below(4_000);
        self.apply(at, Command::Tick);
    }

    fn begin_move(&mut self) {
        let source = self.rng.below(GROUPS as u64) as usize;
        let target = self.rng.below(GROUPS as u64);
        let owned = self.groups[source].table.ownership().slots().clone();
        let mut slots = SlotSet::empty();
        for text in NAMES {
            if owned.contains(Slot::of(text)) && self.rng.percent(60) {
                slots.extend([Slot::of(text)]);
            }
        }
        self.epoch += 1;
        let id = MoveId { source: group_number(source), epoch: MapEpoch(self.epoch) };
        let target = GroupNumber(target + 1);
        let step = MoveStep::Seal { id, target, slots: slots.clone() };
        let was_busy = self.groups[source].table.moves().outgoing().is_some();
        let outcome = self.step(source, step);
        if slots.is_empty() || id.source == target || was_busy {
            assert_ne!(outcome, Outcome::Done, "a move that makes no sense has begun");
        } else if outcome == Outcome::Done {
            self.note("sealed");
        }
    }

    fn step(&mut self, at: usize, step: MoveStep) -> Outcome {
        self.steps.push((at, step.clone()));
        self.apply(at, Command::from(step))
    }

    /// A part that looks after the moves does something about one of them, or believes that it is still to be done.
    fn drive(&mut self, may_be_old: bool) {
        let sources = (0..GROUPS).filter(|at| self.groups[*at].table.moves().outgoing().is_some());
        let sources: Vec<usize> = sources.collect();
        let Some(source) = self.rng.pick(&sources) else { return };
        let view = |rng: &mut Rng, group: &Group| match rng.pick(&group.past) {
            Some(old) if may_be_old && rng.percent(30) => old,
            _ => group.table.clone(),
        };
        let sees = view(&mut self.rng, &self.groups[source]);
        let Some(outgoing) = sees.moves().outgoing() else { return };
        let (id, target) = (outgoing.id(), outgoing.target().0 as usize - 1);
        let sees_target = view(&mut self.rng, &self.groups[target]);
        self.epoch += 1;
        let aborts = self.to_abort.contains(&id);
        match next_step(&sees, &sees_target, MapEpoch(self.epoch), aborts) {
            NextStep::ToSource(step) => {
                let is_return = matches!(step, MoveStep::Return { .. });
                if self.step(source, step) == Outcome::Done {
                    self.note(if is_return { "returned" } else { "forgotten" });
                }
            }
            NextStep::ToTarget(step) => {
                let what = match step {
                    MoveStep::Adopt { part: 0, .. } => "adopted",
                    MoveStep::Adopt { .. } => "adopted a later part",
                    MoveStep::Commit { .. } => "committed",
                    _ => "aborted",
                };
                if self.step(target, step) == Outcome::Done {
                    self.note(what);
                }
            }
            NextStep::Wait => drop(self.apply(source, Command::Tick)),
            NextStep::Nothing => {}
        }
    }

    /// A late copy of something.
    fn repeat_step(&mut self) {
        if let Some((at, step)) = self.rng.pick(&self.steps) {
            self.apply(at, Command::from(step));
        }
    }

    /// All replicas read a snapshot.
    fn crash(&mut self) {
        let at = self.rng.below(GROUPS as u64) as usize;
        let bytes = self.groups[at].table.encode();
        let read = LockTable::decode(&bytes, self.limits.clone()).expect("a snapshot is read");
        assert_eq!(read.digest(), self.groups[at].table.digest());
        self.groups[at].table = read;
    }

    fn owner_of(&self, text: &str) -> Option<usize> {
        let owns = |group: &Group| group.table.ownership().slots().contains(Slot::of(text));
        self.groups.iter().position(owns)
    }

    fn call(&mut self, session: SessionId) -> Call {
        self.requests += 1;
        Call { session, request: RequestId(self.requests), acked_through: RequestId(0) }
    }

    /// A client does something.
    fn ask(&mut self) {
        let text = self.rng.pick(&NAMES).unwrap();
        let right = self.owner_of(text).filter(|_| self.rng.percent(85));
        let at = right.unwrap_or(self.rng.below(GROUPS as u64) as usize);
        let guests = self.judge.guests(at);
        let guest = self.rng.pick(&guests).filter(|_| self.rng.percent(20));
        let session = guest.unwrap_or(SessionId(1 + u128::from(self.rng.below(4))));
        let mut call = self.call(session);
        if self.rng.percent(10) {
            // All that is answered. Waits and holds are known by themselves.
            call.acked_through = RequestId(call.request.0 - 1);
        }
        let terms = Terms {
            wait: Span::from_ms([0, 3_000, 60_000][self.rng.below(3) as usize]),
            policy: Policy::Wait,
            reentrant: self.rng.percent(10),
            ttl: self.rng.percent(20).then(|| Span::from_ms(2_000 + self.rng.below(5_000))),
            lock_delay: self.rng.percent(10).then(|| Span::from_ms(500)),
            ..Terms::default()
        };
        let mode = match self.rng.below(10) {
            0..7 => Mode::Exclusive,
            _ => Mode::Shared,
        };
        let actor = ActorId(self.rng.below(2));
        match self.rng.below(100) {
            0..40 => {
                let acquire = Acquire { call, actor, name: name(text), mode, terms };
                self.client(at, Command::Acquire(acquire));
            }
            40..52 => {
                let mut texts = BTreeSet::from([text]);
                texts.extend(self.rng.pick(&NAMES));
                if self.rng.percent(70) {
                    texts = BTreeSet::from(["{t}/1", "{t}/2", "{t}/3"]);
                }
                let member = |text: &&str| Member { name: name(text), mode: Mode::Exclusive };
                let members = texts.iter().map(member).collect();
                let acquire = AcquireAll { call, actor, members, terms };
                self.client(at, Command::AcquireAll(acquire));
            }
            52..72 => self.use_hold(),
            72..77 => self.cancel(),
            77..85 => {
                let touch = Command::Touch { session, acked_through: call.acked_through };
                self.client(at, touch);
            }
            85..87 => drop(self.client(at, Command::CloseSession { session })),
            _ => {
                // A retry.
                if let Some((at, command)) = self.rng.pick(&self.commands) {
                    self.apply(at, command);
                }
            }
        }
    }

    fn client(&mut self, at: usize, command: Command) -> Outcome {
        self.commands.push((at, command.clone()));
        let outcome = self.apply(at, command.clone());
        match (&command, &outcome) {
            (Command::Touch { session, .. }, Outcome::Touched { departures, .. }) => {
                let to_ask = self.clients.heard(at, *session, *departures);
                if self.rng.percent(70) {
                    to_ask.into_iter().for_each(|(name, request, ..)| {
                        self.ask_about(at, *session, name, request);
                    });
                }
            }
            (Command::Renew { call, hold, .. }, Outcome::Renewed { .. }) => {
                let (session, request) = (call.session, hold.acquire);
                let key = (hold.name.clone(), request, at, session);
                if self.clients.belief(&key).is_some() {
                    self.clients.renewed(&key);
                } else if let Some(held) = self.judge.held(&hold.name, session, request) {
                    let (name, mode, token) = (&hold.name, held.mode, held.token);
                    let own_ttl_ms = held.own_ttl_ms;
                    let granted = Granted { name, request, at, session, mode, token, own_ttl_ms };
                    self.clients.confirm(granted);
                }
            }
            _ => {}
        }
        outcome
    }

    /// Is it still there?
    fn ask_about(&mut self, at: usize, session: SessionId, name: LockName, request: RequestId) {
        let key = (name.clone(), request, at, session);
        let Some(token) = self.clients.belief(&key).map(|belief| belief.token) else { return };
        let call = self.call(session);
        let hold = HoldRef { name, token, acquire: request };
        if let Outcome::Renewed { .. } = self.client(at, Command::Renew { call, hold, ttl: None }) {
            self.note("asked about a hold that had not left");
        } else {
            self.note("learnt from a heartbeat that a hold had left");
        }
    }

    /// Renews or releases what is held, where it is.
    fn use_hold(&mut self) {
        let holds = self.judge.holds();
        let Some(hold) = self.rng.pick(&holds) else { return };
        let meant = HoldRef { name: hold.name.clone(), token: hold.token, acquire: hold.request };
        let Some(at) = hold.group else {
            // It is on its way, and the source says so, unless the session has ended there.
            let Some((at, session)) = hold.left else { return };
            let call = self.call(session);
            let outcome = self.client(at, Command::Release { call, hold: meant });
            let refused = matches!(
                outcome,
                Outcome::Rejected(Rejection::WrongGroup { .. } | Rejection::UnknownSession)
                    | Outcome::Release(holdfast_core::ReleaseAnswer::AlreadyReleased)
            );
            assert!(refused, "{outcome:?} about a hold that has left");
            return self.note("asked about a hold on its way");
        };
        let call = self.call(hold.session);
        let is_ending = self.groups[at].table.ending_session_count() > 0;
        let outcome = if self.rng.percent(60) {
            self.client(at, Command::Release { call, hold: meant })
        } else {
            self.client(at, Command::Renew { call, hold: meant, ttl: None })
        };
        let is_here = matches!(outcome, Outcome::Release(_) | Outcome::Renewed { .. });
        let is_over = outcome == Outcome::Rejected(Rejection::UnknownSession)
            || outcome == Outcome::Rejected(Rejection::NotHeld);
        assert!(is_here || (is_over && is_ending), "{outcome:?} about a hold that is here");
        if self.judge.is_guest(hold.session) {
            self.note("used a hold that had moved");
        }
    }

    fn cancel(&mut self) {
        let waits = self.judge.waits();
        let Some(Waiting { group, session, request, left, .. }) = self.rng.pick(&waits) else {
            return;
        };
        match (group, left) {
            (Some(at), _) => {
                let call = self.call(session);
                let is_ending = self.groups[at].table.ending_session_count() > 0;
                let outcome = self.client(at, Command::Cancel { call, target: request });
                assert!(outcome == Outcome::CancelDone || is_ending, "{outcome:?}");
            }
            (None, Some((at, session))) => {
                let call = self.call(session);
                let outcome = self.client(at, Command::Cancel { call, target: request });
                let known = matches!(
                    outcome,
                    Outcome::Rejected(Rejection::WrongGroup { .. } | Rejection::UnknownSession)
                );
                assert!(known, "{outcome:?} to the cancellation of a wait that has left");
                self.note("cancelled a wait on its way");
            }
            _ => {}
        }
    }

    fn finish_moves(&mut self) {
        for _ in 0..ROUNDS_MAX {
            let is_open = |group: &Group| {
                group.table.moves().outgoing().is_some() || group.table.moves().is_installing()
            };
            if !self.groups.iter().any(is_open) {
                return;
            }
            self.drive(false);
            for at in 0..GROUPS {
                if self.groups[at]
                    .table
                    .next_deadline()
                    .is_some_and(|due| due.as_ms() <= self.groups[at].now)
                {
                    self.apply(at, Command::Tick);
                }
            }
        }
        panic!("the moves do not end");
    }

    /// Each slot has an owner, and nothing is on its way any more.
    fn expect_one_home(&mut self) {
        let owned: usize = self.groups.iter().map(|it| it.table.ownership().slots().len()).sum();
        assert_eq!(owned, usize::from(holdfast_core::SLOTS), "a slot has no owner");
        self.judge.expect_nothing_on_its_way();
    }

    /// What has moved is known under the request that it always had, and nothing else than before is the answer.
    fn ask_again(&mut self) {
        for hold in self.judge.holds() {
            let (Some(at), true) = (hold.group, self.judge.is_guest(hold.session)) else {
                continue;
            };
            // The end of a large session goes on with each entry, so an earlier retry may have ended the hold.
            let is_held = self.judge.held(&hold.name, hold.session, hold.request).is_some();
            if hold.is_of_several || hold.is_converted || !is_held {
                continue;
            }
            let call =
                Call { session: hold.session, request: hold.request, acked_through: RequestId(0) };
            let acquire = Acquire {
                call,
                actor: hold.actor,
                name: hold.name.clone(),
                mode: hold.mode,
                terms: Terms::default(),
            };
            let is_ending = self.groups[at].table.ending_session_count() > 0;
            match self.apply(at, Command::Acquire(acquire)) {
                Outcome::Granted(grant) => assert_eq!(grant.token, hold.token),
                other => assert!(is_ending, "{other:?} to the retry of {hold:?}"),
            }
            self.note("asked again for a hold that had moved");
        }
    }

    /// Clients send heartbeats to the groups in which they were granted something, and another one asks for each lock.
    fn go_on_without_guests(&mut self) {
        (0..GROUPS).for_each(|at| self.open(at, NEWCOMER));
        for _ in 0..TTL_MS * 3 / 2 / HEARTBEAT_MS {
            for at in 0..GROUPS {
                self.groups[at].now += HEARTBEAT_MS;
                self.apply(at, Command::Tick);
                for session in (1..=SESSIONS).map(SessionId).chain([NEWCOMER]) {
                    let acked_through = RequestId(0);
                    self.client(at, Command::Touch { session, acked_through });
                }
            }
            for text in NAMES {
                let at = self.owner_of(text).expect("each slot has an owner");
                let (call, actor, mode) = (self.call(NEWCOMER), ActorId(0), Mode::Exclusive);
                let (request, name) = (call.request, name(text));
                let terms = Terms::default();
                let acquire = Acquire { call, actor, name: name.clone(), mode, terms };
                if let Outcome::Granted(grant) = self.client(at, Command::Acquire(acquire)) {
                    let hold = HoldRef { name, token: grant.token, acquire: request };
                    let call = self.call(NEWCOMER);
                    self.client(at, Command::Release { call, hold });
                }
            }
        }
    }

    /// Nobody renews anything, and so nothing stays.
    fn end_everything(&mut self) {
        for at in 0..GROUPS {
            for _ in 0..ROUNDS_MAX {
                self.groups[at].now += 1_000;
                self.apply(at, Command::Tick);
                let table = &self.groups[at].table;
                if table.session_count() == 0 && table.lock_count() == 0 {
                    break;
                }
            }
            assert_eq!(self.groups[at].table.lock_count(), 0, "locks are left");
        }
        self.judge.expect_nothing();
    }

    /// Another replica, which reads the same log, has the same table.
    fn replay(&self) {
        for group in &self.groups {
            let mut table = LockTable::with_rules(self.limits.clone(), RulesVersion::NEWEST);
            for (index, at, command) in &group.log {
                table.apply(*index, *at, command.clone(), &mut Vec::new());
            }
            assert_eq!(table.digest(), group.table.digest(), "two replicas differ");
        }
    }
}

fn group_number(at: usize) -> GroupNumber {
    GroupNumber(at as u64 + 1)
}

/// The first token of all.
pub(crate) const NO_TOKEN: FenceToken = FenceToken(0);
