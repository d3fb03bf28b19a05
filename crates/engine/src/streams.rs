//! The session streams that are served, and what each is to be told.

use std::collections::HashMap;

use holdfast_core::{SessionId, StreamId};

use crate::answer::{Delivery, StreamKey};
use crate::planted::Bug;

/// So that a frame of them stays far below what a client takes, however long the names are.
const DELIVERIES_PER_LIST_MAX: usize = 4_096;

/// Why a stream is told no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutOff {
    SlowReader,
    /// Its task has ended. It closes the stream in a moment, and only then is known whether the client is gone.
    Gone,
}

/// Deliveries are gathered and leave together, one list per stream. `S` is what takes a stream's lists.
#[derive(Debug)]
pub struct Streams<S> {
    streams: HashMap<StreamKey, Stream<S>>,
    /// The latest stream of each session: it takes the notices.
    latest: HashMap<SessionId, StreamId>,
    /// What there is to tell.
    gathered: Vec<(StreamKey, Vec<Delivery>)>,
    /// Streams that have ended, and the last that they are told.
    ended: Vec<(S, Vec<Delivery>)>,
}

#[derive(Debug)]
struct Stream<S> {
    handle: S,
    /// Where it is gathered, if there is anything.
    place: Option<usize>,
    /// How much there was the last time.
    told_last: usize,
}

impl<S> Default for Streams<S> {
    fn default() -> Streams<S> {
        Streams {
            streams: HashMap::new(),
            latest: HashMap::new(),
            gathered: Vec::new(),
            ended: Vec::new(),
        }
    }
}

impl<S> Streams<S> {
    pub fn open(&mut self, key: StreamKey, handle: S) {
        let latest = self.latest.entry(key.session).or_insert(key.stream);
        let is_older = key.stream < *latest || Bug::NoticeToOlderStream.is_active();
        *latest = if is_older { *latest } else { key.stream };
        self.streams.insert(key, Stream { handle, place: None, told_last: 0 });
    }

    /// False if it was closed before.
    pub fn close(&mut self, key: StreamKey) -> bool {
        if self.latest.get(&key.session) == Some(&key.stream) {
            self.latest.remove(&key.session);
        }
        self.streams.remove(&key).is_some()
    }

    pub fn tell(&mut self, stream: StreamKey, delivery: Delivery) {
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

    /// Tells a session what it did not ask for.
    pub fn tell_session(&mut self, session: SessionId, delivery: Delivery) {
        if let Some(stream) = self.latest.get(&session).copied() {
            self.tell(StreamKey { session, stream }, delivery);
        }
    }

    pub fn tell_all(&mut self, notice: impl Fn() -> Delivery) {
        for stream in self.keys() {
            self.tell(stream, notice());
        }
    }

    /// Ends all streams. The last that each is told is this.
    pub fn end_all(&mut self, last_word: impl Fn() -> Delivery) {
        for key in self.keys() {
            let Some(Stream { handle, place, .. }) = self.streams.remove(&key) else { continue };
            let gathered = place.and_then(|place| self.gathered.get_mut(place));
            let mut list = gathered.map(|(_, list)| std::mem::take(list)).unwrap_or_default();
            list.push(last_word());
            self.ended.push((handle, list));
        }
        self.gathered.clear();
        self.latest.clear();
    }

    /// Hands each stream its list. One that does not read is closed.
    pub fn deliver(
        &mut self,
        mut hand_over: impl FnMut(&mut S, Vec<Delivery>) -> Result<(), CutOff>,
    ) {
        for (mut handle, list) in std::mem::take(&mut self.ended) {
            let _ = in_pieces(list, |piece| hand_over(&mut handle, piece));
        }
        let mut gathered = std::mem::take(&mut self.gathered);
        for (stream, list) in gathered.drain(..) {
            let Some(state) = self.streams.get_mut(&stream) else { continue };
            state.place = None;
            state.told_last = list.len();
            let handed_over = in_pieces(list, |piece| hand_over(&mut state.handle, piece));
            if handed_over == Err(CutOff::SlowReader) {
                self.close(stream);
            }
        }
        self.gathered = gathered;
    }

    /// How many streams [`Streams::deliver`] has a list for.
    pub fn list_count(&self) -> usize {
        self.ended.len() + self.gathered.len()
    }

    pub fn get(&self, key: StreamKey) -> Option<&S> {
        self.streams.get(&key).map(|stream| &stream.handle)
    }

    pub fn len(&self) -> usize {
        self.streams.len()
    }

    pub fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }

    /// In an order that is the same in every run.
    fn keys(&self) -> Vec<StreamKey> {
        let mut keys: Vec<StreamKey> = self.streams.keys().copied().collect();
        keys.sort_unstable();
        keys
    }
}

fn in_pieces(
    mut list: Vec<Delivery>,
    mut hand_over: impl FnMut(Vec<Delivery>) -> Result<(), CutOff>,
) -> Result<(), CutOff> {
    while !list.is_empty() {
        let rest = list.split_off(list.len().min(DELIVERIES_PER_LIST_MAX));
        hand_over(list)?;
        list = rest;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use holdfast_core::RequestId;

    use super::*;

    fn key(session: u128, stream: u64) -> StreamKey {
        StreamKey { session: SessionId(session), stream: StreamId(stream) }
    }

    fn queued(request: u64) -> Delivery {
        Delivery::Queued { request: RequestId(request), position: 1 }
    }

    /// What each stream is handed: the list's requests, zero for a last word.
    fn delivered(streams: &mut Streams<u64>) -> Vec<(u64, Vec<u64>)> {
        let mut told = Vec::new();
        streams.deliver(|handle, list| {
            let request = |delivery: &Delivery| match delivery {
                Delivery::Queued { request, .. } => request.0,
                _ => 0,
            };
            told.push((*handle, list.iter().map(request).collect()));
            Ok(())
        });
        told
    }

    #[test]
    fn each_stream_is_told_its_own_in_order_and_in_one_list() {
        let mut streams = Streams::default();
        for session in 1..=3 {
            streams.open(key(session, 1), session as u64);
        }
        for turn in [0, 10] {
            for (session, request) in [(1, 1), (1, 2), (2, 3), (1, 4), (3, 5), (3, 6), (2, 7)] {
                streams.tell(key(session, 1), queued(turn + request));
                if turn + request == 5 {
                    streams.close(key(3, 1));
                }
            }
            let expected = [(1, vec![turn + 1, turn + 2, turn + 4]), (2, vec![turn + 3, turn + 7])];
            assert_eq!(delivered(&mut streams), expected);
        }
    }

    #[test]
    fn a_notice_goes_to_the_latest_stream_in_whatever_order_they_were_opened() {
        for order in [[7, 8], [8, 7]] {
            let mut streams = Streams::default();
            order.into_iter().for_each(|stream| streams.open(key(1, stream), stream));
            streams.tell_session(SessionId(1), queued(5));
            assert_eq!(delivered(&mut streams), [(8, vec![5])]);
        }
    }

    #[test]
    fn a_stream_that_ends_is_told_what_there_was_for_it_and_then_nothing_more() {
        let mut streams = Streams::default();
        streams.open(key(1, 1), 1);
        streams.open(key(2, 1), 2);
        streams.tell(key(2, 1), queued(9));
        streams.end_all(|| Delivery::LeaderMoved { leader: None });
        streams.tell(key(2, 1), queued(10));
        assert_eq!(delivered(&mut streams), [(1, vec![0]), (2, vec![9, 0])]);
        assert!(streams.is_empty());
    }

    #[test]
    fn a_stream_that_does_not_read_is_closed_and_one_whose_task_is_gone_is_not() {
        let mut streams = Streams::default();
        for (session, cut_off) in [(1, CutOff::SlowReader), (2, CutOff::Gone)] {
            streams.open(key(session, 1), ());
            streams.tell(key(session, 1), queued(1));
            streams.deliver(|(), _| Err(cut_off));
        }
        assert_eq!(streams.keys(), [key(2, 1)]);
    }

    #[test]
    fn a_long_list_is_cut_into_pieces() {
        let mut streams = Streams::default();
        streams.open(key(1, 1), 1);
        (0..2 * DELIVERIES_PER_LIST_MAX + 1).for_each(|_| streams.tell(key(1, 1), queued(1)));
        let lengths: Vec<usize> =
            delivered(&mut streams).iter().map(|(_, list)| list.len()).collect();
        assert_eq!(lengths, [DELIVERIES_PER_LIST_MAX, DELIVERIES_PER_LIST_MAX, 1]);
    }
}
