//! Who may do what, as a matrix: each verb alone, for own names, for foreign names, for prefixes and for several names at
//! once; at the leader and at a follower; by call, by stream, by framed stream and from the dashboard.
//!
//! What is expected is computed from the table of methods and from the descriptors. So a new method is part of it without
//! a line here: it needs a call in `support/every_method.rs`, or the test that counts them fails.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

mod support;

use std::collections::{BTreeMap, BTreeSet};

use holdfast_core::{Scope, Verb as Right};
use holdfast_proto::peer_v1;
use holdfast_proto::plain::BorrowedOperation;
use holdfast_proto::v1::access_change::Change;
use holdfast_proto::v1::{self, Failure, Reason, answer, operation};
use holdfast_service::{Front, Method, Verb};
use prost::Message;
use serde_json::json;
use support::every_method::{Names, call_everything_about, every_operation};
use support::framed::opening;
use support::secured::{Secured, bearer, framed_as, grant, new_token, request, right, stream_as};
use support::{connect, http_request, http_status};
use tokio_stream::StreamExt;
use tonic::transport::Endpoint;

/// What a call is about. Each role is for `own/*`.
const PLACES: [(&str, Names); 3] = [
    ("own", Names { name: "own/a", prefix: "own/x", members: &["own/b", "own/c"] }),
    ("foreign", Names { name: "other/a", prefix: "other/", members: &["other/b"] }),
    // One pattern has to cover all of a prefix, and each member counts.
    ("mixed", Names { name: "own/d", prefix: "ow", members: &["own/e", "other/c"] }),
];

fn is_own(name: &str) -> bool {
    name.starts_with("own/")
}

/// A principal that may do one thing, besides to connect.
struct Holder {
    right: Right,
    token: String,
}

impl Holder {
    fn has(&self, right: Right) -> bool {
        right == self.right || right == Right::Connect
    }

    /// What it may do with a name, with all of a prefix, or with several names.
    fn may(&self, right: Right, about: &About, names: &Names) -> bool {
        self.has(right)
            && match about {
                About::Name => is_own(names.name),
                About::Members => names.members.iter().all(|name| is_own(name)),
                About::Prefix => is_own(names.prefix),
                About::Nothing => false,
            }
    }

    fn may_call(&self, method: Method, about: &About, names: &Names) -> bool {
        let takes: &[Right] = match (method, method.row().verb) {
            (_, Verb::Open | Verb::Authenticated) => return true,
            // It answers with what the caller may see.
            (Method::ListFreezes, _) => return self.has(Right::Read),
            // To shared.
            (Method::Convert, _) => &[Right::Shared],
            // How it is held, the lock table knows.
            (Method::Renew | Method::Proclaim, _) => {
                &[Right::Shared, Right::Exclusive, Right::Permit, Right::Elect]
            }
            // An election is an exclusive lock.
            (_, Verb::Lock | Verb::Elect) => &[Right::Exclusive, Right::Elect],
            (_, verb) => &[right(verb).unwrap()],
        };
        takes.iter().any(|right| match right.scope() {
            Scope::Cluster => self.has(*right),
            Scope::Names => self.may(*right, about, names),
        })
    }
}

/// What a request names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum About {
    Name,
    Members,
    Prefix,
    Nothing,
}

/// As the descriptors say: by the path of the method.
fn abouts() -> BTreeMap<String, About> {
    let set = prost_types::FileDescriptorSet::decode(holdfast_proto::FILE_DESCRIPTOR_SET).unwrap();
    let mut fields: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for file in &set.file {
        for message in &file.message_type {
            let names = message.field.iter().map(|field| field.name().to_owned()).collect();
            fields.insert(format!(".{}.{}", file.package(), message.name()), names);
        }
    }
    let about = |input: &str| {
        let has = |field: &str| fields.get(input).is_some_and(|fields| fields.contains(field));
        match (has("members"), has("prefix"), has("name")) {
            (true, _, _) => About::Members,
            (_, true, _) => About::Prefix,
            (_, _, true) => About::Name,
            _ => About::Nothing,
        }
    };
    let mut found = BTreeMap::new();
    for file in &set.file {
        for service in &file.service {
            for method in &service.method {
                let path = format!("/{}.{}/{}", file.package(), service.name(), method.name());
                found.insert(path, about(method.input_type()));
            }
        }
    }
    found
}

fn about(abouts: &BTreeMap<String, About>, method: Method) -> About {
    method.path().and_then(|path| abouts.get(path)).copied().unwrap_or(About::Nothing)
}

/// One for each verb.
async fn holders(secured: &Secured) -> Vec<Holder> {
    let mut holders = Vec::new();
    for chunk in Right::ALL.chunks(16) {
        let mut changes = Vec::new();
        for right in chunk {
            let name = format!("only-{}", right.name());
            let rule = |right: Right, pattern: &str| v1::AccessRule {
                verbs: vec![right.name().to_owned()],
                pattern: pattern.to_owned(),
            };
            let mut rules = vec![rule(Right::Connect, "")];
            match right.scope() {
                Scope::Names => rules.push(rule(*right, "own/*")),
                Scope::Cluster if *right == Right::Connect => {}
                Scope::Cluster => rules.push(rule(*right, "")),
            }
            let (token, put) = new_token(&name);
            let role = v1::AccessRole { name: name.clone(), rules };
            changes.extend([Change::PutRole(role), grant(&name, &name), put]);
            holders.push(Holder { right: *right, token });
        }
        secured.change(request(changes)).await;
    }
    holders
}

#[test]
fn every_method_of_the_descriptors_is_called() {
    let abouts = abouts();
    for method in Method::ALL {
        if let Front::Grpc(path) = method.row().front
            && path.starts_with("/holdfast.")
        {
            assert!(abouts.contains_key(path), "{path}");
        }
    }
    assert_eq!(about(&abouts, Method::Acquire), About::Name);
    assert_eq!(about(&abouts, Method::AcquireAll), About::Members);
    assert_eq!(about(&abouts, Method::Freeze), About::Prefix);
    assert_eq!(about(&abouts, Method::ClusterStatus), About::Nothing);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_is_refused_unless_its_verb_is_granted_for_all_that_it_names() {
    let secured = Secured::start().await;
    let (holders, abouts) = (holders(&secured).await, abouts());
    let methods = || {
        let all = Method::ALL.iter().copied();
        all.filter(|method| method.path().is_some() && *method != Method::Session)
    };
    for node in [secured.leader, secured.follower] {
        let address = secured.cluster.address(node);
        for (holder, (place, names)) in
            holders.iter().flat_map(|holder| PLACES.iter().map(move |place| (holder, place)))
        {
            let header = bearer(&holder.token);
            let failures =
                call_everything_about(names, &address, Some(("authorization", &header))).await;
            let denied = failures.into_iter().filter_map(|(method, status)| {
                let reason = Failure::from_status(&status).reason();
                (reason == Reason::PermissionDenied).then_some(method)
            });
            let expected =
                methods().filter(|it| !holder.may_call(*it, &about(&abouts, *it), names));
            assert_eq!(
                denied.collect::<BTreeSet<_>>(),
                expected.collect(),
                "{:?} for {place} names at node {}",
                holder.right,
                node + 1
            );
        }
    }
}

/// The operations of a stream that have to be refused.
fn refused_operations(
    holder: &Holder,
    names: &Names,
    abouts: &BTreeMap<String, About>,
) -> BTreeSet<Method> {
    let methods = every_operation(names).into_iter().map(method_of);
    methods.filter(|it| !holder.may_call(*it, &about(abouts, *it), names)).collect()
}

fn method_of(kind: operation::Kind) -> Method {
    let operation = v1::Operation { kind: Some(kind) };
    Method::of_operation(&BorrowedOperation::Message(operation)).unwrap()
}

fn is_denied(result: Option<&answer::Result>) -> bool {
    let Some(answer::Result::Failure(failure)) = result else { return false };
    failure.reason() == Reason::PermissionDenied
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operation_is_refused_on_both_kinds_of_streams_as_its_call_is() {
    let secured = Secured::start().await;
    let (holders, abouts) = (holders(&secured).await, abouts());
    for node in [secured.leader, secured.follower] {
        let address = secured.cluster.address(node);
        for (holder, (place, names)) in
            holders.iter().flat_map(|holder| PLACES.iter().map(move |place| (holder, place)))
        {
            let expected = refused_operations(holder, names, &abouts);
            let mut framed = framed_as(&address, &holder.token).await;
            framed.open().await;
            let mut denied = BTreeSet::new();
            for kind in every_operation(names) {
                let method = method_of(kind.clone());
                denied.extend(is_denied(Some(&framed.ask(kind).await)).then_some(method));
            }
            let words = format!("{:?} for {place} names at node {}", holder.right, node + 1);
            assert_eq!(denied, expected, "framed: {words}");

            let mut client = connect(&address).await;
            let mut stream = stream_as(&mut client, &holder.token, opening(0)).await;
            let frame = stream.next().await.unwrap();
            assert!(matches!(frame.answers[0].result, Some(answer::Result::Open(_))), "{frame:?}");
            let mut denied = BTreeSet::new();
            for kind in every_operation(names) {
                let method = method_of(kind.clone());
                stream.send(vec![kind]).await;
                let answer = loop {
                    let frame = stream.next().await.unwrap();
                    if let Some(answer) = frame.answers.into_iter().next() {
                        break answer;
                    }
                };
                denied.extend(is_denied(answer.result.as_ref()).then_some(method));
            }
            assert_eq!(denied, expected, "gRPC: {words}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_dashboard_shows_and_does_what_its_caller_may() {
    let secured = Secured::start().await;
    let holders = holders(&secured).await;
    for node in [secured.leader, secured.follower] {
        let address = secured.cluster.http_address(node);
        for holder in &holders {
            let header = format!("authorization: {}\r\n", bearer(&holder.token));
            for method in Method::ALL {
                let Front::Http(route) = method.row().front else { continue };
                // Actions are tried below.
                if route.contains('{') {
                    continue;
                }
                let path = if route == "/api/lock" { "/api/lock?name=own/a" } else { route };
                let (code, body) = match method {
                    Method::HttpLive | Method::HttpEvents => {
                        (http_status(&address, path, &header).await, String::new())
                    }
                    _ => http_request(&address, "GET", path, &header, "").await,
                };
                // A page is about all names.
                let expected = match method.row().verb {
                    Verb::Open => true,
                    verb => right(verb)
                        .is_some_and(|right| right.scope() == Scope::Cluster && holder.has(right)),
                };
                let words = format!("{:?} {path} at node {}: {body}", holder.right, node + 1);
                assert_eq!(code != 403, expected, "{code}: {words}");
            }
            for (place, names) in &PLACES {
                for (action, right, about, body) in actions(names) {
                    let expected = match right.scope() {
                        Scope::Cluster => holder.has(right),
                        Scope::Names => holder.may(right, &about, names),
                    };
                    let ours = format!(
                        "{header}content-type: application/json\r\nholdfast-action: 1\r\ncontent-length: {}\r\n",
                        body.len()
                    );
                    let path = format!("/api/actions/{action}");
                    let (_, answer) = http_request(&address, "POST", &path, &ours, &body).await;
                    let is_denied = answer.contains("permission_denied");
                    let words = format!("{:?} {action} {place}: {answer}", holder.right);
                    assert_eq!(!is_denied, expected, "{words}");
                }
            }
        }
    }
}

/// What can be done from the page: the verb that it needs, what it is about, and the request.
fn actions(names: &Names) -> Vec<(&'static str, Right, About, String)> {
    let (name, prefix) = (names.name, names.prefix);
    let why = |mut body: serde_json::Value| {
        body["by"] = "me".into();
        body["reason"] = "a test".into();
        body.to_string()
    };
    let to = "0000000000000001";
    let moved = why(json!({ "name": name, "token": "1", "to": to }));
    let frozen = why(json!({ "prefix": prefix, "ttl_ms": 60_000 }));
    vec![
        ("break", Right::Break, About::Name, why(json!({ "name": name, "token": "0" }))),
        ("transfer", Right::Move, About::Name, moved),
        ("close-session", Right::KillSession, About::Nothing, why(json!({ "session": to }))),
        ("freeze", Right::Freeze, About::Prefix, frozen),
        ("thaw", Right::Freeze, About::Prefix, why(json!({ "prefix": prefix }))),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn every_call_of_the_peer_port_is_refused_to_a_caller_that_is_no_node() {
    use peer_v1::forward_service_client::ForwardServiceClient;
    use peer_v1::peer_service_client::PeerServiceClient;

    let secured = Secured::start().await;
    let mut tried = BTreeSet::new();
    let address = secured.cluster.configs[0].nodes[secured.leader].peer.to_string();
    let channel = Endpoint::from_shared(format!("http://{address}")).unwrap();
    let channel = channel.connect().await.unwrap();
    let mut forward = ForwardServiceClient::new(channel.clone());
    let mut peer = PeerServiceClient::new(channel);
    let caller = holdfast_service::Caller::node(secured.follower as u64 + 1).to_wire();
    let request = v1::ShowAccessRequest {}.encode_to_vec();
    let action = peer_v1::ForwardedAction {
        method: Method::ShowAccess.path().unwrap().to_owned(),
        caller: Some(caller),
        request,
        ..Default::default()
    };
    assert!(forward.forward(action.clone()).await.is_err());
    tried.insert("Forward");
    assert!(is_refused(forward.forward_stream(action).await).await);
    tried.insert("ForwardStream");
    let frame = peer_v1::ForwardedFrame::default();
    assert!(is_refused(forward.forward_session(tokio_stream::once(frame)).await).await);
    tried.insert("ForwardSession");
    let frame = peer_v1::PeerFrame::default();
    assert!(is_refused(peer.exchange(tokio_stream::once(frame)).await).await);
    tried.insert("Exchange");
    let chunk = peer_v1::SnapshotChunk::default();
    assert!(peer.install_snapshot(tokio_stream::once(chunk)).await.is_err());
    tried.insert("InstallSnapshot");

    let served = include_str!("../../../proto/holdfast/peer/v1/peer.proto").lines();
    let served = served.filter_map(|line| line.trim().strip_prefix("rpc ")?.split('(').next());
    assert_eq!(tried, served.collect());
}

/// At once, or with its first answer.
async fn is_refused<T>(
    called: Result<tonic::Response<tonic::Streaming<T>>, tonic::Status>,
) -> bool {
    match called {
        Err(_) => true,
        Ok(mut answers) => matches!(answers.get_mut().next().await, Some(Err(_))),
    }
}
