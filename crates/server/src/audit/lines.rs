//! Lines for one reader of the ring: each event with the owner of its session, as far as events and snapshots
//! have told.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use holdfast_core::Event;
use holdfast_core::command::Owner;
use holdfast_proto::v1::WatchEvent;

use super::line;
use crate::events::{EventRing, OwnerReader, Recorded};
use crate::rpc::told;

/// As many as there can be sessions. Only one who missed events knows of more, and then forgets them all.
const OWNERS_MAX: usize = 2_000_000;
/// Of sessions that ended and may still be told of.
const ENDED_MAX: usize = 100_000;

#[derive(Debug)]
pub(crate) struct Lines {
    events: Arc<EventRing>,
    reader: OwnerReader,
    /// By public session id.
    owners: HashMap<String, Arc<Owner>>,
    /// In which entry they ended.
    ended: VecDeque<(u64, String)>,
}

impl Lines {
    /// Before the ring has its beginning, or the owners in it are missed.
    pub(crate) fn new(events: &Arc<EventRing>) -> Lines {
        let (events, reader) = (Arc::clone(events), events.owner_reader());
        Lines { events, reader, owners: HashMap::new(), ended: VecDeque::new() }
    }

    /// Nothing for what is told by another event.
    pub(crate) fn of(&mut self, recorded: &Recorded) -> Option<(WatchEvent, Vec<u8>)> {
        self.begin(&recorded.event);
        let line = recorded.event.is_news().then(|| {
            let event = told(recorded);
            let owner = self.owner(&event.public_session_id);
            let line = line::of(recorded, &event, owner.as_deref());
            (event, line)
        });
        self.end(&recorded.event);
        line
    }

    /// For one who reads along, and may have to tell of it later.
    pub(crate) fn note(&mut self, recorded: &Recorded) {
        self.begin(&recorded.event);
        if let Event::SessionEnded { public, .. } = &recorded.event {
            self.ended.push_back((recorded.position.index, public.to_string()));
        }
        if self.ended.len() > ENDED_MAX {
            self.forget_first_ended();
        }
    }

    /// What was noted of earlier entries has been told.
    pub(crate) fn told_before(&mut self, index: u64) {
        while self.ended.front().is_some_and(|(ended, _)| *ended < index) {
            self.forget_first_ended();
        }
    }

    fn forget_first_ended(&mut self) {
        if let Some((_, session)) = self.ended.pop_front() {
            self.owners.remove(&session);
        }
    }

    fn begin(&mut self, event: &Event) {
        if let Event::SessionOpened { public, owner, .. } = event {
            if self.owners.len() >= OWNERS_MAX {
                self.owners.clear();
            }
            self.owners.insert(public.to_string(), Arc::new(Owner::clone(owner)));
        }
    }

    fn end(&mut self, event: &Event) {
        if let Event::SessionEnded { public, .. } = event {
            self.owners.remove(&public.to_string());
        }
    }

    /// Of a session that was open before the events began, the snapshot knows.
    fn owner(&mut self, session: &str) -> Option<Arc<Owner>> {
        if !session.is_empty() && !self.owners.contains_key(session) {
            for (public, owner) in self.events.take_sessions(&self.reader).iter() {
                let known = self.owners.entry(public.to_string());
                known.or_insert_with(|| Arc::new(owner.clone()));
            }
        }
        self.owners.get(session).cloned()
    }
}
