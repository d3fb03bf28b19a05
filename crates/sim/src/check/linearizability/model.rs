//! A plain lock, and what can be done to it.
//!
//! A grant whose token nobody was told holds under an *unknown* token until somebody sees it. It is above all
//! tokens before it, and it is none that is known to be another request's.

use std::collections::BTreeSet;

use holdfast_core::command::Mode;
use holdfast_core::{FenceToken, SessionId};

/// A lock at one point of the order that is being tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Lock {
    /// The writer.
    pub(super) hold: Option<Hold>,
    /// If there is no writer.
    readers: Readers,
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

/// So many read at once at most; with more, no order is found.
const READERS_MAX: usize = 24;

/// Those who read, in order, under one token. It has no allocation, since locks are copied all the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Readers {
    token: FenceToken,
    count: usize,
    who: [u64; READERS_MAX],
}

impl Readers {
    const NONE: Readers = Readers { token: FenceToken(0), count: 0, who: [0; READERS_MAX] };

    /// Enough of an id to know it by.
    fn short(session: SessionId) -> u64 {
        (session.0 >> 64) as u64 ^ session.0 as u64
    }

    fn place(&self, session: SessionId) -> Result<usize, usize> {
        self.who[..self.count].binary_search(&Readers::short(session))
    }

    fn has(&self, session: SessionId, token: FenceToken) -> bool {
        self.count > 0 && self.token == token && self.place(session).is_ok()
    }

    fn with(mut self, session: SessionId, token: FenceToken) -> Option<Readers> {
        let place = self.place(session).err()?;
        if self.count == READERS_MAX {
            return None;
        }
        self.who.copy_within(place..self.count, place + 1);
        self.who[place] = Readers::short(session);
        self.count += 1;
        self.token = token;
        Some(self)
    }

    fn without(mut self, session: SessionId) -> Readers {
        let Ok(place) = self.place(session) else { return self };
        self.who.copy_within(place + 1..self.count, place);
        self.count -= 1;
        self.who[self.count] = 0;
        if self.count == 0 { Readers::NONE } else { self }
    }
}

/// What an operation does to the lock, or says about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Grant {
        session: SessionId,
        token: Option<FenceToken>,
    },
    /// One more reader.
    Join {
        session: SessionId,
        token: FenceToken,
    },
    /// The log says that a hold has this mode and token from here on.
    Convert {
        session: SessionId,
        to: Mode,
        token: FenceToken,
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
    pub(super) const FREE: Lock = Lock { hold: None, readers: Readers::NONE, last: FenceToken(0) };

    /// The writer is gone.
    pub(super) fn freed(self) -> Lock {
        Lock { hold: None, ..self }
    }

    fn is_free(&self) -> bool {
        self.hold.is_none() && self.readers.count == 0
    }

    fn left_by(self, session: SessionId) -> Lock {
        match self.hold {
            Some(hold) if hold.session == session => self.freed(),
            Some(_) => self,
            None => Lock { readers: self.readers.without(session), ..self },
        }
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
                (self.is_free() && is_new).then_some(Lock { hold: Some(hold), last, ..self })
            }
            Action::Join { session, token } => {
                let fits = match self.readers.count {
                    0 => *token > self.last,
                    _ => *token == self.readers.token,
                };
                if self.hold.is_some() || !fits {
                    return None;
                }
                let readers = self.readers.with(*session, *token)?;
                Some(Lock { readers, last: self.last.max(*token), ..self })
            }
            Action::Convert { session, to: Mode::Exclusive, token } => {
                let alone = self.readers.count == 1 && self.readers.place(*session).is_ok();
                let hold = Hold { session: *session, token: Some(*token), begun_by: number };
                (alone && *token > self.last).then_some(Lock {
                    hold: Some(hold),
                    readers: Readers::NONE,
                    last: *token,
                })
            }
            Action::Convert { session, token, .. } => {
                let lock = self.seen(*session, *token, known).filter(|lock| lock.hold.is_some())?;
                let readers = Readers::NONE.with(*session, *token)?;
                Some(Lock { hold: None, readers, ..lock })
            }
            Action::Release { session, token } | Action::End { session, token } => {
                self.seen(*session, *token, known).map(|lock| lock.left_by(*session))
            }
            Action::Close { session } => Some(self.left_by(*session)),
            Action::SawHeld => (!self.is_free()).then_some(self),
            Action::SawHolder(None) => self.is_free().then_some(self),
            Action::SawHolder(Some((session, token))) | Action::Holds { session, token } => {
                self.seen(*session, *token, known)
            }
            Action::HoldsNot { session, token } => {
                let holds = self
                    .hold
                    .is_some_and(|hold| hold.session == *session && hold.token == Some(*token));
                let reads = self.readers.has(*session, *token);
                (!holds && !reads).then_some(self)
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
        if self.readers.has(session, token) {
            return Some(self);
        }
        let hold = self.hold.filter(|hold| hold.session == session)?;
        match hold.token {
            Some(own) => (own == token).then_some(self),
            None if token > self.last && !known.contains(&token) => {
                Some(Lock { hold: Some(Hold { token: Some(token), ..hold }), last: token, ..self })
            }
            None => None,
        }
    }
}
