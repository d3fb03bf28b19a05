//! Tokens: they never go back. In the log every grant of the group has a higher one than all before it; what
//! clients were told must fit that, name by name.

use std::collections::BTreeMap;

use holdfast_core::{Event, FenceToken, LockName, Outcome};

use super::evidence::Evidence;
use super::words::{Findings, Which, Who};
use crate::history::{ClientOperation, History, Input, Output, RealTime, Violation};

pub fn check(history: &Evidence<'_>) -> Vec<Violation> {
    let mut findings = Findings::of("tokens");
    check_log(history, &mut findings);
    check_answers(history, &mut findings);
    findings.into_violations()
}

fn check_log(history: &Evidence<'_>, findings: &mut Findings) {
    let mut highest = FenceToken(0);
    for entry in history.log() {
        for event in &entry.events {
            let Event::Granted { name, session, token, .. } = event else { continue };
            if *token <= highest {
                findings.add(format!(
                    "{name} was granted to {} under {token} at index {}, after {highest} had been \
                     granted in the group",
                    Who(*session),
                    entry.index.0,
                ));
            }
            highest = highest.max(*token);
        }
    }
}

struct Granted<'a> {
    operation: &'a ClientOperation,
    returned: RealTime,
    token: FenceToken,
}

fn check_answers(history: &History, findings: &mut Findings) {
    let mut by_name: BTreeMap<&LockName, Vec<Granted<'_>>> = BTreeMap::new();
    for operation in &history.operations {
        if let Input::Acquire { name, .. } = &operation.input
            && let Some((returned, Output::Outcome(Outcome::Granted(grant)))) = &operation.returned
        {
            let granted = Granted { operation, returned: *returned, token: grant.token };
            by_name.entry(name).or_default().push(granted);
        }
    }
    for (name, mut grants) in by_name {
        grants.sort_by_key(|granted| granted.token);
        for pair in grants.windows(2) {
            let [first, second] = pair else { continue };
            let same_request = (first.operation.session, first.operation.request)
                == (second.operation.session, second.operation.request);
            if first.token == second.token && !same_request {
                findings.add(format!(
                    "{name}: {} and {} were both told token {}",
                    Which(first.operation.session, first.operation.request),
                    Which(second.operation.session, second.operation.request),
                    first.token
                ));
            }
        }
        check_real_time_order(name, &grants, findings);
    }
}

/// An acquire that begins after another has returned gets a higher token. `grants` in order of tokens.
fn check_real_time_order(name: &LockName, grants: &[Granted<'_>], findings: &mut Findings) {
    let mut latest_invoked: Option<&Granted<'_>> = None;
    for granted in grants {
        if let Some(lower) = latest_invoked
            && lower.token < granted.token
            && lower.operation.invoked > granted.returned
        {
            findings.add(format!(
                "{name}: {} was told token {}, lower than the {} that {} had been told before it asked",
                Which(lower.operation.session, lower.operation.request),
                lower.token,
                granted.token,
                Which(granted.operation.session, granted.operation.request),
            ));
        }
        if latest_invoked.is_none_or(|known| known.operation.invoked < granted.operation.invoked) {
            latest_invoked = Some(granted);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::check::story::{Story, granted, grants};

    #[test]
    fn rising_tokens_are_fine() {
        let mut story = Story::default();
        story.log(1, [granted("a", 1, 1, 1)]);
        story.log(2, [granted("b", 1, 2, 2)]);
        story.acquire("a", 1, 1).from(0).until(5, grants("a", 1));
        story.acquire("a", 2, 1).from(1).until(9, grants("a", 4));
        story.acquire("a", 3, 1).from(2).until(7, grants("a", 3));
        assert_eq!(check(&story.evidence()), []);
    }

    #[test]
    fn a_token_that_goes_back_is_found_even_on_another_name() {
        let mut story = Story::default();
        story.log(1, [granted("a", 1, 1, 2)]);
        story.log(2, [granted("b", 1, 2, 2)]);
        assert_eq!(check(&story.evidence()).len(), 1);
    }

    #[test]
    fn clients_that_were_told_the_same_token_are_found() {
        let mut story = Story::default();
        story.acquire("a", 1, 1).from(0).until(5, grants("a", 1));
        story.acquire("a", 2, 1).from(1).until(6, grants("a", 1));
        assert_eq!(check(&story.evidence()).len(), 1);
    }

    #[test]
    fn a_client_that_asked_later_and_was_told_less_is_found() {
        let mut story = Story::default();
        story.acquire("a", 1, 1).from(0).until(5, grants("a", 2));
        story.acquire("a", 2, 1).from(6).until(9, grants("a", 1));
        assert_eq!(check(&story.evidence()).len(), 1);
    }
}
