//! `Renew`: count the TTL of one hold from now.
//!
//! A hold whose deadline has passed lives until the tick that ends it, and can be renewed until then.
//! One that has ended stays so: the token does not match anything any more.

use super::Call;
use crate::id::FenceToken;
use crate::name::LockName;
use crate::outcome::Outcome;
use crate::table::LockTable;
use crate::table::answers::{Question, Reply};
use crate::table::deadlines::Due;
use crate::time::Span;

impl LockTable {
    pub(crate) fn renew(
        &mut self,
        call: Call,
        name: LockName,
        token: FenceToken,
        ttl: Option<Span>,
    ) -> Outcome {
        let question = Question::Renew { name: name.clone(), token };
        if let Some(outcome) = self.recall(&call, &question) {
            return outcome;
        }
        let held = self
            .resources
            .get_mut(&name)
            .and_then(|resource| resource.hold.as_mut())
            .filter(|hold| hold.is(call.session, token));
        let Some(hold) = held else {
            #[cfg(feature = "planted")]
            if crate::planted::Bug::RenewOfLostHold.is_active()
                && self.sessions.get(&call.session).is_some_and(|session| session.lost(token))
            {
                let deadline = Some(self.now.after(ttl.unwrap_or(Span::from_secs(30))));
                return self.answer(&call, question, Reply::Renewed { deadline });
            }
            return self.answer(&call, question, Reply::NotHeld);
        };
        let due = Due::Hold(hold.session, hold.request);
        let before = hold.deadline();
        let deadline = hold.renew(ttl, self.now);
        match (before, deadline) {
            (Some(before), Some(deadline)) => self.deadlines.replace(before, deadline, due),
            (None, Some(deadline)) => self.deadlines.insert(deadline, due),
            (_, None) => {}
        }
        self.answer(&call, question, Reply::Renewed { deadline })
    }
}
