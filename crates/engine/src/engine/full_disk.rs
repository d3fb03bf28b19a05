//! What happens when the disk is full, or the process has no descriptor for a new file of the log. The turn halts
//! between its halves, and the engine refuses all calls until the same turn can be written.

use std::time::Duration;

use holdfast_core::{RequestId, SessionId};
use holdfast_replica::{GroupId, Leadership, Member, NodeId};

use super::{Engine, Group, Phase};
use crate::answer::{Delivery, Unavailable};
use crate::effect::Effect;
use crate::host::Host;
use crate::log::Obstacle;
use crate::request_owners::LiveCall;

#[derive(Debug)]
pub(super) struct Halt {
    since: Duration,
    /// The reason that callers get.
    pub(super) reason: Unavailable,
    /// All client streams were ended.
    has_resigned: bool,
}

/// An input that came while the disk was full and that the host does not repeat. It is handled when the turn is done.
#[derive(Debug)]
pub(super) enum MissedInput {
    Abandoned { id: GroupId, session: SessionId, request: RequestId, call: LiveCall },
    Identified { node: NodeId, member: Member, log_version: u32 },
    Unreachable(NodeId),
    SnapshotSent { id: GroupId, to: NodeId, delivered: bool },
}

impl<H: Host> Engine<H> {
    /// All of [`Engine::turns`] is durable. The entries of these groups keep old parts of the log on disk.
    pub fn disk_done(&mut self, now: Duration, groups_pinning_log: &[GroupId]) {
        self.now.monotonic = now;
        let took = self.write_time(now);
        for (id, turn) in self.turn.turns.iter().filter(|(_, turn)| turn.needs_disk()) {
            let Some(Group { replica, publication, .. }) = self.groups.get_mut(*id) else {
                continue;
            };
            replica.handle_write_time(took);
            if let Some(snapshot) = &turn.snapshot {
                let (group, index) = (*id, snapshot.index);
                self.out.effects.push(Effect::Installed { group, index });
                *publication = None;
            }
        }
        for id in groups_pinning_log {
            if let Some(Group { replica, .. }) = self.groups.input(*id) {
                replica.request_snapshot();
            }
        }
        if self.halt.take().is_some_and(|halt| halt.has_resigned) {
            for Group { id, replica, .. } in self.groups.iter() {
                let (group, leadership) = (*id, replica.leadership());
                self.out.effects.push(Effect::LeadershipChanged { group, leadership });
            }
        }
        self.turn.phase = Phase::Acknowledge;
    }

    /// The time since the host was asked to write the turn.
    pub(super) fn write_time(&self, now: Duration) -> Duration {
        now.saturating_sub(self.turn.write_began.unwrap_or(now))
    }

    /// The disk cannot take the turn now. The host tries again after a tick. Until then inputs are refused.
    pub fn disk_full(&mut self, now: Duration, obstacle: Obstacle) {
        self.now.monotonic = now;
        let reason = match obstacle {
            Obstacle::NoSpace => Unavailable::OutOfSpace,
            Obstacle::NotNow => Unavailable::Overloaded,
        };
        let halt = self.halt.get_or_insert(Halt { since: now, reason, has_resigned: false });
        if !halt.has_resigned && now.saturating_sub(halt.since) >= self.config.election_timeout {
            // By now the other nodes have elected a leader, or cannot.
            halt.has_resigned = true;
            self.out.streams.end_all(|| Delivery::LeaderMoved { leader: None });
            self.out.effects.push(Effect::Deliver);
            for group in self.groups.iter() {
                let (group, leadership) = (group.id, Leadership::default());
                self.out.effects.push(Effect::LeadershipChanged { group, leadership });
            }
        }
        self.carry_out_deferred();
    }

    pub(super) fn replay_missed_inputs(&mut self) {
        for missed in std::mem::take(&mut self.missed_inputs) {
            match missed {
                MissedInput::Abandoned { id, session, request, call } => {
                    self.abandoned(id, session, request, call);
                }
                MissedInput::Identified { node, member, log_version } => {
                    self.peer_identified(node, member, log_version);
                }
                MissedInput::Unreachable(node) => self.peer_unreachable(node),
                MissedInput::SnapshotSent { id, to, delivered } => {
                    self.snapshot_sent(id, to, delivered);
                }
            }
        }
    }
}
