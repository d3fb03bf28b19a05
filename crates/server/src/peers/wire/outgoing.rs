//! The shard's messages to one peer.

use std::io::{self, Read, Write};

use holdfast_replica::GroupId;

use crate::transport::ByteStream;

/// Messages of one loop turn, in the order in which they were made.
pub(in crate::peers) type Messages = Vec<(GroupId, Vec<u8>)>;

/// How many bytes may wait for a peer that reads more slowly than this node writes.
const UNSENT_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Why messages were dropped.
#[derive(Debug)]
pub(in crate::peers) enum NotSent {
    /// Too many bytes wait: the peer does not read.
    Full,
    Broken(io::Error),
}

/// The sending end of a wire: a connection that carries consensus messages one way (`peers/wire.rs`).
#[derive(Debug)]
pub(in crate::peers) struct WireOut<S = Box<dyn ByteStream>> {
    socket: S,
    unsent: Vec<u8>,
    /// How many bytes of `unsent` the socket has taken. They are removed once they are more than half of it.
    sent: usize,
}

impl<S: Write> WireOut<S> {
    pub(in crate::peers) fn new(socket: S) -> WireOut<S> {
        WireOut { socket, unsent: Vec::new(), sent: 0 }
    }

    /// Never waits. Bytes for which the socket has no room stay in `unsent`, and the next call tries again.
    pub(in crate::peers) fn send(&mut self, messages: &Messages) -> Result<(), NotSent> {
        self.flush().map_err(NotSent::Broken)?;
        if messages.is_empty() {
            return Ok(());
        }
        if self.unsent.len() - self.sent > UNSENT_BYTES_MAX {
            return Err(NotSent::Full);
        }
        if self.sent > self.unsent.len() / 2 {
            self.unsent.drain(..self.sent);
            self.sent = 0;
        }
        for (group, message) in messages {
            let length = u32::try_from(message.len()).ok();
            let Some(length) = length.filter(|_| message.len() <= super::MESSAGE_BYTES_MAX) else {
                return Err(NotSent::Broken(io::ErrorKind::FileTooLarge.into()));
            };
            self.unsent.extend_from_slice(&length.to_le_bytes());
            self.unsent.extend_from_slice(&group.0.to_le_bytes());
            self.unsent.extend_from_slice(message);
        }
        self.flush().map_err(NotSent::Broken)
    }

    /// Sends what the socket has room for.
    fn flush(&mut self) -> io::Result<()> {
        while self.sent < self.unsent.len() {
            match self.socket.write(&self.unsent[self.sent..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(bytes) => self.sent += bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        match self.socket.flush() {
            Ok(()) => {}
            // A TLS stream may hold bytes for which the socket has no room. A later call flushes them.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        const KEPT_BYTES_MAX: usize = 1024 * 1024;
        self.unsent.clear();
        self.unsent.shrink_to(KEPT_BYTES_MAX);
        self.sent = 0;
        Ok(())
    }
}

impl WireOut {
    /// Fails if the connection has ended. The peer sends nothing on a wire, so any byte from it is an error, too.
    pub(in crate::peers) fn check(&mut self) -> io::Result<()> {
        match self.socket.read(&mut [0]) {
            Ok(_) => Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: GroupId = GroupId(1);

    /// A writer that takes `room` bytes, and then blocks until a test gives it more room.
    #[derive(Debug, Default)]
    struct Narrow {
        room: usize,
        taken: Vec<u8>,
    }

    impl Write for Narrow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let taken = bytes.len().min(self.room);
            if taken == 0 {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            self.room -= taken;
            self.taken.extend_from_slice(&bytes[..taken]);
            Ok(taken)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn messages_that_do_not_fit_are_sent_later_and_in_order() {
        let mut wire = WireOut::new(Narrow { room: 11, ..Narrow::default() });
        wire.send(&vec![(GROUP, b"first".to_vec())]).unwrap();
        wire.send(&vec![(GroupId(2), b"second".to_vec())]).unwrap();
        assert_eq!(wire.socket.taken, b"\x05\0\0\0\x01\0\0\0fir");
        wire.socket.room = 100;
        wire.send(&Vec::new()).unwrap();
        assert_eq!(wire.socket.taken, b"\x05\0\0\0\x01\0\0\0first\x06\0\0\0\x02\0\0\0second");
        assert!(wire.unsent.is_empty());
    }

    #[test]
    fn a_peer_that_does_not_read_costs_a_bounded_amount_of_memory() {
        const MIB: usize = 1024 * 1024;
        let mut wire = WireOut::new(Narrow::default());
        let mut sent = 0;
        while wire.send(&vec![(GROUP, vec![0; MIB])]).is_ok() {
            sent += 1;
        }
        assert_eq!(sent, 64);
        wire.socket.room = 100 * MIB;
        wire.send(&Vec::new()).expect("there is room again");
        assert!(wire.unsent.capacity() <= MIB);
        wire.send(&vec![(GROUP, vec![1])]).unwrap();
    }

    #[test]
    fn the_buffer_stays_small_for_a_peer_that_is_always_a_little_behind() {
        const KIB: usize = 1024;
        let mut wire = WireOut::new(Narrow { room: 10 * KIB, ..Narrow::default() });
        for _ in 0..1_000 {
            wire.send(&vec![(GROUP, vec![0; KIB])]).unwrap();
            let behind = wire.unsent.len() - wire.sent;
            // All but one byte.
            wire.socket.room = behind.max(1) - 1 + KIB;
            wire.socket.taken.clear();
        }
        assert!(wire.unsent.len() < 64 * KIB, "{}", wire.unsent.len());
    }
}
