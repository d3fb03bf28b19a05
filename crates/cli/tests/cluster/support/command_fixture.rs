//! A place for commands that run under a lock, and what can be seen of them from outside.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use tempfile::TempDir;

use super::{Cluster, data, eventually, holdfast};

pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A cluster, a place for files, and the program as other programs start it.
pub(crate) struct CommandFixture {
    pub(crate) cluster: Cluster,
    dir: TempDir,
}

impl CommandFixture {
    pub(crate) async fn start() -> CommandFixture {
        CommandFixture::of(Cluster::start(1).await)
    }

    pub(crate) fn of(cluster: Cluster) -> CommandFixture {
        CommandFixture { cluster, dir: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// `$HF` is the program under test.
    pub(crate) fn shell(&self, script: &str) -> Command {
        let mut shell = Command::new("bash");
        shell.args(["-c", script]);
        self.prepare(&mut shell);
        shell
    }

    pub(crate) fn holdfast(&self, args: &[&str]) -> Command {
        let mut command = holdfast();
        command.args(args);
        self.prepare(&mut command);
        command
    }

    fn prepare(&self, command: &mut Command) {
        command
            .env("HF", env!("CARGO_BIN_EXE_holdfast"))
            .env("HOLDFAST_ENDPOINTS", self.cluster.endpoints())
            .current_dir(self.dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
    }

    pub(crate) async fn is_free(&self, name: &str) -> bool {
        let status = self.cluster.client().status(name).await;
        status.holder_count == 0 && status.waiter_count == 0
    }

    pub(crate) async fn becomes_free(&self, name: &str) {
        eventually("the lock becomes free", PATIENCE, || async {
            self.is_free(name).await.then_some(())
        })
        .await;
    }

    pub(crate) async fn has_waiter(&self, name: &str) {
        eventually("a client waits", PATIENCE, || async {
            (self.cluster.client().status(name).await.waiter_count > 0).then_some(())
        })
        .await;
    }

    /// The number that the command wrote to a file once it was ready.
    pub(crate) async fn number_in(&self, file: &str) -> i32 {
        let path = self.path(file);
        eventually(&format!("a number is in {file}"), PATIENCE, || {
            std::future::ready(read_number(&path))
        })
        .await
    }

    pub(crate) async fn appears(&self, file: &str) {
        let path = self.path(file);
        eventually(&format!("{file} appears"), PATIENCE, || {
            std::future::ready(path.exists().then_some(()))
        })
        .await;
    }

    pub(crate) async fn break_lock(&self, name: &str) {
        data(&self.cluster, 0, &["break", name, "--reason", "test"]).await;
    }
}

fn read_number(path: &Path) -> Option<i32> {
    let text = std::fs::read_to_string(path).ok()?;
    text.strip_suffix('\n')?.parse().ok()
}

/// A process that has ended and is not yet collected by its parent counts as gone.
pub(crate) fn is_gone(pid: i32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return true };
    stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('Z'))
}

pub(crate) async fn ends(pid: i32) {
    eventually(&format!("process {pid} ends"), PATIENCE, || {
        std::future::ready(is_gone(pid).then_some(()))
    })
    .await;
}

pub(crate) fn signal(process: &Child, signal: Signal) {
    kill_process(Pid::from_child(process), signal).unwrap();
}

pub(crate) fn is_running(process: &Child) -> bool {
    test_kill_process(Pid::from_child(process)).is_ok() && !is_gone(process.id().cast_signed())
}

pub(crate) async fn finished(process: Child) -> Output {
    tokio::task::spawn_blocking(move || process.wait_with_output()).await.unwrap().unwrap()
}
