//! Whether the nodes have denied the client its session for so long that the client gives the session up.
//!
//! One denial proves little. A node that does not lead may not know the newest credentials yet. A program that renews
//! its credential may be late by a moment. So a client gives its session up only when
//! - the latest answer of each known node, if it gave one, is a denial,
//! - at least one of these denials is final: the leader's is,
//! - and denials have gone on for [`patience`], without a node that served the session.
//!
//! An answer that is older than the patience does not count: the node may say something else by now. With each attempt
//! the client shows its present credential, so a new credential needs no rule of its own.

use std::collections::BTreeMap;
use std::time::Duration;

use holdfast_proto::v1::{Failure, Reason};

use super::answers::is_denial;
use crate::lease::LocalTime;

/// Long enough to replace a credential that has ended.
const PATIENCE_MAX: Duration = Duration::from_secs(5);

/// How long denials of a session with this TTL go on before the client gives the session up.
fn patience(ttl: Duration) -> Duration {
    PATIENCE_MAX.min(ttl / 3)
}

#[derive(Debug)]
pub(super) struct Denials {
    patience: Duration,
    /// The latest answer of each known node. It has no other addresses, so leader hints do not make it grow.
    answers: BTreeMap<String, NodeAnswer>,
    /// When the present series of denials began.
    since: Option<LocalTime>,
}

#[derive(Debug)]
struct NodeAnswer {
    at: LocalTime,
    kind: AnswerKind,
}

#[derive(Debug, PartialEq, Eq)]
enum AnswerKind {
    FinalDenial,
    /// The node says that a later attempt may have another answer.
    RetryableDenial,
    /// The node did not serve the session, for another reason.
    NotDenied,
}

impl Denials {
    pub(super) fn new(ttl: Duration) -> Denials {
        Denials { patience: patience(ttl), answers: BTreeMap::new(), since: None }
    }

    /// A node serves the session, or the session has ended.
    pub(super) fn clear(&mut self) {
        self.answers.clear();
        self.since = None;
    }

    /// A node has not let the client resume. Returns true if the client has to give its session up.
    pub(super) fn note(
        &mut self,
        now: LocalTime,
        address: &str,
        failure: &Failure,
        known: &[String],
    ) -> bool {
        let patience = self.patience;
        self.answers.retain(|address, answer| {
            now.saturating_since(answer.at) <= patience && known.contains(address)
        });
        self.since = self.since.filter(|_| self.has_denial());
        // A connection that broke is no answer of a node.
        if failure.reason() != Reason::Unspecified && known.iter().any(|one| one == address) {
            let kind = match (is_denial(failure.reason()), failure.retryable) {
                (true, false) => AnswerKind::FinalDenial,
                (true, true) => AnswerKind::RetryableDenial,
                (false, _) => AnswerKind::NotDenied,
            };
            self.answers.insert(address.to_owned(), NodeAnswer { at: now, kind });
        }
        if !self.has_denial() {
            self.since = None;
            return false;
        }
        let since = *self.since.get_or_insert(now);
        is_denial(failure.reason())
            && self.has(&AnswerKind::FinalDenial)
            && !self.has(&AnswerKind::NotDenied)
            && now.saturating_since(since) >= patience
    }

    fn has_denial(&self) -> bool {
        self.has(&AnswerKind::FinalDenial) || self.has(&AnswerKind::RetryableDenial)
    }

    fn has(&self, wanted: &AnswerKind) -> bool {
        self.answers.values().any(|answer| answer.kind == *wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FINAL: (Reason, bool) = (Reason::Unauthenticated, false);
    const RETRYABLE: (Reason, bool) = (Reason::CredentialExpired, true);
    const NO_QUORUM: (Reason, bool) = (Reason::NoQuorum, true);
    const SILENCE: (Reason, bool) = (Reason::Unspecified, true);

    /// Whether the session is given up after the last of these answers: milliseconds, node, and what it says.
    fn is_given_up_after(ttl_ms: u64, answers: &[(u64, &str, (Reason, bool))]) -> bool {
        let mut denials = Denials::new(Duration::from_millis(ttl_ms));
        let known = ["a:1", "b:2", "c:3"].map(str::to_owned);
        let mut is_given_up = false;
        for (at_ms, address, (reason, retryable)) in answers {
            assert!(!is_given_up, "before {at_ms} ms");
            let (reason, retryable) = ((*reason).into(), *retryable);
            let failure = Failure { reason, retryable, ..Failure::default() };
            let now = LocalTime(Duration::from_millis(*at_ms));
            is_given_up = denials.note(now, address, &failure, &known);
        }
        is_given_up
    }

    #[test]
    fn denials_have_to_go_on_for_a_third_of_the_ttl_or_five_seconds() {
        for (ttl_ms, patience_ms) in [(3_000, 1_000), (15_000, 5_000), (300_000, 5_000)] {
            let answers =
                |end_ms| [(0, "a:1", FINAL), (end_ms / 2, "b:2", FINAL), (end_ms, "a:1", FINAL)];
            assert!(!is_given_up_after(ttl_ms, &answers(patience_ms - 1)));
            assert!(is_given_up_after(ttl_ms, &answers(patience_ms)));
        }
    }

    #[test]
    fn the_patience_begins_anew_when_all_denials_are_too_old() {
        let began = [(0, "a:1", FINAL), (4_000, "b:2", FINAL), (9_001, "a:1", FINAL)];
        assert!(!is_given_up_after(30_000, &began));
        let again = [began.as_slice(), &[(14_000, "b:2", FINAL), (14_001, "a:1", FINAL)]].concat();
        assert!(is_given_up_after(30_000, &again));
    }

    #[test]
    fn an_old_final_denial_does_not_make_newer_ones_final() {
        let old = [(0, "a:1", FINAL), (4_000, "b:2", RETRYABLE), (5_001, "b:2", RETRYABLE)];
        assert!(!is_given_up_after(30_000, &old));
        let new = [(0, "a:1", RETRYABLE), (4_000, "b:2", FINAL), (5_001, "a:1", RETRYABLE)];
        assert!(is_given_up_after(30_000, &new));
    }

    #[test]
    fn a_node_that_says_something_else_keeps_the_session_for_the_patience() {
        let other = [(0, "a:1", FINAL), (1, "b:2", NO_QUORUM), (4_000, "a:1", FINAL)];
        assert!(!is_given_up_after(30_000, &[&other[..], &[(5_001, "a:1", FINAL)]].concat()));
        assert!(is_given_up_after(30_000, &[&other[..], &[(5_002, "a:1", FINAL)]].concat()));
    }

    #[test]
    fn a_node_that_denies_no_longer_ends_its_own_denials() {
        let answers = [(0, "a:1", FINAL), (100, "a:1", NO_QUORUM), (200, "a:1", FINAL)];
        assert!(!is_given_up_after(30_000, &[&answers[..], &[(5_100, "a:1", FINAL)]].concat()));
        assert!(is_given_up_after(30_000, &[&answers[..], &[(5_200, "a:1", FINAL)]].concat()));
    }

    #[test]
    fn nodes_that_are_silent_neither_deny_nor_keep_the_session() {
        let answers = [(0, "a:1", FINAL), (1, "b:2", SILENCE), (4_000, "a:1", FINAL)];
        assert!(!is_given_up_after(30_000, &[&answers[..], &[(5_000, "b:2", SILENCE)]].concat()));
        assert!(is_given_up_after(30_000, &[&answers[..], &[(5_000, "a:1", FINAL)]].concat()));
    }

    #[test]
    fn only_known_nodes_are_counted_and_kept() {
        let answers = [(0, "x:9", FINAL), (4_000, "y:9", FINAL), (6_000, "a:1", FINAL)];
        assert!(!is_given_up_after(30_000, &answers));
        let mut denials = Denials::new(Duration::from_secs(30));
        let failure = Failure { reason: Reason::Unauthenticated.into(), ..Failure::default() };
        for number in 0..100 {
            let address = format!("x:{number}");
            denials.note(LocalTime(Duration::ZERO), &address, &failure, &["a:1".to_owned()]);
        }
        assert!(denials.answers.is_empty(), "{denials:?}");
    }
}
