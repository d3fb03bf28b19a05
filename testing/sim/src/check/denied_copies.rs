//! Grants that a client cannot know of. No checker: it tells the check for leftovers what to leave out.

use std::collections::BTreeSet;

use holdfast_core::{Event, Outcome, Rejection, SessionId};

use crate::history::{Happening, History, Output, RealTime};

/// Whether the table granted a lock to a request of which the client was told that it is denied. A call can have a copy
/// that is still under way when the answer comes, and the table carries out the copy if the right has come back. The
/// client cannot know that. (A stream carries no copies.)
pub(crate) fn is_granted_to_denied_copy(history: &History, session: SessionId) -> bool {
    let denied = Output::Outcome(Outcome::Rejected(Rejection::PermissionDenied));
    let is_denied = |returned: &Option<(RealTime, Output)>| {
        returned.as_ref().is_some_and(|(_, output)| *output == denied)
    };
    let operations = history.operations.iter().filter(|operation| operation.session == session);
    let denied: BTreeSet<_> = operations
        .filter(|operation| is_denied(&operation.returned))
        .map(|operation| operation.request)
        .collect();
    history.replicated.iter().any(|record| match &record.what {
        Happening::Event(Event::Granted { session: to, request, .. }) => {
            *to == session && denied.contains(request)
        }
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::test_history::{TestHistory, granted};

    #[test]
    fn a_grant_to_a_denied_call_is_told_apart_from_other_grants() {
        let denied = Outcome::Rejected(Rejection::PermissionDenied);
        for (outcome, granted_request, is_copy) in
            [(denied.clone(), 1, true), (denied, 2, false), (Outcome::Busy, 1, false)]
        {
            let mut story = TestHistory::default();
            story.acquire("a", 1, 1).from(0).until(2, outcome);
            story.log(5, [granted("a", 1, granted_request, 7)]);
            assert_eq!(is_granted_to_denied_copy(&story.history, SessionId(1)), is_copy);
            assert!(!is_granted_to_denied_copy(&story.history, SessionId(2)));
        }
    }
}
