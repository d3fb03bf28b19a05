//! What `holdfast lock` promises about the command when it is itself in trouble: its words are not read, it is
//! suspended, or one of its locks ends while it cannot look.

use std::io::{BufRead, BufReader};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::support::{
    CommandFixture, PATIENCE, data, ends, eventually, finished, is_gone, json_lines, output, run,
    signal, text,
};

const GRACE: Duration = Duration::from_secs(3);

/// Writes the time to `alive` again and again.
const ALIVE: &str = "echo $$ > pid; while :; do date +%s%N > alive; sleep 0.02; done";

/// The writing end of a pipe that is full; it is not read while the other end lives.
pub(crate) fn full_pipe() -> (OwnedFd, tokio::net::unix::pipe::Receiver) {
    let (writer, reader) = tokio::net::unix::pipe::pipe().unwrap();
    while writer.try_write(&[b'.'; 4096]).is_ok() {}
    while writer.try_write(b".").is_ok() {}
    (writer.into_blocking_fd().unwrap(), reader)
}

/// What the kernel tells about a process: the letter of its state, its parent.
fn state_and_parent(pid: i32) -> Option<(char, i32)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut words = stat.rsplit_once(") ")?.1.split(' ');
    Some((words.next()?.chars().next()?, words.next()?.parse().ok()?))
}

/// Stopped, or a shell that cannot go on before its child has become another program, while the child is stopped.
fn stands_still(pid: i32) -> bool {
    match state_and_parent(pid) {
        Some(('T', _)) => true,
        Some(('D', _)) => {
            let processes = std::fs::read_dir("/proc").unwrap();
            let numbers = processes.filter_map(|it| it.ok()?.file_name().to_str()?.parse().ok());
            numbers.filter_map(state_and_parent).any(|child| child == ('T', pid))
        }
        _ => false,
    }
}

async fn is_stopped(pid: i32) {
    eventually(&format!("process {pid} is stopped"), PATIENCE, || {
        std::future::ready(stands_still(pid).then_some(()))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_story_is_not_told_on_a_descriptor_that_is_the_commands() {
    let fixture = CommandFixture::start().await;
    for number in ["0", "1", "2"] {
        let refused =
            run(&fixture.cluster, &["lock", "a", "--status-fd", number, "--", "true"]).await;
        assert_eq!(refused.status.code(), Some(64), "{refused:?}");
        assert!(text(&refused.stderr).contains("the command's"), "{refused:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn words_that_nobody_reads_do_not_keep_the_command_alive() {
    let fixture = CommandFixture::start().await;
    for status_fd in ["", "--status-fd 3"] {
        let (stderr, _unread) = full_pipe();
        let script =
            format!("exec $HF lock a --grace 3s {status_fd} -- sh -c \"yes >&2 & $ALIVE\" 3>&2");
        let mut lock = fixture.shell(&script);
        lock.env("ALIVE", ALIVE).stderr(Stdio::from(stderr));
        let process = lock.spawn().unwrap();
        drop(lock);
        fixture.appears("alive").await;
        let child = fixture.number_in("pid").await;
        fixture.break_lock("a").await;
        let broken = Instant::now();
        ends(child).await;
        assert!(broken.elapsed() < GRACE, "it ended after {:?}", broken.elapsed());
        let ended = finished(process).await;
        assert_eq!(ended.status.code(), Some(79), "{ended:?}");
        std::fs::remove_file(fixture.path("alive")).unwrap();
        std::fs::remove_file(fixture.path("pid")).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_reader_still_hears_all_of_the_story() {
    let fixture = CommandFixture::start().await;
    let script =
        "exec $HF lock a --status-fd 3 -- sh -c 'exit 7' 3>&1 >/dev/null | (sleep 0.3; cat)";
    let reported = output(fixture.shell(script)).await;
    let kinds: Vec<_> =
        json_lines(&reported.stdout).iter().map(|line| line["event"].clone()).collect();
    assert_eq!(kinds, ["held", "started", "released", "ended"], "{reported:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn suspended_it_takes_the_command_along_and_never_wakes_it_under_a_lost_lock() {
    let fixture = CommandFixture::start().await;
    let args = ["lock", "a", "--ttl", "1s", "--", "sh", "-c", ALIVE];
    let process = fixture.holdfast(&args).spawn().unwrap();
    fixture.appears("alive").await;
    let child = fixture.number_in("pid").await;
    signal(&process, Signal::TSTP);
    is_stopped(process.id().cast_signed()).await;
    assert!(stands_still(child), "the command goes on without us");

    fixture.becomes_free("a").await;
    let other = fixture.cluster.library().await.lock("a").acquire().await.unwrap();
    let before = std::fs::read(fixture.path("alive")).unwrap();
    signal(&process, Signal::CONT);
    let ended = finished(process).await;
    assert_eq!(ended.status.code(), Some(79), "{ended:?}");
    assert!(is_gone(child));
    let after = std::fs::read(fixture.path("alive")).unwrap();
    assert_eq!(text(&before), text(&after), "the command ran while another held the lock");
    other.token().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn suspended_for_a_moment_both_go_on() {
    let fixture = CommandFixture::start().await;
    for how in [Signal::TSTP, Signal::TTIN, Signal::TTOU] {
        let _ = std::fs::remove_file(fixture.path("pid"));
        let script = "echo $$ > pid; while [ ! -e go ]; do sleep 0.02; done; exit 7";
        let process = fixture.holdfast(&["lock", "a", "--", "sh", "-c", script]).spawn().unwrap();
        let child = fixture.number_in("pid").await;
        signal(&process, how);
        is_stopped(process.id().cast_signed()).await;
        is_stopped(child).await;
        std::fs::write(fixture.path("go"), "").unwrap();
        signal(&process, Signal::CONT);
        assert_eq!(finished(process).await.status.code(), Some(7));
        std::fs::remove_file(fixture.path("go")).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn suspended_the_outer_of_two_stops_the_command_of_the_inner() {
    let fixture = CommandFixture::start().await;
    let script = "exec $HF lock outer -- $HF lock inner -- sh -c \"$ALIVE\"";
    let process = fixture.shell(script).env("ALIVE", ALIVE).spawn().unwrap();
    fixture.appears("alive").await;
    let child = fixture.number_in("pid").await;
    signal(&process, Signal::TSTP);
    is_stopped(process.id().cast_signed()).await;
    assert!(stands_still(child), "the command goes on without us");
    signal(&process, Signal::CONT);
    eventually("it goes on", PATIENCE, || std::future::ready((!stands_still(child)).then_some(())))
        .await;
    signal(&process, Signal::TERM);
    assert_eq!(finished(process).await.status.code(), Some(128 + 15));
    assert!(is_gone(child));
}

#[tokio::test(flavor = "multi_thread")]
async fn suspended_while_it_waits_it_stops_as_any_program() {
    let fixture = CommandFixture::start().await;
    data(&fixture.cluster, 0, &["acquire", "a", "--ttl", "60s"]).await;
    // In a group of its own: in an orphaned one, which the tests' may be, no process is stopped.
    let mut lock = fixture.holdfast(&["lock", "a", "--", "touch", "ran"]);
    let process = lock.process_group(0).spawn().unwrap();
    fixture.has_waiter("a").await;
    signal(&process, Signal::TSTP);
    is_stopped(process.id().cast_signed()).await;
    signal(&process, Signal::CONT);
    fixture.break_lock("a").await;
    let ended = finished(process).await;
    assert!(ended.status.success() && fixture.path("ran").exists(), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn stopped_for_good_it_leaves_no_command_behind_that_outlives_the_lock() {
    let fixture = CommandFixture::start().await;
    let script = "trap 'touch asked' TERM; echo $$ > pid; while :; do sleep 0.02; done";
    let args = ["lock", "a", "--ttl", "1s", "--grace", "300ms", "--", "sh", "-c", script];
    let process = fixture.holdfast(&args).spawn().unwrap();
    let child = fixture.number_in("pid").await;
    signal(&process, Signal::STOP);
    is_stopped(process.id().cast_signed()).await;
    fixture.appears("asked").await;
    ends(child).await;
    assert!(stands_still(process.id().cast_signed()));
    signal(&process, Signal::CONT);
    let ended = finished(process).await;
    assert_eq!(ended.status.code(), Some(79), "{ended:?}");

    // While it is awake the command may take as many TTLs as it likes.
    let kept = run(&fixture.cluster, &["lock", "a", "--ttl", "300ms", "--", "sleep", "2"]).await;
    assert_eq!(kept.status.code(), Some(0), "{kept:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_several_locks_one_that_had_ended_is_told_though_the_command_was_done() {
    let fixture = CommandFixture::start().await;
    let script = "echo $$ > pid; while [ ! -e go ]; do sleep 0.02; done; exit 0";
    let args = ["lock", "--all", "a,b", "--ttl", "60s", "--", "sh", "-c", script];
    let process = fixture.holdfast(&args).spawn().unwrap();
    let child = fixture.number_in("pid").await;
    signal(&process, Signal::STOP);
    is_stopped(process.id().cast_signed()).await;
    fixture.break_lock("b").await;
    std::fs::write(fixture.path("go"), "").unwrap();
    ends(child).await;
    signal(&process, Signal::CONT);
    let ended = finished(process).await;
    assert_eq!(ended.status.code(), Some(79), "{ended:?}");
    fixture.becomes_free("a").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_is_warned_early_that_its_lease_is_not_renewed_and_told_when_it_is_again() {
    let fixture = CommandFixture::start().await;
    let lock = ["lock", "a", "--ttl", "20s", "--", "sh", "-c", "touch begun; exec sleep 60"];
    let mut holder = fixture.holdfast(&lock).spawn().unwrap();
    fixture.appears("begun").await;
    let mut stderr = BufReader::new(holder.stderr.take().unwrap()).lines();
    fixture.cluster.freeze(1);
    let frozen = Instant::now();
    let (lines, mut stderr) = tokio::task::spawn_blocking(move || {
        let lines: Vec<String> = stderr.by_ref().take(2).map(Result::unwrap).collect();
        (lines, stderr)
    })
    .await
    .unwrap();
    // A heartbeat leaves every 7 s; SIGTERM would come after 16 s.
    assert!(frozen.elapsed() < Duration::from_secs(14), "{:?}: {lines:?}", frozen.elapsed());
    assert!(lines[1].contains("the lock is safe for another"), "{lines:?}");
    assert!(lines[1].contains("the command gets SIGTERM in"), "{lines:?}");
    fixture.cluster.thaw(1);
    let line = tokio::task::spawn_blocking(move || stderr.next().unwrap().unwrap()).await.unwrap();
    assert!(line.contains("the cluster answers again"), "{line}");
    signal(&holder, Signal::TERM);
    assert_eq!(finished(holder).await.status.code(), Some(128 + 15));
}
