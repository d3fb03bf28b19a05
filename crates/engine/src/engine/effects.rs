//! How the engine carries out the effects of its replicas.

use std::collections::BTreeMap;

use holdfast_core::{Event, LogicalTime, Outcome, SessionId};
use holdfast_replica::{Effect as ReplicaEffect, GroupId, Leadership, NodeId, Outgoing, Ticket};

use super::{Engine, Group};
use crate::answer::{Delivery, StreamKey, Touched, Unavailable};
use crate::callers::{Answered, Outbound, Touches};
use crate::effect::{Effect, TierChange};
use crate::heartbeats::is_deferrable;
use crate::host::Host;
use crate::planted::Bug;
use crate::query::{Query, ReadAnswer, ReadData, WholeState};

impl<H: Host> Engine<H> {
    pub(super) fn carry_out(&mut self, id: GroupId, effect: ReplicaEffect) {
        let Some(Group { callers, is_leader, .. }) = self.groups.get_mut(&id) else { return };
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
                out.host.happened(*is_leader, at, &event);
                self.notify_streams(id, at, &event);
                self.turn.unpublished_events.push((index, at, event));
            }
            ReplicaEffect::LeadershipChanged(leadership) => self.leadership_changed(id, leadership),
            ReplicaEffect::ChangeEnded { ticket, result } => {
                callers.change_ended(ticket, result, out);
            }
            ReplicaEffect::MembershipChanged { index, members } => {
                self.is_removed |= members.was_removed(self.config.node);
                out.effects.push(Effect::MembershipChanged { index, members });
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
        let Some(Group { replica, .. }) = self.groups.get(&group) else { return };
        let losses = replica.table().losses(stream.session);
        if !losses.is_empty() && !Bug::ResumeLosesLoss.is_active() {
            self.out.streams.send(stream, Delivery::Losses(losses));
        }
    }

    /// A session that exists now existed when it was touched, or began since. In both cases it has its full TTL, unless its
    /// principal was revoked: then the touch was rejected, and the time goes on that it had.
    fn answer_touches(&mut self, group: GroupId, at: LogicalTime, touches: Touches<H>) {
        let Some(Group { replica, .. }) = self.groups.get(&group) else { return };
        let Touches { sessions, reply: to } = touches;
        let ttl = |session: SessionId| replica.table().session_time_left(session);
        let ttls: Vec<_> = sessions.into_iter().map(ttl).collect();
        let known = ttls.iter().flatten().count();
        self.out.host.touches_settled(known, ttls.len() - known);
        self.out.effects.push(Effect::AnswerTouches { to, answer: Ok(Touched { at, ttls }) });
    }

    pub(super) fn serve_read(&mut self, group: GroupId, ticket: Ticket) {
        let Some(Group { replica, callers, .. }) = self.groups.get_mut(&group) else { return };
        if callers.reads_everything(ticket) {
            return replica.handle_backup(ticket);
        }
        let Some((query, reply)) = callers.take_read(ticket, &mut self.out.host) else { return };
        let (table, leadership) = (replica.table(), replica.leadership());
        if let Query::Confirm { asked } | Query::Admit { asked, .. } = query
            && let Some(until) = self.tier.lease.confirm(leadership, asked)
        {
            let confirm = TierChange::Confirm { term: leadership.term, until };
            self.out.effects.push(Effect::Tier(confirm));
        }
        if let Query::Admit { session, .. } = query
            && let Some(known) = table.session(session)
        {
            let admit = TierChange::Admit { session, public: known.public, owner: known.owner };
            self.out.effects.push(Effect::Tier(admit));
            self.now.is_tier_in_use = true;
        }
        // A snapshot was handed to the replica above.
        let Some(data) = query.read(table) else { return };
        let applied_index = replica.applied_index();
        self.out.answer_read(reply, Ok(ReadAnswer { at: replica.now(), applied_index, data }));
    }

    /// Only a leader has parked callers and open streams.
    fn notify_streams(&mut self, group: GroupId, at: LogicalTime, event: &Event) {
        let out = &mut self.out;
        match event {
            Event::WaitEnded { session, request, outcome, .. } => {
                if let Some(Group { callers, .. }) = self.groups.get_mut(&group) {
                    callers.wait_ended((*session, *request), at, outcome, out);
                }
            }
            Event::HoldEnded { name, session, request, token, reason, .. } => {
                let (name, token, acquire) = (name.clone(), *token, *request);
                let notice = Delivery::HoldEnded { name, token, acquire, reason: *reason };
                out.streams.send_to_session(*session, notice);
            }
            Event::SessionEnded { session, reason, .. } => {
                out.streams.send_to_session(*session, Delivery::SessionEnded { reason: *reason });
                if self.now.is_tier_in_use {
                    out.effects.push(Effect::Tier(TierChange::SessionEnded(*session)));
                }
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
            | Event::OwnershipChanged { .. }
            | Event::Thawed { .. } => {}
        }
    }

    fn leadership_changed(&mut self, group: GroupId, leadership: Leadership) {
        let Leadership { leader, is_here, term } = leadership;
        let Some(Group { callers, is_leader, .. }) = self.groups.get_mut(&group) else { return };
        *is_leader = is_here;
        let was_tier_in_use = std::mem::take(&mut self.now.is_tier_in_use);
        let out = &mut self.out;
        let last_delivery = || Delivery::LeaderMoved { leader };
        if !is_here {
            let reason = Unavailable::LeadershipLost { leader };
            callers.fail_parked(reason, out);
            self.tier.term = None;
            out.effects.push(Effect::Tier(TierChange::EndTerm { reason }));
            out.streams.end_all(last_delivery);
        } else if self.tier.term.replace(term) != Some(term) {
            let opens = self.tier.lease.opens(self.now.boot);
            out.effects.push(Effect::Tier(TierChange::BeginTerm { term, opens }));
            if was_tier_in_use {
                // This node lost leadership and won it back before its clients noticed. Clients that resume learn the
                // new term.
                out.streams.end_all(last_delivery);
            }
        } else {
            self.now.is_tier_in_use = was_tier_in_use;
        }
        self.tier.lease.forget();
        out.effects.push(Effect::Deliver);
        out.effects.push(Effect::LeadershipChanged { group, leadership });
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
