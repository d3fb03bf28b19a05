//! The rule by which a resource takes a token: a sequence of tokens meets one resource.

use holdfast_fence::{Accepts, Fence, Guarantee, HighWaterMark, Refusal, admit};
use serde_json::{Value, json};

use super::random::Random;

const CASES: u64 = 900;
const NAMES: [&str; 4] = ["wallet:42", "a", "größe/ß", "wallet:43"];

pub(super) fn inputs() -> Vec<Value> {
    let mut random = Random(30);
    (0..CASES).map(|_| input(&mut random)).collect()
}

fn input(random: &mut Random) -> Value {
    let resource = *random.of(&NAMES);
    let accepts = if random.below(4) == 0 { "best_effort" } else { "linearizable" };
    let mark = match random.below(3) {
        0 => 0,
        1 => random.below(100),
        _ => random.below(1 << 40),
    };
    json!({"resource": resource, "accepts": accepts, "mark": mark.to_string(), "fence": text(random, resource, mark)})
}

/// Mostly a token of the resource, sometimes one with a mistake.
fn text(random: &mut Random, resource: &str, mark: u64) -> Value {
    let guarantee = match random.below(4) {
        0 => Guarantee::BestEffort,
        _ => Guarantee::Linearizable,
    };
    let number = match random.below(5) {
        0 => mark.saturating_sub(1 + random.below(10)),
        1 => mark,
        2 => (1 << 63) - 1,
        _ => mark + random.below(1_000),
    };
    let name = if random.below(8) == 0 { *random.of(&NAMES) } else { resource };
    let Some(fence) = Fence::new(guarantee, name, number) else { return Value::Null };
    let fence = fence.to_string();
    json!(match random.below(24) {
        0 => return Value::Null,
        1 => String::new(),
        2 => fence.replace("hf1", "hf2"),
        3 => fence.replace(".L.", ".X."),
        4 => fence.to_uppercase(),
        5 => format!("{fence}.1"),
        6 => fence.rsplit_once('.').map_or(String::new(), |(start, _)| start.to_owned()),
        7 => fence.rsplit_once('.').map_or(String::new(), |(start, end)| format!("{start}.0{end}")),
        8 => fence
            .rsplit_once('.')
            .map_or(String::new(), |(start, _)| format!("{start}.9223372036854775808")),
        9 => number.to_string(),
        10 => format!(" {fence}"),
        11 => fence.replacen('.', "..", 1),
        12 =>
            fence.rsplit_once('.').map_or(String::new(), |(start, end)| format!("{start}.+{end}")),
        _ => fence,
    })
}

pub(super) fn answer(input: &Value) -> Value {
    let resource = input["resource"].as_str().unwrap_or_default();
    let accepts = match input["accepts"].as_str() {
        Some("best_effort") => Accepts::BestEffort,
        _ => Accepts::Linearizable,
    };
    let mark = input["mark"].as_str().and_then(|mark| mark.parse().ok()).unwrap_or(0);
    let mut mark = HighWaterMark::from_token(mark);
    let passed = admit(input["fence"].as_str(), resource, accepts)
        .and_then(|claim| mark.raise(&claim).map(|()| claim.token()));
    match passed {
        Ok(token) => json!({"token": token.to_string()}),
        Err(refusal) => json!({"error": kind_of(&refusal)}),
    }
}

fn kind_of(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::Missing { .. } => "missing",
        Refusal::Malformed { .. } => "malformed",
        Refusal::NotFenceable { .. } => "not_fenceable",
        Refusal::Zero { .. } => "zero",
        Refusal::OtherResource { .. } => "other_resource",
        Refusal::BestEffort { .. } => "best_effort",
        Refusal::NotBestEffort { .. } => "not_best_effort",
        Refusal::Stale { .. } => "stale",
    }
}
