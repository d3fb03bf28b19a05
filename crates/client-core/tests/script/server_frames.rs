//! What a node says, written as `ITEM; ITEM; …`:
//!
//! ```text
//! welcome #ID [leader=A] [term=N] [map=EPOCH:GROUP=FIRST-LAST,...]
//! granted #ID NAME token=N [deadline=T] [shared] [best-effort]
//! busy | timed-out | released | kept-alive | closed #ID     renewed #ID [deadline=T]   transferred #ID token=N
//! cancelled #ID [granted NAME token=N]   refused #ID REASON [retryable] [leader=A] [group=N] [retry-after-ms=N] [map-epoch=N]
//! queued #ID
//! ended NAME acquire=ID REASON           lost token=N [acquire=ID]
//! session-ended REASON                   leader-moved [A]                              members A,B
//! ```
//!
//! An answer tells the logical time of the moment, unless it says `time=T`.

use std::cell::Cell;
use std::time::Duration;

use holdfast_proto::v1::acquire_response::Outcome;
use holdfast_proto::v1::answer::Result as AnswerResult;
use holdfast_proto::v1::cancel_response::Outcome as CancelOutcome;
use holdfast_proto::v1::notice::Kind;
use holdfast_proto::v1::*;

use super::{duration, ms, option, reason};

thread_local! {
    /// TTL and linger, as the client asked for them.
    static TERMS: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
}

/// What the node grants a session.
pub(super) fn set_terms(ttl: Duration, linger: Duration) {
    TERMS.set((ms(ttl), ms(linger)));
}

pub(super) fn frame(text: &str, now: Duration) -> ServerFrame {
    let mut frame = ServerFrame::default();
    for item in text.split(';') {
        let words: Vec<&str> = item.split_whitespace().collect();
        match notice(&words) {
            Some(kind) => frame.notices.push(Notice { kind: Some(kind) }),
            None => {
                let id = words[1].strip_prefix('#').expect("#ID").parse().unwrap();
                let logical_time_ms = option(&words, "time").map_or(now, duration);
                let result = answer(&words, ms(logical_time_ms));
                frame.answers.push(Answer { request_id: id, result: Some(result) });
            }
        }
    }
    frame
}

fn notice(words: &[&str]) -> Option<Kind> {
    Some(match *words {
        ["queued", id] => {
            let request_id = id.strip_prefix('#').unwrap().parse().unwrap();
            Kind::Queued(Queued { request_id, position: 1 })
        }
        ["ended", name, acquire, why] => Kind::HoldEnded(HoldEnded {
            name: name.to_owned(),
            acquire_request_id: acquire.strip_prefix("acquire=").unwrap().parse().unwrap(),
            reason: end_reason(why).into(),
            token: 0,
        }),
        ["lost", ..] => Kind::HoldEnded(HoldEnded {
            token: number(words, "token").expect("a token"),
            acquire_request_id: number(words, "acquire").unwrap_or(0),
            ..Default::default()
        }),
        ["session-ended", why] => {
            Kind::SessionEnded(SessionEnded { reason: end_reason(why).into() })
        }
        ["leader-moved", ref leader @ ..] => {
            let leader = leader.first().copied().unwrap_or_default().to_owned();
            Kind::LeaderMoved(LeaderMoved { leader })
        }
        ["members", addresses] => {
            let endpoints = addresses.split(',').map(str::to_owned).collect();
            Kind::MembersChanged(MembersChanged { endpoints })
        }
        _ => return None,
    })
}

fn answer(words: &[&str], logical_time_ms: u64) -> AnswerResult {
    let acquired = |outcome| {
        AnswerResult::Acquire(AcquireResponse { outcome: Some(outcome), logical_time_ms })
    };
    let deadline_ms = option(words, "deadline").map(|at| ms(duration(at)));
    match *words {
        ["welcome", ..] => {
            let (ttl_ms, linger_ms) = TERMS.get();
            AnswerResult::Resume(OpenSessionResponse {
                ttl_ms,
                linger_ms,
                logical_time_ms,
                leader: option(words, "leader").unwrap_or_default().to_owned(),
                term: number(words, "term").unwrap_or(1),
                map: option(words, "map").map(group_map),
                ..Default::default()
            })
        }
        ["granted", _, name, ..] => acquired(Outcome::Granted(grant(name, words, deadline_ms))),
        ["busy", _] => acquired(Outcome::Busy(Busy::default())),
        ["timed-out", _] => acquired(Outcome::TimedOut(TimedOut::default())),
        ["released", _] => AnswerResult::Release(ReleaseResponse {
            outcome: ReleaseOutcome::Released.into(),
            logical_time_ms,
            ..Default::default()
        }),
        ["kept-alive", ..] => {
            AnswerResult::KeepAlive(KeepAliveResponse { logical_time_ms, ..Default::default() })
        }
        ["closed", _] => AnswerResult::Close(CloseSessionResponse::default()),
        ["renewed", ..] => AnswerResult::Renew(RenewResponse {
            deadline_ms,
            logical_time_ms,
            ..Default::default()
        }),
        ["transferred", ..] => AnswerResult::Transfer(TransferResponse {
            token: number(words, "token").expect("a token"),
            logical_time_ms,
        }),
        ["cancelled", _] => cancelled(CancelOutcome::Cancelled(Cancelled {}), logical_time_ms),
        ["cancelled", _, "granted", name, ..] => {
            let granted = grant(name, words, deadline_ms);
            cancelled(CancelOutcome::AlreadyGranted(granted), logical_time_ms)
        }
        ["refused", _, why, ..] => AnswerResult::Failure(Failure {
            reason: reason(why).into(),
            message: why.to_owned(),
            retryable: words.contains(&"retryable"),
            leader: option(words, "leader").unwrap_or_default().to_owned(),
            retry_after_ms: number(words, "retry-after-ms").unwrap_or(0),
            map_epoch: number(words, "map-epoch").unwrap_or(0),
            group: number(words, "group").map_or(0, |group| u32::try_from(group).unwrap()),
            ..Default::default()
        }),
        _ => panic!("what is {words:?}?"),
    }
}

fn cancelled(outcome: CancelOutcome, logical_time_ms: u64) -> AnswerResult {
    AnswerResult::Cancel(CancelResponse { outcome: Some(outcome), logical_time_ms })
}

fn grant(name: &str, words: &[&str], deadline_ms: Option<u64>) -> Grant {
    let mode = if words.contains(&"shared") { Mode::Shared } else { Mode::Exclusive };
    let guarantee = match words.contains(&"best-effort") {
        true => Guarantee::BestEffort,
        false => Guarantee::Linearizable,
    };
    Grant {
        name: name.to_owned(),
        token: number(words, "token").expect("a token"),
        mode: mode.into(),
        guarantee: guarantee.into(),
        deadline_ms,
        ..Default::default()
    }
}

fn group_map(text: &str) -> GroupMap {
    let (epoch, groups) = text.split_once(':').expect("EPOCH:GROUPS");
    let groups = groups.split(',').map(|route| {
        let (group, slots) = route.split_once('=').expect("GROUP=FIRST-LAST");
        let (first, last) = slots.split_once('-').expect("FIRST-LAST");
        let [group, first, last]: [u32; 3] = [group, first, last].map(|it| it.parse().unwrap());
        let slots = vec![SlotRun { first, count: last - first + 1 }];
        GroupRoute { group, leader: format!("leader-{group}:1"), slots }
    });
    GroupMap { epoch: epoch.parse().unwrap(), groups: groups.collect() }
}

fn number(words: &[&str], name: &str) -> Option<u64> {
    option(words, name).map(|text| text.parse().unwrap())
}

fn end_reason(text: &str) -> EndReason {
    EndReason::from_str_name(&format!("END_REASON_{}", text.to_uppercase())).expect("a reason")
}
