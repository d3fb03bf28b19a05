//! Carries out the engine's effects.

use std::time::Instant;

use holdfast_core::SessionSummary;
use holdfast_engine::{Effect, TierChange};
use holdfast_replica::{GroupId, Leadership, Membership};

use super::observer::Observer;
use super::{Shard, unix_ms};
use crate::events::SessionOwner;
use crate::outbox::{Outbox, put, warn_of};

impl Shard {
    pub(super) fn carry_out_effects(&mut self) {
        // First, so that a new policy is in force at this node before its administrator gets the answer.
        self.publish_policy();
        let mut effects = std::mem::take(&mut self.effects);
        self.engine.take_effects(&mut effects);
        for effect in effects.drain(..) {
            self.carry_out(effect);
        }
        self.effects = effects;
    }

    fn carry_out(&mut self, effect: Effect<Observer>) {
        match effect {
            Effect::Send { to, messages } => self.links.send(to, messages),
            Effect::SendSnapshot { to, group, message } => {
                self.snapshot_times.sending.insert((group, to), Instant::now());
                self.links.send_snapshot(to, group, message);
            }
            // A caller that is gone needs no answer.
            Effect::Answer { to, answer } => drop(to.send(answer)),
            Effect::AnswerRead { to, answer } => drop(to.send(answer)),
            Effect::AnswerTouches { to, answer } => drop(to.send(answer)),
            Effect::AnswerChange { to, answer } => drop(to.send(answer)),
            Effect::AnswerHandOver { to, answer } => drop(to.send(answer)),
            Effect::Deliver => self.deliver(),
            Effect::StreamServed { stream, is_deferrable } => {
                if let Some(stream) = self.engine.streams().get(stream) {
                    stream.deferrable.set(is_deferrable);
                }
            }
            Effect::Installed { group, index } => {
                self.events.of(group).restart_after(index);
                tracing::info!(%group, index, "the leader's snapshot is installed");
                self.owners_unknown.insert(group);
            }
            Effect::Publish { group, publication } => {
                self.send_owners();
                let Some(events) = self.engine.events(group) else { return };
                self.metrics.events.add(events.len() as u64);
                self.events.of(group).record(events, unix_ms(), publication);
            }
            Effect::LeadershipChanged { group, leadership } => {
                self.leadership_changed(group, leadership);
            }
            Effect::MembershipChanged { group, index, members } => {
                self.members_changed(group, index, members);
            }
            Effect::SaveSnapshot { group, file } => {
                let bytes = file.data.len() as u64;
                self.snapshot_times.saving.insert(group, (Instant::now(), bytes));
                self.log.save(group, file);
            }
            Effect::Tier(change) => self.change_tier(change),
        }
    }

    fn deliver(&mut self) {
        let Shard { engine, framed, frame, .. } = self;
        engine.deliver(|stream, told| {
            warn_of(match &stream.outbox {
                Outbox::Task(outbox) => put(outbox, told),
                Outbox::Connection(token) => framed.deliver(*token, told, frame),
            })
        });
    }

    /// Sinks of events want to know who the sessions of a new table belong to.
    pub(super) fn send_owners(&mut self) {
        if self.owners_unknown.is_empty() {
            return;
        }
        let unknown = std::mem::take(&mut self.owners_unknown);
        if !self.tells_owners {
            return;
        }
        for (group, replica) in self.engine.replicas() {
            if unknown.contains(&group) {
                let sessions = replica.table().sessions(None, usize::MAX);
                let owners = sessions.into_iter().map(|session| {
                    let SessionSummary { public, owner, principal, .. } = session;
                    (public, SessionOwner { owner, principal })
                });
                self.events.of(group).set_sessions(owners.collect());
            }
        }
    }

    fn leadership_changed(&mut self, group: GroupId, leadership: Leadership) {
        let Leadership { leader, is_here, term } = leadership;
        // A leader whose disk is full leads nothing for a while. If it leads again in its term, nothing has changed.
        let last = self.elections.entry(group).or_default();
        if leader.is_some() && (leader, term) != last.leader {
            last.leader = (leader, term);
            self.metrics.leader_changes.add(1);
        }
        if is_here && last.won_term != term {
            last.won_term = term;
            self.metrics.elections_won.add(1);
        }
        if let (Some(traces), false) = (&self.traces, is_here || self.engine.is_halted()) {
            traces.forget();
        }
        tracing::info!(%group, term, is_here, leader = leader.map(|node| node.0), "leadership");
        self.leadership.set(group, leadership);
    }

    fn members_changed(&mut self, group: GroupId, index: u64, members: Membership) {
        let roles = members.members.keys().map(|node| (node.0, members.role(*node)));
        tracing::info!(%group, members = ?roles.collect::<Vec<_>>(), "membership");
        let before = self.membership.client_addresses();
        if group == GroupId::FIRST {
            self.membership.elects(index, &members.configuration);
        }
        self.membership.publish(group, members);
        if self.membership.client_addresses() != before {
            self.engine.addresses_changed();
        }
    }

    fn change_tier(&mut self, change: TierChange) {
        let memory = &self.memory;
        match change {
            TierChange::BeginTerm { term, opens } => memory.begin_term(term, opens),
            TierChange::EndTerm { reason } => memory.end_term(reason),
            TierChange::Confirm { term, until } => memory.confirm(term, until),
            TierChange::Invalidate => memory.invalidate(),
            TierChange::Admit { session, public, owner } => memory.admit(session, public, owner),
            TierChange::SessionEnded(session) => memory.session_ended(session),
        }
    }
}
