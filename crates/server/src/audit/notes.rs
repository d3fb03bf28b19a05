//! What the service tells the audit: who was denied what, who logged in, and who asked for what the log does not
//! attribute to a session.
//!
//! The threads that serve callers put notes here, and the writer takes them. There is room for [`NOTES_MAX`]. A part of it
//! is kept for what administrators do. What finds no room is counted, and the file says how many.
//!
//! A caller can be denied many times a second. A kind of denial has a line at once, and then one with a count each
//! [`DENIALS_EVERY`]. Otherwise a caller without any right could rotate the audit's history away.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use holdfast_core::{PublicSessionId, SessionId};
use holdfast_proto::v1::{Failure, Reason};
use holdfast_replica::GroupId;
use holdfast_service::{Caller, Credential, Kind, Method, Protocol};
use tokio::sync::Notify;

use super::json_writer::JsonWriter;
use crate::connections::counted_as;
use crate::shard::unix_ms;

const NOTES_MAX: usize = 4_096;
/// Callers without any right cannot take the places of the others.
const DENIALS_MAX: usize = NOTES_MAX / 2;
const LOGINS_MAX: usize = NOTES_MAX / 4 * 3;
/// Between two lines of one kind of denial.
pub(super) const DENIALS_EVERY: Duration = Duration::from_secs(60);
/// Kinds of denials that are known at one time: in all, and of one principal. All callers that have not proved who they
/// are count as one principal.
const KINDS_MAX: usize = 1_024;
const KINDS_PER_PRINCIPAL_MAX: usize = 128;

/// Who did something, and from where.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Origin {
    principal: String,
    credential: Option<String>,
    address: Option<IpAddr>,
    protocol: &'static str,
    forwarded_by: Option<u64>,
}

impl Origin {
    pub(crate) fn of(caller: &Caller) -> Origin {
        Origin {
            principal: caller.on_behalf_of.to_string(),
            credential: caller.credential.as_ref().map(Credential::to_string),
            address: caller.address,
            protocol: match caller.protocol {
                Protocol::Grpc => "grpc",
                Protocol::Framed => "framed",
                Protocol::Http => "http",
                Protocol::Internal => "internal",
            },
            forwarded_by: caller.forwarded_by,
        }
    }

    /// Whether the caller has proved who it is.
    pub(super) fn is_known(&self) -> bool {
        self.credential.is_some()
    }

    /// As it stands in the lines of a session.
    pub(super) fn write(&self, json: &mut JsonWriter<'_>) {
        json.text(b",\"principal\":", &self.principal);
        json.text_if_any(b",\"credential\":", self.credential.as_deref().unwrap_or_default());
        if let Some(address) = self.address {
            json.text(b",\"address\":", &address.to_string());
        }
        json.word_if_any(b",\"protocol\":", self.protocol);
        json.number_above_zero(b",\"forwarded_by\":", self.forwarded_by.unwrap_or(0));
    }
}

/// A kind of denial. An IPv6 address stands for its network, as where connections are counted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Denial {
    pub(super) origin: Origin,
    pub(super) method: Method,
    pub(super) reason: Reason,
    /// If not, the node only says what it would deny.
    pub(super) is_enforced: bool,
}

impl Denial {
    fn new(mut origin: Origin, method: Method, reason: Reason, is_enforced: bool) -> Denial {
        origin.address = origin.address.map(counted_as);
        Denial { origin, method, reason, is_enforced }
    }
}

#[derive(Debug)]
pub(super) enum Note {
    Denied {
        denial: Denial,
        count: u64,
    },
    /// Denials of one principal, of more kinds than are known at one time.
    DeniedOtherwise {
        principal: String,
        count: u64,
    },
    /// A client comes with a session of a group: a new one, or its own.
    LoggedIn {
        group: GroupId,
        origin: Arc<Origin>,
        session: SessionId,
        public: PublicSessionId,
        is_new: bool,
    },
    /// A browser exchanged a credential for a cookie.
    DashboardLogin(Origin),
    /// A change that no session makes, or a copy of all there is.
    Requested {
        origin: Origin,
        method: Method,
    },
}

impl Note {
    /// Among whose lines it stands. What is about no session of a group stands among those of the root group.
    pub(super) fn group(&self) -> GroupId {
        match self {
            Note::LoggedIn { group, .. } => *group,
            Note::Denied { .. }
            | Note::DeniedOtherwise { .. }
            | Note::DashboardLogin(_)
            | Note::Requested { .. } => GroupId::FIRST,
        }
    }
}

/// With the time of the first.
pub(super) type Stamped = (u64, Note);

#[derive(Debug, Default)]
pub(crate) struct AuditNotes {
    state: Mutex<State>,
    news: Notify,
}

#[derive(Debug, Default)]
struct State {
    notes: Vec<Stamped>,
    denials: HashMap<Denial, Tally>,
    /// How many of these kinds each principal has.
    kinds_of: HashMap<String, usize>,
    /// Denials of more kinds than are known at one time, by principal, and when they were told of.
    others: BTreeMap<String, u64>,
    others_told_at: Option<Instant>,
    lost: u64,
}

/// A kind of denial that had its line.
#[derive(Debug)]
struct Tally {
    told_at: Instant,
    /// Of those since then, the time of the first.
    unix_ms: u64,
    count: u64,
}

impl AuditNotes {
    pub(crate) fn denied(
        &self,
        caller: &Caller,
        method: Method,
        failure: &Failure,
        is_enforced: bool,
    ) {
        let (origin, reason) = (Origin::of(caller), failure.reason());
        let denial = Denial::new(origin, method, reason, is_enforced);
        if self.lock().deny(denial, Instant::now()) {
            self.news.notify_one();
        }
    }

    pub(crate) fn logged_in(
        &self,
        caller: &Caller,
        group: GroupId,
        session: SessionId,
        public: PublicSessionId,
        is_new: bool,
    ) {
        let origin = Arc::new(Origin::of(caller));
        self.put(Note::LoggedIn { group, origin, session, public, is_new });
    }

    pub(crate) fn logged_in_at_dashboard(&self, caller: &Caller) {
        self.put(Note::DashboardLogin(Origin::of(caller)));
    }

    /// What it admits passes here; few of it is noted.
    pub(crate) fn admitted(&self, caller: &Caller, method: Method) {
        let is_noted = matches!(
            method.row().kind,
            Kind::Intervention | Kind::ClusterChange | Kind::AccessChange | Kind::Snapshot
        );
        // A page's action is an action of its own.
        if is_noted && method != Method::HttpAction {
            self.put(Note::Requested { origin: Origin::of(caller), method });
        }
    }

    /// What was noted since, and how many found no room. The denials of kinds that are due are among them; in the last
    /// round all are.
    pub(super) fn take(&self, is_last_round: bool) -> (Vec<Stamped>, u64) {
        let mut state = self.lock();
        state.tell_denials(is_last_round, Instant::now());
        (std::mem::take(&mut state.notes), std::mem::take(&mut state.lost))
    }

    pub(super) async fn news(&self) {
        self.news.notified().await;
    }

    fn put(&self, note: Note) {
        self.lock().put(unix_ms(), note);
        self.news.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Whether there is a note.
    fn deny(&mut self, denial: Denial, now: Instant) -> bool {
        if let Some(tally) = self.denials.get_mut(&denial) {
            if tally.count == 0 {
                tally.unix_ms = unix_ms();
            }
            tally.count += 1;
            return false;
        }
        let principal = &denial.origin.principal;
        let kinds = self.kinds_of.get(principal).copied().unwrap_or_default();
        if self.denials.len() >= KINDS_MAX || kinds >= KINDS_PER_PRINCIPAL_MAX {
            self.count_other(principal.clone());
            return false;
        }
        self.kinds_of.insert(principal.clone(), kinds + 1);
        let tally = Tally { told_at: now, unix_ms: 0, count: 0 };
        self.denials.insert(denial.clone(), tally);
        self.put(unix_ms(), Note::Denied { denial, count: 1 });
        true
    }

    fn count_other(&mut self, principal: String) {
        if self.others.len() < KINDS_MAX || self.others.contains_key(&principal) {
            *self.others.entry(principal).or_default() += 1;
        } else {
            self.lost += 1;
        }
    }

    fn forget_kind(&mut self, denial: &Denial) {
        let principal = &denial.origin.principal;
        if let Some(kinds) = self.kinds_of.get_mut(principal) {
            *kinds -= 1;
            if *kinds == 0 {
                self.kinds_of.remove(principal);
            }
        }
    }

    fn tell_denials(&mut self, is_last_round: bool, now: Instant) {
        let is_due = |tally: &Tally| {
            is_last_round || now.saturating_duration_since(tally.told_at) >= DENIALS_EVERY
        };
        let due: Vec<(Denial, Tally)> = self.denials.extract_if(|_, tally| is_due(tally)).collect();
        for (denial, Tally { unix_ms, count, .. }) in due {
            if is_last_round || count == 0 {
                self.forget_kind(&denial);
            } else {
                let tally = Tally { told_at: now, unix_ms: 0, count: 0 };
                self.denials.insert(denial.clone(), tally);
            }
            if count > 0 {
                self.put(unix_ms, Note::Denied { denial, count });
            }
        }
        let told_since = self.others_told_at.map(|at| now.saturating_duration_since(at));
        if is_last_round || told_since.is_none_or(|since| since >= DENIALS_EVERY) {
            if !self.others.is_empty() {
                self.others_told_at = Some(now);
            }
            for (principal, count) in std::mem::take(&mut self.others) {
                self.put(unix_ms(), Note::DeniedOtherwise { principal, count });
            }
        }
    }

    fn put(&mut self, unix_ms: u64, note: Note) {
        let room = match &note {
            Note::Denied { .. } | Note::DeniedOtherwise { .. } => DENIALS_MAX,
            Note::LoggedIn { .. } => LOGINS_MAX,
            Note::DashboardLogin(_) | Note::Requested { .. } => NOTES_MAX,
        };
        if self.notes.len() < room {
            self.notes.push((unix_ms, note));
        } else {
            self.lost += match note {
                Note::Denied { count, .. } | Note::DeniedOtherwise { count, .. } => count,
                Note::LoggedIn { .. } | Note::DashboardLogin(_) | Note::Requested { .. } => 1,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use holdfast_proto::failure::refused;

    use super::*;

    fn caller(last: u8) -> Caller {
        Caller::client(Protocol::Framed, Some(IpAddr::from([192, 0, 2, last])))
    }

    fn denial(caller: &Caller) -> Denial {
        let (method, reason) = (Method::Acquire, Reason::Unauthenticated);
        Denial::new(Origin::of(caller), method, reason, true)
    }

    fn counts(state: &mut State) -> Vec<u64> {
        let count = |(_, note)| match note {
            Note::Denied { count, .. } => count,
            other => panic!("{other:?}"),
        };
        std::mem::take(&mut state.notes).into_iter().map(count).collect()
    }

    #[test]
    fn a_kind_of_denial_has_a_line_at_once_and_then_one_each_minute() {
        let (mut state, start) = (State::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        for _ in 0..1_000 {
            state.deny(denial(&caller(1)), start);
        }
        state.tell_denials(false, at(59));
        assert_eq!(counts(&mut state), [1]);
        state.tell_denials(false, at(60));
        assert_eq!(counts(&mut state), [999]);
        state.deny(denial(&caller(1)), at(61));
        state.tell_denials(false, at(119));
        assert_eq!(counts(&mut state), [0; 0]);
        state.tell_denials(true, at(119));
        assert_eq!(counts(&mut state), [1]);
        // What was not denied for a minute is forgotten.
        state.deny(denial(&caller(2)), at(119));
        state.tell_denials(false, at(179));
        assert_eq!((counts(&mut state), state.denials.len()), (vec![1], 0));
    }

    #[test]
    fn addresses_of_one_network_are_one_kind() {
        let mut state = State::default();
        for last in 0..100 {
            let address = std::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last);
            state.deny(
                denial(&Caller::client(Protocol::Grpc, Some(address.into()))),
                Instant::now(),
            );
        }
        assert_eq!(state.denials.len(), 1);
    }

    #[test]
    fn a_caller_with_many_kinds_of_denials_does_not_hide_those_of_another() {
        let (mut state, now) = (State::default(), Instant::now());
        for number in 0..10 * KINDS_MAX as u32 {
            let address = IpAddr::from(number.to_be_bytes());
            let anonymous = Caller::client(Protocol::Framed, Some(address));
            state.deny(denial(&anonymous), now);
        }
        let mut other = denial(&caller(1));
        other.origin.principal = "token:billing".to_owned();
        assert!(state.deny(other.clone(), now), "it has a line at once");
        assert_eq!(state.denials.len(), KINDS_PER_PRINCIPAL_MAX + 1);
        state.notes.clear();
        state.tell_denials(false, now);
        let told = std::mem::take(&mut state.notes);
        let [(_, Note::DeniedOtherwise { principal, count })] = &told[..] else {
            panic!("{told:?}")
        };
        let rest = (10 * KINDS_MAX - KINDS_PER_PRINCIPAL_MAX) as u64;
        assert_eq!((&**principal, *count, state.lost), ("anonymous", rest, 0));
        state.tell_denials(true, now);
        assert!(state.kinds_of.is_empty() && state.denials.is_empty());
    }

    #[test]
    fn denials_and_logins_leave_room_for_what_administrators_do() {
        let notes = AuditNotes::default();
        let failure = refused(Reason::Unauthenticated, "who is it?");
        for number in 0..10 * NOTES_MAX {
            let address = IpAddr::from((number as u32).to_be_bytes());
            let caller = Caller::client(Protocol::Framed, Some(address));
            notes.denied(&caller, Method::Acquire, &failure, true);
            let public = PublicSessionId(number as u64);
            notes.logged_in(&caller, GroupId::FIRST, SessionId(number as u128), public, true);
        }
        notes.admitted(&caller(1), Method::SaveSnapshot);
        let (taken, lost) = notes.take(false);
        assert_eq!(
            (taken.len(), lost),
            (LOGINS_MAX + 1, 20 * NOTES_MAX as u64 - LOGINS_MAX as u64)
        );
        assert!(matches!(taken.last(), Some((_, Note::Requested { .. }))));
    }
}
