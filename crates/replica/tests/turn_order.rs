//! The order of a turn: what a replica sends and answers before its disk write, and what it keeps until after it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "it is a test")]

#[allow(dead_code, reason = "the other tests use the rest")]
mod cluster;

use std::time::Duration;

use cluster::{Cluster, open, touch};
use holdfast_core::command::{Call, HoldRef};
use holdfast_core::{Command, FenceToken, LockName, RequestId, SessionId};
use holdfast_replica::{Durable, Effect, NodeId, Outgoing, Replica, Ticket, Turn};
use protobuf::Message as _;
use raft::eraftpb::{Entry, Message, MessageType};

const TERM: u64 = 1;
const READ: Ticket = Ticket(7);

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Node 1 of three, alone with the test, which plays its peers.
struct PlayedReplica {
    replica: Replica,
    now: Duration,
}

impl PlayedReplica {
    fn new() -> PlayedReplica {
        let config = Cluster::new(3).config(NodeId(1));
        PlayedReplica { replica: Replica::new(config, Durable::default()).unwrap(), now: ms(0) }
    }

    /// It leads, and node 2 has all entries of its term.
    fn leader() -> PlayedReplica {
        let mut played = PlayedReplica::new();
        for _ in 0..12 {
            played.pass(ms(50));
        }
        played.whole_turns();
        played.receive(kind(MessageType::MsgRequestPreVoteResponse));
        played.whole_turns();
        played.receive(kind(MessageType::MsgRequestVoteResponse));
        played.whole_turns();
        played.acknowledge_all();
        played.whole_turns();
        assert!(played.replica.leadership().is_here);
        played
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.replica.handle_time(self.now);
    }

    fn receive(&mut self, message: Message) {
        self.receive_from(2, message);
    }

    fn receive_from(&mut self, from: u64, message: Message) {
        let message = Message { from, to: 1, term: message.term.max(TERM), ..message };
        self.replica.handle_message(&message.write_to_bytes().unwrap()).unwrap();
    }

    fn acknowledge_all(&mut self) {
        let index = self.replica.progress().last_index;
        self.receive(Message { index, ..kind(MessageType::MsgAppendResponse) });
    }

    fn open_session(&mut self, id: u128) {
        self.replica.handle_call(None, open(SessionId(id), 60_000));
    }

    fn committed(&mut self) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.replica.answer_committed(&mut effects).unwrap();
        effects
    }

    fn finish(&mut self) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.replica.finish_turn(&mut effects).unwrap();
        effects
    }

    fn whole_turns(&mut self) {
        while self.replica.begin_turn().is_some() {
            self.finish();
        }
    }
}

fn kind(kind: MessageType) -> Message {
    let mut message = Message::default();
    message.set_msg_type(kind);
    message
}

fn parsed(sent: &Outgoing) -> Message {
    Message::parse_from_bytes(&sent.message).unwrap()
}

fn sent_early(turn: &Turn) -> Vec<MessageType> {
    turn.messages.iter().map(|sent| parsed(sent).get_msg_type()).collect()
}

fn sent_late(effects: &[Effect]) -> Vec<MessageType> {
    let sent = |effect: &Effect| match effect {
        Effect::Send(sent) => Some(parsed(sent).get_msg_type()),
        _ => None,
    };
    effects.iter().filter_map(sent).collect()
}

/// A command of about this size.
fn large(bytes: usize) -> Command {
    let (session, request, acked_through) = (SessionId(1), RequestId(1), RequestId(0));
    let (name, token, acquire) = (LockName::new("a").unwrap(), FenceToken(1), RequestId(0));
    Command::Proclaim {
        call: Call { session, request, acked_through },
        hold: HoldRef { name, token, acquire },
        metadata: vec![0; bytes].into(),
    }
}

#[test]
fn after_an_entry_that_finds_no_room_no_later_command_is_proposed() {
    const LAST: Ticket = Ticket(9);
    let mut played = PlayedReplica::leader();
    // No peer acknowledges anything from here on. In the end there is room for a hundred bytes at most.
    let is_refused = |played: &mut PlayedReplica, commands: Vec<Command>| {
        let last = commands.len() - 1;
        for (number, command) in commands.into_iter().enumerate() {
            played.replica.handle_call((number == last).then_some(LAST), command);
        }
        let _ = played.replica.begin_turn();
        let is_failed = |effect: &Effect| matches!(effect, Effect::Failed { ticket: LAST, .. });
        played.finish().iter().any(is_failed)
    };
    for bytes in [1 << 20, 1 << 16, 1 << 12, 1 << 8, 1 << 6] {
        while !is_refused(&mut played, vec![large(bytes)]) {}
    }
    let touches = vec![touch(SessionId(1)); 1_024 + 1];
    assert!(is_refused(&mut played, touches), "the last was proposed without those before it");
}

#[test]
fn a_follower_answers_heartbeats_before_its_disk_write_and_acknowledges_entries_after_it() {
    let mut played = PlayedReplica::new();
    played.receive(kind(MessageType::MsgHeartbeat));
    played.whole_turns();
    played.receive(kind(MessageType::MsgHeartbeat));
    let entries = vec![Entry { index: 1, term: TERM, ..Entry::default() }].into();
    played.receive(Message { entries, ..kind(MessageType::MsgAppend) });
    let turn = played.replica.begin_turn().unwrap();
    assert_eq!(turn.entries.len(), 1);
    assert_eq!(sent_early(&turn), [MessageType::MsgHeartbeatResponse]);
    assert_eq!(sent_late(&played.finish()), [MessageType::MsgAppendResponse]);
}

#[test]
fn a_follower_sends_nothing_in_a_term_that_is_not_durable() {
    let mut played = PlayedReplica::new();
    for term in [TERM, TERM + 1] {
        played.receive(Message { term, ..kind(MessageType::MsgHeartbeat) });
        let turn = played.replica.begin_turn().unwrap();
        assert_eq!(turn.hard_state.unwrap().term, term);
        assert_eq!(sent_early(&turn), []);
        assert_eq!(sent_late(&played.finish()), [MessageType::MsgHeartbeatResponse]);
    }
}

#[test]
fn a_confirmed_read_does_not_wait_for_what_is_being_written() {
    let mut played = PlayedReplica::leader();
    played.replica.handle_read(READ);
    let turn = played.replica.begin_turn().unwrap();
    assert_eq!(turn.reads, [], "no quorum has confirmed it");
    let asked = turn.messages.iter().map(parsed).find(|message| !message.context.is_empty());
    let context = asked.unwrap().context;
    assert!(played.finish().is_empty());

    played.receive(Message { context, ..kind(MessageType::MsgHeartbeatResponse) });
    played.open_session(1);
    let turn = played.replica.begin_turn().unwrap();
    assert!(turn.needs_disk());
    assert_eq!(turn.reads, [READ]);
    let effects = played.finish();
    assert!(!effects.iter().any(|effect| matches!(effect, Effect::Read { .. })), "{effects:?}");
}

#[test]
fn a_leader_answers_what_is_committed_before_its_disk_works_for_what_came_later() {
    const CALL: Ticket = Ticket(8);
    let mut played = PlayedReplica::leader();
    played.replica.handle_call(Some(CALL), open(SessionId(1), 60_000));
    played.whole_turns();
    assert!(played.committed().is_empty(), "no peer has acknowledged it");
    played.acknowledge_all();
    played.open_session(2);
    let turn = played.replica.begin_turn().unwrap();
    assert!(turn.needs_disk(), "the second session is to be written");
    let effects = played.committed();
    let [Effect::Answer { ticket, .. }, Effect::Happened { .. }] = &effects[..] else {
        panic!("{effects:?}")
    };
    assert_eq!((*ticket, played.replica.table().session_count()), (CALL, 1));
    let late = played.finish();
    assert!(!late.iter().any(|effect| matches!(effect, Effect::Answer { .. })), "{late:?}");
}

#[test]
fn what_is_not_durable_here_is_not_answered_though_all_others_have_it() {
    const CALL: Ticket = Ticket(8);
    let mut played = PlayedReplica::leader();
    played.replica.handle_call(Some(CALL), open(SessionId(1), 60_000));
    played.replica.begin_turn().unwrap();
    played.acknowledge_all();
    let index = played.replica.progress().last_index;
    played.receive_from(3, Message { index, ..kind(MessageType::MsgAppendResponse) });
    assert!(played.committed().is_empty());
    played.finish();
    played.whole_turns();
    assert_eq!(played.replica.table().session_count(), 1);
}

#[test]
fn a_leadership_change_is_reported_after_it_is_durable() {
    let mut config = Cluster::new(3).config(NodeId(1));
    config.voters = vec![NodeId(1)];
    let replica = Replica::new(config, Durable::default()).unwrap();
    let mut played = PlayedReplica { replica, now: ms(0) };
    let is_office = |effect: &Effect| matches!(effect, Effect::LeadershipChanged(_));
    for _ in 0..20 {
        played.pass(ms(50));
        while played.replica.begin_turn().is_some() {
            assert!(!played.committed().iter().any(is_office));
            if played.finish().iter().any(is_office) && played.replica.leadership().is_here {
                return;
            }
        }
    }
    panic!("it alone has a vote, and does not lead");
}

#[test]
fn a_follower_acknowledges_before_it_applies() {
    let mut played = PlayedReplica::new();
    let append = |commit, index| {
        let entry = Entry { index, term: TERM, ..Entry::default() };
        let (log_term, before) = (if index > 1 { TERM } else { 0 }, index - 1);
        let entries = vec![entry].into();
        Message { commit, index: before, log_term, entries, ..kind(MessageType::MsgAppend) }
    };
    played.receive(append(0, 1));
    played.whole_turns();
    played.receive(append(1, 2));
    played.replica.begin_turn().unwrap();
    assert!(played.committed().is_empty(), "its leader waits for its disk");
    let sent: Vec<_> = played.replica.acknowledge().iter().map(parsed).collect();
    assert_eq!(sent.iter().map(|message| message.index).collect::<Vec<_>>(), [2]);
    assert_eq!(played.replica.applied_index(), 0);
    assert_eq!(sent_late(&played.finish()), []);
    assert_eq!(played.replica.applied_index(), 1);
}

#[test]
fn followers_learn_of_a_commit_with_the_next_entries_or_a_millisecond_later() {
    // Node 3 has never answered, and is sent nothing more.
    let commits = |turn: Option<Turn>| -> Vec<(u64, u64)> {
        let messages = turn.map(|turn| turn.messages).unwrap_or_default();
        messages.iter().map(parsed).map(|message| (message.to, message.commit)).collect()
    };
    let mut played = PlayedReplica::leader();
    played.pass(ms(1));
    played.whole_turns();
    assert_eq!(played.replica.next_turn_within(), None, "all is told");

    played.open_session(1);
    played.whole_turns();
    played.acknowledge_all();
    assert_eq!(commits(played.replica.begin_turn()), []);
    assert_eq!(sent_late(&played.finish()), []);
    let committed = played.replica.progress().commit_index;
    assert_eq!(played.replica.applied_index(), committed, "here it counts at once");
    assert_eq!(played.replica.next_turn_within(), Some(ms(1)));

    played.open_session(2);
    let reported = commits(played.replica.begin_turn());
    assert_eq!(reported, [(2, committed)], "with the next entry");
    played.finish();
    assert_eq!(played.replica.next_turn_within(), None);

    played.acknowledge_all();
    played.whole_turns();
    played.pass(ms(1));
    let reported = commits(played.replica.begin_turn());
    assert_eq!(reported, [(2, committed + 1)], "without one");
    played.finish();
    assert_eq!(played.replica.next_turn_within(), None);
}
