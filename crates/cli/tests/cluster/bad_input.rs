//! Whatever a client sends: it is told what is wrong, nothing enters the log, the node keeps serving.

use std::time::Duration;

use holdfast_proto::v1::{
    AcquireRequest, CancelRequest, ClientFrame, KeepAliveRequest, ListRequest, ListSessionsRequest,
    OpenSessionRequest, Operation, Owner, ReleaseRequest, RenewRequest, StatusRequest,
    operation::Kind,
};
use tonic::{Code, Status};

use crate::support::{Cluster, PlainSession, call_with_bytes, hold};

const DAY_MS: u64 = 24 * 60 * 60 * 1_000;

pub(crate) fn reason(status: &Status) -> String {
    let reason = status.metadata().get("holdfast-reason");
    reason.map(|reason| reason.to_str().unwrap().to_owned()).unwrap_or_default()
}

/// A cluster with one session that holds one lock, and the log index before anything bad came.
pub(crate) struct HeldLock {
    pub(crate) cluster: Cluster,
    pub(crate) session: PlainSession,
    pub(crate) token: u64,
    log_index: u64,
}

impl HeldLock {
    pub(crate) async fn start() -> HeldLock {
        let cluster = Cluster::start(3).await;
        let leader = cluster.leader().await;
        let session = cluster.client_of(leader).open(Duration::from_secs(300)).await;
        let token = hold(&session, "held").await.token;
        cluster.converged().await;
        let log_index = cluster.view_of(leader).await.unwrap().commit_index;
        HeldLock { cluster, session, token, log_index }
    }

    /// A good acquire, to be spoiled.
    pub(crate) fn acquire(&self) -> AcquireRequest {
        AcquireRequest {
            session_id: self.session.id.clone(),
            request_id: 1_000,
            name: "good".into(),
            ..AcquireRequest::default()
        }
    }

    fn release(&self) -> ReleaseRequest {
        ReleaseRequest {
            session_id: self.session.id.clone(),
            request_id: 1_001,
            name: "held".into(),
            token: self.token,
            ..ReleaseRequest::default()
        }
    }

    fn renew(&self) -> RenewRequest {
        RenewRequest {
            session_id: self.session.id.clone(),
            request_id: 1_002,
            name: "held".into(),
            token: self.token,
            ttl_ms: Some(1_000),
            ..RenewRequest::default()
        }
    }

    fn open(&self) -> OpenSessionRequest {
        let session_id = "0123456789abcdef".repeat(2);
        OpenSessionRequest { session_id, ttl_ms: 1_000, ..OpenSessionRequest::default() }
    }

    /// Nothing was written, and everything still works.
    pub(crate) async fn check(self) {
        for id in self.cluster.ids() {
            let view = self.cluster.view_of(id).await.unwrap();
            assert_eq!(view.commit_index, self.log_index, "node {id} wrote something");
        }
        self.session.release("held", self.token).await.unwrap();
        hold(&self.session, "held").await;
    }
}

macro_rules! refused {
    ($fixture:ident, $method:ident, $request:expr, $reason:literal, $says:literal) => {{
        for id in $fixture.cluster.ids() {
            let mut stub = $fixture.cluster.client_of(id).stub();
            let status = stub.$method($request).await.expect_err(stringify!($request));
            assert_eq!(status.code(), Code::InvalidArgument, "{}: {status}", stringify!($request));
            assert_eq!(reason(&status), $reason, "{}: {status}", stringify!($request));
            assert!(status.message().contains($says), "{}", status.message());
        }
    }};
}

#[tokio::test(flavor = "multi_thread")]
async fn names_ttls_tokens_and_ids_that_cannot_be_are_refused_with_words() {
    let fixture = HeldLock::start().await;
    let acquire = || fixture.acquire();

    let named = |name: &str| AcquireRequest { name: name.into(), ..acquire() };
    refused!(fixture, acquire, named(""), "invalid_name", "must not be empty");
    refused!(fixture, acquire, named(&"x".repeat(513)), "invalid_name", "at most 512 bytes");
    refused!(fixture, acquire, named("a\nb"), "invalid_name", "control characters");
    refused!(fixture, acquire, named("a\u{0}"), "invalid_name", "control characters");
    refused!(
        fixture,
        status,
        StatusRequest { name: "\u{7}".into(), request_id: 0 },
        "invalid_name",
        "control"
    );
    let release = || fixture.release();
    let unnamed = || ReleaseRequest { name: String::new(), ..release() };
    refused!(fixture, release, unnamed(), "invalid_name", "must not be empty");

    let with_ttl = |ttl_ms| AcquireRequest { ttl_ms: Some(ttl_ms), ..acquire() };
    refused!(fixture, acquire, with_ttl(0), "invalid_ttl", "TTL");
    refused!(fixture, acquire, with_ttl(99), "invalid_ttl", "TTL");
    refused!(fixture, acquire, with_ttl(DAY_MS + 1), "invalid_ttl", "TTL");
    // What a client with a signed type sends for -1.
    refused!(fixture, acquire, with_ttl(u64::MAX), "invalid_ttl", "TTL");
    let max_hold = |max_hold_ms| AcquireRequest { max_hold_ms: Some(max_hold_ms), ..acquire() };
    refused!(fixture, acquire, max_hold(0), "invalid_ttl", "max-hold");
    refused!(fixture, acquire, max_hold(u64::MAX), "invalid_ttl", "max-hold");
    let waiting = |wait_ms| AcquireRequest { wait_ms, ..acquire() };
    refused!(fixture, acquire, waiting(DAY_MS + 1), "invalid_wait", "wait");
    refused!(fixture, acquire, waiting(u64::MAX), "invalid_wait", "wait");
    let renewed = |ttl_ms| RenewRequest { ttl_ms: Some(ttl_ms), ..fixture.renew() };
    refused!(fixture, renew, renewed(0), "invalid_ttl", "TTL");
    refused!(fixture, renew, renewed(u64::MAX), "invalid_ttl", "TTL");
    let open = |ttl_ms| OpenSessionRequest { ttl_ms, ..fixture.open() };
    refused!(fixture, open_session, open(1), "invalid_ttl", "TTL");
    refused!(fixture, open_session, open(u64::MAX), "invalid_ttl", "TTL");

    let token = |token| ReleaseRequest { token, ..release() };
    refused!(fixture, release, token(0), "invalid_token", "token");
    refused!(fixture, release, token(1 << 63), "invalid_token", "token");
    refused!(fixture, release, token(u64::MAX), "invalid_token", "token");
    let renewed = |token| RenewRequest { token, ..fixture.renew() };
    refused!(fixture, renew, renewed(0), "invalid_token", "token");

    let request = |request_id| AcquireRequest { request_id, ..acquire() };
    refused!(fixture, acquire, request(0), "invalid_request_id", "request id");
    let cancel = |target| CancelRequest {
        session_id: fixture.session.id.clone(),
        request_id: 1_003,
        target,
        ..CancelRequest::default()
    };
    refused!(fixture, cancel, cancel(0), "invalid_request_id", "request id");

    let session = |id: &str| AcquireRequest { session_id: id.into(), ..acquire() };
    refused!(fixture, acquire, session(""), "invalid_session_id", "session id");
    refused!(fixture, acquire, session("xyz"), "invalid_session_id", "session id");
    refused!(fixture, acquire, session(&"0".repeat(32)), "invalid_session_id", "session id");
    refused!(fixture, acquire, session(&"a".repeat(31)), "invalid_session_id", "session id");

    let mode = |mode| AcquireRequest { mode, ..acquire() };
    refused!(fixture, acquire, mode(99), "invalid_mode", "mode");
    refused!(fixture, acquire, mode(-1), "invalid_mode", "mode");
    let metadata = |bytes| AcquireRequest { metadata: vec![7; bytes], ..acquire() };
    refused!(fixture, acquire, metadata(1_025), "invalid_metadata", "1,024 bytes");
    let owner = |note: String| OpenSessionRequest {
        owner: Some(Owner { note, ..Owner::default() }),
        ..fixture.open()
    };
    refused!(fixture, open_session, owner("n".repeat(257)), "invalid_owner", "256 bytes");
    let page = |page_size| ListRequest { page_size, ..ListRequest::default() };
    refused!(fixture, list, page(1_001), "invalid_page", "at most 1000");
    let sessions = || ListSessionsRequest { page: "not hex".into(), page_size: 0 };
    refused!(fixture, list_sessions, sessions(), "invalid_page", "page");

    fixture.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_that_cannot_be_decoded_are_refused_with_words() {
    let fixture = HeldLock::start().await;
    let address = fixture.cluster.client_address(fixture.cluster.leader().await);
    let method = "/holdfast.v1.LockService/Acquire";

    // Field 4, the name, with two bytes that are not UTF-8.
    let not_utf8 = call_with_bytes(&address, method, vec![0x22, 2, 0xff, 0xfe]).await.unwrap_err();
    assert_eq!(not_utf8.code(), Code::InvalidArgument, "{not_utf8}");
    assert!(not_utf8.message().contains("UTF-8"), "{}", not_utf8.message());

    // Field 4, of which ten bytes are announced and one follows.
    let truncated = call_with_bytes(&address, method, vec![0x22, 10, b'a']).await.unwrap_err();
    assert_eq!(truncated.code(), Code::InvalidArgument, "{truncated}");

    let huge = call_with_bytes(&address, method, vec![0; 5 << 20]).await.unwrap_err();
    assert!(matches!(huge.code(), Code::OutOfRange | Code::ResourceExhausted), "{huge}");
    assert!(huge.message().contains("large"), "{}", huge.message());

    fixture.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_and_tokens_of_others_are_refused_by_the_lock_table() {
    let cluster = Cluster::start(3).await;
    let client = cluster.client();
    let owner = client.open(Duration::from_secs(60)).await;
    let stranger = client.open(Duration::from_secs(60)).await;
    let token = hold(&owner, "wallet").await.token;

    // A session that no client opened.
    let mut stub = client.stub();
    let unknown = "0123456789abcdef".repeat(2);
    let request = KeepAliveRequest { session_id: unknown, ..KeepAliveRequest::default() };
    let status = stub.keep_alive(request).await.unwrap_err();
    assert_eq!((status.code(), reason(&status).as_str()), (Code::NotFound, "unknown_session"));

    use holdfast_proto::v1::ReleaseOutcome::{AlreadyReleased, NotOwner, Released};
    assert_eq!(stranger.release("wallet", token).await.unwrap(), NotOwner);
    assert_eq!(stranger.release("wallet", token + 1).await.unwrap(), NotOwner);
    assert_eq!(stranger.release("wallet", (1 << 63) - 1).await.unwrap(), NotOwner);
    assert_eq!(client.status("wallet").await.holders[0].token, token);
    assert_eq!(owner.release("wallet", token).await.unwrap(), Released);
    let newer = hold(&stranger, "wallet").await.token;
    // Late, and under a token that is no longer current: it frees nothing.
    assert_eq!(owner.release("wallet", token).await.unwrap(), AlreadyReleased);
    assert_eq!(client.status("wallet").await.holders[0].token, newer);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_does_not_begin_with_a_session_is_refused() {
    let fixture = HeldLock::start().await;
    for id in fixture.cluster.ids() {
        let mut stub = fixture.cluster.client_of(id).stub();
        let kind = Some(Kind::KeepAlive(KeepAliveRequest::default()));
        let frame = ClientFrame { operations: vec![Operation { kind }], ..ClientFrame::default() };
        let answered = stub.session(tokio_stream::iter([frame])).await;
        let status = match answered {
            Err(status) => status,
            Ok(response) => response.into_inner().message().await.unwrap_err(),
        };
        assert_eq!(status.code(), Code::InvalidArgument, "{status}");
        assert_eq!(reason(&status), "invalid_frame");
    }
    fixture.check().await;
}
