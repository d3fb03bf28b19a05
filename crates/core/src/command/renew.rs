//! `Renew`: count the TTL of one hold from now.
//!
//! A hold whose deadline has passed lives until the tick that ends it, and can be renewed until then.
//! One that has ended stays so: the token does not match anything any more.

use super::{Call, HoldRef};
use crate::outcome::Outcome;
use crate::table::LockTable;
use crate::table::answers::{Question, Reply};
use crate::table::deadlines::Due;
use crate::time::Span;

impl LockTable {
    pub(crate) fn renew(&mut self, call: Call, meant: HoldRef, ttl: Option<Span>) -> Outcome {
        let question = Question::Renew { name: meant.name.clone(), token: meant.token };
        if let Some(outcome) = self.recall(&call, &question) {
            return outcome;
        }
        let now = self.now;
        #[cfg(feature = "planted")]
        if crate::planted::Bug::RenewOfLostHold.is_active()
            && self.meant_by(&call, &meant).is_err()
            && self.sessions.get(&call.session).is_some_and(|session| session.lost(meant.token))
        {
            let deadline = Some(self.now.after(ttl.unwrap_or(Span::from_secs(30))));
            return self.answer(&call, question, Reply::Renewed { deadline });
        }
        let hold = match self.meant_by(&call, &meant) {
            Ok(hold) => hold,
            Err(rejection) => return self.answer(&call, question, Reply::Rejected(rejection)),
        };
        let due = Due::Hold(hold.session, hold.request, hold.token);
        let before = hold.deadline();
        let deadline = hold.renew(ttl, now);
        match (before, deadline) {
            (Some(before), Some(deadline)) => self.deadlines.replace(before, deadline, due),
            (None, Some(deadline)) => self.deadlines.insert(deadline, due),
            (_, None) => {}
        }
        self.answer(&call, question, Reply::Renewed { deadline })
    }
}
