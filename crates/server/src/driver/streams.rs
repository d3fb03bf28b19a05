//! The session streams that this node serves, and what each is to be told at the end of the turn.

use std::collections::HashMap;

use holdfast_core::{SessionId, StreamId};
use tokio::sync::mpsc;

use super::inbox::Delivery;

/// Deliveries are gathered during a turn and leave together, one list per stream.
#[derive(Debug, Default)]
pub(super) struct Streams {
    streams: HashMap<StreamId, Stream>,
    by_session: HashMap<SessionId, StreamId>,
    /// Those that have something to be told this turn.
    dirty: Vec<StreamId>,
}

#[derive(Debug)]
struct Stream {
    session: SessionId,
    outbox: mpsc::Sender<Vec<Delivery>>,
    gathered: Vec<Delivery>,
}

impl Streams {
    /// A session has one stream; the latest takes the notices.
    pub(super) fn open(
        &mut self,
        stream: StreamId,
        session: SessionId,
        outbox: mpsc::Sender<Vec<Delivery>>,
    ) {
        self.by_session.insert(session, stream);
        self.streams.insert(stream, Stream { session, outbox, gathered: Vec::new() });
    }

    /// Gives the session that the stream served.
    pub(super) fn close(&mut self, stream: StreamId) -> Option<SessionId> {
        let session = self.streams.remove(&stream)?.session;
        if self.by_session.get(&session) == Some(&stream) {
            self.by_session.remove(&session);
        }
        Some(session)
    }

    pub(super) fn tell(&mut self, stream: StreamId, delivery: Delivery) {
        if let Some(state) = self.streams.get_mut(&stream) {
            if state.gathered.is_empty() {
                self.dirty.push(stream);
            }
            state.gathered.push(delivery);
        }
    }

    pub(super) fn tell_session(&mut self, session: SessionId, delivery: Delivery) {
        if let Some(stream) = self.by_session.get(&session) {
            self.tell(*stream, delivery);
        }
    }

    /// Sends what was gathered. A stream that does not read is cut off: dropping its outbox ends it.
    pub(super) fn flush(&mut self) {
        for stream in std::mem::take(&mut self.dirty) {
            let Some(state) = self.streams.get_mut(&stream) else { continue };
            let gathered = std::mem::take(&mut state.gathered);
            if let Err(error) = state.outbox.try_send(gathered) {
                tracing::warn!(stream = stream.0, %error, "a stream is cut off");
                self.close(stream);
            }
        }
    }

    /// Says a last word to all streams and ends them.
    pub(super) fn end_all(&mut self, last_word: impl Fn() -> Delivery) {
        let all: Vec<StreamId> = self.streams.keys().copied().collect();
        for stream in &all {
            self.tell(*stream, last_word());
        }
        self.flush();
        self.streams.clear();
        self.by_session.clear();
    }
}
