//! A node that does what the test says, frame by frame.

use std::pin::Pin;
use std::time::Duration;

use holdfast_proto::v1::answer::Result as AnswerResult;
use holdfast_proto::v1::lock_service_server::{LockService, LockServiceServer};
use holdfast_proto::v1::operation::Kind;
use holdfast_proto::v1::*;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::transport::Server;
use tonic::{Request, Response, Status, Streaming};

const PATIENCE: Duration = Duration::from_secs(10);
const FRAME_BYTES_MAX: usize = 16 * 1024 * 1024;

pub(crate) struct FakeNode {
    pub(crate) address: String,
    streams: mpsc::UnboundedReceiver<ServedStream>,
}

pub(crate) struct ServedStream {
    from_client: Streaming<ClientFrame>,
    to_client: mpsc::Sender<Result<ServerFrame, Status>>,
}

impl FakeNode {
    pub(crate) async fn start() -> FakeNode {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (accepted, streams) = mpsc::unbounded_channel();
        let service =
            LockServiceServer::new(Accept { accepted }).max_encoding_message_size(FRAME_BYTES_MAX);
        let serving = Server::builder()
            .add_service(service)
            .serve_with_incoming(TcpListenerStream::new(listener));
        tokio::spawn(serving);
        FakeNode { address, streams }
    }

    pub(crate) async fn next_stream(&mut self) -> ServedStream {
        timeout(PATIENCE, self.streams.recv()).await.expect("a stream in time").unwrap()
    }

    /// The next stream, after its hello was answered.
    pub(crate) async fn welcome(&mut self) -> ServedStream {
        self.welcome_for(30_000).await
    }

    pub(crate) async fn welcome_for(&mut self, ttl_ms: u64) -> ServedStream {
        self.welcome_with(OpenSessionResponse { ttl_ms, linger_ms: ttl_ms, ..Default::default() })
            .await
    }

    /// As a node that passes on what it is sent.
    pub(crate) async fn welcome_on_behalf_of(&mut self, leader: &str) -> ServedStream {
        let (ttl_ms, leader) = (30_000, leader.to_owned());
        self.welcome_with(OpenSessionResponse {
            ttl_ms,
            linger_ms: ttl_ms,
            leader,
            ..Default::default()
        })
        .await
    }

    async fn welcome_with(&mut self, welcome: OpenSessionResponse) -> ServedStream {
        self.welcome_telling(welcome).await.0
    }

    /// The next stream, and its hello, which this was the answer to.
    pub(crate) async fn welcome_telling(
        &mut self,
        welcome: OpenSessionResponse,
    ) -> (ServedStream, Kind) {
        let mut stream = self.next_stream().await;
        let hello = stream.next_frame().await.expect("a hello");
        let hello = hello.operations[0].kind.clone().unwrap();
        match &hello {
            Kind::Open(open) => stream.answer(open.request_id, AnswerResult::Open(welcome)).await,
            Kind::Resume(resume) => {
                stream.answer(resume.request_id, AnswerResult::Resume(welcome)).await;
            }
            other => panic!("not a hello: {other:?}"),
        }
        (stream, hello)
    }
}

impl ServedStream {
    /// None when the client has ended its side cleanly.
    pub(crate) async fn next_frame(&mut self) -> Option<ClientFrame> {
        let frame = timeout(PATIENCE, self.from_client.message()).await.expect("a frame in time");
        frame.expect("a stream that is not broken")
    }

    /// The next operation, which has to be an acquire, and the mark that came with it.
    pub(crate) async fn next_acquire(&mut self) -> (AcquireRequest, u64) {
        let frame = self.next_frame().await.expect("a frame");
        match frame.operations[0].kind.clone().unwrap() {
            Kind::Acquire(acquire) => (acquire, frame.acked_through),
            other => panic!("not an acquire: {other:?}"),
        }
    }

    pub(crate) async fn send(&mut self, frame: ServerFrame) {
        self.to_client.send(Ok(frame)).await.unwrap();
    }

    pub(crate) async fn answer(&mut self, request_id: u64, result: AnswerResult) {
        let answers = vec![Answer { request_id, result: Some(result) }];
        self.send(ServerFrame { answers, notices: Vec::new() }).await;
    }

    /// Refused for now.
    pub(crate) async fn send_back(&mut self, request_id: u64, reason: Reason) {
        let failure = Failure { reason: reason.into(), retryable: true, ..Default::default() };
        self.answer(request_id, AnswerResult::Failure(failure)).await;
    }

    pub(crate) async fn queued(&mut self, request_id: u64) {
        let kind = Some(notice::Kind::Queued(Queued { request_id, position: 1 }));
        self.send(ServerFrame { answers: Vec::new(), notices: vec![Notice { kind }] }).await;
    }
}

pub(crate) fn granted(token: u64) -> AnswerResult {
    let guarantee = Guarantee::Linearizable.into();
    let grant = Grant { name: "a".into(), token, guarantee, ..Default::default() };
    let outcome = Some(acquire_response::Outcome::Granted(grant));
    AnswerResult::Acquire(AcquireResponse { outcome, ..Default::default() })
}

struct Accept {
    accepted: mpsc::UnboundedSender<ServedStream>,
}

macro_rules! unary_calls_are_not_served {
    ($($name:ident: $request:ty => $response:ty),* $(,)?) => {
        #[tonic::async_trait]
        impl LockService for Accept {
            type SessionStream = Pin<Box<ReceiverStream<Result<ServerFrame, Status>>>>;

            async fn session(
                &self,
                request: Request<Streaming<ClientFrame>>,
            ) -> Result<Response<Self::SessionStream>, Status> {
                let (to_client, frames) = mpsc::channel(16);
                let from_client = request.into_inner();
                let _ = self.accepted.send(ServedStream { from_client, to_client });
                Ok(Response::new(Box::pin(ReceiverStream::new(frames))))
            }

            $(async fn $name(&self, _: Request<$request>) -> Result<Response<$response>, Status> {
                Err(Status::unimplemented("a fake"))
            })*
        }
    };
}

unary_calls_are_not_served! {
    open_session: OpenSessionRequest => OpenSessionResponse,
    keep_alive: KeepAliveRequest => KeepAliveResponse,
    keep_alive_many: KeepAliveManyRequest => KeepAliveManyResponse,
    close_session: CloseSessionRequest => CloseSessionResponse,
    acquire: AcquireRequest => AcquireResponse,
    acquire_all: AcquireAllRequest => AcquireResponse,
    convert: ConvertRequest => AcquireResponse,
    proclaim: ProclaimRequest => ProclaimResponse,
    transfer: TransferRequest => TransferResponse,
    cancel: CancelRequest => CancelResponse,
    release: ReleaseRequest => ReleaseResponse,
    renew: RenewRequest => RenewResponse,
    status: StatusRequest => StatusResponse,
    list: ListRequest => ListResponse,
    list_sessions: ListSessionsRequest => ListSessionsResponse,
    cluster_status: ClusterStatusRequest => ClusterStatusResponse,
    why: WhyRequest => WhyResponse,
    check_token: CheckTokenRequest => CheckTokenResponse,
}
