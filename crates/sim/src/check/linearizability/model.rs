//! A plain lock, and what can be done to it.
//!
//! A grant whose token nobody was told holds under an *unknown* token until somebody sees it. It is above all
//! tokens before it, and it is none that is known to be another request's.

use std::collections::BTreeSet;

use holdfast_core::{FenceToken, SessionId};

/// A lock at one point of the order that is being tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Lock {
    pub(super) hold: Option<Hold>,
    /// The highest token that is known to have been granted.
    pub(super) last: FenceToken,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Hold {
    pub(super) session: SessionId,
    /// None: not known.
    pub(super) token: Option<FenceToken>,
    /// The number of the step that began it.
    pub(super) begun_by: usize,
}

/// What an operation does to the lock, or says about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Grant {
        session: SessionId,
        token: Option<FenceToken>,
    },
    Release {
        session: SessionId,
        token: FenceToken,
    },
    /// The hold is known to have ended on its own.
    End {
        session: SessionId,
        token: FenceToken,
    },
    /// Frees whatever the session holds.
    Close {
        session: SessionId,
    },
    SawHeld,
    SawHolder(Option<(SessionId, FenceToken)>),
    Holds {
        session: SessionId,
        token: FenceToken,
    },
    HoldsNot {
        session: SessionId,
        token: FenceToken,
    },
}

impl Lock {
    pub(super) const FREE: Lock = Lock { hold: None, last: FenceToken(0) };

    pub(super) fn freed(self) -> Lock {
        Lock { hold: None, ..self }
    }

    /// The lock after step `number`, if that can be taken here. `known` are the tokens of grants whose
    /// receivers were told.
    pub(super) fn after(
        self,
        number: usize,
        action: &Action,
        known: &BTreeSet<FenceToken>,
    ) -> Option<Lock> {
        match action {
            Action::Grant { session, token } => {
                let is_new = token.is_none_or(|token| token > self.last);
                let hold = Hold { session: *session, token: *token, begun_by: number };
                let last = token.unwrap_or(self.last);
                (self.hold.is_none() && is_new).then_some(Lock { hold: Some(hold), last })
            }
            Action::Release { session, token } | Action::End { session, token } => {
                self.seen(*session, *token, known).map(Lock::freed)
            }
            Action::Close { session } => Some(match self.hold {
                Some(hold) if hold.session == *session => self.freed(),
                _ => self,
            }),
            Action::SawHeld => self.hold.is_some().then_some(self),
            Action::SawHolder(None) => self.hold.is_none().then_some(self),
            Action::SawHolder(Some((session, token))) | Action::Holds { session, token } => {
                self.seen(*session, *token, known)
            }
            Action::HoldsNot { session, token } => {
                let holds = self
                    .hold
                    .is_some_and(|hold| hold.session == *session && hold.token == Some(*token));
                (!holds).then_some(self)
            }
        }
    }

    /// The session is seen to hold under the token: so it does, or it may do so from what is known.
    fn seen(
        self,
        session: SessionId,
        token: FenceToken,
        known: &BTreeSet<FenceToken>,
    ) -> Option<Lock> {
        let hold = self.hold.filter(|hold| hold.session == session)?;
        match hold.token {
            Some(own) => (own == token).then_some(self),
            None if token > self.last && !known.contains(&token) => {
                Some(Lock { hold: Some(Hold { token: Some(token), ..hold }), last: token })
            }
            None => None,
        }
    }
}
