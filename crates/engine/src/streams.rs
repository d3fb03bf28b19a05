//! The session streams that this node serves, and the deliveries for each.

use std::collections::BTreeMap;

use holdfast_core::{SessionId, StreamId};
use holdfast_replica::GroupId;

use crate::answer::{Delivery, StreamKey};
use crate::planted::Bug;

/// Keeps a frame far below the limit of clients, however long the names are and however many a delivery lists.
const WEIGHT_PER_LIST_MAX: usize = 4_096;

/// Why a stream takes no more deliveries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutOff {
    SlowReader,
    /// The stream's task has ended. It will close the stream, and only then report whether the client disconnected.
    Gone,
}

/// Deliveries are gathered and sent together, one list per stream. `S` is the host's handle of a stream.
#[derive(Debug)]
pub struct Streams<S> {
    /// A session's streams are in the order in which its client opened them. The latest gets the notices.
    streams: BTreeMap<StreamKey, Stream<S>>,
    /// Deliveries that are not sent yet.
    gathered: Vec<(StreamKey, Vec<Delivery>)>,
    /// Streams that have ended, and their last deliveries.
    ended: Vec<(S, Vec<Delivery>)>,
}

#[derive(Debug)]
struct Stream<S> {
    handle: S,
    /// The stream's position in `gathered`, if it has deliveries.
    place: Option<usize>,
    /// The length of the last list.
    last_length: usize,
}

impl<S> Default for Streams<S> {
    fn default() -> Streams<S> {
        Streams { streams: BTreeMap::new(), gathered: Vec::new(), ended: Vec::new() }
    }
}

impl<S> Streams<S> {
    pub fn open(&mut self, key: StreamKey, handle: S) {
        self.streams.insert(key, Stream { handle, place: None, last_length: 0 });
    }

    /// False if it was closed before.
    pub fn close(&mut self, key: StreamKey) -> bool {
        self.streams.remove(&key).is_some()
    }

    pub fn send(&mut self, stream: StreamKey, delivery: Delivery) {
        // Answers to one frame come in a row.
        if let Some((last, gathered)) = self.gathered.last_mut()
            && *last == stream
        {
            return gathered.push(delivery);
        }
        let Some(state) = self.streams.get_mut(&stream) else { return };
        let place = *state.place.get_or_insert_with(|| {
            self.gathered.push((stream, Vec::with_capacity(state.last_length)));
            self.gathered.len() - 1
        });
        if let Some((_, gathered)) = self.gathered.get_mut(place) {
            gathered.push(delivery);
        }
    }

    /// Sends a notice to the latest stream of the group's session.
    pub fn send_to_session(&mut self, group: GroupId, session: SessionId, delivery: Delivery) {
        let key = |stream| StreamKey { group, session, stream: StreamId(stream) };
        let mut streams = self.streams.range(key(0)..=key(u64::MAX));
        let is_older = Bug::NoticeToOlderStream.is_active();
        let stream = if is_older { streams.next() } else { streams.next_back() };
        if let Some((stream, _)) = stream {
            self.send(*stream, delivery);
        }
    }

    pub fn send_to_all(&mut self, notice: impl Fn() -> Delivery) {
        let streams: Vec<StreamKey> = self.streams.keys().copied().collect();
        for stream in streams {
            self.send(stream, notice());
        }
    }

    /// Ends all streams, each with this last delivery.
    pub fn end_all(&mut self, last_delivery: impl Fn() -> Delivery) {
        let streams = std::mem::take(&mut self.streams);
        self.end(streams, last_delivery);
        self.gathered.clear();
    }

    /// Ends all streams of the group, each with this last delivery. The other streams keep what was gathered for them.
    pub fn end_group(&mut self, group: GroupId, last_delivery: impl Fn() -> Delivery) {
        let first_of = |group| StreamKey { group, session: SessionId(0), stream: StreamId(0) };
        let mut streams = self.streams.split_off(&first_of(group));
        if let Some(next) = group.0.checked_add(1) {
            self.streams.append(&mut streams.split_off(&first_of(GroupId(next))));
        }
        self.end(streams, last_delivery);
        self.gathered.retain(|(key, _)| key.group != group);
        for (place, (key, _)) in self.gathered.iter().enumerate() {
            if let Some(stream) = self.streams.get_mut(key) {
                stream.place = Some(place);
            }
        }
    }

    fn end(
        &mut self,
        streams: BTreeMap<StreamKey, Stream<S>>,
        last_delivery: impl Fn() -> Delivery,
    ) {
        for (_, Stream { handle, place, .. }) in streams {
            let gathered = place.and_then(|place| self.gathered.get_mut(place));
            let mut list = gathered.map(|(_, list)| std::mem::take(list)).unwrap_or_default();
            list.push(last_delivery());
            self.ended.push((handle, list));
        }
    }

    /// Hands each stream its list. A stream whose client does not read is closed.
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
            state.last_length = list.len();
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
}

fn in_pieces(
    mut list: Vec<Delivery>,
    mut hand_over: impl FnMut(Vec<Delivery>) -> Result<(), CutOff>,
) -> Result<(), CutOff> {
    while !list.is_empty() {
        let mut weight = 0;
        let is_past = |delivery: &Delivery| {
            weight += delivery.weight();
            weight > WEIGHT_PER_LIST_MAX
        };
        // One that is too heavy by itself goes alone.
        let length = list.iter().position(is_past).map_or(list.len(), |past| past.max(1));
        let rest = list.split_off(length);
        hand_over(list)?;
        list = rest;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use holdfast_core::{FenceToken, RequestId};

    use super::*;

    const GROUP: GroupId = GroupId::FIRST;

    fn key(session: u128, stream: u64) -> StreamKey {
        StreamKey { group: GROUP, session: SessionId(session), stream: StreamId(stream) }
    }

    fn queued(request: u64) -> Delivery {
        Delivery::Queued { request: RequestId(request), position: 1 }
    }

    /// The requests in each stream's list; zero for a last delivery.
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
    fn each_stream_gets_its_deliveries_in_order_and_in_one_list() {
        let mut streams = Streams::default();
        for session in 1..=3 {
            streams.open(key(session, 1), session as u64);
        }
        for turn in [0, 10] {
            for (session, request) in [(1, 1), (1, 2), (2, 3), (1, 4), (3, 5), (3, 6), (2, 7)] {
                streams.send(key(session, 1), queued(turn + request));
                if turn + request == 5 {
                    streams.close(key(3, 1));
                }
            }
            let expected = [(1, vec![turn + 1, turn + 2, turn + 4]), (2, vec![turn + 3, turn + 7])];
            assert_eq!(delivered(&mut streams), expected);
        }
    }

    #[test]
    fn a_session_notice_goes_to_the_latest_stream_whatever_the_order_of_opening() {
        for order in [[7, 8], [8, 7]] {
            let mut streams = Streams::default();
            order.into_iter().for_each(|stream| streams.open(key(1, stream), stream));
            streams.send_to_session(GROUP, SessionId(1), queued(5));
            assert_eq!(delivered(&mut streams), [(8, vec![5])]);
        }
    }

    #[test]
    fn when_the_latest_stream_closes_notices_go_to_the_latest_that_is_left() {
        let mut streams = Streams::default();
        [7, 8].into_iter().for_each(|stream| streams.open(key(1, stream), stream));
        streams.close(key(1, 8));
        streams.send_to_session(GROUP, SessionId(1), queued(5));
        assert_eq!(delivered(&mut streams), [(7, vec![5])]);
        // It was forwarded by another node, and comes late.
        streams.open(key(1, 6), 6);
        streams.send_to_session(GROUP, SessionId(1), queued(6));
        assert_eq!(delivered(&mut streams), [(7, vec![6])]);
        streams.send_to_session(GROUP, SessionId(2), queued(7));
        assert_eq!(delivered(&mut streams), []);
    }

    #[test]
    fn an_ending_stream_gets_its_last_deliveries_and_nothing_more() {
        let mut streams = Streams::default();
        streams.open(key(1, 1), 1);
        streams.open(key(2, 1), 2);
        streams.send(key(2, 1), queued(9));
        streams.end_all(|| Delivery::LeaderMoved { leader: None });
        streams.send(key(2, 1), queued(10));
        assert_eq!(delivered(&mut streams), [(1, vec![0]), (2, vec![9, 0])]);
        assert!(streams.is_empty());
    }

    #[test]
    fn ending_the_streams_of_a_group_leaves_those_of_other_groups_and_their_lists() {
        let of = |group, session| StreamKey { group: GroupId(group), ..key(session, 1) };
        let mut streams = Streams::default();
        // The session has one id in all groups.
        for group in 1..=3 {
            streams.open(of(group, 7), u64::from(group));
        }
        for group in [2, 3, 1] {
            streams.send(of(group, 7), queued(u64::from(group)));
        }
        streams.end_group(GroupId(2), || Delivery::LeaderMoved { leader: None });
        streams.send(of(2, 7), queued(12));
        streams.send(of(1, 7), queued(11));
        streams.send_to_session(GroupId(3), SessionId(7), queued(13));
        assert_eq!(delivered(&mut streams), [(2, vec![2, 0]), (3, vec![3, 13]), (1, vec![1, 11])]);
        assert_eq!(streams.len(), 2);
        // A list of the next turn.
        streams.send(of(3, 7), queued(23));
        assert_eq!(delivered(&mut streams), [(3, vec![23])]);
    }

    #[test]
    fn a_stream_that_does_not_read_is_closed_and_one_whose_task_ended_is_not() {
        let mut streams = Streams::default();
        for (session, cut_off) in [(1, CutOff::SlowReader), (2, CutOff::Gone)] {
            streams.open(key(session, 1), ());
            streams.send(key(session, 1), queued(1));
            streams.deliver(|(), _| Err(cut_off));
        }
        assert!(streams.streams.keys().eq([&key(2, 1)]));
    }

    #[test]
    fn a_long_delivery_list_is_split() {
        let mut streams = Streams::default();
        streams.open(key(1, 1), 1);
        (0..2 * WEIGHT_PER_LIST_MAX + 1).for_each(|_| streams.send(key(1, 1), queued(1)));
        let lengths: Vec<usize> =
            delivered(&mut streams).iter().map(|(_, list)| list.len()).collect();
        assert_eq!(lengths, [WEIGHT_PER_LIST_MAX, WEIGHT_PER_LIST_MAX, 1]);
    }

    #[test]
    fn a_list_of_deliveries_that_list_much_is_split_by_what_they_list() {
        let mut streams = Streams::default();
        streams.open(key(1, 1), 1);
        let lost = |tokens: usize| Delivery::Losses(vec![(FenceToken(1), None); tokens]);
        let halves = WEIGHT_PER_LIST_MAX / 2;
        for tokens in [halves, halves, 1, 3 * WEIGHT_PER_LIST_MAX, halves, 1] {
            streams.send(key(1, 1), lost(tokens));
        }
        let lengths: Vec<usize> =
            delivered(&mut streams).iter().map(|(_, list)| list.len()).collect();
        assert_eq!(lengths, [2, 1, 1, 2]);
    }
}
