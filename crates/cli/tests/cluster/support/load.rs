//! Workers that take and release locks until they are told to stop, and remember what was
//! acknowledged.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use holdfast_proto::v1::{ReleaseOutcome, acquire_response::Outcome};
use tokio::task::JoinHandle;

use super::{PlainClient, PlainSession};

const WORKERS: usize = 8;
/// Every so many locks one is kept, to be found again at the end.
const KEEP_EVERY: usize = 5;

pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    workers: Vec<JoinHandle<WorkerReport>>,
}

/// What was acknowledged, and how long the slowest operation took, retries included.
#[derive(Debug, Default)]
pub(crate) struct LoadReport {
    pub(crate) operations: usize,
    pub(crate) slowest: Duration,
    /// Locks that were granted and not released: name and token.
    pub(crate) kept: Vec<(String, u64)>,
    /// Tokens of the lock that all workers share, in the order of their grants.
    pub(crate) shared_tokens: Vec<u64>,
    /// The sessions, which must outlive the check.
    pub(crate) sessions: Vec<PlainSession>,
}

struct WorkerReport {
    operations: usize,
    slowest: Duration,
    kept: Vec<(String, u64)>,
    shared: Vec<(Instant, u64)>,
    session: PlainSession,
}

impl Load {
    pub(crate) async fn start(client: &PlainClient) -> Load {
        let stop = Arc::new(AtomicBool::new(false));
        let mut workers = Vec::new();
        for worker in 0..WORKERS {
            let session = client.open(Duration::from_secs(60)).await;
            workers.push(tokio::spawn(work(worker, session, stop.clone())));
        }
        Load { stop, workers }
    }

    pub(crate) async fn stop(self) -> LoadReport {
        self.stop.store(true, Ordering::Relaxed);
        let mut report = LoadReport::default();
        let mut shared = Vec::new();
        for worker in self.workers {
            let worker = worker.await.unwrap();
            report.operations += worker.operations;
            report.slowest = report.slowest.max(worker.slowest);
            report.kept.extend(worker.kept);
            report.sessions.push(worker.session);
            shared.extend(worker.shared);
        }
        shared.sort();
        report.shared_tokens = shared.into_iter().map(|(_, token)| token).collect();
        report
    }
}

async fn work(worker: usize, session: PlainSession, stop: Arc<AtomicBool>) -> WorkerReport {
    let mut report = WorkerReport {
        operations: 0,
        slowest: Duration::ZERO,
        kept: Vec::new(),
        shared: Vec::new(),
        session,
    };
    let mut round = 0;
    let mut last_token = 0;
    while !stop.load(Ordering::Relaxed) {
        round += 1;
        let own = format!("load:{worker}:{round}");
        let started = Instant::now();
        let token = granted(&report.session, &own, Duration::ZERO).await;
        report.slowest = report.slowest.max(started.elapsed());
        assert!(token > last_token, "a token went back: {last_token}, then {token}");
        last_token = token;
        report.operations += 1;
        if round % KEEP_EVERY == 0 {
            report.kept.push((own, token));
        } else {
            let started = Instant::now();
            release(&report.session, &own, token).await;
            report.slowest = report.slowest.max(started.elapsed());
            report.operations += 1;
        }
        // The shared lock: its waiting time is the others' work, not the cluster's.
        let token = granted(&report.session, "load:shared", Duration::from_secs(30)).await;
        report.shared.push((Instant::now(), token));
        assert!(token > last_token, "a token went back: {last_token}, then {token}");
        last_token = token;
        release(&report.session, "load:shared", token).await;
        report.operations += 2;
    }
    report
}

async fn granted(session: &PlainSession, name: &str, wait: Duration) -> u64 {
    match session.acquire(name, wait).await.unwrap().outcome {
        Some(Outcome::Granted(grant)) => grant.token,
        other => panic!("{name} is not granted: {other:?}"),
    }
}

async fn release(session: &PlainSession, name: &str, token: u64) {
    let outcome = session.release(name, token).await.unwrap();
    assert_eq!(outcome, ReleaseOutcome::Released, "{name} under {token}");
}
