//! Load by the stream, many operations in a frame: what the cluster does is to be measured, not the client.

use holdfast_proto::SessionId;
use holdfast_proto::v1::lock_service_client::LockServiceClient;
use holdfast_proto::v1::operation::Kind;
use holdfast_proto::v1::{
    AcquireRequest, Answer, ClientFrame, CloseSessionRequest, KeepAliveRequest, OpenSessionRequest,
    Operation, ReleaseRequest, ServerFrame, acquire_response, answer,
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::transport::Channel;

use crate::Outcome;

/// One session on its own stream.
#[derive(Debug)]
pub struct Session {
    frames: mpsc::Sender<ClientFrame>,
    answers: Streaming<ServerFrame>,
    last_request: u64,
    pub held: Vec<(String, u64)>,
}

impl Session {
    pub async fn open(channel: Channel, ttl_ms: u64) -> Outcome<Session> {
        let (frames, outgoing) = mpsc::channel(4);
        let open = OpenSessionRequest {
            session_id: SessionId::random().map_err(|error| error.to_string())?.to_secret_text(),
            request_id: 1,
            ttl_ms,
            ..Default::default()
        };
        frames.send(frame(0, vec![Kind::Open(open)])).await?;
        let mut client =
            LockServiceClient::new(channel).max_decoding_message_size(32 * 1024 * 1024);
        let answers = client.session(ReceiverStream::new(outgoing)).await?.into_inner();
        let mut session = Session { frames, answers, last_request: 1, held: Vec::new() };
        session.answers(1).await?;
        Ok(session)
    }

    /// Takes all of these, which nobody else wants.
    pub async fn acquire(&mut self, names: Vec<String>) -> Outcome {
        let acked = self.last_request;
        let count = names.len();
        let kinds = names.into_iter().map(|name| {
            self.last_request += 1;
            let request_id = self.last_request;
            Kind::Acquire(AcquireRequest { request_id, name, ..Default::default() })
        });
        let kinds = kinds.collect();
        self.frames.send(frame(acked, kinds)).await?;
        for answer in self.answers(count).await? {
            let Some(answer::Result::Acquire(answer)) = answer.result else {
                return Err(format!("not an answer to an acquire: {answer:?}").into());
            };
            match answer.outcome {
                Some(acquire_response::Outcome::Granted(grant)) => {
                    self.held.push((grant.name, grant.token));
                }
                other => return Err(format!("not granted: {other:?}").into()),
            }
        }
        Ok(())
    }

    /// Gives so many back.
    pub async fn release(&mut self, count: usize) -> Outcome {
        let acked = self.last_request;
        let from = self.held.len().saturating_sub(count);
        let released = self.held.split_off(from);
        let count = released.len();
        let kinds = released.into_iter().map(|(name, token)| {
            self.last_request += 1;
            let request_id = self.last_request;
            Kind::Release(ReleaseRequest { request_id, name, token, ..Default::default() })
        });
        let kinds = kinds.collect();
        self.frames.send(frame(acked, kinds)).await?;
        self.answers(count).await?;
        Ok(())
    }

    pub async fn keep_alive(&mut self) -> Outcome {
        self.last_request += 1;
        let request = KeepAliveRequest { request_id: self.last_request, ..Default::default() };
        self.ask(Kind::KeepAlive(request)).await
    }

    /// All that it holds is freed.
    pub async fn close(mut self) -> Outcome {
        self.last_request += 1;
        let request = CloseSessionRequest { request_id: self.last_request, ..Default::default() };
        self.ask(Kind::Close(request)).await
    }

    async fn ask(&mut self, kind: Kind) -> Outcome {
        self.frames.send(frame(self.last_request - 1, vec![kind])).await?;
        match self.answers(1).await?.pop().and_then(|answer| answer.result) {
            Some(answer::Result::Failure(failure)) => Err(failure.message.into()),
            _ => Ok(()),
        }
    }

    async fn answers(&mut self, count: usize) -> Outcome<Vec<Answer>> {
        let mut answers = Vec::with_capacity(count);
        while answers.len() < count {
            let frame = self.answers.message().await?.ok_or("the stream ended")?;
            answers.extend(frame.answers);
        }
        Ok(answers)
    }
}

fn frame(acked_through: u64, kinds: Vec<Kind>) -> ClientFrame {
    let operations = kinds.into_iter().map(|kind| Operation { kind: Some(kind) }).collect();
    ClientFrame { acked_through, operations }
}
