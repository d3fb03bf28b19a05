//! What holds over the gap between clusters that were lost and the one that was restored from a backup of theirs:
//! * every token of the new one is higher than all of those before, those that no backup knew included;
//! * the term of each of its leaders is higher than those of the cluster that the backup is of: it is the upper part of
//!   the tokens that a leader grants from its memory;
//! * no session lives on;
//! * nothing is granted again while a client of before may believe to hold it, as long as its TTL is covered by
//!   the time for which everything is closed (the backup's longest, and half a minute at least);
//! * the protected resource goes on to refuse what is older than what it has seen.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_core::{Event, FenceToken, LockName, Outcome, SessionId};

use super::fence;
use super::findings::{At, Findings, Which, Who};
use crate::history::{ClientOperation, Happening, History, Input, Output, RealTime, StoreWrite};
use crate::history::{Replicated, Violation};

/// What the sessions of before still did in the new cluster; the rest of its history knows nothing of them.
#[derive(Debug, Default)]
pub struct Leftovers {
    operations: Vec<ClientOperation>,
    writes: Vec<StoreWrite>,
}

/// Takes out of a history that begins with a restore what belongs to sessions of before.
pub fn set_apart(after: &mut History) -> Leftovers {
    let opened: BTreeSet<SessionId> = events(after)
        .filter_map(|(_, event)| match event {
            Event::SessionOpened { session, .. } => Some(*session),
            _ => None,
        })
        .collect();
    let is_new = |operation: &ClientOperation| {
        let of_nobody = matches!(operation.input, Input::Intervene(_) | Input::Status { .. });
        let opens = matches!(operation.input, Input::OpenSession { .. });
        of_nobody || opens || opened.contains(&operation.session)
    };
    let (kept, operations) = std::mem::take(&mut after.operations).into_iter().partition(is_new);
    let (written, writes) = std::mem::take(&mut after.writes)
        .into_iter()
        .partition(|write: &StoreWrite| opened.contains(&write.session));
    (after.operations, after.writes) = (kept, written);
    Leftovers { operations, writes }
}

/// `before` are the clusters that were lost, in their order.
pub fn check(before: &[History], after: &History, leftovers: &Leftovers) -> Vec<Violation> {
    let mut findings = Findings::of("restore");
    check_tokens(before, after, &mut findings);
    check_terms(before, after, &mut findings);
    check_sessions(leftovers, &mut findings);
    if let Some(lost_last) = before.last() {
        check_belief(lost_last, after, leftovers, &mut findings);
    }
    let writes = before.iter().flat_map(|lost| &lost.writes);
    let mut writes: Vec<&StoreWrite> =
        writes.chain(&after.writes).chain(&leftovers.writes).collect();
    writes.sort_by_key(|write| write.at);
    fence::check_store(writes, &mut findings);
    findings.into_violations()
}

fn check_tokens(before: &[History], after: &History, findings: &mut Findings) {
    let granted = before.iter().flat_map(grants_in).map(|(_, _, token)| token);
    let highest = granted.max().unwrap_or(FenceToken(0));
    let back = grants_in(after).find(|(_, _, token)| *token <= highest);
    if let Some((record, name, token)) = back {
        let mut granted = before.iter().flat_map(grants_in);
        let twice = granted.any(|(_, _, granted)| granted == token);
        findings.add(format!(
            "{name} was granted under {token} at index {} of the restored cluster; those before had granted up to \
             {highest}{}",
            record.index.0,
            if twice { ", and that very token too" } else { "" }
        ));
    }
}

/// Elections that a cluster may have had after its backup, unknown to all who are left.
const LOST_TERMS_MAX: u64 = 1 << 15;

/// Of two clusters that were restored from one backup within seconds, the second may lead in terms of the first: its
/// operator has to give a floor if best-effort tokens must not come again. So these are not compared.
fn check_terms(before: &[History], after: &History, findings: &mut Findings) {
    let backup_of = after.beginning.map_or(0, |beginning| beginning.backup_of);
    let terms =
        before.iter().take(backup_of + 1).flat_map(|lost| &lost.leaders).map(|span| span.term);
    let highest = terms.max().unwrap_or(0);
    let back = after.leaders.iter().find(|span| span.term <= highest + LOST_TERMS_MAX);
    if let Some(span) = back {
        findings.add(format!(
            "node {} of the restored cluster led in term {}; the cluster of its backup had come to term {highest}, \
             and to some that are not known: best-effort tokens may come again",
            span.node, span.term
        ));
    }
}

fn check_sessions(leftovers: &Leftovers, findings: &mut Findings) {
    for operation in &leftovers.operations {
        if let Some((at, Output::Outcome(outcome))) = &operation.returned
            && is_of_a_live_session(outcome)
        {
            findings.add(format!(
                "{} was answered {outcome:?} at {} by the restored cluster, though its session was of the \
                 one before",
                Which(operation.session, operation.request),
                At(*at)
            ));
        }
    }
}

fn is_of_a_live_session(outcome: &Outcome) -> bool {
    matches!(
        outcome,
        Outcome::SessionOpen { .. }
            | Outcome::Touched { .. }
            | Outcome::Granted(_)
            | Outcome::GrantedAll(_)
            | Outcome::Busy
            | Outcome::Renewed { .. }
            | Outcome::Proclaimed
            | Outcome::Transferred { .. }
    )
}

fn check_belief(before: &History, after: &History, leftovers: &Leftovers, findings: &mut Findings) {
    let Some(beginning) = after.beginning else { return };
    if after.rates_broken {
        return;
    }
    let mut granted_after: BTreeMap<&LockName, RealTime> = BTreeMap::new();
    for (record, name, _) in grants_in(after) {
        granted_after.entry(name).or_insert(record.real);
    }
    let covered: BTreeSet<SessionId> = before
        .operations
        .iter()
        .filter_map(|operation| match &operation.returned {
            Some((_, Output::Outcome(Outcome::SessionOpen { ttl, .. })))
                if *ttl <= beginning.closed_for =>
            {
                Some(operation.session)
            }
            _ => None,
        })
        .collect();
    for write in leftovers.writes.iter().filter(|write| covered.contains(&write.session)) {
        let Some(granted) = granted_after.get(&write.name) else { continue };
        let leapt_us = after.clocks.leapt_us(beginning.at, *granted);
        if !write.clock_stood_still && write.believed.0 > granted.0 + leapt_us {
            findings.add(format!(
                "{} believed in its lease of {} at {}; the restored cluster had granted it at {}",
                Who(write.session),
                write.name,
                At(write.believed),
                At(*granted)
            ));
        }
    }
}

fn events(history: &History) -> impl Iterator<Item = (&Replicated, &Event)> {
    history.replicated.iter().filter_map(|record| match &record.what {
        Happening::Event(event) => Some((record, event)),
        _ => None,
    })
}

fn grants_in(history: &History) -> impl Iterator<Item = (&Replicated, &LockName, FenceToken)> {
    events(history).filter_map(|(record, event)| match event {
        Event::Granted { name, token, .. } | Event::Converted { name, token, .. } => {
            Some((record, name, *token))
        }
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::test_history::*;
    use crate::history::{Beginning, LeaderSpan};
    use holdfast_core::Span;

    /// Session 1 holds `a` until all is lost at 100 ms; everything is closed for a second.
    fn stories() -> (TestHistory, TestHistory) {
        let mut before = TestHistory::default();
        before.open(1, 1_000, 1_000, 0);
        before.log(10, [granted("a", 1, 1, 7)]);
        let mut after = TestHistory::default();
        let closed_for = Span::from_ms(1_000);
        after.history.beginning = Some(Beginning { at: ms(100), closed_for, backup_of: 0 });
        (before, after)
    }

    fn found(before: &TestHistory, mut after: TestHistory) -> usize {
        let leftovers = set_apart(&mut after.history);
        check(std::slice::from_ref(&before.history), &after.history, &leftovers).len()
    }

    #[test]
    fn higher_tokens_after_the_old_leases_are_fine() {
        let (before, mut after) = stories();
        after.write("a", 1, 7, 900, true);
        after.log(1_200, [opened(2), granted("a", 2, 1, 8)]);
        after.write("a", 2, 8, 1_300, true);
        assert_eq!(found(&before, after), 0);
    }

    #[test]
    fn a_token_that_was_granted_before_is_found() {
        let (before, mut after) = stories();
        after.log(1_200, [opened(2), granted("b", 2, 1, 7)]);
        assert_eq!(found(&before, after), 1);
    }

    #[test]
    fn a_token_of_a_cluster_that_was_restored_from_the_same_backup_before_is_found() {
        let (before, between) = stories();
        let (mut between, mut after) = (between, stories().1);
        between.log(1_200, [opened(2), granted("a", 2, 1, 50)]);
        after.log(2_400, [opened(3), granted("a", 3, 1, 50)]);
        let leftovers = set_apart(&mut after.history);
        let lost = [before.history, between.history];
        let found = check(&lost, &after.history, &leftovers);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].what.contains("that very token"), "{found:?}");
        assert!(check(&lost[..1], &after.history, &leftovers).is_empty(), "it is above the first");
    }

    #[test]
    fn a_leader_in_a_term_that_may_have_been_led_before_is_found() {
        let leads = |story: &mut TestHistory, term: u64| {
            let node = holdfast_replica::NodeId(1);
            let (from, to) = (ms(0), ms(100));
            story.history.leaders.push(LeaderSpan { node, term, from, to });
        };
        for (term, violations) in [(7, 1), (7 + LOST_TERMS_MAX, 1), (8 + LOST_TERMS_MAX, 0)] {
            let (mut before, mut after) = stories();
            leads(&mut before, 7);
            leads(&mut after, term);
            assert_eq!(found(&before, after), violations);
        }
    }

    #[test]
    fn a_grant_while_somebody_of_before_believes_is_found() {
        let (before, mut after) = stories();
        after.log(300, [opened(2), granted("a", 2, 1, 8)]);
        after.write("a", 1, 7, 400, true);
        assert_eq!(found(&before, after), 1);
    }

    #[test]
    fn a_ttl_longer_than_everything_is_closed_has_only_its_token() {
        let (mut before, mut after) = stories();
        before.history.operations.clear();
        before.open(1, 5_000, 5_000, 0);
        after.log(1_200, [opened(2), granted("a", 2, 1, 8)]);
        after.write("a", 1, 7, 1_300, true);
        assert_eq!(found(&before, after), 0);
    }

    #[test]
    fn a_store_that_forgets_what_it_saw_before_is_found() {
        let (mut before, mut after) = stories();
        before.write("a", 1, 7, 50, true);
        after.log(1_200, [opened(2), granted("a", 2, 1, 8)]);
        after.write("a", 2, 8, 1_300, false);
        assert_eq!(found(&before, after), 1);
    }

    #[test]
    fn a_session_that_lives_on_is_found() {
        let (before, mut after) = stories();
        after.acquire("a", 1, 2).from(1_400).until(1_500, grants("a", 8));
        assert_eq!(found(&before, after), 1);
    }
}
