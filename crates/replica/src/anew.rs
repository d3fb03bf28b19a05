//! A group that begins anew on one node, with what is left of its state: from a backup, or from the log of the
//! only node that survived.
//!
//! The new group is another one than the old: it has a cluster id of its own, so that nodes of the old one
//! and it refuse each other. Ids of nodes are not used again either. What becomes of locks, sessions and
//! tokens is told in `holdfast_core::NewBeginning`.
//!
//! Caveat: whoever runs this decides alone. Doing it on two nodes makes two clusters.

mod numbers;

use bytes::Bytes;
use holdfast_core::{EndedByNewBeginning, Limits, LockTable, LogIndex, Span};
use thiserror::Error;

use crate::config::ReplicaConfig;
use crate::id::{ClusterId, NodeId};
use crate::log_store::{Durable, SnapshotFile};
use crate::membership::{Configuration, Member, Membership};
use crate::replica::{Fatal, Replica, StartError};
use crate::snapshot_body::{self, SnapshotError};
use numbers::Known;
pub use numbers::{BEST_EFFORT_TERM_END, TOKEN_FLOOR_MAX, TOKENS_PER_TERM_BITS};

/// More entries than can have been written after what is left was written.
const INDEX_LEAP: u64 = 1 << 40;
/// Sessions that are not in what is left have this TTL unless their clients chose another one.
const USUAL_TTL: Span = Span::from_secs(30);

/// On what terms a group begins anew.
#[derive(Clone, Debug)]
pub struct Terms {
    /// The only voter.
    pub node: NodeId,
    /// Its addresses and its directory.
    pub member: Member,
    pub cluster: ClusterId,
    /// What this machine's wall clock shows. It is read here and nowhere else: tokens continue by it.
    pub clock_unix_ms: u64,
    /// When the state was written, if that is known: terms continue by its age.
    pub written_unix_ms: Option<u64>,
    /// The operator's word: new tokens of both tiers are higher than this.
    pub token_floor: Option<u64>,
    /// For how long nothing is granted; if not given, for as long as anybody can believe to hold a lock. It never
    /// ends earlier what is frozen already.
    pub closed_for: Option<Span>,
    /// Shown to those who wait meanwhile.
    pub by: String,
    pub reason: String,
}

/// What was made of the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account {
    pub ended: EndedByNewBeginning,
    pub last_token_before: u64,
    /// The first token of the new cluster is higher than this.
    pub last_token: u64,
    pub last_term_before: u64,
    /// The terms of all new leaders are higher than this: they are the upper part of best-effort tokens.
    pub last_term: u64,
    pub closed_for: Span,
}

#[derive(Debug, Error)]
pub enum AnewError {
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
         come again. Give a floor above every token that was granted since, for example {safe}"
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

/// Why the log of a survivor cannot be applied.
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

/// In which versions a snapshot and the table in it are written.
pub fn snapshot_versions(data: &[u8]) -> Result<(u8, u8), SnapshotError> {
    snapshot_body::versions(data)
}

/// The state of the new group's only node, and what it cost.
pub fn begin_anew(file: &SnapshotFile, terms: Terms) -> Result<(SnapshotFile, Account), AnewError> {
    let (mut membership, mut table) = read_snapshot(&file.data)?;
    let known = Known {
        last_token: table.last_token(),
        term: file.term,
        clock_unix_ms: terms.clock_unix_ms,
        written_unix_ms: terms.written_unix_ms,
        token_floor: terms.token_floor,
    };
    let last_token = known.last_token_of_new_cluster()?;
    let last_term = known.last_term_of_new_cluster()?;
    let index = file.index.checked_add(INDEX_LEAP).filter(|index| *index < u64::MAX / 2);
    let index = index.ok_or(AnewError::IndexesRunOut)?;
    let usual = table.longest_ttl().unwrap_or(USUAL_TTL).max(USUAL_TTL);
    let closed_for = terms.closed_for.unwrap_or(usual).max(table.closed_for());
    #[cfg_attr(not(feature = "planted"), expect(unused_mut, reason = "only a bug changes it"))]
    let mut beginning = holdfast_core::NewBeginning {
        token_floor: last_token,
        index: LogIndex(index),
        closed_for,
        by: terms.by.into(),
        reason: terms.reason.into(),
    };
    #[cfg(feature = "planted")]
    if crate::planted::Bug::RestoreOpensAtOnce.is_active() {
        beginning.closed_for = Span::ZERO;
    }
    let ended = table.begin_anew(beginning);
    membership.cluster = Some(terms.cluster);
    membership.set_configuration(Configuration::of_voters(&[terms.node]));
    membership.members.insert(terms.node, terms.member);
    let data: Bytes = snapshot_body::encode(&membership, &table);
    let made = SnapshotFile { index, term: last_term, data };
    let (last_token_before, last_term_before) = (known.last_token, known.term);
    let account =
        Account { ended, last_token_before, last_token, last_term_before, last_term, closed_for };
    Ok((made, account))
}

/// The state of a node that lost the others: all entries of its log count, committed or not. Some of them
/// may never have been acknowledged to anybody; that does no harm, and to leave out one that was would.
///
/// Its term is the highest that the node has promised to anybody, also if it never saw an entry of that term: the
/// leader of it may have granted best-effort locks, whose tokens begin with the term.
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
    use holdfast_core::Command;
    use holdfast_core::command::OpenSession;

    use super::*;

    const IN_2026: u64 = 1_790_000_000_000;

    fn terms(node: u64, token_floor: u64) -> Terms {
        Terms {
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
    fn one_node_goes_on_under_another_id_and_nobody_holds_anything() {
        let (_, before) = read_snapshot(&old().data).unwrap();
        assert!(before.lock_count() > 0 && before.session_count() > 0);
        let (made, account) = begin_anew(&old(), terms(2, 0)).unwrap();
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
    fn tokens_never_go_back_and_start_where_they_are_told() {
        let before = read_snapshot(&old().data).unwrap().1.last_token();
        let by_clock = IN_2026 << 20;
        for (floor, expected) in [(0, by_clock), (by_clock + 1_000, by_clock + 1_000)] {
            let (made, account) = begin_anew(&old(), terms(1, floor)).unwrap();
            assert_eq!(read_snapshot(&made.data).unwrap().1.last_token(), expected);
            assert_eq!((account.last_token_before, account.last_token), (before, expected));
        }
        let error = begin_anew(&old(), terms(1, TOKEN_FLOOR_MAX + 1)).unwrap_err();
        assert!(matches!(error, AnewError::FloorTooHigh { .. }), "{error}");
        // The clock's tokens are in the state now, so the clock tells nothing until it has gone on.
        let (once, _) = begin_anew(&old(), terms(1, 0)).unwrap();
        let error = begin_anew(&once, terms(1, 0)).unwrap_err();
        assert!(matches!(error, AnewError::ClockBelowTokens { .. }), "{error}");
        let later = Terms { clock_unix_ms: IN_2026 + 1, ..terms(1, 0) };
        let (twice, account) = begin_anew(&once, later).unwrap();
        assert_eq!(account.last_token, by_clock + (1 << 40), "a millisecond is no distance");
        assert!(twice.term > once.term + 1_000, "{} after {}", twice.term, once.term);
    }

    #[test]
    fn nothing_is_granted_until_the_old_leases_have_run_out() {
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
            let (made, account) = begin_anew(&file, Terms { closed_for, ..terms(1, 0) }).unwrap();
            let frozen = read_snapshot(&made.data).unwrap().1.status("any", 1).frozen;
            (account.closed_for, frozen.map(|freeze| freeze.until.since(now)))
        };
        assert_eq!(closed(None), (longest, Some(longest)));
        assert_eq!(closed(Some(Span::ZERO)), (Span::ZERO, None));
        let (_, account) = begin_anew(&old(), terms(1, 0)).unwrap();
        assert!(account.closed_for >= USUAL_TTL, "sessions that are not in the backup count too");

        // The sessions are gone, and their time is kept.
        let (once, _) = begin_anew(&file, terms(1, 0)).unwrap();
        let floor = account.last_token + 1;
        for closed_for in [None, Some(Span::ZERO), Some(Span::from_secs(60))] {
            let again = Terms { closed_for, ..terms(1, floor) };
            let (twice, account) = begin_anew(&once, again).unwrap();
            let frozen = read_snapshot(&twice.data).unwrap().1.status("any", 1).frozen.unwrap();
            assert_eq!((account.closed_for, frozen.until.since(now)), (longest, longest));
        }
        let longer = Terms { closed_for: Some(Span::from_secs(900)), ..terms(1, floor) };
        assert_eq!(begin_anew(&once, longer).unwrap().1.closed_for, Span::from_secs(900));
    }
}
