//! The engine of a lone node, turned by hand, on a disk that can be full. `groups` has clusters with several groups.

mod groups;
mod members;

use std::time::Duration;

use holdfast_core::command::{OpenSession, Owner};
use holdfast_core::{
    AccessChange, ChangeAccess, Command, Identity, Limits, Outcome, Principal, PublicSessionId,
    RequestId, RoleName, RulesVersion, SessionId, Span, StreamId,
};
use holdfast_replica::{Durable, GroupId, Leadership, Member, NodeId, Replica, ReplicaConfig};

use super::{Engine, EngineConfig, MissedInput, Now};
use crate::answer::{Answer, Delivery, StreamKey, Touched, Unavailable, Wait};
use crate::boot_time::BootTime;
use crate::effect::{Effect, Step, StopCause};
use crate::host::Host;
use crate::log::Obstacle;
use crate::query::Query;

const GROUP: GroupId = GroupId(1);
const ALICE: SessionId = SessionId(0xa11ce);
const STREAM: StreamKey = StreamKey { group: GROUP, session: ALICE, stream: StreamId(1) };
const TICK: Duration = Duration::from_millis(50);
const ELECTION_TICKS: u32 = 10;

/// Callers are numbers.
#[derive(Debug)]
struct TestHost;

impl Host for TestHost {
    type Call = u64;
    type Read = u64;
    type Touches = u64;
    type Change = u64;
    type HandOver = u64;
    type Stream = StreamKey;
    type Mark = ();

    fn asked(&mut self, _: &Command, _: Option<Wait>) {}
}

struct Bench {
    engine: Engine<TestHost>,
    now: Duration,
    /// The disk takes nothing.
    full: Option<Obstacle>,
    answers: Vec<(u64, Result<Outcome, Unavailable>)>,
    reads: Vec<(u64, Option<Unavailable>)>,
    touched: Vec<Touched>,
    delivered: Vec<Delivery>,
    leadership: Vec<Leadership>,
    is_deferrable: Option<bool>,
}

/// A replica that campaigns after so many ticks, and takes no snapshots.
fn replica_config(
    group: GroupId,
    node: NodeId,
    voters: Vec<NodeId>,
    election_ticks: usize,
) -> ReplicaConfig {
    ReplicaConfig {
        group,
        node,
        voters,
        tick: TICK,
        heartbeat_ticks: 2,
        election_ticks: (election_ticks, election_ticks + 1),
        grace: Span::from_ms(100),
        snapshot_every_entries: u64::MAX,
        snapshot_every_bytes: u64::MAX,
        snapshot_slice_entries: 1,
        snapshot_slice_pause: Duration::ZERO,
        keep_entries: 0,
        keep_bytes: 0,
        limits: Limits::default(),
    }
}

impl Bench {
    /// A node that leads, with the session of Alice open on a stream.
    fn new() -> Bench {
        let config = replica_config(GROUP, NodeId(1), vec![NodeId(1)], ELECTION_TICKS as usize);
        let replica = Replica::new(config, Durable::default()).unwrap();
        let election_timeout = TICK * ELECTION_TICKS;
        let config = EngineConfig { node: NodeId(1), tick: TICK, election_timeout };
        let mut bench = Bench {
            engine: Engine::new(config, [(GROUP, replica)], [], TestHost),
            now: Duration::ZERO,
            full: None,
            answers: Vec::new(),
            reads: Vec::new(),
            touched: Vec::new(),
            delivered: Vec::new(),
            leadership: Vec::new(),
            is_deferrable: None,
        };
        bench.turn_until(|bench| bench.leadership.last().is_some_and(|now| now.is_here));
        bench.engine.stream_opened(STREAM, STREAM);
        let open = Command::OpenSession(OpenSession {
            session: ALICE,
            public: PublicSessionId(1),
            stream: Some(STREAM.stream),
            ttl: Span::from_ms(600_000),
            linger: Span::from_ms(1),
            owner: Owner::default(),
            identity: None,
        });
        bench.engine.frame(STREAM, vec![(RequestId(0), open)]);
        bench.turn_until(|bench| bench.delivered.len() == 1);
        bench.delivered.clear();
        bench
    }

    fn carry_out(&mut self) {
        let mut effects = Vec::new();
        self.engine.take_effects(&mut effects);
        for effect in effects {
            match effect {
                Effect::Answer { to, answer } => self.answers.push((to, answer.result)),
                Effect::AnswerRead { to, answer } => self.reads.push((to, answer.err())),
                Effect::AnswerTouches { answer, .. } => self.touched.push(answer.unwrap()),
                Effect::Deliver => self.engine.deliver(|_, delivered| {
                    self.delivered.extend(delivered);
                    Ok(())
                }),
                Effect::LeadershipChanged { leadership, .. } => self.leadership.push(leadership),
                Effect::StreamServed { is_deferrable, .. } => {
                    self.is_deferrable = Some(is_deferrable);
                }
                _ => {}
            }
        }
    }

    /// One turn, or as far as the disk lets it.
    fn turn(&mut self) -> Step {
        if !self.engine.is_in_turn() {
            let (monotonic, boot) = (self.now, BootTime(self.now));
            self.engine.handle_time(Now { monotonic, boot, is_tier_in_use: false });
        }
        self.carry_out();
        loop {
            let step = self.engine.advance(self.now).unwrap();
            self.carry_out();
            match (step, self.full) {
                (Step::GoOn, _) => {}
                (Step::Write, None) => self.engine.disk_done(self.now, &[]),
                (Step::Write, Some(obstacle)) => {
                    self.engine.disk_full(self.now, obstacle);
                    self.carry_out();
                    return step;
                }
                (Step::Rest | Step::Stop(_), _) => return step,
            }
        }
    }

    /// With a tick between two turns.
    fn turn_until(&mut self, reached: impl Fn(&Bench) -> bool) {
        for _ in 0..1_000 {
            if reached(self) {
                return;
            }
            self.now += TICK;
            self.turn();
        }
        panic!("it is not reached");
    }

    /// A turn with a heartbeat begins and halts, for want of room in the log.
    fn fill_disk(&mut self) {
        self.full.get_or_insert(Obstacle::NoSpace);
        self.engine.call(GROUP, touch(), 0, None);
        self.turn();
        assert!(self.engine.is_halted());
    }

    fn make_room(&mut self) {
        self.full = None;
        assert_eq!(self.turn(), Step::Rest);
    }

    fn frame(&mut self, request: u64) {
        self.engine.frame(STREAM, vec![(RequestId(request), touch())]);
    }

    /// The heartbeats that were answered on the stream.
    fn answered(&mut self) -> Vec<u64> {
        let request = |delivered| match delivered {
            Delivery::Answer { request, answer: Answer { result: Ok(_), .. } } => Some(request.0),
            _ => None,
        };
        std::mem::take(&mut self.delivered).into_iter().filter_map(request).collect()
    }

    fn session_count(&self) -> usize {
        self.engine.replica(GROUP).unwrap().table().session_count()
    }

    fn applied_index(&self) -> u64 {
        self.engine.replica(GROUP).unwrap().applied_index()
    }
}

fn touch() -> Command {
    Command::Touch { session: ALICE, acked_through: RequestId(0) }
}

#[test]
fn nothing_is_answered_before_it_is_durable() {
    let mut bench = Bench::new();
    bench.engine.call(GROUP, touch(), 1, None);
    let now = Now { monotonic: bench.now, boot: BootTime(bench.now), is_tier_in_use: false };
    bench.engine.handle_time(now);
    while bench.engine.advance(bench.now).unwrap() == Step::GoOn {}
    bench.carry_out();
    assert!(bench.engine.turns().iter().any(|(_, turn)| turn.needs_disk()));
    assert!(bench.answers.is_empty(), "it is not on disk");
    bench.turn();
    assert!(matches!(bench.answers[..], [(1, Ok(Outcome::Touched { .. }))]), "{:?}", bench.answers);
}

#[test]
fn while_the_disk_is_full_calls_are_refused_and_not_carried_out() {
    let mut bench = Bench::new();
    bench.fill_disk();
    let applied = bench.applied_index();
    bench.engine.call(GROUP, touch(), 1, None);
    let query = Query::List { prefix: String::new(), after: None, limit: 1 };
    bench.engine.read(GROUP, query, 2);
    bench.frame(7);
    bench.carry_out();
    assert_eq!(bench.answers, [(1, Err(Unavailable::OutOfSpace))]);
    assert_eq!(bench.reads, [(2, Some(Unavailable::OutOfSpace))]);
    let [Delivery::Answer { request, answer }] = &bench.delivered[..] else {
        panic!("{:?}", bench.delivered)
    };
    assert_eq!((*request, &answer.result), (RequestId(7), &Err(Unavailable::OutOfSpace)));
    bench.make_room();
    assert_eq!(bench.applied_index(), applied + 1, "none of it is in the log");
    assert!(bench.leadership.last().unwrap().is_here, "it was short");
    bench.engine.call(GROUP, touch(), 3, None);
    bench.turn();
    assert!(matches!(bench.answers.last(), Some((3, Ok(Outcome::Touched { .. })))));
}

#[test]
fn a_turn_that_a_full_disk_halts_is_answered_when_there_is_room() {
    let mut bench = Bench::new();
    bench.fill_disk();
    assert!(bench.answers.is_empty());
    bench.make_room();
    assert!(matches!(bench.answers[..], [(0, Ok(Outcome::Touched { .. }))]));
}

#[test]
fn a_client_that_disconnects_while_the_disk_is_full_is_noticed_when_there_is_room() {
    let mut bench = Bench::new();
    bench.fill_disk();
    bench.engine.stream_closed(STREAM, true);
    assert_eq!(bench.session_count(), 1);
    bench.make_room();
    bench.turn_until(|bench| bench.session_count() == 0);
}

#[test]
fn a_disk_that_stays_full_ends_all_streams_until_there_is_room() {
    let mut bench = Bench::new();
    bench.fill_disk();
    let known = bench.leadership.len();
    for _ in 0..2 * ELECTION_TICKS {
        bench.now += TICK;
        bench.turn();
    }
    let delivered = &bench.delivered[..];
    assert!(matches!(delivered, [Delivery::LeaderMoved { leader: None }]), "{delivered:?}");
    assert!(bench.engine.streams().is_empty());
    assert_eq!(bench.leadership[known..], [Leadership::default()]);
    bench.make_room();
    assert!(bench.leadership.last().unwrap().is_here);
}

#[test]
fn a_client_that_disconnected_before_all_streams_ended_is_noticed_too() {
    let mut bench = Bench::new();
    bench.fill_disk();
    bench.engine.stream_closed(STREAM, true);
    bench.now += TICK * ELECTION_TICKS * 2;
    bench.turn();
    bench.make_room();
    bench.turn_until(|bench| bench.session_count() == 0);
}

#[test]
fn a_process_without_descriptors_refuses_calls_until_it_has_some() {
    let mut bench = Bench::new();
    bench.full = Some(Obstacle::NotNow);
    bench.fill_disk();
    bench.engine.call(GROUP, touch(), 1, None);
    bench.carry_out();
    assert_eq!(bench.answers, [(1, Err(Unavailable::Overloaded))]);
    bench.make_room();
}

#[test]
fn a_node_with_a_full_disk_can_be_stopped() {
    let mut bench = Bench::new();
    bench.fill_disk();
    bench.engine.stop(Duration::from_secs(2));
    assert_eq!(bench.turn(), Step::Stop(StopCause::Requested));
}

#[test]
fn peer_inputs_during_a_full_disk_are_replayed_when_it_has_room() {
    let mut bench = Bench::new();
    bench.fill_disk();
    bench.engine.snapshot_sent(GROUP, NodeId(2), true);
    bench.engine.peer_unreachable(NodeId(2));
    let missed = &bench.engine.missed_inputs;
    assert!(
        matches!(missed[..], [MissedInput::SnapshotSent { .. }, MissedInput::Unreachable(_)]),
        "{missed:?}"
    );
    bench.make_room();
    assert!(bench.engine.missed_inputs.is_empty());
}

#[test]
fn deferred_heartbeats_share_an_entry_with_the_next_command() {
    let mut bench = Bench::new();
    assert_eq!(bench.is_deferrable, Some(true));
    bench.now += TICK;
    bench.frame(9);
    bench.turn();
    bench.delivered.clear();
    for request in 1..=3 {
        bench.engine.defer(STREAM, vec![(RequestId(request), touch())]);
        bench.turn();
    }
    // Those above have set when they are due.
    let applied = bench.applied_index();
    assert!(bench.answered().len() <= 1, "they wait");
    bench.engine.call(GROUP, touch(), 1, None);
    bench.turn();
    assert!(bench.answered().ends_with(&[2, 3]));
    assert_eq!(bench.applied_index(), applied + 1, "one entry for all of them");
}

#[test]
fn a_deferred_heartbeat_waits_no_longer_than_a_tick() {
    let mut bench = Bench::new();
    for request in 1..=2 {
        bench.engine.defer(STREAM, vec![(RequestId(request), touch())]);
        bench.now += TICK;
        bench.turn();
        assert_eq!(bench.answered(), [request]);
    }
}

#[test]
fn a_deferred_heartbeat_does_not_overtake_the_end_of_its_stream() {
    let mut bench = Bench::new();
    bench.engine.defer(STREAM, vec![(RequestId(1), touch())]);
    bench.engine.stream_closed(STREAM, true);
    bench.turn_until(|bench| bench.session_count() == 0);
}

#[test]
fn a_deferred_heartbeat_is_refused_while_the_disk_is_full() {
    let mut bench = Bench::new();
    bench.fill_disk();
    bench.engine.defer(STREAM, vec![(RequestId(7), touch())]);
    bench.carry_out();
    let delivered = &bench.delivered[..];
    let [Delivery::Answer { request, answer }] = delivered else { panic!("{delivered:?}") };
    assert_eq!((*request, &answer.result), (RequestId(7), &Err(Unavailable::OutOfSpace)));
}

#[test]
fn the_heartbeats_of_many_sessions_are_one_entry_and_one_answer() {
    const BOB: SessionId = SessionId(0xb0b);
    let mut bench = Bench::new();
    let applied = bench.applied_index();
    bench.engine.touches(GROUP, vec![ALICE, BOB, ALICE], 1);
    bench.turn();
    let ttl = Some(Span::from_ms(600_000));
    assert_eq!(bench.touched[0].ttls, [ttl, None, ttl]);
    assert_eq!(bench.applied_index(), applied + 1);
}

#[test]
fn a_session_that_may_not_connect_is_not_told_that_its_heartbeat_counted() {
    const BOB: SessionId = SessionId(0xb0b);
    let principal = Principal::parse("token:bob").unwrap();
    let user = RoleName::parse("user").unwrap();
    let mut bench = Bench::new();
    bench.engine.peer_identified(NodeId(1), Member::default(), u32::MAX);
    bench.now += TICK;
    bench.turn_until(|bench| {
        bench.engine.replicas().all(|(_, replica)| replica.table().rules() == RulesVersion::ADOPTED)
    });
    let change = |bench: &mut Bench, change| {
        let (by, identity, expected) = ("token:root".into(), None, None);
        let (changes, end_sessions) = ([change].into(), false);
        let change = ChangeAccess { by, identity, expected, changes, end_sessions };
        bench.engine.call(GROUP, Command::ChangeAccess(Box::new(change)), 1, None);
        bench.turn();
    };
    change(&mut bench, AccessChange::Grant { principal: principal.clone(), role: user });
    let identity = Some(Box::new(Identity::of(principal.clone())));
    let public = PublicSessionId(2);
    let (ttl, linger, owner) = (Span::from_ms(600_000), Span::ZERO, Owner::default());
    let open = OpenSession { session: BOB, public, stream: None, ttl, linger, owner, identity };
    bench.engine.call(GROUP, Command::OpenSession(open), 2, None);
    bench.turn();
    let ttl = Some(Span::from_ms(600_000));
    bench.engine.touches(GROUP, vec![BOB, ALICE], 3);
    bench.turn();
    assert_eq!(bench.touched.pop().unwrap().ttls, [ttl, ttl]);
    change(&mut bench, AccessChange::Ban { principal });
    bench.now += Duration::from_secs(1);
    bench.engine.touches(GROUP, vec![BOB, ALICE], 4);
    bench.turn();
    let ttls = bench.touched.pop().unwrap().ttls;
    assert_eq!(ttls[1], ttl);
    assert!(ttls[0] < ttl, "its time goes on: {ttls:?}");
}

#[test]
fn host_work_before_a_write_does_not_count_as_write_time() {
    const JUMP: Duration = Duration::from_millis(300);
    let mut bench = Bench::new();
    let mut jumped_before_write = 0;
    for request in 0..20 {
        bench.engine.call(GROUP, touch(), request, None);
        // So there is something to deliver before the write.
        bench.engine.addresses_changed();
        let (monotonic, boot) = (bench.now, BootTime(bench.now));
        bench.engine.handle_time(Now { monotonic, boot, is_tier_in_use: false });
        bench.carry_out();
        let mut has_jumped = false;
        loop {
            match bench.engine.advance(bench.now).unwrap() {
                Step::GoOn => {
                    bench.carry_out();
                    bench.now += JUMP;
                    has_jumped = true;
                }
                Step::Write => {
                    jumped_before_write += u32::from(has_jumped);
                    assert_eq!(bench.engine.write_time(bench.now), Duration::ZERO);
                    let tried_again = bench.now + JUMP;
                    assert_eq!(bench.engine.advance(tried_again).unwrap(), Step::Write);
                    assert_eq!(bench.engine.write_time(tried_again), JUMP);
                    bench.now = tried_again;
                    bench.engine.disk_done(bench.now, &[]);
                }
                Step::Rest => break,
                Step::Stop(ending) => panic!("it stops: {ending:?}"),
            }
        }
    }
    assert!(jumped_before_write > 0, "it was never tried");
}
