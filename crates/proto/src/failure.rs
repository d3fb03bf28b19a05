//! A typed [`Failure`] as a gRPC status, for unary calls, and back again in the client.
//!
//! The status code is chosen so that a client that knows nothing of Holdfast does the right thing;
//! the metadata carry the rest. A status without our metadata did not come from a Holdfast node's
//! own words (a broken connection, a proxy): what became of its request is then unknown.

use holdfast_core::Rejection;
use tonic::metadata::{AsciiMetadataValue, MetadataMap};
use tonic::{Code, Status};

use crate::v1::{Failure, Reason};

pub const REASON_KEY: &str = "holdfast-reason";
pub const MAY_HAVE_HAPPENED_KEY: &str = "holdfast-may-have-happened";
pub const RETRYABLE_KEY: &str = "holdfast-retryable";
pub const LEADER_KEY: &str = "holdfast-leader";
pub const RETRY_AFTER_KEY: &str = "holdfast-retry-after-ms";
pub const MAP_EPOCH_KEY: &str = "holdfast-map-epoch";
pub const GROUP_KEY: &str = "holdfast-group";

const REASON_PREFIX: &str = "REASON_";

impl Reason {
    /// The name that stands in metadata and in JSON: `unknown_session`.
    pub fn wire_name(self) -> String {
        let name = self.as_str_name();
        name.strip_prefix(REASON_PREFIX).unwrap_or(name).to_ascii_lowercase()
    }

    pub fn from_wire_name(name: &str) -> Option<Reason> {
        Reason::from_str_name(&format!("{REASON_PREFIX}{}", name.to_ascii_uppercase()))
    }

    pub fn grpc_code(self) -> Code {
        match self {
            Reason::Unspecified => Code::Unknown,
            Reason::InvalidName
            | Reason::InvalidTtl
            | Reason::InvalidWait
            | Reason::InvalidToken
            | Reason::InvalidRequestId
            | Reason::InvalidSessionId
            | Reason::InvalidMode
            | Reason::InvalidMetadata
            | Reason::InvalidOwner
            | Reason::InvalidPage
            | Reason::InvalidFrame
            | Reason::InvalidPermits
            | Reason::InvalidPolicy
            | Reason::InvalidTier
            | Reason::InvalidLimits
            | Reason::InvalidLockDelay
            | Reason::TooManyNames
            | Reason::DuplicateName
            | Reason::InvalidFreeze
            | Reason::InvalidPrefix
            | Reason::InvalidIntervention
            | Reason::InvalidNodeId
            | Reason::InvalidAccess
            | Reason::InvalidAddress => Code::InvalidArgument,
            Reason::Compacted | Reason::MessageTooLarge => Code::OutOfRange,
            Reason::DeadlineExceeded => Code::DeadlineExceeded,
            Reason::UnknownSession
            | Reason::NoSuchSession
            | Reason::NoSuchWaiter
            | Reason::UnknownNode => Code::NotFound,
            Reason::NodeIdInUse | Reason::AddressInUse => Code::AlreadyExists,
            Reason::NotAVoter
            | Reason::LastVoter
            | Reason::ChangeUnderWay
            | Reason::NoQuorumLeft
            | Reason::NotCaughtUp
            | Reason::TooManyNodes => Code::FailedPrecondition,
            Reason::NotHeld
            | Reason::AmbiguousHold
            | Reason::GrantEnded
            | Reason::SessionExists
            | Reason::RequestIdReused
            | Reason::AnswerDiscarded
            | Reason::Frozen
            | Reason::AlreadyHeld
            | Reason::OtherPermits
            | Reason::NoPermitsSet
            | Reason::PermitsInUse
            | Reason::NotFrozen
            | Reason::NotClosed
            | Reason::AccessRefused
            | Reason::RulesNotAdopted
            | Reason::WrongGroup
            | Reason::SeveralGroups => Code::FailedPrecondition,
            Reason::TooManySessions
            | Reason::TooManyHolds
            | Reason::TooManyWaits
            | Reason::QueueFull
            | Reason::TooManyUnacknowledged
            | Reason::TooManyPermitsSet
            | Reason::TooManyFreezes
            | Reason::TooManyReentries
            | Reason::TooManyLocks
            | Reason::TooManyBytes
            | Reason::SessionTooLarge
            | Reason::SlowReader
            | Reason::QuotaExceeded
            | Reason::RateLimited
            | Reason::Overloaded => Code::ResourceExhausted,
            Reason::Unauthenticated | Reason::CredentialExpired => Code::Unauthenticated,
            Reason::PermissionDenied => Code::PermissionDenied,
            Reason::NotLeader
            | Reason::NoQuorum
            | Reason::ShuttingDown
            | Reason::OutOfSpace
            | Reason::AuditUnavailable => Code::Unavailable,
        }
    }
}

impl Failure {
    pub fn to_status(&self) -> Status {
        let mut metadata = MetadataMap::new();
        insert_text(&mut metadata, REASON_KEY, &self.reason().wire_name());
        insert_text(&mut metadata, MAY_HAVE_HAPPENED_KEY, flag_text(self.may_have_happened));
        insert_text(&mut metadata, RETRYABLE_KEY, flag_text(self.retryable));
        if !self.leader.is_empty() {
            insert_text(&mut metadata, LEADER_KEY, &self.leader);
        }
        if self.retry_after_ms > 0 {
            insert_text(&mut metadata, RETRY_AFTER_KEY, &self.retry_after_ms.to_string());
        }
        if self.map_epoch > 0 {
            insert_text(&mut metadata, MAP_EPOCH_KEY, &self.map_epoch.to_string());
        }
        if self.group > 0 {
            insert_text(&mut metadata, GROUP_KEY, &self.group.to_string());
        }
        Status::with_metadata(self.reason().grpc_code(), self.message.clone(), metadata)
    }

    pub fn from_status(status: &Status) -> Failure {
        let metadata = status.metadata();
        let known_reason = text(metadata, REASON_KEY).and_then(Reason::from_wire_name);
        let reason = known_reason.unwrap_or(Reason::Unspecified);
        Failure {
            reason: reason.into(),
            message: words(status),
            retryable: flag(metadata, RETRYABLE_KEY)
                .unwrap_or_else(|| worth_another_try(status.code()) || is_not_grpc(status)),
            may_have_happened: flag(metadata, MAY_HAVE_HAPPENED_KEY).unwrap_or(true),
            leader: text(metadata, LEADER_KEY).unwrap_or_default().to_owned(),
            retry_after_ms: number(metadata, RETRY_AFTER_KEY),
            map_epoch: number(metadata, MAP_EPOCH_KEY),
            group: u32::try_from(number(metadata, GROUP_KEY)).unwrap_or_default(),
        }
    }
}

impl From<Failure> for Status {
    fn from(failure: Failure) -> Status {
        failure.to_status()
    }
}

/// The request is wrong, and nothing was done.
pub fn refused(reason: Reason, words: impl Into<String>) -> Failure {
    Failure {
        reason: reason.into(),
        message: words.into(),
        retryable: false,
        may_have_happened: false,
        ..Failure::default()
    }
}

/// The node cannot serve now, and nothing was done.
pub fn not_now(reason: Reason, words: impl Into<String>) -> Failure {
    Failure { retryable: true, ..refused(reason, words) }
}

/// It is not known what became of the request.
pub fn unknown(reason: Reason, words: impl Into<String>) -> Failure {
    Failure { may_have_happened: true, ..not_now(reason, words) }
}

pub fn rejected(rejection: Rejection) -> Failure {
    let reason = match rejection {
        Rejection::UnknownSession => Reason::UnknownSession,
        Rejection::SessionExists => Reason::SessionExists,
        Rejection::NotHeld => Reason::NotHeld,
        Rejection::AmbiguousHold => Reason::AmbiguousHold,
        Rejection::TooManySessions => Reason::TooManySessions,
        Rejection::TooManyHolds => Reason::TooManyHolds,
        Rejection::TooManyWaits => Reason::TooManyWaits,
        Rejection::QueueFull => Reason::QueueFull,
        Rejection::TooManyUnacknowledged => Reason::TooManyUnacknowledged,
        Rejection::AnswerDiscarded => Reason::AnswerDiscarded,
        Rejection::RequestIdReused => Reason::RequestIdReused,
        Rejection::GrantEnded => Reason::GrantEnded,
        Rejection::Frozen => Reason::Frozen,
        Rejection::AlreadyHeld => Reason::AlreadyHeld,
        Rejection::OtherPermits { .. } => Reason::OtherPermits,
        Rejection::NoPermitsSet => Reason::NoPermitsSet,
        Rejection::PermitsInUse => Reason::PermitsInUse,
        Rejection::TooManyPermitsSet => Reason::TooManyPermitsSet,
        Rejection::NoSuchWaiter => Reason::NoSuchWaiter,
        Rejection::NoSuchSession => Reason::NoSuchSession,
        Rejection::NotFrozen => Reason::NotFrozen,
        Rejection::NotClosed => Reason::NotClosed,
        Rejection::TooManyFreezes => Reason::TooManyFreezes,
        Rejection::TooManyReentries => Reason::TooManyReentries,
        Rejection::TooManyNames => Reason::TooManyNames,
        Rejection::DuplicateName => Reason::DuplicateName,
        Rejection::InvalidMode => Reason::InvalidMode,
        Rejection::InvalidPermits => Reason::InvalidPermits,
        Rejection::InvalidLockDelay => Reason::InvalidLockDelay,
        Rejection::InvalidFreeze => Reason::InvalidFreeze,
        Rejection::InvalidIntervention => Reason::InvalidIntervention,
        Rejection::InvalidRequestId => Reason::InvalidRequestId,
        Rejection::InvalidTtl => Reason::InvalidTtl,
        Rejection::InvalidWait => Reason::InvalidWait,
        Rejection::InvalidMetadata => Reason::InvalidMetadata,
        Rejection::InvalidOwner => Reason::InvalidOwner,
        Rejection::TooManyLocks { .. } => Reason::TooManyLocks,
        Rejection::TooManyBytes { .. } => Reason::TooManyBytes,
        Rejection::SessionTooLarge { .. } => Reason::SessionTooLarge,
        Rejection::InvalidLimits => Reason::InvalidLimits,
        Rejection::RulesNotAdopted => Reason::RulesNotAdopted,
        Rejection::PermissionDenied => Reason::PermissionDenied,
        Rejection::InvalidIdentity => Reason::InvalidAccess,
        Rejection::AccessRefused(_) => Reason::AccessRefused,
        Rejection::QuotaExceeded { .. } => Reason::QuotaExceeded,
        Rejection::WrongGroup { .. } => Reason::WrongGroup,
        Rejection::SeveralGroups { .. } => Reason::SeveralGroups,
        // No client sends what is refused so.
        Rejection::StaleEpoch { .. }
        | Rejection::MoveUnderWay
        | Rejection::InvalidMove
        | Rejection::MoveEnded { .. }
        | Rejection::PartsMissing { .. } => Reason::Unspecified,
    };
    // The lock table keeps all other rejections as the answer to their request id, except those of a full table or quota,
    // and of a lock of another group. The first stay full until holds end, which takes longer than a client should repeat
    // its request. The last would be sent to the same group again by a client that has no map.
    let retryable = matches!(
        rejection,
        Rejection::TooManySessions | Rejection::TooManyUnacknowledged | Rejection::RulesNotAdopted
    );
    // The retry is refused now; what the first attempt did is another matter.
    let may_have_happened = matches!(rejection, Rejection::AnswerDiscarded | Rejection::GrantEnded);
    let map_epoch = match rejection {
        Rejection::WrongGroup { epoch } | Rejection::SeveralGroups { epoch } => epoch.0,
        _ => 0,
    };
    let refused = refused(reason, rejection.to_string());
    Failure { retryable, may_have_happened, map_epoch, ..refused }
}

/// The same for the efficiency tier. No operator can break its locks or change its limits, so the way out differs.
pub(crate) fn rejected_in_efficiency_tier(rejection: Rejection) -> Failure {
    const WAY_OUT: &str = "release locks of this tier, or end sessions that hold some; this limit is fixed, so take \
                           other locks in the correctness tier";
    let message = match rejection {
        Rejection::TooManyLocks { limit } => {
            format!("the efficiency tier has as many locks as it may have, {limit}; {WAY_OUT}")
        }
        Rejection::TooManyBytes { limit } => {
            format!(
                "the table of the efficiency tier is as large as it may be, {limit} bytes; {WAY_OUT}"
            )
        }
        Rejection::SessionTooLarge { limit } => format!(
            "the session takes as much of the efficiency tier's table as one session may, {limit} bytes; release \
             locks of this session, or use shorter names or less metadata"
        ),
        _ => return rejected(rejection),
    };
    Failure { message, ..rejected(rejection) }
}

/// Of a status that carries no `holdfast-retryable`: another node, or a moment later, may do better
/// unless the code says that this very request is wrong.
fn worth_another_try(code: Code) -> bool {
    !matches!(
        code,
        Code::InvalidArgument
            | Code::OutOfRange
            | Code::Unimplemented
            | Code::Unauthenticated
            | Code::PermissionDenied
    )
}

fn words(status: &Status) -> String {
    let message = status.message();
    if message.is_empty() {
        status.code().description().to_owned()
    } else if is_not_grpc(status) {
        format!("the program there is no Holdfast node: its answer is not gRPC ({message})")
    } else if has_no_grpc_status(status) {
        format!("a proxy, or another program, answered instead of a node ({message})")
    } else if message.ends_with("http2 error") {
        format!("{message}; is this the client port of a Holdfast node?")
    } else {
        message.to_owned()
    }
}

/// A web server answers so: it does not know the path. (A proxy in front of a node answers with another code.)
fn is_not_grpc(status: &Status) -> bool {
    status.code() == Code::Unimplemented && has_no_grpc_status(status)
}

/// Our library says so of an HTTP answer without the headers of gRPC.
fn has_no_grpc_status(status: &Status) -> bool {
    status.message().contains("grpc-status header missing")
}

/// A text that is no valid header value (it would have to hold a control character) is left out: the
/// metadata help, and must not turn a refusal into a crash.
fn insert_text(metadata: &mut MetadataMap, key: &'static str, value: &str) {
    if let Ok(value) = AsciiMetadataValue::try_from(value) {
        metadata.insert(key, value);
    }
}

fn text<'a>(metadata: &'a MetadataMap, key: &str) -> Option<&'a str> {
    metadata.get(key)?.to_str().ok()
}

/// Zero if it is not there.
fn number(metadata: &MetadataMap, key: &str) -> u64 {
    text(metadata, key).and_then(|text| text.parse().ok()).unwrap_or_default()
}

fn flag(metadata: &MetadataMap, key: &str) -> Option<bool> {
    text(metadata, key)?.parse().ok()
}

fn flag_text(value: bool) -> &'static str {
    if value { "true" } else { "false" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_table_of_the_efficiency_tier_names_no_command_that_changes_nothing_there() {
        for full in [
            Rejection::TooManyLocks { limit: 7 },
            Rejection::TooManyBytes { limit: 7 },
            Rejection::SessionTooLarge { limit: 7 },
        ] {
            let replicated = rejected(full);
            assert!(replicated.message.contains("holdfast cluster limits"), "{replicated:?}");
            let best_effort = rejected_in_efficiency_tier(full);
            assert!(!best_effort.message.contains("cluster limits"), "{best_effort:?}");
            assert!(best_effort.message.contains("efficiency tier"), "{best_effort:?}");
            assert!(best_effort.message.contains("7"), "{best_effort:?}");
            assert_eq!(best_effort.reason, replicated.reason);
            assert_eq!(best_effort.retryable, replicated.retryable);
        }
        let other = rejected_in_efficiency_tier(Rejection::UnknownSession);
        assert_eq!(other, rejected(Rejection::UnknownSession));
    }

    fn every_reason() -> Vec<Reason> {
        (0..=104).filter_map(|number| Reason::try_from(number).ok()).collect()
    }

    #[test]
    fn every_failure_survives_the_way_through_a_status() {
        assert_eq!(every_reason().len(), 80);
        for reason in every_reason() {
            for (retryable, may_have_happened) in
                [(false, false), (false, true), (true, false), (true, true)]
            {
                let failure = Failure {
                    reason: reason.into(),
                    message: "the queue is full; try later".into(),
                    retryable,
                    may_have_happened,
                    leader: if retryable { "127.0.0.1:7430".into() } else { String::new() },
                    retry_after_ms: if retryable { 250 } else { 0 },
                    map_epoch: if retryable { 7 } else { 0 },
                    group: if retryable { 3 } else { 0 },
                };
                assert_eq!(Failure::from_status(&failure.to_status()), failure);
            }
        }
    }

    #[test]
    fn a_lock_of_another_group_is_refused_with_the_epoch_and_without_a_retry() {
        let epoch = holdfast_core::MapEpoch(7);
        let failure = rejected(Rejection::WrongGroup { epoch });
        assert_eq!((failure.reason(), failure.map_epoch), (Reason::WrongGroup, 7));
        assert!(!failure.retryable && !failure.may_have_happened);
        let failure = rejected(Rejection::SeveralGroups { epoch });
        assert_eq!((failure.reason(), failure.map_epoch), (Reason::SeveralGroups, 7));
        assert!(failure.message.contains("{tag}"), "{failure:?}");
    }

    #[test]
    fn every_reason_survives_its_wire_name() {
        assert_eq!(Reason::UnknownSession.wire_name(), "unknown_session");
        for reason in every_reason() {
            assert_eq!(Reason::from_wire_name(&reason.wire_name()), Some(reason));
        }
        assert_eq!(Reason::from_wire_name("out_of_luck"), None);
    }

    #[test]
    fn a_broken_connection_is_worth_a_retry_and_may_have_happened() {
        let failure = Failure::from_status(&Status::unavailable("connection reset"));
        assert_eq!(failure.reason(), Reason::Unspecified);
        assert!(failure.retryable && failure.may_have_happened);
        assert_eq!(failure.message, "connection reset");
    }

    #[test]
    fn a_proxy_that_refuses_or_lacks_a_node_is_not_called_another_program() {
        let words =
            |code: u16| format!("grpc-status header missing, mapped from HTTP status code {code}");
        let denied = Failure::from_status(&Status::permission_denied(words(403)));
        assert!(!denied.retryable, "other credentials are needed");
        let no_node = Failure::from_status(&Status::unavailable(words(503)));
        assert!(no_node.retryable);
        for failure in [denied, no_node] {
            assert!(failure.message.starts_with("a proxy, or another program,"), "{failure:?}");
            assert!(failure.may_have_happened);
        }
    }

    #[test]
    fn an_answer_that_is_not_grpc_is_called_so_and_the_next_node_is_tried() {
        let words = "grpc-status header missing, mapped from HTTP status code 404";
        let failure = Failure::from_status(&Status::unimplemented(words));
        assert!(failure.retryable, "another endpoint may be a node");
        assert!(
            failure.message.starts_with("the program there is no Holdfast node"),
            "{failure:?}"
        );
    }

    #[test]
    fn a_plain_invalid_argument_is_not_retried() {
        assert!(!Failure::from_status(&Status::invalid_argument("no")).retryable);
    }

    #[test]
    fn a_reason_from_a_newer_node_keeps_its_flags() {
        let mut status = Status::failed_precondition("melted");
        status.metadata_mut().insert(REASON_KEY, "melted".parse().unwrap());
        status.metadata_mut().insert(RETRYABLE_KEY, "false".parse().unwrap());
        status.metadata_mut().insert(MAY_HAVE_HAPPENED_KEY, "false".parse().unwrap());
        let failure = Failure::from_status(&status);
        assert_eq!(failure.reason(), Reason::Unspecified);
        assert!(!failure.retryable && !failure.may_have_happened);
    }

    #[test]
    fn a_leader_that_is_no_header_value_is_left_out() {
        let failure = Failure {
            reason: Reason::NotLeader.into(),
            leader: "bad\naddress".into(),
            ..Failure::default()
        };
        assert_eq!(Failure::from_status(&failure.to_status()).leader, "");
    }
}
