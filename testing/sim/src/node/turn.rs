//! The loop of a node. The steps are those of the server's driver, in its order:
//!
//! ```text
//! take input -> tell the time -> begin turn -> send what may go early, read and answer what is committed
//!            -> one write and one sync -> finish turn -> send, answer, read
//! ```
//!
//! A slow disk stops the loop before the write; a full one after it was refused. In both cases the node
//! is busy, and the same turn goes on from there when it is woken.

use std::collections::VecDeque;
use std::time::Duration;

use holdfast_core::{Command, Event, LogIndex, RulesVersion};
use holdfast_replica::{Effect, Fatal, NodeId, Replica, Ticket, Turn, Unavailable};

use super::callers::Failed;
use super::log::{HalfTurn, PersistError};
use super::{Build, CrashPoint, Incoming, Node, Output, Running, member};
use crate::history::RealTime;
use crate::message::{Answer, Body, Notice, Refusal, Request, Told, session_of};

/// The digest of the table is taken where the index is a multiple of this.
const DIGEST_EVERY: u64 = 32;
/// So many of a queue are looked at by a read.
const WAITERS_TOLD: usize = 3;

/// How the disk work of a turn went.
enum Persisted {
    Done,
    /// The loop goes on later.
    Later,
    /// The process is gone.
    Gone,
}

impl Node {
    /// Turns the loop once, or as far as the disk lets it.
    pub(crate) fn turn(&mut self, now: RealTime, outputs: &mut Vec<Output>) {
        if self.paused > 0 || now < self.busy_until {
            return;
        }
        let Some(mut running) = self.running.take() else { return };
        let half = running.half.take();
        if half.is_none() {
            self.take_input(&mut running, outputs);
            running.replica.handle_time(self.clock.at(now));
        } else if running.out_of_space {
            self.refuse_for_want_of_space(&mut running, outputs);
        }
        if running.gone || !self.go_on(&mut running, half, now, outputs) {
            return;
        }
        if running.removed && running.half.is_none() {
            outputs.push(Output::Removed);
            return;
        }
        self.running = Some(running);
    }

    /// Both halves, again and again until there is nothing left to do. False if the process is gone.
    fn go_on(
        &mut self,
        running: &mut Running,
        half: Option<HalfTurn>,
        now: RealTime,
        outputs: &mut Vec<Output>,
    ) -> bool {
        let mut resumed = half;
        loop {
            let is_resumed = resumed.is_some();
            let next = resumed.take().or_else(|| running.begin_turn(outputs));
            let is_last = next.is_none();
            let begins = !is_resumed && !is_last;
            if begins && !running.apply(Replica::answer_committed, None, outputs) {
                return false;
            }
            let snapshot = next.as_ref().and_then(|half| half.turn.snapshot.as_ref());
            let snapshot = snapshot.map(|snapshot| LogIndex(snapshot.index));
            match self.persist(running, next, is_resumed, now, outputs) {
                Persisted::Done => {}
                Persisted::Later => return true,
                Persisted::Gone => return false,
            }
            if !running.apply(Replica::finish_turn, snapshot, outputs) {
                return false;
            }
            if is_last {
                return true;
            }
        }
    }

    fn persist(
        &mut self,
        running: &mut Running,
        half: Option<HalfTurn>,
        is_resumed: bool,
        now: RealTime,
        outputs: &mut Vec<Output>,
    ) -> Persisted {
        let Some(mut half) = half else { return Persisted::Done };
        let needs_disk = half.turn.needs_disk();
        if let (Some((low, high)), true, false) = (self.slow_disk_us, needs_disk, is_resumed) {
            let took_us = self.rng.between(low, high);
            self.busy_until = RealTime(now.0 + took_us);
            running.replica.handle_write_time(Duration::from_micros(took_us));
            running.half = Some(half);
            return Persisted::Later;
        }
        let crashes = needs_disk && self.crash_point == Some(CrashPoint::Turn);
        if crashes {
            self.disk.start_moments();
        }
        let result = running.log.persist(&mut half);
        if crashes {
            return self.crash_at_some_moment(outputs);
        }
        match result {
            Ok(()) => {
                running.out_of_space = false;
                if running.log.is_in_the_way() {
                    running.replica.request_snapshot();
                }
                Persisted::Done
            }
            Err(PersistError::OutOfSpace) => {
                running.out_of_space = true;
                running.half = Some(half);
                self.busy_until = RealTime(now.0 + self.tick_us());
                Persisted::Later
            }
            Err(PersistError::Fatal(why)) => {
                outputs.push(Output::Stopped { why });
                Persisted::Gone
            }
        }
    }

    /// The power fails before one of the operations that the disk was just asked for.
    fn crash_at_some_moment(&mut self, outputs: &mut Vec<Output>) -> Persisted {
        let moments = self.disk.take_moments();
        if let Some(moment) = self.rng.pick(&moments) {
            self.disk = moment.clone();
        }
        self.crash();
        outputs.push(Output::Crashed);
        Persisted::Gone
    }

    fn take_input(&mut self, running: &mut Running, outputs: &mut Vec<Output>) {
        while let Some(incoming) = self.inbox.pop_front() {
            match incoming {
                Incoming::Consensus { from, log_version, bytes } => {
                    running.hear(from, log_version, &bytes, outputs);
                }
                Incoming::PeerUnreachable(node) => running.replica.handle_peer_unreachable(node),
                Incoming::PeerGone(node) => running.replica.handle_peer_gone(node),
                Incoming::SnapshotSent { to, delivered } => {
                    running.replica.handle_snapshot_sent(to, delivered);
                }
                Incoming::Request(request) => self.request(running, request, outputs),
                Incoming::SnapshotDue(file) => {
                    let crashes = self.crash_point == Some(CrashPoint::Snapshot);
                    if crashes {
                        self.disk.start_moments();
                    }
                    let result = running.log.save(&file);
                    if crashes {
                        self.crash_at_some_moment(outputs);
                        running.gone = true;
                        return;
                    }
                    match result {
                        Ok(()) => running.replica.handle_snapshot_saved(file.index),
                        Err(PersistError::OutOfSpace) => running.replica.handle_snapshot_failed(),
                        Err(PersistError::Fatal(why)) => {
                            outputs.push(Output::Stopped { why });
                            running.gone = true;
                            return;
                        }
                    }
                }
                Incoming::StreamBroke(broken) => {
                    let (session, stream) = (broken.session, broken.stream);
                    running.streams.remove(&session);
                    let command = Command::DetachStream { session, stream };
                    running.replica.handle_call(None, command);
                }
                Incoming::TransferLeadership(to) => {
                    // It says why not, and whoever wants it asks again.
                    let _ = running.replica.hand_over(to);
                }
                Incoming::Change { number, change } => {
                    let ticket = running.callers.change(number);
                    running.replica.propose_membership(ticket, change);
                }
                Incoming::Backup => running.replica.handle_read(running.callers.backup()),
                Incoming::Removed => {
                    outputs.push(Output::Removed);
                    running.gone = true;
                    return;
                }
            }
        }
    }

    /// The leader takes it in; another node passes it on, one hop, or says who leads.
    fn request(
        &mut self,
        running: &mut Running,
        mut request: Box<Request>,
        outputs: &mut Vec<Output>,
    ) {
        let leader = running.leadership.leader.filter(|leader| *leader != self.id);
        if let (false, Some(to), None) = (running.leadership.is_here, leader, request.reply_to.via)
            && self.rng.percent(50)
        {
            request.reply_to.via = Some(self.id.0 as usize - 1);
            outputs.push(Output::Forward { to, request });
            return;
        }
        let Request { reply_to, body } = *request;
        if running.leadership.is_here {
            running.streams.insert(reply_to.session, reply_to.client);
        }
        match body {
            Body::Command(command) => {
                let ticket = running.callers.call(reply_to, &command);
                running.replica.handle_call(Some(ticket), command);
            }
            Body::Status(name) => {
                running.replica.handle_read(running.callers.read(reply_to, name));
            }
        }
    }

    /// Consensus stands still between the halves of a turn; callers are told, peers repeat themselves. What
    /// will not be said again is heard when the turn is done.
    fn refuse_for_want_of_space(&mut self, running: &mut Running, outputs: &mut Vec<Output>) {
        let mut deferred = VecDeque::new();
        while let Some(incoming) = self.inbox.pop_front() {
            match incoming {
                Incoming::Request(request) => {
                    let reply_to = request.reply_to;
                    let what = Told::Refused(Refusal::OutOfSpace);
                    outputs.push(Output::Answer(Box::new(Answer { reply_to, what })));
                }
                Incoming::SnapshotDue(_) => running.replica.handle_snapshot_failed(),
                Incoming::Consensus { .. } | Incoming::Backup => {}
                Incoming::Change { number, .. } => {
                    outputs.push(Output::ChangeEnded { number, answer: None });
                }
                Incoming::SnapshotSent { .. }
                | Incoming::PeerUnreachable(_)
                | Incoming::PeerGone(_)
                | Incoming::StreamBroke(_)
                | Incoming::Removed
                | Incoming::TransferLeadership(_) => deferred.push_back(incoming),
            }
        }
        self.inbox = deferred;
    }
}

impl Running {
    fn hear(&mut self, from: NodeId, log_version: u32, bytes: &[u8], outputs: &mut Vec<Output>) {
        let known = self.met.insert(from, log_version);
        if known.is_none() {
            self.replica.introduce(from, member(from), true);
        }
        // An old build does not know that rules can be adopted.
        if known != Some(log_version) && self.build == Build::New {
            self.replica.handle_log_version(from, log_version);
        }
        match self.replica.handle_message(bytes) {
            Ok(()) => {}
            Err(_) if self.replica.membership().was_removed(from) => {
                outputs.push(Output::FromRemoved(from));
            }
            // Honest members send nothing that a replica has to refuse, however late it comes.
            Err(error) => {
                let what = format!("refuses a message of a peer: {error}");
                outputs.push(Output::Broken { what });
            }
        }
    }

    fn begin_turn(&mut self, outputs: &mut Vec<Output>) -> Option<HalfTurn> {
        self.tell_what_is_published();
        let mut turn: Turn = self.replica.begin_turn()?;
        outputs.extend(std::mem::take(&mut turn.messages).into_iter().map(Output::Send));
        for ticket in std::mem::take(&mut turn.reads) {
            self.serve_read(ticket, outputs);
        }
        if self.replica.leadership().is_here {
            let entries = turn.entries.iter();
            outputs.extend(entries.map(|entry| Output::Proposed(entry.data.clone())));
        }
        Some(HalfTurn::new(turn))
    }

    /// Applies what is committed and carries out what comes of it. False if the node has to stop.
    fn apply(
        &mut self,
        step: fn(&mut Replica, &mut Vec<Effect>) -> Result<(), Fatal>,
        installed: Option<LogIndex>,
        outputs: &mut Vec<Output>,
    ) -> bool {
        let applied_before = self.replica.applied_index();
        let published = self.replica.table().publication();
        let mut effects = std::mem::take(&mut self.effects);
        if let Err(fatal) = step(&mut self.replica, &mut effects) {
            outputs.push(Output::Broken { what: fatal.to_string() });
            outputs.push(Output::Stopped { why: fatal.to_string() });
            return false;
        }
        if self.build == Build::Old && self.replica.table().rules() > RulesVersion::ONE {
            let what = "an old build met rules that it does not know".to_owned();
            outputs.push(Output::Broken { what: what.clone() });
            outputs.push(Output::Stopped { why: what });
            return false;
        }
        let (index, now) = (self.replica.applied_index(), self.replica.table().now());
        if installed.is_none() {
            let now_published = self.replica.table().publication();
            Running::check_count(published, now_published, &effects, outputs);
        }
        if let Some(index) = installed {
            // Entries after the snapshot may have been applied in the same turn.
            let first = effects.iter().find_map(|effect| match effect {
                Effect::Happened { at, .. } => Some(*at),
                _ => None,
            });
            outputs.push(Output::Restored { index, at: first.unwrap_or(now) });
        }
        for effect in effects.drain(..) {
            self.carry_out(effect, outputs);
        }
        self.effects = effects;
        if index > applied_before && self.leadership.is_here {
            outputs.push(Output::Committed { term: self.leadership.term });
        }
        if index.is_multiple_of(DIGEST_EVERY) && index != self.digested_at {
            self.digested_at = index;
            if let Err(contradiction) = self.replica.table().check() {
                let what = format!("its table contradicts itself: {contradiction}");
                outputs.push(Output::Broken { what });
            }
            let digest = self.replica.table().digest().0;
            outputs.push(Output::Digest { index: LogIndex(index), at: now, digest });
        }
        true
    }

    fn carry_out(&mut self, effect: Effect, outputs: &mut Vec<Output>) {
        match effect {
            Effect::Send(message) => outputs.push(Output::Send(message)),
            Effect::Answer { ticket, at, outcome } => {
                outputs.extend(self.callers.answer(ticket, at, outcome).map(Output::Answer));
            }
            Effect::Failed { ticket, reason } => {
                outputs.extend(self.callers.fail(ticket, refusal(reason)).map(
                    |failed| match failed {
                        Failed::Call(answer) => Output::Answer(answer),
                        Failed::Change(number) => Output::ChangeEnded { number, answer: None },
                    },
                ));
            }
            Effect::Read { ticket } => self.serve_read(ticket, outputs),
            Effect::Happened { index, at, event } => {
                self.tell_those_concerned(at, &event, outputs);
                outputs.push(Output::Happened { index, at, event });
            }
            Effect::LeadershipChanged(leadership) => {
                self.leadership = leadership;
                if !leadership.is_here {
                    let refusal = Refusal::Elsewhere { leader: leadership.leader };
                    let parked = self.callers.fail_parked(refusal);
                    let parked = parked.into_iter().map(Box::new);
                    outputs.extend(parked.map(Output::Answer));
                    self.streams.clear();
                }
                outputs.push(Output::Leadership(leadership));
            }
            Effect::BackupMade { at, file, .. } => outputs.push(Output::Backup { at, file }),
            Effect::SaveSnapshot(file) => outputs.push(Output::SnapshotToSave(file)),
            Effect::ChangeEnded { ticket, result } => {
                let number = self.callers.take_change(ticket);
                outputs.extend(
                    number.map(|number| Output::ChangeEnded { number, answer: Some(result) }),
                );
            }
            Effect::MembershipChanged { members, .. } => {
                self.removed |= members.was_removed(self.id);
                let index = LogIndex(self.replica.applied_index());
                outputs.push(Output::Members { index, members: Box::new(members) });
            }
        }
    }

    fn serve_read(&mut self, ticket: Ticket, outputs: &mut Vec<Output>) {
        if self.callers.is_backup(ticket) {
            return self.replica.handle_backup(ticket);
        }
        let Some((reply_to, name)) = self.callers.take_read(ticket) else { return };
        let status = self.replica.table().status(&name, WAITERS_TOLD);
        let holder =
            status.holders.first().map(|holder| (session_of(holder.session), holder.token));
        let waiter = status.waiters.last().map(|waiter| waiter.session);
        let what = Told::Status { holder, waiters: status.waiter_count as u64, waiter };
        outputs.push(Output::Answer(Box::new(Answer { reply_to, what })));
    }

    fn tell_those_concerned(
        &mut self,
        at: holdfast_core::LogicalTime,
        event: &Event,
        outputs: &mut Vec<Output>,
    ) {
        match event {
            Event::WaitEnded { session, request, outcome, .. } => {
                let answer = self.callers.wait_ended((*session, *request), at, outcome.clone());
                outputs.extend(answer.map(Output::Answer));
            }
            Event::HoldEnded { name, session, request, .. } => {
                if let Some(client) = self.streams.get(session) {
                    let notice = Notice::HoldEnded { name: name.clone(), acquire: *request };
                    outputs.push(Output::Notice { client: *client, session: *session, notice });
                }
            }
            Event::SessionEnded { session, .. } => {
                if let Some(client) = self.streams.remove(session) {
                    let notice = Notice::SessionEnded;
                    outputs.push(Output::Notice { client, session: *session, notice });
                }
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
}

fn refusal(reason: Unavailable) -> Refusal {
    match reason {
        Unavailable::NotLeader { leader } | Unavailable::LeadershipLost { leader } => {
            Refusal::Elsewhere { leader }
        }
        Unavailable::Overloaded => Refusal::Overloaded,
    }
}
