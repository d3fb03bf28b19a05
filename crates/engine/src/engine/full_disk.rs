//! What happens when the disk is full, or the process has no descriptor for a new file of the log: the turn halts between
//! its halves and the engine says so to all callers, until the same turn goes through.

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
    /// What callers are told.
    pub(super) reason: Unavailable,
    /// The clients were sent away.
    resigned: bool,
}

/// What came while the disk was full and will not come again. It is heard when the turn is done.
#[derive(Debug)]
pub(super) enum Unsaid {
    Abandoned { id: GroupId, session: SessionId, request: RequestId, call: LiveCall },
    Introduced { node: NodeId, member: Member, log_version: u32 },
    Unreachable(NodeId),
    SnapshotSent { id: GroupId, to: NodeId, delivered: bool },
}

impl<H: Host> Engine<H> {
    /// All of [`Engine::turns`] is durable. The entries of these groups keep old parts of the log on disk.
    pub fn disk_done(&mut self, now: Duration, groups_in_the_way: &[GroupId]) {
        self.now.monotonic = now;
        let took = self.write_time(now);
        for (id, turn) in self.turn.turns.iter().filter(|(_, turn)| turn.needs_disk()) {
            if let Some(Group { replica, .. }) = self.groups.get_mut(id) {
                replica.handle_write_time(took);
            }
            if let Some(snapshot) = &turn.snapshot {
                let (group, index) = (*id, snapshot.index);
                self.out.effects.push(Effect::Installed { group, index });
                self.turn.publication = None;
            }
        }
        for id in groups_in_the_way {
            if let Some(Group { replica, .. }) = self.groups.get_mut(id) {
                replica.request_snapshot();
            }
        }
        if self.halt.take().is_some_and(|halt| halt.resigned) {
            for (id, Group { replica, .. }) in &self.groups {
                let (group, leadership) = (*id, replica.leadership());
                self.out.effects.push(Effect::LeadershipChanged { group, leadership });
            }
        }
        self.turn.phase = Phase::Acknowledge;
    }

    /// For how long the disk has had the turn.
    pub(super) fn write_time(&self, now: Duration) -> Duration {
        now.saturating_sub(self.turn.write_began.unwrap_or(now))
    }

    /// The disk does not take the turn now. Try it again after a tick; until then inputs are refused.
    pub fn disk_full(&mut self, now: Duration, obstacle: Obstacle) {
        self.now.monotonic = now;
        let reason = match obstacle {
            Obstacle::NoSpace => Unavailable::OutOfSpace,
            Obstacle::NotNow => Unavailable::Overloaded,
        };
        let halt = self.halt.get_or_insert(Halt { since: now, reason, resigned: false });
        if !halt.resigned && now.saturating_sub(halt.since) >= self.config.election_timeout {
            // The others have a leader by now, or none can be had.
            halt.resigned = true;
            self.out.streams.end_all(|| Delivery::LeaderMoved { leader: None });
            self.out.effects.push(Effect::Deliver);
            for group in self.groups.keys().copied() {
                let leadership = Leadership::default();
                self.out.effects.push(Effect::LeadershipChanged { group, leadership });
            }
        }
        self.carry_out_deferred();
    }

    pub(super) fn hear_unsaid(&mut self) {
        for unsaid in std::mem::take(&mut self.unsaid) {
            match unsaid {
                Unsaid::Abandoned { id, session, request, call } => {
                    self.abandoned(id, session, request, call);
                }
                Unsaid::Introduced { node, member, log_version } => {
                    self.peer_introduced(node, member, log_version);
                }
                Unsaid::Unreachable(node) => self.peer_unreachable(node),
                Unsaid::SnapshotSent { id, to, delivered } => {
                    self.snapshot_sent(id, to, delivered);
                }
            }
        }
    }
}
