//! A library's driver: a child process that reads requests as JSON lines and answers each by its id.
//!
//! ```text
//! -> {"id":2,"op":"acquire","client":"c","name":"a","wait_ms":5000,"as":"g"}
//! <- {"id":2,"ok":{"token":"17","fence":"hf1.L.…"}}
//! -> {"id":3,"op":"token","guard":"g"}
//! <- {"id":3,"err":{"kind":"lost","reason":"expired"}}
//! ```
//!
//! Requests are answered in any order; `token` is answered at once. Numbers that may exceed 2^53 are texts.

use std::collections::BTreeMap;
use std::fmt;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::{Mutex as AsyncMutex, oneshot};
use tokio::time::timeout;

use crate::finding::{Checked, Finding, broken, violation};

/// Longer than any scenario lets a request take.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a driver answered.
#[derive(Debug, Clone)]
pub(crate) enum Reply {
    Ok(Value),
    Err(Value),
}

#[derive(Debug)]
pub(crate) struct Driver {
    child: Child,
    stdin: AsyncMutex<ChildStdin>,
    pending: Arc<Mutex<BTreeMap<u64, oneshot::Sender<Reply>>>>,
    last_id: AtomicU64,
    lacks: Vec<String>,
}

/// What a language may not have. A driver says so in its first answer; everything else it must be able to do.
const LANGUAGE_SPECIFIC: [&str; 4] = ["auto_renew", "block", "cancel", "fork"];

/// Threads that wake by themselves in each Java program, by the beginning of their names.
const THREADS_OF_JAVA: [&str; 6] =
    ["VM ", "GC Thread", "C1 Compiler", "C2 Compiler", "Monitor Deflati", "Common-Cleaner"];

/// A request that has no answer yet.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) id: u64,
    what: String,
    reply: oneshot::Receiver<Reply>,
    pub(crate) asked: Asked,
}

/// When the suite asked: whatever the driver read, it read later.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked {
    pub(crate) at: Instant,
    pub(crate) unix_ms: u64,
}

impl Asked {
    pub(crate) fn now() -> Asked {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let unix_ms = u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX);
        Asked { at: Instant::now(), unix_ms }
    }
}

impl Driver {
    pub(crate) async fn start(command: &[String], misbehaves: Option<&str>) -> Checked<Driver> {
        let Some((program, arguments)) = command.split_first() else {
            return Err(Finding::Broken("the command of the driver is empty".to_owned()));
        };
        let mut command = Command::new(program);
        command.args(arguments);
        if let Some(mode) = misbehaves {
            command.args(["--misbehave", mode]);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().map_err(|error| broken(format!("{program}: {error}")))?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Finding::Broken("the driver has no pipes".to_owned()));
        };
        let pending: Arc<Mutex<BTreeMap<u64, oneshot::Sender<Reply>>>> = Arc::default();
        let waiting = Arc::clone(&pending);
        tokio::spawn(async move {
            let mut lines = BufReader::new(stdout).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                let Ok(mut line) = serde_json::from_str::<Value>(&line) else { continue };
                let id = line["id"].as_u64().unwrap_or(0);
                let reply = match line.get_mut("ok").map(Value::take) {
                    Some(ok) => Reply::Ok(ok),
                    None => Reply::Err(line["err"].take()),
                };
                let caller = waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
                if let Some(caller) = caller {
                    let _ = caller.send(reply);
                }
            }
            // All who still wait see that the driver is gone.
            waiting.lock().unwrap_or_else(PoisonError::into_inner).clear();
        });
        let (stdin, last_id) = (AsyncMutex::new(stdin), AtomicU64::new(0));
        let mut driver = Driver { child, stdin, pending, last_id, lacks: Vec::new() };
        let hello = driver.ok(json!({"op": "hello"})).await?;
        let lacks = hello["lacks"].as_array().cloned().unwrap_or_default();
        driver.lacks = lacks.iter().filter_map(Value::as_str).map(str::to_owned).collect();
        if let Some(word) = driver.lacks.iter().find(|it| !LANGUAGE_SPECIFIC.contains(&it.as_str()))
        {
            let all = LANGUAGE_SPECIFIC.join(", ");
            return violation(format!("a driver may lack {all}, and not `{word}`"));
        }
        Ok(driver)
    }

    pub(crate) fn lacks(&self, operation: &str) -> bool {
        self.lacks.iter().any(|it| it == operation)
    }

    /// Sends a request. Its answer may come at any time.
    pub(crate) async fn send(&self, mut request: Value) -> Checked<Pending> {
        let id = self.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        request["id"] = json!(id);
        let (caller, reply) = oneshot::channel();
        self.pending.lock().unwrap_or_else(PoisonError::into_inner).insert(id, caller);
        let line = format!("{request}\n");
        let asked = Asked::now();
        self.stdin.lock().await.write_all(line.as_bytes()).await?;
        Ok(Pending { id, what: request.to_string(), reply, asked })
    }

    pub(crate) async fn call(&self, request: Value) -> Checked<Reply> {
        self.send(request).await?.reply().await
    }

    /// The answer to a request that must succeed.
    pub(crate) async fn ok(&self, request: Value) -> Checked<Value> {
        let pending = self.send(request).await?;
        let what = pending.what.clone();
        pending.reply().await?.ok(&what)
    }

    /// The error of a request that must fail in this way.
    pub(crate) async fn err(&self, request: Value, kind: &str) -> Checked<Value> {
        let pending = self.send(request).await?;
        let what = pending.what.clone();
        pending.reply().await?.err(&what, kind)
    }

    /// The process stands still.
    pub(crate) fn stop(&self) -> Checked {
        self.signal(Signal::STOP)
    }

    pub(crate) fn go_on(&self) -> Checked {
        self.signal(Signal::CONT)
    }

    /// How often the driver's threads went to sleep, except for those that a Java machine runs for itself.
    pub(crate) fn wake_ups(&self) -> Checked<u64> {
        let pid = self.child.id().ok_or_else(|| broken("the driver has ended"))?;
        let mut sum = 0;
        // Only Linux counts them.
        let threads = std::fs::read_dir(format!("/proc/{pid}/task"));
        for thread in threads.into_iter().flatten().flatten() {
            // A thread may end meanwhile.
            let Ok(status) = std::fs::read_to_string(thread.path().join("status")) else {
                continue;
            };
            let field = |name: &str| status.lines().find_map(|it| it.strip_prefix(name));
            let name = field("Name:").unwrap_or_default().trim();
            if !THREADS_OF_JAVA.iter().any(|prefix| name.starts_with(prefix)) {
                let switches = field("voluntary_ctxt_switches:").unwrap_or_default();
                sum += switches.trim().parse::<u64>().map_err(broken)?;
            }
        }
        Ok(sum)
    }

    fn signal(&self, signal: Signal) -> Checked {
        let pid = self.child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        let pid = pid.ok_or_else(|| broken("the driver has ended"))?;
        kill_process(pid, signal).map_err(broken)
    }
}

impl Pending {
    pub(crate) async fn reply(self) -> Checked<Reply> {
        match timeout(PATIENCE, self.reply).await {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(_)) => violation(format!("the driver ended during {}", self.what)),
            Err(_) => violation(format!("no answer within {PATIENCE:?} to {}", self.what)),
        }
    }

    pub(crate) async fn ok(self) -> Checked<Value> {
        let what = self.what.clone();
        self.reply().await?.ok(&what)
    }

    pub(crate) async fn err(self, kind: &str) -> Checked<Value> {
        let what = self.what.clone();
        self.reply().await?.err(&what, kind)
    }
}

impl Reply {
    pub(crate) fn ok(self, what: &str) -> Checked<Value> {
        match self {
            Reply::Ok(value) => Ok(value),
            Reply::Err(error) => violation(format!("{what} failed: {error}")),
        }
    }

    pub(crate) fn err(self, what: &str, kind: &str) -> Checked<Value> {
        match self {
            Reply::Err(error) if error["kind"] == kind => Ok(error),
            other => violation(format!("{what}: expected the error {kind}, and got {other}")),
        }
    }
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reply::Ok(value) => write!(f, "success: {value}"),
            Reply::Err(error) => write!(f, "the error {error}"),
        }
    }
}
