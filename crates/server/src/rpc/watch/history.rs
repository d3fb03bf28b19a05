//! `History`: what happened to one lock, as far as the ring still has it, and whose doing it was.
//!
//! The leader answers, after a linearizable read: whatever was answered before the call is in its ring.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use holdfast_core::command::{Action, Owner};
use holdfast_core::{EndReason, Event, LogicalTime, Outcome, PublicSessionId, Rejection};
use holdfast_engine::{Query, ReadAnswer, ReadData};
use holdfast_proto::decode::lock_name;
use holdfast_proto::encode::read::owner;
use holdfast_proto::failure::refused;
use holdfast_proto::v1::{
    Failure, HistoryRequest, HistoryResponse, Reason, SessionOwner, WatchEvent,
};
use holdfast_replica::GroupId;
use holdfast_service::{Admitted, Caller, Method, hidden_names};
use prost::Message;
use tokio::time::timeout;

use super::super::Rpc;
use super::super::failure::{bug, took_too_long};
use super::super::reads::changes_nothing;
use super::super::route::Destination;
use super::super::unary::CALL_TIMEOUT;
use super::Scope;
use super::concerns::concerns;
use crate::events::{EventRing, Position, Recorded, message};
use crate::shard::unix_ms;

const DEFAULT_LIMIT: usize = 100;
const LIMIT_MAX: usize = 1_000;
/// Holders may say a lot of themselves, and a refusal may name hundreds of locks; an answer has to fit into a message.
const BYTES_MAX: usize = 2 << 20;
/// More than a wall clock and the cluster's own differ by in the normal course of things.
const CLOCK_SLACK_MS: u64 = 2_000;

/// What is asked for.
#[derive(Clone, Debug)]
struct HistoryQuery {
    names: Scope,
    limit: usize,
    token: u64,
    within_ms: u64,
}

/// The time of this node's clocks when it was asked.
#[derive(Clone, Copy, Debug)]
struct Now {
    logical: LogicalTime,
    unix_ms: u64,
}

/// What was found, the latest last.
#[derive(Debug, Default)]
struct FoundEvents {
    events: VecDeque<WatchEvent>,
    bytes: usize,
    is_cut: bool,
}

pub(in crate::rpc) async fn serve(
    rpc: &Rpc,
    caller: Caller,
    request: HistoryRequest,
) -> Result<HistoryResponse, Failure> {
    const METHOD: Method = Method::History;
    let _permit = rpc.door.begin(METHOD)?;
    let ask = HistoryQuery::decode(&request)?;
    let group = rpc.membership.groups.owner_of(&request.name);
    let ask = rpc.door.authorise(&caller, METHOD, ask.names.about())?.admit(ask);
    let read = async {
        match rpc.destination(&caller, METHOD, group).await? {
            Destination::Here => here(rpc, group, ask).await.map(|mut response| {
                let visible = rpc.door.service().visible_names(&caller);
                if !visible.are_all() {
                    let events = response.events.iter_mut();
                    events.for_each(|event| hidden_names::in_event(event, &visible));
                }
                response
            }),
            Destination::At(leader) => rpc.forwarding.call(leader, &caller, METHOD, &request).await,
        }
    };
    changes_nothing(timeout(CALL_TIMEOUT, read).await.unwrap_or_else(|_| Err(took_too_long())))
}

async fn here(
    rpc: &Rpc,
    group: GroupId,
    action: Admitted<HistoryQuery>,
) -> Result<HistoryResponse, Failure> {
    let (at, _) = owners_now(rpc, group, &action, Vec::new()).await?;
    let now = Now { logical: at, unix_ms: unix_ms() };
    // One at a time: each goes through all that is kept.
    let only = rpc.histories.acquire().await.map_err(|_| bug("it is never closed"))?;
    let (events, ask) = (Arc::clone(rpc.events.of(group)), action.get().clone());
    let looking = tokio::task::spawn_blocking(move || {
        let response = ask.answer(&events, now);
        let sessions = response.events.iter().map(|event| event.public_session_id.as_str());
        let known = opened_lately(&events, sessions);
        (response, known)
    });
    let (mut response, mut known) = looking.await.map_err(|_| bug("looking back panicked"))?;
    drop(only);
    let unknown = known.iter().filter(|(_, owner)| owner.is_none()).map(|(id, _)| *id).collect();
    for (session, owner) in owners_now(rpc, group, &action, unknown).await?.1 {
        known.insert(session, Some(owner));
    }
    let known = known.into_iter().filter_map(|(session, owner)| Some((session, owner?)));
    response.owners = known
        .map(|(session, known)| SessionOwner {
            public_session_id: session.to_string(),
            owner: Some(owner(known)),
        })
        .collect();
    Ok(response)
}

async fn owners_now(
    rpc: &Rpc,
    group: GroupId,
    action: &Admitted<HistoryQuery>,
    sessions: Vec<PublicSessionId>,
) -> Result<(LogicalTime, Vec<(PublicSessionId, Owner)>), Failure> {
    let query = Query::Owners(sessions);
    let ReadAnswer { at, data, .. } = rpc.door.read_for(group, action, query).await?;
    let ReadData::Owners(owners) = data else {
        return Err(bug("the shard read something else"));
    };
    Ok((at, owners))
}

/// The sessions by their public ids, with their owners where the ring tells of their beginning.
pub(in crate::rpc) fn opened_lately<'a>(
    ring: &EventRing,
    sessions: impl Iterator<Item = &'a str>,
) -> BTreeMap<PublicSessionId, Option<Owner>> {
    let ids = sessions.filter_map(|id| u64::from_str_radix(id, 16).ok().map(PublicSessionId));
    let mut sessions: BTreeMap<_, _> = ids.map(|id| (id, None)).collect();
    ring.look_through(|recorded| {
        if let Event::SessionOpened { public, owner, .. } = &recorded.event
            && let Some(known) = sessions.get_mut(public)
        {
            *known = Some(Owner::clone(owner));
        }
    });
    sessions
}

impl HistoryQuery {
    fn decode(request: &HistoryRequest) -> Result<HistoryQuery, Failure> {
        let name = lock_name(&request.name)?;
        let limit = match usize::try_from(request.limit) {
            Ok(0) => DEFAULT_LIMIT,
            Ok(limit) if limit <= LIMIT_MAX => limit,
            _ => {
                let words = format!("limit {} is too large; at most {LIMIT_MAX}", request.limit);
                return Err(refused(Reason::InvalidPage, words));
            }
        };
        let names = Scope::Only(name.as_str().to_owned());
        Ok(HistoryQuery { names, limit, token: request.token, within_ms: request.within_ms })
    }

    /// Without the owners.
    fn answer(&self, ring: &EventRing, now: Now) -> HistoryResponse {
        let oldest = ring.oldest();
        let kept_after = if ring.is_whole() { Position::start_of(oldest.group) } else { oldest };
        let first_kept = ring.after(oldest, 1).unwrap_or_default();
        let mut found = FoundEvents::default();
        // The holds that had the token: by session and acquire.
        let mut holds: BTreeSet<(String, u64)> = BTreeSet::new();
        let mut latest_kill = None;
        ring.look_through(|recorded| {
            latest_kill = Kill::of(&recorded).or(latest_kill.take());
            let age_ms = now.logical.since(recorded.at).as_ms();
            let is_recent = self.within_ms == 0 || age_ms <= self.within_ms;
            if !is_recent || !concerns(&recorded.event, &self.names) {
                return;
            }
            let mut event = WatchEvent { unix_ms: now.when(&recorded), ..message(&recorded) };
            if let Some(kill) = &latest_kill {
                kill.explain(&recorded.event, &mut event);
            }
            if self.token > 0 {
                let hold = (event.public_session_id.clone(), event.request_id);
                if event.token == self.token {
                    holds.insert(hold);
                } else if !holds.contains(&hold) {
                    return;
                }
            }
            found.take(event, self.limit);
        });
        HistoryResponse {
            events: found.events.into(),
            is_cut: found.is_cut,
            kept_after: Some(kept_after.into()),
            kept_since_unix_ms: first_kept.first().map(|recorded| now.when(recorded)),
            owners: Vec::new(),
            unix_ms: now.unix_ms,
            logical_time_ms: now.logical.as_ms(),
        }
    }
}

/// Sessions that an operator ended, or a change of the policy. Only that is about no lock. What it ended follows in the
/// same log entry, and that of a session with very many locks in later ones.
#[derive(Debug)]
struct Kill {
    index: u64,
    /// None: all that end as killed.
    session: Option<String>,
    by: String,
    detail: String,
}

impl Kill {
    fn of(recorded: &Recorded) -> Option<Kill> {
        let session = match &recorded.event {
            Event::Intervened(intervention) => match &intervention.action {
                Action::KillSession { session } => Some(session.to_string()),
                _ => return None,
            },
            Event::AccessChanged { change, .. } if change.end_sessions => None,
            Event::PolicyAdopted { .. } => None,
            _ => return None,
        };
        let WatchEvent { by, detail, .. } = message(recorded);
        Some(Kill { index: recorded.position.index, session, by, detail })
    }

    /// Tells whose doing it was, if it was this.
    fn explain(&self, recorded: &Event, event: &mut WatchEvent) {
        let index = event.position.map(|position| position.index);
        let is_mine = match &self.session {
            Some(session) => index >= Some(self.index) && *session == event.public_session_id,
            None => index == Some(self.index),
        };
        let is_end = match recorded {
            Event::HoldEnded { reason, .. } => *reason == EndReason::Killed,
            Event::WaitEnded { outcome, .. } => {
                *outcome == Outcome::Rejected(Rejection::UnknownSession)
            }
            _ => false,
        };
        if is_mine && is_end {
            event.by.clone_from(&self.by);
            event.detail.clone_from(&self.detail);
        }
    }
}

impl Now {
    /// When it happened, by the wall clock. What was applied again after a restart is recorded with the time
    /// of that; by the cluster's own clock it is so long ago, or longer, because that clock stands still
    /// while there is no leader.
    fn when(&self, recorded: &Recorded) -> u64 {
        let age_ms = self.logical.since(recorded.at).as_ms();
        let reckoned = self.unix_ms.saturating_sub(age_ms);
        let slack_ms = CLOCK_SLACK_MS + age_ms / 100;
        if recorded.unix_ms > reckoned.saturating_add(slack_ms) {
            return reckoned;
        }
        recorded.unix_ms
    }
}

impl FoundEvents {
    fn take(&mut self, event: WatchEvent, limit: usize) {
        self.bytes += event.encoded_len();
        self.events.push_back(event);
        while self.events.len() > limit || self.bytes > BYTES_MAX {
            let Some(oldest) = self.events.pop_front() else { return };
            self.bytes -= oldest.encoded_len();
            self.is_cut = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use holdfast_core::command::Mode;
    use holdfast_core::{ActorId, FenceToken, LockName, LogIndex, RequestId, SessionId};
    use holdfast_proto::v1::{EndReason, EventKind};

    use super::*;

    const SESSION: SessionId = SessionId(1 << 100);
    const REQUEST: RequestId = RequestId(7);

    fn name() -> LockName {
        LockName::new("a").unwrap()
    }

    fn granted(token: u64, metadata_bytes: usize) -> Event {
        Event::Granted {
            name: name(),
            session: SESSION,
            request: REQUEST,
            actor: ActorId(1),
            mode: Mode::Shared,
            token: FenceToken(token),
            metadata: vec![0; metadata_bytes].into(),
        }
    }

    fn converted(token: u64) -> Event {
        Event::Converted {
            name: name(),
            session: SESSION,
            request: REQUEST,
            mode: Mode::Exclusive,
            token: FenceToken(token),
            metadata: Box::default(),
        }
    }

    fn released(token: u64, granted_at: u64) -> Event {
        let granted_at = LogicalTime::from_ms(granted_at);
        let (session, request) = (SESSION, REQUEST);
        Event::Released {
            name: name(),
            session,
            request,
            token: FenceToken(token),
            granted_at,
            by_close: false,
        }
    }

    /// Each an entry of its own, a second after the one before.
    fn ring(events: impl IntoIterator<Item = Event>, unix_ms: u64) -> EventRing {
        let ring = EventRing::of_root(1_000);
        ring.restart_after(0);
        let happened = (1..).zip(events);
        let happened = happened
            .map(|(index, event)| (LogIndex(index), LogicalTime::from_ms(index * 1_000), event));
        ring.record(&mut happened.collect(), unix_ms, None);
        ring
    }

    fn ask(token: u64, limit: usize, within_ms: u64) -> HistoryQuery {
        HistoryQuery { names: Scope::Only("a".to_owned()), limit, token, within_ms }
    }

    const NOW: Now = Now { logical: LogicalTime::from_ms(60_000), unix_ms: 1_000_000 };

    #[test]
    fn history_shows_a_hold_to_its_end_though_its_token_changed() {
        let other = Event::Granted {
            name: name(),
            session: SessionId(2 << 100),
            request: REQUEST,
            actor: ActorId(1),
            mode: Mode::Shared,
            token: FenceToken(9),
            metadata: Box::default(),
        };
        let ring = ring([granted(3, 0), converted(5), other, released(5, 1_000)], 0);
        let told = |token| {
            let events = ask(token, 10, 0).answer(&ring, NOW).events;
            events.iter().map(|event| (event.kind(), event.token)).collect::<Vec<_>>()
        };
        let converted_and_released = [(EventKind::Converted, 5), (EventKind::Released, 5)];
        assert_eq!(told(3), [&[(EventKind::Granted, 3)], &converted_and_released[..]].concat());
        assert_eq!(told(5), converted_and_released);
        assert_eq!(told(4), []);
        assert_eq!(told(0).len(), 4);
        let events = ask(5, 10, 0).answer(&ring, NOW).events;
        assert_eq!(events.last().unwrap().held_for_ms, Some(3_000));
    }

    #[test]
    fn history_tells_a_release_from_a_close() {
        let mut closed = released(3, 1_000);
        if let Event::Released { by_close, .. } = &mut closed {
            *by_close = true;
        }
        let ring = ring([granted(3, 0), closed, granted(4, 0), released(4, 3_000)], 0);
        let events = ask(0, 10, 0).answer(&ring, NOW).events;
        let reasons: Vec<_> = events.iter().map(|event| (event.kind(), event.reason())).collect();
        let [_, closed, _, released] = reasons[..] else { panic!("{reasons:?}") };
        assert_eq!(closed, (EventKind::Released, EndReason::Closed));
        assert_eq!(released, (EventKind::Released, EndReason::Unspecified));
    }

    #[test]
    fn history_returns_the_latest_events_and_whether_there_were_more() {
        let ring = ring((1..=5).map(|token| granted(token, 0)), 0);
        let answer = ask(0, 2, 0).answer(&ring, NOW);
        let tokens: Vec<u64> = answer.events.iter().map(|event| event.token).collect();
        assert_eq!((tokens, answer.is_cut), (vec![4, 5], true));
        let answer = ask(0, 5, 0).answer(&ring, NOW);
        assert_eq!((answer.events.len(), answer.is_cut), (5, false));
        let lately = ask(0, 5, 57_000).answer(&ring, NOW);
        assert_eq!((lately.events.len(), lately.is_cut), (3, false));
    }

    #[test]
    fn a_history_answer_fits_into_a_message_whatever_the_metadata() {
        // Each is a little more than what its holder says.
        let large = BYTES_MAX / 4 - 1_000;
        let ring = ring((1..=6).map(|token| granted(token, large)), 0);
        let answer = ask(0, 100, 0).answer(&ring, NOW);
        assert_eq!((answer.events.len(), answer.is_cut), (4, true));
    }

    #[test]
    fn event_times_after_a_restart_are_derived_from_the_clusters_clock() {
        // Both happened at 1 s and 2 s of the cluster's time, which is 60 s now.
        let again = ring([granted(1, 0), granted(2, 0)], NOW.unix_ms - 1_000);
        let answer = ask(0, 9, 0).answer(&again, NOW);
        let times: Vec<u64> = answer.events.iter().map(|event| event.unix_ms).collect();
        assert_eq!(times, [NOW.unix_ms - 59_000, NOW.unix_ms - 58_000]);
        assert_eq!(answer.kept_since_unix_ms, Some(NOW.unix_ms - 59_000));
        // At once, with clocks that are a little apart; and there was no leader for a while.
        for recorded in [NOW.unix_ms - 58_800, NOW.unix_ms - 90_000] {
            let at_once = ring([granted(1, 0)], recorded);
            assert_eq!(ask(0, 9, 0).answer(&at_once, NOW).events[0].unix_ms, recorded);
        }
    }

    #[test]
    fn history_names_the_time_since_when_it_is_complete() {
        let ring = EventRing::of_root(2);
        ring.restart_after(0);
        let empty = ask(0, 9, 0).answer(&ring, NOW);
        assert_eq!((empty.kept_after.unwrap().index, empty.kept_since_unix_ms), (0, None));
        let events = (1..=5).map(|index| (LogIndex(index), NOW.logical, granted(index, 0)));
        ring.record(&mut events.collect(), 5, None);
        let answer = ask(0, 9, 0).answer(&ring, NOW);
        assert_eq!((answer.kept_after.unwrap().index, answer.kept_since_unix_ms), (3, Some(5)));
    }

    fn hold_ended(session: SessionId, reason: holdfast_core::EndReason) -> Event {
        Event::HoldEnded {
            name: name(),
            session,
            request: REQUEST,
            token: FenceToken(1),
            granted_at: LogicalTime::ZERO,
            reason,
        }
    }

    fn policy_changed() -> Event {
        let (by, changes) = ("token:root".into(), [].into());
        let change = holdfast_core::ChangeAccess {
            by,
            identity: None,
            expected: None,
            changes,
            end_sessions: true,
        };
        Event::AccessChanged { change: Box::new(change), generation: 2 }
    }

    /// In one entry.
    fn blamed(events: Vec<Event>) -> Vec<String> {
        let ring = EventRing::of_root(1_000);
        ring.restart_after(0);
        let happened = events.into_iter().map(|event| (LogIndex(1), NOW.logical, event));
        ring.record(&mut happened.collect(), 0, None);
        let answer = ask(0, 10, 0).answer(&ring, NOW);
        answer.events.into_iter().map(|event| event.by).collect()
    }

    #[test]
    fn a_change_of_the_policy_is_blamed_for_the_sessions_that_it_ended_and_no_others() {
        use holdfast_core::EndReason;
        let killed = hold_ended(SESSION, EndReason::Killed);
        assert_eq!(blamed(vec![policy_changed(), killed]), ["token:root"]);
        // Its time was over in the same entry.
        let expired = hold_ended(SESSION, EndReason::SessionExpired);
        assert_eq!(blamed(vec![policy_changed(), expired]), [""]);
        let other_wait = |outcome| Event::WaitEnded {
            names: holdfast_core::Names::One(name()),
            session: SESSION,
            request: REQUEST,
            outcome,
        };
        let ended = other_wait(Outcome::Rejected(Rejection::UnknownSession));
        assert_eq!(blamed(vec![policy_changed(), ended]), ["token:root"]);
        assert_eq!(blamed(vec![policy_changed(), other_wait(Outcome::TimedOut)]), [""]);
    }
}
