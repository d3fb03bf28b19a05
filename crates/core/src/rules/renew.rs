//! `Renew`: count the TTL of one hold from now.
//!
//! A hold whose deadline has passed lives until the tick that ends it, and can be renewed until then.
//! One that has ended stays so: the token does not match anything any more.

use crate::model::command::{Call, HoldRef};
use crate::model::outcome::Outcome;
use crate::model::time::Span;
use crate::state::answers::{Question, Reply};
use crate::state::table::LockTable;

impl LockTable {
    pub(crate) fn renew(&mut self, call: Call, meant: HoldRef, ttl: Option<Span>) -> Outcome {
        let question = Question::Renew { name: meant.name.clone(), token: meant.token };
        if let Some(outcome) = self.cached_outcome(&call, &question) {
            return outcome;
        }
        let now = self.now();
        #[cfg(feature = "planted")]
        if crate::planted::Bug::RenewOfLostHold.is_active()
            && self.find_meant(&call, &meant).is_err()
            && self
                .session_map()
                .get(&call.session)
                .is_some_and(|session| session.lost(meant.token))
        {
            let deadline = Some(self.now().after(ttl.unwrap_or(Span::from_secs(30))));
            return self.answer(&call, question, Reply::Renewed { deadline });
        }
        let key = match self.find_meant(&call, &meant) {
            Ok(hold) => hold.key(),
            Err(rejection) => return self.answer(&call, question, Reply::Rejected(rejection)),
        };
        let deadline = self.change_hold(&meant.name, key, |hold| hold.renew(ttl, now)).flatten();
        self.answer(&call, question, Reply::Renewed { deadline })
    }
}
