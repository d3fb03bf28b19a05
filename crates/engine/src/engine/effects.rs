//! How the engine carries out the effects of its replicas.

use std::collections::BTreeMap;

use holdfast_core::{Event, LogicalTime, Outcome, SessionId};
use holdfast_replica::{Effect as ReplicaEffect, GroupId, Leadership, NodeId, Outgoing, Ticket};

use super::{Engine, Group, ROOT};
use crate::answer::{Delivery, StreamKey, Touched, Unavailable};
use crate::callers::{Answered, Callers, Outbound, Touches};
use crate::effect::{Effect, TierChange};
use crate::heartbeats::is_deferrable;
use crate::host::Host;
use crate::planted::Bug;
use crate::query::{Query, ReadAnswer, ReadData, WholeState};

impl<H: Host> Engine<H> {
    pub(super) fn carry_out(&mut self, id: GroupId, effect: ReplicaEffect) {
        let Some(Group { callers, is_leader, is_removed, events, .. }) = self.groups.get_mut(id)
        else {
            return;
        };
        let out = &mut self.out;
        match effect {
            ReplicaEffect::Send(message) => add_to_batch(&mut self.turn.outgoing, out, id, message),
            ReplicaEffect::Answer { ticket, at, outcome } => {
                let begins = match &outcome {
                    Outcome::SessionOpen { ttl, .. } => Some(*ttl),
                    _ => None,
                };
                match callers.answer(ticket, at, outcome, out) {
                    Answered::On(stream) => {
                        if let (Some(stream), Some(ttl)) = (stream, begins) {
                            let is_deferrable = is_deferrable(ttl, self.config.tick);
                            out.effects.push(Effect::StreamServed { stream, is_deferrable });
                            self.notify_losses(id, stream);
                        }
                    }
                    Answered::LastOf(touches) => self.answer_touches(id, at, touches),
                }
            }
            ReplicaEffect::Failed { ticket, reason } => callers.fail(ticket, reason.into(), out),
            ReplicaEffect::Read { ticket } => self.serve_read(id, ticket),
            ReplicaEffect::Happened { index, at, event } => {
                out.host.happened(id, *is_leader, at, &event);
                notify_streams(id, callers, at, &event, out);
                if id == ROOT
                    && self.now.is_tier_in_use
                    && let Some(session) = session_ended_by(&event)
                {
                    out.effects.push(Effect::Tier(TierChange::SessionEnded(session)));
                }
                events.push((index, at, event));
            }
            ReplicaEffect::LeadershipChanged(leadership) => self.leadership_changed(id, leadership),
            ReplicaEffect::ChangeEnded { ticket, result } => {
                callers.change_ended(ticket, result, out);
            }
            ReplicaEffect::MembershipChanged { index, members } => {
                *is_removed |= members.was_removed(self.config.node);
                out.effects.push(Effect::MembershipChanged { group: id, index, members });
                if id == ROOT {
                    self.groups.follow_root_members();
                }
                self.report_members();
            }
            ReplicaEffect::SaveSnapshot(file) => {
                out.effects.push(Effect::SaveSnapshot { group: id, file });
            }
            ReplicaEffect::BackupMade { ticket, cluster, at, file } => {
                let Some((_, reply)) = callers.take_read(ticket, &mut out.host) else { return };
                let state = WholeState { cluster, logical_time: at, file };
                let applied_index = state.file.index;
                let data = ReadData::Snapshot(state);
                out.answer_read(reply, Ok(ReadAnswer { at, applied_index, data }));
            }
        }
    }

    /// A client that resumes its session may have missed the loss of holds.
    fn notify_losses(&mut self, group: GroupId, stream: StreamKey) {
        let Some(Group { replica, .. }) = self.groups.get(group) else { return };
        let losses = replica.table().losses(stream.session);
        if !losses.is_empty() && !Bug::ResumeLosesLoss.is_active() {
            self.out.streams.send(stream, Delivery::Losses(losses));
        }
    }

    /// Answers a call with heartbeats (`Touch`) of several sessions: the time that each session has left, or `None` if
    /// it has ended. The table is read once, after the last heartbeat was applied. A session that exists then has its
    /// full TTL: its heartbeat extended it, or it was opened since. Exception: if the identity of the session was
    /// revoked, the lock table rejected the heartbeat, and the session keeps its old deadline.
    fn answer_touches(&mut self, group: GroupId, at: LogicalTime, touches: Touches<H>) {
        let Some(Group { replica, .. }) = self.groups.get(group) else { return };
        let Touches { sessions, reply: to } = touches;
        let ttl = |session: SessionId| replica.table().session_time_left(session);
        let ttls: Vec<_> = sessions.into_iter().map(ttl).collect();
        let known = ttls.iter().flatten().count();
        self.out.host.touches_settled(known, ttls.len() - known);
        self.out.effects.push(Effect::AnswerTouches { to, answer: Ok(Touched { at, ttls }) });
    }

    pub(super) fn serve_read(&mut self, group: GroupId, ticket: Ticket) {
        let Some(Group { replica, callers, .. }) = self.groups.get_mut(group) else { return };
        if callers.reads_everything(ticket) {
            return replica.handle_backup(ticket);
        }
        let Some((query, reply)) = callers.take_read(ticket, &mut self.out.host) else { return };
        let (table, leadership) = (replica.table(), replica.leadership());
        if let (Query::Confirm { asked } | Query::Admit { asked, .. }, ROOT) = (&query, group)
            && let Some(until) = self.tier.lease.confirm(leadership, *asked)
        {
            let confirm = TierChange::Confirm { term: leadership.term, until };
            self.out.effects.push(Effect::Tier(confirm));
        }
        if let (Query::Admit { session, .. }, ROOT) = (&query, group)
            && let Some(known) = table.session(*session)
        {
            let session = *session;
            let admit = TierChange::Admit { session, public: known.public, owner: known.owner };
            self.out.effects.push(Effect::Tier(admit));
            self.now.is_tier_in_use = true;
        }
        // A query for the whole state has no data here: the early return above gave it to the replica.
        let Some(data) = query.read(table) else { return };
        let applied_index = replica.applied_index();
        self.out.answer_read(reply, Ok(ReadAnswer { at: replica.now(), applied_index, data }));
    }

    /// If this node no longer leads the group, ends the group's streams and fails its parked requests. (A parked
    /// request is a queued acquire whose caller waits for the answer.) Other groups go on.
    fn leadership_changed(&mut self, group: GroupId, leadership: Leadership) {
        let Leadership { leader, is_here, .. } = leadership;
        let Some(Group { callers, is_leader, .. }) = self.groups.get_mut(group) else { return };
        *is_leader = is_here;
        let out = &mut self.out;
        let ends_streams = if is_here {
            group == ROOT && self.begin_tier_term(leadership.term)
        } else {
            let reason = Unavailable::LeadershipLost { leader };
            callers.fail_parked(reason, out);
            if group == ROOT {
                self.end_tier_term(reason);
            }
            true
        };
        if ends_streams {
            let last_delivery = || Delivery::LeaderMoved { leader };
            self.out.streams.end_group(group, last_delivery);
        }
        if group == ROOT {
            self.tier.lease.forget();
        }
        if !is_here {
            self.plant_bugs_of_lost_group(group, leader);
        }
        self.out.effects.push(Effect::Deliver);
        self.out.effects.push(Effect::LeadershipChanged { group, leadership });
    }

    /// Starts a term of the efficiency tier: this node now leads the root group. Returns whether the engine must end
    /// the streams of the root group.
    fn begin_tier_term(&mut self, term: u64) -> bool {
        if self.tier.term.replace(term) == Some(term) {
            return false;
        }
        let opens = self.tier.lease.opens(self.now.boot);
        self.out.effects.push(Effect::Tier(TierChange::BeginTerm { term, opens }));
        // If the tier is still in use, this node lost the leadership and won it again in a later term. Its clients did
        // not notice. The engine ends their streams, so that they resume their sessions and learn the new term.
        std::mem::take(&mut self.now.is_tier_in_use)
    }

    fn end_tier_term(&mut self, reason: Unavailable) {
        self.now.is_tier_in_use = false;
        self.tier.term = None;
        self.out.effects.push(Effect::Tier(TierChange::EndTerm { reason }));
    }

    fn plant_bugs_of_lost_group(&mut self, lost: GroupId, leader: Option<NodeId>) {
        let reason = Unavailable::LeadershipLost { leader };
        if Bug::LostGroupEndsAllStreams.is_active() {
            self.out.streams.end_all(|| Delivery::LeaderMoved { leader });
            for group in self.groups.inputs() {
                group.callers.fail_parked(reason, &mut self.out);
            }
        }
        if Bug::LostGroupForgetsOtherCallers.is_active() {
            for group in self.groups.inputs().filter(|group| group.id != lost) {
                group.callers.forget_parked();
            }
        }
    }
}

/// The session that this event tells to have ended. A large session has two such events, and the first decides: the
/// efficiency tier must not serve it until the last of its replicated holds has ended.
fn session_ended_by(event: &Event) -> Option<SessionId> {
    match event {
        Event::SessionEnding { session, .. } if !Bug::TierServesEndingSession.is_active() => {
            Some(*session)
        }
        Event::SessionEnded { session, .. } => Some(*session),
        _ => None,
    }
}

/// Only a leader has parked callers and open streams.
fn notify_streams<H: Host>(
    group: GroupId,
    callers: &mut Callers<H>,
    at: LogicalTime,
    event: &Event,
    out: &mut Outbound<H>,
) {
    match event {
        Event::WaitEnded { session, request, outcome, .. } => {
            callers.wait_ended((*session, *request), at, outcome, out);
        }
        Event::HoldEnded { name, session, request, token, reason, .. } => {
            let (name, token, acquire) = (name.clone(), *token, *request);
            let notice = Delivery::HoldEnded { name, token, acquire, reason: *reason };
            out.streams.send_to_session(group, *session, notice);
        }
        // The efficiency tier frees the locks of a large session at the decision, so its client is told then. It is told
        // again at the end, if it still has a stream.
        Event::SessionEnding { session, reason, .. }
        | Event::SessionEnded { session, reason, .. } => {
            let notice = Delivery::SessionEnded { reason: *reason };
            out.streams.send_to_session(group, *session, notice);
        }
        Event::SessionOpened { .. }
        | Event::Granted { .. }
        | Event::Queued { .. }
        | Event::Refused { .. }
        | Event::Converted { .. }
        | Event::Proclaimed { .. }
        | Event::Released { .. }
        | Event::Reopened { .. }
        | Event::Intervened(_)
        | Event::AccessChanged { .. }
        | Event::PolicyAdopted { .. }
        | Event::OwnershipChanged { .. }
        | Event::HoldMovedIn { .. }
        | Event::Thawed { .. } => {}
    }
}

/// Adds a message to its peer's batch. A snapshot is sent separately.
pub(super) fn add_to_batch<H: Host>(
    outgoing: &mut BTreeMap<NodeId, Vec<(GroupId, Vec<u8>)>>,
    out: &mut Outbound<H>,
    group: GroupId,
    message: Outgoing,
) {
    let Outgoing { to, message, is_snapshot } = message;
    if is_snapshot {
        out.effects.push(Effect::SendSnapshot { to, group, message });
    } else {
        outgoing.entry(to).or_default().push((group, message));
    }
}
