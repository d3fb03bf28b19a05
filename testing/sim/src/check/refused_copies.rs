//! Grants that a client cannot know of. No checker: it tells the check for leftovers what to leave out.

use std::collections::BTreeSet;

use holdfast_core::{Event, Outcome, Rejection, SessionId};

use crate::history::{ClientOperation, Happening, History, Output};

/// Whether the table granted a lock to a request that it had refused, and told so. A call can have a copy that is still
/// under way when the answer comes, and the table does not remember each refusal: it carries out the copy if the right
/// has come back, or if there is room again. The client cannot know that. (A stream carries no copies.)
///
/// A client that had sent the request twice knows that there are copies, and has to cancel it or to ask again: nothing is
/// left out then.
pub(crate) fn is_granted_to_refused_copy(history: &History, session: SessionId) -> bool {
    let operations = history.operations.iter().filter(|operation| operation.session == session);
    let refused: BTreeSet<_> =
        operations.filter(|it| is_refused_at_once(it)).map(|operation| operation.request).collect();
    history.replicated.iter().any(|record| match &record.what {
        Happening::Event(Event::Granted { session: to, request, .. }) => {
            *to == session && refused.contains(request)
        }
        _ => false,
    })
}

fn is_refused_at_once(operation: &ClientOperation) -> bool {
    let refusal = match &operation.returned {
        Some((_, Output::Outcome(Outcome::Rejected(rejection)))) => rejection,
        _ => return false,
    };
    let is_forgotten = matches!(
        refusal,
        Rejection::PermissionDenied
            | Rejection::QuotaExceeded { .. }
            | Rejection::TooManyLocks { .. }
            | Rejection::TooManyBytes { .. }
            | Rejection::TooManyUnacknowledged
    );
    is_forgotten && operation.last_sent == operation.invoked
}

#[cfg(test)]
mod tests {
    use holdfast_core::QuotaKind;

    use super::*;
    use crate::check::test_history::{TestHistory, granted};

    #[test]
    fn a_grant_to_a_copy_of_a_refused_call_is_told_apart_from_other_grants() {
        let denied = Outcome::Rejected(Rejection::PermissionDenied);
        let kind = QuotaKind::Locks;
        let over_quota = Rejection::QuotaExceeded { kind, limit: 2, is_of_prefix: true };
        for (outcome, sent_again, granted_request, is_copy) in [
            (denied.clone(), false, 1, true),
            (Outcome::Rejected(over_quota), false, 1, true),
            (denied.clone(), true, 1, false),
            (denied, false, 2, false),
            (Outcome::Rejected(Rejection::Frozen), false, 1, false),
            (Outcome::Busy, false, 1, false),
        ] {
            let mut story = TestHistory::default();
            let asked = story.acquire("a", 1, 1).from(0);
            let asked = if sent_again { asked.sent_again(1) } else { asked };
            asked.until(2, outcome);
            story.log(5, [granted("a", 1, granted_request, 7)]);
            assert_eq!(is_granted_to_refused_copy(&story.history, SessionId(1)), is_copy);
            assert!(!is_granted_to_refused_copy(&story.history, SessionId(2)));
        }
    }
}
