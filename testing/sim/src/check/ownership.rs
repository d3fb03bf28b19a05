//! Nothing is granted, and nothing waits, in a slot that the group does not own at that place of the log; the epoch only
//! rises; and a group refuses a lock as another group's only by the epoch that is in force when it is asked.

use holdfast_core::command::{Action, Mode};
use holdfast_core::{Event, LockName, MapEpoch, Outcome, Rejection, Slot, SlotSet};

use super::evidence::Evidence;
use super::findings::{Findings, Which};
use crate::history::{ClientOperation, Input, Output, RealTime, Violation};

/// Which slots the group owned from an entry of the log on.
struct Span<'a> {
    epoch: MapEpoch,
    slots: &'a SlotSet,
    from: RealTime,
}

pub fn check(history: &Evidence<'_>) -> Vec<Violation> {
    let mut findings = Findings::of("ownership");
    if history.log().is_empty() {
        return findings.into_violations();
    }
    let mut spans: Vec<Span<'_>> = Vec::new();
    // A cluster that was restored has slots of which the history does not tell.
    if history.beginning.is_none() {
        let (epoch, slots) = match &history.founding {
            Some((epoch, slots)) => (*epoch, slots),
            None => (MapEpoch(0), &SlotSet::ALL),
        };
        spans.push(Span { epoch, slots, from: RealTime(0) });
    }
    for entry in history.log() {
        let index = entry.index.0;
        for event in &entry.events {
            match event {
                Event::OwnershipChanged { epoch, slots } => {
                    let before = spans.last().map(|span| span.epoch);
                    if before.is_some_and(|before| before >= *epoch) {
                        findings.add(format!(
                            "the epoch is {epoch} from index {index} on, after {before:?}"
                        ));
                    }
                    spans.push(Span { epoch: *epoch, slots, from: entry.first_applied });
                }
                Event::Granted { name, session, request, .. }
                | Event::Queued { name, session, request, .. }
                | Event::Converted { name, session, request, mode: Mode::Exclusive, .. } => {
                    if let Some(Span { epoch, slots, .. }) = spans.last()
                        && !slots.contains(Slot::of(name))
                    {
                        findings.add(format!(
                            "{} was served {name} at index {index}, whose slot the group does not own at epoch {epoch}",
                            Which(*session, *request)
                        ));
                    }
                }
                _ => {}
            }
        }
    }
    for operation in &history.operations {
        judge_refusal(operation, &spans, history, &mut findings);
    }
    findings.into_violations()
}

fn judge_refusal(
    operation: &ClientOperation,
    spans: &[Span<'_>],
    history: &Evidence<'_>,
    findings: &mut Findings,
) {
    let Some((_, Output::Outcome(Outcome::Rejected(rejection)))) = &operation.returned else {
        return;
    };
    let (Rejection::WrongGroup { epoch } | Rejection::SeveralGroups { epoch }) = rejection else {
        return;
    };
    let which = Which(operation.session, operation.request);
    let Some(at) = spans.iter().position(|span| span.epoch == *epoch) else {
        if history.beginning.is_none() {
            findings.add(format!("{which} was refused by epoch {epoch}, which never was in force"));
        }
        return;
    };
    let slots = spans[at].slots;
    if names(&operation.input).iter().all(|name| slots.contains(Slot::of(name))) {
        findings.add(format!("{which} was refused by epoch {epoch}, at which all is owned"));
    }
    // What was sent after a replica had applied the next epoch is after it in the log.
    if spans.get(at + 1).is_some_and(|next| next.from < operation.last_sent) {
        findings.add(format!("{which} was refused by epoch {epoch}, which was over"));
    }
}

/// What it is about.
fn names(input: &Input) -> Vec<&LockName> {
    match input {
        Input::Status { name }
        | Input::Convert { name, .. }
        | Input::Transfer { name, .. }
        | Input::Intervene(
            Action::Break { name, .. }
            | Action::Transfer { name, .. }
            | Action::SetPermits { name, .. }
            | Action::Reopen { name },
        ) => vec![name],
        input => input.acquires().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::test_history::*;

    fn owned(epoch: u64, without: &[&str]) -> Event {
        let mut slots = SlotSet::ALL;
        without.iter().for_each(|name| slots.remove(Slot::of(name)));
        Event::OwnershipChanged { epoch: MapEpoch(epoch), slots }
    }

    #[test]
    fn a_grant_or_a_wait_in_a_slot_of_another_group_is_found() {
        let mut history = TestHistory::default();
        history.log(1, [granted("a", 1, 1, 1)]);
        history.log(2, [owned(1, &["a"]), granted("b", 1, 2, 2), released("a", 1, 1, 1)]);
        assert_eq!(check(&history.evidence()), []);
        let mut other = history.clone();
        other.log(3, [queued("a", 2, 1)]);
        assert_eq!(check(&other.evidence()).len(), 1);
        history.log(3, [owned(2, &[]), granted("a", 2, 1, 3)]);
        assert_eq!(check(&history.evidence()), []);
    }

    #[test]
    fn an_epoch_that_does_not_rise_is_found() {
        for (epoch, found) in [(6, 0), (5, 1), (4, 1)] {
            let mut history = TestHistory::default();
            history.log(1, [owned(5, &["a"])]);
            history.log(2, [owned(epoch, &[])]);
            assert_eq!(check(&history.evidence()).len(), found, "{epoch}");
        }
    }

    #[test]
    fn a_refusal_is_by_the_epoch_in_force_and_of_a_lock_that_is_not_owned() {
        let refused = |name: &str, epoch: u64, sent: u64| {
            let mut history = TestHistory::default();
            history.log(10, [owned(1, &["a"])]);
            history.log(20, [owned(2, &[])]);
            let input = Input::Acquire {
                name: LockName::new(name).unwrap(),
                wait_ms: 0,
                ttl_ms: None,
                max_hold_ms: None,
            };
            history.ask(1, 1, input);
            let operation = history.history.operations.last_mut().unwrap();
            operation.last_sent = ms(sent);
            let rejection = Rejection::WrongGroup { epoch: MapEpoch(epoch) };
            operation.returned = Some((ms(30), Output::Outcome(Outcome::Rejected(rejection))));
            check(&history.evidence()).len()
        };
        assert_eq!(refused("a", 1, 15), 0);
        assert_eq!(refused("b", 1, 15), 1, "it is owned");
        assert_eq!(refused("a", 1, 25), 1, "that epoch was over");
        assert_eq!(refused("a", 3, 15), 1, "there was no such epoch");
    }
}
