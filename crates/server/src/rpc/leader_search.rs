//! Why this node knows no leader. Seen from one node, a cluster without a majority looks like a cluster from whose
//! leader this node alone is cut off, or whose disks are full. So the node asks the other members on their client
//! ports, and says what it learned.
//!
//! One search runs at a time, and its result serves all callers of all groups for [`FRESH_FOR`]: a node without a leader
//! asks each member twice a second at most, however many clients come.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use holdfast_proto::v1::{ClusterStatusResponse, Failure, Reason};
use holdfast_replica::{GroupId, NodeId};
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::Rpc;
use super::failure::{cut_off_from_leader, disks_full, no_leader};

const ASK_PATIENCE: Duration = Duration::from_millis(500);
const FRESH_FOR: Duration = Duration::from_millis(500);

/// What the other members said; each speaks of all groups.
type Answers = Arc<Vec<(NodeId, Result<ClusterStatusResponse, Failure>)>>;

/// The last search, for all that wait for one.
#[derive(Clone, Debug, Default)]
pub(super) struct LeaderSearch {
    last: Arc<Mutex<Option<(Instant, Answers)>>>,
    leaderless_since: Arc<std::sync::Mutex<BTreeMap<GroupId, Instant>>>,
}

impl LeaderSearch {
    /// For how long those who came here have found no leader: a later caller need not wait as long again.
    pub(super) fn leaderless_for(&self, group: GroupId, has_leader: bool) -> Duration {
        let mut since = self.leaderless_since.lock().unwrap_or_else(PoisonError::into_inner);
        if has_leader {
            since.remove(&group);
            return Duration::ZERO;
        }
        since.entry(group).or_insert_with(Instant::now).elapsed()
    }
}

/// What one other member says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MemberReply {
    Leader { leader: NodeId, term: u64 },
    NoLeader,
    DiskFull,
}

impl MemberReply {
    /// None if the member does not say how it is.
    fn of(group: GroupId, answer: &Result<ClusterStatusResponse, Failure>) -> Option<MemberReply> {
        let view = match answer {
            Ok(view) => view,
            // The build before refuses instead of saying so in its view.
            Err(failure) if failure.reason() == Reason::OutOfSpace => {
                return Some(MemberReply::DiskFull);
            }
            Err(_) => return None,
        };
        Some(match view.groups.iter().find(|status| status.group == group.0) {
            _ if view.disk_full => MemberReply::DiskFull,
            Some(group) if group.leader > 0 => {
                MemberReply::Leader { leader: NodeId(group.leader), term: group.term }
            }
            _ => MemberReply::NoLeader,
        })
    }
}

impl Rpc {
    /// What to tell a client, given that this node knows no leader.
    pub(super) async fn why_no_leader(&self, group: GroupId) -> Failure {
        let answers = self.answers_of_members().await;
        let reply = |(node, answer): &(NodeId, _)| Some((*node, MemberReply::of(group, answer)?));
        let mut replies: Vec<(NodeId, MemberReply)> = answers.iter().filter_map(reply).collect();
        if self.has_full_disk() {
            replies.push((self.membership.me, MemberReply::DiskFull));
        }
        replies.sort_by_key(|(node, _)| *node);
        let address_of = |node| self.membership.client_address(Some(node));
        conclude(self.membership.me, &replies, address_of)
    }

    /// Those of the last search, if it is fresh.
    async fn answers_of_members(&self) -> Answers {
        let mut last = self.leader_search.last.lock().await;
        if let Some((at, answers)) = &*last
            && at.elapsed() < FRESH_FOR
        {
            return Arc::clone(answers);
        }
        let answers = self.ask_members().await;
        *last = Some((Instant::now(), Arc::clone(&answers)));
        answers
    }

    pub(super) fn has_full_disk(&self) -> bool {
        self.metrics.disk_full.get() > 0
    }

    async fn ask_members(&self) -> Answers {
        let mut asking = JoinSet::new();
        for node in self.membership.now().members.keys().copied() {
            if node == self.membership.me {
                continue;
            }
            let members = Arc::clone(&self.members);
            asking.spawn(async move {
                let answer = timeout(ASK_PATIENCE, members.own_view_of(node)).await;
                Some((node, answer.ok()?))
            });
        }
        Arc::new(asking.join_all().await.into_iter().flatten().collect())
    }
}

/// The leader of the highest term that another member follows; else the disks that are full; else nothing is known.
fn conclude(
    me: NodeId,
    answers: &[(NodeId, MemberReply)],
    address_of: impl Fn(NodeId) -> String,
) -> Failure {
    let leaders = answers.iter().filter_map(|(by, said)| match said {
        MemberReply::Leader { leader, term } if *leader != me => Some((*term, *leader, *by)),
        _ => None,
    });
    let is_full = |reply: &MemberReply| *reply == MemberReply::DiskFull;
    let full: Vec<NodeId> =
        answers.iter().filter(|(_, said)| is_full(said)).map(|(node, _)| *node).collect();
    match leaders.max() {
        Some((_, leader, _)) if full.contains(&me) => {
            Failure { leader: address_of(leader), ..disks_full(&[me]) }
        }
        Some((_, leader, by)) => {
            Failure { leader: address_of(leader), ..cut_off_from_leader(leader, by) }
        }
        None if full.is_empty() => no_leader(),
        None => disks_full(&full),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: NodeId = NodeId(1);
    const TWO: NodeId = NodeId(2);
    const THREE: NodeId = NodeId(3);

    fn concluded(answers: &[(NodeId, MemberReply)]) -> Failure {
        conclude(ME, answers, |node| format!("node-{node}:7420"))
    }

    fn leader(leader: NodeId, term: u64) -> MemberReply {
        MemberReply::Leader { leader, term }
    }

    #[test]
    fn a_leader_that_another_member_follows_is_named_with_its_address() {
        let failure = concluded(&[(TWO, leader(THREE, 7))]);
        assert_eq!(failure.reason(), Reason::NotLeader);
        assert_eq!(failure.leader, "node-3:7420");
        assert!(failure.message.contains("node 3 leads, as node 2 says"), "{}", failure.message);
        assert!(failure.retryable && !failure.may_have_happened);
    }

    #[test]
    fn the_leader_of_the_highest_term_counts_and_this_node_is_not_it() {
        let answers =
            [(TWO, leader(ME, 9)), (THREE, leader(TWO, 8)), (NodeId(4), leader(THREE, 7))];
        assert_eq!(concluded(&answers).leader, "node-2:7420");
        assert_eq!(concluded(&[(TWO, leader(ME, 9))]).reason(), Reason::NoQuorum);
    }

    #[test]
    fn full_disks_are_the_reason_where_they_are_why_no_leader_can_be_elected() {
        for full in [
            &[(ME, MemberReply::DiskFull)][..],
            &[(TWO, MemberReply::DiskFull), (THREE, MemberReply::DiskFull)],
        ] {
            let failure = concluded(full);
            assert_eq!(failure.reason(), Reason::OutOfSpace, "{full:?}");
            assert!(failure.message.contains("make room"), "{}", failure.message);
        }
    }

    #[test]
    fn a_member_with_a_full_disk_says_so_in_its_view_or_in_a_refusal() {
        let view = ClusterStatusResponse { disk_full: true, ..Default::default() };
        assert_eq!(MemberReply::of(GroupId::FIRST, &Ok(view)), Some(MemberReply::DiskFull));
        assert_eq!(
            MemberReply::of(GroupId::FIRST, &Err(disks_full(&[TWO]))),
            Some(MemberReply::DiskFull)
        );
        let view = ClusterStatusResponse::default();
        assert_eq!(MemberReply::of(GroupId::FIRST, &Ok(view)), Some(MemberReply::NoLeader));
        assert_eq!(MemberReply::of(GroupId::FIRST, &Err(no_leader())), None);
    }

    #[test]
    fn a_full_node_names_the_leader_that_the_others_have() {
        let failure = concluded(&[(ME, MemberReply::DiskFull), (TWO, leader(THREE, 7))]);
        assert_eq!(failure.reason(), Reason::OutOfSpace);
        assert_eq!(failure.leader, "node-3:7420");
    }

    #[test]
    fn without_an_answer_there_is_no_quorum_as_far_as_this_node_knows() {
        for answers in [&[][..], &[(TWO, MemberReply::NoLeader)]] {
            let failure = concluded(answers);
            assert_eq!((failure.reason(), failure.leader.as_str()), (Reason::NoQuorum, ""));
        }
    }
}
