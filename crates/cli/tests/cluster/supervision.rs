//! What `holdfast lock` promises about the command when it is itself in trouble: nobody reads its words, it is
//! suspended, or one of its locks ends while it cannot look.

use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::support::{
    PATIENCE, Scene, ends, eventually, finished, json_lines, output, run, signal, text,
};

const GRACE: Duration = Duration::from_secs(3);

/// Writes the time to `alive` again and again.
const ALIVE: &str = "echo $$ > pid; while :; do date +%s%N > alive; sleep 0.02; done";

/// The writing end of a pipe that is full; nobody reads while the other end lives.
fn full_pipe() -> (OwnedFd, tokio::net::unix::pipe::Receiver) {
    let (writer, reader) = tokio::net::unix::pipe::pipe().unwrap();
    while writer.try_write(&[b'.'; 4096]).is_ok() {}
    while writer.try_write(b".").is_ok() {}
    (writer.into_blocking_fd().unwrap(), reader)
}

/// The first letter of what the kernel tells about the process: `T` is stopped.
fn state(pid: i32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

async fn is_stopped(pid: i32) {
    eventually(&format!("process {pid} is stopped"), PATIENCE, || {
        std::future::ready((state(pid) == Some('T')).then_some(()))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_story_is_not_told_on_a_descriptor_that_is_the_commands() {
    let scene = Scene::set().await;
    for number in ["0", "1", "2"] {
        let refused =
            run(&scene.cluster, &["lock", "a", "--status-fd", number, "--", "true"]).await;
        assert_eq!(refused.status.code(), Some(64), "{refused:?}");
        assert!(text(&refused.stderr).contains("the command's"), "{refused:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn words_that_nobody_reads_do_not_keep_the_command_alive() {
    let scene = Scene::set().await;
    for status_fd in ["", "--status-fd 3"] {
        let (stderr, _unread) = full_pipe();
        let script =
            format!("exec $HF lock a --grace 3s {status_fd} -- sh -c \"yes >&2 & $ALIVE\" 3>&2");
        let mut lock = scene.shell(&script);
        lock.env("ALIVE", ALIVE).stderr(Stdio::from(stderr));
        let process = lock.spawn().unwrap();
        drop(lock);
        scene.appears("alive").await;
        let child = scene.number_in("pid").await;
        scene.break_lock("a").await;
        let broken = Instant::now();
        ends(child).await;
        assert!(broken.elapsed() < GRACE, "it ended after {:?}", broken.elapsed());
        let ended = finished(process).await;
        assert_eq!(ended.status.code(), Some(79), "{ended:?}");
        std::fs::remove_file(scene.path("alive")).unwrap();
        std::fs::remove_file(scene.path("pid")).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_reader_still_hears_all_of_the_story() {
    let scene = Scene::set().await;
    let script =
        "exec $HF lock a --status-fd 3 -- sh -c 'exit 7' 3>&1 >/dev/null | (sleep 0.3; cat)";
    let told = output(scene.shell(script)).await;
    let kinds: Vec<_> = json_lines(&told.stdout).iter().map(|line| line["event"].clone()).collect();
    assert_eq!(kinds, ["held", "started", "released", "ended"], "{told:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_several_locks_one_that_had_ended_is_told_though_the_command_was_done() {
    let scene = Scene::set().await;
    let script = "echo $$ > pid; while [ ! -e go ]; do sleep 0.02; done; exit 0";
    let args = ["lock", "--all", "a,b", "--ttl", "60s", "--", "sh", "-c", script];
    let process = scene.holdfast(&args).spawn().unwrap();
    let child = scene.number_in("pid").await;
    signal(&process, Signal::STOP);
    is_stopped(process.id().cast_signed()).await;
    scene.break_lock("b").await;
    std::fs::write(scene.path("go"), "").unwrap();
    ends(child).await;
    signal(&process, Signal::CONT);
    let ended = finished(process).await;
    assert_eq!(ended.status.code(), Some(79), "{ended:?}");
    scene.becomes_free("a").await;
}
