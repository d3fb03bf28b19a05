//! Lines for one reader of the ring: each event with the owner of its session, as far as events and snapshots
//! have told.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use holdfast_core::{Event, PublicSessionId, SessionId};

use super::line::{self, Stamp};
use super::notes::{Origin, Stamped};
use crate::events::{
    EventRing, EventView, OwnerReader, Recorded, SessionOwner, SessionTexts, SessionView,
};

/// As many as there can be sessions. Only one who missed events knows of more, and then forgets them all.
const OWNERS_MAX: usize = 2_000_000;
/// Of sessions that are open. One who missed events may know of more, and forgets those whose owners it does not know.
const ORIGINS_MAX: usize = OWNERS_MAX;
/// Logins with sessions that are not open yet. Few of them are: the others were refused, and the oldest are forgotten.
const AWAITED_MAX: usize = 10_000;
/// Of sessions that ended and may still be told of.
const ENDED_MAX: usize = 100_000;

#[derive(Debug)]
pub(crate) struct Lines {
    events: Arc<EventRing>,
    reader: OwnerReader,
    owners: HashMap<PublicSessionId, Arc<SessionOwner>>,
    /// From where the clients of sessions came to this node last.
    origins: HashMap<PublicSessionId, Arc<Origin>>,
    /// Logins that have their line when the session is open. A session that the table refuses has none.
    awaited: HashMap<PublicSessionId, Stamped>,
    awaited_since: VecDeque<PublicSessionId>,
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
            awaited: HashMap::new(),
            awaited_since: VecDeque::new(),
            ended: VecDeque::new(),
            sessions: SessionTexts::default(),
            stamp: Stamp::default(),
        }
    }

    /// Puts a line behind those that are there. Nothing, and false, for what is told by another event.
    pub(crate) fn write(&mut self, lines: &mut Vec<u8>, recorded: &Recorded) -> bool {
        let is_told = recorded.event.is_publishable();
        self.write_if(is_told, lines, recorded);
        is_told
    }

    /// The same for the audit. It also has a line of the decision to end a large session.
    pub(super) fn write_audited(&mut self, lines: &mut Vec<u8>, recorded: &Recorded) -> bool {
        let is_decision = matches!(recorded.event, Event::SessionEnding { .. });
        let is_told = is_decision || recorded.event.is_publishable();
        self.write_if(is_told, lines, recorded);
        is_told
    }

    fn write_if(&mut self, is_told: bool, lines: &mut Vec<u8>, recorded: &Recorded) {
        self.begin(&recorded.event);
        if is_told {
            let mut stamp = std::mem::take(&mut self.stamp);
            let view = EventView::of(recorded);
            let session = self.session_text(view.session);
            line::event(lines, &mut stamp, recorded, &view, session.as_bytes());
            self.stamp = stamp;
        }
        self.end(&recorded.event);
    }

    /// Before the events that come of it.
    pub(super) fn logged_in(
        &mut self,
        session: SessionId,
        public: PublicSessionId,
        origin: Arc<Origin>,
    ) {
        if self.origins.len() >= ORIGINS_MAX {
            let owners = &self.owners;
            self.origins.retain(|public, _| owners.contains_key(public));
        }
        self.sessions.forget(session);
        if self.origins.len() < ORIGINS_MAX {
            self.origins.insert(public, origin);
        }
    }

    /// Whether an event or a snapshot has told of the session.
    pub(super) fn is_open(&mut self, public: PublicSessionId) -> bool {
        self.owner(public).is_some()
    }

    /// Keeps the note of a login until the session is open.
    pub(super) fn await_session(&mut self, public: PublicSessionId, note: Stamped) {
        self.awaited.insert(public, note);
        self.awaited_since.push_back(public);
        while self.awaited_since.len() > AWAITED_MAX {
            let oldest = self.awaited_since.pop_front();
            oldest.and_then(|public| self.awaited.remove(&public));
        }
    }

    /// The login that was waiting for this session.
    pub(super) fn login_of(&mut self, public: PublicSessionId) -> Option<Stamped> {
        if self.awaited.is_empty() {
            self.awaited_since.clear();
        }
        self.awaited.remove(&public)
    }

    /// The logins whose sessions were opened by a snapshot: no event tells of those. Of a session that was opened by an
    /// event which the ring has forgotten, nothing is known here.
    pub(super) fn logins_of_open(&mut self) -> Vec<Stamped> {
        let in_order = self.awaited_since.clone();
        let login = |public| if self.is_open(public) { self.login_of(public) } else { None };
        in_order.into_iter().filter_map(login).collect()
    }

    /// Clients come to another node.
    pub(super) fn forget_origins(&mut self) {
        self.origins.clear();
        self.awaited.clear();
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

#[cfg(test)]
mod tests {
    use holdfast_core::{EndReason, LogicalTime};
    use holdfast_replica::GroupId;
    use holdfast_service::{Caller, Protocol};

    use super::super::notes::Note;
    use super::*;
    use crate::events::Position;

    fn origin() -> Arc<Origin> {
        Arc::new(Origin::of(&Caller::client(Protocol::Framed, None)))
    }

    fn login(number: u64) -> Stamped {
        let (session, public) = (SessionId(number.into()), PublicSessionId(number));
        let group = GroupId::FIRST;
        (0, Note::LoggedIn { group, origin: origin(), session, public, is_new: true })
    }

    #[test]
    fn the_decision_to_end_a_large_session_has_a_line_for_the_audit_alone() {
        let mut lines = Lines::new(&Arc::new(EventRing::of_root(10)));
        let (session, public, reason) = (SessionId(7), PublicSessionId(0xab), EndReason::Killed);
        let recorded = Recorded {
            position: Position { group: GroupId::FIRST, index: 4, number: 1 },
            at: LogicalTime::from_ms(5),
            unix_ms: 6,
            event: Event::SessionEnding { session, public, reason },
            serial: 0,
        };
        let mut written = Vec::new();
        assert!(!lines.write(&mut written, &recorded));
        assert_eq!(written, b"", "Kafka's records are counted, and it is not");
        assert!(lines.write_audited(&mut written, &recorded));
        let line: serde_json::Value = serde_json::from_slice(&written).unwrap();
        assert_eq!(line["event"], "session_ending");
        assert_eq!(line["session"], public.to_string());
        assert_eq!(line["reason"], "killed");
        assert_eq!((line["index"].as_u64(), line["number"].as_u64()), (Some(4), Some(1)));
    }

    #[test]
    fn logins_with_sessions_that_never_open_take_nothing_from_sessions_that_are() {
        let mut lines = Lines::new(&Arc::new(EventRing::of_root(10)));
        let (session, public) = (SessionId(u128::MAX), PublicSessionId(u64::MAX));
        lines.begin(&Event::SessionOpened {
            session,
            public,
            owner: Box::default(),
            principal: None,
        });
        lines.logged_in(session, public, origin());
        let many = 2 * AWAITED_MAX as u64;
        for number in 1..=many {
            assert!(!lines.is_open(PublicSessionId(number)));
            lines.await_session(PublicSessionId(number), login(number));
        }
        assert_eq!(lines.awaited.len(), AWAITED_MAX);
        assert!(lines.login_of(PublicSessionId(1)).is_none(), "the oldest is forgotten");
        assert!(lines.login_of(PublicSessionId(many)).is_some());
        assert!(lines.is_open(public) && lines.origins.contains_key(&public));
    }
}
