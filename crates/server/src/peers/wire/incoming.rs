//! What the peers say to the shard.

use std::collections::BTreeMap;
use std::io::{self, Read};

use holdfast_replica::{GroupId, NodeId};
use mio::{Interest, Registry, Token};

use super::{HEADER_BYTES, MESSAGE_BYTES_MAX};
use crate::inbox::SocketEvents;
use crate::transport::ByteStream;

/// So that one peer with much to say does not keep the others, and the clients, waiting.
const READS_PER_TURN_MAX: usize = 16;
const READ_BYTES: usize = 256 * 1024;

/// The incoming peer connections: one from each peer that has connected.
#[derive(Debug)]
pub(crate) struct WiresIn {
    wires: BTreeMap<NodeId, WireIn<Box<dyn ByteStream>>>,
    last_token: Token,
    /// What was just read.
    scratch: Vec<u8>,
}

#[derive(Debug)]
struct WireIn<S> {
    socket: S,
    /// Of the ticket that opened it. Tickets that are issued later have higher ones.
    number: u64,
    token: Token,
    /// There may be more to read. The system tells of news, not of what is left.
    has_more: bool,
    /// After what there is to read, nothing comes.
    has_ended: bool,
    /// The beginning of a message whose end has not come.
    begun: Vec<u8>,
}

impl WiresIn {
    /// Tokens are given from the one after this.
    pub(crate) fn new(last_token: Token) -> WiresIn {
        WiresIn { wires: BTreeMap::new(), last_token, scratch: vec![0; READ_BYTES] }
    }

    /// A peer that connects again has given up the wire before.
    pub(crate) fn add(
        &mut self,
        from: NodeId,
        number: u64,
        mut socket: Box<dyn ByteStream>,
        registry: &Registry,
    ) {
        self.last_token.0 += 1;
        let token = self.last_token;
        if self.wires.get(&from).is_some_and(|newer| newer.number > number) {
            return end(&mut *socket);
        }
        if let Err(error) = registry.register(&mut socket, token, Interest::READABLE) {
            tracing::warn!(%from, %error, "a peer's wire cannot be read");
            return end(&mut *socket);
        }
        let (has_more, has_ended) = (true, false);
        let wire = WireIn { socket, number, token, has_more, has_ended, begun: Vec::new() };
        if let Some(mut before) = self.wires.insert(from, wire) {
            end(&mut *before.socket);
        }
    }

    /// There is something to read.
    pub(crate) fn touch(&mut self, news: SocketEvents) {
        for wire in self.wires.values_mut().filter(|wire| wire.token == news.token) {
            wire.has_more = true;
            wire.has_ended |= news.has_ended;
        }
    }

    /// The peer can be heard, or said something that is not read yet.
    pub(crate) fn has_one_from(&self, node: NodeId) -> bool {
        self.wires.contains_key(&node)
    }

    pub(crate) fn have_more(&self) -> bool {
        self.wires.values().any(|wire| wire.has_more)
    }

    /// Reads what there is, and drops the wires that have ended, and those whose message `take` refuses.
    pub(crate) fn read(&mut self, mut take: impl FnMut(NodeId, GroupId, &[u8]) -> io::Result<()>) {
        let scratch = &mut self.scratch;
        self.wires.retain(|from, wire| {
            if !wire.has_more {
                return true;
            }
            match wire.read(scratch, |group, message| take(*from, group, message)) {
                Ok(()) => true,
                Err(error) => {
                    tracing::debug!(%from, %error, "a peer's wire ended");
                    end(&mut *wire.socket);
                    false
                }
            }
        });
    }
}

/// To close it would not do: the exchange has the socket as well. The peer notices, and connects again.
fn end(socket: &mut dyn ByteStream) {
    // It may have ended already.
    let _ = socket.end();
}

impl<S: Read> WireIn<S> {
    fn read(
        &mut self,
        scratch: &mut [u8],
        mut take: impl FnMut(GroupId, &[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        for _ in 0..READS_PER_TURN_MAX {
            match self.socket.read(scratch) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(bytes) => {
                    self.pass_on(&scratch[..bytes], &mut take)?;
                    // That was all. Of what comes after it, and of an end after it, the system will tell.
                    if bytes < scratch.len() && !self.has_ended {
                        self.has_more = false;
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.has_more = false;
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn pass_on(
        &mut self,
        read: &[u8],
        take: &mut impl FnMut(GroupId, &[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        if self.begun.is_empty() {
            let rest = cut(read, take)?;
            self.begun.extend_from_slice(rest);
            return Ok(());
        }
        self.begun.extend_from_slice(read);
        let rest = cut(&self.begun, take)?.len();
        self.begun.drain(..self.begun.len() - rest);
        if self.begun.len() < READ_BYTES {
            self.begun.shrink_to(READ_BYTES);
        }
        Ok(())
    }
}

/// Takes the whole messages; gives what is left of the bytes.
fn cut<'a>(
    mut bytes: &'a [u8],
    take: &mut impl FnMut(GroupId, &[u8]) -> io::Result<()>,
) -> io::Result<&'a [u8]> {
    while let Some((header, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() {
        let [l0, l1, l2, l3, g0, g1, g2, g3] = *header;
        let length = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
        if length > MESSAGE_BYTES_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a message is too long"));
        }
        let Some((message, rest)) = rest.split_at_checked(length) else { break };
        take(GroupId(u32::from_le_bytes([g0, g1, g2, g3])), message)?;
        bytes = rest;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    use mio::Poll;
    use proptest::prelude::*;

    use super::super::WireOut;
    use super::*;

    /// Gives the bytes in pieces, as a network does.
    struct Pieces {
        bytes: Vec<u8>,
        sizes: Vec<usize>,
    }

    impl Read for Pieces {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let Some(size) = self.sizes.pop() else {
                return Err(io::ErrorKind::WouldBlock.into());
            };
            let size = size.min(self.bytes.len()).min(into.len());
            into[..size].copy_from_slice(&self.bytes[..size]);
            self.bytes.drain(..size);
            if size == 0 { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(size) }
        }
    }

    fn wire_of(bytes: Vec<u8>, sizes: Vec<usize>) -> WireIn<Pieces> {
        let socket = Pieces { bytes, sizes };
        let (has_more, has_ended) = (true, false);
        WireIn { socket, number: 1, token: Token(1), has_more, has_ended, begun: Vec::new() }
    }

    proptest! {
        #[test]
        fn messages_arrive_whole_and_in_order_however_they_are_cut(
            messages in proptest::collection::vec((0..3u32, proptest::collection::vec(any::<u8>(), 0..40)), 0..20),
            sizes in proptest::collection::vec(1..60usize, 0..40),
        ) {
            let messages: Vec<_> = messages.into_iter().map(|(group, bytes)| (GroupId(group), bytes)).collect();
            let mut bytes = Vec::new();
            WireOut::new(&mut bytes).send(&messages).unwrap();
            let mut wire = wire_of(bytes, sizes);
            let mut taken = Vec::new();
            while !wire.socket.bytes.is_empty() {
                // The system tells that there is more.
                wire.has_more = true;
                wire.socket.sizes.insert(0, 50);
                wire.read(&mut [0; 50], |group, message| {
                    taken.push((group, message.to_vec()));
                    Ok(())
                }).unwrap();
            }
            prop_assert_eq!(taken, messages);
            prop_assert!(wire.begun.is_empty());
        }

        #[test]
        fn arbitrary_bytes_do_not_break_a_wire(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut wire = wire_of(bytes, vec![7; 30]);
            let _ = wire.read(&mut [0; 50], |_, _| Ok(()));
        }
    }

    fn news(token: usize) -> SocketEvents {
        SocketEvents { token: Token(token), is_readable: true, has_ended: false }
    }

    #[test]
    fn the_last_message_of_a_peer_is_read_and_its_end_noticed() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut poll = Poll::new().unwrap();
        let mut wires = WiresIn::new(Token(1));
        let (socket, mut peer, _of_exchange) = connected(&listener);
        wires.add(NodeId(2), 1, socket, poll.registry());
        WireOut::new(&mut peer).send(&vec![(GroupId(7), b"farewell".to_vec())]).unwrap();
        drop(peer);
        let (mut events, mut heard) = (mio::Events::with_capacity(8), 0);
        while wires.has_one_from(NodeId(2)) {
            wires.read(|_, _, _| {
                heard += 1;
                Ok(())
            });
            if !wires.have_more() && wires.has_one_from(NodeId(2)) {
                poll.poll(&mut events, Some(std::time::Duration::from_secs(10))).unwrap();
                assert!(!events.is_empty(), "its end was not noticed");
                for event in &events {
                    let (token, has_ended) = (event.token(), event.is_read_closed());
                    wires.touch(SocketEvents { token, is_readable: true, has_ended });
                }
            }
        }
        assert_eq!(heard, 1);
    }

    /// A wire, the peer's end of it, and what else the node has of the same socket.
    fn connected(listener: &TcpListener) -> (Box<dyn ByteStream>, TcpStream, TcpStream) {
        let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (socket, _) = listener.accept().unwrap();
        socket.set_nonblocking(true).unwrap();
        let of_exchange = socket.try_clone().unwrap();
        (Box::new(mio::net::TcpStream::from_std(socket)), peer, of_exchange)
    }

    #[test]
    fn an_impossible_length_ends_the_wire_and_the_peer_notices() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let poll = Poll::new().unwrap();
        let mut wires = WiresIn::new(Token(1));
        let (socket, mut peer, _of_exchange) = connected(&listener);
        wires.add(NodeId(2), 1, socket, poll.registry());
        peer.write_all(&[0xff; 20]).unwrap();
        while wires.have_more() {
            wires.touch(news(2));
            wires.read(|_, _, _| panic!("no message"));
        }
        // Zero if it reads the end; an error if the end came as a reset.
        assert_eq!(peer.read(&mut [0]).unwrap_or(0), 0);
    }

    #[test]
    fn of_two_wires_of_a_peer_the_one_with_the_later_ticket_stays() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let poll = Poll::new().unwrap();
        let mut wires = WiresIn::new(Token(1));
        let (first, mut peer_of_first, _of_exchange) = connected(&listener);
        let (second, mut peer_of_second, _of_exchange_too) = connected(&listener);
        let (late, mut peer_of_late, _of_exchange_as_well) = connected(&listener);
        wires.add(NodeId(2), 2, first, poll.registry());
        wires.add(NodeId(2), 3, second, poll.registry());
        assert_eq!(peer_of_first.read(&mut [0]).unwrap(), 0, "replaced");
        wires.add(NodeId(2), 1, late, poll.registry());
        assert_eq!(peer_of_late.read(&mut [0]).unwrap(), 0, "too late");

        WireOut::new(&mut peer_of_second).send(&vec![(GroupId(7), b"hear".to_vec())]).unwrap();
        let mut heard = Vec::new();
        while heard.is_empty() {
            wires.touch(news(3));
            wires.read(|from, group, message| {
                heard.push((from, group, message.to_vec()));
                Ok(())
            });
        }
        assert_eq!(heard, [(NodeId(2), GroupId(7), b"hear".to_vec())]);
    }

    #[test]
    fn a_wire_whose_message_is_refused_ends_and_what_follows_on_it_is_not_taken() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let poll = Poll::new().unwrap();
        let mut wires = WiresIn::new(Token(1));
        let (socket, mut peer, _of_exchange) = connected(&listener);
        wires.add(NodeId(2), 1, socket, poll.registry());
        let messages = vec![(GroupId(7), b"forged".to_vec()), (GroupId(7), b"after".to_vec())];
        WireOut::new(&mut peer).send(&messages).unwrap();
        let mut taken = 0;
        while wires.has_one_from(NodeId(2)) {
            wires.touch(news(2));
            wires.read(|_, _, _| {
                taken += 1;
                Err(io::ErrorKind::InvalidData.into())
            });
        }
        assert_eq!(taken, 1);
        assert_eq!(peer.read(&mut [0]).unwrap_or(0), 0, "the peer sees the end");
    }
}
