//! What each effect asks for.

use std::collections::BTreeMap;
use std::time::Instant;

use holdfast_core::{Event, LogicalTime, Outcome, Part, PublicSessionId, SessionId};
use holdfast_replica::{Effect, GroupId, Leadership, NodeId, Outgoing, Ticket};

use super::Driver;
use super::callers::{Answered, Touches};
use super::inbox::{
    Delivery, Query, ReadAnswer, ReadData, StreamKey, Touched, Unavailable, WholeState,
};
use super::measure::{self, SnapshotTimes};
use crate::boot_clock::BootTime;
use crate::metrics::{Kind, Settled};
use crate::peers::PeerLinks;

/// Locks that one part of a survey looks at, so that nobody else waits for it for long.
const SURVEY_LOCKS_MAX: usize = 1_000;

impl Driver {
    pub(super) fn carry_out(&mut self, group: GroupId, effect: Effect) {
        match effect {
            Effect::Send(message) => {
                let times = &mut self.snapshot_times;
                post(&mut self.outgoing, times, &self.links, group, message);
            }
            Effect::Answer { ticket, at, outcome } => {
                let begins = match &outcome {
                    Outcome::SessionOpen { ttl, .. } => Some(*ttl),
                    _ => None,
                };
                match self.callers.answer(ticket, at, outcome, &mut self.streams) {
                    Answered::On(stream) => {
                        if let (Some(stream), Some(ttl)) = (stream, begins) {
                            self.streams.begin(stream, ttl, self.tick);
                            self.tell_losses(group, stream);
                        }
                    }
                    Answered::LastOf(touches) => self.tell_touched(group, at, touches),
                }
            }
            Effect::Failed { ticket, reason } => {
                self.callers.fail(ticket, reason.into(), &mut self.streams);
            }
            Effect::Read { ticket } => self.serve_read(group, ticket),
            Effect::Happened { index, at, event } => {
                self.tell_those_concerned(group, at, &event);
                if self.leads {
                    measure::event(&self.metrics, at, &event);
                }
                if let Some(traces) = &self.traces {
                    traces.happened(&event);
                }
                self.happened.push((index, at, event));
            }
            Effect::LeadershipChanged(leadership) => self.leadership_changed(group, leadership),
            Effect::ChangeEnded { ticket, result } => self.callers.change_ended(ticket, result),
            Effect::MembershipChanged { index, members } => self.members_changed(index, members),
            Effect::SaveSnapshot(file) => {
                let bytes = file.data.len() as u64;
                self.snapshot_times.saving = Some((Instant::now(), bytes));
                self.log.save(group, file);
            }
            Effect::BackupMade { ticket, cluster, at, file } => {
                let Some((_, reply)) = self.callers.take_read(ticket) else { return };
                let state = WholeState { cluster, logical_time: at, file };
                let applied_index = state.file.index;
                let data = ReadData::Snapshot(state);
                reply.answer(Ok(ReadAnswer { at, applied_index, data }), &mut self.streams);
            }
        }
    }

    /// Whoever takes up its session again may have missed what was taken from it meanwhile.
    fn tell_losses(&mut self, group: GroupId, stream: StreamKey) {
        let Some(replica) = self.replicas.get(&group) else { return };
        let losses = replica.table().losses(stream.session);
        if !losses.is_empty() {
            self.streams.tell(stream, Delivery::Losses(losses));
        }
    }

    /// A session that is there now was there when it was touched, or has begun since: then it lives as long.
    fn tell_touched(&self, group: GroupId, at: LogicalTime, touches: Touches) {
        let Some(replica) = self.replicas.get(&group) else { return };
        let Touches { sessions, reply } = touches;
        let ttl = |session: SessionId| replica.table().session_ttl(session);
        let ttls: Vec<_> = sessions.into_iter().map(ttl).collect();
        let (all, known) = (ttls.len() as u64, ttls.iter().flatten().count() as u64);
        self.metrics.operations.add_many(Kind::Touch, Settled::Done, known);
        self.metrics.operations.add_many(Kind::Touch, Settled::Rejected, all - known);
        let _ = reply.send(Ok(Touched { at, ttls }));
    }

    fn serve_read(&mut self, group: GroupId, ticket: Ticket) {
        let Some(replica) = self.replicas.get_mut(&group) else { return };
        if self.callers.reads_everything(ticket) {
            return replica.handle_backup(ticket);
        }
        let Some((query, reply)) = self.callers.take_read(ticket) else { return };
        let table = replica.table();
        let data = match query {
            Query::Status { name, shown_max } => ReadData::Status(table.status(&name, shown_max)),
            Query::Why { name, shown_max } => ReadData::Why(table.why(&name, shown_max)),
            Query::Token { name, token } => ReadData::Token(table.token_standing(&name, token)),
            Query::Freezes => ReadData::Freezes(table.freezes()),
            Query::List { prefix, after, limit } => {
                ReadData::List(table.list(&prefix, after.as_deref(), limit))
            }
            Query::Sessions { after, limit } => ReadData::Sessions(table.sessions(after, limit)),
            Query::Owners(wanted) => {
                let open = |id: PublicSessionId| {
                    let before = id.0.checked_sub(1).map(PublicSessionId);
                    table.sessions(before, 1).pop().filter(|session| session.public == id)
                };
                let open = wanted.into_iter().filter_map(open);
                ReadData::Owners(open.map(|session| (session.public, session.owner)).collect())
            }
            Query::Confirm { asked } => {
                self.sureness.confirmed(&self.memory, replica.leadership(), asked);
                ReadData::Confirmed
            }
            Query::Admit { session, asked } => {
                let (known, leadership) = (table.session(session), replica.leadership());
                self.sureness.confirmed(&self.memory, leadership, asked);
                ReadData::Admitted(known.is_some_and(|known| {
                    self.memory.admit(session, known.public, known.owner);
                    true
                }))
            }
            Query::Survey { survey, after, above, found_max } => {
                let after = after.as_deref();
                let part = Part { after, locks_max: SURVEY_LOCKS_MAX, above, found_max };
                ReadData::Survey(table.survey(&survey, part))
            }
            // It was handed to the replica above.
            Query::Snapshot => return,
        };
        let applied_index = replica.applied_index();
        let answer = ReadAnswer { at: replica.now(), applied_index, data };
        reply.answer(Ok(answer), &mut self.streams);
    }

    /// Only a leader has anybody to tell: on a follower nobody is parked and no stream is open.
    fn tell_those_concerned(&mut self, group: GroupId, at: LogicalTime, event: &Event) {
        match event {
            Event::WaitEnded { session, request, outcome, .. } => {
                let wait = (group, *session, *request);
                self.callers.wait_ended(wait, at, outcome, &mut self.streams);
            }
            Event::HoldEnded { name, session, request, token, reason, .. } => {
                let (name, token, acquire) = (name.clone(), *token, *request);
                let notice = Delivery::HoldEnded { name, token, acquire, reason: *reason };
                self.streams.tell_session(*session, notice);
            }
            Event::SessionEnded { session, reason, .. } => {
                self.streams.tell_session(*session, Delivery::SessionEnded { reason: *reason });
                self.memory.session_ended(*session);
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
            | Event::Thawed { .. } => {}
        }
    }

    fn leadership_changed(&mut self, group: GroupId, leadership: Leadership) {
        let Leadership { leader, is_here, term } = leadership;
        let before = *self.leadership.borrow();
        if leader.is_some() && leader != before.leader {
            self.metrics.leader_changes.add(1);
        }
        self.leads = is_here;
        if let Some(traces) = &self.traces
            && !is_here
        {
            traces.forget();
        }
        if is_here && !(before.is_here && before.term == term) {
            self.metrics.elections_won.add(1);
        }
        tracing::info!(%group, term, is_here, leader = leader.map(|node| node.0), "leadership");
        if !is_here {
            let reason = Unavailable::LeadershipLost { leader };
            self.callers.fail_parked(group, reason, &mut self.streams);
            self.memory.end_term(reason);
            self.streams.end_all(|| Delivery::LeaderMoved { leader });
        } else if self.memory.begin_term(term, BootTime::now() + self.sureness.after_others()) {
            // It led before, and was back before anybody noticed. Whoever resumes learns the new term.
            self.streams.end_all(|| Delivery::LeaderMoved { leader });
        }
        self.sureness.forget();
        self.leadership.send_replace(leadership);
    }
}

/// Puts a message into its peer's batch; a snapshot goes its own way.
pub(super) fn post(
    outgoing: &mut BTreeMap<NodeId, Vec<(GroupId, Vec<u8>)>>,
    snapshot_times: &mut SnapshotTimes,
    links: &PeerLinks,
    group: GroupId,
    message: Outgoing,
) {
    if message.is_snapshot {
        snapshot_times.sending.insert(message.to, Instant::now());
        links.send_snapshot(message.to, group, message.message);
    } else {
        outgoing.entry(message.to).or_default().push((group, message.message));
    }
}
