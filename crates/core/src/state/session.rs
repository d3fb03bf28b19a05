//! A session: one client, as the table knows it.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::ops::{Deref, DerefMut};

use crate::model::access::identity::Identity;
use crate::model::command::{OpenSession, Owner};
use crate::model::event::EndReason;
use crate::model::id::{FenceToken, PublicSessionId, RequestId, StreamId};
use crate::model::name::{LockName, Names};
use crate::model::outcome::Outcome;
use crate::model::slot::MapEpoch;
use crate::model::slot_move::{Departures, MoveId};
use crate::model::time::{LogicalTime, Span};
use crate::state::answers::{Answers, Reply};
use crate::state::dense_map::DenseMap;
use crate::state::session_waits::SessionWaits;
use crate::state::size;

/// What a heartbeat looks at and changes stands in the map of sessions itself. The rest, to which it is used as well,
/// lies elsewhere: of 100,000 idle sessions it is not read.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub(crate) ttl: Span,
    pub(crate) deadline: LogicalTime,
    /// The deadline was moved by a new leader since the session was last heard of.
    pub(crate) graced: bool,
    /// Its stream broke, and it has not been heard of since.
    pub(crate) lingering: bool,
    /// There are departures in the rest.
    has_departed: bool,
    rest: Box<Rest>,
}

/// What has left of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Departed {
    pub(crate) departures: Departures,
    /// None of the requests that have left had a higher id.
    pub(crate) through: RequestId,
}

#[derive(Clone, Debug)]
pub(crate) struct Rest {
    pub(crate) public: PublicSessionId,
    /// The latest that it came by.
    pub(crate) stream: StreamId,
    /// That stream is open, as far as the table knows.
    pub(crate) connected: bool,
    pub(crate) linger: Span,
    pub(crate) owner: Owner,
    /// What it does is checked against the rights of this identity. Without one, nothing is.
    pub(crate) identity: Option<Box<Identity>>,
    pub(crate) opened_at: LogicalTime,
    /// It has ended for this reason, and some of its holds and waits are left. See `rules/teardown.rs`.
    pub(crate) ending: Option<EndReason>,
    /// It came with slots from another group: its holds and waits were those of a session there.
    pub(crate) guest_of: Option<MoveId>,
    /// Holds or waits of it have left for another group.
    departed: Option<Box<Departed>>,
    /// None of its own tokens was as low: the highest when it was opened, or below that of a run of readers
    /// which began earlier and which it joined.
    pub(crate) below_own_tokens: u64,
    /// What it holds, by the acquire's request id.
    holds: DenseMap<RequestId, Names>,
    hold_count: usize,
    /// The holds take so much of the table's size.
    pub(crate) held_bytes: u64,
    /// The acquires of holds that have become exclusive, by the requests that did that.
    conversions: BTreeMap<RequestId, RequestId>,
    /// What it waits for, by the request id.
    pub(crate) waits: SessionWaits,
    pub(crate) answers: Answers,
    losses: BTreeSet<FenceToken>,
    /// Which of the holds under a token of readers it lost: they have one token together. Empty under the first rules.
    shared_losses: BTreeSet<(FenceToken, RequestId)>,
}

impl Deref for Session {
    type Target = Rest;

    fn deref(&self) -> &Rest {
        &self.rest
    }
}

impl DerefMut for Session {
    fn deref_mut(&mut self) -> &mut Rest {
        &mut self.rest
    }
}

impl Session {
    pub(crate) fn new(open: OpenSession, now: LogicalTime, last_token: u64) -> Session {
        let rest = Rest {
            public: open.public,
            stream: open.stream.unwrap_or_default(),
            connected: open.stream.is_some(),
            linger: open.linger,
            owner: open.owner,
            identity: open.identity,
            opened_at: now,
            ending: None,
            guest_of: None,
            departed: None,
            below_own_tokens: last_token,
            holds: DenseMap::default(),
            hold_count: 0,
            held_bytes: 0,
            conversions: BTreeMap::new(),
            waits: SessionWaits::default(),
            answers: Answers::default(),
            losses: BTreeSet::new(),
            shared_losses: BTreeSet::new(),
        };
        Session {
            ttl: open.ttl,
            deadline: now.after(open.ttl),
            graced: false,
            lingering: false,
            has_departed: false,
            rest: Box::new(rest),
        }
    }

    /// What it takes of the table's bytes.
    pub(crate) fn size_bytes(&self) -> u64 {
        size::of_owner(&self.owner)
            + self.identity.as_ref().map_or(0, |identity| identity.size_bytes())
            + self.held_bytes
            + self.waits.bytes()
            + self.answers.bytes()
            + size::LOSS * (self.losses().len() + self.shared_losses().len()) as u64
    }

    pub(crate) fn has_settings_of(&self, open: &OpenSession) -> bool {
        self.public == open.public
            && self.ttl == open.ttl
            && self.linger == open.linger
            && self.owner == open.owner
    }

    /// Its holds and queue places.
    pub(crate) fn part_count(&self) -> usize {
        self.hold_count + self.waits.place_count()
    }

    pub(crate) fn expiry_reason(&self) -> EndReason {
        if self.lingering { EndReason::Disconnected } else { EndReason::Ttl }
    }

    /// If its stream broke and it was not heard of since: a time before which that did not happen. When the stream breaks,
    /// the deadline becomes that of the linger time, unless the TTL is over sooner. A new leader may have moved it since.
    pub(crate) fn disconnected_after(&self) -> Option<LogicalTime> {
        let span = self.linger.min(self.ttl);
        let after = match self.graced {
            true => self.opened_at,
            false => LogicalTime::from_ms(self.deadline.as_ms().saturating_sub(span.as_ms())),
        };
        self.lingering.then(|| after.max(self.opened_at))
    }

    pub(crate) fn opened(&self) -> Outcome {
        let departures = self.departures();
        Outcome::SessionOpen { public: self.public, ttl: self.ttl, linger: self.linger, departures }
    }

    /// Does not read the rest of a session of which nothing has left.
    pub(crate) fn departed(&self) -> Option<Departed> {
        if self.has_departed { self.rest.departed.as_deref().copied() } else { None }
    }

    pub(crate) fn departures(&self) -> Option<Departures> {
        self.departed().map(|departed| departed.departures)
    }

    /// A hold or a wait has left: what this request asked for.
    pub(crate) fn note_departure(&mut self, request: RequestId, epoch: MapEpoch) {
        let before = self.departed();
        let count = before.map_or(0, |before| before.departures.count) + 1;
        let through = before.map_or(request, |before| before.through.max(request));
        let departures = Departures { epoch, count };
        self.restore_departed(Departed { departures, through });
    }

    pub(crate) fn restore_departed(&mut self, departed: Departed) {
        self.has_departed = true;
        self.rest.departed = Some(Box::new(departed));
    }

    /// What is missing here does not end with the session.
    #[cfg(feature = "planted")]
    pub(crate) fn with_parts_left_behind(mut self) -> Session {
        if crate::planted::Bug::GrantToEndedSession.is_active() {
            self.waits = SessionWaits::default();
        }
        if crate::planted::Bug::EndedSessionKeepsHolds.is_active() {
            self.holds = DenseMap::default();
            self.hold_count = 0;
        }
        self
    }
}

impl Rest {
    /// It came by this stream. A hello that was held up on its way, and arrives after a later one,
    /// changes nothing: its stream is no longer the one that the client listens to.
    pub(crate) fn attach(&mut self, stream: StreamId) {
        if stream >= self.stream {
            self.stream = stream;
            self.connected = true;
        }
    }

    pub(crate) fn add_hold(&mut self, request: RequestId, name: LockName) {
        self.hold_count += 1;
        match self.holds.get_mut(&request) {
            Some(names) => names.add(name),
            None => drop(self.holds.insert(request, Names::One(name))),
        }
    }

    pub(crate) fn remove_hold(&mut self, request: RequestId, name: &LockName) {
        let Some(names) = self.holds.get_mut(&request) else { return };
        match names {
            Names::One(held) if held == name => {
                self.holds.remove(&request);
                self.hold_count -= 1;
            }
            Names::Many(many) if many.contains(name) => {
                self.hold_count -= 1;
                *names = many.iter().filter(|held| *held != name).cloned().collect();
            }
            _ => {}
        }
    }

    /// Removes the first so many. What an acquire-all holds is rebuilt at most once, however many of it are removed.
    pub(crate) fn take_first_holds(&mut self, holds_max: usize) -> Vec<(RequestId, LockName)> {
        let mut taken = Vec::new();
        while taken.len() < holds_max {
            let Some((request, names)) = self.holds.iter().next() else { break };
            let (request, names) = (*request, names.clone());
            let room = names.as_slice().len().min(holds_max - taken.len());
            let (first, rest) = names.as_slice().split_at(room);
            taken.extend(first.iter().map(|name| (request, name.clone())));
            if rest.is_empty() {
                self.holds.remove(&request);
            } else {
                self.holds.insert(request, rest.iter().cloned().collect());
            }
        }
        self.hold_count -= taken.len();
        taken
    }

    /// A hold was made exclusive by this request, and before by that one.
    pub(crate) fn note_conversion(
        &mut self,
        convert: RequestId,
        acquire: RequestId,
        before: Option<RequestId>,
    ) {
        self.forget_conversion(before);
        self.conversions.insert(convert, acquire);
    }

    /// The hold that was made exclusive by this request is no more.
    pub(crate) fn forget_conversion(&mut self, convert: Option<RequestId>) {
        if let Some(convert) = convert {
            self.conversions.remove(&convert);
        }
    }

    /// What it holds by one acquire.
    pub(crate) fn held_by(&self, request: RequestId) -> &[LockName] {
        self.holds.get(&request).map_or(&[], Names::as_slice)
    }

    /// Has it sent this request before, as far as that can be told?
    pub(crate) fn knows(&self, request: RequestId) -> bool {
        request <= self.answers.acked_through()
            || self.answers.get(request).is_some()
            || self.waits.contains(request)
    }

    /// Does it hold something by this request: an acquire, a re-entry, a conversion?
    pub(crate) fn has_by(&self, request: RequestId) -> bool {
        self.holds.contains_key(&self.acquire_of(request))
    }

    /// The acquire of the hold that a request entered again or converted; otherwise the request itself.
    pub(crate) fn acquire_of(&self, request: RequestId) -> RequestId {
        match self.answers.get(request).map(|answer| &answer.reply) {
            Some(Reply::Reentered { acquire } | Reply::Converted { acquire }) => *acquire,
            _ => self.converted_by(request).unwrap_or(request),
        }
    }

    /// The acquire of the hold that this request made exclusive, wherever the mark stands.
    pub(crate) fn converted_by(&self, convert: RequestId) -> Option<RequestId> {
        self.conversions.get(&convert).copied()
    }

    pub(crate) fn conversions(&self) -> usize {
        self.conversions.len()
    }

    /// All that it holds, by the acquires.
    pub(crate) fn holds(&self) -> impl Iterator<Item = (RequestId, &LockName)> {
        self.holds.iter().flat_map(|(request, names)| names.iter().map(|name| (*request, name)))
    }

    pub(crate) fn hold_count(&self) -> usize {
        self.hold_count
    }

    /// It was granted something under this token.
    pub(crate) fn note_token(&mut self, token: FenceToken) {
        self.below_own_tokens = self.below_own_tokens.min(token.0.saturating_sub(1));
    }

    /// A hold of it ended on its own. Only the latest are remembered.
    pub(crate) fn remember_loss(&mut self, token: FenceToken, losses_max: usize) {
        self.losses.insert(token);
        while self.losses.len() > losses_max {
            self.losses.pop_first();
        }
    }

    /// And of a shared hold also by which acquire it was known.
    pub(crate) fn remember_shared_loss(
        &mut self,
        token: FenceToken,
        acquire: RequestId,
        losses_max: usize,
    ) {
        self.shared_losses.insert((token, acquire));
        while self.shared_losses.len() > losses_max {
            self.shared_losses.pop_first();
        }
    }

    pub(crate) fn shared_losses(&self) -> &BTreeSet<(FenceToken, RequestId)> {
        &self.shared_losses
    }

    pub(crate) fn lost(&self, token: FenceToken) -> bool {
        self.losses.contains(&token)
    }

    /// Whether it lost this hold. Shared holds of one lock can have one token; then the acquire tells which one is meant.
    pub(crate) fn lost_hold(&self, token: FenceToken, acquire: RequestId) -> bool {
        let all = (token, RequestId(0))..=(token, RequestId(u64::MAX));
        let is_another = acquire != RequestId(0)
            && self.shared_losses.range(all).next().is_some()
            && !self.shared_losses.contains(&(token, acquire));
        self.lost(token) && !is_another
    }

    pub(crate) fn losses(&self) -> &BTreeSet<FenceToken> {
        &self.losses
    }
}
