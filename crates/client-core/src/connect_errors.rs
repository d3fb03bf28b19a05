//! Which nodes were tried in vain, and what each of them said: the words of a call that no node
//! answered.

use std::time::Duration;

use holdfast_proto::v1::{Failure, Reason};

use crate::error::{Unavailable, UnavailableCause};

/// A cluster all of whose nodes refuse the connection is not there, and will hardly come.
pub const REFUSED_PATIENCE: Duration = Duration::from_secs(1);

/// How far a try got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contact {
    /// Nothing listens there, or the name has no address.
    Refused,
    /// One side does not accept what the other shows to prove who it is.
    Denied,
    /// There was no connection for another reason.
    NotMade,
    Made,
}

/// The last error with each node.
#[derive(Debug, Clone, Default)]
pub struct ConnectErrors {
    nodes: Vec<NodeError>,
}

#[derive(Debug, Clone)]
struct NodeError {
    address: String,
    contact: Contact,
    reason: Reason,
    words: String,
}

impl ConnectErrors {
    pub fn note(&mut self, address: &str, contact: Contact, failure: &Failure) {
        let known = self.nodes.iter().position(|error| error.address == address);
        let is_silence = contact == Contact::Made && failure.reason() == Reason::Unspecified;
        if is_silence && known.is_some_and(|at| self.nodes[at].is_answered_by_node()) {
            // What a node said tells more than that it then said nothing.
            return;
        }
        let prefix = format!("{address}: ");
        let words = failure.message.strip_prefix(&prefix).unwrap_or(&failure.message).to_owned();
        let address = address.to_owned();
        let error = NodeError { address, contact, reason: failure.reason(), words };
        match known {
            Some(at) => self.nodes[at] = error,
            None => self.nodes.push(error),
        }
    }

    /// This node talks to us again: all that is still of interest is what it said itself.
    pub fn reached(&mut self, address: &str) {
        self.nodes.retain(|error| error.address == address && error.is_answered_by_node());
    }

    /// How many nodes were tried.
    pub fn count(&self) -> usize {
        self.nodes.len()
    }

    pub fn to_unavailable(&self, may_have_happened: bool) -> Unavailable {
        Unavailable { message: self.words(), cause: self.cause(), may_have_happened }
    }

    fn cause(&self) -> UnavailableCause {
        if self.nodes.iter().any(|error| error.reason == Reason::NoQuorum) {
            UnavailableCause::NoLeader
        } else if !self.nodes.is_empty() && self.nodes.iter().all(|node| !node.was_reached()) {
            UnavailableCause::NotReached
        } else {
            UnavailableCause::Other
        }
    }

    /// The nodes that said something come first: the others may be down without any harm.
    fn words(&self) -> String {
        if self.nodes.is_empty() {
            return "the request is still on its way".to_owned();
        }
        let (said, silent): (Vec<_>, Vec<_>) =
            self.nodes.iter().partition(|error| error.is_answered_by_node());
        let said = said.iter().map(|node| format!("{} says: {}", node.address, node.words));
        let silent = silent.iter().map(|node| format!("{}: {}", node.address, node.words));
        said.chain(silent).collect::<Vec<_>>().join("; ")
    }
}

impl NodeError {
    fn was_reached(&self) -> bool {
        self.contact == Contact::Made
    }

    fn is_answered_by_node(&self) -> bool {
        self.was_reached() && self.reason != Reason::Unspecified
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(reason: Reason, message: &str) -> Failure {
        Failure { reason: reason.into(), message: message.to_owned(), ..Default::default() }
    }

    fn refused(address: &str) -> Failure {
        failure(Reason::Unspecified, &format!("{address}: refused"))
    }

    #[test]
    fn errors_answered_by_a_node_come_before_timeouts() {
        let mut errors = ConnectErrors::default();
        errors.note("a:1", Contact::Refused, &refused("a:1"));
        errors.note("b:2", Contact::Made, &failure(Reason::NoQuorum, "no leader"));
        errors.note("b:2", Contact::Made, &failure(Reason::Unspecified, "b:2: silent"));
        errors.note("a:1", Contact::Refused, &refused("a:1"));
        let reported = errors.to_unavailable(false);
        assert_eq!(reported.message, "b:2 says: no leader; a:1: refused");
        assert_eq!(reported.cause, UnavailableCause::NoLeader);
    }

    #[test]
    fn no_node_was_reached_if_there_was_no_connection_at_all() {
        let mut errors = ConnectErrors::default();
        assert_eq!(errors.to_unavailable(true).cause, UnavailableCause::Other);
        errors.note("a:1", Contact::Refused, &refused("a:1"));
        errors.note("b:2", Contact::NotMade, &failure(Reason::Unspecified, "timeout"));
        assert_eq!(errors.to_unavailable(true).cause, UnavailableCause::NotReached);
        errors.reached("b:2");
        assert_eq!(errors.count(), 0);
    }
}
