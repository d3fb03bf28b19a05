//! What is refused while the audit cannot be written.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};

use holdfast_proto::failure::not_now;
use holdfast_proto::v1::{Failure, Reason};

use crate::method::{Kind, Method, Verb};

/// What a node does while its audit file cannot be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnAuditFailure {
    /// It serves, counts the failures, and writes what it still knows when it can.
    #[default]
    Continue,
    /// It refuses changes.
    RefuseChanges,
    /// It also refuses to show locks and sessions.
    RefuseAll,
}

impl OnAuditFailure {
    pub const fn name(self) -> &'static str {
        match self {
            OnAuditFailure::Continue => "continue",
            OnAuditFailure::RefuseChanges => "refuse-changes",
            OnAuditFailure::RefuseAll => "refuse-all",
        }
    }

    /// Heartbeats, releases and the like are never refused: sessions would end, and locks would stay held, because of a
    /// file.
    fn refuses(self, method: Method) -> bool {
        let row = method.row();
        let keeps_or_gives_up = row.verb == Verb::Authenticated
            || matches!(
                method,
                Method::ResumeSession | Method::KeepAlive | Method::KeepAliveMany | Method::Renew
            );
        match (self, row.kind) {
            (OnAuditFailure::Continue, _) => false,
            (_, Kind::Command) => !keeps_or_gives_up,
            (_, Kind::Intervention | Kind::ClusterChange | Kind::AccessChange) => true,
            (OnAuditFailure::RefuseAll, Kind::Read | Kind::Watch | Kind::Snapshot) => true,
            (
                _,
                Kind::Read
                | Kind::Watch
                | Kind::Snapshot
                | Kind::ClusterStatus
                | Kind::SessionStream
                | Kind::Probe
                | Kind::Description,
            ) => false,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownOnAuditFailure;

impl fmt::Display for UnknownOnAuditFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("on_failure is continue, refuse-changes or refuse-all")
    }
}

impl FromStr for OnAuditFailure {
    type Err = UnknownOnAuditFailure;

    fn from_str(text: &str) -> Result<OnAuditFailure, UnknownOnAuditFailure> {
        let all =
            [OnAuditFailure::Continue, OnAuditFailure::RefuseChanges, OnAuditFailure::RefuseAll];
        all.into_iter().find(|choice| choice.name() == text).ok_or(UnknownOnAuditFailure)
    }
}

/// The writer of the audit file says whether it can write, and the service asks.
#[derive(Debug, Default)]
pub struct AuditGate {
    on_failure: OnAuditFailure,
    is_failing: AtomicBool,
}

impl AuditGate {
    pub fn new(on_failure: OnAuditFailure) -> AuditGate {
        AuditGate { on_failure, is_failing: AtomicBool::new(false) }
    }

    pub fn set_failing(&self, is_failing: bool) {
        self.is_failing.store(is_failing, Ordering::Relaxed);
    }

    /// Whether the node refuses something now.
    pub fn is_closed(&self) -> bool {
        self.is_failing.load(Ordering::Relaxed) && self.on_failure != OnAuditFailure::Continue
    }

    pub(crate) fn check(&self, method: Method) -> Result<(), Failure> {
        if !self.is_closed() || !self.on_failure.refuses(method) {
            return Ok(());
        }
        let words = "this node cannot write its audit file, and is configured to refuse what it cannot record \
                     (audit.on_failure): make room on its disk, or ask another node";
        Err(not_now(Reason::AuditUnavailable, words))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused_by(on_failure: OnAuditFailure) -> Vec<Method> {
        let gate = AuditGate::new(on_failure);
        let check = |method: &&Method| gate.check(**method).is_err();
        assert_eq!(Method::ALL.iter().filter(check).count(), 0, "the file can be written");
        gate.set_failing(true);
        Method::ALL.iter().filter(check).copied().collect()
    }

    #[test]
    fn without_an_audit_changes_are_refused_and_what_keeps_or_gives_up_is_not() {
        assert_eq!(refused_by(OnAuditFailure::Continue), []);
        let changes = refused_by(OnAuditFailure::RefuseChanges);
        for method in [Method::Acquire, Method::Break, Method::ChangeAccess, Method::RemoveNode] {
            assert!(changes.contains(&method), "{method:?}");
        }
        let all = refused_by(OnAuditFailure::RefuseAll);
        assert!(all.contains(&Method::List) && !changes.contains(&Method::List));
        assert!(changes.iter().all(|method| all.contains(method)));
        for method in [
            Method::KeepAlive,
            Method::Renew,
            Method::Release,
            Method::CloseSession,
            Method::ResumeSession,
            Method::HttpReady,
            Method::HttpMetrics,
            Method::ClusterStatus,
        ] {
            assert!(!all.contains(&method), "{method:?}");
        }
    }
}
