//! Counts operations by their kind and their result.

use holdfast_core::{Command, Outcome, ReleaseAnswer};

use super::number::Tally;

/// The kind of an operation; the label `kind`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    OpenSession,
    AttachStream,
    Touch,
    CloseSession,
    Acquire,
    AcquireAll,
    Convert,
    Cancel,
    Release,
    Renew,
    Proclaim,
    Transfer,
    Intervene,
    Read,
    /// All other commands: those that the leader proposes by itself, reports about streams and abandoned requests, and
    /// changes of the policy.
    Internal,
}

const KINDS: [&str; 15] = [
    "open_session",
    "attach_stream",
    "touch",
    "close_session",
    "acquire",
    "acquire_all",
    "convert",
    "cancel",
    "release",
    "renew",
    "proclaim",
    "transfer",
    "intervene",
    "read",
    "internal",
];

/// The result of an operation; the label `outcome`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settled {
    Done,
    Granted,
    Busy,
    TimedOut,
    Cancelled,
    Deadlock,
    /// Refused by the policy `wait-die`.
    Died,
    /// A cancellation that came too late, or found nothing to cancel.
    TooLate,
    NotHeld,
    Rejected,
    Unavailable,
}

const SETTLED: [&str; 11] = [
    "done",
    "granted",
    "busy",
    "timed_out",
    "cancelled",
    "deadlock",
    "died",
    "too_late",
    "not_held",
    "rejected",
    "unavailable",
];

impl Kind {
    pub(crate) fn of(command: &Command) -> Kind {
        match command {
            Command::OpenSession(_) => Kind::OpenSession,
            Command::AttachStream { .. } => Kind::AttachStream,
            Command::Touch { .. } => Kind::Touch,
            Command::CloseSession { .. } => Kind::CloseSession,
            Command::Acquire(_) => Kind::Acquire,
            Command::AcquireAll(_) => Kind::AcquireAll,
            Command::Convert { .. } => Kind::Convert,
            Command::Cancel { .. } => Kind::Cancel,
            Command::Release { .. } => Kind::Release,
            Command::Renew { .. } => Kind::Renew,
            Command::Proclaim { .. } => Kind::Proclaim,
            Command::Transfer { .. } => Kind::Transfer,
            Command::Intervene(_) => Kind::Intervene,
            Command::DetachStream { .. }
            | Command::Abandon { .. }
            | Command::BeginTerm { .. }
            | Command::Tick
            | Command::EventsPublished { .. }
            | Command::AdoptRules { .. }
            | Command::AdoptPolicy(_)
            | Command::ChangeAccess(_)
            | Command::SetOwnership { .. }
            | Command::MoveSlots(_) => Kind::Internal,
        }
    }
}

impl Settled {
    /// `None` for a request that waits in a queue: it has no result yet.
    pub(crate) fn of(outcome: &Outcome) -> Option<Settled> {
        Some(match outcome {
            Outcome::Queued { .. } => return None,
            Outcome::Granted(_) | Outcome::GrantedAll(_) => Settled::Granted,
            Outcome::Busy => Settled::Busy,
            Outcome::TimedOut => Settled::TimedOut,
            Outcome::Cancelled => Settled::Cancelled,
            Outcome::Deadlock(_) => Settled::Deadlock,
            Outcome::Died { .. } => Settled::Died,
            Outcome::CancelTooLate(_) | Outcome::CancelNothing => Settled::TooLate,
            Outcome::Release(ReleaseAnswer::Released | ReleaseAnswer::StillHeld { .. }) => {
                Settled::Done
            }
            Outcome::Release(_) => Settled::NotHeld,
            Outcome::Rejected(_) => Settled::Rejected,
            Outcome::SessionOpen { .. }
            | Outcome::Touched { .. }
            | Outcome::SessionClosed
            | Outcome::CancelDone
            | Outcome::Renewed { .. }
            | Outcome::Proclaimed
            | Outcome::Transferred { .. }
            | Outcome::Intervened(_)
            | Outcome::Published(_)
            | Outcome::AccessChanged { .. }
            | Outcome::Done => Settled::Done,
        })
    }
}

#[derive(Debug, Default)]
pub(crate) struct Operations {
    counts: [[Tally; SETTLED.len()]; KINDS.len()],
}

impl Operations {
    pub(crate) fn add(&self, kind: Kind, settled: Settled) {
        self.add_many(kind, settled, 1);
    }

    pub(crate) fn add_many(&self, kind: Kind, settled: Settled, how_many: u64) {
        if let Some(count) =
            self.counts.get(kind as usize).and_then(|counts| counts.get(settled as usize))
        {
            count.add(how_many);
        }
    }

    /// All counts above zero. The count of granted acquires is always included, so that its series exists from the
    /// start.
    pub(super) fn each(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> + '_ {
        let rows = KINDS.into_iter().zip(&self.counts);
        rows.flat_map(|(kind, counts)| {
            SETTLED
                .into_iter()
                .zip(counts)
                .map(move |(settled, count)| (kind, settled, count.get()))
        })
        .filter(|(kind, settled, count)| *count > 0 || (*kind, *settled) == ("acquire", "granted"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_and_every_outcome_has_its_label() {
        let operations = Operations::default();
        operations.add(Kind::Acquire, Settled::TimedOut);
        operations.add(Kind::Internal, Settled::Unavailable);
        operations.add(Kind::OpenSession, Settled::Done);
        let shown: Vec<_> = operations.each().collect();
        assert_eq!(
            shown,
            [
                ("open_session", "done", 1),
                ("acquire", "granted", 0),
                ("acquire", "timed_out", 1),
                ("internal", "unavailable", 1)
            ]
        );
    }
}
