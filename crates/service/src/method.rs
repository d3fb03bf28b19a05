//! The table: every method by which a caller can ask for something, and what it needs.

use holdfast_proto::plain::BorrowedOperation;
use holdfast_proto::v1::operation;

/// How a front end calls a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Front {
    /// The path of a gRPC method.
    Grpc(&'static str),
    /// An operation on a session's stream that has no gRPC method of its own.
    Stream,
    /// A route of the HTTP port.
    Http(&'static str),
}

/// What kind of action a method is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A command of a session.
    Command,
    /// A linearizable read of the lock table.
    Read,
    /// What happens, as it happens.
    Watch,
    /// An operator changes locks of others.
    Intervention,
    /// Who belongs to the cluster, who leads it, how large the table may be.
    ClusterChange,
    /// Who may do what.
    AccessChange,
    /// All of the state.
    Snapshot,
    /// How the cluster is.
    ClusterStatus,
    /// A session's stream begins. Its operations are actions of their own.
    SessionStream,
    /// Whether the node is well, and what it counts.
    Probe,
    /// What there is to call, and pages that show nothing of the cluster.
    Description,
}

/// What the caller of a method needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// To have a session.
    Connect,
    /// To have proved who one is: to give up what a session holds, and to ask for one's own rights.
    Authenticated,
    /// To see locks.
    Read,
    /// To take a lock: shared, exclusive or a permit, as the request says.
    Lock,
    Elect,
    Transfer,
    Break,
    Move,
    Freeze,
    SetPermits,
    KillSession,
    /// To see sessions.
    Sessions,
    ClusterRead,
    ClusterChange,
    Snapshot,
    Metrics,
    /// To see and to change who may do what.
    Access,
    /// Nothing.
    Open,
}

/// Which limit a request counts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// One question, one answer.
    Call,
    /// A session's stream.
    Session,
    /// A stream that this node relays to the leader.
    Relayed,
    /// A watch.
    Watch,
    /// The front end has limits of its own.
    None,
}

impl Limit {
    pub(crate) const ALL: [Limit; 5] =
        [Limit::Call, Limit::Session, Limit::Relayed, Limit::Watch, Limit::None];
}

/// The node that carries a method out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CarriedOutBy {
    /// The node that receives the request.
    ThisNode,
    Leader,
    /// One leader after the other, until one of them knows: the change may move the leadership.
    EveryLeader,
    /// The leader knows more. Without a leader, the node that receives the request answers.
    LeaderIfKnown,
}

/// What the table says of one method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    pub front: Front,
    pub kind: Kind,
    pub verb: Verb,
    pub limit: Limit,
    pub carried_out_by: CarriedOutBy,
}

macro_rules! table {
    ($($method:ident, $front:ident $(($path:literal))?, $kind:ident, $verb:ident, $limit:ident, $carried_out_by:ident;)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Method {
            $($method,)*
        }

        impl Method {
            pub const ALL: &[Method] = &[$(Method::$method,)*];

            pub const fn row(self) -> Row {
                match self {
                    $(Method::$method => Row {
                        front: Front::$front $(($path))?,
                        kind: Kind::$kind,
                        verb: Verb::$verb,
                        limit: Limit::$limit,
                        carried_out_by: CarriedOutBy::$carried_out_by,
                    },)*
                }
            }

            /// The gRPC method at this path.
            pub fn at_path(path: &str) -> Option<Method> {
                Method::ALL.iter().copied().find(|method| method.path() == Some(path))
            }
        }
    };
}

table! {
    Session, Grpc("/holdfast.v1.LockService/Session"), SessionStream, Connect, Session, Leader;
    OpenSession, Grpc("/holdfast.v1.LockService/OpenSession"), Command, Connect, Call, Leader;
    ResumeSession, Stream, Command, Connect, None, Leader;
    KeepAlive, Grpc("/holdfast.v1.LockService/KeepAlive"), Command, Connect, Call, Leader;
    KeepAliveMany, Grpc("/holdfast.v1.LockService/KeepAliveMany"), Command, Connect, Call, Leader;
    CloseSession, Grpc("/holdfast.v1.LockService/CloseSession"), Command, Authenticated, Call, Leader;
    Acquire, Grpc("/holdfast.v1.LockService/Acquire"), Command, Lock, Call, Leader;
    AcquireAll, Grpc("/holdfast.v1.LockService/AcquireAll"), Command, Lock, Call, Leader;
    Convert, Grpc("/holdfast.v1.LockService/Convert"), Command, Lock, Call, Leader;
    Cancel, Grpc("/holdfast.v1.LockService/Cancel"), Command, Authenticated, Call, Leader;
    Release, Grpc("/holdfast.v1.LockService/Release"), Command, Authenticated, Call, Leader;
    Renew, Grpc("/holdfast.v1.LockService/Renew"), Command, Lock, Call, Leader;
    Proclaim, Grpc("/holdfast.v1.LockService/Proclaim"), Command, Lock, Call, Leader;
    Transfer, Grpc("/holdfast.v1.LockService/Transfer"), Command, Transfer, Call, Leader;
    Status, Grpc("/holdfast.v1.LockService/Status"), Read, Read, Call, Leader;
    List, Grpc("/holdfast.v1.LockService/List"), Read, Read, Call, Leader;
    ListSessions, Grpc("/holdfast.v1.LockService/ListSessions"), Read, Sessions, Call, Leader;
    Why, Grpc("/holdfast.v1.LockService/Why"), Read, Read, Call, Leader;
    CheckToken, Grpc("/holdfast.v1.LockService/CheckToken"), Read, Read, Call, Leader;
    ClusterStatus, Grpc("/holdfast.v1.LockService/ClusterStatus"), ClusterStatus, ClusterRead, Call, LeaderIfKnown;

    Campaign, Grpc("/holdfast.v1.ElectionService/Campaign"), Command, Elect, Call, Leader;
    Resign, Grpc("/holdfast.v1.ElectionService/Resign"), Command, Authenticated, Call, Leader;
    Observe, Grpc("/holdfast.v1.ElectionService/Observe"), Watch, Read, Watch, Leader;

    Watch, Grpc("/holdfast.v1.WatchService/Watch"), Watch, Read, Watch, Leader;
    History, Grpc("/holdfast.v1.WatchService/History"), Read, Read, Call, Leader;

    Break, Grpc("/holdfast.v1.OperatorService/Break"), Intervention, Break, Call, Leader;
    MoveLock, Grpc("/holdfast.v1.OperatorService/MoveLock"), Intervention, Move, Call, Leader;
    Freeze, Grpc("/holdfast.v1.OperatorService/Freeze"), Intervention, Freeze, Call, Leader;
    Thaw, Grpc("/holdfast.v1.OperatorService/Thaw"), Intervention, Freeze, Call, Leader;
    ListFreezes, Grpc("/holdfast.v1.OperatorService/ListFreezes"), Read, Read, Call, Leader;
    SetPermits, Grpc("/holdfast.v1.OperatorService/SetPermits"), Intervention, SetPermits, Call, Leader;
    KillSession, Grpc("/holdfast.v1.OperatorService/KillSession"), Intervention, KillSession, Call, Leader;
    Reopen, Grpc("/holdfast.v1.OperatorService/Reopen"), Intervention, Break, Call, Leader;
    SetLimits, Grpc("/holdfast.v1.OperatorService/SetLimits"), ClusterChange, ClusterChange, Call, Leader;

    AddNode, Grpc("/holdfast.v1.ClusterService/AddNode"), ClusterChange, ClusterChange, Call, EveryLeader;
    PromoteNode, Grpc("/holdfast.v1.ClusterService/PromoteNode"), ClusterChange, ClusterChange, Call, EveryLeader;
    RemoveNode, Grpc("/holdfast.v1.ClusterService/RemoveNode"), ClusterChange, ClusterChange, Call, EveryLeader;
    TransferLeadership, Grpc("/holdfast.v1.ClusterService/TransferLeadership"), ClusterChange, ClusterChange, Call, Leader;
    SaveSnapshot, Grpc("/holdfast.v1.ClusterService/SaveSnapshot"), Snapshot, Snapshot, Call, Leader;

    ShowAccess, Grpc("/holdfast.v1.AccessService/ShowAccess"), Read, Access, Call, Leader;
    ChangeAccess, Grpc("/holdfast.v1.AccessService/ChangeAccess"), AccessChange, Access, Call, Leader;
    WhoAmI, Grpc("/holdfast.v1.AccessService/WhoAmI"), Description, Authenticated, Call, ThisNode;

    HealthCheck, Grpc("/grpc.health.v1.Health/Check"), Probe, Open, None, ThisNode;
    HealthWatch, Grpc("/grpc.health.v1.Health/Watch"), Probe, Open, None, ThisNode;
    Reflect, Grpc("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"), Description, Connect, None, ThisNode;

    HttpAlive, Http("/healthz"), Probe, Open, None, ThisNode;
    HttpReady, Http("/readyz"), Probe, Open, None, ThisNode;
    HttpMetrics, Http("/metrics"), Probe, Metrics, None, ThisNode;
    HttpPage, Http("/"), Description, Open, None, ThisNode;
    HttpAsset, Http("/assets/{file}"), Description, Open, None, ThisNode;
    HttpLive, Http("/api/live"), ClusterStatus, ClusterRead, None, ThisNode;
    HttpEvents, Http("/api/events"), Watch, Read, None, ThisNode;
    HttpRecent, Http("/api/recent"), Read, Read, None, ThisNode;
    HttpOwnView, Http("/api/own"), ClusterStatus, Read, None, ThisNode;
    HttpGroups, Http("/api/groups"), ClusterStatus, ClusterRead, None, ThisNode;
    HttpLocks, Http("/api/locks"), Read, Read, None, ThisNode;
    HttpLock, Http("/api/lock"), Read, Read, None, ThisNode;
    HttpSessions, Http("/api/sessions"), Read, Sessions, None, ThisNode;
    HttpFreezes, Http("/api/freezes"), Read, Read, None, ThisNode;
    HttpElections, Http("/api/elections"), Read, Read, None, ThisNode;
    HttpGraph, Http("/api/graph"), Read, Read, None, ThisNode;
    HttpOwners, Http("/api/owners"), Read, Sessions, None, ThisNode;
    HttpLogin, Http("/api/login"), Description, Open, None, ThisNode;
    HttpLogout, Http("/api/logout"), Description, Open, None, ThisNode;
    HttpAction, Http("/api/actions/{action}"), Intervention, Authenticated, None, ThisNode;
}

impl Method {
    /// Whether a quota's rate limits it. What gives something up, or keeps a session or a hold, is never refused for its
    /// number: a client would lose its locks by it. Nor is what administrators do: they could not end a flood.
    pub fn counts_for_rates(self) -> bool {
        let keeps = matches!(
            self,
            Method::ResumeSession
                | Method::KeepAlive
                | Method::KeepAliveMany
                | Method::Renew
                | Method::Transfer
        );
        let row = self.row();
        let is_free = matches!(row.verb, Verb::Open | Verb::Authenticated)
            || matches!(
                row.kind,
                Kind::SessionStream
                    | Kind::Probe
                    | Kind::Description
                    | Kind::Intervention
                    | Kind::ClusterChange
                    | Kind::AccessChange
            )
            || matches!(row.front, Front::Http(_));
        !keeps && !is_free
    }

    /// Of a gRPC method.
    pub const fn path(self) -> Option<&'static str> {
        match self.row().front {
            Front::Grpc(path) => Some(path),
            Front::Stream | Front::Http(_) => None,
        }
    }

    /// The route of the HTTP port, as its pattern is written.
    pub fn of_route(pattern: &str) -> Option<Method> {
        let is_it =
            |method: &Method| matches!(method.row().front, Front::Http(own) if own == pattern);
        Method::ALL.iter().copied().find(is_it)
    }
}

impl Method {
    /// Of an operation on a session's stream.
    pub fn of_operation(operation: &BorrowedOperation<'_>) -> Option<Method> {
        Some(match operation {
            BorrowedOperation::Acquire(_) => Method::Acquire,
            BorrowedOperation::Release(_) => Method::Release,
            BorrowedOperation::Message(operation) => match operation.kind.as_ref()? {
                operation::Kind::Open(_) => Method::OpenSession,
                operation::Kind::Resume(_) => Method::ResumeSession,
                operation::Kind::KeepAlive(_) => Method::KeepAlive,
                operation::Kind::Close(_) => Method::CloseSession,
                operation::Kind::Acquire(_) => Method::Acquire,
                operation::Kind::AcquireAll(_) => Method::AcquireAll,
                operation::Kind::Convert(_) => Method::Convert,
                operation::Kind::Cancel(_) => Method::Cancel,
                operation::Kind::Release(_) => Method::Release,
                operation::Kind::Renew(_) => Method::Renew,
                operation::Kind::Proclaim(_) => Method::Proclaim,
                operation::Kind::Transfer(_) => Method::Transfer,
                operation::Kind::Status(_) => Method::Status,
            },
        })
    }
}
