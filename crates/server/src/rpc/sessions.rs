//! `OpenSession`, `KeepAlive`, `CloseSession`: the life of a session whose client has no stream.

use holdfast_core::Command;
use holdfast_proto::decode::{self, Scope};
use holdfast_proto::v1::{
    CloseSessionRequest, CloseSessionResponse, Failure, KeepAliveRequest, KeepAliveResponse,
    OpenSessionRequest, OpenSessionResponse, answer,
};
use tonic::{Request, Response, Status};

use super::forward::Leader;
use super::unary::Verb;

impl Verb for OpenSessionRequest {
    type Response = OpenSessionResponse;

    fn decode(self) -> Result<Command, Failure> {
        decode::open(self, None)
    }

    fn response(result: answer::Result) -> Option<OpenSessionResponse> {
        match result {
            answer::Result::Open(response) => Some(response),
            _ => None,
        }
    }

    async fn forward(
        request: Request<Self>,
        mut leader: Leader,
    ) -> Result<Response<OpenSessionResponse>, Status> {
        leader.client.open_session(request).await
    }
}

impl Verb for KeepAliveRequest {
    type Response = KeepAliveResponse;

    fn decode(self) -> Result<Command, Failure> {
        decode::keep_alive(&self, Scope::Unary)
    }

    fn response(result: answer::Result) -> Option<KeepAliveResponse> {
        match result {
            answer::Result::KeepAlive(response) => Some(response),
            _ => None,
        }
    }

    async fn forward(
        request: Request<Self>,
        mut leader: Leader,
    ) -> Result<Response<KeepAliveResponse>, Status> {
        leader.client.keep_alive(request).await
    }
}

impl Verb for CloseSessionRequest {
    type Response = CloseSessionResponse;

    fn decode(self) -> Result<Command, Failure> {
        decode::close(&self, Scope::Unary)
    }

    fn response(result: answer::Result) -> Option<CloseSessionResponse> {
        match result {
            answer::Result::Close(response) => Some(response),
            _ => None,
        }
    }

    async fn forward(
        request: Request<Self>,
        mut leader: Leader,
    ) -> Result<Response<CloseSessionResponse>, Status> {
        leader.client.close_session(request).await
    }
}
