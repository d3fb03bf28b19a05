//! Load by the stream, many operations in a frame: what the cluster does is to be measured, not the client.

use std::ops::Range;
use std::time::Duration;

use holdfast_proto::SessionId;
use holdfast_proto::v1::lock_service_client::LockServiceClient;
use holdfast_proto::v1::operation::Kind;
use holdfast_proto::v1::{
    AcquireRequest, Answer, ClientFrame, CloseSessionRequest, Failure, KeepAliveRequest,
    OpenSessionRequest, Operation, Reason, ReleaseOutcome, ReleaseRequest, ServerFrame,
    acquire_response, answer,
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::transport::Channel;
use tonic::{Status, Streaming};

use crate::Outcome;
use crate::held_name::held_name;

/// Locks that are taken by one frame.
const FRAME: usize = 1_000;
const REFUSED_PAUSE: Duration = Duration::from_millis(20);

/// One session on its own stream.
#[derive(Debug)]
pub struct Session<A = Streaming<ServerFrame>> {
    frames: mpsc::Sender<ClientFrame>,
    answers: A,
    last_request: u64,
    pub held: Vec<(String, u64)>,
    id: String,
}

impl Session {
    pub async fn open(channel: Channel, ttl_ms: u64) -> Outcome<Session> {
        let id = SessionId::random().map_err(|error| error.to_string())?;
        Session::open_as(id, channel, ttl_ms).await
    }

    pub async fn open_as(id: SessionId, channel: Channel, ttl_ms: u64) -> Outcome<Session> {
        let (frames, outgoing) = mpsc::channel(4);
        let id = id.to_secret_text();
        let open = OpenSessionRequest {
            session_id: id.clone(),
            request_id: 1,
            ttl_ms,
            ..Default::default()
        };
        frames.send(frame(0, vec![Kind::Open(open)])).await?;
        let mut client =
            LockServiceClient::new(channel).max_decoding_message_size(32 * 1024 * 1024);
        let answers = client.session(ReceiverStream::new(outgoing)).await?.into_inner();
        let mut session = Session { frames, answers, last_request: 1, held: Vec::new(), id };
        session.answers(1).await?;
        Ok(session)
    }
}

impl<A: Stream<Item = Result<ServerFrame, Status>> + Unpin> Session<A> {
    /// Takes all of these, which no other client wants.
    pub async fn acquire(&mut self, names: Vec<String>) -> Outcome {
        let acked = self.last_request;
        let kinds = names.into_iter().map(|name| {
            self.last_request += 1;
            let request_id = self.last_request;
            Kind::Acquire(AcquireRequest { request_id, name, ..Default::default() })
        });
        let kinds = kinds.collect();
        for answer in self.ask(acked, kinds).await? {
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

    /// Takes the locks of W4 with these numbers.
    pub async fn acquire_numbered(&mut self, numbers: Range<usize>) -> Outcome {
        for first in numbers.clone().step_by(FRAME) {
            let last = (first + FRAME).min(numbers.end);
            self.acquire((first..last).map(held_name).collect()).await?;
        }
        Ok(())
    }

    /// Gives so many back.
    pub async fn release(&mut self, count: usize) -> Outcome {
        let acked = self.last_request;
        let from = self.held.len().saturating_sub(count);
        let released = self.held.split_off(from);
        let kinds = released.into_iter().map(|(name, token)| {
            self.last_request += 1;
            let request_id = self.last_request;
            Kind::Release(ReleaseRequest { request_id, name, token, ..Default::default() })
        });
        let kinds = kinds.collect();
        for answer in self.ask(acked, kinds).await? {
            match answer.result {
                Some(answer::Result::Release(answer))
                    if answer.outcome() == ReleaseOutcome::Released => {}
                other => return Err(format!("not released: {other:?}").into()),
            }
        }
        Ok(())
    }

    /// The secret one.
    pub fn id(&self) -> &str {
        &self.id
    }

    pub async fn keep_alive(&mut self) -> Outcome {
        self.last_request += 1;
        let request = KeepAliveRequest { request_id: self.last_request, ..Default::default() };
        self.ask(self.last_request - 1, vec![Kind::KeepAlive(request)]).await.map(drop)
    }

    /// All that it holds is freed.
    pub async fn close(mut self) -> Outcome {
        self.last_request += 1;
        let request = CloseSessionRequest { request_id: self.last_request, ..Default::default() };
        self.ask(self.last_request - 1, vec![Kind::Close(request)]).await.map(drop)
    }

    /// A node that has no room for a frame refuses it whole, and is asked again under the same ids.
    async fn ask(&mut self, acked_through: u64, kinds: Vec<Kind>) -> Outcome<Vec<Answer>> {
        loop {
            self.frames.send(frame(acked_through, kinds.clone())).await?;
            let answers = self.answers(kinds.len()).await?;
            match answers.iter().find_map(failure) {
                None => return Ok(answers),
                Some(failure) if failure.reason() == Reason::Overloaded => {
                    tokio::time::sleep(REFUSED_PAUSE).await;
                }
                Some(failure) => return Err(failure.message.clone().into()),
            }
        }
    }

    async fn answers(&mut self, count: usize) -> Outcome<Vec<Answer>> {
        let mut answers = Vec::with_capacity(count);
        while answers.len() < count {
            let frame = self.answers.next().await.ok_or("the stream ended")?;
            answers.extend(frame?.answers);
        }
        Ok(answers)
    }
}

fn failure(answer: &Answer) -> Option<&Failure> {
    match &answer.result {
        Some(answer::Result::Failure(failure)) => Some(failure),
        _ => None,
    }
}

fn frame(acked_through: u64, kinds: Vec<Kind>) -> ClientFrame {
    let operations = kinds.into_iter().map(|kind| Operation { kind: Some(kind) }).collect();
    ClientFrame { acked_through, operations }
}

#[cfg(test)]
mod tests {
    use holdfast_proto::v1::{AcquireResponse, Grant, ReleaseResponse};

    use super::*;

    /// Answers each frame, but the first time it comes it has no room for it.
    async fn serve(
        mut frames: mpsc::Receiver<ClientFrame>,
        answers: mpsc::Sender<Result<ServerFrame, Status>>,
    ) {
        let mut refused = Vec::new();
        while let Some(frame) = frames.recv().await {
            let has_room = refused.contains(&frame);
            let answer = |operation: &Operation| match &operation.kind {
                _ if !has_room => refusal(operation),
                Some(Kind::Acquire(acquire)) => granted(acquire),
                Some(Kind::Release(release)) => released(release),
                other => panic!("{other:?}"),
            };
            let answered = frame.operations.iter().map(answer).collect();
            refused.push(frame);
            let frame = ServerFrame { answers: answered, ..Default::default() };
            answers.send(Ok(frame)).await.unwrap();
        }
    }

    fn refusal(operation: &Operation) -> Answer {
        let request_id = match &operation.kind {
            Some(Kind::Acquire(acquire)) => acquire.request_id,
            Some(Kind::Release(release)) => release.request_id,
            other => panic!("{other:?}"),
        };
        let failure = Failure { reason: Reason::Overloaded.into(), ..Default::default() };
        Answer { request_id, result: Some(answer::Result::Failure(failure)) }
    }

    fn granted(acquire: &AcquireRequest) -> Answer {
        let grant = Grant { name: acquire.name.clone(), token: 7, ..Default::default() };
        let outcome = Some(acquire_response::Outcome::Granted(grant));
        let result = answer::Result::Acquire(AcquireResponse { outcome, ..Default::default() });
        Answer { request_id: acquire.request_id, result: Some(result) }
    }

    fn released(release: &ReleaseRequest) -> Answer {
        let outcome = ReleaseOutcome::Released.into();
        let result = answer::Result::Release(ReleaseResponse { outcome, ..Default::default() });
        Answer { request_id: release.request_id, result: Some(result) }
    }

    #[tokio::test]
    async fn what_a_busy_node_refuses_is_asked_again_under_the_same_ids() {
        let (frames, received) = mpsc::channel(4);
        let (reported, answers) = mpsc::channel(4);
        tokio::spawn(serve(received, reported));
        let answers = ReceiverStream::new(answers);
        let (held, id) = (Vec::new(), String::new());
        let mut session = Session { frames, answers, last_request: 1, held, id };
        session.acquire(vec!["a".to_owned(), "b".to_owned()]).await.unwrap();
        assert_eq!(session.held, [("a".to_owned(), 7), ("b".to_owned(), 7)]);
        session.release(2).await.unwrap();
        assert!(session.held.is_empty());
        assert_eq!(session.last_request, 5);
    }
}
