//! The requests of one session that have no answer yet. Pure: instants are arguments.
//!
//! Ids start at 1 and rise by one. `acked_through` tells the servers which answers they may forget:
//! all up to the request before the oldest one that still wants its answer. A request that is given
//! up (a heartbeat of a broken stream) counts as answered, since nobody will ask for it again. So does
//! an acquire from when it is known to wait: the servers find it by its wait, and later by its hold,
//! wherever the mark stands. If it held the mark back, one long wait would fill up their memory of
//! answers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use crate::lease::LocalTime;

/// Requests, each with a `T` that says what to send and what to do with the answer.
#[derive(Debug)]
pub(crate) struct InFlight<T> {
    last_id: u64,
    requests: BTreeMap<u64, Request<T>>,
    /// Those whose answers the servers must keep: all but the waiting ones.
    unacknowledged: BTreeSet<u64>,
    /// Staged for the next frame, in the order of their ids.
    to_send: BTreeSet<u64>,
    /// When each request that is on the wire should have been answered.
    answers_due: BTreeSet<(Instant, u64)>,
}

#[derive(Debug)]
struct Request<T> {
    content: T,
    /// The first sending: a retry may get the answer that was made for it.
    first_sent_at: Option<LocalTime>,
    answer_due: Option<Instant>,
}

impl<T> InFlight<T> {
    pub(crate) fn new() -> InFlight<T> {
        InFlight {
            last_id: 0,
            requests: BTreeMap::new(),
            unacknowledged: BTreeSet::new(),
            to_send: BTreeSet::new(),
            answers_due: BTreeSet::new(),
        }
    }

    /// A new request, staged for the next frame.
    pub(crate) fn stage(&mut self, content: T) -> u64 {
        let id = self.reserve_id();
        self.requests.insert(id, Request { content, first_sent_at: None, answer_due: None });
        self.unacknowledged.insert(id);
        self.to_send.insert(id);
        id
    }

    /// The servers have the request in a queue. Its answer may be forgotten from here on.
    pub(crate) fn mark_waiting(&mut self, id: u64) {
        self.unacknowledged.remove(&id);
    }

    /// Whether the servers may have forgotten the answer to it.
    pub(crate) fn is_waiting(&self, id: u64) -> bool {
        self.requests.contains_key(&id) && !self.unacknowledged.contains(&id)
    }

    /// An id for a request that is not kept, because it is never sent again.
    pub(crate) fn reserve_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// Sends the request again with the next frame, under its old id.
    pub(crate) fn stage_again(&mut self, id: u64) {
        if let Some(request) = self.requests.get_mut(&id) {
            clear_due(&mut self.answers_due, id, request);
            self.to_send.insert(id);
        }
    }

    /// The stream broke: whatever has no answer goes out again on the next one.
    pub(crate) fn stage_all_again(&mut self) {
        self.answers_due.clear();
        for (id, request) in &mut self.requests {
            request.answer_due = None;
            self.to_send.insert(*id);
        }
    }

    /// The next of those that are staged, as far as their weight goes; the first in any case.
    pub(crate) fn take_staged(
        &mut self,
        weight_max: usize,
        weigh: impl Fn(&T) -> usize,
    ) -> Vec<u64> {
        let mut ids = Vec::new();
        let mut weight = 0;
        while let Some(id) = self.to_send.first().copied() {
            weight += self.get(id).map_or(0, &weigh);
            if weight > weight_max && !ids.is_empty() {
                break;
            }
            self.to_send.remove(&id);
            ids.push(id);
        }
        ids
    }

    pub(crate) fn mark_sent(&mut self, id: u64, now: LocalTime, answer_due: Instant) {
        if let Some(request) = self.requests.get_mut(&id) {
            clear_due(&mut self.answers_due, id, request);
            request.first_sent_at.get_or_insert(now);
            request.answer_due = Some(answer_due);
            self.answers_due.insert((answer_due, id));
        }
    }

    /// A node sent it back: no answer is to be expected until it goes out again.
    pub(crate) fn mark_sent_back(&mut self, id: u64) {
        if let Some(request) = self.requests.get_mut(&id) {
            clear_due(&mut self.answers_due, id, request);
        }
    }

    /// Takes a request out: it was answered, or its answer is no longer wanted.
    pub(crate) fn settle(&mut self, id: u64) -> Option<(T, Option<LocalTime>)> {
        let mut request = self.requests.remove(&id)?;
        clear_due(&mut self.answers_due, id, &mut request);
        self.unacknowledged.remove(&id);
        self.to_send.remove(&id);
        Some((request.content, request.first_sent_at))
    }

    /// Takes all requests out that `wanted` is false for.
    pub(crate) fn retain(&mut self, wanted: impl Fn(&T) -> bool) {
        let unwanted: Vec<u64> = self
            .requests
            .iter()
            .filter(|(_, request)| !wanted(&request.content))
            .map(|(id, _)| *id)
            .collect();
        for id in unwanted {
            self.settle(id);
        }
    }

    /// Takes those out that never went out and that `is_meant` is true for.
    pub(crate) fn take_unsent(&mut self, is_meant: impl Fn(&T) -> bool) -> Vec<T> {
        let unsent = self
            .requests
            .iter()
            .filter(|(_, request)| request.first_sent_at.is_none() && is_meant(&request.content));
        let ids: Vec<u64> = unsent.map(|(id, _)| *id).collect();
        ids.into_iter().filter_map(|id| self.settle(id)).map(|(content, _)| content).collect()
    }

    pub(crate) fn drain(&mut self) -> Vec<T> {
        self.unacknowledged.clear();
        self.to_send.clear();
        self.answers_due.clear();
        std::mem::take(&mut self.requests).into_values().map(|request| request.content).collect()
    }

    pub(crate) fn get(&self, id: u64) -> Option<&T> {
        self.requests.get(&id).map(|request| &request.content)
    }

    pub(crate) fn get_mut(&mut self, id: u64) -> Option<&mut T> {
        self.requests.get_mut(&id).map(|request| &mut request.content)
    }

    pub(crate) fn was_sent(&self, id: u64) -> bool {
        self.requests.get(&id).is_some_and(|request| request.first_sent_at.is_some())
    }

    /// Those of a kind that went out and have no answer.
    pub(crate) fn sent(&self, is_meant: impl Fn(&T) -> bool) -> Vec<u64> {
        let sent = self.requests.iter().filter(|(_, request)| request.first_sent_at.is_some());
        sent.filter(|(_, request)| is_meant(&request.content)).map(|(id, _)| *id).collect()
    }

    pub(crate) fn first_sent_at(&self, id: u64) -> Option<LocalTime> {
        self.requests.get(&id)?.first_sent_at
    }

    pub(crate) fn has_staged(&self) -> bool {
        !self.to_send.is_empty()
    }

    /// When the first of the requests on the wire should have been answered.
    pub(crate) fn earliest_answer_due(&self) -> Option<Instant> {
        self.answers_due.first().map(|(due, _)| *due)
    }

    pub(crate) fn acked_through(&self) -> u64 {
        self.unacknowledged.first().map_or(self.last_id, |oldest| oldest - 1)
    }
}

fn clear_due<T>(answers_due: &mut BTreeSet<(Instant, u64)>, id: u64, request: &mut Request<T>) {
    if let Some(due) = request.answer_due.take() {
        answers_due.remove(&(due, id));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const NOW: LocalTime = LocalTime(Duration::from_secs(5));
    const LATER: LocalTime = LocalTime(Duration::from_secs(6));

    fn send_staged(requests: &mut InFlight<&str>, now: LocalTime, due: Instant) -> Vec<u64> {
        let ids = requests.take_staged(100, |_| 1);
        for id in &ids {
            requests.mark_sent(*id, now, due);
        }
        ids
    }

    #[test]
    fn acknowledgement_stops_before_the_oldest_unanswered_request() {
        let mut requests = InFlight::new();
        assert_eq!(requests.acked_through(), 0);
        for content in ["a", "b", "c"] {
            requests.stage(content);
        }
        requests.settle(2);
        assert_eq!(requests.acked_through(), 0);
        requests.settle(1);
        assert_eq!(requests.acked_through(), 2);
        requests.settle(3);
        assert_eq!(requests.acked_through(), 3);
    }

    #[test]
    fn a_waiting_request_does_not_hold_the_acknowledgement_back() {
        let mut requests = InFlight::new();
        let waiting = requests.stage("waits for a day");
        requests.mark_waiting(waiting);
        for _ in 0..10_000 {
            let id = requests.stage("b");
            assert_eq!(requests.acked_through(), id - 1);
            requests.settle(id);
        }
        assert!(requests.is_waiting(waiting));
        requests.stage_all_again();
        assert_eq!(requests.take_staged(10, |_| 1), [waiting], "it is still asked for");
        assert_eq!(requests.acked_through(), 10_001);
        requests.settle(waiting);
        assert!(!requests.is_waiting(waiting));
        assert_eq!(requests.acked_through(), 10_001);
    }

    #[test]
    fn what_was_not_answered_goes_out_again_in_order_under_its_old_id() {
        let mut requests = InFlight::new();
        for content in ["a", "b", "c"] {
            requests.stage(content);
        }
        assert_eq!(send_staged(&mut requests, NOW, Instant::now()), [1, 2, 3]);
        requests.settle(2);
        requests.stage("d");
        requests.stage_all_again();
        assert_eq!(requests.earliest_answer_due(), None);
        assert_eq!(send_staged(&mut requests, LATER, Instant::now()), [1, 3, 4]);
    }

    #[test]
    fn what_never_went_out_can_be_taken_elsewhere() {
        let mut requests = InFlight::new();
        requests.stage("sent");
        send_staged(&mut requests, NOW, Instant::now());
        for content in ["a", "not meant", "b"] {
            requests.stage(content);
        }
        assert_eq!(requests.take_unsent(|content| *content != "not meant"), ["a", "b"]);
        assert_eq!(requests.drain(), ["sent", "not meant"]);
    }

    #[test]
    fn a_retried_request_keeps_the_time_of_its_first_sending() {
        let mut requests = InFlight::new();
        let id = requests.stage("a");
        assert!(!requests.was_sent(id));
        send_staged(&mut requests, NOW, Instant::now());
        requests.stage_again(id);
        send_staged(&mut requests, LATER, Instant::now());
        assert_eq!(requests.settle(id), Some(("a", Some(NOW))));
    }

    #[test]
    fn the_first_answer_due_is_that_of_the_most_urgent_request_on_the_wire() {
        let start = Instant::now();
        let mut requests = InFlight::new();
        let (patient, urgent) = (requests.stage("patient"), requests.stage("urgent"));
        requests.mark_sent(patient, NOW, start + Duration::from_secs(60));
        requests.mark_sent(urgent, NOW, start + Duration::from_secs(1));
        assert_eq!(requests.earliest_answer_due(), Some(start + Duration::from_secs(1)));
        requests.settle(urgent);
        assert_eq!(requests.earliest_answer_due(), Some(start + Duration::from_secs(60)));
    }

    #[test]
    fn a_frame_takes_no_more_than_its_share() {
        let mut requests = InFlight::new();
        for _ in 0..5 {
            requests.stage("a");
        }
        assert_eq!(requests.take_staged(3, |_| 1), [1, 2, 3]);
        assert_eq!(requests.take_staged(3, |_| 1), [4, 5]);
        assert!(!requests.has_staged());
        for content in ["a", "bbb", "cc", "dddddd", "e"] {
            requests.stage(content);
        }
        assert_eq!(requests.take_staged(4, |content| content.len()), [6, 7]);
        assert_eq!(requests.take_staged(4, |content| content.len()), [8]);
        assert_eq!(requests.take_staged(4, |content| content.len()), [9], "alone, if need be");
        assert_eq!(requests.take_staged(4, |content| content.len()), [10]);
    }
}
