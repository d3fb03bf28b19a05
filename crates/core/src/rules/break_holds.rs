//! `Break`: an operator ends the holds of a lock.

use alloc::vec::Vec;

use crate::model::event::{EndReason, Event};
use crate::model::id::FenceToken;
use crate::model::name::LockName;
use crate::model::outcome::{Intervened, Rejection};
use crate::state::hold::HoldKey;
use crate::state::table::LockTable;

impl LockTable {
    pub(crate) fn break_holds(
        &mut self,
        name: &LockName,
        token: Option<FenceToken>,
        events: &mut Vec<Event>,
    ) -> Result<Intervened, Rejection> {
        #[cfg(feature = "planted")]
        let token = token.filter(|_| !crate::planted::Bug::BreakIgnoresToken.is_active());
        let lock = self.lock_map().get(name).ok_or(Rejection::NotHeld)?;
        let meant: Vec<HoldKey> = lock
            .holds()
            .filter(|hold| token.is_none_or(|token| hold.token == token))
            .map(|hold| hold.key())
            .collect();
        if meant.is_empty() {
            return Err(Rejection::NotHeld);
        }
        let holds = meant.len() as u64;
        for key in meant {
            self.end_hold(name, key, EndReason::Broken, events);
        }
        Ok(Intervened::Broken { holds })
    }
}
