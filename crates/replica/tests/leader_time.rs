//! The leader time: time without log entries is not lost with its leader, and no node uses a time by which a lease
//! could end early.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code, reason = "the other tests use the rest")]
mod cluster;

use std::time::Duration;

use cluster::{Cluster, open};
use holdfast_core::{BatchWriter, Command, Event, LogicalTime, SessionId};
use holdfast_replica::{Durable, NodeId, Replica};
use protobuf::Message as _;
use raft::eraftpb::{Entry, Message, MessageType};

const ALICE: SessionId = SessionId(0xa11ce);
const TTL_MS: u64 = 20_000;
const QUIET_MS: u64 = 15_000;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Three nodes of which the given one leads, with a session of which nothing is heard from now on.
fn quiet_cluster(leader: NodeId) -> (Cluster, Duration) {
    let mut cluster = Cluster::new(3);
    let first = cluster.run_until_leader();
    cluster.run_for(ms(300));
    if first != leader {
        cluster.replica_mut(first).hand_over(Some(leader)).unwrap();
    }
    cluster.run_until("the right one leads", |cluster| cluster.leader() == Some(leader));
    cluster.commit(open(ALICE, TTL_MS));
    let from = cluster.now;
    (cluster, from)
}

/// Lets the session end, which must be within the bound for a cluster that had no leader for so long.
fn ends_in_time(cluster: &mut Cluster, from: Duration, leaderless: Duration) {
    let is_end = |(_, event): &(NodeId, Event)| matches!(event, Event::SessionEnded { .. });
    while !cluster.events.iter().any(is_end) {
        cluster.step();
        assert!(cluster.now - from < ms(3 * TTL_MS), "it lives for ever");
    }
    let lived = cluster.now - from;
    assert!(lived >= ms(TTL_MS), "{lived:?}");
    let bound = ms(TTL_MS * 101 / 100 + 1_000 + 100) + leaderless;
    assert!(lived <= bound, "{lived:?}, and no later than {bound:?}");
}

#[test]
fn time_that_passes_without_writes_is_not_lost_with_the_leader() {
    let (mut cluster, from) = quiet_cluster(NodeId(1));
    cluster.run_for(ms(QUIET_MS));
    cluster.kill(NodeId(1));
    let killed = cluster.now;
    cluster.run_until_leader();
    let leaderless = cluster.now - killed;
    ends_in_time(&mut cluster, from, leaderless);
}

#[test]
fn a_leader_that_hands_over_sends_its_logical_time() {
    let (mut cluster, from) = quiet_cluster(NodeId(1));
    cluster.run_for(ms(QUIET_MS));
    cluster.replica_mut(NodeId(1)).hand_over(Some(NodeId(3))).unwrap();
    cluster.run_until("another one leads", |cluster| cluster.leader() == Some(NodeId(3)));
    ends_in_time(&mut cluster, from, Duration::ZERO);
}

#[test]
fn time_is_not_lost_over_three_leader_changes() {
    let (mut cluster, from) = quiet_cluster(NodeId(1));
    let mut leaderless = Duration::ZERO;
    for _ in 0..3 {
        cluster.run_for(ms(QUIET_MS / 3));
        let leader = cluster.run_until_leader();
        cluster.kill(leader);
        let killed = cluster.now;
        cluster.run_until_leader();
        leaderless += cluster.now - killed;
        cluster.start(leader);
    }
    ends_in_time(&mut cluster, from, leaderless);
}

#[test]
fn a_voter_passes_the_leader_time_to_a_candidate_that_has_none() {
    let (mut cluster, from) = quiet_cluster(NodeId(3));
    cluster.run_for(ms(QUIET_MS));
    cluster.kill(NodeId(1));
    cluster.start(NodeId(1));
    cluster.kill(NodeId(3));
    let killed = cluster.now;
    // Without this node 2 would wait for the leader, and be elected itself.
    cluster.run_for(ms(400));
    cluster.replica_mut(NodeId(2)).handle_peer_crash(NodeId(3));
    assert_eq!(cluster.run_until_leader(), NodeId(1));
    let leaderless = cluster.now - killed;
    ends_in_time(&mut cluster, from, leaderless);
}

/// What node 2 of three hears of others who only pretend, and says.
struct PlayedReplica {
    replica: Replica,
    now: Duration,
    said: Vec<Message>,
}

/// Of the entries of these tests, each the only one of its term.
const STAMP_MS: u64 = 10_000;

impl PlayedReplica {
    fn new() -> PlayedReplica {
        let config = Cluster::new(3).config(NodeId(2));
        let replica = Replica::new(config, Durable::default()).unwrap();
        PlayedReplica { replica, now: Duration::ZERO, said: Vec::new() }
    }

    fn hears(&mut self, kind: MessageType, from: u64, term: u64, fill: impl FnOnce(&mut Message)) {
        let mut message = Message { from, to: 2, term, ..Message::default() };
        message.set_msg_type(kind);
        fill(&mut message);
        self.replica.handle_message(&message.write_to_bytes().unwrap()).unwrap();
        self.turn(ms(0));
    }

    fn turn(&mut self, passed: Duration) {
        self.now += passed;
        self.replica.handle_time(self.now);
        while let Some(turn) = self.replica.begin_turn() {
            let parse = |bytes: &[u8]| Message::parse_from_bytes(bytes).unwrap();
            self.said.extend(turn.messages.iter().map(|outgoing| parse(&outgoing.message)));
            let mut effects = Vec::new();
            self.replica.finish_turn(&mut effects).unwrap();
            self.said.extend(effects.iter().filter_map(|effect| match effect {
                holdfast_replica::Effect::Send(outgoing) => Some(parse(&outgoing.message)),
                _ => None,
            }));
        }
    }

    /// The first entry of all, or one in place of it.
    fn is_sent_entry(&mut self, from: u64, term: u64) {
        let mut batch = BatchWriter::default();
        batch.push(&Command::Tick);
        let data = batch.finish(LogicalTime::from_ms(STAMP_MS)).into();
        let entry = Entry { index: 1, term, data, ..Entry::default() };
        self.hears(MessageType::MsgAppend, from, term, |message| {
            message.entries = vec![entry].into();
        });
    }

    fn is_told_time(&mut self, from: u64, term: u64, time_ms: u64) {
        self.hears(MessageType::MsgHeartbeat, from, term, |message| {
            (message.log_term, message.index) = (term, time_ms);
        });
    }

    /// Is elected by node 3, whose vote says so much. Gives its time then.
    fn elected_with(mut self, fill_vote: impl FnOnce(&mut Message)) -> u64 {
        let asks = |played: &PlayedReplica, kind| {
            played.said.iter().rfind(|said| said.get_msg_type() == kind).map(|said| said.term)
        };
        while asks(&self, MessageType::MsgRequestPreVote).is_none() {
            self.turn(ms(50));
        }
        let term = asks(&self, MessageType::MsgRequestPreVote).unwrap();
        self.hears(MessageType::MsgRequestPreVoteResponse, 3, term, |_| {});
        assert_eq!(asks(&self, MessageType::MsgRequestVote), Some(term));
        self.hears(MessageType::MsgRequestVoteResponse, 3, term, fill_vote);
        assert!(self.replica.leadership().is_here);
        self.replica.now().as_ms()
    }

    fn elected(self) -> u64 {
        self.elected_with(|_| {})
    }
}

#[test]
fn a_new_leader_continues_from_the_latest_time_of_the_leader_that_wrote_the_last_entry() {
    let mut played = PlayedReplica::new();
    played.is_sent_entry(1, 5);
    played.is_told_time(1, 5, 25_000);
    played.is_told_time(1, 5, 24_900);
    assert_eq!(played.elected(), 25_000);
}

#[test]
fn the_time_of_an_older_leader_is_ignored_by_nodes_with_entries_of_a_newer_one() {
    let mut played = PlayedReplica::new();
    played.is_sent_entry(1, 5);
    played.is_told_time(1, 5, 25_000);
    // Its time began where the log ended. Sessions with a later heartbeat would end early by 15 s.
    played.is_sent_entry(3, 6);
    assert_eq!(played.elected(), STAMP_MS);
}

#[test]
fn the_time_of_the_last_entrys_term_counts_though_an_older_leader_was_ahead() {
    let mut played = PlayedReplica::new();
    played.is_sent_entry(1, 5);
    played.is_told_time(1, 5, 25_000);
    played.is_sent_entry(3, 6);
    played.is_told_time(3, 6, 11_000);
    assert_eq!(played.elected(), 11_000);
}

#[test]
fn the_time_of_a_newer_leader_is_ignored_until_it_has_an_entry_here() {
    // It may have been elected by nodes without the entry, and have counted while the leader that wrote it stood still.
    // A wait, or the TTL of a hold, that began with the entry would end early.
    let mut played = PlayedReplica::new();
    played.is_sent_entry(1, 5);
    played.is_told_time(1, 5, 10_100);
    played.is_told_time(3, 6, 25_000);
    assert_eq!(played.elected(), 10_100);
}

#[test]
fn a_leader_time_in_a_vote_counts_like_one_in_a_heartbeat() {
    let elected = |term: u64| {
        let mut played = PlayedReplica::new();
        played.is_sent_entry(1, 5);
        played.elected_with(|vote| (vote.log_term, vote.index) = (term, 25_000))
    };
    assert_eq!(elected(5), 25_000);
    assert_eq!(elected(4), STAMP_MS);
    assert_eq!(elected(6), STAMP_MS);
}

#[test]
fn a_leader_that_sends_no_time_is_followed_and_time_continues_from_the_log() {
    let mut played = PlayedReplica::new();
    played.is_sent_entry(1, 5);
    played.hears(MessageType::MsgHeartbeat, 1, 5, |_| {});
    assert_eq!(played.elected(), STAMP_MS);
}

#[test]
fn a_vote_carries_the_leader_time_that_the_voter_knows() {
    let mut played = PlayedReplica::new();
    played.is_sent_entry(1, 5);
    played.is_told_time(1, 5, 25_000);
    played.hears(MessageType::MsgRequestVote, 3, 6, |message| {
        (message.index, message.log_term) = (1, 5);
        // It need not wait until the leader is forgotten.
        message.context = b"CampaignTransfer".as_slice().into();
    });
    let vote = played.said.last().unwrap();
    assert_eq!(vote.get_msg_type(), MessageType::MsgRequestVoteResponse);
    assert_eq!((vote.reject, vote.log_term, vote.index), (false, 5, 25_000));
}
