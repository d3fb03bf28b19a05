//! A credential that no longer counts gives nothing more, on connections that are open too; and who may do what is changed
//! by administrators only, in every mode.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

mod support;

use std::time::{SystemTime, UNIX_EPOCH};

use holdfast_proto::AccessToken;
use holdfast_proto::peer_v1::forward_service_client::ForwardServiceClient;
use holdfast_proto::peer_v1::peer_service_client::PeerServiceClient;
use holdfast_proto::peer_v1::{self, ForwardedAction, Hello, PeerFrame, Timing};
use holdfast_proto::plain;
use holdfast_proto::v1::access_change::Change;
use holdfast_proto::v1::access_service_client::AccessServiceClient;
use holdfast_proto::v1::lock_service_client::LockServiceClient;
use holdfast_proto::v1::watch_service_client::WatchServiceClient;
use holdfast_proto::v1::{self, Failure, Reason, acquire_response, answer};
use holdfast_server::{AuthMode, bootstrap_token};
use prost::Message;
use support::every_method::with;
use support::framed::{FramedClient, acquire, frame, heartbeat, opening, release};
use support::{Cluster, PATIENCE, data_dir_id, eventually};
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::MetadataValue;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status, Streaming};

async fn channel(address: &str) -> Channel {
    Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap()
}

/// A token, and what makes it known.
struct Token {
    secret: String,
    id: String,
    put: Change,
}

impl Token {
    fn of(name: &str, expires_at_unix_ms: Option<u64>) -> Token {
        let token = AccessToken::random().unwrap();
        let id = format!("{:016x}", token.id);
        let principal = format!("token:{name}");
        let info = v1::AccessTokenInfo {
            id: id.clone(),
            principal,
            expires_at_unix_ms,
            ..Default::default()
        };
        let digest = token.digest().to_vec();
        let put = Change::PutToken(v1::NewAccessToken { info: Some(info), digest });
        Token { secret: token.to_secret_text(), id, put }
    }
}

fn grant(name: &str, role: &str) -> Change {
    let principal = format!("token:{name}");
    Change::Grant(v1::AccessBinding { principal, roles: vec![role.into()] })
}

fn changes(changes: Vec<Change>) -> v1::ChangeAccessRequest {
    let changes = changes.into_iter().map(|change| v1::AccessChange { change: Some(change) });
    v1::ChangeAccessRequest { changes: changes.collect(), ..Default::default() }
}

fn reason_of(status: &Status) -> Reason {
    Failure::from_status(status).reason()
}

async fn change_as(
    address: &str,
    token: Option<&str>,
    request: v1::ChangeAccessRequest,
) -> Result<u64, Reason> {
    let header = token.map(|token| format!("Bearer {token}"));
    let header = header.as_ref().map(|header| ("authorization", &**header));
    let mut access = AccessServiceClient::new(channel(address).await);
    let answer = access.change_access(with(request, header)).await;
    answer.map(|answer| answer.into_inner().generation).map_err(|status| reason_of(&status))
}

/// Of the administrator `token:root`, whom the bootstrap token makes.
async fn first_administrator(cluster: &Cluster) -> String {
    let bootstrap = bootstrap_token(&cluster.configs[0].data_dir).unwrap().to_secret_text();
    let root = Token::of("root", None);
    let first = changes(vec![root.put, grant("root", "admin")]);
    // Rules are adopted when all nodes have met.
    eventually("the first administrator is made", async || {
        change_as(&cluster.address(0), Some(&bootstrap), first.clone()).await.ok()
    })
    .await;
    root.secret
}

/// A node that does not lead may learn a moment later who the administrator is.
async fn change(cluster: &Cluster, root: &str, request: v1::ChangeAccessRequest) {
    eventually("the node knows the administrator", async || {
        match change_as(&cluster.address(0), Some(root), request.clone()).await {
            Err(Reason::Unauthenticated) => None,
            changed => Some(changed.unwrap()),
        }
    })
    .await;
}

async fn framed_as(address: &str, token: &str) -> FramedClient {
    let mut framed = FramedClient::greet(address).await;
    show(&mut framed, token).await;
    framed
}

async fn show(framed: &mut FramedClient, token: &str) {
    let mut bytes = u32::try_from(token.len() + 1).unwrap().to_le_bytes().to_vec();
    bytes.push(plain::AUTH);
    bytes.extend(token.as_bytes());
    framed.socket.write_all(&bytes).await.unwrap();
}

fn refusal(result: answer::Result) -> Option<Reason> {
    match result {
        answer::Result::Failure(failure) => Some(failure.reason()),
        _ => None,
    }
}

/// Why the node ends a stream.
async fn end_of<T>(frames: &mut Streaming<T>) -> Reason {
    let end = async {
        loop {
            match frames.message().await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("it ended without a reason"),
                Err(status) => break reason_of(&status),
            }
        }
    };
    timeout(PATIENCE, end).await.expect("the stream goes on")
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_credential_nobody_changes_or_sees_the_policy_in_any_mode() {
    for mode in [AuthMode::Off, AuthMode::Permissive, AuthMode::Required] {
        let cluster = Cluster::start_with(1, |config| config.auth.mode = mode).await;
        let address = cluster.address(0);
        let mallory = Token::of("mallory", None);
        let request = changes(vec![mallory.put, grant("mallory", "admin")]);
        let refused = change_as(&address, None, request).await;
        assert_eq!(refused, Err(Reason::Unauthenticated), "{mode:?}");
        let mut access = AccessServiceClient::new(channel(&address).await);
        let shown = access.show_access(v1::ShowAccessRequest {}).await.unwrap_err();
        assert_eq!(reason_of(&shown), Reason::Unauthenticated, "{mode:?}");
        if mode != AuthMode::Off {
            // The token of the first administrator is still good.
            first_administrator(&cluster).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_token_gives_nothing_more_on_streams_that_are_open() {
    let cluster = Cluster::start_with(3, |config| config.auth.mode = AuthMode::Required).await;
    let root = first_administrator(&cluster).await;
    let (stolen, own) = (Token::of("alice", None), Token::of("alice", None));
    change(&cluster, &root, changes(vec![stolen.put, own.put, grant("alice", "user")])).await;
    let denied = Some(Reason::Unauthenticated);
    let mut thieves = Vec::new();
    for node in 0..3 {
        let address = cluster.address(node);
        let watch = eventually("the node knows the token", async || {
            let header = format!("Bearer {}", stolen.secret);
            let mut client = WatchServiceClient::new(channel(&address).await);
            let asked = with(v1::WatchRequest::default(), Some(("authorization", &*header)));
            let mut frames = client.watch(asked).await.ok()?.into_inner();
            frames.message().await.ok()?;
            Some(frames)
        })
        .await;
        let mut thief = framed_as(&address, &stolen.secret).await;
        thief.open().await;
        let name = format!("held-{node}");
        let held = thief.take_as(2, &name).await;
        thieves.push((thief, watch, name, held));
    }
    change(&cluster, &root, changes(vec![Change::RevokeToken(stolen.id)])).await;
    for (node, (mut thief, mut watch, name, held)) in thieves.into_iter().enumerate() {
        assert_eq!(refusal(thief.ask(heartbeat(3)).await), denied, "node {node}");
        assert_eq!(refusal(thief.ask(acquire(4, "more")).await), denied, "node {node}");
        assert_eq!(refusal(thief.ask(release(5, &name, held)).await), None, "it may let go");
        assert_eq!(end_of(&mut watch).await, Reason::Unauthenticated);
        // The principal has another one.
        let mut client = framed_as(&cluster.address(node), &own.secret).await;
        client.open().await;
        client.take_as(2, &name).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_whose_time_is_over_ends_the_streams_that_it_opened_and_not_their_sessions() {
    const LASTS_MS: u64 = 8_000;
    let cluster = Cluster::start_with(3, |config| config.auth.mode = AuthMode::Required).await;
    let root = first_administrator(&cluster).await;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
    let short = Token::of("short", Some(u64::try_from(now).unwrap() + LASTS_MS));
    let long = Token::of("short", None);
    change(&cluster, &root, changes(vec![short.put, long.put, grant("short", "user")])).await;
    let header = format!("Bearer {}", short.secret);
    let header = Some(("authorization", &*header));
    let mut streams = Vec::new();
    for node in 0..3 {
        let address = cluster.address(node);
        let watch = eventually("the node knows the token", async || {
            let mut client = WatchServiceClient::new(channel(&address).await);
            let asked = v1::WatchRequest { prefix: "quiet/".into(), ..Default::default() };
            let mut frames = client.watch(with(asked, header)).await.ok()?.into_inner();
            frames.message().await.ok()?;
            Some(frames)
        })
        .await;
        let mut framed = framed_as(&address, &short.secret).await;
        framed.open().await;
        let name = format!("held-{node}");
        framed.take_as(2, &name).await;
        let (frames, sent) = mpsc::channel(1);
        frames.send(frame(vec![opening(0)])).await.unwrap();
        let mut client = LockServiceClient::new(channel(&address).await);
        let asked = with(ReceiverStream::new(sent), header);
        let mut answers = client.session(asked).await.unwrap().into_inner();
        let opened = answers.message().await.unwrap().unwrap();
        assert_eq!(opened.answers.len(), 1, "{opened:?}");
        streams.push((framed, watch, frames, answers, name));
    }
    for (node, (mut framed, mut watch, _frames, mut answers, name)) in
        streams.into_iter().enumerate()
    {
        assert_eq!(framed.reason_of_end().await, Reason::CredentialExpired, "node {node}");
        assert_eq!(end_of(&mut answers).await, Reason::CredentialExpired, "node {node}");
        assert_eq!(end_of(&mut watch).await, Reason::CredentialExpired, "node {node}");
        // The session holds its lock on: its linger time of nothing did not count.
        let mut other = framed_as(&cluster.address(node), &long.secret).await;
        other.open().await;
        let answer = other.ask(acquire(2, &name)).await;
        let answer::Result::Acquire(answer) = answer else { panic!("{answer:?}") };
        assert!(matches!(answer.outcome, Some(acquire_response::Outcome::Busy(_))), "{answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_bootstrap_token_gives_nothing_on_open_streams_after_the_first_change() {
    let cluster = Cluster::start_with(1, |config| config.auth.mode = AuthMode::Required).await;
    let bootstrap = bootstrap_token(&cluster.configs[0].data_dir).unwrap().to_secret_text();
    let mut framed = framed_as(&cluster.address(0), &bootstrap).await;
    framed.open().await;
    framed.take_as(2, "a").await;
    first_administrator(&cluster).await;
    assert_eq!(refusal(framed.ask(acquire(3, "b")).await), Some(Reason::PermissionDenied));
    assert_eq!(refusal(framed.ask(heartbeat(4)).await), Some(Reason::PermissionDenied));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_changes_nothing_of_its_own_accord_and_no_refusal_tells_a_data_directory() {
    let mut cluster = Cluster::start_with(3, |config| config.auth.mode = AuthMode::Required).await;
    first_administrator(&cluster).await;
    let known = data_dir_id(&cluster, 2);
    cluster.stop(2).await;
    let channel = channel(&cluster.configs[0].nodes[0].peer.to_string()).await;
    let mut hello = Hello {
        version: 2,
        cluster: cluster.configs[0].cluster.clone(),
        from_node: 3,
        to_node: 1,
        data_dir_id: "00112233445566778899aabbccddeeff".to_owned(),
        timing: Some(Timing { tick_ms: 50, election_ticks: 10 }),
        ..Default::default()
    };
    let say = async |hello: Hello| {
        let (frames, said) = mpsc::channel(1);
        frames.send(PeerFrame { hello: Some(hello) }).await.unwrap();
        let mut peer = PeerServiceClient::new(channel.clone());
        let mut replies = peer.exchange(ReceiverStream::new(said)).await?.into_inner();
        let welcome = timeout(PATIENCE, replies.message()).await.unwrap()?.unwrap();
        Ok::<_, Status>((welcome.wire_pass, frames, replies))
    };
    let status = say(hello.clone()).await.unwrap_err();
    assert!(status.message().contains("lost its data directory"), "{status}");
    assert!(!status.message().contains(&known), "{status}");

    hello.data_dir_id = known;
    let (ticket, _frames, _replies) = say(hello).await.unwrap();
    let forward = async |method: &str, request: Vec<u8>| {
        let caller = Some(peer_v1::Caller {
            principal: "node:3".into(),
            protocol: peer_v1::Protocol::Internal.into(),
            ..Default::default()
        });
        let mut action = Request::new(ForwardedAction {
            caller,
            method: method.into(),
            request,
            ..Default::default()
        });
        let ticket = MetadataValue::from_bytes(&ticket);
        action.metadata_mut().insert_bin("holdfast-ticket-bin", ticket);
        ForwardServiceClient::new(channel.clone())
            .forward(action)
            .await
            .map_err(|it| reason_of(&it))
    };
    let put = changes(vec![grant("mallory", "admin")]).encode_to_vec();
    let denied = Some(Reason::PermissionDenied);
    let refused = forward("/holdfast.v1.AccessService/ChangeAccess", put).await;
    assert_eq!(refused.err(), denied);
    let remove = v1::RemoveNodeRequest { node: 2 }.encode_to_vec();
    let refused = forward("/holdfast.v1.ClusterService/RemoveNode", remove).await;
    assert_eq!(refused.err(), denied);
    // What the dashboard shows.
    let looks = v1::ClusterStatusRequest::default().encode_to_vec();
    forward("/holdfast.v1.LockService/ClusterStatus", looks).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_framed_connection_shows_one_credential_and_no_large_one() {
    let cluster = Cluster::start_with(1, |config| config.auth.mode = AuthMode::Required).await;
    let bootstrap = bootstrap_token(&cluster.configs[0].data_dir).unwrap().to_secret_text();
    let mut twice = framed_as(&cluster.address(0), &bootstrap).await;
    show(&mut twice, &bootstrap).await;
    assert_eq!(twice.reason_of_end().await, Reason::InvalidFrame);
    let mut large = framed_as(&cluster.address(0), &"x".repeat(64 * 1024)).await;
    assert_eq!(large.reason_of_end().await, Reason::InvalidFrame);
}
