//! For how long an ended session is remembered, so that a straggling copy of its opening does not open it again.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "it is a test")]

use holdfast_core::command::{OpenSession, Owner};
use holdfast_core::{
    Command, Limits, LockTable, LogIndex, LogicalTime, Outcome, PublicSessionId, Rejection,
    RulesVersion, SessionId, Span,
};

struct Table {
    table: LockTable,
    now_ms: u64,
}

impl Table {
    fn new(limits: Limits, rules: RulesVersion) -> Table {
        Table { table: LockTable::with_rules(limits, rules), now_ms: 1 }
    }

    fn apply(&mut self, command: Command) -> Outcome {
        let at = LogicalTime::from_ms(self.now_ms);
        self.table.apply(LogIndex(self.now_ms), at, command, &mut Vec::new())
    }

    fn open(&mut self, session: u64) -> Outcome {
        self.apply(Command::OpenSession(OpenSession {
            session: SessionId(session.into()),
            public: PublicSessionId(session),
            stream: None,
            ttl: Span::from_secs(30),
            linger: Span::from_secs(30),
            owner: Owner::default(),
            identity: None,
        }))
    }

    fn open_and_close(&mut self, session: u64) {
        let opened = self.open(session);
        assert!(matches!(opened, Outcome::SessionOpen { .. }), "{opened:?}");
        self.apply(Command::CloseSession { session: SessionId(session.into()) });
    }
}

const EXISTS: Outcome = Outcome::Rejected(Rejection::SessionExists);

/// As many sessions end as were remembered before rules 2, and more, within a moment.
#[test]
fn a_session_that_ended_is_not_opened_again_within_two_minutes_however_many_end_after_it() {
    let mut table = Table::new(Limits::default(), RulesVersion::NEWEST);
    let ended_after = Limits::default().ended_sessions_max as u64 + 5_000;
    table.open_and_close(1);
    for session in 2..2 + ended_after {
        table.open_and_close(session);
    }
    table.now_ms += 119_999;
    assert_eq!(table.open(1), EXISTS);
    table.table = LockTable::decode(&table.table.encode(), Limits::default()).unwrap();
    assert_eq!(table.open(1), EXISTS, "it is in the snapshot");
}

#[test]
fn past_two_minutes_all_but_the_latest_are_forgotten() {
    let limits = Limits { ended_sessions_max: 10, ..Limits::default() };
    let mut table = Table::new(limits, RulesVersion::NEWEST);
    (1..=1_000).for_each(|session| table.open_and_close(session));
    let full = table.table.encode().len();
    table.now_ms += 120_000;
    (1_001..=1_010).for_each(|session| table.open_and_close(session));
    let bytes = table.table.encode().len();
    assert!(bytes < full / 50, "{bytes} of {full} bytes");
    assert!(matches!(table.open(1), Outcome::SessionOpen { .. }));
    assert_eq!(table.open(1_001), EXISTS);
    table.table.check().unwrap();
}

#[test]
fn where_too_many_ended_within_two_minutes_no_session_is_opened_until_they_are_forgotten() {
    let ended_sessions_in_span_max = 100;
    let limits = Limits { ended_sessions_max: 10, ended_sessions_in_span_max, ..Limits::default() };
    let mut table = Table::new(limits, RulesVersion::NEWEST);
    (1..=100).for_each(|session| table.open_and_close(session));
    assert_eq!(table.open(101), Outcome::Rejected(Rejection::TooManySessions));
    assert_eq!(table.open(1), EXISTS);
    table.now_ms += 120_000;
    assert!(matches!(table.open(101), Outcome::SessionOpen { .. }));
}

#[test]
fn under_the_first_rules_a_fixed_number_is_remembered() {
    let limits = Limits { ended_sessions_max: 10, ..Limits::default() };
    let mut table = Table::new(limits, RulesVersion::ONE);
    (1..=11).for_each(|session| table.open_and_close(session));
    assert_eq!(table.open(2), EXISTS);
    assert!(matches!(table.open(1), Outcome::SessionOpen { .. }));
}
