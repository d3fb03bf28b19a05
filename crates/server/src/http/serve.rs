//! Connections on the HTTP port.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::lost_clients;
use crate::stopping::Stopping;

const CONNECTIONS_MAX: usize = 256;
/// Of the head of a request: its first line and all headers.
const HEAD_BYTES_MAX: usize = 32 * 1024;
const HEADERS_MAX: usize = 64;
/// To the first byte of a connection; and from there, or the end of the answer before, to the end of the head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// For one of the node's own answers.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// For what is under way when the node stops.
const STOP_TIMEOUT: Duration = Duration::from_millis(500);
/// So that a machine without file descriptors is not asked for one without pause.
const ACCEPT_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// Serves until the node stops. `lost`: what is said to whoever speaks gRPC.
pub(crate) async fn serve(
    listener: TcpListener,
    routes: Router,
    lost: Arc<str>,
    stopping: Stopping,
) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
            () = stopping.begun() => break,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "a connection to the HTTP port could not be accepted");
                sleep(ACCEPT_AGAIN_AFTER).await;
                continue;
            }
        };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            tracing::debug!("a connection to the HTTP port was closed: there are too many");
            continue;
        };
        let (routes, lost, stopping) = (routes.clone(), Arc::clone(&lost), stopping.clone());
        connections.spawn(async move {
            let is_grpc = tokio::select! {
                is_grpc = lost_clients::is_grpc(&stream, HEAD_TIMEOUT) => is_grpc,
                () = stopping.begun() => None,
            };
            match is_grpc {
                Some(true) => lost_clients::redirect(stream, lost).await,
                Some(false) => serve_one(stream, routes, stopping).await,
                None => {}
            }
            drop(place);
        });
    }
    drop(listener);
    let _ = timeout(STOP_TIMEOUT, async { while connections.join_next().await.is_some() {} }).await;
    connections.shutdown().await;
}

async fn serve_one(stream: TcpStream, routes: Router, stopping: Stopping) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes));
    let mut connection = std::pin::pin!(connection);
    let served = tokio::select! {
        served = connection.as_mut() => served,
        () = stopping.begun() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = served {
        tracing::debug!(%error, "a connection to the HTTP port ended early");
    }
}

/// Around the node's own answers.
pub(super) async fn in_time(request: Request, next: Next) -> Response {
    match timeout(ANSWER_TIMEOUT, next.run(request)).await {
        Ok(response) => response,
        Err(_) => (StatusCode::GATEWAY_TIMEOUT, "the answer took too long\n").into_response(),
    }
}
