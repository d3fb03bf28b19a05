//! Connections on the HTTP port.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use holdfast_tls::Socket;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tonic::codegen::Service;

use super::lost_clients;
use crate::connections::{
    Connection, Connections, OpenConnection, RequestBody, ResponseBody, Shape,
};
use crate::stopping::Stopping;
use crate::transport::{Accepted, ClientPort, Transport, refuse_with};

/// Answered however much else is asked for.
const PROBES: [&str; 3] = ["/healthz", "/readyz", "/metrics"];
/// Of the head of a request: its first line and all headers.
const HEAD_BYTES_MAX: usize = 32 * 1024;
const HEADERS_MAX: usize = 64;
/// To the first byte of a connection; and from there, or the end of the answer before, to the end of the head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// For one of the node's own answers.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// For what is under way when the node stops.
const STOP_TIMEOUT: Duration = Duration::from_millis(500);
/// So that a machine without file descriptors is not asked for one without pause.
const ACCEPT_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// To a browser that speaks plaintext to a port with TLS.
const PLAINTEXT_REFUSED: &str = "HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\ncontent-length: 36\r\n\
                                 connection: close\r\n\r\nthis port speaks TLS: use https://\r\n";

/// Serves until the node stops. `lost`: the answer to clients that speak gRPC.
pub(crate) async fn serve(
    listener: TcpListener,
    clients: Arc<Connections>,
    routes: Router,
    lost: Arc<str>,
    transport: Transport,
    stopping: Stopping,
) {
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
            () = stopping.begun() => break,
        };
        let (stream, address) = match accepted {
            Ok((stream, address)) => (stream, address.ip()),
            Err(error) => {
                tracing::warn!(%error, "a connection to the HTTP port could not be accepted");
                sleep(ACCEPT_AGAIN_AFTER).await;
                continue;
            }
        };
        let Some(open) = clients.admit(address).await else { continue };
        let (routes, lost, stopping) = (routes.clone(), Arc::clone(&lost), stopping.clone());
        let transport = transport.clone();
        connections.spawn(async move {
            let accepting = transport.accept_client(ClientPort::Http, stream, address);
            let accepted = tokio::select! {
                accepted = timeout(HEAD_TIMEOUT, accepting) => accepted,
                () = open.closing() => return,
                () = stopping.begun() => return,
            };
            match accepted {
                Ok(Ok(Accepted::Ready(Socket::Plain(stream)))) => {
                    match lost_clients::is_grpc(&stream, HEAD_TIMEOUT).await {
                        Some(true) => lost_clients::redirect(stream, lost).await,
                        Some(false) => {
                            serve_one(Socket::Plain(stream), open, routes, stopping).await;
                        }
                        None => {}
                    }
                }
                Ok(Ok(Accepted::Ready(socket))) => {
                    open.connection().set_certificate(socket.remote_certificate());
                    serve_one(socket, open, routes, stopping).await;
                }
                Ok(Ok(Accepted::Plaintext(stream))) => {
                    match lost_clients::is_grpc(&stream, HEAD_TIMEOUT).await {
                        Some(true) => lost_clients::redirect(stream, lost).await,
                        Some(false) => refuse_with(stream, PLAINTEXT_REFUSED.as_bytes()).await,
                        None => {}
                    }
                }
                Ok(Ok(Accepted::Refused) | Err(_)) | Err(_) => {}
            }
        });
    }
    drop(listener);
    let _ = timeout(STOP_TIMEOUT, async { while connections.join_next().await.is_some() {} }).await;
    connections.shutdown().await;
}

async fn serve_one(stream: Socket, open: OpenConnection, routes: Router, stopping: Stopping) {
    let of_requests = Arc::clone(open.connection());
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(Arc::clone(&of_requests));
        routes.clone().call(request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let served = tokio::select! {
        served = connection.as_mut() => served,
        () = open.closing() => Ok(()),
        () = stopping.begun() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = served {
        tracing::debug!(%error, "a connection to the HTTP port ended early");
    }
}

/// Counts each request for its connection, until its answer has ended.
pub(super) async fn count(request: Request, next: Next) -> Response {
    let Some(connection) = request.extensions().get::<Arc<Connection>>() else {
        return next.run(request).await;
    };
    let begun = if PROBES.contains(&request.uri().path()) {
        connection.begin_probe()
    } else {
        connection.begin_call()
    };
    let call = match begun {
        Ok(call) => call,
        Err(too_much) => {
            let words = format!("{too_much}; try again in a moment\n");
            return (StatusCode::SERVICE_UNAVAILABLE, words).into_response();
        }
    };
    let of_request = Arc::clone(&call);
    let request = request.map(|body| Body::new(RequestBody::new(body, of_request, Shape::Bytes)));
    let response = next.run(request).await;
    response.map(|body| Body::new(ResponseBody::new(body, call)))
}

/// Around the node's own answers.
pub(super) async fn in_time(request: Request, next: Next) -> Response {
    match timeout(ANSWER_TIMEOUT, next.run(request)).await {
        Ok(response) => response,
        Err(_) => (StatusCode::GATEWAY_TIMEOUT, "the answer took too long\n").into_response(),
    }
}
