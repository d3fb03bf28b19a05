//! What the peers say to the driver.

use std::collections::BTreeMap;
use std::io::{self, Read};

use holdfast_replica::{GroupId, NodeId};
use mio::net::TcpStream as WireSocket;
use mio::{Interest, Registry, Token};

use super::{HEADER_BYTES, MESSAGE_BYTES_MAX};

/// So that one peer with much to say does not keep the others, and the clients, waiting.
const READS_PER_TURN_MAX: usize = 16;
const READ_BYTES: usize = 256 * 1024;

/// One wire from each peer that has dialled.
#[derive(Debug)]
pub(crate) struct WiresIn {
    wires: BTreeMap<NodeId, WireIn<WireSocket>>,
    last_token: Token,
    /// What was just read.
    scratch: Vec<u8>,
}

#[derive(Debug)]
struct WireIn<S> {
    socket: S,
    token: Token,
    /// There may be more to read. The system tells of news, not of what is left.
    has_more: bool,
    /// The beginning of a message whose end has not come.
    begun: Vec<u8>,
}

impl WiresIn {
    /// Tokens are given from the one after this.
    pub(crate) fn new(last_token: Token) -> WiresIn {
        WiresIn { wires: BTreeMap::new(), last_token, scratch: vec![0; READ_BYTES] }
    }

    /// A peer that dials anew has given up the wire before.
    pub(crate) fn add(&mut self, from: NodeId, mut socket: WireSocket, registry: &Registry) {
        self.last_token.0 += 1;
        let token = self.last_token;
        match registry.register(&mut socket, token, Interest::READABLE) {
            Ok(()) => {
                let wire = WireIn { socket, token, has_more: true, begun: Vec::new() };
                self.wires.insert(from, wire);
            }
            Err(error) => tracing::warn!(%from, %error, "a peer's wire cannot be read"),
        }
    }

    /// There is something to read.
    pub(crate) fn touch(&mut self, token: Token) {
        for wire in self.wires.values_mut().filter(|wire| wire.token == token) {
            wire.has_more = true;
        }
    }

    pub(crate) fn have_more(&self) -> bool {
        self.wires.values().any(|wire| wire.has_more)
    }

    /// Reads what there is, and drops the wires that have ended.
    pub(crate) fn read(&mut self, mut take: impl FnMut(NodeId, GroupId, &[u8])) {
        let scratch = &mut self.scratch;
        self.wires.retain(|from, wire| {
            if !wire.has_more {
                return true;
            }
            match wire.read(scratch, |group, message| take(*from, group, message)) {
                Ok(()) => true,
                Err(error) => {
                    tracing::debug!(%from, %error, "a peer's wire ended");
                    false
                }
            }
        });
    }
}

impl<S: Read> WireIn<S> {
    fn read(&mut self, scratch: &mut [u8], mut take: impl FnMut(GroupId, &[u8])) -> io::Result<()> {
        for _ in 0..READS_PER_TURN_MAX {
            match self.socket.read(scratch) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(bytes) => {
                    self.pass_on(&scratch[..bytes], &mut take)?;
                    // The system tells of what comes after a read that took all there was.
                    if cfg!(unix) && bytes < scratch.len() {
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

    fn pass_on(&mut self, read: &[u8], take: &mut impl FnMut(GroupId, &[u8])) -> io::Result<()> {
        if self.begun.is_empty() {
            let rest = cut(read, take)?;
            self.begun.extend_from_slice(rest);
            return Ok(());
        }
        self.begun.extend_from_slice(read);
        let rest = cut(&self.begun, take)?.len();
        self.begun.drain(..self.begun.len() - rest);
        if self.begun.is_empty() {
            self.begun.shrink_to(READ_BYTES);
        }
        Ok(())
    }
}

/// Takes the whole messages; gives what is left of the bytes.
fn cut<'a>(mut bytes: &'a [u8], take: &mut impl FnMut(GroupId, &[u8])) -> io::Result<&'a [u8]> {
    while let Some((header, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() {
        let [l0, l1, l2, l3, g0, g1, g2, g3] = *header;
        let length = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
        if length > MESSAGE_BYTES_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a message is too long"));
        }
        let Some((message, rest)) = rest.split_at_checked(length) else { break };
        take(GroupId(u32::from_le_bytes([g0, g1, g2, g3])), message);
        bytes = rest;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
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
        WireIn { socket, token: Token(1), has_more: true, begun: Vec::new() }
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
                wire.read(&mut [0; 50], |group, message| taken.push((group, message.to_vec()))).unwrap();
            }
            prop_assert_eq!(taken, messages);
            prop_assert!(wire.begun.is_empty());
        }

        #[test]
        fn whatever_comes_nothing_breaks(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut wire = wire_of(bytes, vec![7; 30]);
            let _ = wire.read(&mut [0; 50], |_, _| {});
        }
    }

    #[test]
    fn a_length_that_nobody_sends_ends_the_wire() {
        let mut wire = wire_of(vec![0xff; 20], vec![20]);
        assert!(wire.read(&mut [0; 50], |_, _| panic!("no message")).is_err());
    }
}
