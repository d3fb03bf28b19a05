//! One session of a client: what it holds, what it asked and has no answer to, and how long it may
//! trust its locks.

use std::collections::BTreeMap;
use std::time::Duration;

use holdfast_client::lease::{HoldId, Leases, LocalTime, RenewalId};
use holdfast_core::{FenceToken, LockName, PublicSessionId, RequestId, SessionId, Span, StreamId};

use super::ask::Ask;
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
    /// None until the session is open.
    pub(super) leases: Option<Leases>,
    pub(super) holds: BTreeMap<RequestId, Held>,
    pub(super) pending: BTreeMap<RequestId, Pending>,
    pub(super) last_request: RequestId,
    /// It has asked to be closed, and believes in nothing any more.
    pub(super) closing: bool,
    /// Something that it held once: to give back again, too late.
    pub(super) given_back: Option<Held>,
    /// The client's clock did, at some time of this session.
    pub(super) clock_stood_still: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) name: LockName,
    pub(super) token: FenceToken,
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

    pub(super) fn is_valid(&self, hold: RequestId, now: LocalTime) -> bool {
        let valid_until =
            self.leases.as_ref().and_then(|leases| leases.valid_until(HoldId(hold.0)));
        valid_until.is_some_and(|until| now < until)
    }

    /// How long until the last moment at which it may believe in one of its locks.
    pub(super) fn last_moment(&self, now: LocalTime) -> Option<Duration> {
        let leases = self.leases.as_ref()?;
        let ends = self.holds.keys().filter_map(|hold| leases.valid_until(HoldId(hold.0)));
        let left = ends.map(|end| end.saturating_since(now).saturating_sub(MOMENT));
        left.filter(|left| *left > MOMENT).min()
    }

    pub(super) fn heartbeat_due(&self, now: LocalTime) -> bool {
        let due = self.leases.as_ref().is_some_and(|leases| leases.heartbeat_due() <= now);
        due && !self.pending.values().any(|pending| matches!(pending.ask, Ask::Touch))
    }

    pub(super) fn end_hold(&mut self, hold: RequestId) {
        self.holds.remove(&hold);
        if let Some(leases) = &mut self.leases {
            leases.ended(HoldId(hold.0));
        }
    }

    /// From the moment that it gives a lock back, the client does not believe in it.
    pub(super) fn no_longer_believes(&mut self, ask: &Ask) {
        match ask {
            Ask::Close => self.closing = true,
            Ask::Release { token, .. } => {
                let held = self.holds.iter().find(|(_, held)| held.token == *token);
                if let Some((hold, held)) = held.map(|(hold, held)| (*hold, held.clone())) {
                    self.end_hold(hold);
                    self.given_back = Some(held);
                }
            }
            _ => {}
        }
    }

    /// The acquires that wait, or may.
    pub(super) fn acquires(&self) -> Vec<RequestId> {
        let acquires = self.pending.iter();
        acquires
            .filter(|(_, pending)| matches!(pending.ask, Ask::Acquire { .. }))
            .map(|(request, _)| *request)
            .collect()
    }

    /// A renewal may shorten the hold as soon as it is out.
    pub(super) fn renewal_goes_out(&mut self, request: RequestId, pending: &Pending) {
        if let (Some(leases), Ask::Renew { hold, ttl: Some(ttl), .. }) =
            (&mut self.leases, &pending.ask)
        {
            let ttl = Duration::from_millis(ttl.as_ms());
            let (hold, renewal) = (HoldId(hold.0), RenewalId(request.0));
            leases.renewal_sent(hold, renewal, pending.first_sent, ttl);
        }
    }

    pub(super) fn is_being_renewed(&self, hold: &Held) -> bool {
        let renews = |ask: &Ask| matches!(ask, Ask::Renew { token, .. } if *token == hold.token);
        self.pending.values().any(|pending| renews(&pending.ask))
    }
}
