//! Linearizability of what clients saw: is there one order of all operations, each taking effect at one point
//! between its call and its return, in which a plain lock gives exactly the answers that were given?
//!
//! Locks compose: a history is linearizable if it is for each name alone. So the search runs name by name
//! (closing a session counts under each name that the session used).
//!
//! * `model`: the plain lock.
//! * `steps`: what clients asked and were told, as steps of that lock.
//! * `lifetimes`: when a hold can have ended without a request.
//! * `search`: the search for an order.
//!
//! Where the history has the replicated part, expiries, conversions and the tokens of unanswered acquires are taken
//! from there, and the search has little left to guess.
//!
//! Caveats: how many permits there are is for the checker of exclusion to count, an acquire-all is one step for each
//! of its names, and where all modes meet (`kinds`) nothing is judged without the log.

mod kinds;
mod label;
mod lifetimes;
mod model;
#[cfg(test)]
mod random_tests;
mod search;
mod steps;
#[cfg(test)]
mod tests;

use super::evidence::Evidence;
use super::findings::Findings;
use super::promises::Promises;
use crate::history::Violation;

pub use search::Verdict;

pub fn check(history: &Evidence<'_>, promises: &Promises) -> Vec<Violation> {
    let mut findings = Findings::of("linearizability");
    for contradiction in steps::contradictions(history) {
        findings.add(contradiction);
    }
    for (name, steps) in steps::by_name(history, promises) {
        match search::search(&steps, promises.linearization_steps_max) {
            Verdict::Linearizable => {}
            Verdict::Impossible { why } => findings.add(format!("{name}: {why}")),
            Verdict::GaveUp { visited } => {
                if promises.giving_up_is_a_violation {
                    findings.add(format!(
                        "{name}: not decided after {visited} configurations of {} operations",
                        steps.len()
                    ));
                }
            }
        }
    }
    findings.into_violations()
}
