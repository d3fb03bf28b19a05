//! What each input does.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use holdfast_core::command::Call;
use holdfast_core::{Command, LockName, RequestId, SessionId};
use holdfast_replica::{GroupId, HandOverRefusal, MessageError, NodeId, Replica};
use holdfast_wal::{DurableSnapshot, WriteError};
use tokio::sync::oneshot;

use super::Driver;
use super::abandoned::CallRef;
use super::bell::ROOM;
use super::callers::{ReadReply, ReplyTo, failed};
use super::ears::Heard;
use super::inbox::{
    FIRST_GROUP, GroupView, Input, OwnTable, Query, SHOWN_ON_STREAM_MAX, StreamKey, TouchesAnswer,
    Unavailable,
};
use super::log::LogError;
use crate::boot_clock::BootTime;

/// How long a node that is to stop tries to hand leadership over.
const HAND_OVER_MAX: Duration = Duration::from_secs(2);

impl Driver {
    pub(super) fn handle(&mut self, input: Input) {
        match input {
            Input::Call { group, command, reply, call } => {
                self.calls(group, std::iter::once((command, ReplyTo::Call(reply), call)));
            }
            Input::Abandoned { group, session, request, call } => {
                if self.callers.abandoned((group, session, request), &call)
                    && let Some(replica) = self.replicas.get_mut(&group)
                {
                    replica.handle_call(None, Command::Abandon { session, request });
                }
            }
            Input::Frame { stream, group, operations } => {
                let reply = |request| ReplyTo::Stream { stream, request };
                let calls = operations.into_iter();
                self.calls(group, calls.map(|(request, command)| (command, reply(request), None)));
            }
            Input::Touches { group, sessions, reply } => self.touch(group, sessions, reply),
            Input::EventsPublished { group, command, reply } => {
                if self.may_publish() {
                    self.call(group, command, ReplyTo::Call(reply));
                }
            }
            Input::StreamOpened { stream, outbox, may_wait } => {
                self.streams.open_telling(stream, outbox, may_wait);
            }
            Input::Listen { stream, ear, socket } => {
                self.ears.listen(stream, ear, socket, self.inbox.registry());
            }
            Input::StreamClosed { stream, client_gone } => self.stream_closed(stream, client_gone),
            Input::Read { group, query, reply } => self.read(group, query, ReadReply::Call(reply)),
            Input::Looks { stream, group, looks } => self.look(stream, group, looks),
            Input::Inspect { with_digests, reply } => {
                let views = self.replicas.iter().map(|(group, replica)| {
                    let digest = with_digests.then(|| self.digests.of(*group, replica)).flatten();
                    view(*group, replica, digest)
                });
                let _ = reply.send(views.collect());
            }
            Input::ReadOwnTable { group, locks_max, reply } => {
                if let Some(replica) = self.replicas.get(&group) {
                    let table = replica.table();
                    let locks = table.list("", None, locks_max);
                    let _ =
                        reply.send(OwnTable { at: replica.now(), locks, freezes: table.freezes() });
                }
            }
            Input::PeerSnapshot { from, group, message } => {
                let replica = self.replicas.get_mut(&group);
                let taken = replica.map(|replica| replica.handle_snapshot_message(from, *message));
                if let Some(Err(error)) = taken {
                    tracing::warn!(%group, %error, "a snapshot from a peer was refused");
                }
            }
            Input::PeerWire { from, number, socket } => {
                self.wires.add(from, number, socket, self.inbox.registry());
            }
            Input::ChangeMembership { group, change, reply } => {
                self.change_membership(group, change, reply);
            }
            Input::HandOver { group, to, reply } => {
                let replica = self.replicas.get_mut(&group);
                let answer = replica.map(|replica| replica.hand_over(to));
                // Whoever is told to lead need not wait until others may be elected.
                self.sureness.doubt(&self.memory, BootTime::now());
                let none = HandOverRefusal::NotLeader { leader: None };
                let _ = reply.send(answer.unwrap_or(Err(none)));
            }
            Input::PeerIntroduced { node, member, log_version } => {
                self.introductions.met(node, member, log_version);
                for replica in self.replicas.values_mut() {
                    replica.handle_log_version(node, log_version);
                }
                self.introduce();
            }
            Input::RemovedBy(by) => {
                tracing::error!(%by, "a peer says that this node was removed");
                self.removed = true;
            }
            Input::PeerUnreachable(node) => {
                for replica in self.replicas.values_mut() {
                    replica.handle_peer_unreachable(node);
                }
            }
            Input::PeerRefuses(node) => self.peer_refuses(node),
            Input::SnapshotSent { group, to, delivered } => {
                match self.snapshot_times.sending.remove(&to) {
                    Some(begun) if delivered => {
                        self.metrics.snapshots_sent.record_time(begun.elapsed());
                    }
                    _ => self.metrics.snapshots_failed.add(1),
                }
                if let Some(replica) = self.replicas.get_mut(&group) {
                    replica.handle_snapshot_sent(to, delivered);
                }
            }
            Input::SnapshotSaved { group, result } => self.snapshot_saved(group, result),
            Input::SegmentPrepared(result) => self.log.segment_prepared(result),
            Input::Shutdown => self.begin_stop(),
        }
    }

    /// If it has nothing more to say either, the peer's process has ended: its system has closed both its port and
    /// its wires. What it said before the end is heard first. As long as it can be heard, a shut port means nothing.
    fn peer_refuses(&mut self, node: NodeId) {
        if self.wires.has_one_from(node) {
            return;
        }
        for replica in self.replicas.values_mut() {
            replica.handle_peer_gone(node);
        }
    }

    /// What the peers say.
    pub(super) fn read_wires(&mut self) {
        let Driver { wires, replicas, .. } = self;
        wires.read(|from, group, message| take_message(replicas, from, group, message));
    }

    /// What those clients ask for whom the driver hears itself.
    pub(super) fn hear_clients(&mut self) {
        let Driver { ears, inbox, streams, .. } = self;
        let mut all = Vec::new();
        let is_open = |stream| streams.is_open(stream);
        ears.hear(inbox.registry(), is_open, |stream, heard| all.push((stream, heard)));
        let group = FIRST_GROUP;
        for (stream, Heard { operations, looks, .. }) in all {
            self.handle(Input::Frame { stream, group, operations });
            self.look(stream, group, looks);
        }
    }

    /// Which wires there is something to do on.
    pub(super) fn look_at_sockets(&mut self) {
        let mut has_room = false;
        for news in self.inbox.touched() {
            has_room |= news.token == ROOM;
            self.wires.touch(news);
            self.ears.touch(news);
        }
        if has_room {
            self.links.look_after();
        }
    }

    fn look(&mut self, stream: StreamKey, group: GroupId, looks: Vec<(RequestId, LockName)>) {
        for (request, name) in looks {
            let query = Query::Status { name: name.clone(), shown_max: SHOWN_ON_STREAM_MAX };
            self.read(group, query, ReadReply::Stream { stream, request, name });
        }
    }

    fn read(&mut self, group: GroupId, query: Query, reply: ReadReply) {
        match self.replicas.get_mut(&group) {
            Some(_) if !self.callers.has_room_for(&reply) => {
                reply.answer(Err(Unavailable::Overloaded), &mut self.streams);
            }
            Some(replica) => replica.handle_read(self.callers.read(query, reply)),
            None => {
                let reason = Unavailable::NotLeader { leader: None };
                reply.answer(Err(reason), &mut self.streams);
            }
        }
    }

    fn call(&mut self, group: GroupId, command: Command, reply: ReplyTo) {
        self.calls(group, std::iter::once((command, reply, None)));
    }

    fn calls(
        &mut self,
        group: GroupId,
        calls: impl Iterator<Item = (Command, ReplyTo, Option<CallRef>)>,
    ) {
        let replica = self.replicas.get_mut(&group);
        let reason = match replica {
            _ if self.stop_by.is_some() => Unavailable::ShuttingDown,
            None => Unavailable::NotLeader { leader: None },
            Some(replica) => {
                for (mut command, reply, call) in calls {
                    if matches!(reply, ReplyTo::Call(_)) {
                        replica.table().acknowledge_for_silent_caller(&mut command);
                    }
                    let has_answer =
                        |wait: Call| replica.table().has_answered(wait.session, wait.request);
                    let ticket = self.callers.call(group, &command, reply, call, has_answer);
                    replica.handle_call(Some(ticket), command);
                }
                return;
            }
        };
        calls.for_each(|(_, reply, _)| reply.answer(failed(reason), &mut self.streams));
    }

    /// One ticket for all of them, with the last: when that is applied the others are.
    fn touch(
        &mut self,
        group: GroupId,
        sessions: Vec<SessionId>,
        reply: oneshot::Sender<TouchesAnswer>,
    ) {
        if self.stop_by.is_some() {
            return drop(reply.send(Err(Unavailable::ShuttingDown)));
        }
        let Some(replica) = self.replicas.get_mut(&group) else {
            return drop(reply.send(Err(Unavailable::NotLeader { leader: None })));
        };
        let touch = |session| Command::Touch { session, acked_through: RequestId(0) };
        // In the order of the table, where sessions that are touched together stand together by their deadlines.
        let mut in_order = sessions.clone();
        in_order.sort_unstable();
        // Without any there is nobody to answer for.
        let Some((last, others)) = in_order.split_last() else { return };
        for session in others {
            replica.handle_call(None, touch(*session));
        }
        let ticket = self.callers.touches(sessions, reply);
        replica.handle_call(Some(ticket), touch(*last));
    }

    /// The session of a client that went away begins to linger, wherever it is known.
    pub(super) fn stream_closed(&mut self, key: StreamKey, client_gone: bool) {
        let was_open = self.streams.close(key);
        self.ears.leave(key, self.inbox.registry());
        // A node that stops ends streams itself, and its clients live.
        if was_open && client_gone && self.stop_by.is_none() {
            let StreamKey { session, stream } = key;
            for replica in self.replicas.values_mut() {
                replica.handle_call(None, Command::DetachStream { session, stream });
            }
        }
    }

    pub(super) fn snapshot_saved(
        &mut self,
        group: GroupId,
        result: Result<DurableSnapshot, WriteError>,
    ) {
        let Some(replica) = self.replicas.get_mut(&group) else { return };
        let saved = result.map_err(LogError::from).and_then(|written| {
            let index = written.index();
            self.log.snapshot_saved(written).map(|()| index)
        });
        match saved {
            Ok(index) => {
                if let Some((begun, bytes)) = self.snapshot_times.saving.take() {
                    self.metrics.snapshots_taken.record_time(begun.elapsed());
                    self.metrics.snapshot_bytes.set(bytes);
                }
                replica.handle_snapshot_saved(index);
            }
            Err(error) => {
                tracing::error!(%group, %error, "a snapshot could not be saved");
                self.metrics.snapshots_failed.add(1);
                replica.handle_snapshot_failed();
            }
        }
    }

    fn begin_stop(&mut self) {
        self.stop_by = Some(Instant::now() + HAND_OVER_MAX);
        self.sureness.end(&self.memory);
    }
}

/// Fails if the peer speaks in the name of another node: nothing more is taken from it.
fn take_message(
    replicas: &mut BTreeMap<GroupId, Replica>,
    from: NodeId,
    group: GroupId,
    message: &[u8],
) -> io::Result<()> {
    let Some(replica) = replicas.get_mut(&group) else { return Ok(()) };
    match replica.handle_message_of(from, message) {
        Ok(()) => Ok(()),
        Err(error @ MessageError::WrongSender { .. }) => {
            tracing::error!(%from, %group, %error, "a peer's connection is closed");
            Err(io::Error::new(io::ErrorKind::InvalidData, error.to_string()))
        }
        Err(error) => {
            tracing::warn!(%from, %group, %error, "a message from a peer was refused");
            Ok(())
        }
    }
}

/// Digests cost time in proportion to the table, and anybody may ask for them: for a large table there
/// is a new one only now and then.
#[derive(Debug, Default)]
pub(super) struct Digests {
    latest: BTreeMap<GroupId, Digest>,
}

#[derive(Debug)]
struct Digest {
    applied_index: u64,
    made: Instant,
    text: String,
}

impl Digests {
    /// None if it is too early for another one.
    fn of(&mut self, group: GroupId, replica: &Replica) -> Option<String> {
        const SMALL_LOCKS_MAX: usize = 10_000;
        const LARGE_INTERVAL: Duration = Duration::from_secs(10);
        let table = replica.table();
        let applied_index = replica.applied_index();
        let is_small = table.lock_count() + table.waiter_count() <= SMALL_LOCKS_MAX;
        match self.latest.get(&group) {
            Some(latest) if latest.applied_index == applied_index => Some(latest.text.clone()),
            Some(latest) if !is_small && latest.made.elapsed() < LARGE_INTERVAL => None,
            _ => {
                let text = table.digest().to_string();
                let made = Instant::now();
                self.latest.insert(group, Digest { applied_index, made, text: text.clone() });
                Some(text)
            }
        }
    }
}

fn view(group: GroupId, replica: &Replica, digest: Option<String>) -> GroupView {
    let (progress, table) = (replica.progress(), replica.table());
    GroupView {
        group,
        leader: progress.leadership.leader,
        term: progress.leadership.term,
        commit_index: progress.commit_index,
        applied_index: progress.applied_index,
        logical_time: replica.now(),
        locks: table.lock_count(),
        waiters: table.waiter_count(),
        sessions: table.session_count(),
        last_token: table.last_token(),
        rules: table.rules(),
        table_bytes: table.size_bytes(),
        table_limits: table.table_limits(),
        digest,
        matched: progress.matched,
        last_index: progress.last_index,
    }
}
