//! How the engine handles its inputs. Inputs come between turns, or while the disk is full and the engine is halted. A
//! halted engine refuses them, or handles them later. `Bug` marks the sites of planted bugs: each is inactive except in
//! tests that have to find it.

use std::time::Duration;

use holdfast_core::command::Call;
use holdfast_core::{Command, LockName, RequestId, SessionId};
use holdfast_replica::{
    GroupId, HandOverRefusal, Member, MembershipChange, MessageError, NodeId, SnapshotMessage,
};

use super::full_disk::MissedInput;
use super::{Engine, Group, ROOT};
use crate::answer::{Answer, Delivery, ReplyTo, StreamKey, Unavailable};
use crate::callers::ReadReply;
use crate::effect::{Effect, TierChange};
use crate::host::Host;
use crate::peer_registry::{MEMBERS_SINCE, PUBLICATION_SINCE};
use crate::planted::Bug;
use crate::query::{Query, STATUS_SHOWN_MAX};
use crate::request_owners::{CallRef, LiveCall};

/// Inputs of clients, and the beginning and the end of their streams.
impl<H: Host> Engine<H> {
    /// One command, answered once. `call` is set for a unary call that is undone if its caller hangs up.
    pub fn call(
        &mut self,
        group: GroupId,
        command: Command,
        reply: H::Call,
        call: Option<CallRef>,
    ) {
        self.carry_out_deferred();
        self.commands(group, std::iter::once((command, ReplyTo::Call(reply), call)));
    }

    /// The operations of one client frame, each with the number under which it is answered.
    pub fn frame(&mut self, stream: StreamKey, operations: Vec<(RequestId, Command)>) {
        self.carry_out_deferred();
        self.operations(stream, operations);
    }

    /// As [`Engine::frame`], for a frame with a heartbeat alone, of a session with a long TTL. It starts no turn by
    /// itself: it is carried out before the next input of a client, or within one tick (`heartbeats.rs`).
    pub fn defer(&mut self, stream: StreamKey, operations: Vec<(RequestId, Command)>) {
        if self.heartbeats.push((stream, operations)) || self.is_halted() {
            self.carry_out_deferred();
        }
    }

    pub(super) fn carry_out_deferred(&mut self) {
        if self.heartbeats.is_empty() {
            return;
        }
        let deferred = self.heartbeats.take(self.now.monotonic + self.config.tick);
        for (stream, operations) in deferred {
            if !Bug::DeferredHeartbeatDropped.is_active() {
                self.operations(stream, operations);
            }
        }
    }

    fn operations(&mut self, stream: StreamKey, operations: Vec<(RequestId, Command)>) {
        let reply = |request| ReplyTo::Stream { stream, request };
        let commands = operations.into_iter();
        let mut group = stream.group;
        if Bug::HeartbeatCountedForAllGroups.is_active()
            && matches!(commands.as_slice(), [(_, Command::Touch { .. })])
        {
            group = ROOT;
        }
        self.commands(group, commands.map(|(request, command)| (command, reply(request), None)));
        self.deliver_if_halted();
    }

    /// Delivers refusals at once: while the disk is full no turn ends.
    fn deliver_if_halted(&mut self) {
        if self.is_halted() {
            self.out.effects.push(Effect::Deliver);
        }
    }

    fn commands(
        &mut self,
        id: GroupId,
        commands: impl Iterator<Item = (Command, ReplyTo<H::Call>, Option<CallRef>)>,
    ) {
        let refusal = self.refusal(id);
        let out = &mut self.out;
        let Some(Group { replica, callers, .. }) = self.groups.input(id) else {
            let none = Unavailable::NotLeader { leader: None };
            return commands.for_each(|(_, reply, _)| out.answer(reply, Answer::failed(none)));
        };
        for (mut command, reply, call) in commands {
            if let Some(reason) = refusal {
                out.answer(reply, Answer::failed(reason));
                if Bug::RefusedButExecuted.is_active() && reason == Unavailable::OutOfSpace {
                    replica.handle_call(None, command);
                }
                continue;
            }
            // A unary caller never acknowledges answers. So when the session's room for kept answers is nearly used up,
            // the leader acknowledges the oldest ones in its name.
            if matches!(reply, ReplyTo::Call(_)) {
                replica.table().acknowledge_for_silent_caller(&mut command);
            }
            let has_answer = |wait: Call| replica.table().has_answered(wait.session, wait.request);
            let ticket = callers.call(&mut out.host, &command, reply, call, has_answer);
            if Bug::HeartbeatBeforeCommit.is_active()
                && let Command::Touch { session, .. } = command
                && let Some(ttl) = replica.table().session_time_left(session)
            {
                let touched = holdfast_core::Outcome::Touched { ttl, departures: None };
                drop(callers.answer(ticket, replica.now(), touched, out));
            }
            if Bug::CallCarriedOutTwice.is_active() {
                replica.handle_call(None, command.clone());
            }
            replica.handle_call(Some(ticket), command);
        }
    }

    /// Heartbeats of at least one session, with one answer for all. Only the last command has a ticket: when it is
    /// applied, the others are, too.
    pub fn touches(&mut self, id: GroupId, sessions: Vec<SessionId>, reply: H::Touches) {
        self.carry_out_deferred();
        let refusal = self.refusal(id);
        let (None, Some(Group { replica, callers, .. })) = (refusal, self.groups.input(id)) else {
            let reason = refusal.unwrap_or(Unavailable::NotLeader { leader: None });
            let answer = Err(reason);
            return self.out.effects.push(Effect::AnswerTouches { to: reply, answer });
        };
        let touch = |session| Command::Touch { session, acked_through: RequestId(0) };
        // Sorted as the table is, so that neighbours in memory are touched one after another.
        let mut in_order = sessions.clone();
        in_order.sort_unstable();
        let Some((last, others)) = in_order.split_last() else { return };
        for session in others {
            replica.handle_call(None, touch(*session));
        }
        self.out.host.touches_asked(sessions.len());
        let ticket = callers.touches(sessions, reply);
        replica.handle_call(Some(ticket), touch(*last));
    }

    /// The caller of [`Engine::call`] hung up before it had its answer.
    pub fn abandoned(
        &mut self,
        id: GroupId,
        session: SessionId,
        request: RequestId,
        call: LiveCall,
    ) {
        if self.is_halted() {
            return self.missed_inputs.push(MissedInput::Abandoned { id, session, request, call });
        }
        if let Some(Group { replica, callers, .. }) = self.groups.input(id)
            && callers.abandoned((session, request), &call)
        {
            replica.handle_call(None, Command::Abandon { session, request });
        }
    }

    /// A linearizable read.
    pub fn read(&mut self, group: GroupId, query: Query, reply: H::Read) {
        self.carry_out_deferred();
        self.begin_read(group, query, ReadReply::Call(reply));
    }

    /// The locks whose status one client frame asks for, each with the number under which it is answered.
    pub fn read_statuses(&mut self, stream: StreamKey, reads: Vec<(RequestId, LockName)>) {
        self.carry_out_deferred();
        for (request, name) in reads {
            let query = Query::Status {
                name: name.clone(),
                shown_max: STATUS_SHOWN_MAX,
                is_owner_asked: true,
            };
            self.begin_read(stream.group, query, ReadReply::Stream { stream, request, name });
        }
        self.deliver_if_halted();
    }

    fn begin_read(&mut self, id: GroupId, query: Query, reply: ReadReply<H::Read>) {
        let halted = self.halt.as_ref().map(|halt| halt.reason);
        let reason = match (halted, self.groups.input(id)) {
            (Some(reason), _) => reason,
            (None, None) => Unavailable::NotLeader { leader: None },
            (None, Some(Group { callers, .. })) if !callers.has_room_for(&reply) => {
                Unavailable::Overloaded
            }
            (None, Some(Group { replica, callers, is_leader, .. })) => {
                let ticket = callers.read(query, reply);
                if Bug::ReadBeforeReadIndex.is_active() && *is_leader {
                    return self.serve_read(id, ticket);
                }
                return replica.handle_read(ticket);
            }
        };
        self.out.answer_read(reply, Err(reason));
    }

    /// A stream begins to serve a session. The command that opens or resumes the session is its first operation.
    pub fn stream_opened(&mut self, stream: StreamKey, handle: H::Stream) {
        self.carry_out_deferred();
        self.out.streams.open(stream, handle);
    }

    /// A stream ended. If the client disconnected, its session begins to linger in the group of the stream.
    pub fn stream_closed(&mut self, key: StreamKey, client_gone: bool) {
        self.carry_out_deferred();
        let was_open = self.out.streams.close(key);
        // A node that is stopping closes its streams itself. Their clients are still alive, so their sessions must not
        // begin to linger.
        if was_open && client_gone && self.stop_by.is_none() {
            let StreamKey { group, session, stream } = key;
            if let Some(Group { replica, .. }) = self.groups.input(group) {
                replica.handle_call(None, Command::DetachStream { session, stream });
            }
        }
    }

    /// Why no command is accepted now.
    fn refusal(&self, group: GroupId) -> Option<Unavailable> {
        let has_leader = |group: &Group<H>| group.replica.leadership().leader.is_some();
        if Bug::LostGroupStopsOthers.is_active() && !self.groups.iter().all(has_leader) {
            return Some(Unavailable::NotLeader { leader: None });
        }
        match (&self.halt, self.stop_by) {
            (Some(halt), _) => Some(halt.reason),
            (None, Some(_)) => Some(Unavailable::ShuttingDown),
            (None, None) if self.groups.get(group).is_none() => {
                Some(Unavailable::NotLeader { leader: None })
            }
            (None, None) => None,
        }
    }
}

/// Inputs of operators and of the node itself.
impl<H: Host> Engine<H> {
    /// Records how far events are published. If some member could not read such an entry, or the disk is full, nothing
    /// is proposed and the reply is dropped.
    pub fn events_published(&mut self, group: GroupId, command: Command, reply: H::Call) {
        let is_published = |group: &Group<H>| group.replica.table().publication().is_some();
        let is_supported =
            self.groups.iter().all(is_published) || self.all_support(PUBLICATION_SINCE);
        if is_supported && !self.is_halted() {
            self.commands(group, std::iter::once((command, ReplyTo::Call(reply), None)));
        }
    }

    /// An operator changes the membership; answered when it is done, or refused. With several groups the operator changes
    /// that of the root group, and the others follow (`members.rs`).
    pub fn change_membership(&mut self, id: GroupId, change: MembershipChange, reply: H::Change) {
        let refusal = match (self.refusal(id), self.change_before(id, &change)) {
            (Some(reason), _) => Some(Err(reason)),
            (None, Some(under_way)) => Some(Ok(Err(under_way))),
            (None, None) => None,
        };
        if let Some(answer) = refusal {
            return self.out.effects.push(Effect::AnswerChange { to: reply, answer });
        }
        // Not checked here: before a change of the members, the operator upgrades all nodes to a build that reads such
        // entries.
        self.report_members_unchecked();
        if let Some(Group { replica, callers, .. }) = self.groups.input(id) {
            replica.propose_membership(callers.change(reply), change);
        }
    }

    /// An operator transfers leadership; answered when the transfer has begun.
    pub fn hand_over(&mut self, id: GroupId, to: Option<NodeId>, reply: H::HandOver) {
        // The dropped handle tells the caller to try again.
        if self.is_halted() {
            return drop(reply);
        }
        let none = Err(HandOverRefusal::NotLeader { leader: None });
        let group = self.groups.input(id);
        let answer = group.map_or(none, |group| group.replica.hand_over(to));
        self.out.effects.push(Effect::AnswerHandOver { to: reply, answer });
    }

    /// Hand leadership over, answer what can be answered, and stop within this time.
    pub fn stop(&mut self, within: Duration) {
        self.stop_by = Some(self.now.monotonic + within);
        self.tier.lease.end();
        self.out.effects.push(Effect::Tier(TierChange::Invalidate));
    }

    /// The addresses at which clients reach the members have changed.
    pub fn addresses_changed(&mut self) {
        self.out.streams.send_to_all(|| Delivery::MembersChanged);
    }

    /// A snapshot of [`Effect::SaveSnapshot`] is durable up to this index, or could not be saved.
    pub fn snapshot_saved(&mut self, group: GroupId, index: Option<u64>) {
        match (self.groups.input(group), index) {
            (Some(Group { replica, .. }), Some(index)) => replica.handle_snapshot_saved(index),
            (Some(Group { replica, .. }), None) => replica.handle_snapshot_failed(),
            (None, _) => {}
        }
    }
}

/// Inputs of peers, and reports about them.
impl<H: Host> Engine<H> {
    /// A message of consensus. A message that names another sender is refused.
    pub fn peer_message(
        &mut self,
        from: NodeId,
        group: GroupId,
        message: &[u8],
    ) -> Result<(), MessageError> {
        // While the disk is full, the engine is stopped in the middle of a pass (between `begin_turn` and
        // `finish_turn`), and consensus takes no messages. Raft tolerates lost ones.
        match self.groups.input(group).filter(|_| self.halt.is_none()) {
            Some(Group { replica, .. }) => replica.handle_message_of(from, message),
            None => Ok(()),
        }
    }

    /// A leader's snapshot, decoded already.
    pub fn peer_snapshot(
        &mut self,
        from: NodeId,
        group: GroupId,
        message: SnapshotMessage,
    ) -> Result<(), MessageError> {
        match self.groups.input(group).filter(|_| self.halt.is_none()) {
            Some(Group { replica, .. }) => replica.handle_snapshot_message(from, message),
            None => Ok(()),
        }
    }

    /// A node, which may be this one, reports who it is.
    pub fn peer_identified(&mut self, node: NodeId, member: Member, log_version: u32) {
        if self.is_halted() {
            return self.missed_inputs.push(MissedInput::Identified { node, member, log_version });
        }
        self.peers.identify(node, member, log_version);
        for Group { replica, .. } in self.groups.inputs() {
            replica.handle_log_version(node, log_version);
        }
        self.report_members();
    }

    /// A peer reports that this node was removed from the group. The node stops when all groups have removed it.
    pub fn removed(&mut self, group: GroupId) {
        if let Some(group) = self.groups.input(group) {
            group.is_removed = true;
        }
    }

    /// The connection to a peer broke or refuses.
    pub fn peer_unreachable(&mut self, node: NodeId) {
        if self.is_halted() {
            return self.missed_inputs.push(MissedInput::Unreachable(node));
        }
        for Group { replica, .. } in self.groups.inputs() {
            replica.handle_peer_unreachable(node);
        }
    }

    /// The peer's process has ended, as far as the host can tell.
    pub fn peer_crashed(&mut self, node: NodeId) {
        // Not kept for later: the report only shortens an election timeout, which runs in any case.
        if self.is_halted() {
            return;
        }
        for Group { replica, .. } in self.groups.inputs() {
            replica.handle_peer_crash(node);
        }
    }

    /// A snapshot was handed to the peer, or could not be.
    pub fn snapshot_sent(&mut self, id: GroupId, to: NodeId, delivered: bool) {
        if self.is_halted() {
            return self.missed_inputs.push(MissedInput::SnapshotSent { id, to, delivered });
        }
        if let Some(Group { replica, .. }) = self.groups.input(id) {
            replica.handle_snapshot_sent(to, delivered);
        }
    }

    /// Reports known nodes to the groups, if all members can read such log entries.
    pub(super) fn report_members(&mut self) {
        if self.all_support(MEMBERS_SINCE) {
            self.report_members_unchecked();
        }
    }

    fn report_members_unchecked(&mut self) {
        for (node, (member, is_self_reported)) in self.peers.take_unreported() {
            for Group { replica, .. } in self.groups.inputs() {
                replica.report_member(node, member.clone(), is_self_reported);
            }
        }
    }

    /// Whether all members of all groups can read log entries of this version.
    fn all_support(&self, version: u32) -> bool {
        let mut memberships = self.groups.iter().map(|group| group.replica.membership());
        memberships.all(|membership| self.peers.all_support(membership, version))
    }
}
