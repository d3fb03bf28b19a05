//! What `holdfast lock` promises about the command when it is itself in trouble: nobody reads its words, it is
//! suspended, or one of its locks ends while it cannot look.

use rustix::process::Signal;

use crate::support::{PATIENCE, Scene, ends, eventually, finished, run, signal, text};

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
