//! The loop of a node: it hands what came to the engine, and does what the engine says, as the server's shard does.
//!
//! A slow disk stops the loop before the write; a full one after it was refused. In both cases the node
//! is busy, and the same turn goes on from there when it is woken.

use std::ops::RangeInclusive;
use std::time::Duration;

use holdfast_core::{Batch, Command, Limits, LogIndex, RulesVersion, SearchCost};
use holdfast_engine::{
    BootTime, Effect, LogError, Now, Query, ReadData, Step, StopCause, StreamKey,
};
use holdfast_replica::{GroupId, MessageError, NodeId, Outgoing, SnapshotFile};
use holdfast_service::{self as service, Leader, Method, Protocol, Route};

use super::hidden_names;
use super::host::{self, Caller, ClientStream, Reader, SimHost};
use super::{
    Build, CrashPoint, GroupState, Incoming, Node, Output, Running, Seen, member, publish,
};
use crate::history::RealTime;
use crate::message::{Answer, AnswerBody, Body, EndedStream, Refusal, Request};
use crate::recorder::place;

/// The digest of the table is taken where the index is a multiple of this.
const DIGEST_EVERY: u64 = 32;
/// So many of a queue are looked at by a read.
const WAITERS_TOLD: usize = 3;

/// The process has ended in the middle of its work.
struct Gone;

impl Node {
    /// Turns the loop once, or as far as the disk lets it.
    pub(crate) fn turn(&mut self, now: RealTime, outputs: &mut Vec<Output>) {
        if self.paused > 0 || now < self.busy_until {
            return;
        }
        let Some(mut running) = self.running.take() else { return };
        if self.turn_of(&mut running, now, outputs).is_ok() {
            self.running = Some(running);
        }
    }

    fn turn_of(
        &mut self,
        running: &mut Running,
        now: RealTime,
        outputs: &mut Vec<Output>,
    ) -> Result<(), Gone> {
        let monotonic = self.clock.at(now);
        if !running.engine.is_in_turn() || running.engine.is_halted() {
            self.take_input(running, monotonic, outputs)?;
        }
        if !running.engine.is_in_turn() {
            for group in &mut running.groups {
                group.ledger.turn_began = monotonic;
            }
            running.record_publication(monotonic);
            running.give_up_groups_without_root(self.id, monotonic);
            let (boot, is_tier_in_use) = (BootTime(monotonic), running.uses_tier);
            running.engine.handle_time(Now { monotonic, boot, is_tier_in_use });
            if is_tier_in_use {
                running.tier.is_used();
            }
        }
        running.carry_out_effects(outputs);
        loop {
            match running.advance(monotonic, outputs)? {
                Step::GoOn => {}
                Step::Write => {
                    if !self.write(running, now, outputs)? {
                        return Ok(());
                    }
                }
                Step::Rest => return Ok(()),
                Step::Stop(StopCause::Removed) => {
                    outputs.push(Output::Removed);
                    return Err(Gone);
                }
                Step::Stop(StopCause::Requested) => {
                    outputs.push(Output::Stopped { why: "the node was asked to stop".to_owned() });
                    return Err(Gone);
                }
            }
        }
    }

    /// Makes durable what the engine wants. False if the loop goes on later.
    fn write(
        &mut self,
        running: &mut Running,
        now: RealTime,
        outputs: &mut Vec<Output>,
    ) -> Result<bool, Gone> {
        let needs_disk = running.engine.turns().iter().any(|(_, turn)| turn.needs_disk());
        let is_first_try = running.writes_since.is_none();
        let since = *running.writes_since.get_or_insert(now);
        if is_first_try {
            running.note_proposals(outputs);
        }
        if let (Some((low, high)), true, true) = (self.slow_disk_us, needs_disk, is_first_try) {
            self.busy_until = RealTime(now.0 + self.rng.between(low, high));
            return Ok(false);
        }
        let crashes = needs_disk && self.crash_point == Some(CrashPoint::Turn);
        if crashes {
            self.disk.start_moments();
        }
        let persisted = running.log.persist(running.engine.turns());
        if crashes {
            return Err(self.crash_at_some_moment(outputs));
        }
        let local = self.clock.at(now);
        let is_done = match persisted.map_err(|error| (error.obstacle(), error)) {
            Ok(()) => {
                running.writes_since = None;
                if since < now {
                    let led = running.groups.iter().filter(|group| group.leadership.is_here);
                    outputs.extend(led.map(|group| Output::Written { group: group.id, since }));
                }
                running.engine.disk_done(local, &running.log.groups_pinning_log());
                true
            }
            Err((Some(obstacle), _)) => {
                running.engine.disk_full(local, obstacle);
                self.busy_until = RealTime(now.0 + self.tick_us());
                false
            }
            Err((None, error)) => return Err(stopped(error, outputs)),
        };
        running.carry_out_effects(outputs);
        Ok(is_done)
    }

    /// The power fails before one of the operations that the disk was just asked for.
    fn crash_at_some_moment(&mut self, outputs: &mut Vec<Output>) -> Gone {
        let moments = self.disk.take_moments();
        if let Some(moment) = self.rng.pick(&moments) {
            self.disk = moment.clone();
        }
        self.crash();
        outputs.push(Output::Crashed);
        Gone
    }

    fn take_input(
        &mut self,
        running: &mut Running,
        now: Duration,
        outputs: &mut Vec<Output>,
    ) -> Result<(), Gone> {
        while let Some(incoming) = self.inbox.pop_front() {
            let engine = &mut running.engine;
            match incoming {
                Incoming::Consensus { from, group, log_version, bytes } => {
                    running.hear(from, group, log_version, &bytes, outputs);
                }
                Incoming::PeerUnreachable(node) => engine.peer_unreachable(node),
                Incoming::PeerCrashed(node) => engine.peer_crashed(node),
                Incoming::SnapshotSent { group, to, delivered } => {
                    engine.snapshot_sent(group, to, delivered);
                }
                Incoming::Request(request) => self.request(running, request, now, outputs),
                Incoming::SnapshotDue { group, file } => {
                    self.save_snapshot(running, group, &file, outputs)?;
                }
                Incoming::StreamEnded(EndedStream { group, session, stream, is_client_gone }) => {
                    let key = StreamKey { group, session, stream };
                    running.groups[place(group)].ledger.closed(key);
                    engine.stream_closed(key, is_client_gone);
                }
                // It says why not, and the operator asks again.
                Incoming::TransferLeadership { group, to } => engine.hand_over(group, to, ()),
                Incoming::Change { group, number, change } => {
                    engine.change_membership(group, change, number);
                }
                Incoming::Administer { group, command } => {
                    engine.call(group, *command, Caller::Administrator, None);
                }
                Incoming::Backup => {
                    engine.read(GroupId::FIRST, Query::Snapshot, Reader::Backup);
                }
                Incoming::Removed => {
                    running.groups.iter().for_each(|group| engine.removed(group.id));
                }
            }
        }
        Ok(())
    }

    fn save_snapshot(
        &mut self,
        running: &mut Running,
        group: GroupId,
        file: &SnapshotFile,
        outputs: &mut Vec<Output>,
    ) -> Result<(), Gone> {
        let crashes = self.crash_point == Some(CrashPoint::Snapshot);
        if crashes {
            self.disk.start_moments();
        }
        let saved = running.log.save(group, file);
        if crashes {
            return Err(self.crash_at_some_moment(outputs));
        }
        match saved {
            Err(error) if error.obstacle().is_none() => return Err(stopped(error, outputs)),
            saved => running.engine.snapshot_saved(group, saved.ok().map(|()| file.index)),
        }
        Ok(())
    }

    /// The node does with it what the service says. A leader of an older build takes nothing from another node, so half of
    /// what could be passed on is refused.
    fn request(
        &mut self,
        running: &mut Running,
        mut request: Box<Request>,
        now: Duration,
        outputs: &mut Vec<Output>,
    ) {
        let here = self.id.0 as usize - 1;
        match self.route(running, &request) {
            Route::Here => {}
            Route::Forward(to) if self.rng.percent(50) => {
                request.reply_to.via = Some(here);
                return outputs.push(Output::Forward { to: NodeId(to), request });
            }
            Route::Forward(_) | Route::Wait | Route::NotLeader { .. } => {
                let leadership = running.groups[place(request.reply_to.group)].leadership;
                let leader = leadership.leader.filter(|leader| *leader != self.id);
                let what = AnswerBody::Refused(Refusal::Elsewhere { leader });
                let answer = Answer { reply_to: request.reply_to, what };
                return outputs.push(Output::Answer(Box::new(answer)));
            }
        }
        let Request { reply_to, body } = *request;
        let group = reply_to.group;
        let Running { engine, groups, tier, .. } = running;
        if let (GroupId::FIRST, Some(replica)) = (group, engine.replica(group)) {
            tier.serve(reply_to.session, replica.table());
        }
        let ledger = &mut groups[place(group)].ledger;
        let Some(stream) = reply_to.stream else {
            return match body {
                Body::Command(Command::Touch { session, .. }) if self.rng.percent(50) => {
                    engine.touches(group, vec![session], reply_to);
                }
                Body::Command(command) => {
                    ledger.called(reply_to);
                    engine.call(group, command, Caller::Client(reply_to), None);
                }
                Body::Status(name) => {
                    let query =
                        Query::Status { name, shown_max: WAITERS_TOLD, is_owner_asked: true };
                    engine.read(group, query, Reader::Client(reply_to));
                }
            };
        };
        let stream = StreamKey { group, session: reply_to.session, stream };
        if ledger.opens(stream) {
            engine.stream_opened(stream, ClientStream { key: stream, client: reply_to.client });
        }
        let number = ledger.sent(reply_to);
        match body {
            Body::Command(touch @ Command::Touch { .. }) if ledger.deferrable.contains(&stream) => {
                ledger.heartbeat(stream.session, now, engine.is_halted());
                engine.defer(stream, vec![(number, touch)]);
            }
            Body::Command(command) => engine.frame(stream, vec![(number, command)]),
            Body::Status(name) => engine.read_statuses(stream, vec![(number, name)]),
        }
    }

    fn route(&self, running: &Running, request: &Request) -> Route {
        let forwarded_by = request.reply_to.via.map(|via| via as u64 + 1);
        let caller = service::Caller::client(Protocol::Framed, None).forwarded_from(forwarded_by);
        let method = match (&request.body, request.reply_to.stream) {
            (_, Some(_)) => Method::Session,
            (Body::Status(_), None) => Method::Status,
            (Body::Command(_), None) => Method::Acquire,
        };
        let leader = match running.groups[place(request.reply_to.group)].leadership {
            leadership if leadership.is_here => Leader::ThisNode,
            leadership => match leadership.leader.filter(|leader| *leader != self.id) {
                Some(leader) => Leader::Node(leader.0),
                None => Leader::Unknown,
            },
        };
        service::route(&caller, method, leader)
    }
}

impl Running {
    fn hear(
        &mut self,
        from: NodeId,
        group: GroupId,
        log_version: u32,
        bytes: &[u8],
        outputs: &mut Vec<Output>,
    ) {
        if self.met.insert(from, log_version) != Some(log_version) {
            // A build knows of no format that is newer than its own.
            let known = log_version.min(self.build.log_version());
            self.engine.peer_identified(from, member(from), known);
        }
        let Err(error) = self.engine.peer_message(from, group, bytes) else { return };
        let Some(replica) = self.engine.replica(group) else { return };
        let (members, last_index) = (replica.membership(), replica.progress().last_index);
        let is_unknown = !members.is_member(from) && !members.was_removed(from);
        let is_refused_as_unknown = is_unknown && matches!(error, MessageError::Refused(_));
        if is_refused_as_unknown && replica.applied_index() < last_index {
            // It has started again, and what it has yet to apply may add the sender.
            return;
        }
        let was_removed = members.was_removed(from);
        if was_removed && !self.was_removed_from_all_groups(from) {
            return;
        }
        outputs.push(if was_removed {
            Output::FromRemoved { node: from }
        } else {
            // Honest members send nothing that a replica has to refuse, however late it comes.
            let what = format!("refuses a message of a peer: {error}");
            Output::Broken { checker: "replica", what }
        });
    }

    /// As the server decides it (`membership.rs`). As long as one group has the node, it may be needed there.
    fn was_removed_from_all_groups(&self, node: NodeId) -> bool {
        #[cfg(feature = "planted")]
        if crate::planted::Bug::RefusedByOneGroup.is_active() {
            return true;
        }
        self.engine.replicas().all(|(_, replica)| replica.membership().was_removed(node))
    }

    fn note_proposals(&mut self, outputs: &mut Vec<Output>) {
        for (group, turn) in self.engine.turns() {
            let group = *group;
            if !self.engine.replica(group).is_some_and(|replica| replica.leadership().is_here) {
                continue;
            }
            let ledger = &mut self.groups[place(group)].ledger;
            for entry in &turn.entries {
                let Ok(batch) = Batch::decode(&entry.data) else { continue };
                outputs.extend(ledger.complaint_about_entry(&batch.commands));
                outputs.push(Output::Proposed { group, batch: Box::new(batch) });
            }
        }
    }

    /// One step of the engine, and what can be seen of it.
    fn advance(&mut self, now: Duration, outputs: &mut Vec<Output>) -> Result<Step, Gone> {
        let step = match self.engine.advance(now) {
            Ok(step) => step,
            Err(fatal) => return Err(broken(fatal.to_string(), outputs)),
        };
        for place in 0..self.groups.len() {
            self.groups[place].has_applied = self.note_applied(place, outputs);
        }
        self.carry_out_effects(outputs);
        self.check_tier(outputs);
        for place in 0..self.groups.len() {
            if self.groups[place].has_applied {
                self.look_at_table(place, outputs)?;
            }
        }
        if step == Step::Rest {
            for GroupState { id, ledger, leadership, .. } in &mut self.groups {
                let replica = self.engine.replica(*id);
                if replica.is_some_and(|replica| replica.is_handing_over()) {
                    // Until that is over it proposes nothing.
                    ledger.deferred.clear();
                }
                outputs.extend(match leadership.is_here {
                    true => ledger.complaint_about_deferred(),
                    false => ledger.complaint_about_forgotten(),
                });
                outputs.extend(ledger.complaint_about_wrong_loss(*id));
            }
        }
        Ok(step)
    }

    fn check_tier(&self, outputs: &mut Vec<Output>) {
        let Some(replica) = self.engine.replica(GroupId::FIRST) else { return };
        if let Some(what) = self.tier.complaint(replica.table()) {
            outputs.push(Output::Broken { checker: "tier", what });
        }
    }

    /// What the last step applied in a group. Gives whether there was anything.
    fn note_applied(&mut self, place: usize, outputs: &mut Vec<Output>) -> bool {
        let Running { engine, groups, .. } = self;
        let GroupState { id, seen, installed, .. } = &mut groups[place];
        let group = *id;
        let Some(now) = engine.replica(group).map(Seen::of) else { return false };
        let before = std::mem::replace(seen, now);
        if now.applied <= before.applied {
            return false;
        }
        let installed = installed.take_if(|index| *index <= now.applied);
        if installed.is_none() {
            let events = engine.events(group).map_or(&[][..], |events| events);
            outputs.extend(publish::check_count(before.publication, now.publication, events));
        }
        // A table that was received counts from zero.
        let (first, cost_before) = match installed {
            Some(index) => (index + 1, SearchCost::default()),
            None => (before.applied + 1, before.search_cost),
        };
        let entries = LogIndex(first)..=LogIndex(now.applied);
        outputs.extend(cut_searches(group, cost_before, now.search_cost, entries));
        self.note_events(group, installed, outputs);
        true
    }

    fn note_events(&mut self, group: GroupId, installed: Option<u64>, outputs: &mut Vec<Output>) {
        let table_time = self.engine.replica(group).map(|replica| replica.table().now());
        let Some(events) = self.engine.events(group) else { return };
        if let Some(index) = installed {
            // Entries after the snapshot may have been applied in the same turn.
            let at = events.first().map(|(_, at, _)| *at).or(table_time).unwrap_or_default();
            outputs.push(Output::Restored { group, index: LogIndex(index), at });
        }
        let happened = events.drain(..);
        let happened =
            happened.map(|(index, at, event)| Output::Happened { group, index, at, event });
        outputs.extend(happened);
    }

    fn look_at_table(&mut self, place: usize, outputs: &mut Vec<Output>) -> Result<(), Gone> {
        let state = &mut self.groups[place];
        let group = state.id;
        let Some(replica) = self.engine.replica(group) else { return Ok(()) };
        let (index, table) = (replica.applied_index(), replica.table());
        if self.build == Build::Old && table.rules() > RulesVersion::ONE {
            return Err(broken("an old build met rules that it does not know".into(), outputs));
        }
        if !state.rules_seen && table.rules() >= RulesVersion::TWO {
            state.rules_seen = true;
            outputs.push(Output::FollowsRulesTwo { group, at: table.now() });
        }
        if state.leadership.is_here {
            outputs.push(Output::Committed { group, term: state.leadership.term });
        }
        let is_digested = index.is_multiple_of(DIGEST_EVERY) && index != state.digested_at;
        // A session is ending for a few entries only.
        if (is_digested || table.ending_session_count() > 0)
            && let Err(contradiction) = table.check()
        {
            let what = format!("its table contradicts itself: {contradiction}");
            outputs.push(Output::Broken { checker: "replica", what });
        }
        if is_digested {
            state.digested_at = index;
            let shown = hidden_names::first_shown(table, index / DIGEST_EVERY);
            outputs.extend(shown.map(|what| Output::Broken { checker: "hidden names", what }));
            let (at, digest) = (table.now(), table.digest().0);
            outputs.push(Output::Digest { group, index: LogIndex(index), at, digest });
        }
        Ok(())
    }

    fn carry_out_effects(&mut self, outputs: &mut Vec<Output>) {
        let mut effects = std::mem::take(&mut self.effects);
        self.engine.take_effects(&mut effects);
        for effect in effects.drain(..) {
            self.carry_out(effect, outputs);
        }
        self.effects = effects;
    }

    fn carry_out(&mut self, effect: Effect<SimHost>, outputs: &mut Vec<Output>) {
        match effect {
            Effect::Send { to, messages } => outputs.extend(
                messages
                    .into_iter()
                    .map(|(group, message)| (group, Outgoing { to, message, is_snapshot: false }))
                    .map(|(group, outgoing)| Output::Send { group, outgoing }),
            ),
            Effect::SendSnapshot { to, group, message } => {
                let outgoing = Outgoing { to, message, is_snapshot: true };
                outputs.push(Output::Send { group, outgoing });
            }
            Effect::Answer { to: Caller::Client(reply_to), answer } => {
                let ledger = &mut self.groups[place(reply_to.group)].ledger;
                outputs.push(ledger.answer_call(reply_to, answer));
            }
            Effect::Answer { to: Caller::Administrator, .. } => {}
            Effect::Answer { to: Caller::Publisher(group, told), answer } => {
                if answer.result.is_ok() {
                    self.groups[place(group)].published_mark = told;
                }
            }
            Effect::AnswerRead { to: Reader::Client(reply_to), answer } => {
                outputs.push(host::status(reply_to, answer));
            }
            Effect::AnswerRead { to: Reader::Backup, answer } => {
                if let Ok(ReadData::Snapshot(state)) = answer.map(|answer| answer.data) {
                    outputs.push(Output::Backup { at: state.logical_time, file: state.file });
                }
            }
            Effect::AnswerTouches { to, answer } => {
                let table = self.engine.replica(to.group).map(|replica| replica.table());
                let session = table.and_then(|table| table.session(to.session));
                outputs.push(host::touched(to, answer, session.map(|session| session.ttl)));
            }
            Effect::AnswerChange { to: number, answer } => {
                outputs.push(Output::ChangeEnded { number, answer: answer.ok() });
            }
            Effect::Deliver => self.engine.deliver(|stream, list| {
                self.groups[place(stream.key.group)].ledger.deliver(stream, list, outputs);
                Ok(())
            }),
            Effect::StreamServed { stream, is_deferrable: true } => {
                self.groups[place(stream.group)].ledger.deferrable.insert(stream);
            }
            Effect::Installed { group, index } => {
                self.groups[place(group)].installed = Some(index);
            }
            Effect::LeadershipChanged { group, leadership } => {
                let state = &mut self.groups[place(group)];
                state.leadership = leadership;
                state.ledger.leadership_changed();
                outputs.push(Output::Leadership { group, leadership });
            }
            Effect::MembershipChanged { group, index, members } => {
                let (index, members) = (LogIndex(index), Box::new(members));
                outputs.push(Output::Members { group, index, members });
            }
            Effect::SaveSnapshot { group, file } => {
                outputs.push(Output::SnapshotToSave { group, file });
            }
            Effect::Tier(change) => self.tier.change(change),
            // Events are taken after every step.
            Effect::Publish { .. }
            | Effect::StreamServed { is_deferrable: false, .. }
            | Effect::AnswerHandOver { .. } => {}
        }
    }
}

/// Whether one of the entries that were just applied used up the steps of its searches. An entry that skips a search
/// has taken all the steps that it has.
fn cut_searches(
    group: GroupId,
    before: SearchCost,
    after: SearchCost,
    entries: RangeInclusive<LogIndex>,
) -> Option<Output> {
    let steps = after.steps.saturating_sub(before.steps);
    if after.skipped <= before.skipped {
        return None;
    }
    if steps < Limits::default().deadlock_walk_max as u64 {
        let what = format!("a search for a deadlock was skipped after {steps} steps");
        return Some(Output::Broken { checker: "deadlock", what });
    }
    Some(Output::SearchesCut { group, entries })
}

/// The process stops, as it has to.
fn stopped(error: LogError, outputs: &mut Vec<Output>) -> Gone {
    outputs.push(Output::Stopped { why: error.to_string() });
    Gone
}

/// The process stops, and never should have to.
fn broken(what: String, outputs: &mut Vec<Output>) -> Gone {
    outputs.push(Output::Broken { checker: "replica", what: what.clone() });
    outputs.push(Output::Stopped { why: what });
    Gone
}
