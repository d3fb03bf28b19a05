//! A leader that cannot write its audit file, and refuses changes because of that, hands the leadership over.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

mod support;

use std::path::{Path, PathBuf};

use holdfast_proto::v1::{OpenSessionRequest, ReleaseRequest, acquire_response};
use holdfast_server::AuditConfig;
use holdfast_service::OnAuditFailure;
use support::every_method::with;
use support::secured::{Secured, bearer};
use support::{Client, acquire, eventually, http_get, new_session};

/// Small, so that files are soon rotated; and more than the start of a cluster takes.
const FILE_BYTES: u64 = 20_000;

/// A session by calls, which may be refused.
struct Worker {
    client: Client,
    token: String,
    session: String,
    last_request: u64,
}

impl Worker {
    async fn open(mut client: Client, token: String) -> Worker {
        let session = new_session();
        let open = OpenSessionRequest {
            session_id: session.clone(),
            ttl_ms: 120_000,
            ..Default::default()
        };
        let header = bearer(&token);
        client.open_session(with(open, Some(("authorization", &*header)))).await.unwrap();
        Worker { client, token, session, last_request: 1 }
    }

    /// Takes a lock and releases it, if it can.
    async fn take(&mut self) -> Option<()> {
        let header = bearer(&self.token);
        let header = Some(("authorization", &*header));
        self.last_request += 2;
        let name = format!("work/{}", self.last_request);
        let asked = acquire(&self.session, self.last_request - 1, &name, 0);
        let taken = self.client.acquire(with(asked, header)).await.ok()?.into_inner();
        let Some(acquire_response::Outcome::Granted(grant)) = taken.outcome else { return None };
        let release = ReleaseRequest {
            session_id: self.session.clone(),
            request_id: self.last_request,
            name,
            token: grant.token,
            ..Default::default()
        };
        self.client.release(with(release, header)).await.ok().map(drop)
    }
}

fn audit_file(dir: &Path, node: u64) -> PathBuf {
    dir.join(format!("audit-{node}.jsonl"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_cannot_write_its_audit_hands_over_and_locks_are_granted_by_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let secured = Secured::start_with(|config| {
        config.audit = Some(AuditConfig {
            file_bytes: FILE_BYTES,
            files_kept: 1,
            on_failure: OnAuditFailure::RefuseChanges,
            ..AuditConfig::new(audit_file(dir.path(), config.node))
        });
    });
    let secured = secured.await;
    let token = secured.token("worker", "user").await;
    let first = secured.find_leader().await;
    let readiness =
        async |node: usize| http_get(&secured.cluster.http_address(node), "/readyz").await;
    for node in 0..3 {
        assert_eq!(readiness(node).await.0, 200, "node {}", node + 1);
    }

    // The next rotation fails: a directory is where the older file goes.
    let in_the_way = audit_file(dir.path(), first as u64 + 1).with_extension("jsonl.1");
    std::fs::create_dir_all(in_the_way.join("full")).unwrap();
    let other = (first + 1) % 3;
    let mut worker = Worker::open(secured.cluster.client(other).await, token).await;
    let next = eventually("another node leads", async || {
        let _ = worker.take().await;
        let leader = secured.find_leader().await;
        (leader != first).then_some(leader)
    })
    .await;
    let words = eventually("the node that cannot write is not ready", async || {
        let (code, words) = readiness(first).await;
        (code == 503).then_some(words)
    })
    .await;
    assert!(words.contains("audit file"), "{words}");

    eventually("the next leader grants locks", async || worker.take().await).await;
    assert_ne!(secured.find_leader().await, first);
    eventually("the next leader is ready", async || (readiness(next).await.0 == 200).then_some(()))
        .await;
    assert_eq!(readiness(first).await.0, 503);

    std::fs::remove_dir_all(&in_the_way).unwrap();
    eventually("the node can write again", async || {
        (readiness(first).await.0 == 200).then_some(())
    })
    .await;
}
