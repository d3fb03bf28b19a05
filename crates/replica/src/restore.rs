//! Restores a group on one node: from a backup, or from the log of the only node that survived (quorum-loss recovery).
//!
//! The restored group is a new cluster. It has a new cluster id, so that its nodes and those of the old cluster refuse
//! each other. Node ids are not used again either. `holdfast_core::RestoreOptions` says what becomes of locks, sessions
//! and tokens.
//!
//! Caveat: no quorum protects this decision. An operator who does it on two nodes makes two clusters.

mod numbers;

use std::cmp::Reverse;

use bytes::Bytes;
use holdfast_core::{Limits, LockTable, LogIndex, RestoreSummary, Span};
use thiserror::Error;

use crate::config::ReplicaConfig;
use crate::id::{ClusterId, GroupId, NodeId};
use crate::log_store::{Durable, SnapshotFile};
use crate::membership::{Configuration, Member, Membership};
use crate::replica::{Fatal, Replica, StartError};
use crate::snapshot_body::{self, SnapshotError};
use numbers::Known;
pub use numbers::{BEST_EFFORT_TERM_END, TOKEN_FLOOR_MAX, TOKENS_PER_TERM_BITS};

/// More entries than can have been written after the state that is restored.
const INDEX_LEAP: u64 = 1 << 40;
/// The TTL of sessions that are not in the restored state, unless their clients chose another one.
const USUAL_TTL: Span = Span::from_secs(30);

/// How to restore a group.
#[derive(Clone, Debug)]
pub struct GroupRestoreOptions {
    /// The only voter.
    pub node: NodeId,
    /// Its addresses and its directory.
    pub member: Member,
    pub cluster: ClusterId,
    /// This machine's wall clock. Only a restore reads it: tokens continue by it.
    pub clock_unix_ms: u64,
    /// When the state was written, if that is known. Terms continue by its age.
    pub written_unix_ms: Option<u64>,
    /// Given by the operator: new tokens of both tiers are higher than this.
    pub token_floor: Option<u64>,
    /// For how long nothing is granted. The default is the longest time for which a client can believe to hold a lock.
    /// A freeze that lasts longer already is not shortened.
    pub closed_for: Option<Span>,
    /// Shown to clients that wait meanwhile.
    pub by: String,
    pub reason: String,
}

/// What a restore ended, and from where tokens and terms continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupRestoreSummary {
    pub ended: RestoreSummary,
    pub last_token_before: u64,
    /// The first token of the new cluster is higher than this.
    pub last_token: u64,
    pub last_term_before: u64,
    /// The terms of all new leaders are higher than this: they are the upper part of best-effort tokens.
    pub last_term: u64,
    pub closed_for: Span,
}

#[derive(Debug, Error)]
pub enum RestoreError {
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    #[error(
        "the last token of this state is {last_token}, and fewer than 2^40 tokens would be left: a cluster \
         cannot continue with it. Begin a new cluster, and let all protected resources forget the tokens that \
         they have seen"
    )]
    TokensRunOut { last_token: u64 },
    #[error(
        "the last token of this state is {last_token}, and the clock of this machine stands for {by_clock} \
         (unix milliseconds x 2^20). So the clock cannot tell which tokens were granted after the state was \
         written: the cluster began with a --token-floor or with a clock that was ahead, or this clock is \
         behind. Set the clock if it is behind. Otherwise give a floor above every token that was granted \
         since: --token-floor {safe} is safe if no cluster was restored from this state, or from a later one, \
         before. If one was, add 72057594037927936 (2^56) to the higher of the two numbers that the restore \
         printed"
    )]
    ClockBelowTokens { last_token: u64, by_clock: u64, safe: u64 },
    #[error(
        "the clock of this machine shows a time before the state was written, and tokens continue by it: \
         set the clock, or give a floor above every token that was granted since. --token-floor {safe} is \
         safe if no cluster was restored from this state, or from a later one, before"
    )]
    ClockBehind { safe: u64 },
    #[error(
        "the clock of this machine stands for token {by_clock}, and above {TOKEN_FLOOR_MAX} too few are \
         left: set the clock, or give a floor above every token that was granted since. --token-floor {safe} \
         is safe if no cluster was restored from this state, or from a later one, before"
    )]
    ClockAhead { by_clock: u64, safe: u64 },
    #[error(
        "--token-floor {floor} is not above the last token of this state, which is {last_token}: tokens would \
         come again. Give a floor above every token that was granted since. --token-floor {safe} is safe if no \
         cluster was restored from this state, or from a later one, before"
    )]
    FloorTooLow { floor: u64, last_token: u64, safe: u64 },
    #[error(
        "--token-floor {floor} leaves too few tokens to the new cluster: it can be {floor_max} at most"
    )]
    FloorTooHigh { floor: u64, floor_max: u64 },
    #[error("the terms of this state have run out")]
    TermsRunOut,
    #[error("log indexes have run out")]
    IndexesRunOut,
}

/// Why the log of the surviving node cannot be applied.
#[derive(Debug, Error)]
pub enum SalvageError {
    #[error(transparent)]
    Start(#[from] StartError),
    #[error(transparent)]
    Apply(#[from] Fatal),
}

/// Reads a snapshot as nodes write it.
pub fn read_snapshot(data: &[u8]) -> Result<(Membership, LockTable), SnapshotError> {
    snapshot_body::decode(data, Limits::default())
}

/// The format versions of a snapshot and of the table in it.
pub fn snapshot_versions(data: &[u8]) -> Result<(u8, u8), SnapshotError> {
    snapshot_body::versions(data)
}

/// The state of the new group's only node, and what the restore ended.
pub fn restore_group(
    file: &SnapshotFile,
    options: GroupRestoreOptions,
) -> Result<(SnapshotFile, GroupRestoreSummary), RestoreError> {
    let group = StoredGroup::of(file, &options)?;
    let last_token = group.known.last_token_of_new_cluster()?;
    let closed_for = options.closed_for.unwrap_or(group.usual_closed_for());
    group.restore(&options, last_token, closed_for)
}

/// A group of a restored cluster, as its only node begins with it.
#[derive(Clone, Debug)]
pub struct RestoredGroup {
    pub group: GroupId,
    pub state: SnapshotFile,
    pub summary: GroupRestoreSummary,
}

/// Restores all groups of a cluster, each as [`restore_group`] does, on one node. What the groups have to agree about is
/// the same in all of them:
///
/// * Their tokens continue at the same number: the highest that one of them needs. So one number separates all tokens of
///   two restores.
/// * No group grants anything before the longest TTL of the sessions of all groups is over.
/// * An id of a node that was used in one of them is used up in all of them. Nodes are added to all groups.
/// * They have the newest policy that one of them had. A group with an older one could take the next generation for one
///   that another group has already with other content.
///
/// If several groups refuse, the error is of the one with the highest last token: the floor that it demands is high
/// enough for the others.
pub fn restore_groups(
    files: &[(GroupId, SnapshotFile)],
    options: &GroupRestoreOptions,
) -> Result<Vec<RestoredGroup>, (GroupId, RestoreError)> {
    let mut groups = Vec::with_capacity(files.len());
    for (id, file) in files {
        let group = StoredGroup::of(file, options).map_err(|error| (*id, error.into()))?;
        groups.push((*id, group));
    }
    spread_newest_policy(&mut groups);
    let highest =
        groups.iter().map(|(_, group)| group.membership.highest).max().unwrap_or_default();
    groups.iter_mut().for_each(|(_, group)| group.membership.highest = highest);
    groups.sort_by_key(|(id, group)| (Reverse(group.known.last_token), *id));
    let (mut last_token, mut usual) = (0, Span::ZERO);
    for (id, group) in &groups {
        let continues_at = group.known.last_token_of_new_cluster().map_err(|error| (*id, error))?;
        last_token = last_token.max(continues_at);
        usual = usual.max(group.usual_closed_for());
    }
    let closed_for = options.closed_for.unwrap_or(usual);
    groups.sort_by_key(|(id, _)| *id);
    let restored = groups.into_iter().map(|(group, stored)| {
        let restored = stored.restore(options, last_token, closed_for);
        let (state, summary) = restored.map_err(|error| (group, error))?;
        Ok(RestoredGroup { group, state, summary })
    });
    restored.collect()
}

/// The newest is that of the highest generation. The root group may have a policy that it never committed, if a survivor
/// had it at the end of its log. What another group has was committed, so among equal generations that one is taken.
fn spread_newest_policy(groups: &mut [(GroupId, StoredGroup)]) {
    groups.sort_by_key(|(id, group)| (group.table.access().generation(), *id));
    if let Some((newest, others)) = groups.split_last_mut() {
        others.iter_mut().for_each(|(_, group)| group.table.take_policy_of(&newest.1.table));
    }
}

/// A group as its snapshot has it.
struct StoredGroup {
    index: u64,
    membership: Membership,
    table: LockTable,
    known: Known,
}

impl StoredGroup {
    fn of(
        file: &SnapshotFile,
        options: &GroupRestoreOptions,
    ) -> Result<StoredGroup, SnapshotError> {
        let (membership, table) = read_snapshot(&file.data)?;
        let known = Known {
            last_token: table.last_token(),
            term: file.term,
            clock_unix_ms: options.clock_unix_ms,
            written_unix_ms: options.written_unix_ms,
            token_floor: options.token_floor,
        };
        Ok(StoredGroup { index: file.index, membership, table, known })
    }

    /// For how long nothing is granted unless the operator says otherwise.
    fn usual_closed_for(&self) -> Span {
        self.table.longest_ttl().unwrap_or(USUAL_TTL).max(USUAL_TTL)
    }

    fn restore(
        self,
        options: &GroupRestoreOptions,
        last_token: u64,
        closed_for: Span,
    ) -> Result<(SnapshotFile, GroupRestoreSummary), RestoreError> {
        let StoredGroup { index, mut membership, mut table, known } = self;
        let last_term = known.last_term_of_new_cluster()?;
        let index = index.checked_add(INDEX_LEAP).filter(|index| *index < u64::MAX / 2);
        let index = index.ok_or(RestoreError::IndexesRunOut)?;
        let closed_for = closed_for.max(table.closed_for());
        #[cfg_attr(not(feature = "planted"), expect(unused_mut, reason = "only a bug changes it"))]
        let mut table_options = holdfast_core::RestoreOptions {
            token_floor: last_token,
            index: LogIndex(index),
            closed_for,
            by: options.by.as_str().into(),
            reason: options.reason.as_str().into(),
        };
        #[cfg(feature = "planted")]
        if crate::planted::Bug::RestoreOpensAtOnce.is_active() {
            table_options.closed_for = Span::ZERO;
        }
        let ended = table.reset_for_restore(table_options);
        membership.cluster = Some(options.cluster);
        membership.set_configuration(Configuration::of_voters(&[options.node]));
        membership.members.insert(options.node, options.member.clone());
        let data: Bytes = snapshot_body::encode(&membership, &table);
        let made = SnapshotFile { index, term: last_term, data };
        let summary = GroupRestoreSummary {
            ended,
            last_token_before: known.last_token,
            last_token,
            last_term_before: known.term,
            last_term,
            closed_for,
        };
        Ok((made, summary))
    }
}

/// The state of a node whose peers are lost. All entries of its log count, committed or not. An entry that was never
/// acknowledged does no harm. Leaving out an acknowledged one would.
///
/// The term is the highest one in which the node has voted, even if it never saw an entry of that term. Its leader may
/// have granted best-effort locks, and their tokens begin with the term.
pub fn salvage(config: ReplicaConfig, mut durable: Durable) -> Result<SnapshotFile, SalvageError> {
    let promised_term = durable.hard_state.term;
    let in_log = durable.entries.last().map(|entry| entry.index);
    let in_snapshot = durable.snapshot.as_ref().map(|snapshot| snapshot.index);
    durable.hard_state.commit = in_log.max(in_snapshot).unwrap_or(0);
    let mut replica = Replica::new(config, durable)?;
    let mut effects = Vec::new();
    while replica.begin_turn().is_some() {
        replica.finish_turn(&mut effects)?;
        effects.clear();
    }
    let state = replica.snapshot();
    Ok(SnapshotFile { term: state.term.max(promised_term), ..state })
}

#[cfg(test)]
mod tests {
    use holdfast_core::command::OpenSession;
    use holdfast_core::{AccessChange, ChangeAccess, Command, MapEpoch, Principal, SlotSet};

    use super::*;
    use crate::found::found_group;

    const IN_2026: u64 = 1_790_000_000_000;

    fn terms(node: u64, token_floor: u64) -> GroupRestoreOptions {
        GroupRestoreOptions {
            node: NodeId(node),
            member: Member { peer_address: "here:1".into(), ..Member::default() },
            cluster: ClusterId([9; 16]),
            clock_unix_ms: IN_2026,
            written_unix_ms: None,
            token_floor: Some(token_floor).filter(|floor| *floor > 0),
            closed_for: None,
            by: "test".into(),
            reason: "lost".into(),
        }
    }

    /// Written by the first build: some sessions, some locks.
    fn old() -> SnapshotFile {
        let data = Bytes::from_static(include_bytes!("../tests/fixtures/snapshot-v1.bin"));
        SnapshotFile { index: 40, term: 3, data }
    }

    #[test]
    fn a_restored_node_has_a_new_id_and_no_holds() {
        let (_, before) = read_snapshot(&old().data).unwrap();
        assert!(before.lock_count() > 0 && before.session_count() > 0);
        let (made, account) = restore_group(&old(), terms(2, 0)).unwrap();
        let (membership, table) = read_snapshot(&made.data).unwrap();
        assert_eq!(membership.cluster, Some(ClusterId([9; 16])));
        assert_eq!(membership.configuration, Configuration::of_voters(&[NodeId(2)]));
        assert_eq!(membership.members[&NodeId(2)].peer_address, "here:1");
        assert!(membership.was_removed(NodeId(1)) && membership.was_removed(NodeId(3)));
        assert_eq!((table.session_count(), table.lock_count(), table.waiter_count()), (0, 0, 0));
        assert_eq!(account.ended.sessions, before.session_count());
        assert_eq!(table.now(), before.now());
        assert!(made.index > old().index && made.term > old().term);
    }

    #[test]
    fn tokens_never_go_back_and_start_above_the_floor() {
        let before = read_snapshot(&old().data).unwrap().1.last_token();
        let by_clock = IN_2026 << 20;
        for (floor, expected) in [(0, by_clock), (by_clock + 1_000, by_clock + 1_000)] {
            let (made, account) = restore_group(&old(), terms(1, floor)).unwrap();
            assert_eq!(read_snapshot(&made.data).unwrap().1.last_token(), expected);
            assert_eq!((account.last_token_before, account.last_token), (before, expected));
        }
        let error = restore_group(&old(), terms(1, TOKEN_FLOOR_MAX + 1)).unwrap_err();
        assert!(matches!(error, RestoreError::FloorTooHigh { .. }), "{error}");
        // The clock's tokens are in the state now, so the clock tells nothing until it has gone on.
        let (once, _) = restore_group(&old(), terms(1, 0)).unwrap();
        let error = restore_group(&once, terms(1, 0)).unwrap_err();
        assert!(matches!(error, RestoreError::ClockBelowTokens { .. }), "{error}");
        let later = GroupRestoreOptions { clock_unix_ms: IN_2026 + 1, ..terms(1, 0) };
        let (twice, account) = restore_group(&once, later).unwrap();
        assert_eq!(account.last_token, by_clock + (1 << 40), "a millisecond is no distance");
        assert!(twice.term > once.term + 1_000, "{} after {}", twice.term, once.term);
    }

    #[test]
    fn nothing_is_granted_after_a_restore_until_the_old_leases_have_run_out() {
        let (_, mut table) = read_snapshot(&old().data).unwrap();
        let longest = Span::from_secs(600);
        let open = OpenSession {
            session: holdfast_core::SessionId(77),
            public: holdfast_core::PublicSessionId(77),
            ttl: longest,
            linger: longest,
            owner: Default::default(),
            identity: None,
            stream: None,
        };
        let now = table.now();
        table.apply(LogIndex(41), now, Command::OpenSession(open), &mut Vec::new());
        let (membership, _) = read_snapshot(&old().data).unwrap();
        let data = snapshot_body::encode(&membership, &table);
        let file = SnapshotFile { index: 41, term: 3, data };
        let closed = |closed_for: Option<Span>| {
            let (made, account) =
                restore_group(&file, GroupRestoreOptions { closed_for, ..terms(1, 0) }).unwrap();
            let frozen = read_snapshot(&made.data).unwrap().1.status("any", 1).frozen;
            (account.closed_for, frozen.map(|freeze| freeze.until.since(now)))
        };
        assert_eq!(closed(None), (longest, Some(longest)));
        assert_eq!(closed(Some(Span::ZERO)), (Span::ZERO, None));
        let (_, account) = restore_group(&old(), terms(1, 0)).unwrap();
        assert!(account.closed_for >= USUAL_TTL, "sessions that are not in the backup count too");

        // The sessions are gone, and their time is kept.
        let (once, _) = restore_group(&file, terms(1, 0)).unwrap();
        let floor = account.last_token + 1;
        for closed_for in [None, Some(Span::ZERO), Some(Span::from_secs(60))] {
            let again = GroupRestoreOptions { closed_for, ..terms(1, floor) };
            let (twice, account) = restore_group(&once, again).unwrap();
            let frozen = read_snapshot(&twice.data).unwrap().1.status("any", 1).frozen.unwrap();
            assert_eq!((account.closed_for, frozen.until.since(now)), (longest, longest));
        }
        let longer =
            GroupRestoreOptions { closed_for: Some(Span::from_secs(900)), ..terms(1, floor) };
        assert_eq!(restore_group(&once, longer).unwrap().1.closed_for, Span::from_secs(900));
    }

    /// A group with the last token `last_token` and one session with this TTL.
    fn group_with(last_token: u64, ttl: Span) -> SnapshotFile {
        let (membership, mut table) = read_snapshot(&old().data).unwrap();
        let options = holdfast_core::RestoreOptions {
            token_floor: last_token,
            index: LogIndex(50),
            closed_for: Span::ZERO,
            by: "test".into(),
            reason: "test".into(),
        };
        table.reset_for_restore(options);
        let open = OpenSession {
            session: holdfast_core::SessionId(77),
            public: holdfast_core::PublicSessionId(77),
            ttl,
            linger: ttl,
            owner: Default::default(),
            identity: None,
            stream: None,
        };
        let now = table.now();
        table.apply(LogIndex(51), now, Command::OpenSession(open), &mut Vec::new());
        let data = snapshot_body::encode(&membership, &table);
        SnapshotFile { index: 51, term: last_token % 7, data }
    }

    fn groups(last_tokens: [u64; 3]) -> Vec<(GroupId, SnapshotFile)> {
        let ttls = [60, 600, 90].map(Span::from_secs);
        let files = last_tokens.into_iter().zip(ttls).map(|(last, ttl)| group_with(last, ttl));
        (1..).map(GroupId).zip(files).collect()
    }

    #[test]
    fn all_groups_continue_above_the_tokens_that_each_of_them_can_have_granted() {
        let by_clock = IN_2026 << 20;
        let highest = by_clock - 5;
        let files = groups([500, highest, 7]);
        let restored = restore_groups(&files, &terms(1, 0)).unwrap();
        assert_eq!(restored.iter().map(|group| group.group.0).collect::<Vec<_>>(), [1, 2, 3]);
        for (RestoredGroup { state: made, summary, .. }, (_, file)) in restored.iter().zip(&files) {
            let (membership, table) = read_snapshot(&made.data).unwrap();
            let before = read_snapshot(&file.data).unwrap().1;
            assert_eq!(summary.last_token_before, before.last_token());
            assert_eq!(
                (summary.last_token, table.last_token()),
                (highest + (1 << 40), highest + (1 << 40))
            );
            assert_eq!(
                (summary.closed_for, table.closed_for()),
                (Span::from_secs(600), Span::from_secs(600))
            );
            assert_eq!((summary.ended.sessions, table.session_count()), (1, 0));
            assert_eq!(membership.cluster, Some(ClusterId([9; 16])));
            // By the group's own term.
            let (alone, _) = restore_group(file, terms(1, highest + 1)).unwrap();
            assert_eq!((made.term, made.index), (file.term + (1 << 16), alone.index));
            assert_eq!(summary.last_term, made.term);
        }
    }

    #[test]
    fn a_floor_that_a_refusal_calls_safe_is_safe_for_all_groups() {
        let (middle, highest) = (3_000_000_000_000_000_000, 4_000_000_000_000_000_000);
        let files = groups([middle, 500, highest]);
        let (group, error) = restore_groups(&files, &terms(1, 0)).unwrap_err();
        let RestoreError::ClockBelowTokens { last_token, safe, .. } = error else {
            panic!("{error}")
        };
        assert_eq!((group, last_token), (GroupId(3), highest));
        for restored in restore_groups(&files, &terms(1, safe)).unwrap() {
            assert_eq!(restored.summary.last_token, safe);
        }
        let too_low = restore_groups(&files, &terms(1, middle + 1)).unwrap_err();
        assert!(matches!(too_low, (GroupId(3), RestoreError::FloorTooLow { .. })), "{too_low:?}");
    }

    /// A group whose policy was changed so many times, each time by a ban of someone else.
    fn group_with_policy(generation: u64, banned: &str) -> SnapshotFile {
        let founded = found_group(&[NodeId(1)], MapEpoch(1), SlotSet::empty());
        let (membership, mut table) = read_snapshot(&founded.data).unwrap();
        for number in 1..=generation {
            let principal = Principal::parse(&format!("token:{banned}-{number}")).unwrap();
            let change = ChangeAccess {
                by: "test".into(),
                identity: None,
                expected: None,
                changes: [AccessChange::Ban { principal }].into(),
                end_sessions: false,
            };
            let (index, now) = (LogIndex(1 + number), table.now());
            let change = Command::ChangeAccess(Box::new(change));
            table.apply(index, now, change, &mut Vec::new());
        }
        assert_eq!(table.access().generation(), generation);
        let data = snapshot_body::encode(&membership, &table);
        SnapshotFile { index: 1 + generation, term: 2, data }
    }

    #[test]
    fn all_groups_of_a_restored_cluster_have_the_newest_policy_of_the_old_one() {
        let files = (1..)
            .map(GroupId)
            .zip([1, 3, 0].map(|changes| group_with_policy(changes, "alice")))
            .collect::<Vec<_>>();
        for restored in restore_groups(&files, &terms(1, 0)).unwrap() {
            let (_, table) = read_snapshot(&restored.state.data).unwrap();
            let policy = table.access();
            assert_eq!((policy.generation(), policy.banned().count()), (3, 3), "{restored:?}");
        }
    }

    #[test]
    fn a_policy_that_the_root_group_never_committed_gives_way_to_one_that_another_group_adopted() {
        // The survivor led the root group when it lost the others, and its last change was not committed.
        let files =
            (1..).map(GroupId).zip(["lost", "adopted"].map(|name| group_with_policy(2, name)));
        for restored in restore_groups(&files.collect::<Vec<_>>(), &terms(1, 0)).unwrap() {
            let (_, table) = read_snapshot(&restored.state.data).unwrap();
            let is_adopted = table.access().banned().all(|it| it.to_string().contains("adopted"));
            assert!(is_adopted, "{restored:?}");
        }
    }

    #[test]
    fn a_group_that_cannot_be_read_is_named() {
        let mut files = groups([1, 2, 3]);
        files[1].1.data = Bytes::from_static(b"not a snapshot");
        let refused = restore_groups(&files, &terms(1, 0)).unwrap_err();
        assert!(matches!(refused, (GroupId(2), RestoreError::Snapshot(_))), "{refused:?}");
    }
}
