//! What promotions may cost in one log entry, and what goes on in the entries after it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "it is a test")]

use holdfast_core::command::{
    Acquire, AcquireAll, Action, Call, HoldRef, Intervention, Member, Mode, OpenSession, Owner,
    Policy, Terms,
};
use holdfast_core::{
    ActorId, Command, Event, FenceToken, Limits, LockName, LockTable, LogIndex, LogicalTime,
    Outcome, PublicSessionId, ReleaseAnswer, RequestId, RulesVersion, SessionId, Span,
};

/// So many places of acquire-alls one entry looks at, and each acquire-all here has two.
const STEPS: usize = 100;
const LOOKED_AT_PER_ENTRY: usize = STEPS / 2;

const ATTACKER: u128 = 1;
const VICTIM: u128 = 2;
const OTHER: u128 = 3;

struct World {
    table: LockTable,
    index: u64,
    requests: u64,
    granted: Vec<(SessionId, RequestId)>,
}

impl World {
    fn new(rules: RulesVersion) -> World {
        let table = LockTable::with_rules(limits(), rules);
        let mut world = World { table, index: 1, requests: 0, granted: Vec::new() };
        for session in [ATTACKER, VICTIM, OTHER] {
            world.apply(Command::OpenSession(OpenSession {
                session: SessionId(session),
                public: PublicSessionId(session as u64),
                stream: None,
                ttl: Span::from_secs(600),
                linger: Span::from_secs(600),
                owner: Owner::default(),
                identity: None,
            }));
        }
        world
    }

    fn apply(&mut self, command: Command) -> Outcome {
        let mut events = Vec::new();
        let at = LogicalTime::from_ms(1);
        let outcome = self.table.apply(LogIndex(self.index), at, command, &mut events);
        for event in events {
            if let Event::Granted { session, request, .. } = event {
                self.granted.push((session, request));
            }
        }
        self.table.check().unwrap();
        outcome
    }

    /// The entry after this one, which is a tick. Returns how many were granted something.
    fn tick(&mut self) -> usize {
        self.index += 1;
        let before = self.granted.len();
        self.apply(Command::Tick);
        self.granted.len() - before
    }

    fn ticks_until_nothing_is_deferred(&mut self) -> usize {
        let mut ticks = 0;
        while self.table.deferred_promotions() > 0 {
            assert_eq!(self.table.next_deadline(), Some(self.table.now()), "a tick is due");
            self.tick();
            ticks += 1;
        }
        ticks
    }

    fn call(&mut self, session: u128) -> Call {
        self.requests += 1;
        let (session, request) = (SessionId(session), RequestId(self.requests));
        Call { session, request, acked_through: RequestId(0) }
    }

    fn acquire_with(&mut self, session: u128, name: &str, mode: Mode, terms: Terms) -> Outcome {
        let call = self.call(session);
        let (actor, name) = (ActorId(self.requests), lock(name));
        self.apply(Command::Acquire(Acquire { call, actor, name, mode, terms }))
    }

    fn take(&mut self, session: u128, name: &str, mode: Mode) -> HoldRef {
        match self.acquire_with(session, name, mode, Terms::default()) {
            Outcome::Granted(grant) => {
                HoldRef { name: grant.name, token: grant.token, acquire: grant.acquire }
            }
            other => panic!("{other:?}"),
        }
    }

    fn wait(&mut self, session: u128, name: &str, mode: Mode) -> RequestId {
        let queued = self.acquire_with(session, name, mode, waiting(Policy::Wait));
        assert!(matches!(queued, Outcome::Queued { .. }), "{queued:?}");
        RequestId(self.requests)
    }

    fn wait_for_all(&mut self, session: u128, names: [&str; 2]) -> RequestId {
        let call = self.call(session);
        let actor = ActorId(self.requests);
        let members = names.map(|name| Member { name: lock(name), mode: Mode::Shared });
        let terms = waiting(Policy::Wait);
        let members = Box::new(members);
        let queued = self.apply(Command::AcquireAll(AcquireAll { call, actor, members, terms }));
        assert!(matches!(queued, Outcome::Queued { .. }), "{queued:?}");
        call.request
    }

    fn release(&mut self, session: u128, hold: HoldRef) -> Outcome {
        let call = self.call(session);
        self.apply(Command::Release { call, hold })
    }

    fn intervene(&mut self, action: Action) -> Outcome {
        let intervention =
            Intervention { by: "o".into(), reason: "r".into(), action, identity: None };
        self.apply(Command::Intervene(intervention))
    }

    /// `b` is taken, and so many readers want both `a` and `b`. The attacker reads `a`.
    fn readers_of_two(rules: RulesVersion, readers: usize) -> (World, HoldRef) {
        let mut world = World::new(rules);
        world.take(ATTACKER, "b", Mode::Exclusive);
        let a = world.take(ATTACKER, "a", Mode::Exclusive);
        for _ in 0..readers {
            world.wait_for_all(ATTACKER, ["a", "b"]);
        }
        (world, a)
    }

    fn is_granted(&self, session: u128, request: RequestId) -> bool {
        self.granted.contains(&(SessionId(session), request))
    }
}

fn lock(name: &str) -> LockName {
    LockName::new(name).unwrap()
}

fn waiting(policy: Policy) -> Terms {
    Terms { wait: Span::from_secs(60), policy, ..Terms::default() }
}

#[test]
fn a_release_before_many_acquire_alls_looks_at_a_bounded_number_of_them_in_each_entry() {
    let readers = 10 * LOOKED_AT_PER_ENTRY;
    let (mut world, a) = World::readers_of_two(RulesVersion::NEWEST, readers);
    let reader = world.wait(VICTIM, "a", Mode::Shared);
    world.index += 1;
    world.release(ATTACKER, a);
    assert!(!world.is_granted(VICTIM, reader), "it stands behind all of them");
    assert_eq!(world.ticks_until_nothing_is_deferred(), 9);
    assert!(world.is_granted(VICTIM, reader));
}

#[test]
fn under_rules_2_one_entry_looks_at_all_of_them() {
    let (mut world, a) = World::readers_of_two(RulesVersion::TWO, 10 * LOOKED_AT_PER_ENTRY);
    let reader = world.wait(VICTIM, "a", Mode::Shared);
    world.release(ATTACKER, a);
    assert!(world.is_granted(VICTIM, reader));
    assert_eq!(world.table.deferred_promotions(), 0);
}

/// The attacker frees the lock again in each entry. What others wait for goes on all the same.
#[test]
fn promotions_that_are_deferred_go_on_in_the_order_in_which_they_came() {
    let readers = 5 * LOOKED_AT_PER_ENTRY;
    let (mut world, a) = World::readers_of_two(RulesVersion::NEWEST, readers);
    let reader = world.wait(VICTIM, "a", Mode::Shared);
    let z = world.take(OTHER, "z", Mode::Exclusive);
    let y = world.take(OTHER, "y", Mode::Exclusive);
    let both = world.wait_for_all(VICTIM, ["y", "z"]);
    world.index += 1;
    world.release(ATTACKER, a);
    world.release(OTHER, y);
    world.release(OTHER, z);
    assert!(!world.is_granted(VICTIM, both), "it has to wait for its turn");
    for _ in 0..7 {
        // All readers ahead share, so it may pass them; its release lets the queue be gone through again.
        world.index += 1;
        let again = world.take(ATTACKER, "a", Mode::Shared);
        world.release(ATTACKER, again);
    }
    assert!(world.is_granted(VICTIM, both) && world.is_granted(VICTIM, reader));
    assert!(world.table.deferred_promotions() <= 2, "no lock is in line twice");
}

/// A walk that takes several entries does not keep a short one waiting that long.
#[test]
fn a_long_walk_lets_the_promotions_behind_it_go_on_after_each_entry() {
    let (mut world, a) = World::readers_of_two(RulesVersion::NEWEST, 6 * LOOKED_AT_PER_ENTRY);
    let reader = world.wait(VICTIM, "a", Mode::Shared);
    let z = world.take(OTHER, "z", Mode::Exclusive);
    let both = world.wait_for_all(VICTIM, ["y", "z"]);
    world.index += 1;
    world.release(ATTACKER, a);
    world.release(OTHER, z);
    assert!(!world.is_granted(VICTIM, both), "the first walk has used up this entry");
    world.tick();
    world.tick();
    assert!(world.is_granted(VICTIM, both));
    assert!(!world.is_granted(VICTIM, reader), "the long walk is still under way");
    let ticks = world.ticks_until_nothing_is_deferred();
    assert!(world.is_granted(VICTIM, reader) && ticks <= 6, "{ticks}");
}

/// Each round leaves as many names as it has waits. None of them is held or awaited afterwards.
#[test]
fn no_more_promotions_are_deferred_than_there_are_locks() {
    let (mut world, a) = World::readers_of_two(RulesVersion::NEWEST, 2 * LOOKED_AT_PER_ENTRY);
    world.index += 1;
    world.release(ATTACKER, a);
    for round in 0..5 {
        let names: Vec<String> = (0..10).map(|name| format!("{round}/{name}")).collect();
        let held: Vec<HoldRef> =
            names.iter().map(|name| world.take(OTHER, name, Mode::Exclusive)).collect();
        let waits: Vec<RequestId> =
            names.iter().map(|name| world.wait_for_all(VICTIM, [name, "b"])).collect();
        for hold in held {
            world.release(OTHER, hold);
        }
        for target in waits {
            let call = world.call(VICTIM);
            world.apply(Command::Cancel { call, target });
        }
        let (deferred, locks) = (world.table.deferred_promotions(), world.table.lock_count());
        assert!(deferred <= locks, "{deferred} promotions for {locks} locks");
    }
}

#[test]
fn a_waiter_of_one_lock_alone_never_waits_for_deferred_promotions() {
    let (mut world, a) = World::readers_of_two(RulesVersion::NEWEST, 10 * LOOKED_AT_PER_ENTRY);
    let own = world.take(OTHER, "own", Mode::Exclusive);
    let next = world.wait(VICTIM, "own", Mode::Exclusive);
    world.index += 1;
    world.release(ATTACKER, a);
    assert!(world.table.deferred_promotions() > 0);
    world.release(OTHER, own);
    assert!(world.is_granted(VICTIM, next));
}

#[test]
fn deferred_promotions_are_in_the_snapshot_and_go_on_alike() {
    let (mut world, a) = World::readers_of_two(RulesVersion::NEWEST, 3 * LOOKED_AT_PER_ENTRY);
    for number in 0..STEPS {
        world.take(OTHER, &format!("cold/{number}"), Mode::Exclusive);
    }
    world.intervene(Action::Freeze { prefix: "cold/".into(), ttl: Span::from_secs(60) });
    world.index += 1;
    world.release(ATTACKER, a);
    world.intervene(Action::Thaw { prefix: "cold/".into() });
    while world.table.deferred_promotions() > 0 {
        let bytes = world.table.encode();
        let mut restored = LockTable::decode(&bytes, limits()).unwrap();
        assert_eq!(restored.encode(), bytes);
        world.tick();
        let index = LogIndex(world.index);
        restored.apply(index, LogicalTime::from_ms(1), Command::Tick, &mut Vec::new());
        assert_eq!(restored.digest(), world.table.digest());
    }
}

fn limits() -> Limits {
    Limits {
        promotion_walk_max: STEPS,
        deadlock_walk_max: STEPS,
        freezes_max: 2,
        ..Limits::default()
    }
}

#[test]
fn a_thaw_of_many_locks_is_spread_over_several_entries() {
    let mut world = World::new(RulesVersion::NEWEST);
    let names = 2 * STEPS;
    let held: Vec<HoldRef> = (0..names)
        .map(|number| world.take(OTHER, &format!("cold/{number:04}"), Mode::Exclusive))
        .collect();
    for number in 0..names {
        world.wait(VICTIM, &format!("cold/{number:04}"), Mode::Exclusive);
    }
    world.intervene(Action::Freeze { prefix: "cold/".into(), ttl: Span::from_secs(60) });
    for hold in held {
        world.release(OTHER, hold);
    }
    world.index += 1;
    let before = world.granted.len();
    let thawed = world.intervene(Action::Thaw { prefix: "cold/".into() });
    assert!(matches!(thawed, Outcome::Intervened(_)), "{thawed:?}");
    let at_once = world.granted.len() - before;
    assert!(0 < at_once && at_once <= STEPS / 4, "{at_once}");
    let refused = world.acquire_with(OTHER, "cold/0199", Mode::Exclusive, Terms::default());
    assert_eq!(refused, Outcome::Busy, "it stays reserved for the one who waits");
    world.ticks_until_nothing_is_deferred();
    assert_eq!(world.granted.len() - before, names);
}

#[test]
fn prefixes_that_are_being_thawed_count_as_frozen_ones_do() {
    let mut world = World::new(RulesVersion::NEWEST);
    for number in 0..2 * STEPS {
        world.take(OTHER, &format!("cold/{number}"), Mode::Exclusive);
    }
    let freeze = |prefix: &str| Action::Freeze { prefix: prefix.into(), ttl: Span::from_ms(500) };
    world.index += 1;
    for prefix in ["", "c"] {
        world.intervene(freeze(prefix));
        world.intervene(Action::Thaw { prefix: prefix.into() });
    }
    world.intervene(freeze("cold"));
    let refused = world.intervene(Action::Thaw { prefix: "cold".into() });
    assert!(matches!(refused, Outcome::Rejected(_)), "{refused:?}");
    world.ticks_until_nothing_is_deferred();
    let thawed = world.intervene(Action::Thaw { prefix: "cold".into() });
    assert!(matches!(thawed, Outcome::Intervened(_)), "{thawed:?}");
}

#[test]
fn an_actor_that_dies_or_wounds_looks_at_a_bounded_number_of_holders() {
    let mut world = World::new(RulesVersion::NEWEST);
    for _ in 0..2 * STEPS {
        let terms = Terms { preemptible: true, ..Terms::default() };
        let held = world.acquire_with(ATTACKER, "hot", Mode::Shared, terms);
        assert!(matches!(held, Outcome::Granted(_)), "{held:?}");
    }
    let before = world.table.search_cost();
    for policy in [Policy::WaitDie, Policy::WoundWait, Policy::WoundWait] {
        let since = Some(LogicalTime::ZERO);
        let terms = Terms { since, ..waiting(policy) };
        let queued = world.acquire_with(VICTIM, "hot", Mode::Exclusive, terms);
        assert!(matches!(queued, Outcome::Queued { .. }), "{queued:?}");
    }
    let after = world.table.search_cost();
    assert!(after.steps - before.steps <= STEPS as u64, "{after:?}");
    assert!(after.skipped - before.skipped >= 3, "{after:?}");
    assert_eq!(world.table.status("hot", 1).holder_count, 2 * STEPS, "none was wounded in part");
}

#[test]
fn a_reader_that_dies_skips_no_search_beside_readers_that_it_need_not_look_at() {
    let mut world = World::new(RulesVersion::NEWEST);
    world.take(OTHER, "read", Mode::Shared);
    world.wait(OTHER, "read", Mode::Exclusive);
    for _ in 0..2 * STEPS {
        world.take(ATTACKER, "hot", Mode::Shared);
    }
    let since = Some(LogicalTime::ZERO);
    let dies = || Terms { since, ..waiting(Policy::WaitDie) };
    // It uses up the steps of this entry.
    world.acquire_with(ATTACKER, "hot", Mode::Exclusive, dies());
    let before = world.table.search_cost().skipped;
    assert!(before > 0);
    world.acquire_with(VICTIM, "read", Mode::Shared, dies());
    assert_eq!(world.table.search_cost().skipped, before, "readers share");
}

/// Where there are many holds of one lock, each is found by its token, and by its actor.
#[test]
fn one_of_many_holds_of_a_session_is_found_by_its_token_and_by_its_actor() {
    let mut world = World::new(RulesVersion::NEWEST);
    let permit = Mode::Permit { limit: 1_000 };
    let mut holds: Vec<HoldRef> = Vec::new();
    for session in [ATTACKER, VICTIM] {
        for _ in 0..200 {
            let hold = world.take(session, "sem", permit);
            holds.push(HoldRef { acquire: RequestId(0), ..hold });
        }
    }
    let unknown = HoldRef { token: FenceToken(9_999), ..holds[0].clone() };
    let outcome = world.release(ATTACKER, unknown);
    assert_eq!(outcome, Outcome::Release(ReleaseAnswer::NotOwner));
    for hold in holds[..190].iter().cloned() {
        let late = world.release(ATTACKER, hold.clone());
        assert_eq!(late, Outcome::Release(ReleaseAnswer::Released));
        let again = world.release(ATTACKER, hold);
        assert_eq!(again, Outcome::Release(ReleaseAnswer::AlreadyReleased));
    }
    let of_another = world.release(ATTACKER, holds[300].clone());
    assert_ne!(of_another, Outcome::Release(ReleaseAnswer::Released));
    assert_eq!(world.table.status("sem", 1).holder_count, 210);
    let shared = world.take(OTHER, "shared", Mode::Shared);
    for _ in 0..100 {
        world.take(OTHER, "shared", Mode::Shared);
    }
    // The actor of a hold is its request, and the first hold of it is entered again.
    let call = world.call(OTHER);
    let (actor, name) = (ActorId(shared.acquire.0), lock("shared"));
    let terms = Terms { reentrant: true, ..Terms::default() };
    let mode = Mode::Shared;
    let entered = world.apply(Command::Acquire(Acquire { call, actor, name, mode, terms }));
    assert!(
        matches!(&entered, Outcome::Granted(grant) if grant.acquire == shared.acquire),
        "{entered:?}"
    );
}
