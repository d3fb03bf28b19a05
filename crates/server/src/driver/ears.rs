//! Clients that the driver hears itself. A session that is busy with what comes by the thousand lends its connection to the
//! driver, which reads it as it reads its peers' wires: nobody else has to wake up for what it asks.
//!
//! Whatever is out of the ordinary, an end included, goes back to the stream's task together with the connection.

use std::collections::HashMap;
use std::fmt;

use holdfast_core::{Command, LockName, RequestId};
use mio::net::TcpStream as Socket;
use mio::{Interest, Registry, Token};

use super::poller::SocketNews;
use holdfast_engine::StreamKey;

use super::inbox::OPERATIONS_PER_LOOK;

#[cfg(test)]
pub(super) mod tests;

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
