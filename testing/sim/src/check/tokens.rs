//! Tokens: they never go back. In the log every exclusive grant, every permit and every upgrade has a higher one
//! than all before it in the group; a run of readers has one token; a downgrade keeps it. What clients were told
//! must fit that, name by name.

use std::collections::BTreeMap;

use holdfast_core::command::Mode;
use holdfast_core::{Event, FenceToken, LockName};

use super::evidence::Evidence;
use super::findings::{Findings, Which, Who};
use super::holders::Holders;
use crate::history::{ClientOperation, History, RealTime, Violation};

pub fn check(history: &Evidence<'_>) -> Vec<Violation> {
    let mut findings = Findings::of("tokens");
    check_log(history, &mut findings);
    check_answers(history, &mut findings);
    findings.into_violations()
}

fn check_log(history: &Evidence<'_>, findings: &mut Findings) {
    let mut highest = FenceToken(0);
    let mut holders = Holders::default();
    for entry in history.log() {
        let index = entry.index.0;
        for event in &entry.events {
            match event {
                Event::Granted { name, session, mode, token, .. } => {
                    // Readers of one run have one token.
                    let run = holders.of(name).iter().find(|holder| holder.mode == Mode::Shared);
                    let joins = *mode == Mode::Shared && run.is_some_and(|run| run.token == *token);
                    if *token <= highest && !joins {
                        findings.add(format!(
                            "{name} was granted to {} under {token} at index {index}, after {highest} had \
                             been granted in the group",
                            Who(*session),
                        ));
                    }
                    if *mode == Mode::Shared && run.is_some() && !joins {
                        findings.add(format!(
                            "{name} was granted to {} under {token} at index {index}, and its run of \
                             readers has another token",
                            Who(*session),
                        ));
                    }
                    highest = highest.max(*token);
                }
                Event::Converted { name, session, request, mode, token, .. } => {
                    let before = holders.find(name, *session, *request).map(|hold| hold.token);
                    let fits = match mode {
                        Mode::Exclusive => *token > highest,
                        _ => before == Some(*token),
                    };
                    if !fits {
                        findings.add(format!(
                            "{} converted {name} to {mode:?} under {token} at index {index}; it held under \
                             {before:?}, and {highest} had been granted",
                            Who(*session),
                        ));
                    }
                    highest = highest.max(*token);
                }
                _ => {}
            }
            holders.follow(event);
        }
    }
}

struct Granted<'a> {
    operation: &'a ClientOperation,
    returned: RealTime,
    token: FenceToken,
    mode: Mode,
}

fn check_answers(history: &History, findings: &mut Findings) {
    let mut by_name: BTreeMap<&LockName, Vec<Granted<'_>>> = BTreeMap::new();
    for operation in &history.operations {
        let Some((returned, _)) = operation.returned else { continue };
        for grant in operation.grants() {
            let (token, mode) = (grant.token, grant.mode);
            let granted = Granted { operation, returned, token, mode };
            by_name.entry(&grant.name).or_default().push(granted);
        }
    }
    for (name, mut grants) in by_name {
        grants.sort_by_key(|granted| granted.token);
        for pair in grants.windows(2) {
            let [first, second] = pair else { continue };
            // One session is told a token again when it asks again, enters again or converts down.
            let same_session = first.operation.session == second.operation.session;
            let same_run = first.mode == Mode::Shared || second.mode == Mode::Shared;
            if first.token == second.token && !same_session && !same_run {
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
    use crate::check::test_history::*;
    use holdfast_core::command::Mode;

    #[test]
    fn rising_tokens_are_fine() {
        let mut story = TestHistory::default();
        story.log(1, [granted("a", 1, 1, 1)]);
        story.log(2, [granted("b", 1, 2, 2)]);
        story.acquire("a", 1, 1).from(0).until(5, grants("a", 1));
        story.acquire("a", 2, 1).from(1).until(9, grants("a", 4));
        story.acquire("a", 3, 1).from(2).until(7, grants("a", 3));
        assert_eq!(check(&story.evidence()), []);
    }

    #[test]
    fn a_token_that_goes_back_is_found_even_on_another_name() {
        let mut story = TestHistory::default();
        story.log(1, [granted("a", 1, 1, 2)]);
        story.log(2, [granted("b", 1, 2, 2)]);
        assert_eq!(check(&story.evidence()).len(), 1);
    }

    #[test]
    fn clients_that_were_told_the_same_token_are_found() {
        let mut story = TestHistory::default();
        story.acquire("a", 1, 1).from(0).until(5, grants("a", 1));
        story.acquire("a", 2, 1).from(1).until(6, grants("a", 1));
        assert_eq!(check(&story.evidence()).len(), 1);
    }

    #[test]
    fn a_client_that_asked_later_and_was_told_less_is_found() {
        let mut story = TestHistory::default();
        story.acquire("a", 1, 1).from(0).until(5, grants("a", 2));
        story.acquire("a", 2, 1).from(6).until(9, grants("a", 1));
        assert_eq!(check(&story.evidence()).len(), 1);
    }

    #[test]
    fn readers_of_one_run_have_one_token_and_the_next_writer_a_higher_one() {
        let shared = Mode::Shared;
        let mut story = TestHistory::default();
        story.log(1, [granted_as("a", 1, 1, 5, shared), granted("b", 1, 2, 6)]);
        story.log(2, [granted_as("a", 2, 1, 5, shared), released("a", 1, 1, 5)]);
        story.log(3, [converted("a", 2, 1, 7, Mode::Exclusive), converted("a", 2, 1, 7, shared)]);
        assert_eq!(check(&story.evidence()), []);
        story.log(4, [granted_as("a", 3, 1, 8, shared)]);
        assert_eq!(check(&story.evidence()).len(), 1);
    }

    #[test]
    fn an_upgrade_that_keeps_its_token_and_a_downgrade_that_does_not_are_found() {
        let mut story = TestHistory::default();
        story.log(1, [granted_as("a", 1, 1, 5, Mode::Shared), granted("b", 1, 2, 6)]);
        story.log(2, [converted("a", 1, 1, 5, Mode::Exclusive)]);
        story.log(3, [converted("b", 1, 2, 7, Mode::Shared)]);
        assert_eq!(check(&story.evidence()).len(), 2);
    }
}
