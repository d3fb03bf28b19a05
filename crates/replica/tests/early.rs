//! What a turn gives away before its disk has worked, what it keeps until then, and what it leaves for later.

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
struct Lone {
    replica: Replica,
    now: Duration,
}

impl Lone {
    fn new() -> Lone {
        let config = Cluster::new(3).config(NodeId(1));
        Lone { replica: Replica::new(config, Durable::default()).unwrap(), now: ms(0) }
    }

    /// It leads, and node 2 has all that it wrote in office.
    fn leader() -> Lone {
        let mut lone = Lone::new();
        for _ in 0..12 {
            lone.pass(ms(50));
        }
        lone.whole_turns();
        lone.receive(kind(MessageType::MsgRequestPreVoteResponse));
        lone.whole_turns();
        lone.receive(kind(MessageType::MsgRequestVoteResponse));
        lone.whole_turns();
        lone.acknowledge_all();
        lone.whole_turns();
        assert!(lone.replica.leadership().is_here);
        lone
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
fn where_an_entry_finds_no_room_nothing_that_came_after_it_is_proposed() {
    const LAST: Ticket = Ticket(9);
    let mut lone = Lone::leader();
    // Nobody acknowledges anything from here on. In the end there is room for a hundred bytes at most.
    let is_refused = |lone: &mut Lone, commands: Vec<Command>| {
        let last = commands.len() - 1;
        for (number, command) in commands.into_iter().enumerate() {
            lone.replica.handle_call((number == last).then_some(LAST), command);
        }
        let _ = lone.replica.begin_turn();
        let is_failed = |effect: &Effect| matches!(effect, Effect::Failed { ticket: LAST, .. });
        lone.finish().iter().any(is_failed)
    };
    for bytes in [1 << 20, 1 << 16, 1 << 12, 1 << 8, 1 << 6] {
        while !is_refused(&mut lone, vec![large(bytes)]) {}
    }
    let touches = vec![touch(SessionId(1)); 1_024 + 1];
    assert!(is_refused(&mut lone, touches), "the last was proposed without those before it");
}

#[test]
fn a_follower_says_that_it_follows_before_its_disk_and_what_it_has_written_after() {
    let mut lone = Lone::new();
    lone.receive(kind(MessageType::MsgHeartbeat));
    lone.whole_turns();
    lone.receive(kind(MessageType::MsgHeartbeat));
    let entries = vec![Entry { index: 1, term: TERM, ..Entry::default() }].into();
    lone.receive(Message { entries, ..kind(MessageType::MsgAppend) });
    let turn = lone.replica.begin_turn().unwrap();
    assert_eq!(turn.entries.len(), 1);
    assert_eq!(sent_early(&turn), [MessageType::MsgHeartbeatResponse]);
    assert_eq!(sent_late(&lone.finish()), [MessageType::MsgAppendResponse]);
}

#[test]
fn a_follower_says_nothing_of_a_term_that_is_not_durable() {
    let mut lone = Lone::new();
    for term in [TERM, TERM + 1] {
        lone.receive(Message { term, ..kind(MessageType::MsgHeartbeat) });
        let turn = lone.replica.begin_turn().unwrap();
        assert_eq!(turn.hard_state.unwrap().term, term);
        assert_eq!(sent_early(&turn), []);
        assert_eq!(sent_late(&lone.finish()), [MessageType::MsgHeartbeatResponse]);
    }
}

#[test]
fn a_confirmed_read_does_not_wait_for_what_is_being_written() {
    let mut lone = Lone::leader();
    lone.replica.handle_read(READ);
    let turn = lone.replica.begin_turn().unwrap();
    assert_eq!(turn.reads, [], "nobody has confirmed it");
    let asked = turn.messages.iter().map(parsed).find(|message| !message.context.is_empty());
    let context = asked.unwrap().context;
    assert!(lone.finish().is_empty());

    lone.receive(Message { context, ..kind(MessageType::MsgHeartbeatResponse) });
    lone.open_session(1);
    let turn = lone.replica.begin_turn().unwrap();
    assert!(turn.needs_disk());
    assert_eq!(turn.reads, [READ]);
    let effects = lone.finish();
    assert!(!effects.iter().any(|effect| matches!(effect, Effect::Read { .. })), "{effects:?}");
}

#[test]
fn a_leader_answers_what_is_committed_before_its_disk_works_for_what_came_later() {
    const CALL: Ticket = Ticket(8);
    let mut lone = Lone::leader();
    lone.replica.handle_call(Some(CALL), open(SessionId(1), 60_000));
    lone.whole_turns();
    assert!(lone.committed().is_empty(), "nobody has acknowledged it");
    lone.acknowledge_all();
    lone.open_session(2);
    let turn = lone.replica.begin_turn().unwrap();
    assert!(turn.needs_disk(), "the second session is to be written");
    let effects = lone.committed();
    let [Effect::Answer { ticket, .. }, Effect::Happened { .. }] = &effects[..] else {
        panic!("{effects:?}")
    };
    assert_eq!((*ticket, lone.replica.table().session_count()), (CALL, 1));
    let late = lone.finish();
    assert!(!late.iter().any(|effect| matches!(effect, Effect::Answer { .. })), "{late:?}");
}

#[test]
fn what_is_not_durable_here_is_not_answered_though_all_others_have_it() {
    const CALL: Ticket = Ticket(8);
    let mut lone = Lone::leader();
    lone.replica.handle_call(Some(CALL), open(SessionId(1), 60_000));
    lone.replica.begin_turn().unwrap();
    lone.acknowledge_all();
    let index = lone.replica.progress().last_index;
    lone.receive_from(3, Message { index, ..kind(MessageType::MsgAppendResponse) });
    assert!(lone.committed().is_empty());
    lone.finish();
    lone.whole_turns();
    assert_eq!(lone.replica.table().session_count(), 1);
}

#[test]
fn a_change_of_office_is_told_after_it_is_durable() {
    let mut config = Cluster::new(3).config(NodeId(1));
    config.voters = vec![NodeId(1)];
    let replica = Replica::new(config, Durable::default()).unwrap();
    let mut lone = Lone { replica, now: ms(0) };
    let is_office = |effect: &Effect| matches!(effect, Effect::LeadershipChanged(_));
    for _ in 0..20 {
        lone.pass(ms(50));
        while lone.replica.begin_turn().is_some() {
            assert!(!lone.committed().iter().any(is_office));
            if lone.finish().iter().any(is_office) && lone.replica.leadership().is_here {
                return;
            }
        }
    }
    panic!("it alone has a vote, and does not lead");
}

#[test]
fn a_follower_acknowledges_before_it_applies() {
    let mut lone = Lone::new();
    let append = |commit, index| {
        let entry = Entry { index, term: TERM, ..Entry::default() };
        let (log_term, before) = (if index > 1 { TERM } else { 0 }, index - 1);
        let entries = vec![entry].into();
        Message { commit, index: before, log_term, entries, ..kind(MessageType::MsgAppend) }
    };
    lone.receive(append(0, 1));
    lone.whole_turns();
    lone.receive(append(1, 2));
    lone.replica.begin_turn().unwrap();
    assert!(lone.committed().is_empty(), "its leader waits for its disk");
    let sent: Vec<_> = lone.replica.acknowledge().iter().map(parsed).collect();
    assert_eq!(sent.iter().map(|message| message.index).collect::<Vec<_>>(), [2]);
    assert_eq!(lone.replica.applied_index(), 0);
    assert_eq!(sent_late(&lone.finish()), []);
    assert_eq!(lone.replica.applied_index(), 1);
}

#[test]
fn followers_hear_of_a_commit_with_the_next_entries_or_a_millisecond_later() {
    // Node 3 has never answered, and is sent nothing more.
    let commits = |turn: Option<Turn>| -> Vec<(u64, u64)> {
        let messages = turn.map(|turn| turn.messages).unwrap_or_default();
        messages.iter().map(parsed).map(|message| (message.to, message.commit)).collect()
    };
    let mut lone = Lone::leader();
    lone.pass(ms(1));
    lone.whole_turns();
    assert_eq!(lone.replica.next_turn_within(), None, "all is told");

    lone.open_session(1);
    lone.whole_turns();
    lone.acknowledge_all();
    assert_eq!(commits(lone.replica.begin_turn()), []);
    assert_eq!(sent_late(&lone.finish()), []);
    let committed = lone.replica.progress().commit_index;
    assert_eq!(lone.replica.applied_index(), committed, "here it counts at once");
    assert_eq!(lone.replica.next_turn_within(), Some(ms(1)));

    lone.open_session(2);
    let told = commits(lone.replica.begin_turn());
    assert_eq!(told, [(2, committed)], "with the next entry");
    lone.finish();
    assert_eq!(lone.replica.next_turn_within(), None);

    lone.acknowledge_all();
    lone.whole_turns();
    lone.pass(ms(1));
    let told = commits(lone.replica.begin_turn());
    assert_eq!(told, [(2, committed + 1)], "without one");
    lone.finish();
    assert_eq!(lone.replica.next_turn_within(), None);
}
