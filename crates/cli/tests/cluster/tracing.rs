//! Spans, as a receiver of OpenTelemetry's protocol gets them: whose child each is, and at whom it points.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use holdfast_client::Client;
use holdfast_tls::{ALPN_GRPC, TrustFiles, load_identity, receive_hello, server_config};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

use crate::support::{Cluster, ClusterOptions, eventually, holdfast, output, words};
use crate::tls_cluster::done;

const LONG: Duration = Duration::from_secs(30);
const ALICE: &str = "00-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa-a1a1a1a1a1a1a1a1-01";
const BOB: &str = "00-bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb-b2b2b2b2b2b2b2b2-01";
const CAROL: &str = "00-cccccccccccccccccccccccccccccccc-c3c3c3c3c3c3c3c3-01";
const UNSAMPLED: &str = "00-dddddddddddddddddddddddddddddddd-d4d4d4d4d4d4d4d4-00";

/// A span, and what sent it.
#[derive(Clone, Debug)]
struct Received {
    service: String,
    span: Span,
}

#[derive(Clone, Debug, Default)]
struct Receiver {
    received: Arc<Mutex<Vec<Received>>>,
}

#[tonic::async_trait]
impl TraceService for Receiver {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        for resource_spans in request.into_inner().resource_spans {
            let resource = resource_spans.resource.unwrap_or_default();
            let service = text_of(&resource.attributes, "service.name");
            let spans = resource_spans.scope_spans.into_iter().flat_map(|scope| scope.spans);
            let spans = spans.map(|span| Received { service: service.clone(), span });
            self.received.lock().unwrap().extend(spans);
        }
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Receiver {
    /// On a port of its own, whose address it tells.
    fn start() -> (Receiver, String) {
        let receiver = Receiver::default();
        let incoming = TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = format!("http://{}", incoming.local_addr().unwrap());
        let service = TraceServiceServer::new(receiver.clone());
        let server = tonic::transport::Server::builder().add_service(service);
        tokio::spawn(server.serve_with_incoming(incoming));
        (receiver, address)
    }

    fn all(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }

    /// The span of this service that is a child of that one.
    async fn child_of(&self, service: &str, parent: &str) -> Span {
        let what = format!("a child of {parent}");
        let found = eventually(&what, LONG, || async {
            self.all().into_iter().find(|received| {
                received.service == service && parent_of(&received.span) == parent[3..52]
            })
        });
        found.await.span
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Trace and parent, as a traceparent has them.
fn parent_of(span: &Span) -> String {
    format!("{}-{}", hex(&span.trace_id), hex(&span.parent_span_id))
}

fn name_of(span: &Span) -> String {
    format!("00-{}-{}-01", hex(&span.trace_id), hex(&span.span_id))
}

fn stages(span: &Span) -> Vec<&str> {
    span.events.iter().map(|event| event.name.as_str()).collect()
}

/// At which spans it points.
fn links(span: &Span) -> Vec<String> {
    let link = |trace: &[u8], span: &[u8]| format!("00-{}-{}-01", hex(trace), hex(span));
    span.links.iter().map(|other| link(&other.trace_id, &other.span_id)).collect()
}

fn text_of(attributes: &[KeyValue], key: &str) -> String {
    let found = attributes.iter().find(|attribute| attribute.key == key);
    match found.and_then(|attribute| attribute.value.clone()) {
        Some(AnyValue { value: Some(Value::StringValue(text)) }) => text,
        Some(AnyValue { value: Some(Value::IntValue(number)) }) => number.to_string(),
        _ => String::new(),
    }
}

async fn traced_cluster() -> (Cluster, Receiver, String) {
    let (receiver, address) = Receiver::start();
    let settings = format!("[tracing]\nendpoint = \"{address}\"\n");
    let cluster = Cluster::start_with(ClusterOptions { nodes: 3, settings }).await;
    (cluster, receiver, address)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_span_of_the_leader_is_the_clients_child_and_points_at_who_was_in_its_way() {
    let (cluster, receiver, _) = traced_cluster().await;
    let alice = cluster.library().await;
    // By the hook of the library, and at a node that may have to pass it on.
    let follower = cluster.follower().await;
    let bob = Client::builder()
        .traceparent(|| Some(BOB.to_owned()))
        .without_discovery()
        .connect(&cluster.client_address(follower))
        .await
        .unwrap();
    let held = alice.lock("traced").traceparent(ALICE).acquire().await.unwrap();
    let token = held.token().unwrap();
    let (queued, when_queued) = oneshot::channel();
    let request = bob.lock("traced").wait(LONG).on_queued(|_| queued.send(()).unwrap());
    let waiting = tokio::spawn(request.acquire());
    when_queued.await.unwrap();
    let busy = alice.lock("traced").traceparent(CAROL).acquire().await;
    assert!(busy.is_err(), "it is held");
    // These leave nothing: no client asked for it, it is not sampled, it makes no sense.
    for parent in ["", UNSAMPLED, "nonsense"] {
        let guard = alice.lock("untraced").traceparent(parent).acquire().await.unwrap();
        guard.release().await.unwrap();
    }
    held.release().await.unwrap();
    let next = waiting.await.unwrap().unwrap();
    next.release().await.unwrap();

    let holder = receiver.child_of("holdfast", ALICE).await;
    assert_eq!((holder.name.as_str(), holder.kind()), ("holdfast.acquire", SpanKind::Server));
    assert_eq!(stages(&holder), ["proposed", "granted"]);
    assert_eq!(text_of(&holder.attributes, "holdfast.lock"), "traced");
    assert_eq!(text_of(&holder.attributes, "holdfast.token"), token.to_string());
    assert!(links(&holder).is_empty(), "no client was in its way: {holder:?}");

    let waiter = receiver.child_of("holdfast", BOB).await;
    assert_eq!(stages(&waiter), ["proposed", "queued", "granted"]);
    assert_eq!(links(&waiter), [name_of(&holder)]);
    assert!(waiter.end_time_unix_nano > holder.end_time_unix_nano, "it waited for the holder");

    let refused = receiver.child_of("holdfast", CAROL).await;
    assert_eq!(text_of(&refused.attributes, "holdfast.outcome"), "busy");
    assert_eq!(links(&refused), [name_of(&holder)]);
    let all = receiver.all();
    assert_eq!(all.len(), 3, "{all:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_record_their_acquires_and_belong_to_the_span_around_them() {
    let (cluster, receiver, address) = traced_cluster().await;
    let run = async |args: &[&str], parent: &str| {
        let mut command = holdfast();
        command.args(args).env("HOLDFAST_ENDPOINTS", cluster.endpoints());
        command.env("OTEL_EXPORTER_OTLP_ENDPOINT", &address).env("TRACEPARENT", parent);
        let ended = output(command).await;
        assert!(ended.status.success(), "{ended:?}");
    };
    run(&["lock", "command", "--", "true"], ALICE).await;
    run(&["acquire", "script"], BOB).await;
    for (parent, lock) in [(ALICE, "command"), (BOB, "script")] {
        let client = receiver.child_of("holdfast-cli", parent).await;
        assert_eq!((client.name.as_str(), client.kind()), ("acquire", SpanKind::Client));
        assert_eq!(text_of(&client.attributes, "holdfast.lock"), lock);
        let server = receiver.child_of("holdfast", &name_of(&client)).await;
        assert_eq!(stages(&server), ["proposed", "granted"]);
        assert!(server.start_time_unix_nano >= client.start_time_unix_nano, "{server:?}");
    }
}

/// In front of a receiver. It speaks TLS, and wants a certificate.
async fn encrypt(plain: &str, certs: &Path) -> String {
    let identity = load_identity(&certs.join("node-1.pem"), &certs.join("node-1-key.pem"));
    let trust = TrustFiles::load(&certs.join("ca.pem"), None).unwrap();
    let config = server_config(&identity.unwrap(), "spans", Some(trust), &[ALPN_GRPC]).unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("https://{}", listener.local_addr().unwrap());
    let plain = plain.strip_prefix("http://").unwrap().to_owned();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let (config, plain) = (Arc::clone(&config), plain.clone());
            tokio::spawn(async move {
                let hello = receive_hello(socket).await?;
                let mut outside = hello.answer(config).finish().await?;
                if outside.remote_certificate().is_none() {
                    return Ok(());
                }
                let mut inside = TcpStream::connect(plain).await?;
                tokio::io::copy_bidirectional(&mut outside, &mut inside).await?;
                std::io::Result::Ok(())
            });
        }
    });
    address
}

/// An authority, a receiver's certificate and a client's.
async fn certificates(dir: &Path, name: &str) -> PathBuf {
    let certs = dir.join(name);
    let to = certs.to_str().unwrap();
    done(&["cert", "ca", "--cluster", "spans", "--dir", to]).await;
    done(&["cert", "node", "--id", "1", "--host", "127.0.0.1", "--dir", to]).await;
    done(&["cert", "client", "nodes", "--dir", to]).await;
    certs
}

fn with_tls(endpoint: &str, ca: &Path, own: Option<&Path>) -> ClusterOptions {
    let own = own.map(|own| own.display()).map(|own| {
        format!("cert = \"{own}/client-nodes.pem\"\nkey = \"{own}/client-nodes-key.pem\"\n")
    });
    let settings = format!(
        "[tracing]\nendpoint = \"{endpoint}\"\n[tracing.tls]\nca = \"{}/ca.pem\"\n{}",
        ca.display(),
        own.unwrap_or_default()
    );
    ClusterOptions { nodes: 1, settings }
}

#[tokio::test(flavor = "multi_thread")]
async fn spans_travel_by_tls_to_a_receiver_with_the_right_certificate_and_to_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let (certs, others) =
        (certificates(dir.path(), "certs").await, certificates(dir.path(), "others").await);
    let (receiver, plain) = Receiver::start();
    let endpoint = encrypt(&plain, &certs).await;

    let cluster = Cluster::start_with(with_tls(&endpoint, &certs, Some(&certs))).await;
    let mut command = holdfast();
    command.args(["lock", "traced", "--", "true"]);
    command.env("HOLDFAST_ENDPOINTS", cluster.endpoints()).env("TRACEPARENT", ALICE);
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint);
    command.env("OTEL_EXPORTER_OTLP_CERTIFICATE", certs.join("ca.pem"));
    command.env("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", certs.join("client-nodes.pem"));
    command.env("OTEL_EXPORTER_OTLP_CLIENT_KEY", certs.join("client-nodes-key.pem"));
    let ended = output(command).await;
    assert!(ended.status.success(), "{ended:?}");
    let client = receiver.child_of("holdfast-cli", ALICE).await;
    receiver.child_of("holdfast", &name_of(&client)).await;
    let received = receiver.all().len();

    for (ca, own, reason) in [
        (&others, Some(&certs), "an authority that is not trusted here"),
        (&certs, Some(&others), "an authority that is not trusted there"),
    ] {
        let cluster = Cluster::start_with(with_tls(&endpoint, ca, own.map(PathBuf::as_path))).await;
        let alice = cluster.library().await;
        let held = alice.lock("traced").traceparent(BOB).acquire().await.unwrap();
        held.release().await.unwrap();
        eventually("the log says why spans are not received", LONG, || {
            let log = cluster.log_of(1);
            let is_told =
                |line: &str| line.contains("spans are not received") && line.contains(reason);
            std::future::ready(log.lines().any(is_told).then_some(()))
        })
        .await;
        words(&cluster, 0, &["lock", "afterwards", "--", "true"]).await;
    }
    assert_eq!(receiver.all().len(), received, "nothing went to a receiver that is not trusted");
}
