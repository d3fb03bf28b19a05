//! A plain lock, and what can be done to it.
//!
//! A grant whose token no client was told holds under an *unknown* token until a client sees it. It is above all
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
    together: Together,
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

/// So many hold it together at most; with more, no order is found.
const TOGETHER_MAX: usize = 24;

/// Those who hold it together, in order. It has no allocation, since locks are copied all the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Together {
    by: By,
    count: usize,
    who: [u64; TOGETHER_MAX],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum By {
    /// All under one token.
    Reading(FenceToken),
    /// Each under a number of its own.
    Permits,
}

impl Together {
    const NONE: Together = Together { by: By::Permits, count: 0, who: [0; TOGETHER_MAX] };

    /// Enough of an id to know it by.
    fn short(session: SessionId) -> u64 {
        (session.0 >> 64) as u64 ^ session.0 as u64
    }

    /// What this hold is known by, if there is one of its kind.
    fn key(&self, session: SessionId, token: FenceToken) -> Option<u64> {
        match self.by {
            By::Reading(own) => (own == token).then(|| Together::short(session)),
            By::Permits => Some(Together::half(session) << 32 | token.0 & u64::from(u32::MAX)),
        }
    }

    /// In the upper half of what permits are known by.
    fn half(session: SessionId) -> u64 {
        let short = Together::short(session);
        (short >> 32 ^ short) & u64::from(u32::MAX)
    }

    /// Without all holds of this session.
    fn closed_by(mut self, session: SessionId) -> Together {
        match self.by {
            By::Reading(_) => self.retain(|key| key != Together::short(session)),
            By::Permits => self.retain(|key| key >> 32 != Together::half(session)),
        }
        self
    }

    fn retain(&mut self, stays: impl Fn(u64) -> bool) {
        while let Some(key) = self.who[..self.count].iter().copied().find(|key| !stays(*key)) {
            *self = self.without(key);
        }
    }

    fn place(&self, key: u64) -> Result<usize, usize> {
        self.who[..self.count].binary_search(&key)
    }

    fn has(&self, session: SessionId, token: FenceToken) -> bool {
        self.key(session, token).is_some_and(|key| self.place(key).is_ok())
    }

    fn reads(&self, session: SessionId) -> bool {
        matches!(self.by, By::Reading(_)) && self.place(Together::short(session)).is_ok()
    }

    /// A session may read twice.
    fn with(mut self, session: SessionId, token: FenceToken) -> Option<Together> {
        let key = self.key(session, token)?;
        let (Ok(place) | Err(place)) = self.place(key);
        if self.count == TOGETHER_MAX {
            return None;
        }
        self.who.copy_within(place..self.count, place + 1);
        self.who[place] = key;
        self.count += 1;
        Some(self)
    }

    fn without(mut self, key: u64) -> Together {
        let Ok(place) = self.place(key) else { return self };
        self.who.copy_within(place + 1..self.count, place);
        self.count -= 1;
        self.who[self.count] = 0;
        if self.count == 0 { Together::NONE } else { self }
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
    /// One more permit is out.
    Permit {
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
    pub(super) const FREE: Lock =
        Lock { hold: None, together: Together::NONE, last: FenceToken(0) };

    /// The writer is gone.
    pub(super) fn freed(self) -> Lock {
        Lock { hold: None, ..self }
    }

    fn is_free(&self) -> bool {
        self.hold.is_none() && self.together.count == 0
    }

    fn closed_by(self, session: SessionId) -> Lock {
        match self.hold {
            Some(hold) if hold.session == session => self.freed(),
            Some(_) => self,
            None => Lock { together: self.together.closed_by(session), ..self },
        }
    }

    /// Without this hold, which there is.
    fn left_by(self, session: SessionId, token: FenceToken) -> Lock {
        match (self.hold, self.together.key(session, token)) {
            (Some(_), _) => self.freed(),
            (None, Some(key)) => Lock { together: self.together.without(key), ..self },
            (None, None) => self,
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
                let (by, fits) = (By::Reading(*token), *token > self.last);
                let together = match self.together.count {
                    0 if fits => Together { by, ..Together::NONE },
                    0 => return None,
                    _ => self.together,
                };
                self.joined(together, *session, *token)
            }
            Action::Permit { session, token } => {
                let of_its_kind = self.together.by == By::Permits && *token > self.last;
                if !of_its_kind {
                    return None;
                }
                self.joined(self.together, *session, *token)
            }
            Action::Convert { session, to: Mode::Exclusive, token } => {
                let alone = self.together.count == 1 && self.together.reads(*session);
                let hold = Hold { session: *session, token: Some(*token), begun_by: number };
                (alone && *token > self.last).then_some(Lock {
                    hold: Some(hold),
                    together: Together::NONE,
                    last: *token,
                })
            }
            Action::Convert { session, token, .. } => {
                let lock = self.seen(*session, *token, known).filter(|lock| lock.hold.is_some())?;
                let none = Together { by: By::Reading(*token), ..Together::NONE };
                let together = none.with(*session, *token)?;
                Some(Lock { hold: None, together, ..lock })
            }
            Action::Release { session, token } | Action::End { session, token } => {
                self.seen(*session, *token, known).map(|lock| lock.left_by(*session, *token))
            }
            Action::Close { session } => Some(self.closed_by(*session)),
            Action::SawHeld => (!self.is_free()).then_some(self),
            Action::SawHolder(None) => self.is_free().then_some(self),
            Action::SawHolder(Some((session, token))) | Action::Holds { session, token } => {
                self.seen(*session, *token, known)
            }
            Action::HoldsNot { session, token } => {
                let holds = self
                    .hold
                    .is_some_and(|hold| hold.session == *session && hold.token == Some(*token));
                let shares = self.together.has(*session, *token);
                (!holds && !shares).then_some(self)
            }
        }
    }

    fn joined(self, others: Together, session: SessionId, token: FenceToken) -> Option<Lock> {
        if self.hold.is_some() {
            return None;
        }
        let together = others.with(session, token)?;
        Some(Lock { together, last: self.last.max(token), ..self })
    }

    /// The session is seen to hold under the token: so it does, or it may do so from what is known.
    fn seen(
        self,
        session: SessionId,
        token: FenceToken,
        known: &BTreeSet<FenceToken>,
    ) -> Option<Lock> {
        if self.together.has(session, token) {
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
