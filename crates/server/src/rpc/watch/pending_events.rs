//! The events that a watch has yet to tell, and the frames that are made of them.

use std::sync::Arc;

use holdfast_core::Event;
use holdfast_proto::v1::WatchFrame;
use holdfast_service::{Caller, Service};

use super::Scope;
use super::concerns::concerns;
use super::event_encoder::encode_events;
use super::snapshot::SnapshotExtent;
use crate::events::{Compacted, EventRing, EventSlice, Position, Recorded};

const EVENTS_PER_FRAME: usize = 500;
pub(super) const FRAME_BYTES_TARGET: usize = 64 * 1024;

#[derive(Debug)]
pub(super) struct PendingEvents {
    events: Arc<EventRing>,
    names: Scope,
    service: Service,
    caller: Caller,
    extent: SnapshotExtent,
    /// Up to where all is extent.
    position: Position,
    /// There is something to tell.
    has_some: bool,
    /// Nothing was told since the last position.
    is_silent: bool,
}

impl PendingEvents {
    pub(super) fn new(
        events: Arc<EventRing>,
        names: Scope,
        (service, caller): (Service, Caller),
        extent: SnapshotExtent,
        position: Position,
    ) -> PendingEvents {
        PendingEvents {
            events,
            names,
            service,
            caller,
            extent,
            position,
            has_some: false,
            is_silent: true,
        }
    }

    /// Whether there is something to tell. Passes over events that are not of interest.
    pub(super) fn look(&mut self) -> Result<bool, Compacted> {
        if self.has_some {
            return if self.events.keeps(self.position) { Ok(true) } else { Err(Compacted) };
        }
        loop {
            let events = self.events.after(self.position, EVENTS_PER_FRAME)?;
            for recorded in events.iter() {
                if self.is_of_interest(recorded) {
                    self.has_some = true;
                    return Ok(true);
                }
                self.position = recorded.position;
            }
            if events.len() < EVENTS_PER_FRAME {
                return Ok(false);
            }
        }
    }

    pub(super) fn next_frame(&mut self) -> Result<Option<WatchFrame>, Compacted> {
        while self.has_some {
            let events = self.events.after(self.position, EVENTS_PER_FRAME)?;
            let whole = whole_entries(&events);
            let Some(last) = events.iter().take(whole).last() else {
                self.has_some = false;
                break;
            };
            let position = last.position;
            let of_interest = events.iter().take(whole);
            let of_interest = of_interest.filter(|recorded| self.is_of_interest(recorded));
            let events = encode_events(of_interest, &self.service.visible_names(&self.caller));
            self.position = position;
            if !events.is_empty() {
                self.is_silent = false;
                return Ok(Some(WatchFrame { events, ..frame_at(position, &self.extent) }));
            }
        }
        Ok(None)
    }

    /// Some if nothing was told since this was called last.
    pub(super) fn position_after_silence(&mut self) -> Option<WatchFrame> {
        let was_silent = std::mem::replace(&mut self.is_silent, true);
        (was_silent && !self.has_some).then(|| frame_at(self.position, &self.extent))
    }

    fn is_of_interest(&self, recorded: &Recorded) -> bool {
        concerns(&recorded.event, &self.names) && !self.extent.includes(recorded)
    }
}

/// To go on from here, the next watch must need no account of what the pages of this one showed.
pub(super) fn frame_at(position: Position, extent: &SnapshotExtent) -> WatchFrame {
    let position = extent.is_left_behind(position).then(|| position.into());
    WatchFrame { position, ..Default::default() }
}

/// A full list ends with an entry that may have more events: they are left for the next frame, so that what
/// happened at one moment is told in one frame, unless it is very much.
fn whole_entries(events: &EventSlice) -> usize {
    let mut bytes = 0;
    let fitting = events.iter().take_while(|recorded| {
        bytes += approximate_bytes(&recorded.event);
        bytes <= FRAME_BYTES_TARGET
    });
    // A single event may be larger.
    let fitting = fitting.count().max(1).min(events.len());
    let is_cut = fitting < events.len() || events.len() == EVENTS_PER_FRAME;
    let Some(last) = events.iter().take(fitting).last().filter(|_| is_cut) else {
        return fitting;
    };
    let index = last.position.index;
    let is_split = events.iter().nth(fitting).is_none_or(|next| next.position.index == index);
    if !is_split {
        return fitting;
    }
    let whole = events.iter().take_while(|event| event.position.index < index).count();
    if whole == 0 { fitting } else { whole }
}

/// More or less as many as it takes in a frame.
fn approximate_bytes(event: &Event) -> usize {
    const WITHOUT_TEXTS: usize = 128;
    let texts = match event {
        Event::Granted { name, metadata, .. }
        | Event::Converted { name, metadata, .. }
        | Event::Proclaimed { name, metadata, .. } => name.len() + metadata.len(),
        Event::Queued { name, .. }
        | Event::Released { name, .. }
        | Event::HoldEnded { name, .. }
        | Event::Reopened { name } => name.len(),
        Event::Refused { names, .. } | Event::WaitEnded { names, .. } => {
            names.iter().map(|name| name.len()).sum()
        }
        Event::Intervened(_) | Event::AccessChanged { .. } => FRAME_BYTES_TARGET / 64,
        Event::SessionOpened { .. }
        | Event::SessionEnded { .. }
        | Event::SessionEnding { .. }
        | Event::PolicyAdopted { .. }
        | Event::OwnershipChanged { .. }
        | Event::HoldMovedIn { .. }
        | Event::Thawed { .. } => 0,
    };
    WITHOUT_TEXTS + texts
}
