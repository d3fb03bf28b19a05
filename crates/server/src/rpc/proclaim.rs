//! `Proclaim`: other metadata for a hold.

use holdfast_core::Command;
use holdfast_proto::decode::{self, Scope};
use holdfast_proto::v1::{Failure, ProclaimRequest, ProclaimResponse, answer};
use tonic::{Request, Response, Status};

use super::forward::Leader;
use super::unary::Verb;

impl Verb for ProclaimRequest {
    type Response = ProclaimResponse;

    fn decode(self) -> Result<Command, Failure> {
        decode::proclaim(self, Scope::Unary)
    }

    fn tier(&self) -> i32 {
        self.tier
    }

    fn response(result: answer::Result) -> Option<ProclaimResponse> {
        match result {
            answer::Result::Proclaim(response) => Some(response),
            _ => None,
        }
    }

    async fn forward(
        request: Request<Self>,
        mut leader: Leader,
    ) -> Result<Response<ProclaimResponse>, Status> {
        leader.client.proclaim(request).await
    }
}
