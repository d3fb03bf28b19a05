//! What happens when the disk is full, or the process has no descriptor for a new file of the log: the loop halts
//! between the halves of a turn and says so to all callers, until the same turn goes through.

use std::time::Instant;

use holdfast_replica::Leadership;

use super::callers::{ReadReply, failed};
use super::inbox::{Delivery, Input, Unavailable};
use super::log::{Log, LogError, Obstacle};
use super::{Driver, StopReason, disk_failed};

impl Driver {
    /// Tries until the disk takes it. Meanwhile the node serves nothing and says so.
    pub(super) fn insist(
        &mut self,
        mut work: impl FnMut(&mut Log) -> Result<(), LogError>,
    ) -> Result<(), StopReason> {
        let Err(error) = work(&mut self.log) else { return Ok(()) };
        let Some(obstacle) = error.obstacle() else { return Err(disk_failed(error)) };
        let reason = match obstacle {
            Obstacle::NoSpace => {
                tracing::error!(%error, "the disk is full");
                self.metrics.disk_full.set(1);
                Unavailable::OutOfSpace
            }
            Obstacle::NotNow => {
                tracing::error!(%error, "the log gets no new file");
                Unavailable::Overloaded
            }
        };
        let since = Instant::now();
        let mut resigned = false;
        // Their tasks ask for them, and are told.
        self.ears.leave_all(self.inbox.registry());
        loop {
            self.pulse.beat();
            self.refuse_all(reason)?;
            match work(&mut self.log) {
                Ok(()) => break,
                Err(error) if error.obstacle().is_some() => {}
                Err(error) => return Err(disk_failed(error)),
            }
            if !resigned && since.elapsed() >= self.election_timeout {
                // The others have a leader by now, or none can be had.
                self.send_clients_away();
                resigned = true;
            }
        }
        self.metrics.disk_full.set(0);
        tracing::info!(waited = ?since.elapsed(), "the disk takes the log again");
        if resigned {
            self.publish_leadership();
        }
        Ok(())
    }

    fn send_clients_away(&mut self) {
        self.streams.end_all(|| Delivery::LeaderMoved { leader: None });
        self.leadership.send_replace(Leadership::default());
    }

    fn publish_leadership(&mut self) {
        if let Some(replica) = self.replicas.values().next() {
            self.leadership.send_replace(replica.leadership());
        }
    }

    fn refuse_all(&mut self, reason: Unavailable) -> Result<(), StopReason> {
        let until = Instant::now() + self.tick;
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            self.inbox.wait(left);
            self.look_at_sockets();
            // Consensus stands still between the halves of a turn; its messages are repeated.
            self.wires.read(|_, _, _| Ok(()));
            if self.inbox.is_closed() {
                return Err(StopReason::Told);
            }
            let inputs = self.inbox.take_turn();
            for input in self.inbox.take_held_back().into_iter().chain(inputs) {
                self.refuse_or_defer(input, reason)?;
            }
        }
        Ok(())
    }

    fn refuse_or_defer(&mut self, input: Input, reason: Unavailable) -> Result<(), StopReason> {
        match input {
            Input::Call { reply, .. } => drop(reply.send(failed(reason))),
            Input::Touches { reply, .. } => drop(reply.send(Err(reason))),
            Input::Frame { stream, operations, .. } => {
                for (request, _) in operations {
                    let answer = failed(reason);
                    self.streams.tell(stream, Delivery::Answer { request, answer });
                }
                self.streams.flush();
            }
            Input::Looks { stream, looks, .. } => {
                for (request, name) in looks {
                    let reply = ReadReply::Stream { stream, request, name };
                    reply.answer(Err(reason), &mut self.streams);
                }
                self.streams.flush();
            }
            Input::Read { reply, .. } => drop(reply.send(Err(reason))),
            Input::ChangeMembership { reply, .. } => drop(reply.send(Err(reason))),
            // Its caller is told that this node stopped answering, and asks again.
            Input::HandOver { reply, .. } => drop(reply),
            Input::EventsPublished { reply, .. } => drop(reply),
            // It is said again.
            Input::PeerSnapshot { .. } | Input::PeerRefuses(_) => {}
            Input::PeerWire { from, number, socket } => {
                self.wires.add(from, number, socket, self.inbox.registry());
            }
            Input::Shutdown => return Err(StopReason::Told),
            Input::Listen { ear, socket, .. } => ear.give_back(socket),
            Input::StreamOpened { stream, outbox, may_wait } => {
                self.streams.open_telling(stream, outbox, may_wait);
            }
            // At once: once the clients are sent away nobody knows which of them had gone before.
            Input::StreamClosed { stream, client_gone } => self.stream_closed(stream, client_gone),
            Input::SegmentPrepared(result) => self.log.segment_prepared(result),
            Input::SnapshotSaved { group, result } => self.snapshot_saved(group, result),
            Input::Inspect { reply, .. } => drop(reply),
            Input::ReadOwnTable { reply, .. } => drop(reply),
            // What will not be said again is heard when the turn is done.
            Input::SnapshotSent { .. }
            | Input::PeerIntroduced { .. }
            | Input::RemovedBy(_)
            | Input::PeerUnreachable(_)
            | Input::Abandoned { .. } => self.deferred.push(input),
        }
        Ok(())
    }
}
