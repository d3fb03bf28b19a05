//! A program that works under a lock, as a process of its own, so that it can be stopped and killed.
//!
//! [`run`] is that process: it takes the lock, and then does what the words on its stdin say. What it wants to
//! write goes to its stdout, together with its fence; the storyteller has the store. [`Worker`] is the
//! storyteller's end.

use std::process::{ExitCode, Stdio};
use std::time::Duration;

use holdfast_client::{Client, Guard};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::failure::StoryFailure;
use crate::stage::Stage;

const WAIT: Duration = Duration::from_secs(40);

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    endpoints: String,
    name: String,
    ttl_ms: u64,
}

pub(crate) async fn run(arguments: Arguments) -> ExitCode {
    match work(arguments).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            println!("broke: {failure}");
            ExitCode::FAILURE
        }
    }
}

async fn work(arguments: Arguments) -> Result<(), StoryFailure> {
    let ttl = Duration::from_millis(arguments.ttl_ms);
    let client = Client::builder().ttl(ttl).connect(&arguments.endpoints).await?;
    let request = client.lock(&arguments.name).wait(WAIT);
    let guard = request.on_queued(|place| println!("queued {place}")).acquire().await?;
    println!("held {}", guard.token()?);
    let mut checked = String::new();
    // Blocks this thread; the session has others.
    for line in std::io::stdin().lines() {
        println!("{}", answer(&line?, &guard, &mut checked));
    }
    Ok(())
}

fn answer(line: &str, guard: &Guard, checked: &mut String) -> String {
    match line.split_once(' ') {
        // As a program does that was careful: it looks whether it still holds the lock, and goes on.
        None if line == "check" => match guard.fence() {
            Ok(fence) => {
                *checked = fence;
                "checked".to_owned()
            }
            Err(lost) => format!("none: {}", lost.reason),
        },
        // With what it saw when it looked.
        Some(("write", what)) => format!("write {checked} {what}"),
        _ => format!("what is `{line}`?"),
    }
}

#[derive(Debug)]
pub(crate) struct Worker {
    process: Child,
    stdin: ChildStdin,
    stdout: Lines<BufReader<ChildStdout>>,
}

impl Worker {
    /// It asks for the lock at once.
    pub(crate) fn start(stage: &Stage, name: &str, ttl: Duration) -> Result<Worker, StoryFailure> {
        let mut process = Command::new(std::env::current_exe()?)
            .args(["worker", &stage.endpoints(), name, &ttl.as_millis().to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let (Some(stdin), Some(stdout)) = (process.stdin.take(), process.stdout.take()) else {
            return Err(StoryFailure::Aborted("the worker has no pipes".to_owned()));
        };
        Ok(Worker { process, stdin, stdout: BufReader::new(stdout).lines() })
    }

    /// Waits until it holds the lock, and gives its token.
    pub(crate) async fn holds(&mut self) -> Result<u64, StoryFailure> {
        let line = self.hear().await?;
        match line.strip_prefix("held ").and_then(|token| token.parse().ok()) {
            Some(token) => Ok(token),
            None => Err(StoryFailure::Aborted(format!("the worker says: {line}"))),
        }
    }

    pub(crate) async fn note(&mut self, words: &str) -> Result<(), StoryFailure> {
        Ok(self.stdin.write_all(format!("{words}\n").as_bytes()).await?)
    }

    pub(crate) async fn hear(&mut self) -> Result<String, StoryFailure> {
        let line = self.stdout.next_line().await?;
        line.ok_or_else(|| StoryFailure::Aborted("the worker has ended".to_owned()))
    }

    pub(crate) async fn ask(&mut self, words: &str) -> Result<String, StoryFailure> {
        self.note(words).await?;
        self.hear().await
    }

    /// The fence and the words of the next write that arrives from it.
    pub(crate) async fn hear_write(&mut self) -> Result<(String, String), StoryFailure> {
        let line = self.hear().await?;
        let mut parts = line.splitn(3, ' ');
        match (parts.next(), parts.next(), parts.next()) {
            (Some("write"), Some(fence), Some(what)) => Ok((fence.to_owned(), what.to_owned())),
            _ => Err(StoryFailure::Aborted(format!("no write came from the worker: {line}"))),
        }
    }

    /// SIGSTOP: it stands still, and does not know.
    pub(crate) fn pause(&self) -> Result<(), StoryFailure> {
        self.signal(Signal::STOP)
    }

    pub(crate) fn wake(&self) -> Result<(), StoryFailure> {
        self.signal(Signal::CONT)
    }

    /// `kill -9`.
    pub(crate) async fn kill(mut self) -> Result<(), StoryFailure> {
        Ok(self.process.kill().await?)
    }

    fn signal(&self, signal: Signal) -> Result<(), StoryFailure> {
        let id = self.process.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let id = id.ok_or_else(|| StoryFailure::Aborted("the worker has ended".to_owned()))?;
        Ok(kill_process(id, signal)?)
    }
}
