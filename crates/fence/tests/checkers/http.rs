//! The layer around a handler that takes its time.

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use holdfast_fence::http::{FenceLayer, FenceService, HEADER, InProcess};
use holdfast_fence::{Accepts, Claim, Fence, Guarantee, HighWaterMark};
use http::{HeaderValue, Request, Response, StatusCode};
use tokio::sync::Notify;
use tower_layer::Layer;
use tower_service::Service;

use crate::meeting::{Dice, MEETINGS, Write, judge, meetings, mixed};

type Answer = Pin<Box<dyn Future<Output = Result<Response<String>, Infallible>> + Send>>;

/// The body is the value; it is stored under the path, with a pause before the history is written.
#[derive(Clone, Default)]
struct Storing {
    values: Arc<Mutex<HashMap<String, i64>>>,
    histories: Arc<Mutex<HashMap<String, Vec<Write>>>>,
    /// The handler of this value says that it has begun, and waits for a word.
    slow: Option<(i64, Arc<Notify>, Arc<Notify>)>,
}

impl Service<Request<i64>> for Storing {
    type Response = Response<String>;
    type Error = Infallible;
    type Future = Answer;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<i64>) -> Answer {
        let this = self.clone();
        Box::pin(async move {
            let (name, value) = (name(&request).unwrap_or_default(), *request.body());
            let token = request.extensions().get::<Claim>().map_or(0, Claim::token);
            this.values.lock().unwrap().insert(name.clone(), value);
            tokio::task::yield_now().await;
            if let Some((_, begun, go_on)) = this.slow.as_ref().filter(|slow| slow.0 == value) {
                begun.notify_one();
                go_on.notified().await;
            }
            let mut histories = this.histories.lock().unwrap();
            histories.entry(name).or_default().push(Write { token, value });
            Ok(Response::new("stored".to_owned()))
        })
    }
}

impl Storing {
    fn history(&self, name: &str) -> Vec<Write> {
        self.histories.lock().unwrap().get(name).cloned().unwrap_or_default()
    }
}

fn name(request: &Request<i64>) -> Option<String> {
    request.uri().path().strip_prefix("/fenced/").map(str::to_owned)
}

fn fenced(handler: &Storing, store: InProcess) -> FenceService<Storing, InProcess, i64> {
    FenceLayer::new(store, name).layer(handler.clone())
}

fn request(path: &str, value: i64, fences: &[&str]) -> Request<i64> {
    let mut request = Request::new(value);
    *request.uri_mut() = path.parse().unwrap();
    for fence in fences {
        request.headers_mut().append(HEADER, HeaderValue::from_bytes(fence.as_bytes()).unwrap());
    }
    request
}

fn fence(name: &str, token: u64) -> String {
    Fence::new(Guarantee::Linearizable, name, token).unwrap().to_string()
}

async fn send(
    mut service: FenceService<Storing, InProcess, i64>,
    name: &str,
    write: Write,
) -> StatusCode {
    let path = format!("/fenced/{name}");
    let request = request(&path, write.value, &[&fence(name, write.token)]);
    service.call(request).await.unwrap().status()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn accepted_tokens_never_go_back_over_a_restart_of_the_service() {
    let handler = Storing::default();
    let mut dice = Dice(19);
    let meetings = meetings("http", MEETINGS, &mut dice);
    let mut writes = mixed(&meetings, &mut dice);
    let after = writes.split_off(writes.len() / 2);
    let mut acknowledged: HashMap<String, HashSet<Write>> = HashMap::new();
    for (round, writes) in [writes, after].into_iter().enumerate() {
        // What the first round has kept with the data, the second begins with.
        let kept = handler.histories.lock().unwrap().clone().into_iter().map(|(name, history)| {
            (name, HighWaterMark::from_token(history.last().unwrap().token))
        });
        let store = InProcess::restored(MEETINGS, kept).unwrap();
        let service = fenced(&handler, store);
        let mut sent = Vec::new();
        for (name, write) in writes {
            let service = service.clone();
            sent.push(tokio::spawn(async move {
                let status = send(service, &name, write).await;
                (name, write, status)
            }));
        }
        for sent in sent {
            let (name, write, status) = sent.await.unwrap();
            match status {
                StatusCode::OK => {
                    acknowledged.entry(name).or_default().insert(write);
                }
                StatusCode::PRECONDITION_FAILED => {}
                other => panic!("round {round}: {other}"),
            }
        }
    }
    let values = handler.values.lock().unwrap().clone();
    for meeting in &meetings {
        let name = &meeting.resource;
        let acknowledged = acknowledged.remove(name).unwrap_or_default();
        judge(&handler.history(name), values.get(name).copied(), &acknowledged)
            .unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

#[tokio::test]
async fn no_request_enters_while_a_handler_is_at_the_resource_even_if_its_client_disconnected() {
    let (begun, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let handler =
        Storing { slow: Some((1, Arc::clone(&begun), Arc::clone(&go_on))), ..Storing::default() };
    let service = fenced(&handler, InProcess::new(10));
    let write = |token, value| Write { token, value };

    let slow = tokio::spawn({
        let service = service.clone();
        async move { send(service, "a", write(5, 1)).await }
    });
    begun.notified().await;
    slow.abort();
    assert!(slow.await.unwrap_err().is_cancelled());

    let next = tokio::spawn({
        let service = service.clone();
        async move { send(service, "a", write(6, 2)).await }
    });
    // Another resource is not kept waiting, and gives the next one time to pass, if it could.
    for value in 10..30 {
        assert_eq!(send(service.clone(), "b", write(1, value)).await, StatusCode::OK);
    }
    assert!(!next.is_finished());
    assert_eq!(handler.history("a"), []);
    go_on.notify_one();
    assert_eq!(next.await.unwrap(), StatusCode::OK);
    assert_eq!(handler.history("a"), [write(5, 1), write(6, 2)]);
    assert_eq!(send(service, "a", write(5, 3)).await, StatusCode::PRECONDITION_FAILED);
}

#[tokio::test]
async fn each_refusal_has_its_status_and_says_what_to_do() {
    let handler = Storing::default();
    let best_effort = Fence::new(Guarantee::BestEffort, "a", 7).unwrap().to_string();
    let (good, zero, other) = (fence("a", 7), fence("a", 0), fence("b", 7));
    let cases: [(&[&str], u16, &str); 9] = [
        (&[], 428, "take the lock `a` and send its full token"),
        (&["7"], 400, "as it was granted, not its number alone"),
        (&["hf1.L.0413a35fa3122568.1é"], 400, "send the full token"),
        (&[&good, &good], 400, "send the full token"),
        (&[&zero], 400, "send the token of a lock that is held"),
        (&[""], 403, "take the lock `a` exclusively"),
        (&[&other], 403, "take the lock `a`, by exactly this name"),
        (&[&best_effort], 403, "take the lock in the correctness tier"),
        (&[&good], 200, "stored"),
    ];
    let mut service = fenced(&handler, InProcess::new(1));
    for (fences, status, words) in cases {
        let response = service.call(request("/fenced/a", 1, fences)).await.unwrap();
        assert_eq!(response.status().as_u16(), status, "{fences:?}: {}", response.body());
        assert!(response.body().contains(words), "{fences:?}: {}", response.body());
    }
    let late = service.call(request("/fenced/a", 1, &[&fence("a", 6)])).await.unwrap();
    assert_eq!(late.status(), StatusCode::PRECONDITION_FAILED);
    assert!(
        late.body().contains("acquire the lock again, and begin with reading"),
        "{}",
        late.body()
    );
    let full = service.call(request("/fenced/b", 1, &[&other])).await.unwrap();
    assert_eq!(full.status(), StatusCode::SERVICE_UNAVAILABLE);
    let free = service.call(request("/elsewhere", 1, &[])).await.unwrap();
    assert_eq!(free.status(), StatusCode::OK);

    let mut efficient =
        FenceLayer::new(InProcess::new(1), name).accepts(Accepts::BestEffort).layer(handler);
    let allowed = efficient.call(request("/fenced/a", 1, &[&best_effort])).await.unwrap();
    assert_eq!(allowed.status(), StatusCode::OK);
    let mixed = efficient.call(request("/fenced/a", 1, &[&good])).await.unwrap();
    assert_eq!(mixed.status(), StatusCode::FORBIDDEN);
}
