//! The framed connections of clients. The shard owns each of them from its greeting to its close: it reads and writes
//! the socket on its own thread, through [`Connection`].
//!
//! In a *visit* the shard lets one connection read once and write what is pending. A connection gets a visit when the
//! poller reports its socket (*news*), when a tokio task woke it, or when its deadline has passed. A turn makes at most
//! `VISITS_PER_TURN_MAX` visits. No connection gets a second visit while another one waits for its first.
//!
//! A panic in the code of one connection closes that connection. The others, and the node, go on.

use std::collections::{HashMap, HashSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Wake;
use std::time::{Duration, Instant};

use holdfast_engine::{CutOff, Delivery, StreamKey};
use holdfast_proto::plain::FrameWriter;
use mio::{Registry, Token};

use crate::inbox::{
    AfterVisit, Asked, Connection, EndedBy, OPERATIONS_PER_TURN_MAX, Poller, SocketEvents, Visit,
    WokenConnections,
};

#[cfg(test)]
pub(super) mod tests;

/// In this file a token is the number by which mio's poller names a socket. It has nothing to do with fencing tokens.
/// The connections of other nodes have lower numbers than this one.
const FIRST_TOKEN: usize = 1 << (usize::BITS - 2);
/// Read in one go from one connection, if there is as much.
const READ_BYTES: usize = 16 * 1024;
/// The shard's thread reads connections and writes the log, one after the other. This limit and the next one bound the
/// reading in a turn to a few milliseconds.
const VISITS_PER_TURN_MAX: usize = 512;
const BYTES_PER_TURN_MAX: usize = 256 * 1024;
/// How often deadlines are looked at.
const DEADLINES_EVERY: Duration = Duration::from_millis(100);
/// How long connections have to end once the shard has.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct ConnectionWaker {
    token: usize,
    woken: Arc<WokenConnections>,
}

impl Wake for ConnectionWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.push(self.token);
    }
}

#[derive(Debug)]
pub(super) struct FramedConnections {
    connections: HashMap<usize, Entry>,
    last_token: usize,
    /// Those to be visited, in the order in which there was news of them.
    ready: VecDeque<usize>,
    woken: Arc<WokenConnections>,
    /// Those with a deadline.
    timed: HashSet<usize>,
    deadlines_at: Instant,
    scratch: Vec<u8>,
}

#[derive(Debug)]
struct Entry {
    connection: Box<dyn Connection>,
    /// The stream that it has opened and not closed.
    stream: Option<StreamKey>,
    /// Its code panicked. The next visit closes it.
    has_panicked: bool,
    /// It is among those to be visited.
    is_ready: bool,
    /// It is among those with a deadline.
    is_timed: bool,
}

impl Entry {
    /// If the connection's code panics, the engine gets none of the requests of this visit. The connection closes. The
    /// session stays open, because the client did not go away. The client resumes it on a new connection.
    fn visit(&mut self, scratch: &mut [u8], frame: &mut FrameWriter) -> (Asked, AfterVisit) {
        if self.has_panicked {
            return self.close_after_panic();
        }
        let visited = catch_unwind(AssertUnwindSafe(|| {
            let mut visit = Visit { scratch, frame, asked: Asked::default() };
            let after = self.connection.visit(&mut visit);
            (visit.asked, after)
        }));
        match visited {
            Ok((asked, after)) => {
                if asked.opened.is_some() {
                    self.stream = asked.stream;
                }
                if asked.closed.is_some() {
                    self.stream = None;
                }
                (asked, after)
            }
            Err(_) => {
                frame.clear();
                note_panic();
                self.close_after_panic()
            }
        }
    }

    fn close_after_panic(&mut self) -> (Asked, AfterVisit) {
        let stream = self.stream.take();
        let asked = Asked { stream, closed: stream.map(|_| false), ..Asked::default() };
        (asked, AfterVisit::Closed)
    }
}

fn note_panic() {
    tracing::error!(
        "a client's connection is closed, because its code panicked: please report this bug"
    );
}

impl FramedConnections {
    pub(super) fn new(woken: Arc<WokenConnections>) -> FramedConnections {
        FramedConnections {
            connections: HashMap::new(),
            last_token: FIRST_TOKEN,
            ready: VecDeque::new(),
            woken,
            timed: HashSet::new(),
            deadlines_at: Instant::now(),
            scratch: vec![0; READ_BYTES],
        }
    }

    /// The shard owns it from now on.
    pub(super) fn add(&mut self, mut connection: Box<dyn Connection>, registry: &Registry) {
        self.last_token += 1;
        let token = self.last_token;
        let waker = ConnectionWaker { token, woken: Arc::clone(&self.woken) };
        if let Err(error) = connection.register(registry, Token(token), Arc::new(waker).into()) {
            return tracing::warn!(%error, "a client's connection cannot be served");
        }
        self.connections.insert(
            token,
            Entry {
                connection,
                stream: None,
                has_panicked: false,
                is_ready: true,
                is_timed: false,
            },
        );
        self.ready.push_back(token);
    }

    pub(super) fn len(&self) -> usize {
        self.connections.len()
    }

    pub(super) fn handle_news(&mut self, news: SocketEvents) {
        if let Some(entry) = self.connections.get_mut(&news.token.0) {
            entry.connection.handle_news(news);
            Self::make_ready(&mut self.ready, news.token.0, entry);
        }
    }

    /// How long the shard may wait for something else to happen.
    pub(super) fn idle_for_at_most(&self) -> Duration {
        match (self.ready.is_empty(), self.timed.is_empty()) {
            (false, _) => Duration::ZERO,
            (true, false) => DEADLINES_EVERY,
            (true, true) => Duration::MAX,
        }
    }

    /// Visits connections, as many as a turn may. Gives what each asks, with its token.
    pub(super) fn visit(&mut self, frame: &mut FrameWriter, mut take: impl FnMut(usize, Asked)) {
        self.check_tasks_and_deadlines();
        let (mut visits, mut bytes, mut operations) = (0, 0, 0);
        let waiting = self.ready.len();
        while visits < waiting.min(VISITS_PER_TURN_MAX)
            && bytes < BYTES_PER_TURN_MAX
            && operations < OPERATIONS_PER_TURN_MAX
        {
            visits += 1;
            let Some(token) = self.ready.pop_front() else { break };
            let Some(entry) = self.connections.get_mut(&token) else { continue };
            entry.is_ready = false;
            let (asked, after) = entry.visit(&mut self.scratch, frame);
            operations += asked.weight();
            bytes += asked.bytes;
            take(token, asked);
            match after {
                AfterVisit::More => Self::make_ready(&mut self.ready, token, entry),
                AfterVisit::Rest => {}
                AfterVisit::Closed => {
                    self.remove(token);
                    continue;
                }
            }
            Self::keep_time(&mut self.timed, token, entry);
        }
    }

    /// What the engine tells a stream.
    pub(super) fn deliver(
        &mut self,
        token: usize,
        told: Vec<Delivery>,
        frame: &mut FrameWriter,
    ) -> Result<(), CutOff> {
        let Some(entry) = self.connections.get_mut(&token) else { return Err(CutOff::Gone) };
        let delivered = catch_unwind(AssertUnwindSafe(|| entry.connection.deliver(told, frame)));
        let Ok(delivered) = delivered else {
            frame.clear();
            note_panic();
            entry.has_panicked = true;
            Self::make_ready(&mut self.ready, token, entry);
            return Err(CutOff::Gone);
        };
        Self::keep_time(&mut self.timed, token, entry);
        delivered
    }

    pub(super) fn end(&mut self, token: usize, by: EndedBy) {
        if let Some(entry) = self.connections.get_mut(&token) {
            entry.connection.end(by);
            if by == EndedBy::OtherConnection {
                entry.stream = None;
            }
            Self::make_ready(&mut self.ready, token, entry);
        }
    }

    /// The shard has ended. Each connection is told so, and has some time to end.
    pub(super) fn close_all(mut self, mut poller: Poller) {
        let tokens: Vec<usize> = self.connections.keys().copied().collect();
        tokens.into_iter().for_each(|token| self.end(token, EndedBy::Shutdown));
        let (deadline, mut frame) = (Instant::now() + CLOSE_TIMEOUT, FrameWriter::default());
        loop {
            self.visit(&mut frame, |_, _| {});
            let left = deadline.saturating_duration_since(Instant::now());
            if self.connections.is_empty() || left.is_zero() {
                return;
            }
            let patience = left.min(self.idle_for_at_most());
            let news: Vec<SocketEvents> =
                poller.wait(patience, || !self.woken.is_empty()).collect();
            news.into_iter().for_each(|news| self.handle_news(news));
        }
    }

    fn remove(&mut self, token: usize) {
        self.connections.remove(&token);
        self.timed.remove(&token);
    }

    fn check_tasks_and_deadlines(&mut self) {
        for token in self.woken.take() {
            if let Some(entry) = self.connections.get_mut(&token) {
                Self::make_ready(&mut self.ready, token, entry);
            }
        }
        if self.timed.is_empty() {
            return;
        }
        let now = Instant::now();
        if now < self.deadlines_at {
            return;
        }
        self.deadlines_at = now + DEADLINES_EVERY;
        for token in &self.timed {
            if let Some(entry) = self.connections.get_mut(token)
                && entry.connection.deadline().is_some_and(|deadline| deadline <= now)
            {
                Self::make_ready(&mut self.ready, *token, entry);
            }
        }
    }

    fn make_ready(ready: &mut VecDeque<usize>, token: usize, entry: &mut Entry) {
        if !std::mem::replace(&mut entry.is_ready, true) {
            ready.push_back(token);
        }
    }

    fn keep_time(timed: &mut HashSet<usize>, token: usize, entry: &mut Entry) {
        let is_timed = entry.connection.deadline().is_some();
        if std::mem::replace(&mut entry.is_timed, is_timed) == is_timed {
            return;
        }
        if is_timed {
            timed.insert(token);
        } else {
            timed.remove(&token);
        }
    }
}
