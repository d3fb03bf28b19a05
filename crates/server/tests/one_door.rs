//! Whatever a caller asks for passes the service, once on each node that it reaches, and as the right caller: every method
//! of the descriptors, every operation of a stream, every route of the HTTP port; at the leader and at a follower.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};

use holdfast_proto::plain::{self, GREETING, Pieces};
use holdfast_proto::v1::{self, Failure, Reason, operation};
use holdfast_service::{
    Caller, CarriedOutBy, Front, Kind, Method, OnBehalfOf, Protocol, Service, Verb,
};
use prost::Message;
use support::every_method::{Names, call_everything, every_operation, with};
use support::{
    Cluster, OnStream, PATIENCE, eventually, http_get, http_request, http_status, new_session,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// What passed the service of one node: which method, how often, for which caller.
#[derive(Clone, Default)]
struct Record(Arc<Mutex<Vec<(Method, Caller)>>>);

impl Record {
    fn service(&self) -> Service {
        let record = self.clone();
        Service::default().observed_by(Arc::new(move |caller: &Caller, method| {
            record.0.lock().unwrap().push((method, caller.clone()));
        }))
    }

    /// And forgets it. What the node does of its own accord is left out.
    fn take(&self) -> BTreeMap<Method, Vec<Caller>> {
        let mut passed: BTreeMap<Method, Vec<Caller>> = BTreeMap::new();
        for (method, caller) in self.0.lock().unwrap().drain(..) {
            if caller.on_behalf_of == OnBehalfOf::Anonymous {
                passed.entry(method).or_default().push(caller);
            }
        }
        passed
    }

    /// For whichever caller.
    fn passed_on(&self, protocol: Protocol) -> Vec<(Method, Caller)> {
        let passed = self.0.lock().unwrap();
        passed.iter().filter(|(_, caller)| caller.protocol == protocol).cloned().collect()
    }
}

struct Observed {
    cluster: Cluster,
    records: Vec<Record>,
    leader: usize,
    follower: usize,
}

impl Observed {
    async fn start() -> Observed {
        let records: Vec<Record> = (0..3).map(|_| Record::default()).collect();
        let of = |config: &holdfast_server::NodeConfig| config.node_id().0 as usize - 1;
        let cluster =
            Cluster::start_observed(3, |_| (), |config| records[of(config)].service()).await;
        let leader = cluster.leader(0).await;
        // Nodes forward to the leader once they have a ticket of it.
        let follower = (leader + 1) % 3;
        eventually("the follower reaches the leader", async || {
            let status = v1::StatusRequest { name: "any".into(), request_id: 0 };
            cluster.client(follower).await.status(status).await.ok()
        })
        .await;
        let observed = Observed { cluster, records, leader, follower };
        observed.forget();
        observed
    }

    fn forget(&self) {
        self.records.iter().for_each(|record| drop(record.take()));
    }

    /// Each of the methods passed at this node, once, for a client that is connected here.
    fn assert_passed_once(&self, node: usize, methods: &BTreeSet<Method>, protocol: Protocol) {
        let passed = self.records[node].take();
        let seen: BTreeSet<Method> = passed.keys().copied().collect();
        assert_eq!(&seen, methods, "at node {}", node + 1);
        let caller = Caller::client(protocol, Some(LOOPBACK));
        for (method, callers) in passed {
            assert_eq!(callers, std::slice::from_ref(&caller), "{method:?} at node {}", node + 1);
        }
    }

    /// The follower sent each of them to the leader, once, with its caller.
    fn assert_forwarded_once(&self, methods: &BTreeSet<Method>, protocol: Protocol) {
        let passed = self.records[self.leader].take();
        let seen: BTreeSet<Method> = passed.keys().copied().collect();
        assert_eq!(&seen, methods);
        let by = self.follower as u64 + 1;
        let caller = Caller::client(protocol, Some(LOOPBACK)).forwarded_from(Some(by));
        for (method, callers) in passed {
            assert_eq!(callers, std::slice::from_ref(&caller), "{method:?}");
        }
    }
}

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn methods(of: impl Fn(Method) -> bool) -> BTreeSet<Method> {
    Method::ALL.iter().copied().filter(|method| of(*method)).collect()
}

fn is_grpc(method: Method) -> bool {
    matches!(method.row().front, Front::Grpc(_))
}

/// A cluster that asks no caller who it is has no administrators: the service lets none of these pass.
fn is_for_admins(method: Method) -> bool {
    method.row().verb == Verb::Access
}

fn goes_to_leader(method: Method) -> bool {
    method.row().carried_out_by != CarriedOutBy::ThisNode
}

/// What passes when a stream is opened, or resumed, and carries every operation.
fn of_stream(first: Method) -> BTreeSet<Method> {
    let operations = every_operation(&Names::WALLET).into_iter().map(|kind| {
        let operation = v1::Operation { kind: Some(kind) };
        Method::of_operation(&plain::BorrowedOperation::Message(operation)).unwrap()
    });
    operations.chain([Method::Session, first]).collect()
}

fn open(session_id: &str) -> operation::Kind {
    let session_id = session_id.to_owned();
    operation::Kind::Open(v1::OpenSessionRequest {
        session_id,
        request_id: 1,
        ..Default::default()
    })
}

fn resume(session_id: &str) -> operation::Kind {
    let session_id = session_id.to_owned();
    operation::Kind::Resume(v1::ResumeSessionRequest {
        session_id,
        request_id: 100,
        ..Default::default()
    })
}

fn frame(kinds: Vec<operation::Kind>) -> v1::ClientFrame {
    let operations = kinds.into_iter().map(|kind| v1::Operation { kind: Some(kind) }).collect();
    v1::ClientFrame { operations, acked_through: 0 }
}

/// Begins a framed connection with this, sends every operation, and waits for as many answers.
async fn talk_framed(address: &str, first: operation::Kind) {
    const BYTES_MAX: usize = 16 << 20;
    let mut socket = TcpStream::connect(address).await.unwrap();
    let mut bytes = GREETING.to_vec();
    plain::put(&mut bytes, plain::FRAME, &frame(vec![first]), BYTES_MAX);
    plain::put(&mut bytes, plain::FRAME, &frame(every_operation(&Names::WALLET)), BYTES_MAX);
    socket.write_all(&bytes).await.unwrap();
    timeout(PATIENCE, socket.read_exact(&mut [0; GREETING.len()])).await.unwrap().unwrap();
    let (mut pieces, mut answers) = (Pieces::new(BYTES_MAX), 0);
    while answers < every_operation(&Names::WALLET).len() + 1 {
        match pieces.next_piece().unwrap() {
            Some(piece) if piece.kind == plain::FRAME => {
                answers += v1::ServerFrame::decode(&piece.message[..]).unwrap().answers.len();
            }
            Some(piece) => panic!("{:?}", Failure::decode(&piece.message[..])),
            None => {
                let read = timeout(PATIENCE, socket.read_buf(pieces.room())).await;
                assert!(read.expect("no answer in time").unwrap() > 0, "the stream ended");
            }
        }
    }
}

async fn talk_grpc(observed: &Observed, node: usize, session: &str, first: operation::Kind) {
    let mut client = observed.cluster.client(node).await;
    let mut stream = OnStream::begin(&mut client, session.to_owned(), first).await;
    stream.send(every_operation(&Names::WALLET)).await;
    let mut answers = 0;
    while answers < every_operation(&Names::WALLET).len() + 1 {
        answers += stream.next().await.unwrap().answers.len();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_grpc_method_passes_the_service_of_the_leader() {
    let observed = Observed::start().await;
    call_everything(&observed.cluster.address(observed.leader), None).await;
    let all =
        methods(|method| is_grpc(method) && method != Method::Session && !is_for_admins(method));
    observed.assert_passed_once(observed.leader, &all, Protocol::Grpc);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_grpc_method_at_a_follower_passes_its_service_and_once_that_of_the_leader() {
    let observed = Observed::start().await;
    call_everything(&observed.cluster.address(observed.follower), None).await;
    let all =
        methods(|method| is_grpc(method) && method != Method::Session && !is_for_admins(method));
    observed.assert_passed_once(observed.follower, &all, Protocol::Grpc);
    let forwarded = all.into_iter().filter(|method| goes_to_leader(*method)).collect();
    observed.assert_forwarded_once(&forwarded, Protocol::Grpc);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_operation_of_a_stream_passes_the_service_wherever_it_comes_in() {
    let observed = Observed::start().await;
    for node in [observed.leader, observed.follower] {
        let address = observed.cluster.address(node);
        for is_resumed in [false, true] {
            for protocol in [Protocol::Framed, Protocol::Grpc] {
                let (session, first, method) = if is_resumed {
                    let mut client = observed.cluster.client(observed.leader).await;
                    let session = support::open(&mut client, 30_000).await;
                    (session.clone(), resume(&session), Method::ResumeSession)
                } else {
                    let session = new_session();
                    (session.clone(), open(&session), Method::OpenSession)
                };
                observed.forget();
                match protocol {
                    Protocol::Framed => talk_framed(&address, first).await,
                    _ => talk_grpc(&observed, node, &session, first).await,
                }
                let all = of_stream(method);
                if node == observed.follower {
                    observed.assert_forwarded_once(&all, protocol);
                }
                observed.assert_passed_once(node, &all, protocol);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_route_of_the_http_port_passes_the_service() {
    let observed = Observed::start().await;
    for node in [observed.leader, observed.follower] {
        let address = observed.cluster.http_address(node);
        for method in methods(|method| matches!(method.row().front, Front::Http(_))) {
            let Front::Http(route) = method.row().front else { unreachable!() };
            let path = route.replace("{file}", "style.css").replace("{action}", "break");
            observed.forget();
            let is_stream = matches!(method, Method::HttpLive | Method::HttpEvents);
            if is_stream {
                assert_eq!(http_status(&address, &path, "").await, 200, "{path}");
            } else {
                let (code, body) = http_get(&address, &path).await;
                assert_ne!((code, &*body), (403, ""), "{path}");
            }
            let passed = observed.records[node].take();
            let caller = Caller::client(Protocol::Http, Some(LOOPBACK));
            assert!(passed.contains_key(&method), "{path}: {passed:?}");
            // What the page then asked for passed as the same caller.
            assert!(
                passed.values().flatten().all(|passed| *passed == caller),
                "{path}: {passed:?}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_ask_for_locks_as_their_caller() {
    let observed = Observed::start().await;
    let address = observed.cluster.http_address(observed.follower);
    assert_eq!(http_get(&address, "/api/lock?name=wallet").await.0, 200);
    let asked = [Method::HttpLock, Method::Why].into_iter().collect();
    observed.assert_passed_once(observed.follower, &asked, Protocol::Http);
    observed.assert_forwarded_once(&[Method::Why].into_iter().collect(), Protocol::Http);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_identity_that_a_client_claims_is_refused_and_nothing_is_done() {
    let observed = Observed::start().await;
    let leader = observed.cluster.address(observed.leader);
    for header in [("holdfast-forwarded-by", "2"), ("holdfast-principal", "node:2")] {
        for node in [observed.leader, observed.follower] {
            let address = observed.cluster.address(node);
            let failures = call_everything(&address, Some(header)).await;
            let refused: BTreeSet<Method> = failures.iter().map(|(method, _)| *method).collect();
            assert_eq!(refused, methods(|method| is_grpc(method) && method != Method::Session));
            for (method, status) in failures {
                let failure = Failure::from_status(&status);
                assert_eq!(failure.reason(), Reason::NotLeader, "{method:?}: {status:?}");
                assert!(failure.message.contains(header.0), "{}", failure.message);
                assert!(!failure.may_have_happened && failure.leader == leader, "{failure:?}");
            }
            let mut client = observed.cluster.client(node).await;
            let frames = tokio_stream::once(frame(vec![open(&new_session())]));
            let status = client.session(with(frames, Some(header))).await.unwrap_err();
            assert_eq!(Failure::from_status(&status).reason(), Reason::NotLeader);
        }
    }
    for record in &observed.records {
        assert_eq!(record.take(), BTreeMap::new());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_identity_claimed_on_the_http_port_is_refused_and_nothing_passes_the_service() {
    let observed = Observed::start().await;
    for header in ["holdfast-forwarded-by: 2", "holdfast-principal: node:2"] {
        for node in [observed.leader, observed.follower] {
            let address = observed.cluster.http_address(node);
            for method in Method::ALL {
                let Front::Http(route) = method.row().front else { continue };
                let path = route.replace("{file}", "style.css").replace("{action}", "break");
                let verb = match method {
                    Method::HttpLogin | Method::HttpLogout | Method::HttpAction => "POST",
                    _ => "GET",
                };
                let headers = format!("{header}\r\n");
                let (code, body) = http_request(&address, verb, &path, &headers, "").await;
                let (name, _) = header.split_once(':').unwrap();
                assert!(code == 400 && body.contains(name), "{path}: {code} {body}");
            }
        }
    }
    for record in &observed.records {
        let passed = record.passed_on(Protocol::Http);
        assert!(passed.is_empty(), "{passed:?}");
    }
}

#[test]
fn the_table_has_every_method_that_is_served_and_no_other() {
    let descriptors = [
        holdfast_proto::FILE_DESCRIPTOR_SET,
        tonic_health::pb::FILE_DESCRIPTOR_SET,
        tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET,
    ];
    let mut served = BTreeSet::new();
    for descriptors in descriptors {
        let set = prost_types::FileDescriptorSet::decode(descriptors).unwrap();
        for file in &set.file {
            for service in &file.service {
                served.extend(service.method.iter().map(|method| {
                    format!("/{}.{}/{}", file.package(), service.name(), method.name())
                }));
            }
        }
    }
    let table = Method::ALL.iter().filter_map(|method| method.path()).map(str::to_owned).collect();
    assert_eq!(served, table);
}

#[test]
fn every_operation_of_the_descriptors_is_tried() {
    let set = prost_types::FileDescriptorSet::decode(holdfast_proto::FILE_DESCRIPTOR_SET).unwrap();
    let messages = set.file.iter().flat_map(|file| &file.message_type);
    let operation = messages.into_iter().find(|message| message.name() == "Operation").unwrap();
    // Besides those after the opening: open and resume.
    assert_eq!(operation.field.len(), every_operation(&Names::WALLET).len() + 2);
    assert_eq!(of_stream(Method::OpenSession).len(), operation.field.len());
    assert!(Method::ALL.iter().any(|method| method.row().kind == Kind::SessionStream));
}
