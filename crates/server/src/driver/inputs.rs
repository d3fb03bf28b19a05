//! What comes in, from the inbox and from sockets, and how it reaches the engine.

use std::io;
use std::time::Duration;

use holdfast_engine::{Engine, LogError};
use holdfast_replica::{GroupId, MessageError, NodeId};
use holdfast_wal::{DurableSnapshot, WriteError};

use super::Driver;
use super::ears::Heard;
use super::inbox::{FIRST_GROUP, GroupView, Input, OwnTable};
use super::observer::{ClientStream, Observer};
use super::poller::ROOM;

/// How long a node that is to stop tries to hand leadership over.
const HAND_OVER_MAX: Duration = Duration::from_secs(2);

impl Driver {
    /// Waits for something to do, at most for so long, and takes in all there is.
    pub(super) fn take_input(&mut self, patience: Duration) {
        let has_more = self.wires.have_more() || self.ears.have_more();
        self.inbox.wait(if has_more { Duration::ZERO } else { patience });
        self.engine.host().forget_time();
        if self.inbox.is_closed() {
            self.engine.stop(Duration::ZERO);
        }
        self.look_at_sockets();
        self.read_wires();
        let inputs = self.inbox.take_turn();
        // All of them came before what the inbox gives next.
        for heartbeat in self.inbox.take_held_back() {
            if let Input::Frame { stream, group, operations } = heartbeat {
                self.engine.defer(stream, group, operations);
            }
        }
        for input in inputs {
            self.handle(input);
        }
        self.hear_clients();
    }

    fn handle(&mut self, input: Input) {
        let engine = &mut self.engine;
        match input {
            Input::Call { group, command, reply, call } => engine.call(group, command, reply, call),
            Input::Abandoned { group, session, request, call } => {
                engine.abandoned(group, session, request, call);
            }
            Input::Frame { stream, group, operations } => engine.frame(stream, group, operations),
            Input::Touches { group, sessions, reply } => engine.touches(group, sessions, reply),
            Input::EventsPublished { group, command, reply } => {
                engine.events_published(group, command, reply);
            }
            Input::StreamOpened { stream, outbox, deferrable } => {
                engine.stream_opened(stream, ClientStream { outbox, deferrable });
            }
            Input::Listen { ear, socket, .. } if engine.is_halted() => ear.give_back(socket),
            Input::Listen { stream, ear, socket } => {
                self.ears.listen(stream, ear, socket, self.inbox.registry());
            }
            Input::StreamClosed { stream, client_gone } => {
                engine.stream_closed(stream, client_gone);
                self.ears.leave(stream, self.inbox.registry());
            }
            Input::Read { group, query, reply } => engine.read(group, query, reply),
            Input::Looks { stream, group, looks } => engine.read_statuses(stream, group, looks),
            // Their callers are told that this node stopped answering, and ask again.
            Input::Inspect { reply, .. } if engine.is_halted() => drop(reply),
            Input::ReadOwnTable { reply, .. } if engine.is_halted() => drop(reply),
            Input::Inspect { with_digests, reply } => {
                let views = engine.replicas().map(|(group, replica)| {
                    let digest = with_digests.then(|| self.digests.of(group, replica)).flatten();
                    GroupView::of(group, replica, digest)
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
            Input::PeerWire { from, number, socket } => {
                self.wires.add(from, number, socket, self.inbox.registry());
            }
            Input::ChangeMembership { group, change, reply } => {
                engine.change_membership(group, change, reply);
            }
            Input::HandOver { group, to, reply } => engine.hand_over(group, to, reply),
            Input::PeerIntroduced { node, member, log_version } => {
                engine.peer_introduced(node, member, log_version);
            }
            Input::RemovedBy(by) => {
                tracing::error!(%by, "a peer says that this node was removed");
                engine.removed();
            }
            Input::PeerUnreachable(node) => engine.peer_unreachable(node),
            // If it has nothing more to say either, the peer's process has ended: its system has closed both its port
            // and its wires. What it said before the end is heard first. As long as it can be heard, a shut port means
            // nothing.
            Input::PeerRefuses(node) => {
                if !self.wires.has_one_from(node) {
                    engine.peer_gone(node);
                }
            }
            Input::SnapshotSent { group, to, delivered } => {
                match self.snapshot_times.sending.remove(&to) {
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
                if let Some((begun, bytes)) = self.snapshot_times.saving.take() {
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
        let Driver { wires, engine, .. } = self;
        wires.read(|from, group, message| take_message(engine, from, group, message));
    }

    /// What those clients ask for whose connections the shard reads.
    fn hear_clients(&mut self) {
        let Driver { ears, inbox, engine, .. } = self;
        let mut all = Vec::new();
        let is_open = |stream| engine.streams().get(stream).is_some();
        ears.hear(inbox.registry(), is_open, |stream, heard| all.push((stream, heard)));
        for (stream, Heard { operations, looks, .. }) in all {
            engine.frame(stream, FIRST_GROUP, operations);
            engine.read_statuses(stream, FIRST_GROUP, looks);
        }
    }

    /// Which wires there is something to do on.
    fn look_at_sockets(&mut self) {
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
