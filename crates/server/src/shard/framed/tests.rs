use std::io;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::task::Waker;

use holdfast_core::command::{AcquireAll, Call, Member, Mode, Terms};
use holdfast_core::{ActorId, Command, LockName, RequestId, SessionId, StreamId};
use holdfast_replica::GroupId;
use holdfast_service::{Caller, Method, Protocol, Service};
use mio::Interest;
use mio::net::TcpStream as Socket;

use super::*;
use crate::inbox::{Deferrable, poller};

/// Asks for the same operation with each byte, whose value is the request id. Its stream is opened by a byte of 255, and
/// closed by the end of the socket. A byte of 254 is a bug in its code, and the answer to one of 253 finds another.
#[derive(Debug)]
pub(in crate::shard) struct EveryByte {
    pub(in crate::shard) socket: Socket,
    pub(in crate::shard) stream: StreamKey,
    pub(in crate::shard) operation: Command,
    pub(in crate::shard) told: mpsc::Sender<Vec<Delivery>>,
    is_readable: bool,
    is_last_read: bool,
    waker: Option<Waker>,
    deadline: Option<Instant>,
    ended: Option<EndedBy>,
}

pub(in crate::shard) const OPEN: u8 = 255;
const PANIC: u8 = 254;
pub(in crate::shard) const PANIC_WHEN_ANSWERED: u8 = 253;

impl EveryByte {
    /// With the client's end, and what it is told.
    pub(in crate::shard) fn connect(
        stream: StreamKey,
        operation: Command,
    ) -> (Box<EveryByte>, TcpStream, mpsc::Receiver<Vec<Delivery>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let here = listener.accept().unwrap().0;
        here.set_nonblocking(true).unwrap();
        let (told, heard) = mpsc::channel();
        let connection = EveryByte {
            socket: Socket::from_std(here),
            stream,
            operation,
            told,
            is_readable: true,
            is_last_read: false,
            waker: None,
            deadline: None,
            ended: None,
        };
        (Box::new(connection), client, heard)
    }
}

impl Connection for EveryByte {
    fn register(&mut self, registry: &Registry, token: Token, waker: Waker) -> io::Result<()> {
        self.waker = Some(waker);
        registry.register(&mut self.socket, token, Interest::READABLE)
    }

    fn handle_news(&mut self, news: SocketEvents) {
        self.is_readable |= news.is_readable;
        self.is_last_read |= news.has_ended;
    }

    fn visit(&mut self, visit: &mut Visit<'_>) -> AfterVisit {
        if self.deadline.take_if(|deadline| *deadline <= Instant::now()).is_some() {
            return AfterVisit::Closed;
        }
        if self.ended.is_some() {
            return AfterVisit::Closed;
        }
        visit.asked.stream = Some(self.stream);
        match self.socket.read(visit.scratch) {
            Ok(0) => {
                visit.asked.closed = Some(true);
                AfterVisit::Closed
            }
            Ok(read) => {
                let caller = Caller::client(Protocol::Framed, None);
                visit.asked.bytes += read;
                for byte in &visit.scratch[..read] {
                    assert_ne!(*byte, PANIC);
                    if *byte == OPEN {
                        visit.asked.opened = Some(Deferrable::default());
                        continue;
                    }
                    let operation = self.operation.clone();
                    let admitted =
                        Service::default().admit(&caller, Method::KeepAlive, operation).unwrap();
                    visit.asked.operations.push((RequestId((*byte).into()), admitted));
                }
                let has_more = read == visit.scratch.len() || self.is_last_read;
                if has_more { AfterVisit::More } else { AfterVisit::Rest }
            }
            Err(_) => AfterVisit::Rest,
        }
    }

    fn deliver(&mut self, told: Vec<Delivery>, _: &mut FrameWriter) -> Result<(), CutOff> {
        let bug = RequestId(PANIC_WHEN_ANSWERED.into());
        let is_bug =
            |one: &Delivery| matches!(one, Delivery::Answer { request, .. } if *request == bug);
        assert!(!told.iter().any(is_bug));
        self.told.send(told).map_err(|_| CutOff::Gone)
    }

    fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    fn end(&mut self, by: EndedBy) {
        self.ended = Some(by);
    }
}

struct Bench {
    framed: FramedConnections,
    poller: Poller,
    frame: FrameWriter,
}

impl Bench {
    fn new() -> Bench {
        let (waker, poller) = poller().unwrap();
        let framed = FramedConnections::new(Arc::new(WokenConnections::new(waker)));
        Bench { framed, poller, frame: FrameWriter::default() }
    }

    fn connect(&mut self, number: u128) -> TcpStream {
        self.connect_with(number, |_| ())
    }

    fn connect_with(&mut self, number: u128, change: impl FnOnce(&mut EveryByte)) -> TcpStream {
        let stream =
            StreamKey { group: GroupId::FIRST, session: SessionId(number), stream: StreamId(1) };
        let (mut connection, client, _) = EveryByte::connect(stream, Command::Tick);
        change(&mut connection);
        self.framed.add(connection, self.poller.registry());
        client
    }

    /// Waits for news, if nothing is left to be done. Gives how many operations each connection asks for.
    fn turn(&mut self) -> Vec<(u128, usize)> {
        let patience = Duration::from_secs(10).min(self.framed.idle_for_at_most());
        let woken = Arc::clone(&self.framed.woken);
        let news: Vec<SocketEvents> = self.poller.wait(patience, || !woken.is_empty()).collect();
        news.into_iter().for_each(|news| self.framed.handle_news(news));
        let mut all = Vec::new();
        self.framed.visit(&mut self.frame, |_, asked| {
            if let (Some(stream), false) = (asked.stream, asked.operations.is_empty()) {
                all.push((stream.session.0, asked.operations.len()));
            }
        });
        all
    }
}

#[test]
fn connections_are_read_in_order_and_no_turn_takes_more_than_it_may() {
    let mut bench = Bench::new();
    let mut clients = [1, 2, 3].map(|number| bench.connect(number));
    const SENT: usize = 5_000;
    for client in &mut clients {
        client.write_all(&[7; SENT]).unwrap();
    }
    let (mut taken, mut order) = ([0; 3], Vec::new());
    while taken != [SENT; 3] {
        let turn = bench.turn();
        let operations: usize = turn.iter().map(|(_, operations)| operations).sum();
        assert!(operations < OPERATIONS_PER_TURN_MAX + READ_BYTES, "{operations}");
        for (number, operations) in turn {
            taken[usize::try_from(number).unwrap() - 1] += operations;
            order.push(number);
        }
    }
    // No connection is read twice while another waits.
    order.truncate(3);
    order.sort_unstable();
    assert_eq!(order, [1, 2, 3]);
    clients[1].write_all(&[7]).unwrap();
    assert_eq!(bench.turn(), [(2, 1)]);
}

#[test]
fn a_connection_is_read_to_its_end_and_then_dropped() {
    let mut bench = Bench::new();
    let mut client = bench.connect(1);
    client.write_all(&[7, 7]).unwrap();
    drop(client);
    let mut operations = 0;
    while bench.framed.len() > 0 {
        operations += bench.turn().iter().map(|(_, operations)| operations).sum::<usize>();
    }
    assert_eq!(operations, 2);
}

#[test]
fn a_task_wakes_the_shard_for_its_connection() {
    let mut bench = Bench::new();
    let _client = bench.connect(1);
    while bench.framed.idle_for_at_most() < Duration::MAX {
        bench.turn();
    }
    let token = bench.framed.last_token;
    let waker = ConnectionWaker { token, woken: Arc::clone(&bench.framed.woken) };
    let waker = Waker::from(Arc::new(waker));
    let other = std::thread::spawn(move || waker.wake());
    let begun = Instant::now();
    bench.turn();
    other.join().unwrap();
    assert!(begun.elapsed() < Duration::from_secs(5), "the shard slept on");
}

#[test]
fn a_deadline_that_passes_is_a_reason_for_a_visit() {
    let mut bench = Bench::new();
    let soon = Instant::now() + Duration::from_millis(20);
    let _client = bench.connect_with(1, |connection| connection.deadline = Some(soon));
    let _other = bench.connect(2);
    while bench.framed.len() > 1 {
        bench.turn();
    }
    assert!(Instant::now() >= soon);
    assert_eq!(bench.framed.idle_for_at_most(), Duration::MAX, "nothing is timed any more");
}

#[test]
fn when_the_shard_ends_every_connection_is_ended() {
    let mut bench = Bench::new();
    let mut clients = [1, 2].map(|number| bench.connect(number));
    let Bench { framed, poller, .. } = bench;
    let begun = Instant::now();
    framed.close_all(poller);
    assert!(begun.elapsed() < CLOSE_TIMEOUT);
    for client in &mut clients {
        assert_eq!(client.read(&mut [0]).unwrap(), 0);
    }
}

#[test]
fn many_names_and_operations_outside_the_engine_count_as_work() {
    let (service, caller) = (Service::default(), Caller::client(Protocol::Framed, None));
    let members = (0..256).map(|number| Member {
        name: LockName::new(&format!("a/{number}")).unwrap(),
        mode: Mode::Exclusive,
    });
    let acquire = AcquireAll {
        call: Call { session: SessionId(1), request: RequestId(2), acked_through: RequestId(0) },
        actor: ActorId(0),
        members: members.collect(),
        terms: Terms::default(),
    };
    let acquire = service.admit(&caller, Method::AcquireAll, Command::AcquireAll(acquire)).unwrap();
    let asked = Asked { operations: vec![(RequestId(2), acquire)], ..Asked::default() };
    assert_eq!(asked.weight(), 256);
    let refused = Asked { done_here: OPERATIONS_PER_TURN_MAX, ..Asked::default() };
    assert!(refused.is_much());
}

#[test]
fn a_panic_in_one_connection_closes_it_and_its_stream_and_no_other() {
    let mut bench = Bench::new();
    let (mut poisoned, mut other) = (bench.connect(1), bench.connect(2));
    poisoned.write_all(&[OPEN, 7]).unwrap();
    let mut taken = Vec::new();
    while taken.is_empty() {
        taken = bench.turn();
    }
    assert_eq!(taken, [(1, 1)]);
    poisoned.write_all(&[7, PANIC]).unwrap();
    let mut closed = Vec::new();
    while bench.framed.len() > 1 {
        let news: Vec<SocketEvents> =
            bench.poller.wait(Duration::from_secs(10), || false).collect();
        news.into_iter().for_each(|news| bench.framed.handle_news(news));
        bench.framed.visit(&mut bench.frame, |_, asked| {
            assert!(asked.operations.is_empty(), "nothing of the visit that panicked is done");
            closed.extend(asked.stream.map(|stream| (stream.session.0, asked.closed)));
        });
    }
    // The client lives.
    assert_eq!(closed, [(1, Some(false))]);
    assert_eq!(poisoned.read(&mut [0]).unwrap(), 0);
    other.write_all(&[7]).unwrap();
    assert_eq!(bench.turn(), [(2, 1)]);
}
