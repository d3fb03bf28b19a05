//! The requests of one session that have no answer yet. Pure: times are arguments.
//!
//! Ids start at 1 and rise by one. `acked_through` tells the servers which answers they may drop: all up to the request
//! before the oldest one that still needs its answer. A request that is given up, such as a heartbeat of a broken
//! stream, counts as answered, since it is never sent again. So does an acquire that is known to wait: the servers find
//! it by its wait, and later by its hold. If it held `acked_through` back, one long wait would fill up the stored
//! answers.

mod by_id;

use std::collections::{BTreeSet, VecDeque};

use crate::lease::LocalTime;
use by_id::ById;

/// If the oldest unanswered request lags behind by more ids than this, it is stored separately.
const ROW_MAX: u64 = 65_536;

/// How many stale ids a queue may have, besides as many as it has live ones.
const DEAD_MAX: usize = 64;

/// Requests, each with a `T` that says what to send and what to do with the answer.
#[derive(Debug)]
pub(crate) struct InFlight<T> {
    last_id: u64,
    /// Without those that wait, and without the late ones.
    requests: ById<Request<T>>,
    /// Requests that still need their answer though [`ROW_MAX`] ids were used since.
    late: BTreeSet<u64>,
    /// Contains all requests that are staged for the next frame, and may contain others.
    to_send: VecDeque<u64>,
    /// The staged requests must be sorted by id before they go out.
    is_out_of_order: bool,
    staged: usize,
    /// No request on the wire should have been answered before then. It may be too early, and is set right when it is
    /// reached.
    answers_due_from: Option<LocalTime>,
}

#[derive(Debug)]
struct Request<T> {
    content: T,
    /// The first sending: a retry may get the answer that was made for it.
    first_sent_at: Option<LocalTime>,
    answer_due: Option<LocalTime>,
    /// It must not go out yet.
    is_parked: bool,
    is_staged: bool,
    is_waiting: bool,
    /// On an earlier stream, without an answer: it may have been carried out.
    was_sent_before: bool,
}

impl<T> InFlight<T> {
    pub(crate) fn new() -> InFlight<T> {
        InFlight {
            last_id: 0,
            requests: ById::new(),
            late: BTreeSet::new(),
            to_send: VecDeque::new(),
            is_out_of_order: false,
            staged: 0,
            answers_due_from: None,
        }
    }

    /// A new request, staged for the next frame.
    pub(crate) fn stage(&mut self, content: T) -> u64 {
        let id = self.park(content);
        self.unpark(id);
        id
    }

    /// A new request that must not go out yet.
    pub(crate) fn park(&mut self, content: T) -> u64 {
        let id = self.reserve_id();
        let request = Request {
            content,
            first_sent_at: None,
            answer_due: None,
            is_parked: true,
            is_staged: false,
            is_waiting: false,
            was_sent_before: false,
        };
        // Also ids that were only reserved would have places in the row.
        while let Some(oldest) = self.requests.first_in_row()
            && id - oldest >= ROW_MAX
        {
            self.requests.set_apart(oldest);
            self.late.insert(oldest);
        }
        self.requests.push(id, request);
        id
    }

    /// Stages a parked request for the next frame.
    pub(crate) fn unpark(&mut self, id: u64) {
        if let Some(request) = self.requests.get_mut(id) {
            request.is_parked = false;
        }
        self.stage_again(id);
    }

    pub(crate) fn is_parked(&self, id: u64) -> bool {
        self.requests.get(id).is_some_and(|request| request.is_parked)
    }

    /// The servers have the request in a queue. Its answer may be forgotten from here on.
    pub(crate) fn mark_waiting(&mut self, id: u64) {
        if let Some(request) = self.requests.get_mut(id) {
            request.is_waiting = true;
            self.requests.set_apart(id);
            self.late.remove(&id);
        }
    }

    /// Whether the servers may have forgotten the answer to it.
    pub(crate) fn is_waiting(&self, id: u64) -> bool {
        self.requests.get(id).is_some_and(|request| request.is_waiting)
    }

    /// An id for a request that is not kept, because it is never sent again.
    pub(crate) fn reserve_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// Sends the request again with the next frame, under its old id.
    pub(crate) fn stage_again(&mut self, id: u64) {
        if let Some(request) = self.requests.get_mut(id) {
            request.answer_due = None;
            if !request.is_staged {
                request.is_staged = true;
                self.staged += 1;
                self.is_out_of_order |= self.to_send.back().is_some_and(|last| *last > id);
                self.to_send.push_back(id);
            }
        }
    }

    /// The stream broke: all unanswered requests go out again on the next one.
    pub(crate) fn stage_all_again(&mut self) {
        self.answers_due_from = None;
        self.to_send = self.ids(|request| !request.is_parked).into();
        self.is_out_of_order = false;
        self.staged = self.to_send.len();
        for id in &self.to_send {
            if let Some(request) = self.requests.get_mut(*id) {
                request.answer_due = None;
                request.is_staged = true;
                request.was_sent_before |= request.first_sent_at.is_some();
            }
        }
    }

    /// Whether a sending without an answer went before the last one. A node that refuses the last one says nothing about
    /// the first.
    pub(crate) fn was_sent_before(&self, id: u64) -> bool {
        self.requests.get(id).is_some_and(|request| request.was_sent_before)
    }

    /// The next of those that are staged, as far as their weight goes; the first in any case.
    pub(crate) fn take_staged(
        &mut self,
        weight_max: usize,
        weigh: impl Fn(&T) -> usize,
    ) -> Vec<u64> {
        if std::mem::take(&mut self.is_out_of_order) {
            self.to_send.make_contiguous().sort_unstable();
        }
        let mut ids = Vec::with_capacity(self.staged.min(weight_max));
        let mut weight = 0;
        while let Some(id) = self.to_send.front().copied() {
            if let Some(request) = self.requests.get_mut(id)
                && request.is_staged
            {
                weight += weigh(&request.content);
                if weight > weight_max && !ids.is_empty() {
                    break;
                }
                request.is_staged = false;
                self.staged -= 1;
                ids.push(id);
            }
            self.to_send.pop_front();
        }
        ids
    }

    pub(crate) fn mark_sent(&mut self, id: u64, now: LocalTime, answer_due: LocalTime) {
        if let Some(request) = self.requests.get_mut(id) {
            #[cfg(feature = "planted")]
            if crate::planted::Bug::LeaseFromLastSending.is_active() {
                request.first_sent_at = Some(now);
            }
            request.first_sent_at.get_or_insert(now);
            request.answer_due = Some(answer_due);
            let earlier = self.answers_due_from.map_or(answer_due, |due| due.min(answer_due));
            self.answers_due_from = Some(earlier);
        }
    }

    /// A node sent it back: no answer is expected until it goes out again.
    pub(crate) fn mark_sent_back(&mut self, id: u64) {
        if let Some(request) = self.requests.get_mut(id) {
            request.answer_due = None;
        }
    }

    /// Removes a request that was answered, or whose answer is no longer needed.
    pub(crate) fn settle(&mut self, id: u64) -> Option<(T, Option<LocalTime>)> {
        let request = self.requests.remove(id)?;
        if !self.late.is_empty() {
            self.late.remove(&id);
        }
        if request.is_staged {
            self.staged -= 1;
            self.forget_dead();
        }
        Some((request.content, request.first_sent_at))
    }

    /// Removes stale ids. They come from callers that give up while there is no stream.
    fn forget_dead(&mut self) {
        if self.to_send.len() > 2 * self.staged + DEAD_MAX {
            let requests = &self.requests;
            self.to_send.retain(|id| requests.get(*id).is_some_and(|request| request.is_staged));
        }
    }

    /// Removes all requests that match.
    pub(crate) fn take_out(&mut self, is_meant: impl Fn(&T) -> bool) -> Vec<T> {
        let ids = self.ids(|request| is_meant(&request.content));
        self.settle_all(ids)
    }

    /// Removes all requests, except those that never went out and for which `is_kept` is true.
    pub(crate) fn drain(&mut self, is_kept: impl Fn(&T) -> bool) -> Vec<T> {
        let ids = self.ids(|request| request.first_sent_at.is_some() || !is_kept(&request.content));
        self.settle_all(ids)
    }

    fn settle_all(&mut self, ids: Vec<u64>) -> Vec<T> {
        ids.into_iter().filter_map(|id| self.settle(id)).map(|(content, _)| content).collect()
    }

    pub(crate) fn get(&self, id: u64) -> Option<&T> {
        self.requests.get(id).map(|request| &request.content)
    }

    pub(crate) fn get_mut(&mut self, id: u64) -> Option<&mut T> {
        self.requests.get_mut(id).map(|request| &mut request.content)
    }

    /// In no particular order.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (u64, &mut T)> {
        self.requests.iter_mut().map(|(id, request)| (id, &mut request.content))
    }

    pub(crate) fn has_any(&self, is_meant: impl Fn(&T) -> bool) -> bool {
        self.requests.iter().any(|(_, request)| is_meant(&request.content))
    }

    /// The one that is meant, which most often has this id.
    pub(crate) fn find_by(&self, id: u64, is_meant: impl Fn(&T) -> bool) -> Option<u64> {
        if self.get(id).is_some_and(&is_meant) {
            return Some(id);
        }
        self.requests.iter().find(|(_, request)| is_meant(&request.content)).map(|(id, _)| id)
    }

    pub(crate) fn was_sent(&self, id: u64) -> bool {
        self.first_sent_at(id).is_some()
    }

    /// Those of a kind that went out and have no answer.
    pub(crate) fn sent(&self, is_meant: impl Fn(&T) -> bool) -> Vec<u64> {
        self.ids(|request| request.first_sent_at.is_some() && is_meant(&request.content))
    }

    pub(crate) fn first_sent_at(&self, id: u64) -> Option<LocalTime> {
        self.requests.get(id)?.first_sent_at
    }

    pub(crate) fn has_staged(&self) -> bool {
        self.staged > 0
    }

    /// Whether several may be unanswered. Those that are known to wait do not count.
    pub(crate) fn are_several(&self) -> bool {
        self.requests.row_len() > 1
    }

    /// No answer is overdue before then.
    pub(crate) fn answers_due_from(&self) -> Option<LocalTime> {
        self.answers_due_from
    }

    /// Whether one of the requests on the wire should have been answered by now.
    pub(crate) fn is_answer_overdue(&mut self, now: LocalTime) -> bool {
        let is_reached = |due: Option<LocalTime>| due.is_some_and(|due| due <= now);
        if is_reached(self.answers_due_from) {
            let due = self.requests.iter().filter_map(|(_, request)| request.answer_due);
            self.answers_due_from = due.min();
        }
        is_reached(self.answers_due_from)
    }

    pub(crate) fn acked_through(&self) -> u64 {
        #[cfg(feature = "planted")]
        if crate::planted::Bug::AckEarly.is_active() {
            let unsent = self.ids(|request| request.first_sent_at.is_none());
            return unsent.first().map_or(self.last_id, |id| id - 1);
        }
        let oldest = self.late.first().copied().into_iter().chain(self.requests.first_in_row());
        oldest.min().map_or(self.last_id, |oldest| oldest - 1)
    }

    /// In the order of their ids.
    fn ids(&self, is_meant: impl Fn(&Request<T>) -> bool) -> Vec<u64> {
        let meant = self.requests.iter().filter(|(_, request)| is_meant(request));
        let mut ids: Vec<u64> = meant.map(|(id, _)| id).collect();
        ids.sort_unstable();
        ids
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const NOW: LocalTime = LocalTime(Duration::from_secs(5));
    const LATER: LocalTime = LocalTime(Duration::from_secs(6));

    fn send_staged(requests: &mut InFlight<&str>, now: LocalTime, due: LocalTime) -> Vec<u64> {
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
    fn one_request_is_not_several_whatever_waits_besides() {
        let mut requests = InFlight::new();
        let waiting = requests.stage("waits");
        requests.mark_waiting(waiting);
        let first = requests.stage("a");
        assert!(!requests.are_several());
        let second = requests.stage("b");
        assert!(requests.are_several());
        requests.settle(first);
        assert!(!requests.are_several());
        requests.settle(second);
        assert!(!requests.are_several());
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
    fn unanswered_requests_go_out_again_in_order_under_their_old_ids() {
        let mut requests = InFlight::new();
        for content in ["a", "b", "c"] {
            requests.stage(content);
        }
        assert_eq!(send_staged(&mut requests, NOW, NOW), [1, 2, 3]);
        requests.settle(2);
        requests.stage("d");
        requests.stage_all_again();
        assert_eq!(requests.answers_due_from(), None);
        assert_eq!(send_staged(&mut requests, LATER, NOW), [1, 3, 4]);
    }

    #[test]
    fn a_request_that_never_went_out_can_keep_its_id() {
        let mut requests = InFlight::new();
        requests.stage("sent");
        send_staged(&mut requests, NOW, NOW);
        for content in ["a", "not meant", "b"] {
            requests.stage(content);
        }
        assert_eq!(requests.drain(|content| *content != "not meant"), ["sent", "not meant"]);
        assert_eq!(requests.take_staged(100, |_| 1), [2, 4]);
    }

    #[test]
    fn a_retried_request_keeps_the_time_of_its_first_sending() {
        let mut requests = InFlight::new();
        let id = requests.stage("a");
        assert!(!requests.was_sent(id));
        send_staged(&mut requests, NOW, NOW);
        requests.stage_again(id);
        send_staged(&mut requests, LATER, NOW);
        assert_eq!(requests.settle(id), Some(("a", Some(NOW))));
    }

    #[test]
    fn an_answer_is_overdue_when_that_of_the_most_urgent_request_on_the_wire_is() {
        let after = |seconds| LocalTime(NOW.0 + Duration::from_secs(seconds));
        let mut requests = InFlight::new();
        let (patient, urgent) = (requests.stage("patient"), requests.stage("urgent"));
        requests.mark_sent(patient, NOW, after(60));
        requests.mark_sent(urgent, NOW, after(1));
        assert_eq!(requests.answers_due_from(), Some(after(1)));
        assert!(!requests.is_answer_overdue(NOW));
        assert!(requests.is_answer_overdue(after(1)));
        requests.settle(urgent);
        assert!(!requests.is_answer_overdue(after(59)));
        assert_eq!(requests.answers_due_from(), Some(after(60)), "it is waited for no earlier");
        assert!(requests.is_answer_overdue(after(60)));
        requests.mark_sent_back(patient);
        assert!(!requests.is_answer_overdue(after(60)));
        assert_eq!(requests.answers_due_from(), None);
    }

    #[test]
    fn a_late_request_holds_the_acknowledgement_back_and_is_found() {
        let mut requests = InFlight::new();
        let (late, waiting) = (requests.stage("late"), requests.stage("waiting"));
        for _ in 0..2 * ROW_MAX {
            let id = requests.stage("b");
            requests.settle(id);
        }
        assert_eq!(requests.acked_through(), late - 1);
        requests.mark_waiting(waiting);
        assert_eq!(requests.settle(late), Some(("late", None)));
        assert_eq!(requests.acked_through(), requests.last_id);
        assert!(requests.is_waiting(waiting));
    }

    #[test]
    fn ids_that_were_only_reserved_take_no_room_however_many() {
        let mut requests = InFlight::new();
        let late = requests.stage("late");
        for _ in 0..3 * ROW_MAX {
            requests.reserve_id();
        }
        let id = requests.stage("a");
        assert!(requests.requests.row_len() <= 1, "{}", requests.requests.row_len());
        assert_eq!(requests.acked_through(), late - 1);
        assert_eq!(requests.take_staged(10, |_| 1), [late, id]);
    }

    #[test]
    fn a_caller_that_gives_up_before_anything_was_sent_leaves_nothing_behind() {
        let mut requests = InFlight::new();
        let stays = requests.stage("stays");
        for _ in 0..10_000 {
            let id = requests.stage("goes");
            requests.settle(id);
        }
        assert!(requests.to_send.len() <= 2 + DEAD_MAX, "{}", requests.to_send.len());
        assert_eq!(requests.take_staged(10, |_| 1), [stays]);
    }

    #[test]
    fn retried_requests_go_out_once_and_before_newer_ones() {
        let mut requests = InFlight::new();
        for content in ["a", "b", "c"] {
            requests.stage(content);
        }
        send_staged(&mut requests, NOW, NOW);
        requests.stage("d");
        for id in [3, 1, 3] {
            requests.stage_again(id);
        }
        assert_eq!(requests.take_staged(10, |_| 1), [1, 3, 4]);
        assert!(!requests.has_staged());
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
