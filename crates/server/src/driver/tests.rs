//! The driver of a lone node, turned by hand.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_core::{
    ActorId, Command, LockName, Outcome, PublicSessionId, RequestId, SessionId, Span, StreamId,
    command::{Acquire, Call, Mode, OpenSession, Owner, Terms},
};
use holdfast_replica::{Leadership, NodeId};
use holdfast_wal::WriteError;
use mio::net::TcpStream as WireSocket;
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

use super::ears::tests::EveryByte;
use super::log::LogError;
use super::{
    Answer, Channels, Delivery, Driver, DriverHandle, FIRST_GROUP, GroupView, Input, MayWait,
    Query, StopReason, StreamKey, Unavailable, inbox,
};
use crate::config::NodeConfig;
use crate::events::EventRing;
use crate::identity::Identity;
use crate::known_peers::KnownPeers;
use crate::membership::Membership;
use crate::memory_tier::MemoryTier;
use crate::metrics::Metrics;
use crate::peers::{Handshake, PeerLinks};
use crate::pulse::Pulse;

const ALICE: SessionId = SessionId(0xa11ce);
const STREAM: StreamKey = StreamKey { session: ALICE, stream: StreamId(1) };

/// A driver whose loop does not run by itself: the test turns it.
struct Bench {
    driver: Driver,
    handle: DriverHandle,
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
    fn one_of(founders: Vec<NodeId>, tick_ms: u64) -> Bench {
        let directory = tempfile::tempdir().unwrap();
        let mut config = NodeConfig::dev_cluster(1, directory.path(), 7_000).unwrap().remove(0);
        config.tick_ms = tick_ms;
        let (inbox_sender, inbox) = inbox().unwrap();
        let leadership = watch::Sender::new(Leadership::default());
        let watch = leadership.subscribe();
        let handle = DriverHandle::new(inbox_sender.clone(), watch.clone());
        let identity =
            Identity::load_or_create(&config.data_dir, &config.cluster, config.node_id()).unwrap();
        let known_peers = KnownPeers::load(&config.data_dir).unwrap();
        let data_dir = identity.data_dir.into();
        let membership = Arc::new(Membership::of(&config, &founders));
        let known = Arc::clone(&membership);
        let handshake = Handshake::new(identity, known, known_peers, config.timing());
        let handshake = Arc::new(handshake);
        let runtime = Builder::new_current_thread().build().unwrap();
        let links = {
            let _entered = runtime.enter();
            PeerLinks::start(&handshake, &handle, &mut JoinSet::new())
        };
        let events = Arc::new(EventRing::new(config.events_kept));
        let memory = Arc::new(MemoryTier::new());
        let channels = Channels {
            inbox,
            inbox_sender,
            leadership,
            events,
            memory,
            pulse: Arc::new(Pulse::new()),
            metrics: Arc::new(Metrics::new()),
            traces: None,
            membership,
            founders,
            data_dir,
        };
        let driver = Driver::open(&config, channels, links).unwrap();
        Bench {
            driver,
            handle,
            leadership: watch,
            last_request: 0,
            _runtime: runtime,
            _directory: directory,
        }
    }

    fn turn(&mut self) {
        self.driver.take_input();
        let now = self.driver.started.elapsed();
        for replica in self.driver.replicas.values_mut() {
            replica.handle_time(now);
        }
        self.driver.turn().unwrap();
        self.driver.streams.flush();
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
        self.send(Input::Call { group: FIRST_GROUP, command, reply, call: None });
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
        let (outbox, may_wait) = (Box::new(outbox), MayWait::default());
        self.send(Input::StreamOpened { stream: STREAM, outbox, may_wait });
        self.commit(Command::OpenSession(OpenSession {
            session: ALICE,
            public: PublicSessionId(1),
            stream: Some(STREAM.stream),
            ttl: Span::from_ms(600_000),
            linger: Span::from_ms(1),
            owner: Owner::default(),
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
    fn lend(&self) -> (TcpStream, std::sync::mpsc::Receiver<WireSocket>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let here = listener.accept().unwrap().0;
        here.set_nonblocking(true).unwrap();
        let (back, returned) = std::sync::mpsc::channel();
        let ear = Box::new(EveryByte { operation: touch(), back });
        self.send(Input::Listen { stream: STREAM, ear, socket: WireSocket::from_std(here) });
        (client, returned)
    }

    /// The disk is full for this long.
    fn fill_disk_for(&mut self, span: Duration) {
        let until = Instant::now() + span;
        let full = || LogError::Write(WriteError::NoSpace { file: "log".to_owned() });
        let work = |_: &mut _| if Instant::now() < until { Err(full()) } else { Ok(()) };
        self.driver.insist(work).unwrap();
    }

    fn inspect_index(&self) -> u64 {
        self.driver.replicas[&FIRST_GROUP].applied_index()
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

fn read() -> (Input, oneshot::Receiver<Result<super::ReadAnswer, Unavailable>>) {
    let (reply, answer) = oneshot::channel();
    let query = Query::List { prefix: String::new(), after: None, limit: 1 };
    (Input::Read { group: FIRST_GROUP, query, reply }, answer)
}

/// Shorter than the time after which clients are sent away, and longer than one look at the inbox.
const BRIEFLY: Duration = Duration::from_millis(20);

#[test]
fn while_the_disk_is_full_whoever_asks_is_told_so() {
    let mut bench = Bench::new();
    let mut deliveries = bench.open_stream();
    let mut call = bench.call(touch());
    let (input, mut answer) = read();
    bench.send(input);
    let operations = vec![(RequestId(7), touch())];
    bench.send(Input::Frame { stream: STREAM, group: FIRST_GROUP, operations });
    bench.fill_disk_for(BRIEFLY);
    assert_eq!(call.try_recv().unwrap().result, Err(Unavailable::OutOfSpace));
    assert_eq!(answer.try_recv().unwrap().unwrap_err(), Unavailable::OutOfSpace);
    let told = deliveries.try_recv().unwrap();
    let [Delivery::Answer { request, answer }] = &told[..] else { panic!("{told:?}") };
    assert_eq!((*request, &answer.result), (RequestId(7), &Err(Unavailable::OutOfSpace)));
    assert!(bench.leadership.borrow().is_here, "it was short");
    assert!(matches!(bench.commit(touch()), Outcome::Touched { .. }), "there is room again");
}

#[test]
fn a_client_that_goes_while_the_disk_is_full_is_missed_when_there_is_room() {
    let mut bench = Bench::new();
    let _deliveries = bench.open_stream();
    bench.send(Input::StreamClosed { stream: STREAM, client_gone: true });
    bench.fill_disk_for(BRIEFLY);
    let session_count = |bench: &Bench| bench.driver.replicas[&FIRST_GROUP].table().session_count();
    assert_eq!(session_count(&bench), 1);
    bench.turn_until(|bench| session_count(bench) == 0);
}

#[test]
fn a_client_that_goes_while_it_is_being_answered_is_missed_too() {
    let mut bench = Bench::new();
    drop(bench.open_stream());
    let operations = vec![(RequestId(7), touch())];
    bench.send(Input::Frame { stream: STREAM, group: FIRST_GROUP, operations });
    bench.commit(touch());
    bench.send(Input::StreamClosed { stream: STREAM, client_gone: true });
    bench.turn_until(|bench| bench.driver.replicas[&FIRST_GROUP].table().session_count() == 0);
}

#[test]
fn a_client_that_went_before_the_others_were_sent_away_is_missed_too() {
    let mut bench = Bench::new();
    let _deliveries = bench.open_stream();
    bench.send(Input::StreamClosed { stream: STREAM, client_gone: true });
    bench.fill_disk_for(bench.driver.election_timeout * 4);
    bench.turn_until(|bench| bench.driver.replicas[&FIRST_GROUP].table().session_count() == 0);
}

#[test]
fn a_leader_is_gone_when_its_port_is_shut_and_its_wire_has_ended() {
    // Of consensus, in its protobuf: a heartbeat to node 1, from node 2, in term 1.
    const HEARTBEAT: [u8; 8] = [0x08, 8, 0x10, 1, 0x18, 2, 0x20, 1];
    // Nobody loses patience while the test is held up.
    const TICK_MS: u64 = 10_000;
    let leader = NodeId(2);
    let mut bench = Bench::one_of(vec![NodeId(1), leader, NodeId(3)], TICK_MS);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut far_end = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (near_end, _) = listener.accept().unwrap();
    near_end.set_nonblocking(true).unwrap();
    let socket = WireSocket::from_std(near_end);
    bench.send(Input::PeerWire { from: leader, number: 1, socket });
    let header = [(HEARTBEAT.len() as u32).to_le_bytes(), FIRST_GROUP.0.to_le_bytes()].concat();
    far_end.write_all(&[&header[..], &HEARTBEAT].concat()).unwrap();
    bench.turn_until(|bench| bench.leadership.borrow().leader == Some(leader));

    bench.send(Input::PeerRefuses(leader));
    bench.turn();
    assert_eq!(bench.leadership.borrow().leader, Some(leader), "it can be heard");
    drop(far_end);
    bench.turn_until(|bench| !bench.driver.wires.has_one_from(leader));
    assert_eq!(bench.leadership.borrow().leader, Some(leader), "its network may be slow");
    bench.send(Input::PeerRefuses(leader));
    bench.turn();
    assert_eq!(bench.leadership.borrow().leader, None);
}

#[test]
fn a_snapshot_that_arrives_while_the_disk_is_full_is_not_forgotten() {
    let mut bench = Bench::new();
    let to = NodeId(2);
    bench.send(Input::SnapshotSent { group: FIRST_GROUP, to, delivered: true });
    bench.send(Input::PeerUnreachable(to));
    bench.fill_disk_for(BRIEFLY);
    let deferred = &bench.driver.deferred;
    assert!(
        matches!(deferred[..], [Input::SnapshotSent { .. }, Input::PeerUnreachable(_)]),
        "{deferred:?}"
    );
}

#[test]
fn a_disk_that_stays_full_sends_the_clients_away_until_there_is_room() {
    let mut bench = Bench::new();
    let mut deliveries = bench.open_stream();
    let mut leadership = bench.leadership.clone();
    leadership.mark_unchanged();
    // Whoever follows the leadership is told in between that nobody leads.
    let follower = std::thread::spawn(move || {
        let runtime = Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            leadership.wait_for(|leadership| !leadership.is_here).await.map(|_| ()).unwrap();
            leadership.wait_for(|leadership| leadership.is_here).await.map(|_| ()).unwrap();
        });
    });
    let election_timeout = bench.driver.election_timeout;
    bench.fill_disk_for(election_timeout * 4);
    let told = deliveries.try_recv().unwrap();
    assert!(matches!(told[..], [Delivery::LeaderMoved { leader: None }]), "{told:?}");
    assert!(matches!(deliveries.try_recv(), Err(mpsc::error::TryRecvError::Disconnected)));
    follower.join().unwrap();
    assert!(matches!(bench.commit(touch()), Outcome::Touched { .. }));
}

#[test]
fn a_process_without_descriptors_tells_its_callers_and_goes_on_when_it_has_some() {
    let mut bench = Bench::new();
    let _deliveries = bench.open_stream();
    let mut call = bench.call(touch());
    let until = Instant::now() + BRIEFLY;
    let not_now = || {
        let message = "Too many open files (os error 24)".to_owned();
        WriteError::NotNow { operation: "create", file: "log".to_owned(), message }
    };
    let work = |_: &mut _| if Instant::now() < until { Err(not_now().into()) } else { Ok(()) };
    bench.driver.insist(work).unwrap();
    assert_eq!(call.try_recv().unwrap().result, Err(Unavailable::Overloaded));
    assert_eq!(bench.driver.metrics.disk_full.get(), 0, "the disk is not full");
    assert!(matches!(bench.commit(touch()), Outcome::Touched { .. }), "it goes on");
}

#[test]
fn a_node_with_a_full_disk_can_be_stopped() {
    let mut bench = Bench::new();
    bench.send(Input::Shutdown);
    let full = || LogError::Write(WriteError::NoSpace { file: "log".to_owned() });
    let ended = bench.driver.insist(|_| Err(full()));
    assert!(matches!(ended, Err(StopReason::Told)), "{ended:?}");
}

#[test]
fn a_disk_that_fails_ends_the_driver_even_if_it_was_full_before() {
    let mut bench = Bench::new();
    let full = || LogError::Write(WriteError::NoSpace { file: "log".to_owned() });
    let failed = || LogError::Write(WriteError::CommitBeyondLog { group: 1, commit: 2, last: 1 });
    let mut answers = vec![failed(), full(), full()];
    let ended = bench.driver.insist(|_| answers.pop().map_or(Ok(()), Err));
    assert!(matches!(ended, Err(StopReason::Disk(_))), "{ended:?}");
}

/// Her heartbeat, which came alone and may wait.
fn heartbeat(request: u64) -> Input {
    let operations = vec![(RequestId(request), touch())];
    Input::Frame { stream: STREAM, group: FIRST_GROUP, operations }
}

fn answered(deliveries: &mut mpsc::Receiver<Vec<Delivery>>) -> Vec<u64> {
    let told = std::iter::from_fn(|| deliveries.try_recv().ok()).flatten();
    let request = |delivery| match delivery {
        Delivery::Answer { request, answer: Answer { result: Ok(_), .. } } => Some(request.0),
        _ => None,
    };
    told.filter_map(request).collect()
}

#[test]
fn heartbeats_that_come_alone_share_a_turn_and_go_with_whatever_comes_next() {
    let mut bench = Bench::new();
    let mut deliveries = bench.open_stream();
    // A long time, so that it is not over by chance.
    bench.driver.heartbeats_due = bench.driver.started.elapsed() + Duration::from_secs(600);
    for request in 1..=3 {
        bench.handle.offer_unhurried(heartbeat(request)).unwrap();
        bench.turn();
    }
    assert!(answered(&mut deliveries).is_empty(), "they wait");
    let applied = bench.inspect_index();
    bench.commit(touch());
    assert_eq!(answered(&mut deliveries), [1, 2, 3]);
    assert_eq!(bench.inspect_index(), applied + 1, "one entry for all of them");
}

#[test]
fn a_heartbeat_that_comes_alone_waits_no_longer_than_a_tick() {
    let mut bench = Bench::new();
    let mut deliveries = bench.open_stream();
    bench.handle.offer_unhurried(heartbeat(1)).unwrap();
    let begun = Instant::now();
    while answered(&mut deliveries).is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(10), "it is forgotten");
        bench.turn();
    }
}

#[test]
fn a_heartbeat_that_waits_does_not_overtake_the_end_of_its_stream() {
    let mut bench = Bench::new();
    let _deliveries = bench.open_stream();
    bench.driver.heartbeats_due = bench.driver.started.elapsed() + Duration::from_secs(600);
    bench.handle.offer_unhurried(heartbeat(1)).unwrap();
    bench.send(Input::StreamClosed { stream: STREAM, client_gone: true });
    bench.turn_until(|bench| bench.driver.replicas[&FIRST_GROUP].table().session_count() == 0);
}

#[test]
fn a_heartbeat_that_waits_while_the_disk_is_full_is_told_so() {
    let mut bench = Bench::new();
    let mut deliveries = bench.open_stream();
    bench.handle.offer_unhurried(heartbeat(7)).unwrap();
    bench.fill_disk_for(BRIEFLY);
    let told = deliveries.try_recv().unwrap();
    let [Delivery::Answer { request, answer }] = &told[..] else { panic!("{told:?}") };
    assert_eq!((*request, &answer.result), (RequestId(7), &Err(Unavailable::OutOfSpace)));
}

#[test]
fn the_heartbeats_of_many_sessions_are_one_entry_and_one_answer() {
    const BOB: SessionId = SessionId(0xb0b);
    let mut bench = Bench::new();
    let _deliveries = bench.open_stream();
    let applied = bench.inspect_index();
    let (reply, mut answer) = oneshot::channel();
    let sessions = vec![ALICE, BOB, ALICE];
    bench.send(Input::Touches { group: FIRST_GROUP, sessions, reply });
    bench.turn();
    let touched = answer.try_recv().unwrap().unwrap();
    let ttl = Some(Span::from_ms(600_000));
    assert_eq!(touched.ttls, [ttl, None, ttl]);
    assert_eq!(bench.inspect_index(), applied + 1);
}

#[test]
fn what_a_lent_connection_says_is_carried_out_together_with_heartbeats_that_waited() {
    let mut bench = Bench::new();
    let mut deliveries = bench.open_stream();
    bench.driver.heartbeats_due = bench.driver.started.elapsed() + Duration::from_secs(600);
    let (mut client, returned) = bench.lend();
    bench.turn();
    bench.handle.offer_unhurried(heartbeat(1)).unwrap();
    bench.turn();
    assert!(answered(&mut deliveries).is_empty(), "nobody has asked for anything else");
    let applied = bench.inspect_index();
    client.write_all(&[2, 3]).unwrap();
    bench.turn_until(|bench| bench.inspect_index() > applied);
    assert_eq!(answered(&mut deliveries), [1, 2, 3]);
    assert_eq!(bench.inspect_index(), applied + 1, "one entry for all of them");
    bench.send(Input::StreamClosed { stream: STREAM, client_gone: false });
    bench.turn();
    assert!(returned.try_recv().is_ok(), "the task has it again");
}

#[test]
fn while_the_disk_is_full_connections_are_with_their_tasks() {
    let mut bench = Bench::new();
    let mut deliveries = bench.open_stream();
    let (_before, returned) = bench.lend();
    bench.turn();
    assert!(returned.try_recv().is_err());
    let (_meanwhile, returned_at_once) = bench.lend();
    bench.fill_disk_for(BRIEFLY);
    assert!(returned.try_recv().is_ok() && returned_at_once.try_recv().is_ok());
    let (mut after, _returned) = bench.lend();
    bench.turn();
    after.write_all(&[7]).unwrap();
    let begun = Instant::now();
    while answered(&mut deliveries).is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(10), "it is not heard");
        bench.turn();
    }
}

#[test]
fn a_digest_is_made_anew_when_the_table_changed() {
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
    bench.send(Input::Frame { stream: STREAM, group: FIRST_GROUP, operations });
    bench.turn_until(|bench| {
        bench.driver.replicas[&FIRST_GROUP].table().lock_count() as u64 == LOCKS
    });
    let first = bench.inspect();
    assert_eq!((first.locks as u64, first.digest.is_some()), (LOCKS, true));
    assert_eq!(bench.inspect().digest, first.digest, "the one that is there is given");
    let (_, acquire) = bench.acquire("one more");
    bench.commit(acquire);
    assert_eq!(bench.inspect().digest, None, "it would cost too much so soon");
}

#[test]
fn a_peer_that_speaks_in_the_name_of_another_is_cut_off() {
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
    let socket = WireSocket::from_std(near_end);
    bench.send(Input::PeerWire { from: forger, number: 1, socket });
    let (length, group) = (FORGED.len() as u32, FIRST_GROUP.0);
    far_end.write_all(&[length.to_le_bytes(), group.to_le_bytes()].concat()).unwrap();
    far_end.write_all(&FORGED).unwrap();
    bench.turn();
    bench.turn_until(|bench| !bench.driver.wires.has_one_from(forger));
    assert_eq!(bench.leadership.borrow().leader, None, "the forged heartbeat made no leader");
    assert_eq!(far_end.read(&mut [0]).unwrap_or(0), 0, "the forger sees the end");
}
