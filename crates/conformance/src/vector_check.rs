//! Sends the vectors to a driver.

use holdfast_conformance::vectors::cases_of;
use serde_json::{Value, json};

use crate::driver::Driver;
use crate::finding::{Checked, broken, ensure};

/// Cases in one request to the driver.
const BATCH: usize = 100;

/// How many cases the driver answered as the Rust library does.
pub(crate) async fn check_vectors(kind: &str, driver: &Driver) -> Checked<usize> {
    let cases = cases_of(kind);
    for batch in cases.chunks(BATCH) {
        let inputs: Vec<&Value> = batch.iter().map(|case| &case["in"]).collect();
        let answers = driver.ok(json!({"op": "vectors", "kind": kind, "cases": inputs})).await?;
        let answers = answers["answers"].as_array().ok_or_else(|| broken("no answers"))?;
        for (case, answer) in batch.iter().zip(answers) {
            ensure(case["out"] == *answer, || {
                format!("{} is {answer}, and should be {}", case["in"], case["out"])
            })?;
        }
        ensure(answers.len() == batch.len(), || "some cases have no answer".to_owned())?;
    }
    Ok(cases.len())
}
