//! How long a client believes in a best-effort lock that another leader has granted to another client.
//!
//! The tier's table is in the server, and the simulated nodes have none. So this is a model of one failure: a leader keeps
//! a lock in its memory and is cut off from the others, with the client or without it, or its process ends. The
//! others elect a leader, which grants the lock. What the client believes is decided by the library's own code
//! ([`Leases`]); when leaders grant, by the engine's ([`LeaderLease`]), with the server's usual times. All times are the
//! worst that the rules allow, within which the seed chooses.
//!
//! What is checked is the bound of `docs/tiers.md`: both hold for no longer than it takes the client to notice. And no
//! leader grants while another does.

use std::time::Duration;

use holdfast_client_core::lease::{HoldId, Leases, LocalTime, LogicalTime};
use holdfast_engine::{BootTime, LeaderLease};
use holdfast_replica::Leadership;

use crate::history::Violation;
use crate::rng::Rng;

const SCENES: u64 = 50;
const HOLD: HoldId = HoldId(1);

const TICK_MS: u64 = 50;
const ELECTION_MS: u64 = 10 * TICK_MS;
/// How long a leader is sure of its quorum after it asked.
const SURE_MS: u64 = (ELECTION_MS - 2 * TICK_MS) * 98 / 100;
/// A leader that hears from no quorum steps down at the second check at the latest.
const STEPS_DOWN_MS: u64 = 2 * ELECTION_MS;
const ROUND_TRIP_MAX_MS: u64 = 50;
/// After so long without a byte the client gives its connection up: two seconds until it asks, two for the answer, and
/// a second in which it looks at the clock.
const SILENCE_MS: u64 = 5_000;

/// For how long two may hold if the client hears from its node, and if it does not.
const OVERLAP_HEARD_MS: u64 = STEPS_DOWN_MS - SURE_MS + ROUND_TRIP_MAX_MS;
const OVERLAP_UNHEARD_MS: u64 = SILENCE_MS;

/// What became of the leader and of the client's connection to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    /// Leader and client hear each other, and no other node.
    Together,
    /// The leader's process ended: the connection is reset.
    Reset,
    /// The leader is cut off from the others and from the client. No byte says so.
    Silent,
}

/// Some such failures, chosen by the seed.
pub(crate) fn check(seed: u64) -> Vec<Violation> {
    let mut rng = Rng::new(seed).fork(5);
    let scenes = (0..SCENES).filter_map(|_| two_leaders(&mut rng).or_else(|| play(&mut rng)));
    scenes.take(1).collect()
}

fn lease() -> LeaderLease {
    LeaderLease::new(Duration::from_millis(TICK_MS), Duration::from_millis(ELECTION_MS))
}

/// By a clock that starts with the moment from which it is asked for: after how long does this leader grant?
fn new_leader_waits_ms() -> u64 {
    lease().opens(BootTime::default()).0.as_millis() as u64
}

/// A leader is confirmed by a read that it asked for, and another is elected at any time after that. The clocks of the two
/// run as differently as is trusted.
fn two_leaders(rng: &mut Rng) -> Option<Violation> {
    let mut real_ms = |local: Duration| {
        let percent = rng.between(99, 101) as f64;
        local.as_secs_f64() * 1_000.0 * 100.0 / percent
    };
    let here = Leadership { leader: None, is_here: true, term: 1 };
    let until = lease().confirm(here, BootTime::default())?;
    let (until, opens) = (real_ms(until.0), real_ms(lease().opens(BootTime::default()).0));
    let opens = opens + rng.below(ELECTION_MS) as f64;
    (until > opens).then(|| Violation {
        checker: "best-effort",
        what: format!("a leader grants until {until} ms, and the next one from {opens} ms on"),
    })
}

fn play(rng: &mut Rng) -> Option<Violation> {
    let cut = *rng.pick(&[Cut::Together, Cut::Reset, Cut::Silent])?;
    let ttl_ms = rng.between(2_000, 120_000);
    let ttl = Duration::from_millis(ttl_ms);
    let mut leases = Leases::opened(local(0), LogicalTime(0), ttl, ttl);
    let own_ttl = rng.percent(30).then(|| LogicalTime(rng.between(1_000, ttl_ms)));
    leases.answered_best_effort(local(0), LogicalTime(0));
    leases.granted_best_effort(HOLD, own_ttl);

    // The session's last answered heartbeat is somewhere in the third of the TTL before.
    let cut_at = rng.between(ttl_ms / 3, ttl_ms);
    leases.answered(local(cut_at - rng.below(ttl_ms / 3)), LogicalTime(cut_at));
    // At once, if they were told that the leader's process is gone.
    let elected = cut_at + rng.below(2 * ELECTION_MS);
    let granted = elected + new_leader_waits_ms();
    let (noticed, allowed) = match cut {
        Cut::Together => {
            let told = rng.between(ELECTION_MS, STEPS_DOWN_MS) + rng.below(ROUND_TRIP_MAX_MS);
            (cut_at + told, OVERLAP_HEARD_MS)
        }
        Cut::Reset => (cut_at + rng.below(ROUND_TRIP_MAX_MS), OVERLAP_HEARD_MS),
        Cut::Silent => (cut_at + rng.between(SILENCE_MS - 1_000, SILENCE_MS), OVERLAP_UNHEARD_MS),
    };
    let believed_before = leases.valid_until(HOLD).map_or(0, ms);
    leases.leader_lost();
    let believed = leases.valid_until(HOLD).map_or(believed_before.min(noticed), ms);
    let overlap_ms = believed.saturating_sub(granted);
    (overlap_ms > allowed).then(|| Violation {
        checker: "best-effort",
        what: format!(
            "a client whose leader was cut off ({cut:?}) at {cut_at} ms believed in its lock until {believed} ms; \
             the next leader had granted it at {granted} ms, and {allowed} ms of both are allowed"
        ),
    })
}

fn local(ms: u64) -> LocalTime {
    LocalTime(Duration::from_millis(ms))
}

fn ms(time: LocalTime) -> u64 {
    u64::try_from(time.0.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_overlap_is_bounded_by_the_time_to_notice_and_not_by_the_ttl() {
        for seed in 0..200 {
            assert_eq!(check(seed), [], "seed {seed}");
        }
        const { assert!(OVERLAP_HEARD_MS < 1_000 && OVERLAP_UNHEARD_MS <= 5_000) };
    }
}
