//! `OpenSession`, `KeepAlive`, `CloseSession`: the life of a session whose client has no stream.

use holdfast_core::Command;
use holdfast_proto::decode::{self, Scope};
use holdfast_proto::v1::{
    CloseSessionRequest, CloseSessionResponse, Failure, KeepAliveRequest, KeepAliveResponse,
    OpenSessionRequest, OpenSessionResponse, Reason, answer,
};
use holdfast_service::Method;

use super::unary::Verb;

impl Verb for OpenSessionRequest {
    const METHOD: Method = Method::OpenSession;
    type Response = OpenSessionResponse;

    fn decode(self) -> Result<Command, Failure> {
        decode::open(self, None)
    }

    fn session_group(&self) -> Option<u32> {
        Some(self.group)
    }

    fn response(result: answer::Result) -> Option<OpenSessionResponse> {
        match result {
            answer::Result::Open(response) => Some(response),
            _ => None,
        }
    }
}

impl Verb for KeepAliveRequest {
    const METHOD: Method = Method::KeepAlive;
    type Response = KeepAliveResponse;

    fn decode(self) -> Result<Command, Failure> {
        decode::keep_alive(&self, Scope::Unary)
    }

    fn session_group(&self) -> Option<u32> {
        Some(self.group)
    }

    fn response(result: answer::Result) -> Option<KeepAliveResponse> {
        match result {
            answer::Result::KeepAlive(response) => Some(response),
            _ => None,
        }
    }

    fn merge_groups(parts: Vec<KeepAliveResponse>) -> Option<KeepAliveResponse> {
        parts.into_iter().min_by_key(|part| part.ttl_ms)
    }
}

impl Verb for CloseSessionRequest {
    const METHOD: Method = Method::CloseSession;
    type Response = CloseSessionResponse;
    const NOTHING_TO_DO: Option<Reason> = Some(Reason::UnknownSession);

    fn decode(self) -> Result<Command, Failure> {
        decode::close(&self, Scope::Unary)
    }

    fn session_group(&self) -> Option<u32> {
        Some(self.group)
    }

    fn response(result: answer::Result) -> Option<CloseSessionResponse> {
        match result {
            answer::Result::Close(response) => Some(response),
            _ => None,
        }
    }
}
