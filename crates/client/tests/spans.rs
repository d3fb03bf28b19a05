//! What a program that traces sees of the library.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]
#![allow(dead_code, reason = "a part of the support is for other tests")]

mod support;

use std::sync::{Arc, Mutex};

use holdfast_client::Client;
use holdfast_proto::v1::answer::Result as AnswerResult;
use holdfast_proto::v1::operation::Kind;
use holdfast_proto::v1::{ReleaseOutcome, ReleaseResponse};
use support::{FakeNode, granted};
use tracing::Subscriber;
use tracing::span::{Attributes, Id};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

/// The names of all spans, in order.
#[derive(Clone, Default)]
struct Names(Arc<Mutex<Vec<&'static str>>>);

impl<S: Subscriber> Layer<S> for Names {
    fn on_new_span(&self, span: &Attributes<'_>, _: &Id, _: Context<'_, S>) {
        if span.metadata().target().starts_with("holdfast_client") {
            self.0.lock().unwrap().push(span.metadata().name());
        }
    }
}

#[tokio::test]
async fn connecting_acquiring_and_releasing_are_spans() {
    let names = Names::default();
    let subscriber = tracing_subscriber::registry().with(names.clone());
    tracing::subscriber::set_global_default(subscriber).unwrap();

    let mut node = FakeNode::start().await;
    let address = node.address.clone();
    let connecting = tokio::spawn(async move { Client::connect(&address).await });
    let mut stream = node.welcome().await;
    let client = connecting.await.unwrap().unwrap();
    let acquiring = tokio::spawn(client.lock("a").acquire());
    let (acquire, _) = stream.next_acquire().await;
    stream.answer(acquire.request_id, granted(7)).await;
    let releasing = tokio::spawn(acquiring.await.unwrap().unwrap().release());
    let frame = stream.next_frame().await.expect("a frame");
    let Some(Kind::Release(release)) = &frame.operations[0].kind else { panic!("{frame:?}") };
    let outcome = ReleaseOutcome::Released.into();
    let released = ReleaseResponse { outcome, ..Default::default() };
    stream.answer(release.request_id, AnswerResult::Release(released)).await;
    releasing.await.unwrap().unwrap();
    assert_eq!(*names.0.lock().unwrap(), ["connect", "acquire", "hold"]);
}
