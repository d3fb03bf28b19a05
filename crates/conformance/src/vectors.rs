//! Cases of what a client computes without I/O, with the answers of the Rust library: leases, the rule of fencing
//! tokens, endpoints, and the slots of names. They are recorded in `vectors/`, one case per line, so that the unit tests of other libraries
//! can read them without this program.
//!
//! A case is `{"in": …, "out": …}`. A driver is sent the former and must answer with the latter.

mod endpoints;
mod fence;
mod lease;
pub mod random;
mod slots;

use std::io;
use std::path::Path;

use serde_json::{Value, json};

pub const KINDS: [&str; 4] = ["lease", "fence", "endpoints", "slots"];

/// The Rust library's answer.
pub fn answer(kind: &str, input: &Value) -> Value {
    match kind {
        "lease" => lease::answer(input),
        "fence" => fence::answer(input),
        "slots" => slots::answer(input),
        _ => endpoints::answer(input),
    }
}

/// All cases of a kind, always the same.
pub fn cases_of(kind: &str) -> Vec<Value> {
    let inputs = match kind {
        "lease" => lease::inputs(),
        "fence" => fence::inputs(),
        "slots" => slots::inputs(),
        _ => endpoints::inputs(),
    };
    let with_answer = |input: Value| {
        let out = answer(kind, &input);
        json!({"in": input, "out": out})
    };
    inputs.into_iter().map(with_answer).collect()
}

pub fn write(directory: &Path) -> io::Result<()> {
    std::fs::create_dir_all(directory)?;
    for kind in KINDS {
        let lines: String = cases_of(kind).iter().map(|case| format!("{case}\n")).collect();
        std::fs::write(directory.join(format!("{kind}.jsonl")), lines)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recorded_vectors_are_those_of_this_build() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("vectors");
        for kind in KINDS {
            let recorded =
                std::fs::read_to_string(directory.join(format!("{kind}.jsonl"))).unwrap();
            let recorded: Vec<Value> =
                recorded.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            assert!(recorded == cases_of(kind), "write them again: holdfast-conformance vectors");
        }
    }

    #[test]
    fn the_vectors_have_both_outcomes() {
        for kind in ["fence", "endpoints"] {
            let cases = cases_of(kind);
            let refused = cases.iter().filter(|case| case["out"].get("error").is_some()).count();
            assert!(
                refused > 20 && cases.len() - refused > 20,
                "{kind}: {refused} of {}",
                cases.len()
            );
        }
    }
}
