//! The efficiency tier: locks that live in the leader's memory and nowhere else.
//!
//! It is an ordinary lock table that is never replicated and never written, one for each term in which this node leads.
//! So queues, TTLs, owner-checked release and retries mean what they mean everywhere; it is weaker in two ways: it ends
//! with the term, and a client of the old leader may still believe that it holds a lock which the new leader grants.
//!
//! Invariants:
//! - it begins empty with each term, and its tokens are term x 2^40 + counter, so they rise over failovers;
//! - the leader grants only while it has the leader lease: for a limited time after a majority last confirmed that it
//!   leads. A new leader grants nothing before it has led for that long. Every two majorities share a node, so the new
//!   leader was elected after the last confirmation of the old one. So two leaders never grant at the same time
//!   (`leader_lease.rs` of the engine);
//! - a session is admitted by the shard, after a linearizable look at the replicated table, and leaves when
//!   the shard sees it end there. Both happen on the shard's thread, so no session is kept by mistake.
//!
//! Requests do not pass through the engine. The thread that has decoded a frame carries out its operations under a
//! mutex: the shard's thread for framed connections, a tokio worker for gRPC. The first request of a session in a term,
//! and a request that comes while the node is not sure that it leads, ask the engine for a read first.

mod term_table;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use holdfast_core::command::Owner;
use holdfast_core::{
    Command, FenceToken, LockName, LockStatus, LogicalTime, PublicSessionId, RequestId, SessionId,
    Span, TokenStanding,
};
use holdfast_engine::{Answer, BootTime, Delivery, StreamKey, Unavailable};
use holdfast_service::Admitted;
use tokio::sync::Notify;
use tokio::sync::mpsc::WeakSender;
use tokio::time::sleep;

use self::term_table::TermTable;
use crate::boot_clock;
use crate::metrics::EfficiencyMetrics;
use crate::outbox::{ReplyTo, TaskOutbox, put_all};

/// How long to wait before another look at what is due, if this node is not sure that it leads.
const UNSURE_PAUSE: Duration = Duration::from_millis(20);
const IDLE_PAUSE: Duration = Duration::from_secs(60);

/// The connections that receive answers and notices of this tier.
type Streams = holdfast_engine::Streams<TaskOutbox>;

/// What this node keeps in memory while it leads. Shared by the shard and all tasks that serve clients.
#[derive(Debug)]
pub(crate) struct EfficiencyTier {
    /// The beginning of the tier's own time.
    started: BootTime,
    state: Mutex<State>,
    /// Sessions that use it: as long as there are any, the shard keeps asking the quorum.
    sessions: AtomicUsize,
    /// Wakes [`keep_time`]: a deadline is earlier than the one that it waits for.
    earlier: Notify,
    /// Counted under the lock of the state, so that one thread at a time does.
    metrics: Arc<EfficiencyMetrics>,
}

#[derive(Debug, Default)]
struct State {
    streams: Streams,
    table: Option<TermTable>,
    /// When [`keep_time`] will look next.
    next_look: Option<LogicalTime>,
}

impl EfficiencyTier {
    #[cfg(test)]
    pub(crate) fn new() -> EfficiencyTier {
        EfficiencyTier::counting(Arc::default())
    }

    pub(crate) fn counting(metrics: Arc<EfficiencyMetrics>) -> EfficiencyTier {
        EfficiencyTier {
            started: boot_clock::now(),
            state: Mutex::default(),
            sessions: AtomicUsize::new(0),
            earlier: Notify::new(),
            metrics,
        }
    }

    // ---- for the shard ----

    /// This node leads from now on, with nothing held, and grants from `opens` on.
    pub(crate) fn begin_term(&self, term: u64, opens: BootTime) {
        let mut state = self.state();
        state.end_term_table(Unavailable::LeadershipLost { leader: None });
        state.table = TermTable::new(term, self.at(opens), Arc::clone(&self.metrics));
        self.sessions.store(0, Ordering::Relaxed);
    }

    /// This node leads no longer, and what was held is gone.
    pub(crate) fn end_term(&self, reason: Unavailable) {
        self.state().end_term_table(reason);
        self.sessions.store(0, Ordering::Relaxed);
    }

    /// A quorum confirmed the leadership of this term, and no later leader grants anything before `until`.
    pub(crate) fn confirm(&self, term: u64, until: BootTime) {
        let until = self.at(until);
        if let Some(table) = self.state().table.as_mut().filter(|table| table.term() == term) {
            table.confirm(until);
        }
    }

    /// Nothing more is granted until a quorum has confirmed the leadership again.
    pub(crate) fn invalidate(&self) {
        if let Some(table) = &mut self.state().table {
            table.invalidate();
        }
    }

    /// The session is open in the replicated table, and wants to use this tier.
    pub(crate) fn admit(&self, session: SessionId, public: PublicSessionId, owner: Owner) {
        let now = self.now();
        if let Some(table) = &mut self.state().table {
            table.admit(now, session, public, owner);
            self.sessions.store(table.session_count(), Ordering::Relaxed);
        }
    }

    /// The session has ended in the replicated table. Of one that has ended before, nothing is left here.
    pub(crate) fn session_ended(&self, session: SessionId) {
        if !self.is_in_use() {
            return;
        }
        let now = self.now();
        let mut state = self.state();
        let State { streams, table: Some(table), .. } = &mut *state else { return };
        table.begin_entry(now);
        table.end_session(now, session, streams);
        self.sessions.store(table.session_count(), Ordering::Relaxed);
        self.table_changed(&mut state);
    }

    pub(crate) fn is_in_use(&self) -> bool {
        self.sessions.load(Ordering::Relaxed) > 0
    }

    // ---- for those who serve clients ----

    /// What happens in this tier to the stream's session is told there, until the guard is dropped.
    pub(crate) fn open_stream(
        self: &Arc<Self>,
        stream: StreamKey,
        outbox: TaskOutbox,
    ) -> TierStream {
        let guard = TierStream { tier: Arc::clone(self), stream, outbox: outbox.downgrade() };
        self.state().streams.open(stream, outbox);
        guard
    }

    /// Carries out the operations of one session, in order. Gives them back untouched if this node is not sure
    /// that it leads, or does not know the session in this tier.
    pub(crate) fn carry_out(
        &self,
        session: SessionId,
        operations: Vec<(Admitted<Command>, ReplyTo)>,
    ) -> Result<(), Vec<(Admitted<Command>, ReplyTo)>> {
        let now = self.now();
        let mut state = self.state();
        let State { streams, table: Some(table), .. } = &mut *state else { return Err(operations) };
        if !table.serves(now, session) {
            return Err(operations);
        }
        table.begin_entry(now);
        for (command, reply) in operations {
            table.carry_out(now, command.into_inner(), reply, streams);
        }
        put_all(streams);
        self.table_changed(&mut state);
        Ok(())
    }

    /// The caller of a unary call hung up while its request waited.
    pub(crate) fn abandon(&self, session: SessionId, request: RequestId) {
        let now = self.now();
        let mut state = self.state();
        let State { streams, table: Some(table), .. } = &mut *state else { return };
        table.begin_entry(now);
        table.abandon(now, session, request, streams);
        put_all(streams);
        self.table_changed(&mut state);
    }

    /// How long it takes until this term's grants can begin.
    pub(crate) fn opens_in(&self) -> Duration {
        let opens = self.state().table.as_ref().map_or(LogicalTime::ZERO, TermTable::opens);
        Duration::from_millis(opens.since(self.now()).as_ms())
    }

    /// None if it is neither held nor awaited, or this node is not sure of that.
    pub(crate) fn status(&self, name: &str, shown_max: usize) -> Option<(LogicalTime, LockStatus)> {
        let now = self.now();
        let state = self.state();
        let status =
            state.table.as_ref().filter(|table| table.is_sure(now))?.status(name, shown_max);
        (status.holder_count + status.waiter_count > 0).then_some((now, status))
    }

    /// None if this node is not sure.
    pub(crate) fn token_standing(
        &self,
        name: &LockName,
        token: FenceToken,
    ) -> Option<(LogicalTime, TokenStanding)> {
        let now = self.now();
        let state = self.state();
        let table = state.table.as_ref().filter(|table| table.is_sure(now))?;
        Some((now, table.token_standing(name, token)))
    }

    /// Ends what is due. Returns how long there is nothing more to end.
    fn run_due(&self) -> Duration {
        let now = self.now();
        let mut state = self.state();
        let State { streams, table, next_look } = &mut *state;
        let Some(table) = table else {
            *next_look = None;
            return IDLE_PAUSE;
        };
        let is_sure = table.is_sure(now);
        if is_sure {
            table.run_due(now, streams);
            put_all(streams);
            table.measure();
        }
        *next_look = table.next_deadline();
        match *next_look {
            Some(next) if next > now => {
                Duration::from_millis(next.since(now).as_ms()).min(IDLE_PAUSE)
            }
            Some(_) if is_sure => Duration::ZERO,
            Some(_) => UNSURE_PAUSE,
            None => IDLE_PAUSE,
        }
    }

    /// Shows the table's size, and wakes [`keep_time`] if it would look too late.
    fn table_changed(&self, state: &mut State) {
        let Some(table) = &mut state.table else { return };
        table.measure();
        if let Some(next) = table.next_deadline()
            && state.next_look.is_none_or(|look| next < look)
        {
            state.next_look = Some(next);
            self.earlier.notify_one();
        }
    }

    fn now(&self) -> LogicalTime {
        self.at(boot_clock::now())
    }

    fn at(&self, moment: BootTime) -> LogicalTime {
        let since = moment.saturating_since(self.started).as_millis();
        LogicalTime::ZERO.after(Span::from_ms(u64::try_from(since).unwrap_or(u64::MAX)))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| {
            // A panic left a change half done. What this term has granted is not known, so it grants no more.
            let mut state = poisoned.into_inner();
            state.table = None;
            self.state.clear_poison();
            state
        })
    }
}

/// A stream that is told what happens in this tier. Dropping it closes the stream, also after a panic.
#[derive(Debug)]
pub(crate) struct TierStream {
    tier: Arc<EfficiencyTier>,
    stream: StreamKey,
    outbox: WeakSender<Vec<Delivery>>,
}

impl Drop for TierStream {
    fn drop(&mut self) {
        let mut state = self.tier.state();
        // Another connection may have opened the same stream since.
        let is_same = |own: TaskOutbox| {
            state.streams.get(self.stream).is_some_and(|open| open.same_channel(&own))
        };
        if self.outbox.upgrade().is_some_and(is_same) {
            state.streams.close(self.stream);
        }
    }
}

impl State {
    fn end_term_table(&mut self, reason: Unavailable) {
        if let Some(table) = self.table.take() {
            table.end(reason, &mut self.streams);
            put_all(&mut self.streams);
        }
        self.next_look = None;
    }
}

fn answer(to: ReplyTo, answer: Answer, streams: &mut Streams) {
    match to {
        // A caller that is gone needs no answer.
        ReplyTo::Call(sender) => drop(sender.send(answer)),
        ReplyTo::Stream { stream, request } => {
            streams.send(stream, Delivery::Answer { request, answer });
        }
    }
}

/// Ends what is due, when it is due.
pub(crate) async fn keep_time(tier: Arc<EfficiencyTier>) {
    loop {
        let pause = tier.run_due();
        tokio::select! {
            () = sleep(pause) => {}
            () = tier.earlier.notified() => {}
        }
    }
}
