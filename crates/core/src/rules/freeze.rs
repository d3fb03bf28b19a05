//! `Freeze` and `Thaw`: an operator keeps locks from being granted for a while.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Bound;

use crate::model::event::Event;
use crate::model::name::LockName;
use crate::model::outcome::{Intervened, Rejection};
use crate::model::rules_version::RulesVersion;
use crate::state::deferred::Promotion;
use crate::state::freezes::Freeze;
use crate::state::table::LockTable;

impl LockTable {
    /// Again, with another end, is possible.
    pub(crate) fn freeze(
        &mut self,
        prefix: Box<str>,
        freeze: Freeze,
    ) -> Result<Intervened, Rejection> {
        if !self.freezes_in_force().contains(&prefix)
            && self.freezes_in_force().len() >= self.limits().freezes_max
        {
            return Err(Rejection::TooManyFreezes);
        }
        let until = freeze.until;
        self.add_freeze(prefix, freeze);
        Ok(Intervened::Frozen { until })
    }

    /// Whatever has become free under the prefix meanwhile goes to the next in line.
    pub(crate) fn thaw(
        &mut self,
        prefix: &str,
        events: &mut Vec<Event>,
    ) -> Result<Intervened, Rejection> {
        if self.deferred().prefix_count() >= self.limits().freezes_max {
            return Err(Rejection::TooManyFreezes);
        }
        self.remove_freeze(prefix).ok_or(Rejection::NotFrozen)?;
        events.push(Event::Thawed { prefix: String::from(prefix) });
        if self.rules() >= RulesVersion::THREE {
            // There may be a million of them.
            self.defer(Promotion::Prefix { prefix: Box::from(prefix), passed: None });
            return Ok(Intervened::Thawed);
        }
        let under = self.lock_map().from(Bound::Included(prefix));
        let awaited: Vec<LockName> = under
            .take_while(|(name, _)| name.starts_with(prefix))
            .filter(|(_, lock)| lock.waiter_count() > 0)
            .map(|(name, _)| name.clone())
            .collect();
        awaited.into_iter().for_each(|name| self.note_freed(name));
        Ok(Intervened::Thawed)
    }
}
