//! Lines for one reader of the ring: each event with the owner of its session, as far as events and snapshots
//! have told.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use holdfast_core::{Event, PublicSessionId, SessionId};

use super::line::{self, Stamp};
use super::notes::Origin;
use crate::events::{
    EventRing, EventView, OwnerReader, Recorded, SessionOwner, SessionTexts, SessionView,
};

/// As many as there can be sessions. Only one who missed events knows of more, and then forgets them all.
const OWNERS_MAX: usize = 2_000_000;
/// Of sessions that clients came with. If there are more, the lines of sessions lack it until their clients come again.
const ORIGINS_MAX: usize = 500_000;
/// Of sessions that ended and may still be told of.
const ENDED_MAX: usize = 100_000;

#[derive(Debug)]
pub(crate) struct Lines {
    events: Arc<EventRing>,
    reader: OwnerReader,
    owners: HashMap<PublicSessionId, Arc<SessionOwner>>,
    /// From where the clients of sessions came to this node last.
    origins: HashMap<PublicSessionId, Arc<Origin>>,
    /// In which entry they ended.
    ended: VecDeque<(u64, SessionId, PublicSessionId)>,
    /// What lines say of sessions whose owners are known.
    sessions: SessionTexts,
    stamp: Stamp,
}

impl Lines {
    /// Before the ring has its beginning, or the owners in it are missed.
    pub(crate) fn new(events: &Arc<EventRing>) -> Lines {
        Lines {
            events: Arc::clone(events),
            reader: events.owner_reader(),
            owners: HashMap::new(),
            origins: HashMap::new(),
            ended: VecDeque::new(),
            sessions: SessionTexts::default(),
            stamp: Stamp::default(),
        }
    }

    /// Puts a line behind those that are there. Nothing, and false, for what is told by another event.
    pub(crate) fn write(&mut self, lines: &mut Vec<u8>, recorded: &Recorded) -> bool {
        self.begin(&recorded.event);
        let is_publishable = recorded.event.is_publishable();
        if is_publishable {
            let mut stamp = std::mem::take(&mut self.stamp);
            let view = EventView::of(recorded);
            let session = self.session_text(view.session);
            line::event(lines, &mut stamp, recorded, &view, session.as_bytes());
            self.stamp = stamp;
        }
        self.end(&recorded.event);
        is_publishable
    }

    /// Before the events that come of it.
    pub(super) fn logged_in(
        &mut self,
        session: SessionId,
        public: PublicSessionId,
        origin: Arc<Origin>,
    ) {
        if self.origins.len() >= ORIGINS_MAX {
            self.origins.clear();
        }
        self.sessions.forget(session);
        self.origins.insert(public, origin);
    }

    /// Clients come to another node.
    pub(super) fn forget_origins(&mut self) {
        self.origins.clear();
        self.sessions = SessionTexts::default();
    }

    /// For one who reads along, and may have to tell of it later.
    pub(crate) fn note(&mut self, recorded: &Recorded) {
        self.begin(&recorded.event);
        if let Event::SessionEnded { session, public, .. } = &recorded.event {
            self.ended.push_back((recorded.position.index, *session, *public));
        }
        if self.ended.len() > ENDED_MAX {
            self.forget_first_ended();
        }
    }

    /// What was noted of earlier entries has been told.
    pub(crate) fn written_before(&mut self, index: u64) {
        while self.ended.front().is_some_and(|(ended, ..)| *ended < index) {
            self.forget_first_ended();
        }
    }

    fn forget_first_ended(&mut self) {
        if let Some((_, session, public)) = self.ended.pop_front() {
            self.forget(session, public);
        }
    }

    fn forget(&mut self, session: SessionId, public: PublicSessionId) {
        self.sessions.forget(session);
        self.owners.remove(&public);
        self.origins.remove(&public);
    }

    fn begin(&mut self, event: &Event) {
        if let Event::SessionOpened { session, public, owner, principal } = event {
            if self.owners.len() >= OWNERS_MAX {
                self.owners.clear();
                self.sessions = SessionTexts::default();
            }
            self.sessions.forget(*session);
            let (owner, principal) = ((**owner).clone(), principal.clone());
            self.owners.insert(*public, Arc::new(SessionOwner { owner, principal }));
        }
    }

    fn end(&mut self, event: &Event) {
        if let Event::SessionEnded { session, public, .. } = event {
            self.forget(*session, *public);
        }
    }

    fn session_text(&mut self, session: SessionView) -> Cow<'_, str> {
        let known = match session {
            SessionView::Secret(secret) => Some(secret),
            SessionView::None | SessionView::Public(_) => None,
        };
        if let Some(secret) = known
            && self.sessions.get(secret).is_some()
        {
            return Cow::Borrowed(self.sessions.get(secret).unwrap_or_default());
        }
        let Some(public) = session.public() else { return Cow::Borrowed("") };
        let owner = self.owner(public);
        let origin = self.origins.get(&public);
        let text = line::session(public, owner.as_deref(), origin.map(Arc::as_ref));
        if let Some(secret) = known
            && owner.is_some()
        {
            self.sessions.keep(secret, &text);
        }
        Cow::Owned(text)
    }

    /// Of a session that was open before the events began, the snapshot knows.
    fn owner(&mut self, session: PublicSessionId) -> Option<Arc<SessionOwner>> {
        if !self.owners.contains_key(&session) {
            for (public, owner) in self.events.take_sessions(&self.reader).iter() {
                let known = self.owners.entry(*public);
                known.or_insert_with(|| Arc::new(owner.clone()));
            }
        }
        self.owners.get(&session).cloned()
    }
}
