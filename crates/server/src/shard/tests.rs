//! The shard of a lone node, turned by hand.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_core::{
    ActorId, Command, LockName, Outcome, PublicSessionId, RequestId, SessionId, Span, StreamId,
    command::{Acquire, Call, Mode, OpenSession, Owner, Terms},
};
use holdfast_engine::{Answer, Delivery, Step, StreamKey, Unavailable};
use holdfast_replica::{GroupId, Leadership, NodeId, Replica};
use holdfast_wal::WriteError;
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

use super::framed::tests::{EveryByte, OPEN, PANIC_WHEN_ANSWERED};
use super::{Channels, Shard, StopReason};
use crate::config::NodeConfig;
use crate::efficiency_tier::EfficiencyTier;
use crate::events::EventRings;
use crate::identity::Identity;
use crate::inbox::{Deferrable, GroupView, Input, Leaderships, ShardHandle, inbox};
use crate::known_peers::KnownPeers;
use crate::loop_watchdog::LoopWatchdog;
use crate::membership::Membership;
use crate::metrics::Metrics;
use crate::peers::{Handshake, PeerLinks};
use crate::transport::Transport;

const ALICE: SessionId = SessionId(0xa11ce);
const STREAM: StreamKey = StreamKey { group: GroupId::FIRST, session: ALICE, stream: StreamId(1) };
const FRAMED: StreamKey = StreamKey { group: GroupId::FIRST, session: ALICE, stream: StreamId(2) };

/// A shard whose loop does not run by itself: the test turns it.
struct Bench {
    shard: Shard,
    handle: ShardHandle,
    leadership: watch::Receiver<Leadership>,
    last_request: u64,
    _runtime: Runtime,
    _directory: TempDir,
}

impl Bench {
    /// A node that leads.
    fn new() -> Bench {
        let mut bench = Bench::one_of(vec![NodeId(1)], 5);
        bench.turn_until(|bench| bench.leadership.borrow().is_here);
        bench
    }

    /// Node 1 of a cluster whose other nodes are played by the test.
    fn one_of(initial_members: Vec<NodeId>, tick_ms: u64) -> Bench {
        let directory = tempfile::tempdir().unwrap();
        let mut config = NodeConfig::dev_cluster(1, directory.path(), 7_000).unwrap().remove(0);
        config.tick_ms = tick_ms;
        let (inbox_sender, inbox) = inbox().unwrap();
        let (leadership, watch) = Leaderships::new([GroupId::FIRST]);
        let handle = ShardHandle::new(inbox_sender.clone(), watch.clone());
        let watch = watch.root().clone();
        let identity = Identity::load_or_create(
            &config.data_dir,
            &config.cluster,
            config.node_id(),
            config.groups,
        )
        .unwrap();
        let known_peers = KnownPeers::load(&config.data_dir).unwrap();
        let data_dir = identity.data_dir.into();
        let membership = Arc::new(Membership::of(&config, &initial_members));
        let known = Arc::clone(&membership);
        let handshake = Handshake::new(
            identity,
            known,
            known_peers,
            config.timing(),
            config.auth.mode,
            Transport::default(),
        );
        let handshake = Arc::new(handshake);
        let runtime = Builder::new_current_thread().build().unwrap();
        let links = {
            let _entered = runtime.enter();
            PeerLinks::start(&handshake, &handle, &mut JoinSet::new())
        };
        let events = EventRings::new([GroupId::FIRST].into_iter(), config.events_kept);
        let memory = Arc::new(EfficiencyTier::new());
        let channels = Channels {
            policy: Arc::default(),
            policy_generations: handle.policy_generations().clone(),
            inbox,
            inbox_sender,
            leadership,
            events,
            memory,
            watchdog: Arc::new(LoopWatchdog::new()),
            metrics: Arc::new(Metrics::new()),
            traces: None,
            membership,
            initial_members,
            data_dir,
        };
        let shard = Shard::open(&config, channels, links).unwrap();
        Bench {
            shard,
            handle,
            leadership: watch,
            last_request: 0,
            _runtime: runtime,
            _directory: directory,
        }
    }

    fn turn(&mut self) {
        self.shard.turn().unwrap();
    }

    fn turn_until(&mut self, reached: impl Fn(&Bench) -> bool) {
        let patience = Instant::now() + Duration::from_secs(10);
        while !reached(self) {
            assert!(Instant::now() < patience, "not within ten seconds");
            self.turn();
        }
    }

    fn send(&self, input: Input) {
        self.handle.send(input).unwrap();
    }

    fn call(&self, command: Command) -> oneshot::Receiver<Answer> {
        let (reply, answer) = oneshot::channel();
        self.send(Input::Call { group: GroupId::FIRST, command, reply, call: None });
        answer
    }

    fn commit(&mut self, command: Command) -> Outcome {
        let mut answer = self.call(command);
        let patience = Instant::now() + Duration::from_secs(10);
        loop {
            assert!(Instant::now() < patience, "not within ten seconds");
            self.turn();
            if let Ok(answer) = answer.try_recv() {
                return answer.result.unwrap();
            }
        }
    }

    /// Her session, on a stream.
    fn open_stream(&mut self) -> mpsc::Receiver<Vec<Delivery>> {
        let (outbox, deliveries) = mpsc::channel(64);
        let deferrable = Deferrable::default();
        self.send(Input::StreamOpened { stream: STREAM, outbox, deferrable });
        self.commit(Command::OpenSession(OpenSession {
            session: ALICE,
            public: PublicSessionId(1),
            stream: Some(STREAM.stream),
            ttl: Span::from_ms(600_000),
            linger: Span::from_ms(1),
            owner: Owner::default(),
            identity: None,
        }));
        deliveries
    }

    /// The next acquire of her session.
    fn acquire(&mut self, name: &str) -> (RequestId, Command) {
        self.last_request += 1;
        let request = RequestId(self.last_request);
        let acquire = Acquire {
            call: Call { session: ALICE, request, acked_through: RequestId(request.0 - 1) },
            actor: ActorId(0),
            name: LockName::new(name).unwrap(),
            mode: Mode::Exclusive,
            terms: Terms::default(),
        };
        (request, Command::Acquire(acquire))
    }

    /// Her connection: the client's end of it, and where it comes back. Each byte that she sends is a heartbeat.
    /// A framed connection: the client's end, and what it is told.
    fn connect(&self) -> (TcpStream, std::sync::mpsc::Receiver<Vec<Delivery>>) {
        let (connection, client, told) = EveryByte::connect(FRAMED, touch());
        self.send(Input::Connection(connection));
        (client, told)
    }

    fn table_replica(&self) -> &Replica {
        self.shard.engine.replica(GroupId::FIRST).unwrap()
    }

    fn inspect_index(&self) -> u64 {
        self.table_replica().applied_index()
    }

    fn inspect(&mut self) -> GroupView {
        let (reply, mut views) = oneshot::channel();
        self.send(Input::Inspect { with_digests: true, reply });
        self.turn();
        views.try_recv().unwrap().remove(0)
    }
}

fn touch() -> Command {
    Command::Touch { session: ALICE, acked_through: RequestId(0) }
}

#[test]
fn a_client_that_disconnects_while_it_is_answered_is_noticed() {
    let mut bench = Bench::new();
    drop(bench.open_stream());
    let operations = vec![(RequestId(7), touch())];
    bench.send(frame(operations));
    bench.commit(touch());
    bench.send(Input::StreamClosed { stream: STREAM, client_gone: true });
    bench.turn_until(|bench| bench.table_replica().table().session_count() == 0);
}

#[test]
fn a_leader_counts_as_crashed_when_its_port_refuses_and_its_wire_has_ended() {
    // Of consensus, in its protobuf: a heartbeat to node 1, from node 2, in term 1.
    const HEARTBEAT: [u8; 8] = [0x08, 8, 0x10, 1, 0x18, 2, 0x20, 1];
    // No node starts an election while the test is held up.
    const TICK_MS: u64 = 10_000;
    let leader = NodeId(2);
    let mut bench = Bench::one_of(vec![NodeId(1), leader, NodeId(3)], TICK_MS);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut far_end = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (near_end, _) = listener.accept().unwrap();
    near_end.set_nonblocking(true).unwrap();
    let stream = Box::new(mio::net::TcpStream::from_std(near_end));
    bench.send(Input::PeerWire { from: leader, number: 1, stream });
    let header = [(HEARTBEAT.len() as u32).to_le_bytes(), GroupId::FIRST.0.to_le_bytes()].concat();
    far_end.write_all(&[&header[..], &HEARTBEAT].concat()).unwrap();
    bench.turn_until(|bench| bench.leadership.borrow().leader == Some(leader));

    bench.send(Input::PeerRefuses(leader));
    bench.turn();
    assert_eq!(bench.leadership.borrow().leader, Some(leader), "it can be heard");
    drop(far_end);
    bench.turn_until(|bench| !bench.shard.wires.has_one_from(leader));
    assert_eq!(bench.leadership.borrow().leader, Some(leader), "its network may be slow");
    bench.send(Input::PeerRefuses(leader));
    bench.turn();
    assert_eq!(bench.leadership.borrow().leader, None);
}

fn frame(operations: Vec<(RequestId, Command)>) -> Input {
    Input::Frame { stream: STREAM, operations, is_deferrable: false }
}

/// Her heartbeat, which came alone and may wait.
fn heartbeat(request: u64) -> Input {
    let operations = vec![(RequestId(request), touch())];
    Input::Frame { stream: STREAM, operations, is_deferrable: true }
}

fn answered(deliveries: &mut mpsc::Receiver<Vec<Delivery>>) -> Vec<u64> {
    requests(std::iter::from_fn(|| deliveries.try_recv().ok()).flatten())
}

/// Of answers that are no failures.
fn requests(told: impl Iterator<Item = Delivery>) -> Vec<u64> {
    let request = |delivery| match delivery {
        Delivery::Answer { request, answer: Answer { result: Ok(_), .. } } => Some(request.0),
        _ => None,
    };
    told.filter_map(request).collect()
}

#[test]
fn a_heartbeat_that_comes_alone_waits_no_longer_than_a_tick() {
    let mut bench = Bench::new();
    let mut deliveries = bench.open_stream();
    bench.send(heartbeat(1));
    let begun = Instant::now();
    while answered(&mut deliveries).is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(10), "it is forgotten");
        bench.turn();
    }
}

#[test]
fn a_framed_connections_operations_are_carried_out_and_answered() {
    let mut bench = Bench::new();
    drop(bench.open_stream());
    let (mut client, told) = bench.connect();
    client.write_all(&[OPEN]).unwrap();
    bench.turn_until(|bench| bench.shard.engine.streams().get(FRAMED).is_some());
    let applied = bench.inspect_index();
    client.write_all(&[2, 3]).unwrap();
    bench.turn_until(|bench| bench.inspect_index() > applied);
    assert_eq!(requests(told.try_iter().flatten()), [2, 3]);
    assert_eq!(bench.inspect_index(), applied + 1, "one entry for both");
    drop(client);
    bench.turn_until(|bench| bench.shard.engine.streams().get(FRAMED).is_none());
    assert_eq!(bench.shard.framed.len(), 0);
}

#[test]
fn a_connection_that_panics_at_an_answer_is_closed_and_its_stream_with_it() {
    let mut bench = Bench::new();
    drop(bench.open_stream());
    let (mut client, _told) = bench.connect();
    client.write_all(&[OPEN]).unwrap();
    bench.turn_until(|bench| bench.shard.engine.streams().get(FRAMED).is_some());
    client.write_all(&[PANIC_WHEN_ANSWERED]).unwrap();
    bench.turn_until(|bench| bench.shard.framed.len() == 0);
    assert!(bench.shard.engine.streams().get(FRAMED).is_none(), "its stream is kept for ever");
}

#[test]
fn a_connection_whose_stream_another_one_opens_is_ended() {
    let mut bench = Bench::new();
    let (mut first, _) = bench.connect();
    first.write_all(&[OPEN]).unwrap();
    bench.turn_until(|bench| bench.shard.engine.streams().get(FRAMED).is_some());
    let (mut second, _told) = bench.connect();
    second.write_all(&[OPEN]).unwrap();
    first.set_nonblocking(true).unwrap();
    bench.turn_until(|_| matches!((&first).read(&mut [0]), Ok(0)));
    assert_eq!(bench.shard.framed.len(), 1);
    assert!(bench.shard.engine.streams().get(FRAMED).is_some(), "the second has the stream");
}

fn full() -> WriteError {
    WriteError::NoSpace { file: "log".to_owned() }
}

#[test]
fn while_the_disk_is_full_calls_and_framed_operations_are_refused() {
    let mut bench = Bench::new();
    let (mut client, told) = bench.connect();
    client.write_all(&[OPEN]).unwrap();
    bench.turn_until(|bench| bench.shard.engine.streams().get(FRAMED).is_some());
    // The present turn finds the disk full; what is sent then comes while it is.
    bench.shard.log.refusals = vec![full(), full()];
    let _halted = bench.call(touch());
    bench.shard.take_input(Duration::ZERO);
    while bench.shard.advance().unwrap() != Step::Write {}
    bench.shard.write().unwrap();
    assert_eq!(bench.shard.metrics.disk_full.get(), 1);
    let mut call = bench.call(touch());
    client.write_all(&[7]).unwrap();
    bench.turn();
    assert_eq!(call.try_recv().unwrap().result, Err(Unavailable::OutOfSpace));
    let refused = told.recv_timeout(Duration::from_secs(10)).unwrap();
    let is_refusal = |delivery: &Delivery| matches!(delivery, Delivery::Answer { answer, .. } if answer.result == Err(Unavailable::OutOfSpace));
    assert!(refused.iter().all(is_refusal), "{refused:?}");
    assert_eq!(bench.shard.metrics.disk_full.get(), 0);
}

#[test]
fn while_the_disk_is_full_the_nodes_own_view_is_answered_and_names_no_leader() {
    let mut bench = Bench::new();
    bench.shard.log.refusals = vec![full(), full()];
    let _halted = bench.call(touch());
    bench.shard.take_input(Duration::ZERO);
    while bench.shard.advance().unwrap() != Step::Write {}
    bench.shard.write().unwrap();
    assert!(bench.shard.engine.is_halted());
    let (reply, mut views) = oneshot::channel();
    bench.send(Input::Inspect { with_digests: true, reply });
    let (reply, mut table) = oneshot::channel();
    bench.send(Input::ReadOwnTable { group: GroupId::FIRST, locks_max: 10, reply });
    bench.shard.take_input(Duration::ZERO);
    let views = views.try_recv().expect("the view is answered");
    assert_eq!(views.iter().map(|view| view.leader).collect::<Vec<_>>(), [None]);
    assert!(table.try_recv().is_ok());
}

#[test]
fn a_leader_whose_disk_was_full_for_long_leads_again_without_a_change_of_leader() {
    const REFUSALS: usize = 1_000;
    let mut bench = Bench::new();
    let changes = bench.shard.metrics.leader_changes.get();
    bench.shard.log.refusals = std::iter::repeat_with(full).take(REFUSALS).collect();
    let _halted = bench.call(touch());
    bench.shard.take_input(Duration::ZERO);
    while bench.shard.advance().unwrap() != Step::Write {}
    let patience = Instant::now() + Duration::from_secs(10);
    while bench.leadership.borrow().leader.is_some() {
        assert!(Instant::now() < patience, "its clients are not sent away");
        bench.shard.write().unwrap();
    }
    bench.shard.log.refusals.clear();
    bench.turn_until(|bench| bench.leadership.borrow().is_here);
    assert_eq!(bench.shard.metrics.leader_changes.get(), changes);
}

#[test]
fn a_disk_that_fails_ends_the_shard_even_if_it_was_full_before() {
    let mut bench = Bench::new();
    let failed = WriteError::CommitBeyondLog { group: 1, commit: 2, last: 1 };
    bench.shard.log.refusals = vec![failed, full(), full()];
    let _halted = bench.call(touch());
    let ended = bench.shard.turn();
    assert!(matches!(ended, Err(StopReason::Disk(_))), "{ended:?}");
}

#[test]
fn a_digest_is_recomputed_when_the_table_changed() {
    let mut bench = Bench::new();
    let _deliveries = bench.open_stream();
    let before = bench.inspect().digest.unwrap();
    assert_eq!(bench.inspect().digest, Some(before.clone()));
    let (_, acquire) = bench.acquire("wallet");
    bench.commit(acquire);
    assert!(bench.inspect().digest.is_some_and(|digest| digest != before));
}

#[test]
fn of_a_large_table_there_is_no_new_digest_right_after_the_last_one() {
    const LOCKS: u64 = 10_001;
    let mut bench = Bench::new();
    let _deliveries = bench.open_stream();
    let operations = (0..LOCKS).map(|n| bench.acquire(&format!("lock-{n}"))).collect();
    bench.send(frame(operations));
    bench.turn_until(|bench| bench.table_replica().table().lock_count() as u64 == LOCKS);
    let first = bench.inspect();
    assert_eq!((first.locks as u64, first.digest.is_some()), (LOCKS, true));
    assert_eq!(bench.inspect().digest, first.digest, "the one that is there is given");
    let (_, acquire) = bench.acquire("one more");
    bench.commit(acquire);
    assert_eq!(bench.inspect().digest, None, "it would cost too much so soon");
}

#[test]
fn a_peer_that_names_another_sender_is_cut_off() {
    // Of consensus, in its protobuf: a heartbeat to node 1, in the name of node 2, in term 1.
    const FORGED: [u8; 8] = [0x08, 8, 0x10, 1, 0x18, 2, 0x20, 1];
    // No node loses patience while the test is held up.
    const TICK_MS: u64 = 10_000;
    let forger = NodeId(3);
    let mut bench = Bench::one_of(vec![NodeId(1), NodeId(2), forger], TICK_MS);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut far_end = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (near_end, _) = listener.accept().unwrap();
    near_end.set_nonblocking(true).unwrap();
    let stream = Box::new(mio::net::TcpStream::from_std(near_end));
    bench.send(Input::PeerWire { from: forger, number: 1, stream });
    let (length, group) = (FORGED.len() as u32, GroupId::FIRST.0);
    far_end.write_all(&[length.to_le_bytes(), group.to_le_bytes()].concat()).unwrap();
    far_end.write_all(&FORGED).unwrap();
    bench.turn();
    bench.turn_until(|bench| !bench.shard.wires.has_one_from(forger));
    assert_eq!(bench.leadership.borrow().leader, None, "the forged heartbeat made no leader");
    assert_eq!(far_end.read(&mut [0]).unwrap_or(0), 0, "the forger sees the end");
}
