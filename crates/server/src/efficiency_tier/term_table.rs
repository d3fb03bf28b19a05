//! One term of this node's leadership: the lock table of that term, and who waits for an answer from it. Pure:
//! the time is an argument.

use std::collections::HashMap;
use std::sync::Arc;

use holdfast_core::command::{OpenSession, Owner};
use holdfast_core::{
    Command, Event, FenceToken, Limits, LockStatus, LockTable, LogIndex, LogicalTime, Outcome,
    PublicSessionId, ReleaseAnswer, RequestId, RestoreOptions, RulesVersion, SessionId, Span,
    TokenStanding,
};
use holdfast_engine::{Answer, Delivery, Unavailable};
use holdfast_replica::{GroupId, TOKENS_PER_TERM_BITS};

use super::{Streams, answer};
use crate::metrics::{EfficiencyMetrics, Kind, Settled};
use crate::outbox::{ReplyTo, put_all};

/// No request takes more tokens than this.
const TOKENS_PER_REQUEST_MAX: u64 = 1 << 16;

/// The searches of one bound take about a millisecond. So they take a tenth of the shard's time at most.
const BUDGET_EVERY: Span = Span::from_ms(10);

/// Sessions end when the replicated table says so, and not by themselves.
const FOREVER: Span = Span::from_secs(1_000 * 365 * 24 * 60 * 60);

#[derive(Debug)]
pub(super) struct TermTable {
    term: u64,
    table: LockTable,
    /// Stands for an entry of a log: what its searches may cost together is bounded.
    entry: LogIndex,
    entry_began: LogicalTime,
    /// Nothing is granted before: until then a leader of before may believe that it still leads.
    opens: LogicalTime,
    /// Until then no leader of after grants anything.
    sure_until: LogicalTime,
    /// Acquires that stand in a queue.
    parked: HashMap<(SessionId, RequestId), Parked>,
    metrics: Arc<EfficiencyMetrics>,
    /// Of the searches that the table has skipped, so many are in the metrics.
    skipped_counted: u64,
    /// Empty between two commands.
    events: Vec<Event>,
}

#[derive(Debug)]
struct Parked {
    reply: ReplyTo,
    kind: Kind,
}

impl TermTable {
    /// None if the tokens of this term would not be tokens any more.
    pub(super) fn new(
        term: u64,
        opens: LogicalTime,
        metrics: Arc<EfficiencyMetrics>,
    ) -> Option<TermTable> {
        let token_floor = first_token_of(term)?;
        first_token_of(term + 1)?;
        let limits = Limits { ttl_max: FOREVER, linger_max: FOREVER, ..Limits::default() };
        // This table is not replicated: it follows the rules of its build.
        let mut table = LockTable::with_rules(limits, RulesVersion::NEWEST);
        table.reset_for_restore(RestoreOptions {
            token_floor,
            index: LogIndex(0),
            closed_for: Span::ZERO,
            by: Box::default(),
            reason: Box::default(),
        });
        Some(TermTable {
            term,
            table,
            entry: LogIndex(1),
            entry_began: LogicalTime::ZERO,
            opens,
            sure_until: LogicalTime::ZERO,
            parked: HashMap::new(),
            metrics,
            skipped_counted: 0,
            events: Vec::new(),
        })
    }

    pub(super) fn term(&self) -> u64 {
        self.term
    }

    pub(super) fn opens(&self) -> LogicalTime {
        self.opens
    }

    /// What follows has a new bound of what it may cost, unless the last bound is a moment old. So many small requests
    /// cost no more than one large one.
    pub(super) fn begin_entry(&mut self, now: LogicalTime) {
        if now.since(self.entry_began) >= BUDGET_EVERY {
            self.entry.0 += 1;
            self.entry_began = now;
        }
    }

    #[cfg(test)]
    pub(super) fn search_cost(&self) -> holdfast_core::SearchCost {
        self.table.search_cost()
    }

    pub(super) fn confirm(&mut self, until: LogicalTime) {
        self.sure_until = self.sure_until.max(until);
    }

    pub(super) fn invalidate(&mut self) {
        self.sure_until = LogicalTime::ZERO;
    }

    pub(super) fn is_sure(&self, now: LogicalTime) -> bool {
        now < self.sure_until
    }

    /// A term that has used up its tokens serves no more: the next one has its own.
    pub(super) fn serves(&self, now: LogicalTime, session: SessionId) -> bool {
        let tokens_end = (self.term + 1) << TOKENS_PER_TERM_BITS;
        self.opens <= now
            && self.is_sure(now)
            && self.table.has_session(session)
            && self.table.last_token() + TOKENS_PER_REQUEST_MAX < tokens_end
    }

    pub(super) fn session_count(&self) -> usize {
        self.table.session_count()
    }

    pub(super) fn admit(
        &mut self,
        now: LogicalTime,
        session: SessionId,
        public: PublicSessionId,
        owner: Owner,
    ) {
        let (ttl, linger, stream) = (FOREVER, FOREVER, None);
        let open = OpenSession { session, public, stream, ttl, linger, owner, identity: None };
        // If there are too many, it is not known here, and the caller is told so.
        let _ = self.table.apply(self.entry, now, Command::OpenSession(open), &mut self.events);
        self.events.clear();
    }

    pub(super) fn end_session(
        &mut self,
        now: LogicalTime,
        session: SessionId,
        streams: &mut Streams,
    ) {
        let close = Command::CloseSession { session };
        let _ = self.table.apply(self.entry, now, close, &mut self.events);
        self.notify_streams(now, streams);
        put_all(streams);
    }

    pub(super) fn carry_out(
        &mut self,
        now: LogicalTime,
        mut command: Command,
        reply: ReplyTo,
        streams: &mut Streams,
    ) {
        self.end_due(now, streams);
        if matches!(reply, ReplyTo::Call(_)) {
            self.table.acknowledge_for_silent_caller(&mut command);
        }
        if self.is_release_of_an_earlier_term(&command) {
            let outcome = Outcome::Release(ReleaseAnswer::Expired);
            self.settled(Kind::Release, &outcome);
            return answer(reply, Answer { at: now, result: Ok(outcome) }, streams);
        }
        let kind = Kind::of(&command);
        let wait = command.wait().map(|call| (call.session, call.request));
        let outcome = self.table.apply(self.entry, now, command, &mut self.events);
        self.settled(kind, &outcome);
        match (outcome, wait) {
            (Outcome::Queued { position }, Some(wait)) => {
                if let ReplyTo::Stream { stream, request } = reply {
                    streams.send(stream, Delivery::Queued { request, position });
                }
                if self.parked.get(&wait).is_none_or(|parked| reply.supersedes(&parked.reply)) {
                    self.parked.insert(wait, Parked { reply, kind });
                }
            }
            (outcome, _) => answer(reply, Answer { at: now, result: Ok(outcome) }, streams),
        }
        self.notify_streams(now, streams);
    }

    /// Ends a wait whose caller has hung up. A retry that came meanwhile has its own caller, and waits on.
    pub(super) fn abandon(
        &mut self,
        now: LogicalTime,
        session: SessionId,
        request: RequestId,
        streams: &mut Streams,
    ) {
        let parked = self.parked.get(&(session, request)).map(|parked| &parked.reply);
        if matches!(parked, Some(ReplyTo::Call(caller)) if caller.is_closed()) {
            let abandon = Command::Abandon { session, request };
            let _ = self.table.apply(self.entry, now, abandon, &mut self.events);
            self.notify_streams(now, streams);
        }
    }

    /// Ends what is due, as much as may be done in one go. More is due if that is not all.
    pub(super) fn run_due(&mut self, now: LogicalTime, streams: &mut Streams) {
        self.begin_entry(now);
        // Or else promotions and ended sessions that were left for later would wait for the next entry, and be due meanwhile.
        self.table.renew_budgets_of_deferred_work();
        self.end_due(now, streams);
    }

    fn end_due(&mut self, now: LogicalTime, streams: &mut Streams) {
        if self.next_deadline().is_some_and(|next| next <= now) {
            let _ = self.table.apply(self.entry, now, Command::Tick, &mut self.events);
            self.notify_streams(now, streams);
        }
    }

    pub(super) fn next_deadline(&self) -> Option<LogicalTime> {
        self.table.next_deadline()
    }

    pub(super) fn status(&self, name: &str, shown_max: usize) -> LockStatus {
        self.table.status(name, shown_max)
    }

    pub(super) fn token_standing(&self, name: &str, token: FenceToken) -> TokenStanding {
        self.table.token_standing(name, token)
    }

    /// Those who wait find a new queue at the next leader.
    pub(super) fn end(self, reason: Unavailable, streams: &mut Streams) {
        self.metrics.locks.set(0);
        self.metrics.table_bytes.set(0);
        for Parked { reply, kind } in self.parked.into_values() {
            self.metrics.operations.add(kind, Settled::Unavailable);
            answer(reply, Answer::failed(reason), streams);
        }
    }

    /// This table has never heard of the hold, but it is no mystery what became of it.
    fn is_release_of_an_earlier_term(&self, command: &Command) -> bool {
        let first = first_token_of(self.term).unwrap_or(0);
        matches!(command, Command::Release { hold, .. } if hold.token.0 <= first)
    }

    fn settled(&self, kind: Kind, outcome: &Outcome) {
        if matches!(outcome, Outcome::Rejected(rejection) if rejection.is_of_full_table()) {
            self.metrics.full_refusals.add(1);
        }
        if let Some(settled) = Settled::of(outcome) {
            self.metrics.operations.add(kind, settled);
        }
    }

    /// Shows in the metrics how large the table is, and what was skipped.
    pub(super) fn measure(&mut self) {
        let skipped = self.table.search_cost().skipped;
        self.metrics.deadlock_searches_skipped.add(skipped - self.skipped_counted);
        self.skipped_counted = skipped;
        self.metrics.locks.set(self.table.lock_count() as u64);
        self.metrics.table_bytes.set(self.table.size_bytes());
    }

    fn notify_streams(&mut self, now: LogicalTime, streams: &mut Streams) {
        let mut events = std::mem::take(&mut self.events);
        for event in events.drain(..) {
            match event {
                Event::WaitEnded { session, request, outcome, .. } => {
                    if let Some(Parked { reply, kind }) = self.parked.remove(&(session, request)) {
                        self.settled(kind, &outcome);
                        answer(reply, Answer { at: now, result: Ok(outcome) }, streams);
                    }
                }
                Event::HoldEnded { name, session, request, token, reason, .. } => {
                    let notice = Delivery::HoldEnded { name, token, acquire: request, reason };
                    streams.send_to_session(GroupId::FIRST, session, notice);
                }
                // That a session has ended is told by the replicated table.
                _ => {}
            }
        }
        self.events = events;
    }
}

/// The tokens of a term are above this.
fn first_token_of(term: u64) -> Option<u64> {
    let first = term.checked_mul(1 << TOKENS_PER_TERM_BITS)?;
    (first <= FenceToken::MAX.0).then_some(first)
}
