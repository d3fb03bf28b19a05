//! One watch that this node serves: the snapshot, then the events, until something ends it.
//!
//! An event is told at once if there was a silence before it; while much happens there are frames every
//! [`LOOK_EVERY`], with all there is.

use std::sync::Arc;
use std::time::Duration;

use holdfast_core::Event;
use holdfast_proto::encode::read::summary;
use holdfast_proto::failure::refused;
use holdfast_proto::v1::{EventPosition, Failure, Reason, WatchFrame};
use holdfast_replica::{Leadership, NodeId};
use holdfast_service::{Admitted, Permit};
use prost::Message;
use tokio::sync::watch;
use tokio::time::{interval, timeout};

use super::super::Rpc;
use super::super::failure::{stopping, unavailable};
use super::queue::{FrameSender, Frames, NoRoom, queue};
use super::snapshot::{self, Told};
use super::teller::Teller;
use super::{Ask, Start, tell};
use crate::driver::{FIRST_GROUP, Unavailable};
use crate::events::{Pace, Position, Stretch};

const EVENTS_PER_FRAME: usize = 500;
/// So that a reader that does not read holds little memory.
const FRAME_BYTES_TARGET: usize = 64 * 1024;
/// No eye sees the difference, and waking a watch and its reader so often costs little.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How often a watch that has nothing to tell says up to where.
const POSITION_INTERVAL: Duration = Duration::from_secs(5);
/// How often it is looked whether a reader that does not read has been left behind.
const LAG_CHECK_INTERVAL: Duration = Duration::from_millis(500);

pub(super) fn start(rpc: Rpc, ask: Admitted<Ask>, permit: Permit) -> Frames {
    let (sender, frames) = queue(Arc::clone(&rpc.watch_budget));
    tokio::spawn(async move {
        let _permit = permit;
        let metrics = Arc::clone(&rpc.metrics);
        metrics.watch_streams.rise();
        let start = ask.get().start;
        let watcher = Watcher { rpc, ask, sender };
        if let Err(Ended::Because(failure)) = watcher.run(start).await {
            let is_slow = failure.reason() == Reason::SlowReader;
            if is_slow {
                metrics.watches_left_behind.rise();
            }
            watcher.sender.end(Some(failure.into()), is_slow);
        }
        metrics.watch_streams.fall();
    });
    frames
}

/// Why a watch ends.
enum Ended {
    Because(Failure),
    /// Nobody listens any more.
    Unheard,
}

impl From<Failure> for Ended {
    fn from(failure: Failure) -> Ended {
        Ended::Because(failure)
    }
}

struct Watcher {
    rpc: Rpc,
    ask: Admitted<Ask>,
    sender: FrameSender,
}

impl Watcher {
    async fn run(&self, start: Start) -> Result<(), Ended> {
        let mut told = Told::default();
        let position = match start {
            Start::Snapshot => {
                told = self.tell_snapshot().await?;
                told.start()
            }
            Start::Now => {
                let position =
                    Position::end_of(snapshot::applied_index(&self.rpc, &self.ask).await?);
                self.send(self.at(position, &told), position).await?;
                position
            }
            Start::After(position) => {
                // The next leader has applied all that was committed, and so all that was told.
                let applied = snapshot::applied_index(&self.rpc, &self.ask).await?;
                if position.index > applied || !self.rpc.events.keeps(position) {
                    return Err(compacted().into());
                }
                position
            }
        };
        self.follow(position, &told).await
    }

    async fn tell_snapshot(&self) -> Result<Told, Ended> {
        let mut told = Told::default();
        let mut after = None;
        loop {
            let page = snapshot::page(&self.rpc, &self.ask, after).await?;
            told.note(&page);
            let start = told.start();
            let complete = page.next.is_none();
            let mut frame = WatchFrame::default();
            let mut bytes = 0;
            for lock in page.locks {
                let lock = summary(lock, page.at);
                bytes += lock.encoded_len();
                if bytes > FRAME_BYTES_TARGET && !frame.locks.is_empty() {
                    bytes = lock.encoded_len();
                    self.send(std::mem::take(&mut frame), start).await?;
                }
                frame.locks.push(lock);
            }
            frame.snapshot_complete = complete;
            frame.position = told.is_left_behind(start).then(|| wire(start)).filter(|_| complete);
            self.send(frame, start).await?;
            after = page.next;
            if after.is_none() {
                return Ok(told);
            }
        }
    }

    async fn follow(&self, mut position: Position, told: &Told) -> Result<(), Ended> {
        let mut news = self.rpc.events.news();
        let mut leadership = self.rpc.door.watch_leadership();
        let mut pause = interval(POSITION_INTERVAL);
        let mut silent = true;
        let mut pace = Pace::new(LOOK_EVERY);
        let mut teller = Teller::default();
        loop {
            news.borrow_and_update();
            let events = self.rpc.events.after(position, EVENTS_PER_FRAME);
            let events = events.map_err(|_| too_slow())?;
            let whole = whole_entries(&events);
            if let Some(last) = events.iter().take(whole).last() {
                position = last.position;
                let of_interest = events.iter().take(whole).filter(|recorded| {
                    tell::concerns(&recorded.event, &self.ask.get().names)
                        && !told.includes(recorded)
                });
                let events = teller.tell(of_interest);
                if !events.is_empty() {
                    silent = false;
                    let frame = WatchFrame { events, ..self.at(position, told) };
                    self.send(frame, position).await?;
                }
                continue;
            }
            let more = async {
                let changed = news.changed().await;
                pace.keep().await;
                changed
            };
            tokio::select! {
                changed = more => changed.map_err(|_| stopping())?,
                leader = lost(&mut leadership) => {
                    let leader = leader.ok_or_else(stopping)?;
                    let reason = Unavailable::NotLeader { leader };
                    return Err(unavailable(reason, &self.rpc.membership).into());
                }
                () = self.rpc.stopping.begun() => return Err(stopping().into()),
                () = self.sender.closed() => return Err(Ended::Unheard),
                _ = pause.tick() => {
                    if silent {
                        self.send(self.at(position, told), position).await?;
                    }
                    silent = true;
                }
            }
        }
    }

    /// To go on from here, the next watch must need no account of what the pages of this one showed.
    fn at(&self, position: Position, told: &Told) -> WatchFrame {
        let position = told.is_left_behind(position).then(|| wire(position));
        WatchFrame { position, ..Default::default() }
    }

    /// Waits for the reader, but not past the point where the ring has forgotten what it needs next, and not while the
    /// watches of this node have more unread than they may.
    async fn send(&self, mut frame: WatchFrame, position: Position) -> Result<(), Ended> {
        loop {
            let is_used_up = match self.sender.try_send(frame) {
                Ok(()) => return Ok(()),
                Err(NoRoom::Unheard) => return Err(Ended::Unheard),
                Err(NoRoom::ReaderIsBehind(returned)) => {
                    frame = returned;
                    false
                }
                Err(NoRoom::BudgetIsUsedUp(returned)) => {
                    frame = returned;
                    true
                }
            };
            match timeout(LAG_CHECK_INTERVAL, self.sender.room()).await {
                Ok(()) => {}
                Err(_) if is_used_up => return Err(unread_too_long().into()),
                Err(_) if !self.rpc.events.keeps(position) => return Err(too_slow().into()),
                Err(_) if self.rpc.stopping.has_begun() => return Err(stopping().into()),
                Err(_) => {}
            }
        }
    }
}

/// A full list ends with an entry that may have more events: they are left for the next frame, so that what
/// happened at one moment is told in one frame, unless it is very much.
fn whole_entries(events: &Stretch) -> usize {
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
        Event::Intervened(_) => FRAME_BYTES_TARGET / 64,
        Event::SessionOpened { .. } | Event::SessionEnded { .. } | Event::Thawed { .. } => 0,
    };
    WITHOUT_TEXTS + texts
}

/// Returns when this node leads no more: with who does, or with none if the driver is gone.
async fn lost(leadership: &mut watch::Receiver<Leadership>) -> Option<Option<NodeId>> {
    leadership.wait_for(|now| !now.is_here).await.ok().map(|now| now.leader)
}

pub(super) fn wire(position: Position) -> EventPosition {
    let Position { index, number } = position;
    EventPosition { group: FIRST_GROUP.0, index, number }
}

fn compacted() -> Failure {
    refused(
        Reason::Compacted,
        "the events after this position are no longer kept; watch anew, without a position",
    )
}

fn too_slow() -> Failure {
    refused(
        Reason::SlowReader,
        "the watch was cut off because its events were not read fast enough, and some are no longer \
         kept; watch anew, without a position, and read faster or a narrower prefix",
    )
}

fn unread_too_long() -> Failure {
    refused(
        Reason::SlowReader,
        "the watch was cut off because its events were not read, and the watches of this node have as much unread as \
         they may; watch anew, without a position, and read faster or a narrower prefix",
    )
}
