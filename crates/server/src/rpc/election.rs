//! Leader election over the lock table: `Campaign` is an acquire, `Resign` a release, and `Observe` a watch
//! of one lock, told as leaders and vacancies.

mod observe;

pub(super) use self::observe::serve as observe;

use std::time::Duration;

use holdfast_core::{Command, Limits};
use holdfast_proto::decode::{self, Scope};
use holdfast_proto::v1::election_service_server::ElectionService;
use holdfast_proto::v1::{
    AcquireRequest, AcquireResponse, CampaignRequest, Failure, ObserveRequest, ReleaseRequest,
    ReleaseResponse, ResignRequest, answer,
};
use holdfast_service::Method;
use tonic::{Request, Response, Status};

use super::unary::{self, Verb};
use super::{Rpc, grpc};

impl Verb for CampaignRequest {
    const METHOD: Method = Method::Campaign;
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
}

impl Verb for ResignRequest {
    const METHOD: Method = Method::Resign;
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
    type ObserveStream = observe::Observed;

    async fn campaign(
        &self,
        request: Request<CampaignRequest>,
    ) -> Result<Response<AcquireResponse>, Status> {
        grpc::call(request, |caller, request| unary::serve(self, caller, request)).await
    }

    async fn resign(
        &self,
        request: Request<ResignRequest>,
    ) -> Result<Response<ReleaseResponse>, Status> {
        grpc::call(request, |caller, request| unary::serve(self, caller, request)).await
    }

    async fn observe(
        &self,
        request: Request<ObserveRequest>,
    ) -> Result<Response<Self::ObserveStream>, Status> {
        grpc::call(request, |caller, request| observe::serve(self, caller, request)).await
    }
}
