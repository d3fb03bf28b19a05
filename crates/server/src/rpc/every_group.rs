//! Actions that are about no lock in particular, in a cluster with several groups: each group carries out its part, and
//! the answers become one.
//!
//! - The leader of a group carries out the part of that group. If that is another node, this one forwards the part to it.
//!   A forwarded part names its group, so the node that gets it asks no other group.
//! - The parts are carried out at the same time. Each is linearizable in its group; between the groups there is no order.
//! - A read needs an answer of every group: a list without the locks of one group would look complete.

use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

use holdfast_proto::v1::Failure;
use holdfast_replica::GroupId;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::Rpc;
use super::failure::{bug, took_too_long};

/// Less than a whole call may take, so that the answer can name the groups that were too slow.
const PART_TIMEOUT: Duration = Duration::from_secs(4);

/// In which groups an action is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    One(GroupId),
    Every,
}

impl Scope {
    /// Of an action that concerns all groups. `part` is the group that a forwarded part names.
    pub(super) fn every(rpc: &Rpc, part: Option<GroupId>) -> Scope {
        match part {
            Some(group) => Scope::One(group),
            None if rpc.membership.groups.is_one() => Scope::One(GroupId::FIRST),
            None => Scope::Every,
        }
    }
}

/// What became of the part of each group.
pub(super) type Parts<R> = BTreeMap<GroupId, Result<R, Failure>>;

/// Carries out the part of each group.
pub(super) async fn carry_out<R, A>(
    rpc: &Rpc,
    part: impl Fn(Rpc, GroupId) -> A,
) -> Result<Parts<R>, Failure>
where
    R: Send + 'static,
    A: Future<Output = Result<R, Failure>> + Send + 'static,
{
    let mut under_way = JoinSet::new();
    for group in rpc.membership.groups.all() {
        let answer = timeout(PART_TIMEOUT, part(rpc.clone(), group));
        under_way
            .spawn(async move { (group, answer.await.unwrap_or_else(|_| Err(took_too_long()))) });
    }
    let mut parts = Parts::new();
    while let Some(done) = under_way.join_next().await {
        let (group, answer) = done.map_err(|error| bug(&format!("a part of a group: {error}")))?;
        parts.insert(group, answer);
    }
    Ok(parts)
}

/// The answers in the order of the groups; or the failure of the first group that has none.
pub(super) fn all_answers<R>(parts: Parts<R>) -> Result<Vec<R>, Failure> {
    let with_group = |(group, part): (GroupId, Result<R, Failure>)| {
        part.map_err(|failure| of_group(group, failure))
    };
    parts.into_iter().map(with_group).collect()
}

/// What a change in all groups comes to. A group whose refusal satisfies `is_nothing_to_do` has nothing of what the
/// change is about, so the other groups decide.
pub(super) fn all_changed<R>(
    parts: Parts<R>,
    is_nothing_to_do: impl Fn(&Failure) -> bool,
) -> Result<Vec<R>, Failure> {
    let (mut done, mut failed, mut idle) = (BTreeMap::new(), BTreeMap::new(), None);
    for (group, part) in parts {
        match part {
            Ok(answer) => drop(done.insert(group, answer)),
            Err(failure) if is_nothing_to_do(&failure) => drop(idle.get_or_insert(failure)),
            Err(failure) => drop(failed.insert(group, of_group(group, failure))),
        }
    }
    // What a retry cannot change counts before what it can.
    let Some(failure) =
        failed.values().find(|failure| !failure.retryable).or_else(|| failed.values().next())
    else {
        return match idle {
            Some(failure) if done.is_empty() => Err(failure),
            _ => Ok(done.into_values().collect()),
        };
    };
    let (open, refused): (Vec<_>, Vec<_>) =
        failed.iter().partition(|(_, failure)| failure.may_have_happened);
    if done.is_empty() && open.is_empty() {
        return Err(failure.clone());
    }
    let lists = [
        ("done", done.keys().copied().collect()),
        ("perhaps done", open.into_iter().map(|(group, _)| *group).collect()),
        ("not done", refused.into_iter().map(|(group, _)| *group).collect()),
    ];
    let lists = lists.into_iter().filter(|(_, groups): &(_, Vec<_>)| !groups.is_empty());
    let lists: Vec<String> =
        lists.map(|(what, groups)| format!("{what} in {}", numbers(&groups))).collect();
    let remedy = if failure.retryable { "; send it again, which does no harm" } else { "" };
    let message = format!("{}; it is {}{remedy}", failure.message, lists.join(", "));
    Err(Failure { message, may_have_happened: true, ..failure.clone() })
}

/// `group 2`, or `groups 2, 3`.
pub(super) fn numbers(groups: &[GroupId]) -> String {
    let numbers: Vec<String> = groups.iter().map(|group| group.0.to_string()).collect();
    let word = if numbers.len() == 1 { "group" } else { "groups" };
    format!("{word} {}", numbers.join(", "))
}

/// With the group in the words, for a caller that asked about no group in particular.
fn of_group(group: GroupId, failure: Failure) -> Failure {
    let message = format!("group {}: {}", group.0, failure.message);
    Failure { message, group: group.0, ..failure }
}

#[cfg(test)]
mod tests {
    use holdfast_proto::failure::{not_now, refused, unknown};
    use holdfast_proto::v1::Reason;

    use super::*;

    fn parts<const N: usize>(parts: [Result<u32, Failure>; N]) -> Parts<u32> {
        (1..).map(GroupId).zip(parts).collect()
    }

    fn idle() -> Failure {
        refused(Reason::NotFrozen, "nothing is frozen")
    }

    fn is_idle(failure: &Failure) -> bool {
        failure.reason() == Reason::NotFrozen
    }

    #[test]
    fn a_read_needs_the_answer_of_every_group() {
        assert_eq!(all_answers(parts([Ok(1), Ok(2)])), Ok(vec![1, 2]));
        let failure =
            all_answers(parts([Ok(1), Err(not_now(Reason::NoQuorum, "no leader"))])).unwrap_err();
        assert_eq!((failure.reason(), failure.group), (Reason::NoQuorum, 2));
        assert_eq!(failure.message, "group 2: no leader");
    }

    #[test]
    fn groups_with_nothing_to_do_leave_it_to_the_others() {
        assert_eq!(all_changed(parts([Err(idle()), Ok(2)]), is_idle), Ok(vec![2]));
        let failure = all_changed(parts([Err(idle()), Err(idle())]), is_idle).unwrap_err();
        assert_eq!((failure.message.as_str(), failure.group), ("nothing is frozen", 0));
    }

    #[test]
    fn a_change_that_not_all_groups_made_says_in_which_it_is_done() {
        let lost = || not_now(Reason::NoQuorum, "no leader");
        let failure = all_changed(parts([Ok(1), Err(lost()), Ok(3)]), is_idle).unwrap_err();
        assert_eq!(failure.reason(), Reason::NoQuorum);
        assert!(failure.may_have_happened && failure.retryable);
        let words = "it is done in groups 1, 3, not done in group 2; send it again";
        assert!(failure.message.contains(words), "{}", failure.message);
        let unknown = || unknown(Reason::NoQuorum, "no answer");
        let failure = all_changed(parts([Ok(1), Err(unknown()), Ok(3)]), is_idle).unwrap_err();
        assert!(failure.message.contains("perhaps done in group 2"), "{}", failure.message);
        let failure = all_changed(parts([Err(idle()), Err(lost())]), is_idle).unwrap_err();
        assert!(!failure.may_have_happened, "no group has made it: {failure:?}");
    }

    #[test]
    fn a_refusal_for_good_counts_before_a_group_without_a_leader() {
        let lost = not_now(Reason::NoQuorum, "no leader");
        let ended = refused(Reason::UnknownSession, "it has ended");
        let failure = all_changed(parts([Err(lost), Ok(2), Err(ended)]), is_idle).unwrap_err();
        assert_eq!((failure.reason(), failure.retryable), (Reason::UnknownSession, false));
        assert!(!failure.message.contains("send it again"), "{}", failure.message);
    }
}
