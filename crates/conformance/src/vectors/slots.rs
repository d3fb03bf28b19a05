//! The slots of lock names: those of `crates/core/tests/vectors/slots.txt`, and names that are drawn.

use holdfast_proto::Slot;
use serde_json::{Value, json};

use super::random::Random;

/// Each line: the slot, a tab, the name.
const EXAMPLES: &str = include_str!("../../../core/tests/vectors/slots.txt");
const DRAWN: u64 = 400;
/// Mostly braces, and characters of one to four bytes.
const PARTS: [&str; 14] =
    ["{", "{", "{", "}", "}", "}", "a", "order-42", "/", " ", "ü", "漢字", "𝄞", "e\u{301}"];
const PARTS_MAX: u64 = 12;

pub(super) fn inputs() -> Vec<Value> {
    let mut random = Random(32);
    let drawn = (0..DRAWN).map(|_| {
        let parts = (0..1 + random.below(PARTS_MAX)).map(|_| *random.of(&PARTS));
        parts.collect::<String>()
    });
    let drawn: Vec<String> = drawn.collect();
    let examples = examples().map(|(name, _)| name.to_owned());
    examples.chain(drawn).map(|name| json!({"name": name})).collect()
}

pub(super) fn answer(input: &Value) -> Value {
    json!({"slot": Slot::of(input["name"].as_str().unwrap_or_default()).number()})
}

/// The names of the examples, with their slots.
fn examples() -> impl Iterator<Item = (&'static str, u16)> {
    let lines = EXAMPLES.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| {
        let (slot, name) = line.split_once('\t')?;
        Some((name, slot.parse().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vectors_begin_with_the_recorded_examples() {
        let inputs = inputs();
        let recorded = EXAMPLES.lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(examples().count(), recorded, "a line that cannot be read");
        for ((name, slot), input) in examples().zip(&inputs) {
            assert_eq!(input["name"], name);
            assert_eq!(answer(input)["slot"], slot);
        }
        let has_braces = |input: &&Value| {
            let opened = input["name"].as_str().unwrap().split_once('{');
            opened.is_some_and(|(_, behind)| behind.contains('}'))
        };
        let tagged = inputs.iter().filter(has_braces).count();
        assert!(tagged > 100 && inputs.len() - tagged > 100, "{tagged} of {}", inputs.len());
    }
}
