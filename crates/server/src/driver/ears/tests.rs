use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::Duration;

use holdfast_core::{SessionId, StreamId};
use mio::{Events, Poll};

use super::*;

/// Makes such an operation of each byte. One that is zero is for the task.
#[derive(Debug)]
pub(in crate::driver) struct EveryByte {
    pub(in crate::driver) operation: Command,
    pub(in crate::driver) back: mpsc::Sender<Socket>,
}

impl Ear for EveryByte {
    fn hear(&mut self, socket: &mut Socket, scratch: &mut [u8], heard: &mut Heard) -> AfterHearing {
        match socket.read(scratch) {
            Ok(0) => AfterHearing::GiveBack,
            Ok(read) => {
                for byte in scratch.iter().take(read).take_while(|byte| **byte > 0) {
                    heard.operations.push((RequestId((*byte).into()), self.operation.clone()));
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
        let _ = self.back.send(socket);
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
        let ear = Box::new(EveryByte { operation: Command::Tick, back: self.back.clone() });
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
