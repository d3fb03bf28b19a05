//! `holdfast acquire` that does not come to its end: a client that was not told the session's secret holds nothing.

use rustix::process::Signal;

use crate::support::{Cluster, CommandFixture, PATIENCE, eventually, finished, output, signal};

#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_interrupted_while_it_waits_leaves_the_line() {
    let fixture = CommandFixture::start().await;
    for (ends_by, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let holder = fixture.holdfast(&["lock", "a", "--", "sleep", "60"]).spawn().unwrap();
        eventually("it holds", PATIENCE, || async {
            (fixture.cluster.client().status("a").await.holder_count == 1).then_some(())
        })
        .await;
        // Whether or not the tests themselves run under nohup.
        let script = "exec env --default-signal $HF acquire a --wait 10m --ttl 1h";
        let waiting = fixture.shell(script).spawn().unwrap();
        fixture.has_waiter("a").await;
        signal(&waiting, ends_by);
        // A client that passes signals on sends them twice.
        signal(&waiting, ends_by);
        let ended = finished(waiting).await;
        assert_eq!((ended.status.code(), ended.stdout.len()), (Some(code), 0), "{ended:?}");
        assert_eq!(fixture.cluster.client().status("a").await.waiter_count, 0);
        signal(&holder, Signal::TERM);
        finished(holder).await;
        assert!(fixture.is_free("a").await, "the lock was granted to a client that had gone");
    }
}

/// On whichever node it asked: the leader, or one that passes calls on.
#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_killed_while_it_waits_leaves_the_line_long_before_its_ttl() {
    let fixture = CommandFixture::of(Cluster::start(3).await);
    let holder = fixture.holdfast(&["lock", "a", "--", "sleep", "60"]).spawn().unwrap();
    eventually("it holds", PATIENCE, || async {
        (fixture.cluster.client().status("a").await.holder_count == 1).then_some(())
    })
    .await;
    for node in 1..=3 {
        let endpoint = fixture.cluster.client_address(node);
        let args = ["acquire", "a", "--wait", "10m", "--ttl", "1h", "--endpoints", &endpoint];
        let waiting = fixture.holdfast(&args).spawn().unwrap();
        fixture.has_waiter("a").await;
        signal(&waiting, Signal::KILL);
        finished(waiting).await;
        eventually("the place is free", PATIENCE, || async {
            (fixture.cluster.client().status("a").await.waiter_count == 0).then_some(())
        })
        .await;
    }
    signal(&holder, Signal::TERM);
    finished(holder).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whenever_a_signal_comes_it_has_told_its_session_or_holds_nothing() {
    let fixture = CommandFixture::start().await;
    for delay_ms in (0..40).step_by(2) {
        let name = format!("a{delay_ms}");
        let acquire = format!("$HF acquire {name} --ttl 1h");
        let script = format!("timeout -s INT --preserve-status 0.{:03} {acquire}", delay_ms + 1);
        let ended = output(fixture.shell(&script)).await;
        let reported = String::from_utf8_lossy(&ended.stdout).contains("session=");
        // Before it listens a signal ends it, and it has asked for nothing.
        assert_eq!(reported, ended.status.code() == Some(0), "after {delay_ms} ms: {ended:?}");
        let held = !fixture.is_free(&name).await;
        assert_eq!(held, reported, "after {delay_ms} ms: {ended:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_no_client_listens_to_gives_the_lock_back() {
    let fixture = CommandFixture::start().await;
    for (script, why) in [
        // A pipe that was closed before anything was written.
        ("mkfifo p; sleep 0 < p & exec 3> p; wait; $HF acquire a --ttl 1h >&3; echo $?", "69"),
        ("$HF acquire a --ttl 1h > /dev/full; echo $?", "69"),
    ] {
        let ended = output(fixture.shell(script)).await;
        assert_eq!(String::from_utf8_lossy(&ended.stdout).trim(), why, "{script}: {ended:?}");
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(said.contains("cannot write to stdout"), "{said}");
        assert!(fixture.is_free("a").await, "{script}");
    }
}
