//! Linearizable reads of a group's table.

use holdfast_core::command::Owner;
use holdfast_core::{
    Access, FenceToken, FreezeInfo, LockName, LockSearch, LockSearchPart, LockStatus, LockSummary,
    LockTable, LockWhy, LogicalTime, PublicSessionId, Quota, QuotaSubject, Rejection, SearchRange,
    SessionId, SessionSummary, TokenStanding, Used,
};
use holdfast_replica::{ClusterId, SnapshotFile};

use crate::boot_time::BootTime;

/// Holders, and waiters, that a status on a stream shows: one frame has the answers to many.
pub const STATUS_SHOWN_MAX: usize = 10;

/// The locks that one part of a search reads, so that other callers do not wait long.
const SEARCHED_LOCKS_MAX: usize = 1_000;

#[derive(Clone, Debug)]
pub enum Query {
    Status {
        name: LockName,
        shown_max: usize,
        /// Refuse it if another group owns the lock, which looks free here.
        is_owner_asked: bool,
    },
    List {
        prefix: String,
        after: Option<String>,
        limit: usize,
    },
    Sessions {
        after: Option<PublicSessionId>,
        limit: usize,
    },
    /// The owners of these sessions, as far as the sessions are open.
    Owners(Vec<PublicSessionId>),
    Why {
        name: LockName,
        shown_max: usize,
    },
    Freezes,
    /// Who may do what.
    Access,
    Token {
        name: LockName,
        token: FenceToken,
    },
    /// Confirms that this node leads, which renews the leader lease. `asked` is when the read began.
    Confirm {
        asked: BootTime,
    },
    /// As [`Query::Confirm`], and admits the session to the efficiency tier.
    Admit {
        session: SessionId,
        asked: BootTime,
    },
    /// A part of the locks, for a search among them.
    SearchLocks {
        search: LockSearch,
        after: Option<String>,
        above: Option<u64>,
        found_max: usize,
    },
    /// The whole table, as bytes.
    Snapshot,
}

#[derive(Debug)]
pub struct ReadAnswer {
    pub at: LogicalTime,
    pub applied_index: u64,
    pub data: ReadData,
}

#[derive(Debug)]
pub enum ReadData {
    /// Another group has the lock.
    Refused(Rejection),
    Status(LockStatus),
    Why(LockWhy),
    List(Vec<LockSummary>),
    Sessions(Vec<SessionSummary>),
    Owners(Vec<(PublicSessionId, Owner)>),
    Freezes(Vec<FreezeInfo>),
    /// With what is taken of each quota.
    Access(Box<Access>, Vec<(QuotaSubject, Quota, Used)>),
    Token(TokenStanding),
    Confirmed,
    /// Whether there is such a session.
    Admitted(bool),
    LockSearch(LockSearchPart),
    Snapshot(WholeState),
}

/// A group's state at one moment.
#[derive(Debug)]
pub struct WholeState {
    pub cluster: Option<ClusterId>,
    pub logical_time: LogicalTime,
    pub file: SnapshotFile,
}

impl Query {
    /// Reads the table. None for a snapshot, which takes several turns.
    pub(crate) fn read(self, table: &LockTable) -> Option<ReadData> {
        let owner_asked = match &self {
            Query::Status { name, is_owner_asked: true, .. }
            | Query::Why { name, .. }
            | Query::Token { name, .. } => Some(name),
            _ => None,
        };
        if let Some(Err(rejection)) = owner_asked.map(|name| table.check_read(name)) {
            return Some(ReadData::Refused(rejection));
        }
        Some(match self {
            Query::Status { name, shown_max, .. } => {
                ReadData::Status(table.status(&name, shown_max))
            }
            Query::Why { name, shown_max } => ReadData::Why(table.why(&name, shown_max)),
            Query::Token { name, token } => ReadData::Token(table.token_standing(&name, token)),
            Query::Freezes => ReadData::Freezes(table.freezes()),
            Query::Access => {
                let used =
                    table.quota_use().map(|(subject, quota, used)| (subject.clone(), *quota, used));
                ReadData::Access(Box::new(table.access().clone()), used.collect())
            }
            Query::List { prefix, after, limit } => {
                ReadData::List(table.list(&prefix, after.as_deref(), limit))
            }
            Query::Sessions { after, limit } => ReadData::Sessions(table.sessions(after, limit)),
            Query::Owners(wanted) => {
                let open = |id: PublicSessionId| {
                    let before = id.0.checked_sub(1).map(PublicSessionId);
                    table.sessions(before, 1).pop().filter(|session| session.public == id)
                };
                let open = wanted.into_iter().filter_map(open);
                ReadData::Owners(open.map(|session| (session.public, session.owner)).collect())
            }
            Query::Confirm { .. } => ReadData::Confirmed,
            Query::Admit { session, .. } => ReadData::Admitted(table.has_session(session)),
            Query::SearchLocks { search, after, above, found_max } => {
                let after = after.as_deref();
                let range = SearchRange { after, locks_max: SEARCHED_LOCKS_MAX, above, found_max };
                ReadData::LockSearch(table.search_locks(&search, range))
            }
            Query::Snapshot => return None,
        })
    }
}
