//! A client that resumes its session is told what it has lost, so it believes in no hold that ended before. Under the
//! first rules nodes remember the token of a lost shared hold and not its acquire, so that it cannot be told.

use std::collections::BTreeMap;

use holdfast_core::{Event, LogicalTime};

use crate::history::{Believed, Happening, History, Violation};

pub fn check(history: &History) -> Vec<Violation> {
    let mut ended = BTreeMap::new();
    for record in &history.replicated {
        if let Happening::Event(Event::HoldEnded { session, request, token, .. }) = &record.what {
            ended.entry((*session, *request, *token)).or_insert(record.logical);
        }
    }
    let mut violations = Vec::new();
    for resume in &history.resumes {
        for Believed { acquire, token, is_shared } in &resume.holds {
            let is_told = |at: &LogicalTime| {
                *at < resume.at && (!is_shared || history.rules_adopted.is_some_and(|it| it < *at))
            };
            let at = ended.get(&(resume.session, *acquire, *token));
            if let Some(at) = at.filter(|at| is_told(at)) {
                let what = format!(
                    "session {:x} was resumed at {} and believes in acquire {} with token {token}, which ended at {at}",
                    resume.session.0, resume.at, acquire.0
                );
                violations.push(Violation { checker: "losses", what });
            }
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use holdfast_core::{FenceToken, RequestId, SessionId};

    use super::super::test_history::{TestHistory, hold_ended};
    use super::*;
    use crate::history::Resume;

    #[test]
    fn a_hold_that_ended_before_the_session_was_resumed_must_not_be_believed_in() {
        let mut story = TestHistory::default();
        story.log_at(1, 500, [hold_ended("wallet", 7, 2, 3)]);
        story.history.resumes.push(resume(500, false));
        assert_eq!(check(&story.history), []);
        story.history.resumes.push(resume(501, false));
        assert_eq!(check(&story.history).len(), 1);
    }

    #[test]
    fn a_shared_hold_that_ended_under_the_first_rules_cannot_be_told() {
        for (adopted, expected) in [(None, 0), (Some(500), 0), (Some(499), 1)] {
            let mut story = TestHistory::default();
            story.log_at(1, 500, [hold_ended("wallet", 7, 2, 3)]);
            story.history.resumes.push(resume(501, true));
            story.history.rules_adopted = adopted.map(LogicalTime::from_ms);
            assert_eq!(check(&story.history).len(), expected, "{adopted:?}");
        }
    }

    fn resume(at: u64, is_shared: bool) -> Resume {
        let (acquire, token) = (RequestId(2), FenceToken(3));
        let holds = vec![Believed { acquire, token, is_shared }];
        Resume { session: SessionId(7), at: LogicalTime::from_ms(at), holds }
    }
}
