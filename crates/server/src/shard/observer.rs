//! What the shard measures of the engine's work, and how it names callers and streams.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_core::{Command, Event, LogicalTime, Outcome, Rejection};
use holdfast_engine::{Answer, ChangeAnswer, Host, ReadAnswer, TouchesAnswer, Unavailable, Wait};
use holdfast_replica::{GroupId, HandOverRefusal, NodeId};
use tokio::sync::oneshot;

use super::measure;
use crate::inbox::Deferrable;
use crate::metrics::{GroupGrants, Kind, Metrics, QUOTA_KINDS, Settled};
use crate::outbox::Outbox;
use crate::traces::Traces;

#[derive(Debug)]
pub(crate) struct Observer {
    metrics: Arc<Metrics>,
    /// None if no spans are wanted.
    traces: Option<Arc<Traces>>,
    started: Instant,
    /// The time of the present step; one look at the clock serves all of it.
    now: Option<Duration>,
    /// Commands since the turn began.
    asked: u64,
    /// Since the node started.
    grants: BTreeMap<GroupId, GroupGrants>,
}

/// What was asked, and when.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    kind: Kind,
    at: Duration,
}

/// The shard's end of a client's stream.
#[derive(Debug)]
pub(crate) struct ClientStream {
    pub(super) outbox: Outbox,
    pub(super) deferrable: Deferrable,
}

impl Observer {
    pub(super) fn new(
        metrics: Arc<Metrics>,
        traces: Option<Arc<Traces>>,
        started: Instant,
    ) -> Observer {
        Observer { metrics, traces, started, now: None, asked: 0, grants: BTreeMap::new() }
    }

    /// Another step begins.
    pub(super) fn forget_time(&mut self) {
        self.now = None;
    }

    /// All input of a turn is taken in.
    pub(super) fn measure_batch(&mut self) {
        if self.asked > 0 {
            self.metrics.batch.record(std::mem::take(&mut self.asked));
        }
    }

    pub(super) fn grants(&self) -> &BTreeMap<GroupId, GroupGrants> {
        &self.grants
    }

    fn now(&mut self) -> Duration {
        *self.now.get_or_insert_with(|| self.started.elapsed())
    }
}

impl Host for Observer {
    type Call = oneshot::Sender<Answer>;
    type Read = oneshot::Sender<Result<ReadAnswer, Unavailable>>;
    type Touches = oneshot::Sender<TouchesAnswer>;
    type Change = oneshot::Sender<ChangeAnswer>;
    type HandOver = oneshot::Sender<Result<NodeId, HandOverRefusal>>;
    type Stream = ClientStream;
    type Mark = Asked;

    fn asked(&mut self, command: &Command, wait: Option<Wait>) -> Asked {
        self.asked += 1;
        if let (Some(traces), Some(wait)) = (&self.traces, wait) {
            traces.proposed(wait);
        }
        Asked { kind: Kind::of(command), at: self.now() }
    }

    fn settled(&mut self, asked: Asked, wait: Option<Wait>, outcome: &Outcome, was_queued: bool) {
        if let (Some(traces), Some(wait)) = (&self.traces, wait) {
            traces.answered(wait, outcome);
        }
        match outcome {
            Outcome::Queued { position } => self.metrics.queue_position.record(*position),
            Outcome::Rejected(rejection) if rejection.is_of_full_table() => {
                self.metrics.full_refusals.add(1);
            }
            Outcome::Rejected(Rejection::QuotaExceeded { kind, .. }) => {
                let counted = QUOTA_KINDS.iter().zip(&self.metrics.quota_refusals);
                let counted = counted.filter(|((counted, _), _)| counted == kind);
                counted.for_each(|(_, refusals)| refusals.add(1));
            }
            _ => {}
        }
        let Some(settled) = Settled::of(outcome) else { return };
        self.metrics.operations.add(asked.kind, settled);
        if settled == Settled::Granted {
            let took = self.now().saturating_sub(asked.at);
            let metrics = &self.metrics;
            let waits =
                if was_queued { &metrics.granted_after_wait } else { &metrics.granted_at_once };
            waits.record_time(took);
        }
    }

    fn failed(&mut self, asked: Asked, wait: Option<Wait>) {
        if let (Some(traces), Some(wait)) = (&self.traces, wait) {
            traces.failed(wait, "unavailable");
        }
        self.metrics.operations.add(asked.kind, Settled::Unavailable);
    }

    fn touches_asked(&mut self, sessions: usize) {
        self.asked += sessions as u64;
    }

    fn touches_settled(&mut self, known: usize, unknown: usize) {
        self.metrics.operations.add_many(Kind::Touch, Settled::Done, known as u64);
        self.metrics.operations.add_many(Kind::Touch, Settled::Rejected, unknown as u64);
    }

    fn touches_failed(&mut self, sessions: usize) {
        self.metrics.operations.add_many(Kind::Touch, Settled::Unavailable, sessions as u64);
    }

    fn read_settled(&mut self, is_served: bool) {
        let settled = if is_served { Settled::Done } else { Settled::Unavailable };
        self.metrics.operations.add(Kind::Read, settled);
    }

    fn happened(&mut self, group: GroupId, is_leader: bool, at: LogicalTime, event: &Event) {
        if matches!(event, Event::Granted { .. }) {
            self.grants.entry(group).or_default().count(is_leader);
        }
        if is_leader {
            measure::event(&self.metrics, at, event);
        }
        if let Some(traces) = &self.traces {
            traces.happened(event);
        }
    }
}
