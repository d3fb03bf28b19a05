//! Leases: a session is opened, things happen, and then it is asked until when what is trusted. Times are in
//! nanoseconds of a local clock, or in milliseconds of logical time.

use std::time::Duration;

use holdfast_client_core::lease::{HoldId, Leases, LocalTime, LogicalTime, RenewalId};
use serde_json::{Map, Value, json};

use super::random::Random;

const CASES: u64 = 600;
const HOLDS: u64 = 3;
const MS: u64 = 1_000_000;

pub(super) fn inputs() -> Vec<Value> {
    let mut random = Random(29);
    (0..CASES).map(|_| input(&mut random)).collect()
}

fn input(random: &mut Random) -> Value {
    let ttl_ms = 100 + random.below(60_000);
    let linger_ms = if random.below(2) == 0 { ttl_ms } else { random.below(90_000) };
    let (mut now, mut logical) = (5_000 * MS + random.below(MS), random.below(1_000_000_000));
    let opened = json!({"sent_at": now, "logical_ms": logical});
    let mut steps = Vec::new();
    for _ in 0..random.below(9) {
        let pause = random.below(ttl_ms);
        now += pause * MS + random.below(MS);
        // The answer's logical time is later than the sending, and may come out of order.
        logical += pause + random.below(50);
        let sent_at = now - random.below(1_000) * MS;
        // Few holds and renewals, so that several renewals of a hold are under way at once.
        let (hold, renewal) = (random.below(HOLDS), random.below(3));
        let deadline_ms = match random.below(3) {
            0 => None,
            _ => Some(logical + random.below(60_000)),
        };
        // A renewal without a TTL keeps the one that the hold has.
        let ttl = Some(1 + random.below(20_000)).filter(|ttl| ttl % 3 != 0);
        steps.push(match random.below(12) {
            0..=2 => json!({"do": "answered", "sent_at": sent_at, "logical_ms": logical}),
            3 => json!({"do": "answered_best_effort", "sent_at": sent_at, "logical_ms": random.below(100_000)}),
            4..=5 => json!({"do": "granted", "hold": hold, "deadline_ms": deadline_ms}),
            6 => json!({"do": "granted_best_effort", "hold": hold, "deadline_ms": deadline_ms}),
            7 => json!({"do": "renewal_sent", "hold": hold, "renewal": renewal, "sent_at": now, "ttl_ms": ttl}),
            8 => json!({"do": "renewed", "hold": hold, "renewal": renewal, "deadline_ms": deadline_ms}),
            9 => json!({"do": "renewal_refused", "hold": hold, "renewal": renewal}),
            10 => json!({"do": "ended", "hold": hold}),
            _ => json!({"do": *random.of(&["best_effort_restarts", "leader_lost"])}),
        });
    }
    json!({"ttl_ms": ttl_ms, "linger_ms": linger_ms, "opened": opened, "steps": steps})
}

pub(super) fn answer(input: &Value) -> Value {
    let local = |input: &Value| LocalTime(Duration::from_nanos(number(input, "sent_at")));
    let logical = |input: &Value| LogicalTime(number(input, "logical_ms"));
    let span = |input: &Value, key: &str| Duration::from_millis(number(input, key));
    let opened = &input["opened"];
    let mut leases = Leases::opened(
        local(opened),
        logical(opened),
        span(input, "ttl_ms"),
        span(input, "linger_ms"),
    );
    for step in input["steps"].as_array().into_iter().flatten() {
        let hold = HoldId(number(step, "hold"));
        let renewal = RenewalId(number(step, "renewal"));
        let deadline = step["deadline_ms"].as_u64().map(LogicalTime);
        match step["do"].as_str().unwrap_or_default() {
            "answered" => leases.answered(local(step), logical(step)),
            "answered_best_effort" => leases.answered_best_effort(local(step), logical(step)),
            "granted" => leases.granted(hold, deadline),
            "granted_best_effort" => leases.granted_best_effort(hold, deadline),
            "renewal_sent" => {
                let ttl = step["ttl_ms"].as_u64().map(Duration::from_millis);
                leases.renewal_sent(hold, renewal, local(step), ttl);
            }
            "renewed" => leases.renewed(hold, renewal, deadline),
            "renewal_refused" => leases.renewal_refused(hold, renewal),
            "ended" => leases.ended(hold),
            "best_effort_restarts" => leases.best_effort_restarts(),
            _ => drop(leases.leader_lost()),
        }
    }
    let nanos = |time: LocalTime| json!(u64::try_from(time.0.as_nanos()).unwrap_or(u64::MAX));
    let holds: Map<String, Value> = (0..HOLDS)
        .filter_map(|hold| {
            let id = HoldId(hold);
            let told = json!({
                "valid_until": nanos(leases.valid_until(id)?),
                "at_risk_from": nanos(leases.at_risk_from(id)?),
                "ends_before_session": leases.ends_before_session(id),
            });
            Some((hold.to_string(), told))
        })
        .collect();
    json!({
        "session_valid_until": nanos(leases.session_valid_until()),
        "heartbeat_due": nanos(leases.heartbeat_due()),
        "holds": holds,
    })
}

/// A number of the input; 0 if it is not there.
fn number(input: &Value, key: &str) -> u64 {
    input[key].as_u64().unwrap_or(0)
}
