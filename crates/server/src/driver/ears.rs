//! Clients that the driver hears itself. A session that is busy with what comes by the thousand lends its connection to the
//! driver, which reads it as it reads its peers' wires: nobody else has to wake up for what it asks.
//!
//! Whatever is out of the ordinary, an end included, goes back to the stream's task together with the connection.

use std::collections::HashMap;
use std::fmt;

use holdfast_core::{Command, LockName, RequestId};
use mio::net::TcpStream as Socket;
use mio::{Interest, Registry, Token};

use super::bell::SocketNews;
use super::inbox::{OPERATIONS_PER_LOOK, StreamKey};

/// The peers' wires have lower ones.
const FIRST_TOKEN: usize = 1 << (usize::BITS - 2);
/// Read in one go from one client, if there is as much.
const READ_BYTES: usize = 16 * 1024;
/// While clients are heard nothing is written to the log: some milliseconds at most.
const READS_PER_TURN_MAX: usize = 512;
const BYTES_PER_TURN_MAX: usize = 256 * 1024;
/// Half of what can come by the inbox. One client's frame more may be taken.
const OPERATIONS_PER_TURN_MAX: usize = 2_048;

/// What a client asks for, each under the number under which it is answered.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    pub(crate) operations: Vec<(RequestId, Command)>,
    pub(crate) looks: Vec<(RequestId, LockName)>,
    pub(crate) pings: usize,
    /// Of all that was looked at, whether or not it was taken.
    pub(crate) bytes: usize,
}

impl Heard {
    /// How much there is to do, counted in operations.
    fn weight(&self) -> usize {
        self.operations.len() + self.looks.len() * OPERATIONS_PER_LOOK + self.pings
    }

    /// As much as one client may have in a turn, but for the rest of a frame.
    pub(crate) fn is_much(&self) -> bool {
        self.weight() >= OPERATIONS_PER_TURN_MAX / 4
    }
}

/// Who makes operations of what a client sends. Waits for nobody.
pub(crate) trait Ear: fmt::Debug + Send {
    /// Reads once at most.
    fn hear(&mut self, socket: &mut Socket, scratch: &mut [u8], heard: &mut Heard) -> AfterHearing;

    /// To the stream's task.
    fn give_back(self: Box<Self>, socket: Socket);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterHearing {
    /// All that there was has been heard.
    Silence,
    More,
    /// The task has to see to what comes next.
    GiveBack,
}

#[derive(Debug)]
pub(super) struct Ears {
    listening: HashMap<usize, Listening>,
    tokens: HashMap<StreamKey, usize>,
    last_token: usize,
    /// Those with something to read, in the order in which it came.
    ready: Vec<usize>,
    scratch: Vec<u8>,
}

#[derive(Debug)]
struct Listening {
    stream: StreamKey,
    ear: Box<dyn Ear>,
    socket: Socket,
    /// There may be more to read. The system tells of news, not of what is left.
    is_ready: bool,
    /// After what there is to read, nothing comes.
    has_ended: bool,
}

impl Default for Ears {
    fn default() -> Ears {
        Ears {
            listening: HashMap::new(),
            tokens: HashMap::new(),
            last_token: FIRST_TOKEN,
            ready: Vec::new(),
            scratch: vec![0; READ_BYTES],
        }
    }
}

impl Ears {
    /// If it cannot be heard here its task goes on reading it.
    pub(super) fn listen(
        &mut self,
        stream: StreamKey,
        ear: Box<dyn Ear>,
        mut socket: Socket,
        registry: &Registry,
    ) {
        let token = self.last_token + 1;
        if self.tokens.contains_key(&stream) {
            return ear.give_back(socket);
        }
        if let Err(error) = registry.register(&mut socket, Token(token), Interest::READABLE) {
            tracing::debug!(%error, "a client cannot be heard by the driver");
            return ear.give_back(socket);
        }
        self.last_token = token;
        self.tokens.insert(stream, token);
        let (is_ready, has_ended) = (true, false);
        self.listening.insert(token, Listening { stream, ear, socket, is_ready, has_ended });
        self.ready.push(token);
    }

    /// There is something to read.
    pub(super) fn touch(&mut self, news: SocketNews) {
        let token = news.token.0;
        if let Some(listening) = self.listening.get_mut(&token) {
            listening.has_ended |= news.has_ended;
            if !std::mem::replace(&mut listening.is_ready, true) {
                self.ready.push(token);
            }
        }
    }

    pub(super) fn have_more(&self) -> bool {
        !self.ready.is_empty()
    }

    /// What clients ask for, as much as a turn may take. Of a stream that has ended nothing is heard.
    pub(super) fn hear(
        &mut self,
        registry: &Registry,
        is_open: impl Fn(StreamKey) -> bool,
        mut take: impl FnMut(StreamKey, Heard),
    ) {
        let (mut reads, mut bytes, mut operations) = (0, 0, 0);
        let mut ready = std::mem::take(&mut self.ready).into_iter();
        while reads < READS_PER_TURN_MAX
            && bytes < BYTES_PER_TURN_MAX
            && operations < OPERATIONS_PER_TURN_MAX
        {
            let Some(token) = ready.next() else { break };
            let Some(listening) = self.listening.get_mut(&token) else { continue };
            if !is_open(listening.stream) {
                self.give_back(token, registry);
                continue;
            }
            let mut heard = Heard::default();
            let Listening { ear, socket, .. } = listening;
            let after = ear.hear(socket, &mut self.scratch, &mut heard);
            reads += 1;
            operations += heard.weight();
            bytes += heard.bytes;
            take(listening.stream, heard);
            listening.is_ready = after == AfterHearing::More || listening.has_ended;
            match after {
                AfterHearing::GiveBack => self.give_back(token, registry),
                _ if listening.is_ready => self.ready.push(token),
                _ => {}
            }
        }
        // Those who were not heard come first.
        let heard = std::mem::replace(&mut self.ready, ready.collect());
        self.ready.extend(heard);
    }

    /// The stream has ended.
    pub(super) fn leave(&mut self, stream: StreamKey, registry: &Registry) {
        if let Some(token) = self.tokens.get(&stream) {
            self.give_back(*token, registry);
        }
    }

    pub(super) fn leave_all(&mut self, registry: &Registry) {
        let all: Vec<usize> = self.tokens.values().copied().collect();
        all.into_iter().for_each(|token| self.give_back(token, registry));
    }

    fn give_back(&mut self, token: usize, registry: &Registry) {
        let Some(Listening { stream, ear, mut socket, .. }) = self.listening.remove(&token) else {
            return;
        };
        self.tokens.remove(&stream);
        // The connection lives on, and would be watched for ever.
        if let Err(error) = registry.deregister(&mut socket) {
            tracing::warn!(%error, "a client's connection is still watched by the driver");
        }
        ear.give_back(socket);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::sync::mpsc;
    use std::time::Duration;

    use holdfast_core::{SessionId, StreamId};
    use mio::{Events, Poll};

    use super::*;

    /// Makes an operation of each byte. One that is zero is for the task.
    #[derive(Debug)]
    struct EveryByte(mpsc::Sender<Socket>);

    impl Ear for EveryByte {
        fn hear(
            &mut self,
            socket: &mut Socket,
            scratch: &mut [u8],
            heard: &mut Heard,
        ) -> AfterHearing {
            match socket.read(scratch) {
                Ok(0) => AfterHearing::GiveBack,
                Ok(read) => {
                    for byte in scratch.iter().take(read).take_while(|byte| **byte > 0) {
                        heard.operations.push((RequestId((*byte).into()), Command::Tick));
                    }
                    let is_common = !scratch[..read].contains(&0);
                    heard.bytes += read;
                    match read {
                        _ if !is_common => AfterHearing::GiveBack,
                        READ_BYTES => AfterHearing::More,
                        _ => AfterHearing::Silence,
                    }
                }
                Err(_) => AfterHearing::Silence,
            }
        }

        fn give_back(self: Box<Self>, socket: Socket) {
            let _ = self.0.send(socket);
        }
    }

    struct Bench {
        ears: Ears,
        poll: Poll,
        events: Events,
        returned: mpsc::Receiver<Socket>,
        back: mpsc::Sender<Socket>,
        listener: TcpListener,
    }

    fn key(number: u128) -> StreamKey {
        StreamKey { session: SessionId(number), stream: StreamId(1) }
    }

    impl Bench {
        fn new() -> Bench {
            let (back, returned) = mpsc::channel();
            Bench {
                ears: Ears::default(),
                poll: Poll::new().unwrap(),
                events: Events::with_capacity(16),
                returned,
                back,
                listener: TcpListener::bind("127.0.0.1:0").unwrap(),
            }
        }

        /// Gives the client's end.
        fn lend(&mut self, stream: u128) -> TcpStream {
            let there = TcpStream::connect(self.listener.local_addr().unwrap()).unwrap();
            let here = self.listener.accept().unwrap().0;
            here.set_nonblocking(true).unwrap();
            let ear = Box::new(EveryByte(self.back.clone()));
            let socket = Socket::from_std(here);
            self.ears.listen(key(stream), ear, socket, self.poll.registry());
            there
        }

        /// Waits for news, if nothing is left to be read, and hears.
        fn turn(&mut self) -> Vec<(u128, usize)> {
            let patience = Duration::from_secs(if self.ears.have_more() { 0 } else { 10 });
            self.poll.poll(&mut self.events, Some(patience)).unwrap();
            for event in &self.events {
                let (token, has_ended) = (event.token(), event.is_read_closed());
                self.ears.touch(SocketNews { token, has_ended });
            }
            let mut all = Vec::new();
            self.ears.hear(
                self.poll.registry(),
                |stream| stream != key(99),
                |stream, heard| all.push((stream.session.0, heard.operations.len())),
            );
            all.retain(|(_, operations)| *operations > 0);
            all
        }
    }

    #[test]
    fn what_clients_say_is_heard_in_order_and_no_turn_takes_more_than_it_may() {
        let mut bench = Bench::new();
        let mut clients = [1, 2, 3].map(|stream| bench.lend(stream));
        const SAID: usize = 5_000;
        for client in &mut clients {
            client.write_all(&[7; SAID]).unwrap();
        }
        let (mut heard, mut order) = ([0; 3], Vec::new());
        while heard != [SAID; 3] {
            let turn = bench.turn();
            let operations: usize = turn.iter().map(|(_, operations)| operations).sum();
            assert!(operations < OPERATIONS_PER_TURN_MAX + READ_BYTES, "{operations}");
            for (stream, operations) in turn {
                heard[usize::try_from(stream).unwrap() - 1] += operations;
                order.push(stream);
            }
        }
        // Nobody is heard twice while another waits.
        order.truncate(3);
        order.sort_unstable();
        assert_eq!(order, [1, 2, 3]);
        clients[1].write_all(&[7]).unwrap();
        assert_eq!(bench.turn(), [(2, 1)]);
        assert!(bench.returned.try_recv().is_err());
    }

    #[test]
    fn what_is_for_the_task_and_an_end_give_the_connection_back_unwatched() {
        let mut bench = Bench::new();
        let mut client = bench.lend(1);
        client.write_all(&[7, 7, 0]).unwrap();
        assert_eq!(bench.turn(), [(1, 2)]);
        let _here = bench.returned.try_recv().unwrap();
        // Whatever it says now, nobody wakes up here.
        client.write_all(&[7]).unwrap();
        bench.poll.poll(&mut bench.events, Some(Duration::from_millis(20))).unwrap();
        assert!(bench.events.is_empty() && bench.ears.tokens.is_empty());

        let mut client = bench.lend(1);
        client.write_all(&[7]).unwrap();
        drop(client);
        let mut heard = 0;
        let returned = loop {
            heard += bench.turn().len();
            if let Ok(socket) = bench.returned.try_recv() {
                break socket;
            }
        };
        assert_eq!((heard, returned.peer_addr().is_ok()), (1, true));
    }

    #[test]
    fn a_stream_that_has_ended_is_heard_no_more() {
        let mut bench = Bench::new();
        let (mut closed, mut unknown, mut twice) = (bench.lend(1), bench.lend(99), bench.lend(2));
        let second = bench.lend(2);
        assert!(bench.returned.try_recv().is_ok(), "it is heard already");
        for client in [&mut closed, &mut unknown] {
            client.write_all(&[7]).unwrap();
        }
        bench.ears.leave(key(1), bench.poll.registry());
        assert!(bench.turn().is_empty());
        assert_eq!(bench.returned.try_iter().count(), 2);
        twice.write_all(&[7]).unwrap();
        assert_eq!(bench.turn(), [(2, 1)]);
        bench.ears.leave_all(bench.poll.registry());
        assert_eq!(bench.returned.try_iter().count(), 1);
        drop(second);
    }
}
