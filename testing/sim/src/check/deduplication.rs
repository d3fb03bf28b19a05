//! Once: a retried request has the effect of one, and every copy of it gets the same answer, up to deadlines.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_core::command::Mode;
use holdfast_core::{Event, FenceToken, LockName, Outcome, Rejection, RequestId, SessionId};

use super::evidence::Evidence;
use super::findings::{Findings, Which, Who};
use crate::history::{ClientOperation, History, Input, Output, Violation};

pub fn check(history: &Evidence<'_>) -> Vec<Violation> {
    let mut findings = Findings::of("deduplication");
    if !history.replicated.is_empty() {
        let effects = Effects::of(history, &mut findings);
        for operation in &history.operations {
            effects.compare(operation, &mut findings);
        }
    }
    compare_copies(history, &mut findings);
    findings.into_violations()
}

/// What requests did, as the log has it.
#[derive(Default)]
struct Effects<'a> {
    /// By request: an acquire-all has several.
    granted: BTreeMap<(SessionId, RequestId), BTreeMap<&'a LockName, FenceToken>>,
    /// All tokens under which a session ever held a name: conversions bring new ones, re-entry none.
    held: BTreeSet<(SessionId, &'a LockName, FenceToken)>,
    /// Tokens of runs of readers: one session can hold under the same one again.
    shared: BTreeSet<FenceToken>,
    /// By acquire.
    released: BTreeSet<(SessionId, RequestId, &'a LockName)>,
    released_tokens: BTreeSet<(SessionId, &'a LockName, FenceToken)>,
}

impl<'a> Effects<'a> {
    fn of(history: &'a Evidence<'_>, findings: &mut Findings) -> Effects<'a> {
        let mut effects = Effects::default();
        for entry in history.log() {
            let index = entry.index.0;
            for event in &entry.events {
                match event {
                    Event::Granted { name, session, request, token, mode, .. } => {
                        let granted = effects.granted.entry((*session, *request)).or_default();
                        let known: Option<FenceToken> = granted.values().next().copied();
                        let asked = history.asked(*session, *request);
                        let is_one = asked.is_none_or(|it| it.input.acquires().count() == 1);
                        let again = granted.insert(name, *token).is_some() || is_one;
                        if let Some(first_token) = known.filter(|_| again) {
                            findings.add(format!(
                                "{} was granted {name} under {token} at index {index}, after it had been \
                                 granted under {first_token}",
                                Which(*session, *request)
                            ));
                        }
                        effects.held.insert((*session, name, *token));
                        if *mode == Mode::Shared {
                            effects.shared.insert(*token);
                        }
                    }
                    Event::Converted { name, session, mode, token, .. } => {
                        effects.held.insert((*session, name, *token));
                        if *mode == Mode::Shared {
                            effects.shared.insert(*token);
                        }
                    }
                    Event::Released { name, session, request, token, .. } => {
                        effects.released_tokens.insert((*session, name, *token));
                        let is_first = effects.released.insert((*session, *request, name));
                        if !is_first {
                            findings.add(format!(
                                "{} released {name} under {token} twice, again at index {index}",
                                Who(*session)
                            ));
                        }
                    }
                    _ => {}
                }
            }
        }
        effects
    }

    /// Was the client told what happened?
    fn compare(&self, operation: &'a ClientOperation, findings: &mut Findings) {
        let Some((_, Output::Outcome(outcome))) = &operation.returned else { return };
        let (session, request) = (operation.session, operation.request);
        let granted = self.granted.get(&(session, request));
        match (&operation.input, outcome) {
            (input, Outcome::Granted(_) | Outcome::GrantedAll(_)) => {
                let enters_again = input.terms().is_some_and(|terms| terms.reentrant);
                for grant in operation.grants() {
                    let under = (session, &grant.name, grant.token);
                    let is_own = granted.and_then(|names| names.get(&grant.name));
                    let fits = match input {
                        Input::Convert { .. } => self.held.contains(&under),
                        _ if enters_again && is_own.is_none() => self.held.contains(&under),
                        _ => is_own == Some(&grant.token),
                    };
                    if !fits {
                        findings.add(format!(
                            "{} was told that it holds {} under {}; the log has {granted:?}",
                            Which(session, request),
                            grant.name,
                            grant.token
                        ));
                    }
                }
            }
            (input, outcome) if input.is_acquire() && means_never_granted(outcome) => {
                if let Some(granted) = granted {
                    findings.add(format!(
                        "{} was told {outcome:?}, and the log granted it {granted:?}",
                        Which(session, request)
                    ));
                }
            }
            (Input::Cancel { target }, Outcome::CancelDone) => {
                if let Some(granted) = self.granted.get(&(session, *target)) {
                    findings.add(format!(
                        "{} cancelled {} for good, and the log granted it {granted:?}",
                        Which(session, request),
                        Which(session, *target)
                    ));
                }
            }
            (Input::Release { name, token }, Outcome::Release(answer)) => {
                use holdfast_core::ReleaseAnswer::{Expired, Released};
                let released = self.released_tokens.contains(&(session, name, *token));
                let contradicts = *answer == Expired && released && !self.shared.contains(token);
                if (*answer == Released && !released) || contradicts {
                    findings.add(format!(
                        "{} was told {answer:?} for {name} under {token}; released in the log: {released}",
                        Which(session, request)
                    ));
                }
            }
            (Input::Transfer { name, .. }, Outcome::Transferred { token }) => {
                // Another session has it, and no other ever has it under this token.
                let mut holders =
                    self.held.iter().filter(|(_, held, by)| held == &name && by == token);
                if holders.next().is_none() {
                    findings.add(format!(
                        "{} was told that {name} is held under {token} now, and it was not granted so",
                        Which(session, request)
                    ));
                }
            }
            _ => {}
        }
    }
}

fn means_never_granted(outcome: &Outcome) -> bool {
    matches!(
        outcome,
        Outcome::Busy
            | Outcome::TimedOut
            | Outcome::Cancelled
            | Outcome::Deadlock(_)
            | Outcome::Died { .. }
            | Outcome::Rejected(
                Rejection::TooManyHolds
                    | Rejection::TooManyWaits
                    | Rejection::QueueFull
                    | Rejection::Frozen
                    | Rejection::AlreadyHeld
                    | Rejection::OtherPermits { .. }
                    | Rejection::NoPermitsSet
                    | Rejection::InvalidMode
            )
    )
}

/// Where the history has several copies of one request, their answers must agree.
fn compare_copies(history: &History, findings: &mut Findings) {
    let mut first: BTreeMap<(SessionId, RequestId), (&ClientOperation, &Outcome)> = BTreeMap::new();
    for operation in &history.operations {
        let is_request = matches!(
            operation.input,
            Input::Acquire { .. }
                | Input::Take(_)
                | Input::Cancel { .. }
                | Input::Release { .. }
                | Input::Renew { .. }
                | Input::Convert { .. }
                | Input::Proclaim { .. }
                | Input::Transfer { .. }
        );
        let Some((_, Output::Outcome(outcome))) = &operation.returned else { continue };
        if !is_request {
            continue;
        }
        let key = (operation.session, operation.request);
        let (former, answer) = *first.entry(key).or_insert((operation, outcome));
        if is_denied_before(former, operation) {
            first.insert(key, (operation, outcome));
        } else if former.input == operation.input
            && !agree(answer, outcome)
            && !agree(outcome, answer)
        {
            findings.add(format!(
                "{} was answered {answer:?} and then {outcome:?}",
                Which(operation.session, operation.request)
            ));
        }
    }
}

/// A denial on arrival is not kept. A client that had sent the request before does not know what became of the earlier
/// copy, and asks again: that copy is carried out if the right has come back.
fn is_denied_before(former: &ClientOperation, operation: &ClientOperation) -> bool {
    let denied = Output::Outcome(Outcome::Rejected(Rejection::PermissionDenied));
    former.returned.as_ref().is_some_and(|(at, answer)| {
        *answer == denied && *at <= operation.invoked && former.last_sent > former.invoked
    })
}

/// Can both be the answer to one request, in this order?
fn agree(first: &Outcome, second: &Outcome) -> bool {
    use Outcome::{CancelNothing, CancelTooLate, Granted, GrantedAll, Queued, Rejected, Renewed};
    match (first, second) {
        (_, Rejected(Rejection::AnswerDiscarded | Rejection::UnknownSession)) => true,
        (Granted(first), Granted(second)) => first.token == second.token,
        (GrantedAll(first), GrantedAll(second)) => second.len() <= first.len(),
        (Granted(_) | GrantedAll(_), Rejected(Rejection::GrantEnded)) | (Queued { .. }, _) => true,
        (CancelTooLate(first), CancelTooLate(second)) => second.len() <= first.len(),
        (CancelTooLate(_), CancelNothing) => true,
        (Renewed { .. }, Renewed { .. }) => true,
        // A denial on arrival is not kept, and the client cancels what an earlier copy may have done.
        (Rejected(Rejection::PermissionDenied), Outcome::Cancelled) => true,
        (first, second) => first == second,
    }
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::check::test_history::{TestHistory, granted, grants, released};
    use crate::history::Input;
    use holdfast_core::{Outcome, Rejection, ReleaseAnswer, RequestId};

    #[test]
    fn a_request_with_one_effect_and_one_answer_is_fine() {
        let mut story = TestHistory::default();
        story.log(1, [granted("a", 1, 1, 1)]);
        story.log(2, [released("a", 1, 1, 1)]);
        story.acquire("a", 1, 1).from(0).until(2, grants("a", 1));
        story.acquire("a", 1, 1).from(0).until(9, Outcome::Rejected(Rejection::GrantEnded));
        story.release("a", 1, 2, 1).from(1).until(3, Outcome::Release(ReleaseAnswer::Released));
        assert_eq!(check(&story.evidence()), []);
    }

    #[test]
    fn a_request_that_is_asked_again_after_a_denial_may_get_another_answer() {
        let denied = Outcome::Rejected(Rejection::PermissionDenied);
        for (sent_again, asked_at, is_fine) in
            [(true, 9, true), (false, 9, false), (true, 4, false)]
        {
            let mut story = TestHistory::default();
            let asked = story.acquire("a", 1, 1).from(0);
            let asked = if sent_again { asked.sent_again(2) } else { asked };
            asked.until(5, denied.clone());
            story.acquire("a", 1, 1).from(asked_at).until(12, Outcome::Busy);
            assert_eq!(check(&story.evidence()).is_empty(), is_fine, "{sent_again} {asked_at}");
        }
    }

    #[test]
    fn a_retry_that_is_granted_again_is_found() {
        let mut story = TestHistory::default();
        story.log(1, [granted("a", 1, 1, 1)]);
        story.log(2, [released("a", 1, 1, 1), granted("a", 1, 1, 2)]);
        assert_eq!(check(&story.evidence()).len(), 1);
    }

    #[test]
    fn a_grant_that_the_client_was_not_told_is_found() {
        for outcome in [Outcome::TimedOut, Outcome::Cancelled, Outcome::Busy, grants("a", 7)] {
            let mut story = TestHistory::default();
            story.log(1, [granted("a", 1, 1, 1)]);
            story.acquire("a", 1, 1).from(0).until(2, outcome);
            assert_eq!(check(&story.evidence()).len(), 1);
        }
    }

    #[test]
    fn a_grant_after_its_cancellation_was_confirmed_is_found() {
        let mut story = TestHistory::default();
        story.log(1, [granted("a", 1, 1, 1)]);
        let cancel = Input::Cancel { target: RequestId(1) };
        story.ask(1, 2, cancel).from(0).until(2, Outcome::CancelDone);
        assert_eq!(check(&story.evidence()).len(), 1);
    }

    #[test]
    fn a_release_that_never_happened_is_found() {
        let mut story = TestHistory::default();
        story.log(1, [granted("a", 1, 1, 1)]);
        story.release("a", 1, 2, 1).from(1).until(3, Outcome::Release(ReleaseAnswer::Released));
        assert_eq!(check(&story.evidence()).len(), 1);
    }

    #[test]
    fn a_copy_that_was_denied_may_be_cancelled_and_not_granted() {
        let after_denial = |outcome: Outcome| {
            let mut story = TestHistory::default();
            let denied = Outcome::Rejected(Rejection::PermissionDenied);
            story.acquire("a", 1, 1).from(0).until(2, denied);
            story.acquire("a", 1, 1).from(3).until(4, outcome);
            check(&story.evidence()).len()
        };
        assert_eq!(after_denial(Outcome::Cancelled), 0);
        assert_eq!(after_denial(grants("a", 1)), 1);
    }

    #[test]
    fn a_retry_with_another_answer_is_found_without_a_log() {
        let mut story = TestHistory::default();
        story.acquire("a", 1, 1).from(0).until(2, Outcome::Busy);
        story.acquire("a", 1, 1).from(3).until(4, grants("a", 1));
        assert_eq!(check(&story.evidence()).len(), 1);
    }
}
