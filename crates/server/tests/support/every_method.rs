//! One well-formed call of every gRPC method, and every operation of a stream.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests")]

use holdfast_proto::v1::access_service_client::AccessServiceClient;
use holdfast_proto::v1::cluster_service_client::ClusterServiceClient;
use holdfast_proto::v1::election_service_client::ElectionServiceClient;
use holdfast_proto::v1::lock_service_client::LockServiceClient;
use holdfast_proto::v1::operator_service_client::OperatorServiceClient;
use holdfast_proto::v1::watch_service_client::WatchServiceClient;
use holdfast_proto::v1::{self, operation};
use holdfast_service::Method;
use tokio::time::timeout;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;

use super::PATIENCE;

async fn channel(address: &str) -> Channel {
    Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap()
}

/// What a caller adds to each request.
type Header<'a> = Option<(&'static str, &'a str)>;

pub(crate) fn with<T>(message: T, header: Header<'_>) -> Request<T> {
    let mut request = Request::new(message);
    if let Some((name, value)) = header {
        request.metadata_mut().insert(name, value.parse().unwrap());
    }
    request
}

/// Which locks the calls are about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Names {
    pub(crate) name: &'static str,
    pub(crate) prefix: &'static str,
    pub(crate) members: &'static [&'static str],
}

impl Names {
    pub(crate) const WALLET: Names = Names { name: "wallet", prefix: "", members: &["wallet"] };

    fn members(&self) -> Vec<v1::Member> {
        let member = |name: &&str| v1::Member { name: (*name).into(), ..Default::default() };
        self.members.iter().map(member).collect()
    }
}

const SESSION: &str = "000102030405060708090a0b0c0d0e0f";

/// Calls every gRPC method but `Session` with a request that is well-formed. What the cluster makes of it does not
/// matter. Gives the failures.
pub(crate) async fn call_everything(address: &str, header: Header<'_>) -> Vec<(Method, Status)> {
    call_everything_about(&Names::WALLET, address, header).await
}

pub(crate) async fn call_everything_about(
    names: &Names,
    address: &str,
    header: Header<'_>,
) -> Vec<(Method, Status)> {
    let channel = channel(address).await;
    let mut lock = LockServiceClient::new(channel.clone());
    let mut election = ElectionServiceClient::new(channel.clone());
    let mut watch = WatchServiceClient::new(channel.clone());
    let mut operator = OperatorServiceClient::new(channel.clone());
    let mut cluster = ClusterServiceClient::new(channel.clone());
    let mut access = AccessServiceClient::new(channel.clone());
    let mut health = HealthClient::new(channel.clone());
    let mut reflection = ServerReflectionClient::new(channel);
    let session_id = || SESSION.to_owned();
    let (name, prefix) = (|| names.name.to_owned(), || names.prefix.to_owned());
    let intervention = || Some(v1::Intervention { by: "me".into(), reason: "a test".into() });
    // Not everything.
    let frozen = || if names.prefix.is_empty() { "frozen/".to_owned() } else { prefix() };
    let mut failures = Vec::new();
    macro_rules! call {
        ($method:ident, $client:ident.$call:ident, $message:expr) => {
            let called = timeout(PATIENCE, $client.$call(with($message, header))).await;
            if let Err(status) = called.expect(stringify!($method)) {
                failures.push((Method::$method, status));
            }
        };
    }
    call!(
        OpenSession,
        lock.open_session,
        v1::OpenSessionRequest { session_id: session_id(), ..Default::default() }
    );
    call!(
        KeepAlive,
        lock.keep_alive,
        v1::KeepAliveRequest { session_id: session_id(), ..Default::default() }
    );
    call!(
        KeepAliveMany,
        lock.keep_alive_many,
        v1::KeepAliveManyRequest { session_ids: vec![session_id()], ..Default::default() }
    );
    call!(
        Acquire,
        lock.acquire,
        v1::AcquireRequest {
            session_id: session_id(),
            request_id: 1,
            name: name(),
            ..Default::default()
        }
    );
    call!(
        AcquireAll,
        lock.acquire_all,
        v1::AcquireAllRequest {
            session_id: session_id(),
            request_id: 2,
            members: names.members(),
            ..Default::default()
        }
    );
    call!(
        Convert,
        lock.convert,
        v1::ConvertRequest {
            session_id: session_id(),
            request_id: 3,
            name: name(),
            token: 1,
            mode: v1::Mode::Shared.into(),
            ..Default::default()
        }
    );
    call!(
        Cancel,
        lock.cancel,
        v1::CancelRequest {
            session_id: session_id(),
            request_id: 4,
            target: 1,
            ..Default::default()
        }
    );
    call!(
        Renew,
        lock.renew,
        v1::RenewRequest {
            session_id: session_id(),
            request_id: 5,
            name: name(),
            token: 1,
            ..Default::default()
        }
    );
    call!(
        Proclaim,
        lock.proclaim,
        v1::ProclaimRequest {
            session_id: session_id(),
            request_id: 6,
            name: name(),
            token: 1,
            ..Default::default()
        }
    );
    call!(
        Transfer,
        lock.transfer,
        v1::TransferRequest {
            session_id: session_id(),
            request_id: 7,
            name: name(),
            token: 1,
            to_public_session_id: "0000000000000001".into(),
            ..Default::default()
        }
    );
    call!(
        Release,
        lock.release,
        v1::ReleaseRequest {
            session_id: session_id(),
            request_id: 8,
            name: name(),
            token: 1,
            ..Default::default()
        }
    );
    call!(
        CloseSession,
        lock.close_session,
        v1::CloseSessionRequest { session_id: session_id(), ..Default::default() }
    );
    call!(Status, lock.status, v1::StatusRequest { name: name(), request_id: 0 });
    call!(List, lock.list, v1::ListRequest { prefix: prefix(), ..Default::default() });
    call!(ListSessions, lock.list_sessions, v1::ListSessionsRequest::default());
    call!(Why, lock.why, v1::WhyRequest { name: name() });
    call!(
        CheckToken,
        lock.check_token,
        v1::CheckTokenRequest { name: name(), token: 1, ..Default::default() }
    );
    call!(ClusterStatus, lock.cluster_status, v1::ClusterStatusRequest::default());
    call!(
        Campaign,
        election.campaign,
        v1::CampaignRequest {
            session_id: session_id(),
            request_id: 9,
            name: name(),
            ..Default::default()
        }
    );
    call!(
        Resign,
        election.resign,
        v1::ResignRequest {
            session_id: session_id(),
            request_id: 10,
            name: name(),
            epoch: 1,
            ..Default::default()
        }
    );
    call!(Observe, election.observe, v1::ObserveRequest { name: name(), ..Default::default() });
    call!(Watch, watch.watch, v1::WatchRequest { prefix: prefix(), ..Default::default() });
    call!(History, watch.history, v1::HistoryRequest { name: name(), ..Default::default() });
    call!(
        Break,
        operator.r#break,
        v1::BreakRequest { name: name(), intervention: intervention(), ..Default::default() }
    );
    call!(
        MoveLock,
        operator.move_lock,
        v1::MoveLockRequest {
            name: name(),
            token: 1,
            to_public_session_id: "0000000000000001".into(),
            intervention: intervention(),
        }
    );
    call!(
        Freeze,
        operator.freeze,
        v1::FreezeRequest { prefix: frozen(), ttl_ms: 60_000, intervention: intervention() }
    );
    call!(Thaw, operator.thaw, v1::ThawRequest { prefix: frozen(), intervention: intervention() });
    call!(ListFreezes, operator.list_freezes, v1::ListFreezesRequest {});
    call!(
        SetPermits,
        operator.set_permits,
        v1::SetPermitsRequest { name: name(), permits: 3, intervention: intervention() }
    );
    call!(
        KillSession,
        operator.kill_session,
        v1::KillSessionRequest {
            public_session_id: "0000000000000001".into(),
            intervention: intervention(),
        }
    );
    call!(
        Reopen,
        operator.reopen,
        v1::ReopenRequest { name: name(), intervention: intervention() }
    );
    call!(
        SetLimits,
        operator.set_limits,
        v1::SetLimitsRequest {
            intervention: intervention(),
            locks: Some(1_000_000),
            ..Default::default()
        }
    );
    call!(
        AddNode,
        cluster.add_node,
        v1::AddNodeRequest {
            node: 1,
            peer_address: "127.0.0.1:9".into(),
            client_address: "127.0.0.1:10".into(),
            ..Default::default()
        }
    );
    call!(PromoteNode, cluster.promote_node, v1::PromoteNodeRequest { node: 99 });
    call!(RemoveNode, cluster.remove_node, v1::RemoveNodeRequest { node: 99 });
    call!(
        TransferLeadership,
        cluster.transfer_leadership,
        v1::TransferLeadershipRequest { to: 99, ..Default::default() }
    );
    call!(SaveSnapshot, cluster.save_snapshot, v1::SaveSnapshotRequest::default());
    call!(ShowAccess, access.show_access, v1::ShowAccessRequest {});
    call!(
        ChangeAccess,
        access.change_access,
        v1::ChangeAccessRequest {
            changes: vec![v1::AccessChange {
                change: Some(v1::access_change::Change::Ban("cert:nobody".into())),
            }],
            ..Default::default()
        }
    );
    call!(WhoAmI, access.who_am_i, v1::WhoAmIRequest {});
    call!(HealthCheck, health.check, HealthCheckRequest::default());
    call!(HealthWatch, health.watch, HealthCheckRequest::default());
    let asked = tokio_stream::once(ServerReflectionRequest::default());
    call!(Reflect, reflection.server_reflection_info, asked);
    failures
}

/// Every operation that a stream can carry, after it is open.
pub(crate) fn every_operation(names: &Names) -> Vec<operation::Kind> {
    use operation::Kind;
    let name = || names.name.to_owned();
    vec![
        Kind::KeepAlive(v1::KeepAliveRequest { request_id: 2, ..Default::default() }),
        Kind::Acquire(v1::AcquireRequest { request_id: 3, name: name(), ..Default::default() }),
        Kind::AcquireAll(v1::AcquireAllRequest {
            request_id: 4,
            members: names.members(),
            ..Default::default()
        }),
        Kind::Convert(v1::ConvertRequest {
            request_id: 5,
            name: name(),
            token: 1,
            mode: v1::Mode::Shared.into(),
            ..Default::default()
        }),
        Kind::Cancel(v1::CancelRequest { request_id: 6, target: 3, ..Default::default() }),
        Kind::Renew(v1::RenewRequest {
            request_id: 7,
            name: name(),
            token: 1,
            ..Default::default()
        }),
        Kind::Proclaim(v1::ProclaimRequest {
            request_id: 8,
            name: name(),
            token: 1,
            ..Default::default()
        }),
        Kind::Transfer(v1::TransferRequest {
            request_id: 9,
            name: name(),
            token: 1,
            to_public_session_id: "0000000000000001".into(),
            ..Default::default()
        }),
        Kind::Release(v1::ReleaseRequest {
            request_id: 10,
            name: name(),
            token: 1,
            ..Default::default()
        }),
        Kind::Status(v1::StatusRequest { request_id: 11, name: name() }),
        Kind::Close(v1::CloseSessionRequest { request_id: 12, ..Default::default() }),
    ]
}
