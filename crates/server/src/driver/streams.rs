//! The session streams that this node serves, and what each is to be told at the end of the turn.

use std::collections::HashMap;
use std::time::Duration;

use holdfast_core::{SessionId, Span, StreamId};
use holdfast_proto::plain::FrameWriter;

use super::heartbeats::MayWait;
use super::inbox::{Delivery, StreamKey};
use super::outbox::{CutOff, Outbox};

/// So that a frame of them stays far below what a client takes, however long the names are.
const DELIVERIES_PER_LIST_MAX: usize = 4_096;

/// Deliveries are gathered during a turn and leave together, one list per stream.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    streams: HashMap<StreamKey, Stream>,
    /// The latest stream of each session: it takes the notices.
    latest: HashMap<SessionId, StreamId>,
    /// What there is to tell this turn.
    gathered: Vec<(StreamKey, Vec<Delivery>)>,
    /// If there is something for more streams than that, their own tasks say it, side by side.
    said_at_once_max: usize,
    /// One for all streams.
    frame: FrameWriter,
}

#[derive(Debug)]
struct Stream {
    outbox: Box<dyn Outbox>,
    /// Where it is gathered, if there is anything.
    place: Option<usize>,
    /// How much there was the last time.
    told_last: usize,
    may_wait: MayWait,
}

impl Streams {
    /// By itself it leaves everything to the streams' tasks.
    pub(super) fn saying_at_once(said_at_once_max: usize) -> Streams {
        Streams { said_at_once_max, ..Streams::default() }
    }

    pub(crate) fn open(&mut self, key: StreamKey, outbox: Box<dyn Outbox>) {
        self.open_telling(key, outbox, MayWait::default());
    }

    /// The same, for one that wants to know whether its heartbeats may wait.
    pub(super) fn open_telling(
        &mut self,
        key: StreamKey,
        outbox: Box<dyn Outbox>,
        may_wait: MayWait,
    ) {
        let latest = self.latest.entry(key.session).or_insert(key.stream);
        *latest = key.stream.max(*latest);
        self.streams.insert(key, Stream { outbox, place: None, told_last: 0, may_wait });
    }

    /// Its session has this TTL.
    pub(super) fn begin(&self, key: StreamKey, ttl: Span, tick: Duration) {
        if let Some(stream) = self.streams.get(&key) {
            stream.may_wait.set_for(ttl, tick);
        }
    }

    pub(super) fn is_open(&self, key: StreamKey) -> bool {
        self.streams.contains_key(&key)
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
        // Answers to one frame come in a row.
        if let Some((last, gathered)) = self.gathered.last_mut()
            && *last == stream
        {
            return gathered.push(delivery);
        }
        let Some(state) = self.streams.get_mut(&stream) else { return };
        let place = *state.place.get_or_insert_with(|| {
            self.gathered.push((stream, Vec::with_capacity(state.told_last)));
            self.gathered.len() - 1
        });
        if let Some((_, gathered)) = self.gathered.get_mut(place) {
            gathered.push(delivery);
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
        let at_once = self.gathered.len() <= self.said_at_once_max;
        for (stream, mut gathered) in std::mem::take(&mut self.gathered) {
            let Some(state) = self.streams.get_mut(&stream) else { continue };
            state.place = None;
            state.told_last = gathered.len();
            while !gathered.is_empty() {
                let rest = gathered.split_off(gathered.len().min(DELIVERIES_PER_LIST_MAX));
                let told = if at_once {
                    state.outbox.say(gathered, &mut self.frame)
                } else {
                    state.outbox.put(gathered)
                };
                match told {
                    Ok(()) => {}
                    // It closes the stream in a moment, and only then is known whether the client is gone.
                    Err(CutOff::Gone) => break,
                    Err(CutOff::SlowReader) => {
                        tracing::warn!("a stream is cut off: its client does not read");
                        self.close(stream);
                        break;
                    }
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

#[cfg(test)]
mod tests {
    use holdfast_core::RequestId;
    use tokio::sync::mpsc;

    use super::*;

    fn requests(outbox: &mut mpsc::Receiver<Vec<Delivery>>) -> Vec<u64> {
        let told = outbox.try_recv().unwrap_or_default().into_iter();
        let request = |delivery| match delivery {
            Delivery::Queued { request, .. } => request.0,
            other => unreachable!("{other:?}"),
        };
        told.map(request).collect()
    }

    #[test]
    fn each_stream_is_told_its_own_in_order_and_in_one_list() {
        let key = |session| StreamKey { session: SessionId(session), stream: StreamId(1) };
        let mut streams = Streams::default();
        let mut outboxes = [1, 2, 3].map(|session| {
            let (outbox, told) = mpsc::channel(8);
            streams.open(key(session), Box::new(outbox));
            told
        });
        for turn in [0, 10] {
            for (session, request) in [(1, 1), (1, 2), (2, 3), (1, 4), (3, 5), (3, 6), (2, 7)] {
                let request = RequestId(turn + request);
                streams.tell(key(session), Delivery::Queued { request, position: 1 });
                if request == RequestId(5) {
                    streams.close(key(3));
                }
            }
            streams.flush();
            let told = outboxes.each_mut().map(requests);
            let expected = [vec![1, 2, 4], vec![3, 7], vec![]];
            let of_turn = |list: Vec<u64>| list.into_iter().map(|number| turn + number);
            assert_eq!(told, expected.map(|list| of_turn(list).collect::<Vec<_>>()));
        }
    }

    /// Tells by which of the two ways it was told.
    #[derive(Debug)]
    struct Witness(std::sync::mpsc::Sender<&'static str>);

    impl Outbox for Witness {
        fn put(&mut self, _: Vec<Delivery>) -> Result<(), CutOff> {
            self.0.send("put").map_err(|_| CutOff::Gone)
        }

        fn say(&mut self, _: Vec<Delivery>, _: &mut FrameWriter) -> Result<(), CutOff> {
            self.0.send("said").map_err(|_| CutOff::Gone)
        }
    }

    #[test]
    fn answers_for_few_streams_are_said_at_once_and_those_for_many_are_left_to_their_tasks() {
        let mut streams = Streams::saying_at_once(2);
        let (seen, ways) = std::sync::mpsc::channel();
        for session in 0..3 {
            let key = StreamKey { session: SessionId(session), stream: StreamId(1) };
            streams.open(key, Box::new(Witness(seen.clone())));
        }
        for (told, way) in [(2, "said"), (3, "put"), (1, "said")] {
            for session in 0..told {
                let queued = Delivery::Queued { request: RequestId(1), position: 1 };
                streams.tell_session(SessionId(session), queued);
            }
            streams.flush();
            assert_eq!(ways.try_iter().collect::<Vec<_>>(), vec![way; told as usize]);
        }
    }
}
