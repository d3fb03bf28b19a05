//! `Why`: what stands between a client and a lock. A linearizable read, with a guess at how long it will take
//! from what this node has seen lately.

use holdfast_engine::{Query, ReadAnswer, ReadData};
use holdfast_proto::decode::lock_name;
use holdfast_proto::encode::read;
use holdfast_proto::v1::{self, Failure, WhyRequest, WhyResponse};
use holdfast_replica::GroupId;
use holdfast_service::{Method, VisibleNames, hidden_names};

use super::Rpc;
use super::reads::{ReadRequest, SHOWN_MAX};
use crate::hold_times::{self, HoldTimes};

impl ReadRequest for WhyRequest {
    const METHOD: Method = Method::Why;
    type Response = WhyResponse;

    fn query(&self) -> Result<Query, Failure> {
        Ok(Query::Why { name: lock_name(&self.name)?, shown_max: SHOWN_MAX })
    }

    fn response(&self, answer: ReadAnswer, group: GroupId) -> Option<WhyResponse> {
        let ReadData::Why(why) = answer.data else { return None };
        Some(read::why(&self.name, why, answer.at, answer.applied_index, group.0))
    }

    fn hide(response: &mut WhyResponse, visible: &VisibleNames) {
        hidden_names::in_why(response, visible);
    }

    fn complete(&self, response: &mut WhyResponse, rpc: &Rpc) -> Result<(), Failure> {
        let status = response.status.as_ref();
        let Some(times) =
            hold_times::of(rpc.events.of(rpc.membership.groups.owner_of(&self.name)), &self.name)
        else {
            response.estimated_wait_ms = status.and_then(end_of_lost_holder_ms);
            return Ok(());
        };
        response.estimated_wait_ms = status.and_then(|status| estimated_wait_ms(status, times));
        response.hold_times = Some(v1::HoldTimes {
            holds: times.holds,
            median_ms: times.median_ms,
            longest_ms: times.longest_ms,
        });
        Ok(())
    }
}

/// For one who asks now: what is left of the holds that are out, and the turns of all who wait.
fn estimated_wait_ms(status: &v1::StatusResponse, times: HoldTimes) -> Option<u64> {
    let kept = status.holders.is_empty() && status.waiter_count > 0;
    if status.frozen.is_some() || status.closed_for_ms.is_some() || kept {
        return None;
    }
    let Some(first) = status.holders.first() else { return Some(0) };
    // So many are served at a time.
    let at_a_time = match first.mode() {
        v1::Mode::Permit if status.permits > 0 => u64::from(status.permits),
        v1::Mode::Permit => u64::from(first.permits).max(1),
        _ => 1,
    };
    if first.mode() == v1::Mode::Permit && status.holder_count + status.waiter_count < at_a_time {
        return Some(0);
    }
    let left_ms = status.holders.iter().map(|holder| left_ms(holder, times)).min().unwrap_or(0);
    let turns = status.waiter_count / at_a_time;
    Some(left_ms.saturating_add(turns.saturating_mul(times.median_ms)))
}

/// The only thing that is known without holds of the past: when the hold of a client that is gone ends, if no other client
/// waits.
fn end_of_lost_holder_ms(status: &v1::StatusResponse) -> Option<u64> {
    let [holder] = &status.holders[..] else { return None };
    let is_alone = status.waiter_count == 0 && status.frozen.is_none();
    holder.disconnected_for_ms_max.filter(|_| is_alone)?;
    Some(left_ms(holder, HoldTimes { holds: 0, median_ms: 0, longest_ms: 0 }))
}

/// A hold that has lasted longer than usual may end any moment. The client of a session without its stream releases
/// nothing, as far as is known: its hold ends on its own.
fn left_ms(holder: &v1::Holder, times: HoldTimes) -> u64 {
    match holder.disconnected_for_ms_max {
        Some(_) => holder
            .remaining_ms
            .map_or(holder.session_remaining_ms, |own_ms| own_ms.min(holder.session_remaining_ms)),
        None => times.median_ms.saturating_sub(holder.held_for_ms),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATELY: HoldTimes = HoldTimes { holds: 3, median_ms: 1_000, longest_ms: 5_000 };

    fn held(mode: v1::Mode, permits: u32, for_ms: &[u64], waiter_count: u64) -> v1::StatusResponse {
        let holder = |held_for_ms: &u64| v1::Holder {
            mode: mode.into(),
            permits,
            held_for_ms: *held_for_ms,
            ..Default::default()
        };
        v1::StatusResponse {
            holders: for_ms.iter().map(holder).collect(),
            holder_count: for_ms.len() as u64,
            waiter_count,
            ..Default::default()
        }
    }

    #[test]
    fn the_estimated_wait_is_the_rest_of_the_hold_and_a_turn_for_each_waiter() {
        let estimate = |status| estimated_wait_ms(&status, LATELY);
        assert_eq!(estimate(v1::StatusResponse::default()), Some(0));
        assert_eq!(estimate(held(v1::Mode::Exclusive, 0, &[400], 0)), Some(600));
        assert_eq!(estimate(held(v1::Mode::Exclusive, 0, &[400], 2)), Some(2_600));
        assert_eq!(estimate(held(v1::Mode::Exclusive, 0, &[9_000], 1)), Some(1_000));
        assert_eq!(estimate(held(v1::Mode::Permit, 2, &[400], 0)), Some(0));
        assert_eq!(estimate(held(v1::Mode::Permit, 2, &[400, 700], 4)), Some(2_300));
    }

    #[test]
    fn the_hold_of_a_client_that_is_gone_is_expected_to_last_until_its_session_ends() {
        let mut status = held(v1::Mode::Exclusive, 0, &[9_000], 1);
        status.holders[0].session_remaining_ms = 20_000;
        assert_eq!(estimated_wait_ms(&status, LATELY), Some(1_000));
        status.holders[0].disconnected_for_ms_max = Some(3_000);
        assert_eq!(estimated_wait_ms(&status, LATELY), Some(21_000));
        assert_eq!(end_of_lost_holder_ms(&status), None, "another client waits");
        status.holders[0].remaining_ms = Some(500);
        assert_eq!(estimated_wait_ms(&status, LATELY), Some(1_500));
        status.waiter_count = 0;
        assert_eq!(end_of_lost_holder_ms(&status), Some(500));
    }

    #[test]
    fn no_wait_is_estimated_for_a_frozen_lock() {
        let closed = v1::StatusResponse { closed_for_ms: Some(1), ..Default::default() };
        let kept = v1::StatusResponse { waiter_count: 1, ..Default::default() };
        for status in [closed, kept] {
            assert_eq!(estimated_wait_ms(&status, LATELY), None);
        }
    }
}
