//! Single calls that a node answers late, because it waits for other nodes.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use holdfast_client::unary::Unary;
use holdfast_proto::v1::access_service_server::{AccessService, AccessServiceServer};
use holdfast_proto::v1::{
    ChangeAccessRequest, ChangeAccessResponse, ShowAccessRequest, ShowAccessResponse,
    WhoAmIRequest, WhoAmIResponse,
};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

/// A leader waits for a group that does not answer, and the node that forwards the change to it may first have waited
/// for a leader.
const ANSWERED_AFTER: Duration = Duration::from_millis(4_200);

#[derive(Default, Clone)]
struct WaitsForGroups {
    changes: Arc<AtomicU64>,
}

#[tonic::async_trait]
impl AccessService for WaitsForGroups {
    async fn show_access(
        &self,
        _: Request<ShowAccessRequest>,
    ) -> Result<Response<ShowAccessResponse>, Status> {
        Err(Status::unimplemented("a fake"))
    }

    async fn change_access(
        &self,
        _: Request<ChangeAccessRequest>,
    ) -> Result<Response<ChangeAccessResponse>, Status> {
        let generation = self.changes.fetch_add(1, Ordering::SeqCst) + 1;
        tokio::time::sleep(ANSWERED_AFTER).await;
        Ok(Response::new(ChangeAccessResponse { generation, groups_behind: vec![2] }))
    }

    async fn who_am_i(
        &self,
        _: Request<WhoAmIRequest>,
    ) -> Result<Response<WhoAmIResponse>, Status> {
        Err(Status::unimplemented("a fake"))
    }
}

#[tokio::test]
async fn a_change_of_the_policy_is_sent_once_and_names_the_groups_that_are_late() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let node = WaitsForGroups::default();
    let serving = Server::builder()
        .add_service(AccessServiceServer::new(node.clone()))
        .serve_with_incoming(TcpListenerStream::new(listener));
    tokio::spawn(serving);
    let calls = Unary::new(&address).unwrap();
    let changed = calls.change_access(ChangeAccessRequest::default()).await.unwrap();
    assert_eq!((changed.generation, changed.groups_behind), (1, vec![2]));
    assert_eq!(node.changes.load(Ordering::SeqCst), 1);
}
