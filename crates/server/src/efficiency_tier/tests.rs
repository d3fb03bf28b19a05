//! One term after the other, in a time that the test tells.

use std::sync::Arc;
use std::time::Duration;

use holdfast_core::command::{
    Acquire, AcquireAll, Action, Call, HoldRef, Intervention, Member, Mode, Owner, Policy, Terms,
};
use holdfast_core::{
    ActorId, Command, EndReason, FenceToken, Grant, Limits, LockName, LogicalTime, Outcome,
    PublicSessionId, Rejection, ReleaseAnswer, RequestId, SearchCost, SessionId, Span, StreamId,
};
use holdfast_engine::{Answer, Delivery, StreamKey, Unavailable};
use holdfast_replica::GroupId;
use tokio::sync::{mpsc, oneshot};

use super::term_table::TermTable;
use super::{EfficiencyTier, Streams};
use crate::boot_clock;
use crate::metrics::EfficiencyMetrics;
use crate::outbox::{ReplyTo, put_all};

const ALICE: SessionId = SessionId(0xa11ce);
const BOB: SessionId = SessionId(0xb0b);
const CAROL: SessionId = SessionId(0xca401);

/// A term in which all three are admitted.
struct Scene {
    table: TermTable,
    streams: Streams,
    now_ms: u64,
    last_request: u64,
}

impl Scene {
    fn new(term: u64) -> Scene {
        let table = table_of(term, Arc::default());
        Scene { table, streams: Streams::default(), now_ms: 0, last_request: 0 }
    }

    fn call(&mut self, session: SessionId) -> Call {
        self.last_request += 1;
        Call { session, request: RequestId(self.last_request), acked_through: RequestId(0) }
    }

    fn send(&mut self, command: Command) -> oneshot::Receiver<Answer> {
        let (reply, answer) = oneshot::channel();
        let now = at(self.now_ms);
        self.table.carry_out(now, command, ReplyTo::Call(reply), &mut self.streams);
        answer
    }

    fn outcome(&mut self, command: Command) -> Outcome {
        self.send(command).try_recv().unwrap().result.unwrap()
    }

    fn acquire(&mut self, session: SessionId, wait_ms: u64, ttl_ms: Option<u64>) -> Command {
        let call = self.call(session);
        let terms = Terms {
            wait: Span::from_ms(wait_ms),
            policy: Policy::Detect,
            since: None,
            preemptible: false,
            reentrant: false,
            ttl: ttl_ms.map(Span::from_ms),
            max_hold: None,
            lock_delay: None,
            metadata: Box::default(),
        };
        let (actor, mode) = (ActorId(0), Mode::Exclusive);
        Command::Acquire(Acquire { call, actor, name: name(), mode, terms })
    }

    fn granted(&mut self, session: SessionId, ttl_ms: Option<u64>) -> Grant {
        let acquire = self.acquire(session, 0, ttl_ms);
        grant_in(self.outcome(acquire))
    }

    fn release(&mut self, session: SessionId, token: FenceToken) -> ReleaseAnswer {
        let call = self.call(session);
        let hold = HoldRef { name: name(), token, acquire: RequestId(0) };
        match self.outcome(Command::Release { call, hold }) {
            Outcome::Release(answer) => answer,
            other => panic!("{other:?}"),
        }
    }

    fn run_due(&mut self) {
        self.table.run_due(at(self.now_ms), &mut self.streams);
    }
}

fn table_of(term: u64, metrics: Arc<EfficiencyMetrics>) -> TermTable {
    let mut table = TermTable::new(term, at(0), metrics).unwrap();
    table.confirm(at(1_000_000));
    for (session, public) in [(ALICE, 1), (BOB, 2), (CAROL, 3)] {
        table.admit(at(0), session, PublicSessionId(public), Owner::default());
    }
    table
}

fn at(ms: u64) -> LogicalTime {
    LogicalTime::from_ms(ms)
}

fn name() -> LockName {
    LockName::new("report").unwrap()
}

fn grant_in(outcome: Outcome) -> Grant {
    match outcome {
        Outcome::Granted(grant) => grant,
        other => panic!("{other:?}"),
    }
}

#[test]
fn tokens_are_the_term_and_a_counter_so_each_term_s_are_higher_than_all_before() {
    let mut first = Scene::new(7);
    let one = first.granted(ALICE, None).token;
    assert_eq!(one.0, (7 << 40) + 1);
    assert_eq!(first.release(ALICE, one), ReleaseAnswer::Released);
    assert_eq!(first.granted(BOB, None).token.0, (7 << 40) + 2);
    // The next term knows of no hold.
    let mut next = Scene::new(8);
    assert_eq!(next.granted(ALICE, None).token.0, (8 << 40) + 1);
    assert_eq!(next.release(BOB, FenceToken((7 << 40) + 2)), ReleaseAnswer::Expired);
    assert!(
        TermTable::new(1 << 23, at(0), Arc::default()).is_none(),
        "its tokens would be too large"
    );
    assert!(TermTable::new((1 << 23) - 2, at(0), Arc::default()).is_some());
}

#[test]
fn the_tier_grants_only_until_the_confirmed_moment_which_is_never_shortened() {
    let mut table = TermTable::new(1, at(0), Arc::default()).unwrap();
    table.admit(at(0), ALICE, PublicSessionId(1), Owner::default());
    assert!(!table.serves(at(0), ALICE), "no quorum has confirmed the leader yet");
    table.confirm(at(100));
    table.confirm(at(90));
    assert!(table.serves(at(99), ALICE) && !table.serves(at(100), ALICE));
    assert!(!table.serves(at(50), BOB), "a session that was not admitted");
    table.invalidate();
    assert!(!table.is_sure(at(50)));
}

#[test]
fn a_new_leader_grants_nothing_while_one_of_before_may_still_be_sure() {
    let mut table = TermTable::new(2, at(400), Arc::default()).unwrap();
    table.admit(at(0), ALICE, PublicSessionId(1), Owner::default());
    table.confirm(at(800));
    assert!(!table.serves(at(399), ALICE), "however sure it is itself");
    assert!(table.serves(at(400), ALICE));

    let tier = EfficiencyTier::new();
    assert_eq!(tier.opens_in(), Duration::ZERO, "no client waits for a node that does not lead");
    tier.begin_term(1, boot_clock::now() + Duration::from_secs(60));
    assert!(tier.opens_in() > Duration::from_secs(59));
}

#[test]
fn waiters_are_served_in_order_and_only_the_owner_releases() {
    let mut scene = Scene::new(1);
    let held = scene.granted(ALICE, None).token;
    let wait = scene.acquire(BOB, 60_000, None);
    let mut first = scene.send(wait);
    let wait = scene.acquire(CAROL, 60_000, None);
    let mut second = scene.send(wait);
    assert!(first.try_recv().is_err() && second.try_recv().is_err());
    assert_eq!(scene.release(BOB, held), ReleaseAnswer::NotOwner);
    assert_eq!(scene.release(ALICE, held), ReleaseAnswer::Released);
    let bobs = grant_in(first.try_recv().unwrap().result.unwrap());
    assert!(bobs.token > held && second.try_recv().is_err());
    assert_eq!(scene.release(BOB, bobs.token), ReleaseAnswer::Released);
    assert!(grant_in(second.try_recv().unwrap().result.unwrap()).token > bobs.token);
}

#[test]
fn a_retry_has_the_effect_of_one_request() {
    let mut scene = Scene::new(1);
    let acquire = scene.acquire(ALICE, 0, None);
    let one = grant_in(scene.outcome(acquire.clone()));
    assert_eq!(grant_in(scene.outcome(acquire)), one);
    // A wait that is sent again keeps its place, and the later sender is answered.
    let wait = scene.acquire(BOB, 60_000, None);
    let mut lost = scene.send(wait.clone());
    let mut again = scene.send(wait);
    scene.release(ALICE, one.token);
    assert!(lost.try_recv().is_err());
    assert!(grant_in(again.try_recv().unwrap().result.unwrap()).token > one.token);
}

#[test]
fn a_hold_ends_after_its_ttl_its_holder_is_notified_and_the_next_waiter_is_served() {
    let mut scene = Scene::new(1);
    let (outbox, mut told) = mpsc::channel(4);
    scene
        .streams
        .open(StreamKey { group: GroupId::FIRST, session: ALICE, stream: StreamId(1) }, outbox);
    let held = scene.granted(ALICE, Some(500));
    assert_eq!(held.deadline, Some(at(500)));
    let wait = scene.acquire(BOB, 60_000, None);
    let mut next = scene.send(wait);
    assert_eq!(scene.table.next_deadline(), Some(at(500)));
    scene.now_ms = 499;
    scene.run_due();
    assert!(next.try_recv().is_err());
    scene.now_ms = 500;
    scene.run_due();
    assert!(grant_in(next.try_recv().unwrap().result.unwrap()).token > held.token);
    put_all(&mut scene.streams);
    let [Delivery::HoldEnded { token, reason, .. }] = &told.try_recv().unwrap()[..] else {
        panic!("the holder is told")
    };
    assert_eq!((*token, *reason), (held.token, EndReason::Ttl));
    assert_eq!(scene.release(ALICE, held.token), ReleaseAnswer::Expired);
}

/// Or else the task that looks after it would look again and again, and do nothing, until the time has moved.
#[test]
fn promotions_that_are_left_for_later_go_on_though_no_time_passes() {
    let mut scene = Scene::new(1);
    let held = ["report", "other"].map(|name| {
        let (call, terms) = (scene.call(ALICE), Terms::default());
        let (actor, mode, name) = (ActorId(0), Mode::Exclusive, LockName::new(name).unwrap());
        grant_in(scene.outcome(Command::Acquire(Acquire { call, actor, name, mode, terms })))
    });
    // More than one walk may look at.
    for _ in 0..6_000 {
        let members = ["report", "other"]
            .map(|name| Member { name: LockName::new(name).unwrap(), mode: Mode::Shared });
        let terms = Terms { wait: Span::from_secs(60), policy: Policy::Wait, ..Terms::default() };
        let (call, actor, members) = (scene.call(BOB), ActorId(0), Box::new(members));
        drop(scene.send(Command::AcquireAll(AcquireAll { call, actor, members, terms })));
    }
    assert_eq!(scene.release(ALICE, held[0].token), ReleaseAnswer::Released);
    let now = at(scene.now_ms);
    let is_due = |scene: &Scene| scene.table.next_deadline().is_some_and(|next| next <= now);
    assert!(is_due(&scene), "some of it is left for later");
    scene.run_due();
    assert!(!is_due(&scene));
}

#[test]
fn a_wait_ends_at_its_deadline() {
    let mut scene = Scene::new(1);
    scene.granted(ALICE, None);
    let wait = scene.acquire(BOB, 300, None);
    let mut waits = scene.send(wait);
    scene.now_ms = 300;
    scene.run_due();
    assert_eq!(waits.try_recv().unwrap().result, Ok(Outcome::TimedOut));
}

#[test]
fn the_end_of_a_session_frees_what_it_held_and_it_is_not_known_any_more() {
    let mut scene = Scene::new(1);
    let held = scene.granted(ALICE, None);
    let wait = scene.acquire(BOB, 60_000, None);
    let mut next = scene.send(wait);
    scene.table.end_session(at(0), ALICE, &mut scene.streams);
    assert!(grant_in(next.try_recv().unwrap().result.unwrap()).token > held.token);
    assert!(!scene.table.serves(at(0), ALICE) && scene.table.serves(at(0), BOB));
    // One that is found to be gone while its request is carried out is refused.
    let late = scene.acquire(ALICE, 0, None);
    assert_eq!(scene.outcome(late), Outcome::Rejected(Rejection::UnknownSession));
}

#[test]
fn waiters_fail_with_leadership_lost_when_the_term_ends() {
    let mut scene = Scene::new(1);
    scene.granted(ALICE, None);
    let wait = scene.acquire(BOB, 60_000, None);
    let mut waits = scene.send(wait);
    let reason = Unavailable::LeadershipLost { leader: None };
    scene.table.end(reason, &mut scene.streams);
    assert_eq!(waits.try_recv().unwrap().result, Err(reason));
}

#[test]
fn unacknowledged_answers_of_falling_ids_are_limited_as_everywhere() {
    let mut scene = Scene::new(1);
    let held = scene.granted(BOB, None);
    let refused = (0..10_000).map(|number| {
        let mut busy = scene.acquire(ALICE, 0, None);
        if let Command::Acquire(acquire) = &mut busy {
            acquire.call.request = RequestId(1_000_000 - number);
        }
        scene.outcome(busy)
    });
    assert!(refused.into_iter().any(|o| o == Outcome::Rejected(Rejection::TooManyUnacknowledged)));
    assert_eq!(scene.release(BOB, held.token), ReleaseAnswer::Released);
}

#[test]
fn a_stream_that_does_not_read_is_cut_off_and_the_others_are_served() {
    let mut scene = Scene::new(1);
    let (outbox, mut never_read) = mpsc::channel(1);
    let key = StreamKey { group: GroupId::FIRST, session: ALICE, stream: StreamId(1) };
    scene.streams.open(key, outbox);
    for request in 1..=3 {
        scene.streams.send(key, Delivery::Queued { request: RequestId(request), position: 1 });
        put_all(&mut scene.streams);
    }
    assert!(never_read.try_recv().is_ok());
    assert!(
        never_read.try_recv().is_err_and(|error| error == mpsc::error::TryRecvError::Disconnected)
    );
    scene.granted(BOB, None);
}

#[test]
fn a_tier_without_a_lease_returns_operations_and_serves_them_once_it_has_one() {
    let tier = EfficiencyTier::new();
    let mut scene = Scene::new(1);
    let mut try_once = |tier: &EfficiencyTier| {
        let acquire = crate::testing::admitted(scene.acquire(ALICE, 0, None));
        let (reply, answer) = oneshot::channel();
        tier.carry_out(ALICE, vec![(acquire, ReplyTo::Call(reply))]).is_ok().then_some(answer)
    };
    assert!(try_once(&tier).is_none(), "this node does not lead");
    let at_once = boot_clock::now();
    tier.begin_term(3, at_once);
    tier.admit(ALICE, PublicSessionId(1), Owner::default());
    assert!(tier.is_in_use() && try_once(&tier).is_none(), "no majority has confirmed it");
    let soon = boot_clock::now() + Duration::from_secs(60);
    tier.confirm(2, soon);
    assert!(try_once(&tier).is_none(), "what was confirmed was another term");
    tier.confirm(3, soon);
    let token = grant_in(try_once(&tier).unwrap().try_recv().unwrap().result.unwrap()).token;
    assert!(tier.status("report", 10).is_some());
    let (_, standing) = tier.token_standing(&name(), token).unwrap();
    assert!(standing.is_held);
    // Another term begins with nothing.
    tier.begin_term(4, at_once);
    tier.confirm(4, soon);
    assert!(tier.status("report", 10).is_none() && !tier.is_in_use());
    tier.admit(ALICE, PublicSessionId(1), Owner::default());
    let later = grant_in(try_once(&tier).unwrap().try_recv().unwrap().result.unwrap()).token;
    assert!(later > token);
    tier.invalidate();
    assert!(try_once(&tier).is_none() && tier.status("report", 10).is_none());
    tier.end_term(Unavailable::LeadershipLost { leader: None });
    assert!(try_once(&tier).is_none());
}

/// What Bob's acquires cost behind 12,000 waiters, a hundred of them in a millisecond, each in a frame of its own. Each
/// would look at half of the queue.
fn cost_of_acquires(acquires: u64, mut before_each_ms: impl FnMut(&mut Scene)) -> SearchCost {
    let mut scene = Scene::new(1);
    scene.granted(ALICE, None);
    for number in 0..12_000 {
        let members = ["report".to_owned(), format!("other/{number}")]
            .map(|name| Member { name: LockName::new(&name).unwrap(), mode: Mode::Exclusive });
        let terms = Terms { policy: Policy::Wait, wait: Span::from_secs(60), ..Terms::default() };
        let (call, actor) = (scene.call(ALICE), ActorId(number + 1));
        let members = Box::new(members);
        scene.send(Command::AcquireAll(AcquireAll { call, actor, members, terms }));
    }
    // Bob holds something, so that his waiting could close a circle.
    let call = scene.call(BOB);
    let (actor, mode, terms) = (ActorId(0), Mode::Exclusive, Terms::default());
    let own = LockName::new("own").unwrap();
    grant_in(scene.outcome(Command::Acquire(Acquire { call, actor, name: own, mode, terms })));
    let before = scene.table.search_cost();
    for number in 0..acquires {
        scene.now_ms = 1_000 + number / 100;
        if number % 100 == 0 {
            before_each_ms(&mut scene);
        }
        scene.table.begin_entry(at(scene.now_ms));
        let acquire = scene.acquire(BOB, 60_000, None);
        scene.send(acquire);
    }
    let after = scene.table.search_cost();
    SearchCost { steps: after.steps - before.steps, skipped: after.skipped - before.skipped }
}

#[test]
fn many_small_requests_behind_a_long_queue_cost_no_more_than_a_large_one() {
    let cost = cost_of_acquires(2_000, |_| {});
    let bound = 3 * Limits::default().deadlock_walk_max as u64;
    assert!(cost.steps > 0 && cost.steps <= bound, "{cost:?} in 20 ms");
    assert!(cost.skipped > 1_000, "{cost:?}");
}

#[test]
fn waits_that_end_each_millisecond_give_searches_no_more_to_spend() {
    let cost = cost_of_acquires(2_000, Scene::run_due);
    let bound = 3 * Limits::default().deadlock_walk_max as u64;
    assert!(cost.steps > 0 && cost.steps <= bound, "{cost:?} in 20 ms");
}

#[test]
fn a_full_table_is_counted_and_its_size_is_shown_until_the_term_ends() {
    let metrics = Arc::<EfficiencyMetrics>::default();
    let mut scene = Scene { table: table_of(1, Arc::clone(&metrics)), ..Scene::new(1) };
    let action = Action::SetLimits { bytes: None, locks: Some(1) };
    let (by, reason) = ("olga".into(), "test".into());
    scene.outcome(Command::Intervene(Intervention { by, reason, action, identity: None }));
    scene.granted(ALICE, None);
    let mut other = scene.acquire(BOB, 0, None);
    if let Command::Acquire(acquire) = &mut other {
        acquire.name = LockName::new("other").unwrap();
    }
    let refused = Outcome::Rejected(Rejection::TooManyLocks { limit: 1 });
    assert_eq!(scene.outcome(other), refused);
    scene.table.measure();
    assert_eq!((metrics.full_refusals.get(), metrics.locks.get()), (1, 1));
    assert!(metrics.table_bytes.get() > 0);
    scene.table.end(Unavailable::LeadershipLost { leader: None }, &mut scene.streams);
    assert_eq!((metrics.locks.get(), metrics.table_bytes.get()), (0, 0));
}

#[test]
fn a_stream_is_told_until_its_guard_is_dropped_and_the_next_one_under_its_key_is_not_closed_with_it()
 {
    let tier = Arc::new(EfficiencyTier::new());
    let key = StreamKey { group: GroupId::FIRST, session: ALICE, stream: StreamId(1) };
    let (outbox, _told) = mpsc::channel(4);
    let first = tier.open_stream(key, outbox);
    let (outbox, _told) = mpsc::channel(4);
    let second = tier.open_stream(key, outbox);
    drop(first);
    assert!(tier.state().streams.get(key).is_some(), "the second one has the stream");
    drop(second);
    assert!(tier.state().streams.get(key).is_none());
}
