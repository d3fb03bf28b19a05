//! One session of a client: what it holds, what it asked and has no answer to, and how long it may
//! trust its locks.

use std::collections::BTreeMap;
use std::time::Duration;

use holdfast_client_core::lease::{HoldId, Leases, LocalTime, RenewalId};
use holdfast_core::command::Mode;
use holdfast_core::{
    ActorId, FenceToken, Grant, LockName, LogicalTime, PublicSessionId, RequestId, SessionId, Span,
    StreamId,
};

use super::ask::{Ask, Meant};
use crate::history::RealTime;

/// So short before the end of a lease that it makes no difference.
const MOMENT: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(super) struct Session {
    pub(super) id: SessionId,
    pub(super) public: PublicSessionId,
    pub(super) ttl: Span,
    pub(super) linger: Span,
    pub(super) stream: StreamId,
    /// The node at the other end of the stream.
    pub(super) stream_node: usize,
    /// It has no stream: each request is a call of its own, and nothing else is told.
    pub(super) is_unary: bool,
    /// The servers see the end of it, or will. The client does not know.
    pub(super) is_stream_broken: bool,
    /// None until the session is open.
    pub(super) leases: Option<Leases>,
    pub(super) holds: BTreeMap<HoldKey, Held>,
    pub(super) pending: BTreeMap<RequestId, Pending>,
    pub(super) last_request: RequestId,
    /// It has asked to be closed, and believes in nothing any more.
    pub(super) closing: bool,
    /// Something that it held once: to give back again, too late.
    pub(super) given_back: Option<(HoldKey, Held)>,
    /// The client's clock did, at some time of this session.
    pub(super) clock_stood_still: bool,
    /// It had to give way to an older one, and says from now on how long it has been asking.
    pub(super) since: Option<LogicalTime>,
}

/// The acquire by which something is held, and its place among the names of that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct HoldKey(pub(super) RequestId, pub(super) u8);

#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) name: LockName,
    pub(super) token: FenceToken,
    pub(super) mode: Mode,
    pub(super) actor: ActorId,
    /// Which acquire holds it; zero if that may have been an earlier one that was entered again.
    pub(super) acquire: RequestId,
    /// How often it must be left.
    pub(super) entries: u32,
    /// It is being handed to somebody else, so the client does not believe in it.
    pub(super) leaving: bool,
}

impl HoldKey {
    /// Acquire-alls have few names here.
    pub(super) fn id(self) -> HoldId {
        HoldId(self.0.0 << 3 | u64::from(self.1))
    }
}

impl Held {
    pub(super) fn meant(&self, key: HoldKey) -> Meant {
        // Readers of one run have one token.
        let acquire = if self.mode == Mode::Shared { self.acquire } else { RequestId(0) };
        Meant { key, name: self.name.clone(), token: self.token, acquire }
    }
}

/// A request without an answer.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) ask: Ask,
    /// Its number in the history.
    pub(super) operation: usize,
    /// The first sending: a retry may get the answer that was made for it.
    pub(super) first_sent: LocalTime,
    pub(super) last_sent: RealTime,
    pub(super) attempt: u32,
}

impl Pending {
    /// It is taken for sent at another time than it was.
    #[cfg(feature = "planted")]
    pub(super) fn counted_wrongly(
        self,
        received: RealTime,
        local: impl Fn(RealTime) -> LocalTime,
    ) -> Pending {
        let first_sent = match self.first_sent {
            _ if crate::planted::Bug::LeaseFromReceipt.is_active() => local(received),
            _ if crate::planted::Bug::LeaseFromLastSending.is_active() => local(self.last_sent),
            first_sent => first_sent,
        };
        Pending { first_sent, ..self }
    }
}

impl Session {
    pub(super) fn next_request(&mut self) -> RequestId {
        self.last_request.0 += 1;
        self.last_request
    }

    /// The servers may forget the answers up to here.
    pub(super) fn acked_through(&self) -> RequestId {
        let oldest = self.pending.first_key_value();
        oldest.map_or(self.last_request, |(oldest, _)| RequestId(oldest.0 - 1))
    }

    pub(super) fn is_valid(&self, hold: HoldKey, now: LocalTime) -> bool {
        let valid_until = self.leases.as_ref().and_then(|leases| leases.valid_until(hold.id()));
        valid_until.is_some_and(|until| now < until)
    }

    /// How long until the last moment at which it may believe in one of its locks.
    pub(super) fn last_moment(&self, now: LocalTime) -> Option<Duration> {
        let leases = self.leases.as_ref()?;
        let ends = self.holds.keys().filter_map(|hold| leases.valid_until(hold.id()));
        let left = ends.map(|end| end.saturating_since(now).saturating_sub(MOMENT));
        left.filter(|left| *left > MOMENT).min()
    }

    pub(super) fn heartbeat_due(&self, now: LocalTime) -> bool {
        let due = self.leases.as_ref().is_some_and(|leases| leases.heartbeat_due() <= now);
        due && !self.pending.values().any(|pending| matches!(pending.ask, Ask::Touch))
    }

    /// It was granted this: a new hold, or one that it has entered once more.
    pub(super) fn take_hold(
        &mut self,
        key: HoldKey,
        grant: Grant,
        actor: ActorId,
        reentrant: bool,
    ) {
        let Grant { name, token, mode, deadline, .. } = grant;
        let known = self.holds.values_mut().find(|held| held.name == name && held.token == token);
        if let Some(held) = known.filter(|_| reentrant) {
            held.entries += 1;
            return;
        }
        if let Some(leases) = &mut self.leases {
            let deadline = deadline.map(|at| holdfast_client_core::lease::LogicalTime(at.as_ms()));
            leases.granted(key.id(), deadline);
        }
        let acquire = if reentrant { RequestId(0) } else { key.0 };
        let held = Held { name, token, mode, actor, acquire, entries: 1, leaving: false };
        self.holds.insert(key, held);
    }

    pub(super) fn end_hold(&mut self, hold: HoldKey) {
        self.holds.remove(&hold);
        if let Some(leases) = &mut self.leases {
            leases.ended(hold.id());
        }
    }

    /// A hold of it has ended, as the leader tells.
    pub(super) fn lose(&mut self, name: &LockName, acquire: RequestId) {
        let by_it = |(key, held): &(&HoldKey, &Held)| key.0 == acquire && held.name == *name;
        if let Some(key) = self.holds.iter().find(by_it).map(|(key, _)| *key) {
            self.end_hold(key);
        }
    }

    /// What it held under these tokens is lost, as the leader tells when the session is resumed.
    pub(super) fn lose_all(&mut self, losses: &[(FenceToken, Option<RequestId>)]) {
        let is_lost = |(key, held): &(&HoldKey, &Held)| {
            let meant = |(token, acquire): &(FenceToken, Option<RequestId>)| {
                *token == held.token && acquire.is_none_or(|acquire| acquire == key.0)
            };
            losses.iter().any(meant)
        };
        let lost: Vec<HoldKey> = self.holds.iter().filter(is_lost).map(|(key, _)| *key).collect();
        lost.into_iter().for_each(|key| self.end_hold(key));
    }

    /// Each with the acquire by which it is held.
    pub(super) fn believed_holds(&self) -> Vec<(RequestId, FenceToken)> {
        self.holds.iter().map(|(key, held)| (key.0, held.token)).collect()
    }

    /// From the moment that it gives a lock back, the client does not believe in it.
    pub(super) fn no_longer_believes(&mut self, ask: &Ask) {
        match ask {
            Ask::Close => self.closing = true,
            Ask::Release(meant) => match self.holds.get_mut(&meant.key) {
                Some(held) if held.token == meant.token && held.entries > 1 => held.entries -= 1,
                Some(held) if held.token == meant.token => {
                    self.given_back = Some((meant.key, held.clone()));
                    self.end_hold(meant.key);
                }
                _ => {}
            },
            Ask::Transfer { hold, .. } => {
                if let Some(held) = self.holds.get_mut(&hold.key) {
                    held.leaving = true;
                }
            }
            _ => {}
        }
    }

    /// The requests that wait, or may.
    pub(super) fn waits(&self) -> Vec<RequestId> {
        let waits = self.pending.iter();
        waits
            .filter(|(_, pending)| matches!(pending.ask, Ask::Take(_) | Ask::Convert { .. }))
            .map(|(request, _)| *request)
            .collect()
    }

    /// A renewal may shorten the hold as soon as it is out.
    pub(super) fn renewal_goes_out(&mut self, request: RequestId, pending: &Pending) {
        if let (Some(leases), Ask::Renew { hold, ttl: Some(ttl) }) =
            (&mut self.leases, &pending.ask)
        {
            let ttl = Duration::from_millis(ttl.as_ms());
            leases.renewal_sent(hold.key.id(), RenewalId(request.0), pending.first_sent, ttl);
        }
    }

    /// It has asked something about this hold, and does not know what came of it.
    pub(super) fn is_busy(&self, hold: HoldKey) -> bool {
        self.pending.values().any(|pending| pending.ask.hold() == Some(hold))
    }

    /// It holds the name, or may do so without knowing it.
    pub(super) fn uses(&self, name: &LockName) -> bool {
        self.holds.values().any(|held| held.name == *name) || self.asks_about(name)
    }

    pub(super) fn asks_about(&self, name: &LockName) -> bool {
        self.pending.values().any(|pending| pending.ask.is_about(name))
    }
}
