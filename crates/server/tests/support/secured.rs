//! A cluster that demands credentials, with an administrator.

use holdfast_cluster_kit::Wire;
use holdfast_core::Verb as Right;
use holdfast_proto::AccessToken;
use holdfast_proto::plain;
use holdfast_proto::v1::access_change::Change;
use holdfast_proto::v1::access_service_client::AccessServiceClient;
use holdfast_proto::v1::{self, operation};
use holdfast_server::{AuthMode, NodeConfig, bootstrap_token};
use holdfast_service::Verb;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};

use super::every_method::with;
use super::framed::FramedClient;
use super::{Client, Cluster, OnStream, eventually};

pub(crate) struct Secured {
    pub(crate) cluster: Cluster,
    pub(crate) admin: String,
    pub(crate) leader: usize,
    pub(crate) follower: usize,
}

/// The value of the header.
pub(crate) fn bearer(token: &str) -> String {
    format!("Bearer {token}")
}

pub(crate) async fn access_client(address: &str) -> AccessServiceClient<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    AccessServiceClient::new(endpoint.connect().await.unwrap())
}

/// A new token, and what makes it known.
pub(crate) fn new_token(name: &str) -> (String, Change) {
    let token = AccessToken::random().unwrap();
    let info = v1::AccessTokenInfo {
        id: format!("{:016x}", token.id),
        principal: format!("token:{name}"),
        ..Default::default()
    };
    let digest = token.digest().to_vec();
    let put = Change::PutToken(v1::NewAccessToken { info: Some(info), digest });
    (token.to_secret_text(), put)
}

pub(crate) fn grant(name: &str, role: &str) -> Change {
    let principal = format!("token:{name}");
    Change::Grant(v1::AccessBinding { principal, roles: vec![role.into()] })
}

pub(crate) fn request(changes: Vec<Change>) -> v1::ChangeAccessRequest {
    let changes = changes.into_iter().map(|change| v1::AccessChange { change: Some(change) });
    v1::ChangeAccessRequest { changes: changes.collect(), ..Default::default() }
}

fn secured(change: impl Fn(&mut NodeConfig)) -> impl Fn(&mut NodeConfig) {
    move |config| {
        config.auth.mode = AuthMode::Required;
        // Leaders change when a test wants it, and not because the machine is busy.
        config.election_ticks = 60;
        change(config);
    }
}

impl Secured {
    pub(crate) async fn start() -> Secured {
        Secured::start_with(|_| ()).await
    }

    pub(crate) async fn start_with(change: impl Fn(&mut NodeConfig)) -> Secured {
        Secured::with_administrator(Cluster::start_with(3, secured(change)).await).await
    }

    /// As [`Secured::start_with`]. What the other nodes send to this one goes through the wire.
    pub(crate) async fn start_behind_wire(
        change: impl Fn(&mut NodeConfig),
        index: usize,
    ) -> (Secured, Wire) {
        let (cluster, wire) = Cluster::start_behind_wire(3, secured(change), index).await;
        (Secured::with_administrator(cluster).await, wire)
    }

    pub(crate) async fn start_with_wires_between(
        change: impl Fn(&mut NodeConfig),
        nodes: [usize; 2],
    ) -> (Secured, [Wire; 2]) {
        let (cluster, wires) = Cluster::start_with_wires_between(3, secured(change), nodes).await;
        (Secured::with_administrator(cluster).await, wires)
    }

    async fn with_administrator(cluster: Cluster) -> Secured {
        let bootstrap = bootstrap_token(&cluster.configs[0].data_dir).unwrap().to_secret_text();
        let (admin, put) = new_token("root");
        // Rules are adopted when all nodes have met.
        let first = request(vec![put, grant("root", "admin")]);
        eventually("the first administrator is made", async || {
            let mut access = access_client(&cluster.address(0)).await;
            let header = bearer(&bootstrap);
            access.change_access(with(first.clone(), Some(("authorization", &header)))).await.ok()
        })
        .await;
        let mut secured = Secured { cluster, admin, leader: 0, follower: 0 };
        secured.leader = secured.find_leader().await;
        secured.follower = (secured.leader + 1) % 3;
        secured.known_everywhere().await;
        secured
    }

    pub(crate) async fn find_leader(&self) -> usize {
        let header = bearer(&self.admin);
        eventually("there is a leader", async || {
            let mut client = self.cluster.client(0).await;
            let asked =
                with(v1::ClusterStatusRequest::default(), Some(("authorization", &*header)));
            let status = client.cluster_status(asked).await.ok()?.into_inner();
            let leader = status.groups[0].leader;
            (leader > 0).then(|| leader as usize - 1)
        })
        .await
    }

    async fn generation(&self, node: usize) -> Option<u64> {
        let mut access = access_client(&self.cluster.address(node)).await;
        let header = bearer(&self.admin);
        let asked = with(v1::WhoAmIRequest {}, Some(("authorization", &*header)));
        access.who_am_i(asked).await.ok().map(|answer| answer.into_inner().generation)
    }

    /// Every node has applied the policy, and reaches the leader.
    async fn known_everywhere(&self) {
        let header = bearer(&self.admin);
        for node in 0..3 {
            eventually("the node knows the policy and the leader", async || {
                let newest = self.generation(self.leader).await?;
                let asked = v1::StatusRequest { name: "any".into(), request_id: 0 };
                let asked = with(asked, Some(("authorization", &*header)));
                self.cluster.client(node).await.status(asked).await.ok()?;
                (self.generation(node).await? == newest).then_some(())
            })
            .await;
        }
    }

    pub(crate) async fn change(&self, request: v1::ChangeAccessRequest) {
        let mut access = access_client(&self.cluster.address(self.follower)).await;
        let header = bearer(&self.admin);
        access.change_access(with(request, Some(("authorization", &*header)))).await.unwrap();
        self.known_everywhere().await;
    }

    /// A token of a principal with this role.
    pub(crate) async fn token(&self, name: &str, role: &str) -> String {
        let (token, put) = new_token(name);
        self.change(request(vec![put, grant(name, role)])).await;
        token
    }

    /// The role `own`: a user of `own/*` alone.
    pub(crate) async fn put_own_role(&self) {
        let verbs = ["read", "shared", "exclusive", "permit", "elect", "transfer", "efficiency"];
        let rule = |verbs: &[&str], pattern: &str| v1::AccessRule {
            verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
            pattern: pattern.into(),
        };
        let rules = vec![rule(&verbs, "own/*"), rule(&["connect"], "")];
        self.change(request(vec![Change::PutRole(v1::AccessRole { name: "own".into(), rules })]))
            .await;
    }
}

/// What the verb of a row is in a role.
pub(crate) fn right(verb: Verb) -> Option<Right> {
    Some(match verb {
        Verb::Open | Verb::Authenticated => return None,
        Verb::Connect => Right::Connect,
        Verb::Read => Right::Read,
        Verb::Lock => Right::Exclusive,
        Verb::Elect => Right::Elect,
        Verb::Transfer => Right::Transfer,
        Verb::Break => Right::Break,
        Verb::Move => Right::Move,
        Verb::Freeze => Right::Freeze,
        Verb::SetPermits => Right::SetPermits,
        Verb::KillSession => Right::KillSession,
        Verb::Sessions => Right::Sessions,
        Verb::ClusterRead => Right::ClusterRead,
        Verb::ClusterChange => Right::ClusterChange,
        Verb::Snapshot => Right::Snapshot,
        Verb::Metrics => Right::Metrics,
        Verb::Access => Right::Access,
    })
}

pub(crate) async fn framed_as(address: &str, token: &str) -> FramedClient {
    let mut framed = FramedClient::greet(address).await;
    let mut bytes = Vec::new();
    let length = u32::try_from(token.len() + 1).unwrap();
    bytes.extend(length.to_le_bytes());
    bytes.push(plain::AUTH);
    bytes.extend(token.as_bytes());
    tokio::io::AsyncWriteExt::write_all(&mut framed.socket, &bytes).await.unwrap();
    framed
}

/// A stream of gRPC that shows this token and begins with this operation.
pub(crate) async fn stream_as(
    client: &mut Client,
    token: &str,
    first: operation::Kind,
) -> OnStream {
    let (frames, requests) = mpsc::channel(16);
    let header = bearer(token);
    let asked = with(ReceiverStream::new(requests), Some(("authorization", &*header)));
    let answers = client.session(asked).await.unwrap().into_inner();
    let stream = OnStream { session: String::new(), frames, answers };
    stream.send(vec![first]).await;
    stream
}
