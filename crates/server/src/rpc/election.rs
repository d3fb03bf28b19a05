//! Leader election over the lock table: `Campaign` is an acquire, `Resign` a release, and `Observe` a watch
//! of one lock, told as leaders and vacancies.

mod observe;

use std::pin::Pin;
use std::time::Duration;

use holdfast_core::{Command, Limits};
use holdfast_proto::decode::{self, Scope};
use holdfast_proto::v1::election_service_server::ElectionService;
use holdfast_proto::v1::{
    AcquireRequest, AcquireResponse, CampaignRequest, Failure, ObserveRequest, ObserveResponse,
    ReleaseRequest, ReleaseResponse, ResignRequest, answer,
};
use tokio_stream::Stream;
use tonic::{Request, Response, Status};

use super::Rpc;
use super::forward::Leader;
use super::unary::{self, Verb};

impl Verb for CampaignRequest {
    type Response = AcquireResponse;

    fn decode(self) -> Result<Command, Failure> {
        decode::acquire(&acquire(self), Scope::Unary)
    }

    fn patience(&self) -> Duration {
        acquire(self.clone()).patience()
    }

    fn is_resumed_later(&self) -> bool {
        self.resume_later
    }

    fn response(result: answer::Result) -> Option<AcquireResponse> {
        AcquireRequest::response(result)
    }

    async fn forward(
        request: Request<Self>,
        mut leader: Leader,
    ) -> Result<Response<AcquireResponse>, Status> {
        leader.election.campaign(request).await
    }
}

impl Verb for ResignRequest {
    type Response = ReleaseResponse;

    fn decode(self) -> Result<Command, Failure> {
        let release = ReleaseRequest {
            session_id: self.session_id,
            request_id: self.request_id,
            acked_through: self.acked_through,
            name: self.name,
            token: self.epoch,
            ..Default::default()
        };
        decode::release(&release, Scope::Unary)
    }

    fn response(result: answer::Result) -> Option<ReleaseResponse> {
        ReleaseRequest::response(result)
    }

    async fn forward(
        request: Request<Self>,
        mut leader: Leader,
    ) -> Result<Response<ReleaseResponse>, Status> {
        leader.election.resign(request).await
    }
}

fn acquire(campaign: CampaignRequest) -> AcquireRequest {
    let wait_ms = match campaign.wait_ms {
        0 => Limits::default().wait_max.as_ms(),
        wait_ms => wait_ms,
    };
    AcquireRequest {
        session_id: campaign.session_id,
        request_id: campaign.request_id,
        acked_through: campaign.acked_through,
        name: campaign.name,
        metadata: campaign.value,
        wait_ms,
        ..Default::default()
    }
}

#[tonic::async_trait]
impl ElectionService for Rpc {
    type ObserveStream = Pin<Box<dyn Stream<Item = Result<ObserveResponse, Status>> + Send>>;

    async fn campaign(
        &self,
        request: Request<CampaignRequest>,
    ) -> Result<Response<AcquireResponse>, Status> {
        unary::serve(self, request).await
    }

    async fn resign(
        &self,
        request: Request<ResignRequest>,
    ) -> Result<Response<ReleaseResponse>, Status> {
        unary::serve(self, request).await
    }

    async fn observe(
        &self,
        request: Request<ObserveRequest>,
    ) -> Result<Response<Self::ObserveStream>, Status> {
        observe::serve(self, request).await
    }
}
