//! What comes in, from the inbox and from sockets, and how it reaches the engine.

use std::io;
use std::time::Duration;

use holdfast_core::{Command, RequestId};
use holdfast_engine::{Engine, LogError, StreamKey};
use holdfast_replica::{GroupId, MessageError, NodeId};
use holdfast_wal::{DurableSnapshot, WriteError};

use super::Shard;
use super::observer::{ClientStream, Observer};
use crate::inbox::{Asked, EndedBy, GroupView, Input, OwnTable, ROOM};
use crate::outbox::Outbox;

/// How long a node that is to stop tries to hand leadership over.
const HAND_OVER_MAX: Duration = Duration::from_secs(2);

impl Shard {
    /// Waits for something to do, at most for so long, and takes in all there is.
    pub(super) fn take_input(&mut self, patience: Duration) {
        let patience = patience.min(self.framed.idle_for_at_most());
        self.inbox.wait(if self.wires.have_more() { Duration::ZERO } else { patience });
        self.engine.host().forget_time();
        if self.inbox.is_closed() {
            self.engine.stop(Duration::ZERO);
        }
        self.poll_sockets();
        self.read_wires();
        let inputs = self.inbox.take_turn();
        for input in inputs {
            self.handle(input);
        }
        self.visit_connections();
    }

    fn handle(&mut self, input: Input) {
        let engine = &mut self.engine;
        match input {
            Input::Call { group, command, reply, call } => engine.call(group, command, reply, call),
            Input::Abandoned { group, session, request, call } => {
                engine.abandoned(group, session, request, call);
            }
            Input::Frame { stream, operations, is_deferrable } => {
                take_frame(engine, stream, operations, is_deferrable);
            }
            Input::Touches { group, sessions, reply } => engine.touches(group, sessions, reply),
            Input::EventsPublished { group, command, reply } => {
                engine.events_published(group, command, reply);
            }
            Input::StreamOpened { stream, outbox, deferrable } => {
                let outbox = Outbox::Task(outbox);
                engine.stream_opened(stream, ClientStream { outbox, deferrable });
            }
            Input::Connection(connection) => {
                self.framed.add(connection, self.inbox.registry());
            }
            Input::StreamClosed { stream, client_gone } => {
                engine.stream_closed(stream, client_gone);
            }
            Input::Read { group, query, reply } => engine.read(group, query, reply),
            Input::Reads { stream, reads } => engine.read_statuses(stream, reads),
            // Both only read, so a full disk is no obstacle.
            Input::Inspect { with_digests, reply } => {
                let views = engine.replicas().map(|(group, replica)| {
                    let digest = with_digests.then(|| self.digests.of(group, replica)).flatten();
                    let view = GroupView::of(group, replica, digest);
                    // A node that cannot write follows no leader, and does not lead.
                    GroupView { leader: view.leader.filter(|_| !engine.is_halted()), ..view }
                });
                let _ = reply.send(views.collect());
            }
            Input::ReadOwnTable { group, locks_max, reply } => {
                if let Some(replica) = engine.replica(group) {
                    let table = replica.table();
                    let locks = table.list("", None, locks_max);
                    let _ =
                        reply.send(OwnTable { at: replica.now(), locks, freezes: table.freezes() });
                }
            }
            Input::PeerSnapshot { from, group, message } => {
                if let Err(error) = engine.peer_snapshot(from, group, *message) {
                    tracing::warn!(%group, %error, "a snapshot from a peer was refused");
                }
            }
            Input::PeerWire { from, number, stream } => {
                self.wires.add(from, number, stream, self.inbox.registry());
            }
            Input::ChangeMembership { group, change, reply } => {
                engine.change_membership(group, change, reply);
            }
            Input::HandOver { group, to, reply } => engine.hand_over(group, to, reply),
            Input::PeerIdentified { node, member, log_version } => {
                engine.peer_identified(node, member, log_version);
            }
            Input::RemovedBy(by) => {
                tracing::error!(%by, "a peer says that this node was removed");
                // Nodes are removed from all groups.
                let groups: Vec<GroupId> = engine.replicas().map(|(group, _)| group).collect();
                groups.into_iter().for_each(|group| engine.removed(group));
            }
            Input::PeerUnreachable(node) => engine.peer_unreachable(node),
            // If it has nothing more to say either, the peer's process has ended: its system has closed both its port
            // and its wires. What it said before the end is heard first. As long as it can be heard, a shut port means
            // nothing.
            Input::PeerRefuses(node) => {
                if !self.wires.has_one_from(node) {
                    engine.peer_crashed(node);
                }
            }
            Input::SnapshotSent { group, to, delivered } => {
                match self.snapshot_times.sending.remove(&(group, to)) {
                    Some(begun) if delivered => {
                        self.metrics.snapshots_sent.record_time(begun.elapsed());
                    }
                    _ => self.metrics.snapshots_failed.add(1),
                }
                engine.snapshot_sent(group, to, delivered);
            }
            Input::SnapshotSaved { group, result } => self.snapshot_saved(group, result),
            Input::SegmentPrepared(result) => self.log.segment_prepared(result),
            Input::Shutdown => engine.stop(HAND_OVER_MAX),
        }
    }

    fn snapshot_saved(&mut self, group: GroupId, result: Result<DurableSnapshot, WriteError>) {
        let saved = result.map_err(LogError::from).and_then(|written| {
            let index = written.index();
            self.log.snapshot_saved(written).map(|()| index)
        });
        match &saved {
            Ok(_) => {
                if let Some((begun, bytes)) = self.snapshot_times.saving.remove(&group) {
                    self.metrics.snapshots_taken.record_time(begun.elapsed());
                    self.metrics.snapshot_bytes.set(bytes);
                }
            }
            Err(error) => {
                tracing::error!(%group, %error, "a snapshot could not be saved");
                self.metrics.snapshots_failed.add(1);
            }
        }
        self.engine.snapshot_saved(group, saved.ok());
    }

    /// What the peers say.
    fn read_wires(&mut self) {
        let Shard { wires, engine, .. } = self;
        wires.read(|from, group, message| take_message(engine, from, group, message));
    }

    /// What the clients with framed connections ask for.
    fn visit_connections(&mut self) {
        let Shard { framed, engine, frame, .. } = self;
        let mut displaced = Vec::new();
        framed.visit(frame, |token, asked| displaced.extend(take_asked(engine, token, asked)));
        displaced.into_iter().for_each(|token| framed.end(token, EndedBy::OtherConnection));
    }

    /// Which wires there is something to do on.
    fn poll_sockets(&mut self) {
        let mut has_room = false;
        for news in self.inbox.touched() {
            has_room |= news.token == ROOM;
            self.wires.touch(news);
            self.framed.handle_news(news);
        }
        if has_room {
            self.links.look_after();
        }
    }
}

/// Hands what a framed connection asks for to the engine. Gives the connection that had the stream before, if any.
fn take_asked(engine: &mut Engine<Observer>, token: usize, asked: Asked) -> Option<usize> {
    let stream = asked.stream?;
    let displaced = asked.opened.and_then(|deferrable| {
        let before = engine.streams().get(stream).map(|before| &before.outbox);
        let displaced = match before {
            Some(Outbox::Connection(before)) => Some(*before),
            Some(Outbox::Task(_)) | None => None,
        };
        let outbox = Outbox::Connection(token);
        engine.stream_opened(stream, ClientStream { outbox, deferrable });
        displaced
    });
    let operations = asked.operations.into_iter().map(|(id, command)| (id, command.into_inner()));
    // `collect` reuses the allocation: `Admitted<Command>` has the size of `Command`.
    let operations: Vec<(RequestId, Command)> = operations.collect();
    take_frame(engine, stream, operations, asked.is_deferrable);
    if !asked.statuses.is_empty() {
        let statuses = asked.statuses.into_iter().map(|(id, name)| (id, name.into_inner()));
        engine.read_statuses(stream, statuses.collect());
    }
    if let Some((query, reply)) = asked.read {
        engine.read(stream.group, query, reply);
    }
    if let Some(client_gone) = asked.closed {
        engine.stream_closed(stream, client_gone);
    }
    displaced
}

/// A heartbeat alone may wait, if its stream's may.
fn take_frame(
    engine: &mut Engine<Observer>,
    stream: StreamKey,
    operations: Vec<(RequestId, Command)>,
    is_deferrable: bool,
) {
    match operations[..] {
        [] => {}
        [(_, Command::Touch { .. })] if is_deferrable => engine.defer(stream, operations),
        _ => engine.frame(stream, operations),
    }
}

/// Fails if the peer speaks in the name of another node: nothing more is taken from it.
fn take_message(
    engine: &mut Engine<Observer>,
    from: NodeId,
    group: GroupId,
    message: &[u8],
) -> io::Result<()> {
    match engine.peer_message(from, group, message) {
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
