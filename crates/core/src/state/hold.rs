//! A hold: one grant that has not ended. It is kept small, because there are many: what few holds have
//! (a TTL of their own, metadata, re-entries) is boxed.

use alloc::boxed::Box;

use crate::model::command::{Mode, Terms};
use crate::model::id::{ActorId, FenceToken, RequestId, SessionId};
use crate::model::time::{LogicalTime, Span};

#[derive(Clone, Debug)]
pub(crate) struct Hold {
    pub(crate) session: SessionId,
    /// The acquire that it answers.
    pub(crate) request: RequestId,
    pub(crate) actor: ActorId,
    pub(crate) token: FenceToken,
    pub(crate) granted_at: LogicalTime,
    extras: Option<Box<Extras>>,
    pub(crate) mode: Mode,
}

/// Which hold of a lock. A request has at most one hold of a lock.
pub(crate) type HoldKey = (SessionId, RequestId);

/// Who holds or waits, in the graph of waits.
pub(crate) type Actor = (SessionId, ActorId);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extras {
    pub(crate) bounds: Bounds,
    pub(crate) lock_delay: Option<Span>,
    /// When the actor first asked, if it said so.
    pub(crate) since: Option<LogicalTime>,
    pub(crate) preemptible: bool,
    /// How often it was entered again.
    pub(crate) reentries: u32,
    /// The request that last made a writer of its reader: by it the request is known, wherever the mark
    /// stands.
    pub(crate) converted_by: Option<RequestId>,
    pub(crate) metadata: Box<[u8]>,
}

/// What ends a hold on its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) ttl: Option<Span>,
    pub(crate) deadline: Option<LogicalTime>,
    pub(crate) max_hold_end: Option<LogicalTime>,
    /// The deadline was moved by a new leader since the hold was last renewed.
    pub(crate) graced: bool,
}

/// Who a hold belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Holder {
    pub(crate) session: SessionId,
    pub(crate) request: RequestId,
    pub(crate) actor: ActorId,
}

impl Hold {
    pub(crate) fn new(
        holder: Holder,
        mode: Mode,
        token: FenceToken,
        terms: &Terms,
        now: LogicalTime,
    ) -> Hold {
        let max_hold_end = terms.max_hold.map(|max_hold| now.after(max_hold));
        let deadline = earlier(terms.ttl.map(|ttl| now.after(ttl)), max_hold_end);
        let extras = Extras {
            bounds: Bounds { ttl: terms.ttl, deadline, max_hold_end, graced: false },
            lock_delay: terms.lock_delay,
            since: terms.since,
            preemptible: terms.preemptible,
            reentries: 0,
            converted_by: None,
            metadata: terms.metadata.clone(),
        };
        Hold::with_extras(holder, mode, token, now, extras)
    }

    pub(crate) fn with_extras(
        holder: Holder,
        mode: Mode,
        token: FenceToken,
        granted_at: LogicalTime,
        extras: Extras,
    ) -> Hold {
        let Holder { session, request, actor } = holder;
        let extras = (extras != Extras::default()).then(|| Box::new(extras));
        Hold { session, request, actor, token, granted_at, extras, mode }
    }

    /// Counts the TTL from now: a new one, or the one it had. Returns the new deadline.
    pub(crate) fn renew(&mut self, ttl: Option<Span>, now: LogicalTime) -> Option<LogicalTime> {
        let Some(ttl) = ttl.or(self.bounds().ttl) else { return self.deadline() };
        let bounds = &mut self.extras_mut().bounds;
        bounds.ttl = Some(ttl);
        bounds.deadline = earlier(Some(now.after(ttl)), bounds.max_hold_end);
        #[cfg(feature = "planted")]
        if crate::planted::Bug::RenewPastMaxHold.is_active() {
            bounds.deadline = Some(now.after(ttl));
        }
        bounds.graced = false;
        bounds.deadline
    }

    /// Moves the deadline to `until`, once since the last renewal and never past max-hold. Returns
    /// the new deadline if it moved.
    pub(crate) fn grace(&mut self, until: LogicalTime) -> Option<LogicalTime> {
        let bounds = &mut self.extras.as_mut()?.bounds;
        let graced = earlier(Some(until), bounds.max_hold_end);
        if bounds.graced || bounds.deadline.is_none() || graced <= bounds.deadline {
            return None;
        }
        bounds.deadline = graced;
        bounds.graced = true;
        graced
    }

    /// The TTL did not run for so long. It is still counted from now at the latest.
    pub(crate) fn stand_still(&mut self, span: Span, now: LogicalTime) {
        let Some(extras) = &mut self.extras else { return };
        let bounds = &mut extras.bounds;
        if let (Some(ttl), Some(deadline)) = (bounds.ttl, bounds.deadline) {
            let later = deadline.after(span).min(now.after(ttl)).max(deadline);
            bounds.deadline = earlier(Some(later), bounds.max_hold_end);
        }
    }

    /// Counts its times from another moment.
    pub(crate) fn shift_times(&mut self, shift: impl Fn(LogicalTime) -> LogicalTime) {
        self.granted_at = shift(self.granted_at);
        if let Some(extras) = &mut self.extras {
            let Bounds { deadline, max_hold_end, .. } = &mut extras.bounds;
            for time in [deadline, max_hold_end, &mut extras.since] {
                *time = time.map(&shift);
            }
        }
    }

    /// Enters it once more. Returns how often it has been entered again.
    pub(crate) fn reenter(&mut self) -> u32 {
        let extras = self.extras_mut();
        extras.reentries = extras.reentries.saturating_add(1);
        extras.reentries
    }

    /// Leaves it once, if it was entered again. Returns how often it must still be left.
    pub(crate) fn leave(&mut self) -> Option<u32> {
        let reentries = self.reentries();
        if reentries == 0 {
            return None;
        }
        let extras = self.extras_mut();
        extras.reentries = reentries - 1;
        self.forget_empty_extras();
        Some(reentries)
    }

    /// Returns the request that it was converted by before.
    pub(crate) fn note_conversion(&mut self, convert: RequestId) -> Option<RequestId> {
        self.extras_mut().converted_by.replace(convert)
    }

    pub(crate) fn proclaim(&mut self, metadata: Box<[u8]>) {
        self.extras_mut().metadata = metadata;
        self.forget_empty_extras();
    }

    fn extras_mut(&mut self) -> &mut Extras {
        self.extras.get_or_insert_default()
    }

    /// Equal holds look alike in memory too: nothing depends on what they once had.
    fn forget_empty_extras(&mut self) {
        if self.extras.as_deref().is_some_and(|extras| *extras == Extras::default()) {
            self.extras = None;
        }
    }

    pub(crate) fn key(&self) -> HoldKey {
        (self.session, self.request)
    }

    pub(crate) fn actor(&self) -> Actor {
        (self.session, self.actor)
    }

    /// When it ends on its own.
    pub(crate) fn deadline(&self) -> Option<LogicalTime> {
        self.bounds().deadline
    }

    /// Its deadline is one that no renewal can move.
    pub(crate) fn ends_by_max_hold(&self) -> bool {
        let bounds = self.bounds();
        bounds.max_hold_end.is_some() && bounds.deadline == bounds.max_hold_end
    }

    pub(crate) fn metadata(&self) -> &[u8] {
        self.extras.as_ref().map_or(&[], |extras| &extras.metadata)
    }

    pub(crate) fn bounds(&self) -> Bounds {
        self.extras.as_ref().map_or(Bounds::default(), |extras| extras.bounds)
    }

    pub(crate) fn lock_delay(&self) -> Option<Span> {
        self.extras.as_ref()?.lock_delay
    }

    pub(crate) fn since(&self) -> Option<LogicalTime> {
        self.extras.as_ref()?.since
    }

    pub(crate) fn is_preemptible(&self) -> bool {
        self.extras.as_ref().is_some_and(|extras| extras.preemptible)
    }

    pub(crate) fn converted_by(&self) -> Option<RequestId> {
        self.extras.as_ref()?.converted_by
    }

    pub(crate) fn reentries(&self) -> u32 {
        self.extras.as_ref().map_or(0, |extras| extras.reentries)
    }
}

fn earlier(a: Option<LogicalTime>, b: Option<LogicalTime>) -> Option<LogicalTime> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hold_is_small() {
        assert!(size_of::<Hold>() <= 64, "{}", size_of::<Hold>());
    }
}
