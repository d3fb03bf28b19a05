//! What happened, as the checkers want to know it. The simulation records it, and so does the chaos run
//! with real processes; the checkers do not know which it was.
//!
//! Two views, kept apart:
//! * [`ClientOperation`]: what a client asked and was told, with the interval in between. Both kinds of
//!   run have it.
//! * [`Replicated`]: what the lock tables did, entry by entry. Only the simulation sees it.

use std::collections::BTreeMap;
use std::ops::{Bound, RangeInclusive};

use holdfast_core::command::{Action, Member, Mode, Policy, Terms};
use holdfast_core::{
    ActorId, ChangeAccess, FenceToken, LockName, MapEpoch, PublicSessionId, RequestId, SlotSet,
};
use holdfast_core::{EndReason, Event, Grant, LogIndex, LogicalTime, Outcome, SessionId, Span};
use holdfast_replica::NodeId;

/// Real time, in microseconds since the run began. Nothing inside the run can read it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RealTime(pub u64);

/// Everything that one run recorded of one group.
#[derive(Clone, Debug, Default)]
pub struct History {
    pub operations: Vec<ClientOperation>,
    pub writes: Vec<StoreWrite>,
    pub resumes: Vec<Resume>,
    pub replicated: Vec<Replicated>,
    pub leaders: Vec<LeaderSpan>,
    /// When a leader wrote a command of the session into its log, be it lost or not. Empty if that was not
    /// recorded.
    pub contacts: BTreeMap<SessionId, Vec<RealTime>>,
    /// From when on tables followed rules 2, as far as seen; none if they never did.
    pub rules_adopted: Option<LogicalTime>,
    /// Among the entries of these ranges is one whose searches for deadlocks used up their steps, so that it queued
    /// waits without a search.
    pub searches_cut: Vec<RangeInclusive<LogIndex>>,
    pub end: RealTime,
    /// Set if it is that of a cluster that was restored from a backup.
    pub beginning: Option<Beginning>,
    /// The slots of a group that was founded beside others. None if it owned all slots when it began.
    pub founding: Option<(MapEpoch, SlotSet)>,
    /// For a group beside the root group: the changes of the policy there, by the generations that they made.
    pub changes_in_root: BTreeMap<u64, ChangeAccess>,
    /// When the network was so slow that a commit took long although there was a leader.
    pub slow: Vec<SlowSpan>,
    /// When leaders waited for their disks, because these were slow or full.
    pub slow_writes: Vec<(RealTime, RealTime)>,
    /// What nodes' clocks did besides running.
    pub clocks: ClockFaults,
    /// Some clock ran faster or slower than is trusted. Then only the tokens protect: nothing is promised
    /// about when a session ends, nor about how long a client may believe in its lock.
    pub rates_broken: bool,
}

/// A session was resumed on another stream.
#[derive(Clone, Debug)]
pub struct Resume {
    pub session: SessionId,
    /// The logical time of the answer.
    pub at: LogicalTime,
    pub holds: Vec<Believed>,
}

/// What a client believes to hold.
#[derive(Clone, Copy, Debug)]
pub struct Believed {
    pub acquire: RequestId,
    pub token: FenceToken,
    pub is_shared: bool,
}

/// When a cluster was restored, and for how long it grants nothing from then on.
#[derive(Clone, Copy, Debug)]
pub struct Beginning {
    pub at: RealTime,
    pub closed_for: Span,
    /// The backup is of the cluster before which there were so many.
    pub backup_of: usize,
}

impl History {
    /// From when on a lock that is free has no waiters: at once, unless the cluster was restored from a backup. Then
    /// everything is closed at first, and what waits is granted in the entries that follow the opening.
    pub(crate) fn granting_from(&self, lock: &LockName) -> RealTime {
        if self.beginning.is_none() {
            return RealTime(0);
        }
        let is_opening = |record: &&Replicated| matches!(&record.what, Happening::Event(Event::Thawed { prefix }) if prefix.is_empty());
        let Some(opening) = self.replicated.iter().find(is_opening) else { return self.end };
        for record in self.replicated.iter().filter(|record| record.index > opening.index) {
            match &record.what {
                Happening::Event(Event::Granted { name, .. }) if name == lock => {
                    return record.real.max(opening.real);
                }
                Happening::Event(Event::Released { name, .. } | Event::HoldEnded { name, .. })
                    if name == lock =>
                {
                    break;
                }
                _ => {}
            }
        }
        opening.real
    }
}

#[derive(Clone, Copy, Debug)]
pub struct SlowSpan {
    pub from: RealTime,
    pub to: RealTime,
    /// How long it took from the moment at which something was due until it was done: a round trip of what the
    /// leader was doing, and one of its own.
    pub delay_us: u64,
}

/// Clocks of nodes that stood still or leapt ahead, within a run whose rates are trusted otherwise. The service
/// bounds the harm: while a clock stands still nothing is promised to end, and a leap ends things early by
/// no more than the longest turn that a leader counts.
#[derive(Clone, Debug, Default)]
pub struct ClockFaults {
    pub stops: Vec<(RealTime, RealTime)>,
    /// When, and for how many microseconds it can have counted.
    pub leaps: Vec<(RealTime, u64)>,
}

impl ClockFaults {
    /// For how long clocks stood still between two moments, those of different nodes added up.
    pub(crate) fn stopped_us(&self, from: RealTime, to: RealTime) -> u64 {
        let within =
            |(stop, go): &(RealTime, RealTime)| go.0.min(to.0).saturating_sub(stop.0.max(from.0));
        self.stops.iter().map(within).sum()
    }

    /// What the leaps between two moments can have counted for.
    pub(crate) fn leapt_us(&self, from: RealTime, to: RealTime) -> u64 {
        let within = self.leaps.iter().filter(|(leap, _)| (from..=to).contains(leap));
        within.map(|(_, counted_us)| counted_us).sum()
    }
}

/// One request of a client, retries included: they share one request id and count as one operation.
#[derive(Clone, Debug)]
pub struct ClientOperation {
    pub session: SessionId,
    pub request: RequestId,
    pub input: Input,
    /// When it was first sent.
    pub invoked: RealTime,
    /// When its answer came, and what it was. None: it never came, so the operation may have taken
    /// effect at any time after `invoked`, or never.
    pub returned: Option<(RealTime, Output)>,
    /// The retry whose answer it was had been sent at this time (equal to `invoked` without retries).
    pub last_sent: RealTime,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    OpenSession {
        ttl_ms: u64,
    },
    Touch,
    CloseSession,
    Acquire {
        name: LockName,
        wait_ms: u64,
        ttl_ms: Option<u64>,
        max_hold_ms: Option<u64>,
    },
    Cancel {
        target: RequestId,
    },
    Release {
        name: LockName,
        token: FenceToken,
    },
    Renew {
        name: LockName,
        token: FenceToken,
        ttl_ms: Option<u64>,
    },
    /// An acquire in any mode and on any terms, or an acquire-all.
    Take(Box<Take>),
    Convert {
        name: LockName,
        token: FenceToken,
        to: Mode,
        wait_ms: u64,
        policy: Policy,
    },
    Proclaim {
        name: LockName,
        token: FenceToken,
    },
    Transfer {
        name: LockName,
        token: FenceToken,
        to: PublicSessionId,
    },
    /// What an operator asked. It says nothing about the session of the client that sent it.
    Intervene(Action),
    /// A linearizable read.
    Status {
        name: LockName,
    },
}

/// What an acquire asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Take {
    pub actor: ActorId,
    /// It is an acquire-all, be it of one name.
    pub all: bool,
    pub members: Vec<Member>,
    pub terms: Terms,
}

impl History {
    /// The changes of the policy that the log tells, by the generations that they made.
    pub(crate) fn changes_of_policy(&self) -> BTreeMap<u64, ChangeAccess> {
        let change = |replicated: &Replicated| match &replicated.what {
            Happening::Event(Event::AccessChanged { change, generation }) => {
                Some((*generation, (**change).clone()))
            }
            _ => None,
        };
        self.replicated.iter().filter_map(change).collect()
    }

    /// The changes that a group makes its own when it adopts a later generation of the root group's policy.
    pub(crate) fn adopted_changes(
        &self,
        from: u64,
        to: u64,
    ) -> impl Iterator<Item = &ChangeAccess> {
        let skipped = (Bound::Excluded(from.min(to)), Bound::Included(to));
        self.changes_in_root.range(skipped).map(|(_, change)| change)
    }

    pub(crate) fn policy_changes(&self) -> bool {
        let is_change = |what: &Happening| {
            matches!(
                what,
                Happening::Event(Event::AccessChanged { .. } | Event::PolicyAdopted { .. })
            )
        };
        self.replicated.iter().any(|replicated| is_change(&replicated.what))
    }
}

impl Input {
    /// Is it an acquire, of whichever kind?
    pub(crate) fn is_acquire(&self) -> bool {
        matches!(self, Input::Acquire { .. } | Input::Take(_))
    }

    /// A session may do this whatever the policy says.
    pub(crate) fn gives_up(&self) -> bool {
        matches!(self, Input::Release { .. } | Input::Cancel { .. })
    }

    /// The names that an acquire wants.
    pub(crate) fn acquires(&self) -> impl Iterator<Item = &LockName> {
        let (one, many) = match self {
            Input::Acquire { name, .. } => (Some(name), None),
            Input::Take(take) => (None, Some(take.members.iter().map(|member| &member.name))),
            _ => (None, None),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }

    /// On which terms, if they were any but the simplest.
    pub(crate) fn terms(&self) -> Option<&Terms> {
        match self {
            Input::Take(take) => Some(&take.terms),
            _ => None,
        }
    }

    /// How long it was willing to wait, if it is something that can.
    pub(crate) fn wait_ms(&self) -> Option<u64> {
        match self {
            Input::Acquire { wait_ms, .. } | Input::Convert { wait_ms, .. } => Some(*wait_ms),
            Input::Take(take) => Some(take.terms.wait.as_ms()),
            _ => None,
        }
    }

    pub(crate) fn ttl_ms(&self) -> Option<u64> {
        match self {
            Input::Acquire { ttl_ms, .. } => *ttl_ms,
            Input::Take(take) => take.terms.ttl.map(Span::as_ms),
            _ => None,
        }
    }

    pub(crate) fn max_hold_ms(&self) -> Option<u64> {
        match self {
            Input::Acquire { max_hold_ms, .. } => *max_hold_ms,
            Input::Take(take) => take.terms.max_hold.map(Span::as_ms),
            _ => None,
        }
    }

    /// What to do when another holder is in the way.
    pub(crate) fn policy(&self) -> Option<Policy> {
        match self {
            Input::Take(take) => Some(take.terms.policy),
            Input::Convert { policy, .. } => Some(*policy),
            _ => None,
        }
    }
}

impl ClientOperation {
    /// What the client was told that it holds.
    pub(crate) fn grants(&self) -> &[Grant] {
        match &self.returned {
            Some((_, Output::Outcome(Outcome::Granted(grant)))) => std::slice::from_ref(grant),
            Some((_, Output::Outcome(Outcome::GrantedAll(grants)))) => grants,
            _ => &[],
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// What the lock table answered.
    Outcome(Outcome),
    /// What a read saw: holder and token, and how many waited.
    Status { holder: Option<(SessionId, FenceToken)>, waiters: u64 },
}

/// A client used its token at the protected resource, believing in its lock.
#[derive(Clone, Debug)]
pub struct StoreWrite {
    pub at: RealTime,
    /// When the client last looked at its lease and found it valid; later it may have been paused.
    pub believed: RealTime,
    pub session: SessionId,
    pub name: LockName,
    pub token: FenceToken,
    /// Its own clock has stood still since its session began, so that it may have believed for too long.
    pub clock_stood_still: bool,
    /// The resource compares with the highest token that it has seen.
    pub accepted: bool,
}

/// Something that a replica did when it applied its log.
#[derive(Clone, Debug)]
pub struct Replicated {
    pub real: RealTime,
    pub node: NodeId,
    pub index: LogIndex,
    pub logical: LogicalTime,
    pub what: Happening,
}

#[derive(Clone, Debug)]
pub enum Happening {
    /// In the order of the log; the same on every replica.
    Event(Event),
    /// The digest of the table after this index, taken now and then.
    Digest(u64),
    /// The table was replaced by a leader's snapshot, or restored from disk: what came before on this
    /// node is not continued entry by entry.
    Restored,
}

/// A time during which a node led and could commit: what lies between two spans is leaderless.
#[derive(Clone, Copy, Debug)]
pub struct LeaderSpan {
    pub node: NodeId,
    pub term: u64,
    pub from: RealTime,
    pub to: RealTime,
}

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which checker found it, e.g. `linearizability`.
    pub checker: &'static str,
    /// What was broken, with names, tokens, times: enough to look it up in the trace.
    pub what: String,
}

/// Why a hold ended without its holder's doing, where the lock tables tell.
pub fn hold_ended(event: &Event) -> Option<(&LockName, FenceToken, EndReason)> {
    match event {
        Event::HoldEnded { name, token, reason, .. } => Some((name, *token, *reason)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use holdfast_core::command::Mode;

    use super::*;

    #[test]
    fn after_a_restore_a_lock_has_waiters_until_the_grant_that_follows_the_opening() {
        let lock = |name: &str| LockName::new(name).unwrap();
        let record = |index: u64, real: u64, event| Replicated {
            real: RealTime(real),
            node: NodeId(1),
            index: LogIndex(index),
            logical: LogicalTime::ZERO,
            what: Happening::Event(event),
        };
        let granted = |name: &str| Event::Granted {
            name: lock(name),
            session: SessionId(1),
            request: RequestId(1),
            actor: ActorId(0),
            mode: Mode::Exclusive,
            token: FenceToken(1),
            metadata: Box::default(),
        };
        let mut history = History {
            replicated: vec![
                record(5, 100, Event::Thawed { prefix: "".into() }),
                record(6, 200, granted("b")),
                record(7, 300, granted("a")),
            ],
            end: RealTime(900),
            ..History::default()
        };
        assert_eq!(history.granting_from(&lock("a")), RealTime(0));
        let (at, closed_for) = (RealTime(0), Span::ZERO);
        history.beginning = Some(Beginning { at, closed_for, backup_of: 0 });
        assert_eq!(history.granting_from(&lock("a")), RealTime(300));
        assert_eq!(history.granting_from(&lock("b")), RealTime(200));
        assert_eq!(history.granting_from(&lock("c")), RealTime(100));
        history.replicated.clear();
        assert_eq!(history.granting_from(&lock("a")), RealTime(900));
    }
}
