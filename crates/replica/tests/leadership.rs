//! Becoming leader and stepping down: what becomes of calls at that moment.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "it is a test")]

#[allow(dead_code, reason = "the other tests use the rest")]
mod cluster;

use std::time::Duration;

use cluster::{Cluster, Ended, open, touch};
use holdfast_core::{Command, EndReason, Event, SessionId, Span, StreamId, command::OpenSession};
use holdfast_replica::{Durable, Effect, HardState, NodeId, Replica, Ticket, Unavailable};
use protobuf::Message as _;
use raft::eraftpb::{Message, MessageType};

const ALICE: SessionId = SessionId(0xa11ce);

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn ended(cluster: &Cluster, session: SessionId) -> Option<EndReason> {
    cluster.events.iter().find_map(|(_, event)| match event {
        Event::SessionEnded { session: ended, reason, .. } if *ended == session => Some(*reason),
        _ => None,
    })
}

/// Node 1 of three, alone with the test, which plays its peers.
struct Candidate {
    replica: Replica,
    now: Duration,
}

impl Candidate {
    fn new() -> Candidate {
        Candidate::from_disk(Durable::default())
    }

    fn from_disk(durable: Durable) -> Candidate {
        let config = Cluster::new(3).config(NodeId(1));
        Candidate { replica: Replica::new(config, durable).unwrap(), now: ms(0) }
    }

    /// Lets the loop turn until there is nothing to do.
    fn turn(&mut self) -> Vec<Effect> {
        let mut effects = Vec::new();
        while self.replica.begin_turn().is_some() {
            self.replica.finish_turn(&mut effects).unwrap();
        }
        self.replica.finish_turn(&mut effects).unwrap();
        effects
    }

    fn receive(&mut self, from: u64, kind: MessageType, term: u64) {
        let mut message = Message { from, to: 1, term, ..Message::default() };
        message.set_msg_type(kind);
        self.replica.handle_message(&message.write_to_bytes().unwrap()).unwrap();
    }

    /// Asks for its vote. Gives what it wrote before it answered, and whether it is granted.
    fn ask_for_vote(&mut self, from: u64, term: u64) -> (Option<HardState>, bool) {
        self.receive(from, MessageType::MsgRequestVote, term);
        let written = self.replica.begin_turn().and_then(|turn| {
            assert!(turn.messages.is_empty(), "a vote is durable before it is given");
            turn.hard_state
        });
        let mut effects = Vec::new();
        self.replica.finish_turn(&mut effects).unwrap();
        let answer = effects.iter().find_map(|effect| match effect {
            Effect::Send(sent) => Some(Message::parse_from_bytes(&sent.message).unwrap()),
            _ => None,
        });
        let answer = answer.unwrap();
        assert_eq!((answer.to, answer.get_msg_type()), (from, MessageType::MsgRequestVoteResponse));
        (written, !answer.reject)
    }

    /// Up to the vote that makes it leader, which waits to be counted in the next turn.
    fn win_election(&mut self) {
        for _ in 0..12 {
            self.now += ms(50);
            self.replica.handle_time(self.now);
        }
        self.turn();
        self.receive(2, MessageType::MsgRequestPreVoteResponse, 1);
        self.turn();
        self.receive(2, MessageType::MsgRequestVoteResponse, 1);
    }
}

fn failures(effects: &[Effect]) -> Vec<(Ticket, Unavailable)> {
    let failed = |effect: &Effect| match effect {
        Effect::Failed { ticket, reason } => Some((*ticket, *reason)),
        _ => None,
    };
    effects.iter().filter_map(failed).collect()
}

#[test]
fn a_node_votes_once_in_a_term_however_often_it_restarts() {
    let (written, granted) = Candidate::new().ask_for_vote(2, 5);
    assert!(granted);
    let hard_state = written.unwrap();
    assert_eq!(hard_state, HardState { term: 5, vote: 2, commit: 0 });
    let restarted = || Candidate::from_disk(Durable { hard_state, ..Durable::default() });
    assert!(!restarted().ask_for_vote(3, 5).1, "it is given away");
    assert!(restarted().ask_for_vote(2, 5).1, "the same vote again");
    assert!(restarted().ask_for_vote(3, 6).1, "another term");
}

#[test]
fn a_call_between_winning_and_losing_leadership_within_a_turn_is_refused() {
    let mut candidate = Candidate::new();
    candidate.win_election();
    candidate.replica.handle_call(Some(Ticket(1)), open(ALICE, 30_000));
    candidate.replica.handle_read(Ticket(2));
    candidate.receive(3, MessageType::MsgHeartbeat, 2);
    let not_leader = Unavailable::NotLeader { leader: Some(NodeId(3)) };
    let expected = [(Ticket(1), not_leader), (Ticket(2), not_leader)];
    assert_eq!(failures(&candidate.turn()), expected);
    assert_eq!(candidate.replica.progress().last_index, 1, "only what opens the term");
}

#[test]
fn a_call_right_after_the_election_is_proposed_and_fails_when_leadership_is_lost() {
    let mut candidate = Candidate::new();
    candidate.win_election();
    candidate.replica.handle_call(Some(Ticket(1)), open(ALICE, 30_000));
    assert_eq!(failures(&candidate.turn()), []);
    candidate.receive(3, MessageType::MsgHeartbeat, 2);
    let lost = Unavailable::LeadershipLost { leader: Some(NodeId(3)) };
    assert_eq!(failures(&candidate.turn()), [(Ticket(1), lost)]);
}

/// Peers that answer before they are asked: none does, and it would make no difference.
#[test]
fn leadership_lost_and_won_again_within_a_turn_counts_as_new() {
    let mut candidate = Candidate::new();
    candidate.win_election();
    candidate.turn();
    candidate.replica.handle_call(Some(Ticket(1)), open(ALICE, 30_000));
    candidate.turn();
    let before = candidate.replica.progress().last_index;
    candidate.receive(3, MessageType::MsgHeartbeat, 2);
    for _ in 0..12 {
        candidate.now += ms(50);
        candidate.replica.handle_time(candidate.now);
    }
    candidate.receive(2, MessageType::MsgRequestPreVoteResponse, 3);
    candidate.receive(2, MessageType::MsgRequestVoteResponse, 3);
    let effects = candidate.turn();
    let leadership = candidate.replica.leadership();
    assert_eq!((leadership.is_here, leadership.term), (true, 3));
    let lost = Unavailable::LeadershipLost { leader: Some(NodeId(1)) };
    assert_eq!(failures(&effects), [(Ticket(1), lost)], "the next leader has to answer it");
    let last = candidate.replica.progress().last_index;
    assert_eq!(last, before + 2, "the empty entry and the beginning of the term");
}

#[test]
fn the_time_of_a_follower_stands_still_between_entries() {
    let mut cluster = Cluster::new(3);
    cluster.commit(open(ALICE, 30_000));
    cluster.run_for(ms(1_000));
    let leader = cluster.leader().unwrap();
    for node in (1..=3).map(NodeId) {
        let replica = cluster.replica(node);
        assert_eq!(replica.now() > replica.table().now(), node == leader, "node {node}");
    }
}

#[test]
fn a_read_right_after_an_election_is_served_as_soon_as_the_term_has_begun() {
    let mut cluster = Cluster::new(3);
    let old = cluster.run_until_leader();
    cluster.commit(open(ALICE, 30_000));
    cluster.kill(old);
    let new = cluster.run_until_leader();
    let (read, asked_at) = (cluster.read(new), cluster.now);
    assert_eq!(cluster.run_until_ended(read), Ended::Read);
    let took = cluster.now - asked_at;
    assert!(took < ms(200), "{took:?}: it was asked too early, and dropped without a word");
}

/// Starts a hand-over that comes to nothing: the successor never hears of it.
fn fail_to_hand_over(cluster: &mut Cluster) -> NodeId {
    let leader = cluster.run_until_leader();
    for other in (1..=3).map(NodeId).filter(|node| *node != leader) {
        cluster.pause(other);
    }
    cluster.replica_mut(leader).transfer_leadership();
    cluster.step();
    // What it sent is lost.
    cluster.isolate(leader);
    for node in (1..=3).map(NodeId) {
        cluster.resume(node);
    }
    cluster.step();
    cluster.heal();
    leader
}

#[test]
fn the_end_of_a_stream_is_not_lost_in_a_failed_leadership_transfer() {
    let mut cluster = Cluster::new(3);
    let stream = StreamId(1);
    let Command::OpenSession(session) = open(ALICE, 30_000) else { unreachable!() };
    cluster.commit(Command::OpenSession(OpenSession {
        stream: Some(stream),
        linger: Span::from_ms(500),
        ..session
    }));
    cluster.run_for(ms(300));
    let leader = fail_to_hand_over(&mut cluster);
    let call = cluster.call(leader, touch(ALICE));
    let farewell = Command::DetachStream { session: ALICE, stream };
    cluster.replica_mut(leader).handle_call(None, farewell);
    cluster.step();
    let refused = Ended::Failed(Unavailable::NotLeader { leader: None });
    assert_eq!(cluster.ended.get(&call), Some(&refused), "a hand-over is under way");
    cluster.run_for(ms(3_000));
    assert_eq!(cluster.leader(), Some(leader), "the hand-over came to nothing");
    assert_eq!(ended(&cluster, ALICE), Some(EndReason::Disconnected));
}

#[test]
fn a_session_due_during_a_failed_leadership_transfer_expires_after_it() {
    let mut cluster = Cluster::new(3);
    cluster.commit(open(ALICE, 2_000));
    cluster.run_for(ms(1_900));
    let leader = fail_to_hand_over(&mut cluster);
    cluster.run_for(ms(200));
    assert_eq!(ended(&cluster, ALICE), None);
    let within = cluster.replica(leader).next_turn_within();
    assert_ne!(within, Some(Duration::ZERO), "turns that can propose nothing follow at once");
    cluster.run_for(ms(1_000));
    assert_eq!(cluster.leader(), Some(leader), "the hand-over came to nothing");
    assert_eq!(ended(&cluster, ALICE), Some(EndReason::Ttl));
}

#[test]
fn the_log_behind_a_snapshot_in_flight_is_kept_until_it_arrives() {
    let mut cluster = Cluster::with_snapshots_every(3, 10);
    cluster.commit(open(ALICE, 60_000));
    let away = NodeId(3);
    cluster.kill(away);
    for n in 0..40 {
        cluster.acquire(ALICE, &format!("before-{n}"));
    }
    cluster.start(away);
    cluster.run_until_snapshot_is_sent();
    // The snapshot is on the wire while the others take several more.
    cluster.pause(away);
    for n in 0..40 {
        cluster.acquire(ALICE, &format!("meanwhile-{n}"));
    }
    cluster.resume(away);
    cluster.run_for(ms(3_000));
    let leader = cluster.leader().unwrap();
    assert_eq!(cluster.replica(away).table().digest(), cluster.replica(leader).table().digest());
    assert_eq!(cluster.snapshots_sent(), 1, "one snapshot and the entries after it were enough");
}
