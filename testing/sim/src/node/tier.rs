//! The efficiency tier of a node, as its engine tells of it: when it may grant, and which sessions it serves. It holds no
//! locks here.

use std::collections::BTreeSet;

use holdfast_core::{LockTable, SessionId};
use holdfast_engine::{BootTime, TierChange};

#[derive(Debug, Default)]
pub(super) struct Tier {
    term: u64,
    /// None while this node does not lead.
    opens: Option<BootTime>,
    until: BootTime,
    /// As far as the engine knows, there are sessions that use it.
    is_in_use: bool,
    /// Those that were open in the replicated table when they came.
    sessions: BTreeSet<SessionId>,
}

impl Tier {
    pub(super) fn change(&mut self, change: TierChange) {
        match change {
            TierChange::BeginTerm { term, opens } => {
                *self = Tier { term, opens: Some(opens), ..Tier::default() };
            }
            TierChange::EndTerm { .. } => *self = Tier { term: self.term, ..Tier::default() },
            TierChange::Confirm { term, until } if term == self.term => {
                self.until = self.until.max(until);
            }
            TierChange::Invalidate => self.until = BootTime::default(),
            TierChange::SessionEnded(session) => {
                self.sessions.remove(&session);
            }
            TierChange::Confirm { .. } | TierChange::Admit { .. } => {}
        }
    }

    pub(super) fn grants(&self, now: BootTime) -> bool {
        self.opens.is_some_and(|opens| opens <= now) && now < self.until
    }

    /// The engine is told that the tier is in use, and so tells it which sessions end.
    pub(super) fn is_used(&mut self) {
        self.is_in_use = self.opens.is_some();
    }

    /// A session sends something to this node. As soon as it is open it uses the tier.
    pub(super) fn serve(&mut self, session: SessionId, table: &LockTable) {
        if self.is_in_use && table.has_session(session) {
            self.sessions.insert(session);
        }
    }

    /// A session leaves the tier with the entry that decides its end, however much it holds in the replicated table.
    pub(super) fn complaint(&self, table: &LockTable) -> Option<String> {
        let ended = self.sessions.iter().find(|session| !table.has_session(**session))?;
        Some(format!("the efficiency tier serves {ended:?}, which has ended"))
    }
}

#[cfg(test)]
mod tests {
    use holdfast_core::command::{OpenSession, Owner};
    use holdfast_core::{
        Command, Limits, LogIndex, LogicalTime, PublicSessionId, RulesVersion, Span,
    };

    use super::*;

    const ALICE: SessionId = SessionId(1);

    #[test]
    fn a_session_that_is_served_after_its_end_is_found_until_the_tier_is_told() {
        let mut table = LockTable::with_rules(Limits::default(), RulesVersion::NEWEST);
        let open = Command::OpenSession(OpenSession {
            session: ALICE,
            public: PublicSessionId(1),
            stream: None,
            ttl: Span::from_ms(9_000),
            linger: Span::from_ms(9_000),
            owner: Owner::default(),
            identity: None,
        });
        let now = LogicalTime::ZERO;
        table.apply(LogIndex(1), now, open, &mut Vec::new());
        let mut tier = Tier::default();
        tier.change(TierChange::BeginTerm { term: 1, opens: BootTime::default() });
        tier.serve(ALICE, &table);
        assert!(tier.sessions.is_empty(), "the engine does not know that it is in use");
        tier.is_used();
        tier.serve(ALICE, &table);
        assert_eq!(tier.complaint(&table), None);
        table.apply(LogIndex(2), now, Command::CloseSession { session: ALICE }, &mut Vec::new());
        assert!(tier.complaint(&table).is_some());
        tier.change(TierChange::SessionEnded(ALICE));
        assert_eq!(tier.complaint(&table), None);
    }
}
