//! A group of one: what a replica makes of its disk, when it takes snapshots, and how it counts time.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "it is a test")]

use std::time::Duration;

use bytes::Bytes;
use holdfast_core::command::{AcquireAll, Call, Member, Mode, OpenSession, Owner, Terms};
use holdfast_core::{
    ActorId, Batch, Command, Limits, LockName, LogicalTime, Outcome, PublicSessionId, RequestId,
    SessionId, Span,
};
use holdfast_replica::{
    Durable, Effect, Fatal, GroupId, HardState, LogEntry, NodeId, Replica, ReplicaConfig,
    SnapshotFile, StartError, Ticket,
};

const ALICE: SessionId = SessionId(0xa11ce);
const ME: NodeId = NodeId(1);

fn config() -> ReplicaConfig {
    ReplicaConfig {
        group: GroupId(1),
        node: ME,
        voters: vec![ME],
        tick: Duration::from_millis(50),
        heartbeat_ticks: 2,
        election_ticks: (10, 11),
        grace: Span::from_ms(1_000),
        snapshot_every_entries: u64::MAX,
        snapshot_every_bytes: u64::MAX,
        snapshot_slice_entries: 2,
        snapshot_slice_pause: Duration::ZERO,
        keep_entries: 0,
        keep_bytes: u64::MAX,
        limits: Limits::default(),
    }
}

struct SingleNode {
    replica: Replica,
    now: Duration,
    effects: Vec<Effect>,
    last_ticket: u64,
    /// What a disk would have.
    entries: Vec<LogEntry>,
    hard_state: HardState,
}

impl SingleNode {
    /// Leads, and has opened a session.
    fn new(config: ReplicaConfig) -> SingleNode {
        let mut node = SingleNode::started(Replica::new(config, Durable::default()).unwrap());
        node.elect();
        node.commit(open(ALICE));
        node
    }

    fn started(replica: Replica) -> SingleNode {
        SingleNode {
            replica,
            now: Duration::ZERO,
            effects: Vec::new(),
            last_ticket: 0,
            entries: Vec::new(),
            hard_state: HardState::default(),
        }
    }

    fn elect(&mut self) {
        for _ in 0..12 {
            self.pass_ms(50);
        }
        assert!(self.replica.leadership().is_here);
    }

    fn pass_ms(&mut self, ms: u64) {
        self.now += Duration::from_millis(ms);
        self.replica.handle_time(self.now);
        self.turn().unwrap();
    }

    fn turn(&mut self) -> Result<(), Fatal> {
        loop {
            let turn = self.replica.begin_turn();
            if let Some(turn) = &turn {
                let read = turn.reads.iter().map(|ticket| Effect::Read { ticket: *ticket });
                self.effects.extend(read);
                self.entries.extend(turn.entries.iter().cloned());
                self.hard_state = turn.hard_state.unwrap_or(self.hard_state);
            }
            self.replica.finish_turn(&mut self.effects)?;
            if turn.is_none() {
                return Ok(());
            }
        }
    }

    fn commit(&mut self, command: Command) -> Outcome {
        self.last_ticket += 1;
        let asked = Ticket(self.last_ticket);
        self.replica.handle_call(Some(asked), command);
        self.turn().unwrap();
        let answer = self.effects.iter().find_map(|effect| match effect {
            Effect::Answer { ticket, outcome, .. } if *ticket == asked => Some(outcome.clone()),
            _ => None,
        });
        answer.unwrap_or_else(|| panic!("{asked:?} is not answered"))
    }

    /// Commits entries until a snapshot is to be saved. Gives how many it took.
    fn entries_until_snapshot(&mut self) -> u64 {
        for count in 1..100 {
            self.commit(touch());
            if self.take_snapshot().is_some() {
                return count;
            }
        }
        panic!("no snapshot after a hundred entries");
    }

    fn take_snapshot(&mut self) -> Option<SnapshotFile> {
        let place = self.effects.iter().position(|e| matches!(e, Effect::SaveSnapshot(_)))?;
        match self.effects.remove(place) {
            Effect::SaveSnapshot(file) => Some(file),
            _ => None,
        }
    }

    /// What a restart would find.
    fn durable(&self, snapshot: Option<SnapshotFile>) -> Durable {
        let index = snapshot.as_ref().map_or(0, |snapshot| snapshot.index);
        let entries = self.entries.iter().filter(|entry| entry.index > index).cloned().collect();
        Durable { hard_state: self.hard_state, snapshot, entries }
    }
}

fn open(session: SessionId) -> Command {
    Command::OpenSession(OpenSession {
        session,
        public: PublicSessionId(session.0 as u64),
        stream: None,
        ttl: Span::from_ms(60_000),
        linger: Span::from_ms(60_000),
        owner: Owner::default(),
        identity: None,
    })
}

fn touch() -> Command {
    Command::Touch { session: ALICE, acked_through: RequestId(0) }
}

/// A single voter commits a tick in the turn that proposes it. If the next tick came in the same turn, the turn would end
/// only when nothing is left to be ended, and no input would be read before.
#[test]
fn a_large_session_ends_with_one_tick_in_each_turn() {
    let limits = Limits { ended_parts_per_entry_max: 1, ..Limits::default() };
    let mut node = SingleNode::new(ReplicaConfig { limits, ..config() });
    node.replica.handle_log_version(ME, u32::MAX);
    node.pass_ms(50);
    for request in 1..=6 {
        let call = Call {
            session: ALICE,
            request: RequestId(request),
            acked_through: RequestId(request - 1),
        };
        let name = LockName::new(&format!("lock-{request}")).unwrap();
        let members = [Member { name, mode: Mode::Exclusive }].into();
        let terms = Terms::default();
        let acquire = AcquireAll { call, actor: ActorId(0), members, terms };
        let outcome = node.commit(Command::AcquireAll(acquire));
        assert!(matches!(outcome, Outcome::GrantedAll(_)), "{outcome:?}");
    }
    let outcome = node.commit(Command::CloseSession { session: ALICE });
    assert_eq!(outcome, Outcome::SessionClosed);
    let mut turns = 0;
    while node.replica.table().ending_session_count() > 0 {
        let before = node.entries.len();
        // No time has to pass between these turns, and no input has to come.
        node.pass_ms(if turns == 0 { 50 } else { 0 });
        assert_eq!(node.entries.len() - before, 1, "turn {turns}");
        let is_ending = node.replica.table().ending_session_count() > 0;
        assert_eq!(node.replica.next_turn_within() == Some(Duration::ZERO), is_ending);
        turns += 1;
    }
    assert!((3..=6).contains(&turns), "{turns} turns");
}

#[test]
fn a_snapshot_is_taken_after_so_many_entries_and_again_after_as_many() {
    let mut node = SingleNode::new(ReplicaConfig { snapshot_every_entries: 7, ..config() });
    node.entries_until_snapshot();
    let index = node.replica.applied_index();
    node.replica.handle_snapshot_saved(index);
    assert_eq!(node.entries_until_snapshot(), 7);
}

#[test]
fn a_snapshot_leaves_a_pause_between_its_slices_however_many_turns_there_are() {
    let snapshot_slice_pause = Duration::from_millis(10);
    let mut node = SingleNode::new(ReplicaConfig { snapshot_slice_pause, ..config() });
    for session in 1..6 {
        node.commit(open(SessionId(session)));
    }
    node.pass_ms(50);
    node.replica.request_snapshot();
    // Six sessions in slices of two, and a last look.
    for slice in 0..4 {
        for _ in 0..5 {
            node.commit(touch());
        }
        assert_eq!(node.take_snapshot().is_some(), slice == 3);
        node.pass_ms(5);
        assert_eq!(node.replica.is_writing_snapshot(), slice < 3);
        node.pass_ms(5);
    }
}

#[test]
fn the_longer_a_turn_takes_the_larger_is_the_slice_that_it_writes_up_to_a_bound() {
    let snapshot_slice_pause = Duration::from_millis(1);
    // Forty-one sessions in slices of two, and a last look.
    for (turn_ms, turns) in [(1, 20), (5, 4), (8, 3), (200, 3)] {
        let mut node = SingleNode::new(ReplicaConfig { snapshot_slice_pause, ..config() });
        for session in 1..=40 {
            node.commit(open(SessionId(session)));
        }
        node.pass_ms(50);
        node.replica.request_snapshot();
        node.commit(touch());
        let mut taken = 0;
        while node.take_snapshot().is_none() {
            node.pass_ms(turn_ms);
            taken += 1;
        }
        assert_eq!(taken, turns, "of {turn_ms} ms");
    }
}

#[test]
fn one_snapshot_is_saved_at_a_time() {
    let mut node = SingleNode::new(ReplicaConfig { snapshot_every_entries: 7, ..config() });
    node.entries_until_snapshot();
    let index = node.replica.applied_index();
    for _ in 0..20 {
        node.commit(touch());
    }
    assert_eq!(node.take_snapshot(), None);
    node.replica.handle_snapshot_saved(index);
    assert_eq!(node.entries_until_snapshot(), 1, "that is long due");
}

#[test]
fn a_snapshot_requested_while_another_is_written_is_not_taken_after_it() {
    let mut node = SingleNode::new(config());
    node.replica.request_snapshot();
    node.entries_until_snapshot();
    let index = node.replica.applied_index();
    // The log is still there, so it is asked for in every turn.
    node.replica.request_snapshot();
    node.commit(touch());
    node.replica.handle_snapshot_saved(index);
    for _ in 0..20 {
        node.commit(touch());
    }
    assert_eq!(node.take_snapshot(), None);
}

#[test]
fn a_snapshot_that_could_not_be_saved_is_tried_after_as_many_entries_again() {
    let mut node = SingleNode::new(ReplicaConfig { snapshot_every_entries: 7, ..config() });
    node.entries_until_snapshot();
    node.replica.handle_snapshot_failed();
    assert_eq!(node.entries_until_snapshot(), 7);
}

#[test]
fn a_snapshot_is_taken_after_so_many_bytes_of_entries() {
    let entry_bytes = {
        let mut node = SingleNode::new(config());
        node.commit(touch());
        node.entries.last().unwrap().data.len() as u64
    };
    for (keep_entries, words) in [(0, "nothing kept"), (1_000, "everything kept")] {
        let snapshot_every_bytes = 10 * entry_bytes;
        let mut node =
            SingleNode::new(ReplicaConfig { snapshot_every_bytes, keep_entries, ..config() });
        node.entries_until_snapshot();
        node.replica.handle_snapshot_saved(node.replica.applied_index());
        assert_eq!(node.entries_until_snapshot(), 10, "{words}");
        node.replica.handle_snapshot_failed();
        assert_eq!(node.entries_until_snapshot(), 10, "{words}");
    }
}

#[test]
fn a_large_snapshot_is_taken_after_as_many_bytes_as_the_last_one_had() {
    let mut node = SingleNode::new(ReplicaConfig { snapshot_every_bytes: 200, ..config() });
    let mut opened = 0;
    let large = loop {
        opened += 1;
        node.commit(open(SessionId(opened)));
        match node.take_snapshot() {
            Some(file) if file.data.len() > 600 => break file,
            Some(file) => node.replica.handle_snapshot_saved(file.index),
            None => {}
        }
    };
    node.replica.handle_snapshot_saved(large.index);
    // It is written a slice a turn, and some of what follows is within it.
    let first = node.entries.iter().position(|entry| entry.index > large.index).unwrap();
    let again = std::iter::from_fn(|| {
        node.commit(touch());
        Some(node.take_snapshot())
    });
    let again = again.take(1_000).flatten().next().unwrap();
    let log = node.entries[first..].iter().filter(|entry| entry.index <= again.index);
    let log_bytes: usize = log.map(|entry| entry.data.len()).sum();
    assert!(log_bytes >= large.data.len(), "{log_bytes} bytes after {}", large.data.len());

    // A replica that starts from it knows how large it is.
    let durable = node.durable(Some(again.clone()));
    let bytes = |entries: &[LogEntry]| entries.iter().map(|entry| entry.data.len()).sum::<usize>();
    let before = bytes(&durable.entries);
    let mut restarted = SingleNode::started(
        Replica::new(ReplicaConfig { snapshot_every_bytes: 200, ..config() }, durable).unwrap(),
    );
    restarted.elect();
    restarted.entries_until_snapshot();
    let log_bytes = before + bytes(&restarted.entries);
    assert!(log_bytes >= again.data.len(), "{log_bytes} bytes after {}", again.data.len());
}

#[test]
fn a_snapshot_that_is_asked_for_comes_once_and_only_if_there_is_anything_new() {
    let mut node = SingleNode::new(config());
    node.replica.request_snapshot();
    node.turn().unwrap();
    let file = node.take_snapshot().unwrap();
    assert_eq!(file.index, node.replica.applied_index());
    assert_eq!(file.term, node.replica.leadership().term);
    node.replica.handle_snapshot_saved(file.index);
    node.commit(touch());
    assert_eq!(node.take_snapshot(), None, "it was one request");
    node.replica.request_snapshot();
    node.turn().unwrap();
    let index = node.take_snapshot().unwrap().index;
    node.replica.handle_snapshot_saved(index);
    node.replica.request_snapshot();
    node.turn().unwrap();
    assert_eq!(node.take_snapshot(), None, "there is nothing new");
}

#[test]
fn a_replica_starts_from_its_snapshot_and_what_follows_it() {
    let mut node = SingleNode::new(config());
    node.replica.request_snapshot();
    node.turn().unwrap();
    let snapshot = node.take_snapshot().unwrap();
    for number in 1..=5 {
        node.commit(open(SessionId(number)));
    }
    let durable = node.durable(Some(snapshot));
    // The voters are known from the snapshot, whatever the configuration says.
    let strangers = vec![NodeId(7), NodeId(8)];
    let replica = Replica::new(ReplicaConfig { voters: strangers, ..config() }, durable).unwrap();
    assert_eq!(replica.membership().configuration.voters, [ME].into());
    let mut again = SingleNode::started(replica);
    again.elect();
    assert_eq!(again.replica.table().session_count(), 6);
    assert!(matches!(again.commit(touch()), Outcome::Touched { .. }));
}

#[test]
fn a_snapshot_is_committed_even_if_the_hard_state_does_not_know_it() {
    let mut node = SingleNode::new(config());
    node.replica.request_snapshot();
    node.turn().unwrap();
    let snapshot = node.take_snapshot();
    let index = node.replica.applied_index();
    let term = node.replica.leadership().term;
    let durable = Durable { snapshot, ..Durable::default() };
    let mut again = SingleNode::started(Replica::new(config(), durable).unwrap());
    let progress = again.replica.progress();
    assert_eq!((progress.commit_index, progress.applied_index), (index, index));
    again.elect();
    assert!(again.replica.leadership().term > term, "terms do not come twice");
}

#[test]
fn a_disk_that_lost_something_is_refused() {
    let mut node = SingleNode::new(config());
    for _ in 0..5 {
        node.commit(touch());
    }
    let whole = || node.durable(None);
    let start = |durable| Replica::new(config(), durable).map(|_| ());
    start(whole()).unwrap();

    let mut gap = whole();
    gap.entries.remove(2);
    assert!(matches!(start(gap), Err(StartError::Gap { index: 4, .. })));

    let mut short = whole();
    short.hard_state.commit = 3;
    short.entries.truncate(3);
    start(Durable { entries: short.entries.clone(), ..short }).unwrap();
    let mut short = whole();
    short.hard_state.commit = 3;
    short.entries.truncate(2);
    let lost = start(short);
    assert!(matches!(lost, Err(StartError::CommittedLost { commit: 3, last: 2, .. })), "{lost:?}");

    let mut bad = whole();
    bad.snapshot = Some(SnapshotFile { index: 2, term: 1, data: Bytes::from_static(b"\x09") });
    assert!(matches!(start(bad), Err(StartError::Snapshot { index: 2, .. })));
}

#[test]
fn entries_that_the_snapshot_covers_may_still_be_on_disk() {
    let mut node = SingleNode::new(config());
    node.replica.request_snapshot();
    node.turn().unwrap();
    let snapshot = node.take_snapshot();
    node.commit(touch());
    let durable = Durable { snapshot, ..node.durable(None) };
    let mut again = SingleNode::started(Replica::new(config(), durable).unwrap());
    again.elect();
    assert_eq!(again.replica.table().session_count(), 1);
}

#[test]
fn a_committed_entry_that_is_not_understood_stops_the_node() {
    let cases: [(u8, &'static [u8]); 3] = [(0, b"\xff"), (1, b"\xff"), (2, b"\xff")];
    for (kind, data) in cases {
        let entry = LogEntry { index: 1, term: 1, kind, data: Bytes::from_static(data) };
        let hard_state = HardState { term: 1, vote: 1, commit: 1 };
        let durable = Durable { hard_state, snapshot: None, entries: vec![entry] };
        let mut node = SingleNode::started(Replica::new(config(), durable).unwrap());
        let stopped = node.turn().unwrap_err();
        match kind {
            0 => assert!(matches!(stopped, Fatal::UndecodableEntry { index: 1, .. })),
            _ => assert!(matches!(stopped, Fatal::ImpossibleChange { index: 1, .. }), "{stopped}"),
        }
    }
}

#[test]
fn more_commands_than_an_entry_takes_are_all_answered_in_order() {
    const CALLS: u64 = 2_500;
    let mut node = SingleNode::new(config());
    let before = node.replica.progress().last_index;
    for number in 1..=CALLS {
        node.replica.handle_call(Some(Ticket(number + 100)), open(SessionId(number.into())));
    }
    node.turn().unwrap();
    assert_eq!(node.replica.progress().last_index, before + 3);
    let answered: Vec<u64> = node
        .effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Answer { ticket, .. } if ticket.0 > 100 => Some(ticket.0 - 100),
            _ => None,
        })
        .collect();
    assert_eq!(answered, (1..=CALLS).collect::<Vec<_>>());
}

#[test]
fn an_entry_stays_small_however_large_its_commands_are() {
    const ENTRY_BYTES_MAX: usize = 4 << 20;
    let mut node = SingleNode::new(config());
    let asked: Vec<Ticket> = (1..=100).map(Ticket).collect();
    for ticket in &asked {
        let members = (0..256).map(|number| Member {
            name: LockName::new(&format!("{}/{number:0>500}", ticket.0)).unwrap(),
            mode: Mode::Exclusive,
        });
        let request = RequestId(ticket.0);
        let command = Command::AcquireAll(AcquireAll {
            call: Call { session: ALICE, request, acked_through: RequestId(0) },
            actor: ActorId(0),
            members: members.collect(),
            terms: Terms::default(),
        });
        node.replica.handle_call(Some(*ticket), command);
    }
    node.effects.clear();
    // A turn takes 8,192 names.
    for _ in 0..100 * 256 / 8_192 + 1 {
        node.pass_ms(1);
    }
    let answered = node.effects.iter().filter_map(|effect| match effect {
        Effect::Answer { ticket, outcome: Outcome::GrantedAll(_), .. } => Some(*ticket),
        _ => None,
    });
    assert_eq!(answered.collect::<Vec<_>>(), asked, "in order");
    let largest = node.entries.iter().map(|entry| entry.data.len()).max();
    assert!(largest.unwrap() < ENTRY_BYTES_MAX, "{largest:?}");
}

#[test]
fn all_that_is_committed_at_the_start_is_applied_in_one_turn() {
    let mut node = SingleNode::new(config());
    for _ in 0..100 {
        node.commit(touch());
    }
    let durable = node.durable(None);
    let commit = durable.hard_state.commit;
    assert!(commit > 90);
    let mut again = Replica::new(config(), durable).unwrap();
    again.begin_turn().unwrap();
    again.finish_turn(&mut Vec::new()).unwrap();
    assert_eq!(again.applied_index(), commit);
}

#[test]
fn the_time_of_a_leader_goes_on_between_entries() {
    let mut node = SingleNode::new(config());
    let (table, now) = (node.replica.table().now(), node.replica.now());
    assert!(now >= table);
    node.pass_ms(120);
    assert_eq!(node.replica.table().now(), table, "nothing was written");
    assert_eq!(node.replica.now(), now.after(Span::from_ms(120)));
}

#[test]
fn a_new_leader_continues_from_the_latest_stamp_in_its_log_committed_or_not() {
    let stamped = |index, at_ms| {
        let batch = Batch { at: LogicalTime::from_ms(at_ms), commands: vec![Command::Tick] };
        LogEntry { index, term: 1, kind: 0, data: batch.encode().into() }
    };
    let empty = LogEntry { index: 4, term: 1, kind: 0, data: Bytes::new() };
    let entries = vec![stamped(1, 1_000), stamped(2, 70_000), stamped(3, 90_000), empty];
    let hard_state = HardState { term: 1, vote: 1, commit: 1 };
    let durable = Durable { hard_state, snapshot: None, entries };
    let mut node = SingleNode::started(Replica::new(config(), durable).unwrap());
    node.elect();
    let own = node.entries.iter().filter(|entry| entry.term > 1 && !entry.data.is_empty());
    let stamps: Vec<u64> = own.map(|entry| Batch::stamp(&entry.data).unwrap().as_ms()).collect();
    assert!(!stamps.is_empty() && stamps.iter().all(|at| (90_000..91_000).contains(at)));
}

/// How long after its opening a session with a TTL of a second ends, if the loop stalls at this moment.
fn lived_ms(stalled_at_ms: u64) -> u64 {
    let mut node = SingleNode::new(config());
    let Command::OpenSession(open) = open(SessionId(1)) else { unreachable!() };
    node.commit(Command::OpenSession(OpenSession { ttl: Span::from_ms(1_000), ..open }));
    let opened = node.replica.now();
    let mut left = stalled_at_ms;
    while left > 0 {
        let step = left.min(100);
        node.pass_ms(step);
        left -= step;
    }
    node.pass_ms(60_000);
    for _ in 0..3_000 {
        if node.replica.table().session_count() == 1 {
            return node.replica.table().now().since(opened).as_ms();
        }
        node.pass_ms(1);
    }
    panic!("it never ends");
}

#[test]
fn after_a_stall_what_is_due_waits_for_a_grace_but_for_no_more_than_one() {
    // A stall counts as 250 ms. The first ends at 750 ms, so nothing ends before 1,750 ms.
    assert_eq!(lived_ms(500), 1_750);
    // The second ends at 1,150 ms, but no session lives for longer than a grace past its deadline.
    assert_eq!(lived_ms(900), 2_000);
}

#[test]
fn silent_sessions_expire_one_after_another_without_any_input() {
    let mut node = SingleNode::new(config());
    for number in 1..=3 {
        let Command::OpenSession(open) = open(SessionId(number)) else { unreachable!() };
        let ttl = Span::from_ms(1_000 * number as u64);
        node.commit(Command::OpenSession(OpenSession { ttl, ..open }));
    }
    for left in [3, 2, 1] {
        for _ in 0..10 {
            node.pass_ms(100);
        }
        assert_eq!(node.replica.table().session_count(), left);
    }
}

#[test]
fn progress_shows_the_indexes_of_the_leader_and_its_members() {
    let node = SingleNode::new(config());
    let progress = node.replica.progress();
    let last = progress.last_index;
    assert!(last >= 3, "the empty entry, the new term, and the session");
    assert_eq!((progress.commit_index, progress.applied_index), (last, last));
    assert_eq!(progress.matched, [(ME, last)]);
    assert_eq!((progress.leadership.leader, progress.leadership.term), (Some(ME), 1));
}
