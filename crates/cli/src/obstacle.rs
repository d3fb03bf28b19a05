//! Why a lock is not granted, in words: for `why`, and for commands that did not get it.

use std::time::Duration;

use holdfast_client::AcquireError;
use holdfast_client::unary::Unary;
use holdfast_proto::v1;
use holdfast_proto::v1::Reason;
use serde::Serialize;

use crate::duration::{as_written, in_words};
use crate::exit::{Code, Problem};
use crate::status::{Holder, OwnerInfo};
use crate::text::quoted;
use crate::tier::TierArg;

/// A command that found the lock busy does not wait longer to name the holder.
const BUSY_PATIENCE: Duration = Duration::from_secs(1);

/// Of several names, so many are looked at.
const NAMES_MAX: usize = 16;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Obstacle {
    /// `frozen`, `closed`, `held` or `reserved`.
    pub(crate) kind: &'static str,
    /// Follows the name of the lock.
    pub(crate) words: String,
    pub(crate) next_step: String,
}

/// The one that has to go first comes first. None: the lock can be had now.
pub(crate) fn of(status: &v1::StatusResponse) -> Vec<Obstacle> {
    let by_operator = status.frozen.as_ref().map(frozen);
    let by_delay = status.closed_for_ms.map(|for_ms| closed(&status.name, for_ms));
    let by_people = held(status).or_else(|| reserved(status));
    [by_operator, by_delay, by_people].into_iter().flatten().collect()
}

fn frozen(freeze: &v1::Frozen) -> Obstacle {
    let v1::Frozen { prefix, remaining_ms, by, reason } = freeze;
    let scope = if prefix.is_empty() { "everything".to_owned() } else { format!("{prefix}…") };
    Obstacle {
        kind: "frozen",
        words: format!(
            "is frozen: {by} froze {scope} for another {}, because: {reason}",
            in_words(*remaining_ms)
        ),
        next_step: format!(
            "ask {by}; `holdfast thaw {} --reason TEXT` ends the freeze",
            quoted(prefix)
        ),
    }
}

fn closed(name: &str, for_ms: u64) -> Obstacle {
    Obstacle {
        kind: "closed",
        words: format!(
            "is closed for another {} by the lock delay of a hold that was not released",
            in_words(for_ms)
        ),
        next_step: format!(
            "wait: it opens on its own; or make sure that nothing of the lost holder still runs, then \
             `holdfast reopen {} --reason TEXT` opens it now",
            quoted(name)
        ),
    }
}

fn held(status: &v1::StatusResponse) -> Option<Obstacle> {
    let first = status.holders.first()?;
    let holder = Holder::from(first.clone());
    let name = quoted(&status.name);
    let by = holder.owner.in_words();
    let words = match (first.mode(), status.holder_count) {
        (v1::Mode::Permit, count) if count < u64::from(permits_of(status, first)) => {
            // Enough are left, unless the first in the queue cannot take one.
            return status.waiters.first().filter(|_| status.waiter_count > 0).map(|waiter| {
                let owner = OwnerInfo::from(waiter.owner.clone()).in_words();
                Obstacle {
                    kind: "reserved",
                    words: format!(
                        "has {count} of {} permits out, and {owner} is next in line",
                        permits_of(status, first)
                    ),
                    next_step: also_needed(waiter)
                        .unwrap_or_else(|| format!("see `holdfast status {name}`")),
                }
            });
        }
        (v1::Mode::Permit, count) => {
            format!("has {count} of {} permits out, the first to {by}", permits_of(status, first))
        }
        (v1::Mode::Shared, 1) => format!("is held shared by {by} under token {}", holder.token),
        (v1::Mode::Shared, count) => format!("is held shared by {count}, the first is {by}"),
        _ => format!("is held by {by} under token {}", holder.token),
    };
    let since = format!(" for {}", in_words(holder.held_for_ms));
    let (because, lost) = (holder.because(), holder.connection_lost());
    let ends = match lost.is_empty() {
        true => format!("its holder releases it, or {}", holder.ends_in_words()),
        false => holder.ends_in_words(),
    };
    Some(Obstacle {
        kind: "held",
        words: format!("{words}{since}{because}{lost}"),
        next_step: format!(
            "wait: {ends}; `holdfast break {name} --token {} --reason TEXT` takes it away",
            holder.token
        ),
    })
}

/// Some permits are out and some are left: a request for a permit is granted, any other waits for all of them.
pub(crate) fn of_others(status: &v1::StatusResponse) -> Option<String> {
    let first = status.holders.first().filter(|holder| holder.mode() == v1::Mode::Permit)?;
    let (out, permits) = (status.holder_count, permits_of(status, first));
    Some(format!(
        "is a semaphore with {out} of {permits} permits out: `--permits {permits}` gets one of them, and what is not a \
         permit waits until all are back"
    ))
}

fn permits_of(status: &v1::StatusResponse, holder: &v1::Holder) -> u32 {
    if status.permits > 0 { status.permits } else { holder.permits }
}

/// It is not held, and the first in the queue cannot take it yet.
fn reserved(status: &v1::StatusResponse) -> Option<Obstacle> {
    let first = status.waiters.first()?;
    let owner = OwnerInfo::from(first.owner.clone()).in_words();
    let next_step = also_needed(first)?;
    Some(Obstacle {
        kind: "reserved",
        words: format!(
            "is free, but reserved: {owner} is first in line and must get {} at the same moment",
            first.also.join(", ")
        ),
        next_step,
    })
}

fn also_needed(waiter: &v1::Waiter) -> Option<String> {
    let also = waiter.also.first()?;
    Some(format!("see what keeps it from {also}: `holdfast why {}`", quoted(also)))
}

/// For a command that did not get the locks, at once or within the wait. It names the holder if the
/// cluster tells it quickly; it may have changed since.
pub(crate) async fn why_not(
    error: AcquireError,
    calls: &Unary,
    tier: TierArg,
    names: &[String],
    wait: Duration,
) -> Problem {
    let waited = match &error {
        AcquireError::Busy => false,
        AcquireError::TimedOut => true,
        AcquireError::Rejected(rejection) if rejection.reason == Reason::Frozen => false,
        _ => return error.into(),
    };
    let calls = calls.clone().timeout(BUSY_PATIENCE);
    let (mut found, mut not_shown) = (None, None);
    for name in names.iter().take(NAMES_MAX) {
        let status = match calls.status(name).await {
            Ok(status) => status,
            Err(error) => {
                not_shown = Some(error);
                break;
            }
        };
        let status = tier.part_of(status);
        let obstacle = of(&status).into_iter().next().map(|obstacle| obstacle.words);
        if let Some(words) = obstacle.or_else(|| of_others(&status)) {
            found = Some((name, words));
            break;
        }
    }
    let all = names.join(", ");
    let within = if waited {
        format!("{all} did not become free within {}; ", as_written(wait))
    } else {
        String::new()
    };
    if let Some(error) = not_shown {
        let words =
            format!("{within}{all} is not free; what is in the way cannot be shown: {error}");
        return Problem::new(Code::Busy, words);
    }
    let words = match &found {
        Some((name, words)) => format!("{within}{name} {words}"),
        None => format!("{within}{all}: another session held it until a moment ago; try again"),
    };
    let name = found.map_or(names.first(), |(name, _)| Some(name));
    let verb = match tier {
        TierArg::Correctness => "why",
        TierArg::Efficiency => "status",
    };
    let hint = name.map(|name| format!("; see `holdfast {verb} {}`", quoted(name)));
    Problem::new(Code::Busy, words + &hint.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(mode: v1::Mode, token: u64, permits: u32) -> v1::Holder {
        let owner = v1::Owner { application: "report".into(), ..Default::default() };
        v1::Holder {
            mode: mode.into(),
            token,
            permits,
            owner: Some(owner),
            metadata: b"month end".to_vec(),
            session_remaining_ms: 5_000,
            ..Default::default()
        }
    }

    fn status(holders: Vec<v1::Holder>) -> v1::StatusResponse {
        let holder_count = holders.len() as u64;
        v1::StatusResponse { name: "a".into(), holders, holder_count, ..Default::default() }
    }

    #[test]
    fn a_free_lock_has_no_obstacle() {
        assert_eq!(of(&status(Vec::new())), []);
    }

    #[test]
    fn the_holder_is_named_with_its_reason_and_the_way_out() {
        let obstacles = of(&status(vec![holder(v1::Mode::Exclusive, 7, 0)]));
        assert_eq!(obstacles.len(), 1);
        assert_eq!(obstacles[0].kind, "held");
        assert_eq!(
            obstacles[0].words,
            "is held by report under token 7 for 0ms, because: month end"
        );
        assert!(obstacles[0].next_step.contains("holdfast break a --token 7"), "{obstacles:?}");
    }

    #[test]
    fn a_semaphore_is_in_the_way_only_when_all_permits_are_out() {
        assert_eq!(of(&status(vec![holder(v1::Mode::Permit, 7, 2)])), []);
        let full = vec![holder(v1::Mode::Permit, 7, 2), holder(v1::Mode::Permit, 8, 2)];
        assert!(of(&status(full))[0].words.starts_with("has 2 of 2 permits out"));
    }

    #[test]
    fn permits_that_are_out_are_in_the_way_of_those_who_want_no_permit() {
        let words = of_others(&status(vec![holder(v1::Mode::Permit, 7, 2)])).unwrap();
        assert!(words.starts_with("is a semaphore with 1 of 2 permits out"), "{words}");
        assert_eq!(of_others(&status(vec![holder(v1::Mode::Exclusive, 7, 0)])), None);
        assert_eq!(of_others(&status(Vec::new())), None);
    }

    #[test]
    fn a_freeze_and_a_delay_come_before_what_people_do() {
        let frozen = v1::Frozen {
            prefix: "a".into(),
            remaining_ms: 60_000,
            by: "ops@box".into(),
            reason: "migration".into(),
        };
        let obstacles = of(&v1::StatusResponse {
            frozen: Some(frozen),
            closed_for_ms: Some(1_000),
            ..status(Vec::new())
        });
        let kinds: Vec<_> = obstacles.iter().map(|obstacle| obstacle.kind).collect();
        assert_eq!(kinds, ["frozen", "closed"]);
        assert!(obstacles[0].words.contains("ops@box") && obstacles[0].words.contains("migration"));
    }

    #[test]
    fn a_free_lock_that_waits_for_others_is_reserved() {
        let waiter = v1::Waiter { also: vec!["b".into()], ..Default::default() };
        let obstacles = of(&v1::StatusResponse {
            waiters: vec![waiter],
            waiter_count: 1,
            ..status(Vec::new())
        });
        assert_eq!(obstacles[0].kind, "reserved");
        assert!(obstacles[0].next_step.contains("holdfast why b"), "{obstacles:?}");
    }
}
