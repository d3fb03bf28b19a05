//! What searches for deadlocks may cost: so many steps for all commands of one log entry.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "it is a test")]

use holdfast_core::command::{
    Acquire, AcquireAll, Call, Member, Mode, OpenSession, Owner, Policy, Terms,
};
use holdfast_core::{
    ActorId, Command, Limits, LockName, LockTable, LogIndex, LogicalTime, Outcome, PublicSessionId,
    RequestId, RulesVersion, SearchCost, SessionId, Span,
};

/// As many as a leader puts into one entry.
const COMMANDS_PER_ENTRY: u64 = 1_024;

struct Attack {
    table: LockTable,
    index: u64,
    requests: u64,
}

impl Attack {
    /// One session holds a lock, and stands in its queue by as many acquire-alls as are asked for.
    fn with_queued(rules: RulesVersion, acquire_alls: u64) -> Attack {
        let mut attack = Attack::new(Limits::default(), rules);
        attack.queue(acquire_alls);
        attack
    }

    /// The first session holds a lock, and so does the second.
    fn new(limits: Limits, rules: RulesVersion) -> Attack {
        let table = LockTable::with_rules(limits, rules);
        let mut attack = Attack { table, index: 0, requests: 0 };
        for session in 1..=3 {
            let open = OpenSession {
                session: SessionId(session),
                public: PublicSessionId(session as u64),
                stream: None,
                ttl: Span::from_secs(600),
                linger: Span::from_secs(600),
                owner: Owner::default(),
                identity: None,
            };
            attack.apply(Command::OpenSession(open));
        }
        let held = attack.acquire(1, "hot", 0);
        assert!(matches!(held, Outcome::Granted(_)), "{held:?}");
        let held = attack.acquire(2, "own", 0);
        assert!(matches!(held, Outcome::Granted(_)), "{held:?}");
        attack
    }

    fn queue(&mut self, acquire_alls: u64) {
        for number in 0..acquire_alls {
            self.new_entry_after(number);
            let members = ["hot".to_owned(), format!("other/{number}")]
                .map(|name| Member { name: LockName::new(&name).unwrap(), mode: Mode::Exclusive });
            // Without a search: that would be what the attack costs the attacker.
            let terms = Terms { policy: Policy::Wait, ..terms(60_000) };
            let call = self.call(1);
            let actor = ActorId(number + 1);
            let members = Box::new(members);
            let queued =
                self.apply(Command::AcquireAll(AcquireAll { call, actor, members, terms }));
            assert!(matches!(queued, Outcome::Queued { .. }), "{queued:?}");
        }
    }

    fn new_entry_after(&mut self, number: u64) {
        self.index += u64::from(number.is_multiple_of(COMMANDS_PER_ENTRY));
    }

    fn apply(&mut self, command: Command) -> Outcome {
        let (index, now) = (LogIndex(self.index), LogicalTime::from_ms(1));
        self.table.apply(index, now, command, &mut Vec::new())
    }

    fn call(&mut self, session: u128) -> Call {
        self.requests += 1;
        let (session, request) = (SessionId(session), RequestId(self.requests));
        Call { session, request, acked_through: RequestId(0) }
    }

    fn acquire(&mut self, session: u128, name: &str, wait_ms: u64) -> Outcome {
        self.acquire_as(session, ActorId(0), name, wait_ms)
    }

    fn acquire_as(&mut self, session: u128, actor: ActorId, name: &str, wait_ms: u64) -> Outcome {
        let (call, name) = (self.call(session), LockName::new(name).unwrap());
        let (mode, terms) = (Mode::Exclusive, terms(wait_ms));
        self.apply(Command::Acquire(Acquire { call, actor, name, mode, terms }))
    }

    /// What so many acquires of the second session cost, and how many searches were skipped.
    fn cost_of_acquires(&mut self, acquires: u64) -> SearchCost {
        let before = self.table.search_cost();
        for number in 0..acquires {
            self.new_entry_after(number);
            let queued = self.acquire(2, "hot", 60_000);
            assert!(matches!(queued, Outcome::Queued { .. }), "{queued:?}");
        }
        let SearchCost { steps, skipped } = self.table.search_cost();
        SearchCost { steps: steps - before.steps, skipped: skipped - before.skipped }
    }
}

fn terms(wait_ms: u64) -> Terms {
    Terms { wait: Span::from_ms(wait_ms), ..Terms::default() }
}

/// One client queues 20,000 acquire-alls, and another one sends 16,000 acquires. Each of these would look at half of
/// the queue: 160 million steps. They look at it once for each log entry.
#[test]
fn acquires_behind_many_acquire_alls_cost_a_bounded_number_of_steps_for_each_log_entry() {
    let acquires = 16_000;
    let mut attack = Attack::with_queued(RulesVersion::NEWEST, 20_000);
    let cost = attack.cost_of_acquires(acquires);
    let entries = acquires.div_ceil(COMMANDS_PER_ENTRY);
    let steps_max = Limits::default().deadlock_walk_max as u64;
    assert!(cost.steps <= entries * steps_max, "{cost:?} in {entries} entries");
    assert!(cost.skipped > acquires / 2, "{cost:?}");
    attack.table.check().unwrap();
}

/// The rules of before, which a log follows until it adopts others.
#[test]
fn under_the_first_rules_each_command_has_the_steps_to_itself() {
    let mut attack = Attack::with_queued(RulesVersion::ONE, 11_000);
    let cost = attack.cost_of_acquires(10);
    let steps_max = Limits::default().deadlock_walk_max as u64;
    assert_eq!(cost, SearchCost { steps: 10 * steps_max, skipped: 10 });
}

/// The bound counts for an entry, so the next entry can search again, and finds what there is to be found.
#[test]
fn a_deadlock_that_was_not_searched_for_is_refused_in_the_next_entry() {
    let limits = Limits { deadlock_walk_max: 20, ..Limits::default() };
    let mut attack = Attack::new(limits, RulesVersion::NEWEST);
    let is_queued = |outcome| matches!(outcome, Outcome::Queued { .. });
    assert!(is_queued(attack.acquire(2, "hot", 60_000)));
    assert!(matches!(attack.acquire(3, "third", 0), Outcome::Granted(_)));
    attack.index += 1;
    while attack.table.search_cost().skipped == 0 {
        // Each by another actor, which waits for nothing else.
        let actor = ActorId(attack.requests);
        assert!(is_queued(attack.acquire_as(3, actor, "hot", 60_000)));
    }
    // The second session waits for the first, and the first would wait for the second.
    assert!(is_queued(attack.acquire(1, "own", 60_000)), "there are no steps left for a search");
    attack.index += 1;
    let refused = attack.acquire(1, "own", 60_000);
    assert!(matches!(refused, Outcome::Deadlock(_)), "{refused:?}");
}
