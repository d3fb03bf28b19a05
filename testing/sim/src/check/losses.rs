//! A client that resumes its session is told what it has lost, so it believes in no hold that ended before.

use std::collections::BTreeMap;

use holdfast_core::Event;

use crate::history::{Happening, History, Violation};

pub fn check(history: &History) -> Vec<Violation> {
    let mut ended = BTreeMap::new();
    for record in &history.replicated {
        if let Happening::Event(Event::HoldEnded { session, request, token, .. }) = &record.what {
            ended.entry((*session, *request, *token)).or_insert(record.logical);
        }
    }
    let mut violations = Vec::new();
    for resume in &history.resumes {
        for (acquire, token) in &resume.holds {
            let at = ended.get(&(resume.session, *acquire, *token));
            if let Some(at) = at.filter(|at| **at < resume.at) {
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
    use holdfast_core::{FenceToken, LogicalTime, RequestId, SessionId};

    use super::super::story::{Story, hold_ended};
    use super::*;
    use crate::history::Resume;

    #[test]
    fn a_hold_that_ended_before_the_session_was_resumed_must_not_be_believed_in() {
        let mut story = Story::default();
        story.log_at(1, 500, [hold_ended("wallet", 7, 2, 3)]);
        let resume = |at| Resume {
            session: SessionId(7),
            at: LogicalTime::from_ms(at),
            holds: vec![(RequestId(2), FenceToken(3))],
        };
        story.history.resumes.push(resume(500));
        assert_eq!(check(&story.history), []);
        story.history.resumes.push(resume(501));
        assert_eq!(check(&story.history).len(), 1);
    }
}
