//! The session streams that this node serves, and what each is to be told at the end of the turn.

use std::collections::HashMap;
use std::time::Duration;

use holdfast_core::{SessionId, Span, StreamId};
use tokio::sync::mpsc;

use super::heartbeats::MayWait;
use super::inbox::{Delivery, StreamKey};

/// So that a frame of them stays far below what a client takes, however long the names are.
const DELIVERIES_PER_LIST_MAX: usize = 4_096;

/// Deliveries are gathered during a turn and leave together, one list per stream.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    streams: HashMap<StreamKey, Stream>,
    /// The latest stream of each session: it takes the notices.
    latest: HashMap<SessionId, StreamId>,
    /// Those that have something to be told this turn.
    dirty: Vec<StreamKey>,
}

#[derive(Debug)]
struct Stream {
    outbox: mpsc::Sender<Vec<Delivery>>,
    gathered: Vec<Delivery>,
    may_wait: MayWait,
}

impl Streams {
    pub(crate) fn open(&mut self, key: StreamKey, outbox: mpsc::Sender<Vec<Delivery>>) {
        self.open_telling(key, outbox, MayWait::default());
    }

    /// The same, for one that wants to know whether its heartbeats may wait.
    pub(super) fn open_telling(
        &mut self,
        key: StreamKey,
        outbox: mpsc::Sender<Vec<Delivery>>,
        may_wait: MayWait,
    ) {
        let latest = self.latest.entry(key.session).or_insert(key.stream);
        *latest = key.stream.max(*latest);
        self.streams.insert(key, Stream { outbox, gathered: Vec::new(), may_wait });
    }

    /// Its session has this TTL.
    pub(super) fn begin(&self, key: StreamKey, ttl: Span, tick: Duration) {
        if let Some(stream) = self.streams.get(&key) {
            stream.may_wait.set_for(ttl, tick);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.streams.len()
    }

    /// False if it was closed before.
    pub(crate) fn close(&mut self, key: StreamKey) -> bool {
        if self.latest.get(&key.session) == Some(&key.stream) {
            self.latest.remove(&key.session);
        }
        self.streams.remove(&key).is_some()
    }

    pub(crate) fn tell(&mut self, stream: StreamKey, delivery: Delivery) {
        if let Some(state) = self.streams.get_mut(&stream) {
            if state.gathered.is_empty() {
                self.dirty.push(stream);
            }
            state.gathered.push(delivery);
        }
    }

    pub(crate) fn tell_session(&mut self, session: SessionId, delivery: Delivery) {
        if let Some(stream) = self.latest.get(&session).copied() {
            self.tell(StreamKey { session, stream }, delivery);
        }
    }

    pub(super) fn tell_all(&mut self, notice: impl Fn() -> Delivery) {
        let all: Vec<StreamKey> = self.streams.keys().copied().collect();
        for stream in all {
            self.tell(stream, notice());
        }
    }

    /// Sends what was gathered. A stream that does not read is cut off: dropping its outbox ends it.
    pub(crate) fn flush(&mut self) {
        for stream in std::mem::take(&mut self.dirty) {
            let Some(state) = self.streams.get_mut(&stream) else { continue };
            let mut gathered = std::mem::take(&mut state.gathered);
            while !gathered.is_empty() {
                let rest = gathered.split_off(gathered.len().min(DELIVERIES_PER_LIST_MAX));
                if let Err(error) = state.outbox.try_send(gathered) {
                    tracing::warn!(%error, "a stream is cut off");
                    self.close(stream);
                    break;
                }
                gathered = rest;
            }
        }
    }

    /// Says a last word to all streams and ends them.
    pub(super) fn end_all(&mut self, last_word: impl Fn() -> Delivery) {
        self.tell_all(last_word);
        self.flush();
        self.streams.clear();
        self.latest.clear();
    }
}
