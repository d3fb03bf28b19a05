//! `holdfast lock` that waits without a terminal, as a cron job does: what it costs the cluster, and what it says.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use rustix::process::Signal;
use tokio::time::timeout;

use crate::supervision::full_pipe;
use crate::support::{CommandFixture, PATIENCE, data, eventually, finished, metrics, signal};

const WAIT: &[&str] = &["lock", "a", "--ttl", "3s", "--wait", "10m", "--", "true"];

async fn until_waiters_are(fixture: &CommandFixture, count: u64) {
    eventually("so many wait", PATIENCE, || async {
        (fixture.cluster.client().status("a").await.waiter_count == count).then_some(())
    })
    .await;
}

/// Operations of this kind that the leader has carried out.
fn done(page: &str, kind: &str) -> f64 {
    let series = format!("holdfast_operations_total{{kind=\"{kind}\",outcome=\"done\"");
    let lines = page.lines().filter(|line| line.starts_with(&series));
    lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_to_whom_nothing_is_shown_reads_nothing() {
    const HEARTBEATS: f64 = 10.0;
    let fixture = CommandFixture::start().await;
    data(&fixture.cluster, 0, &["acquire", "a", "--ttl", "10m"]).await;
    let mut waiter = fixture.holdfast(WAIT).spawn().unwrap();
    until_waiters_are(&fixture, 1).await;
    let address = fixture.cluster.http_address(1);
    let before = metrics(&address).await;
    // Some ten seconds.
    let after = eventually("heartbeats come", PATIENCE, || async {
        let now = metrics(&address).await;
        (done(&now, "touch") >= done(&before, "touch") + HEARTBEATS).then_some(now)
    })
    .await;
    assert_eq!(done(&after, "read"), done(&before, "read"));
    waiter.kill().unwrap();
    waiter.wait().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_whose_words_no_program_reads_still_heeds_a_signal_after_an_outage() {
    let mut fixture = CommandFixture::start().await;
    data(&fixture.cluster, 0, &["acquire", "a", "--ttl", "10m"]).await;
    let (stderr, _unread) = full_pipe();
    let mut unheard = fixture.holdfast(WAIT);
    unheard.stderr(Stdio::from(stderr));
    let unheard = unheard.spawn().unwrap();
    let mut heard = fixture.holdfast(WAIT).spawn().unwrap();
    until_waiters_are(&fixture, 2).await;
    fixture.cluster.kill(1);
    let stderr = BufReader::new(heard.stderr.take().unwrap());
    let told = tokio::task::spawn_blocking(move || {
        stderr.lines().map_while(Result::ok).find(|line| line.contains("still waiting for a"))
    });
    let told = timeout(PATIENCE, told).await.expect("the outage is told").unwrap();
    assert!(told.is_some(), "it ended without a word");
    // By now the other one has tried to say the same.
    signal(&unheard, Signal::TERM);
    let ended = timeout(PATIENCE, finished(unheard)).await.expect("it does not stand still");
    assert!(!ended.status.success(), "{ended:?}");
    heard.kill().unwrap();
    heard.wait().unwrap();
}
