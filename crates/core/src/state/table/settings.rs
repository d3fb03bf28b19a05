//! Tokens, and what operators and the leader set.

use alloc::boxed::Box;

use crate::model::event::Event;
use crate::model::id::{FenceToken, LogIndex};
use crate::model::name::LockName;
use crate::model::publication::Publication;
use crate::model::rules_version::RulesVersion;
use crate::model::table_limits::TableLimits;
use crate::state::deferred::Deferred;
use crate::state::freezes::Freeze;
use crate::state::moves::Moves;
use crate::state::ownership::Ownership;
use crate::state::size;
use crate::state::table::LockTable;

impl LockTable {
    /// The token of the next grant. There are enough for a million grants a second over thousands of
    /// centuries; should they ever run out, nothing is granted any more.
    pub(crate) fn next_token(&mut self) -> Option<FenceToken> {
        if !self.has_tokens_for(1) {
            return None;
        }
        self.last_token += 1;
        Some(FenceToken(self.last_token))
    }

    pub(crate) fn has_tokens_for(&self, grants: usize) -> bool {
        self.last_token.saturating_add(grants as u64) <= FenceToken::MAX.0
    }

    /// None forgets the number.
    pub(crate) fn store_permits(&mut self, name: &LockName, limit: Option<u32>) {
        let before = match limit {
            Some(limit) => self.permits.insert(name.clone(), limit),
            None => self.permits.remove(name),
        };
        match (before, limit) {
            (None, Some(_)) => self.size += size::of_lock(name),
            (Some(_), None) => self.size = self.size.saturating_sub(size::of_lock(name)),
            _ => {}
        }
    }

    pub(crate) fn add_freeze(&mut self, prefix: Box<str>, freeze: Freeze) {
        self.freezes.insert(prefix, freeze);
    }

    pub(crate) fn remove_freeze(&mut self, prefix: &str) -> Option<Freeze> {
        self.freezes.remove(prefix)
    }

    pub(crate) fn set_table_limits(&mut self, limits: TableLimits) {
        self.table_limits = limits;
    }

    /// Rules never go back.
    pub(crate) fn set_rules(&mut self, rules: RulesVersion) {
        if self.rules < RulesVersion::NINE && rules >= RulesVersion::NINE {
            self.access.forget_ended_sessions();
        }
        self.rules = self.rules.max(rules);
        self.compiled_grants.forget();
    }

    pub(crate) fn set_ownership(&mut self, ownership: Ownership) {
        self.ownership = ownership;
    }

    pub(crate) fn set_publication(&mut self, publication: Publication) {
        self.publication = Some(publication);
    }

    pub(crate) fn count_events(&mut self, events: &[Event]) {
        if let Some(publication) = &mut self.publication {
            let news = events.iter().filter(|event| event.is_publishable()).count();
            publication.events = publication.events.saturating_add(news as u64);
        }
    }

    /// Tokens and log indexes go on from these, if they are higher. What was published, what was deferred and moves of
    /// slots are forgotten.
    pub(crate) fn leap_to(&mut self, token: u64, index: LogIndex) {
        self.last_token = self.last_token.max(token);
        self.applied_index = self.applied_index.max(index);
        self.publication = None;
        self.deferred = Deferred::default();
        // No step of a move gets into the new log.
        self.change_moves(|moves| *moves = Moves::default());
    }

    /// A token as no table would count it.
    #[cfg(feature = "planted")]
    pub(crate) fn set_last_token(&mut self, token: u64) {
        self.last_token = token;
    }

    /// As if something took so much that does not.
    #[cfg(feature = "planted")]
    pub(crate) fn leak_bytes(&mut self, bytes: u64) {
        self.size += bytes;
    }

    #[cfg(feature = "planted")]
    pub(crate) fn forget_first_due_of_the_dead(&mut self) {
        self.deadlines.forget_first_due_of_the_dead(self.now, |id| self.sessions.contains_key(&id));
    }
}
