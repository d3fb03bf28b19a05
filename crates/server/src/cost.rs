//! What those who look at events cost, one by one: `examples/cost_of_observing.rs` measures it.
//!
//! Every function takes turns of events, as the shard records them, through one of them.

use std::path::PathBuf;
use std::sync::Arc;

use holdfast_core::command::{Mode, Owner};
use holdfast_core::{
    ActorId, Event, FenceToken, LockName, LogIndex, LogicalTime, PublicSessionId, RequestId,
    SessionId,
};
use holdfast_proto::v1::WatchFrame;
use prost::Message;

use crate::audit::{AuditFile, AuditSettings, Lines};
use crate::events::{EventRing, Position};
use crate::rpc::encode_events;
use holdfast_replica::GroupId;
use holdfast_service::VisibleNames;

const SESSIONS: u64 = 8;
const NAMES: u64 = 256;
const EVENTS_KEPT: u64 = 65_536;

/// One entry of the log each.
pub type Turns = Vec<Vec<(LogIndex, LogicalTime, Event)>>;

/// A ring that is full after a while, and where its readers are.
#[derive(Debug)]
pub struct Observed {
    ring: Arc<EventRing>,
    lines: Lines,
    file: AuditFile,
    position: Position,
    next_index: u64,
    frame: Vec<u8>,
}

impl Observed {
    pub fn new(file: PathBuf) -> Observed {
        let ring = Arc::new(EventRing::of_root(EVENTS_KEPT));
        let lines = Lines::new(&ring);
        ring.restart_after(0);
        let opened = (0..SESSIONS).map(|number| {
            let session = session(number);
            let owner = Owner {
                application: "holdfast-compare".to_owned(),
                host: "some-host-1".to_owned(),
                pid: 12_345,
                note: String::new(),
            };
            let public = public(session);
            let event =
                Event::SessionOpened { session, public, owner: Box::new(owner), principal: None };
            (LogIndex(1), LogicalTime::ZERO, event)
        });
        ring.record(&mut opened.collect(), 1_794_743_884_123, None);
        let settings = AuditSettings { file, bytes_max: 128 << 20, kept: 1 };
        let Ok((file, _)) = AuditFile::open(&settings, 1) else { std::process::abort() };
        let mut observed = Observed {
            ring,
            lines,
            file,
            position: Position::end_of(GroupId::FIRST, 0),
            next_index: 2,
            frame: Vec::new(),
        };
        observed.format();
        observed
    }

    /// Locks taken and given back, in turn.
    pub fn happen(&mut self, turns: usize, events_per_turn: usize) -> Turns {
        let turn = |index: u64| {
            let event = |number: usize| {
                let count = index * events_per_turn as u64 + number as u64;
                let lock = count / 2 % NAMES;
                let (session, request) = (session(lock % SESSIONS), RequestId(count));
                let name = LockName::new(&format!("bench/uncontended/{lock}"))
                    .unwrap_or_else(|_| std::process::abort());
                let (token, at) = (FenceToken(count / 2 + 1), LogicalTime::from_ms(index));
                let event = if number.is_multiple_of(2) {
                    let (mode, actor, metadata) = (Mode::Exclusive, ActorId(lock), Box::default());
                    Event::Granted { name, session, request, actor, mode, token, metadata }
                } else {
                    Event::Released {
                        name,
                        session,
                        request,
                        token,
                        granted_at: at,
                        by_close: false,
                    }
                };
                (LogIndex(index), at, event)
            };
            (0..events_per_turn).map(event).collect()
        };
        let first = self.next_index;
        self.next_index += turns as u64;
        (first..self.next_index).map(turn).collect()
    }

    pub fn record(&mut self, turns: &mut Turns) {
        for turn in turns {
            self.ring.record(turn, 1_794_743_884_123, None);
        }
    }

    /// Lines of what is new since the last look.
    pub fn format(&mut self) {
        while let Ok(events) = self.ring.after(self.position, 1_024) {
            let Some(last) = events.last() else { return };
            self.position = last.position;
            for recorded in events.iter() {
                self.lines.write(self.file.lines(), recorded);
            }
        }
    }

    pub fn write(&mut self) {
        if self.file.write().is_err() {
            std::process::abort();
        }
    }

    /// What is new since the last look, as a watcher of everything is sent it.
    pub fn encode(&mut self) -> usize {
        let mut bytes = 0;
        while let Ok(events) = self.ring.after(self.position, 500) {
            let Some(last) = events.last() else { break };
            self.position = last.position;
            let events = encode_events(events.iter(), &VisibleNames::all());
            self.frame.clear();
            let _ = WatchFrame { events, ..Default::default() }.encode(&mut self.frame);
            bytes += self.frame.len();
        }
        bytes
    }

    /// The last frame, as its receiver reads it.
    pub fn decode(&self) -> usize {
        WatchFrame::decode(&self.frame[..]).map_or(0, |frame| frame.events.len())
    }
}

fn session(number: u64) -> SessionId {
    SessionId((u128::from(number) + 1) << 64 | 0x1234_5678)
}

fn public(session: SessionId) -> PublicSessionId {
    let secret = holdfast_proto::SessionId::from_bytes(session.0.to_be_bytes());
    PublicSessionId(secret.map_or(0, holdfast_proto::SessionId::public_number))
}
