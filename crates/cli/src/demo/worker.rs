//! Worker A, which stands still at the worst moment.
//!
//! It has a thread and a runtime of its own, and that runtime runs only while something is asked of it. When A stands
//! still so does all of its library: no heartbeat is sent, no message is heard. That is what a long garbage collection or
//! a suspended machine looks like from outside.

use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use holdfast_client::{AcquireError, Client, Guard};
use holdfast_fence::Refusal;
use holdfast_fence::in_process::CheckError;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

use super::bank::Bank;

const WAIT: Duration = Duration::from_secs(30);

/// What A does with the account.
#[derive(Debug, Clone)]
pub(super) struct Task {
    pub(super) endpoints: String,
    pub(super) ttl: Duration,
    pub(super) account: String,
    pub(super) deposit: i64,
}

/// A, from outside.
#[derive(Debug)]
pub(super) struct Worker {
    started: oneshot::Receiver<Result<Started, String>>,
    wake: mpsc::Sender<()>,
    ended: oneshot::Receiver<Result<Ended, String>>,
}

/// It holds the lock, has read the balance, and stands still.
#[derive(Debug, Clone, Copy)]
pub(super) struct Started {
    pub(super) token: u64,
    pub(super) read: i64,
    /// When it sent its last request. Its lease begins no sooner.
    pub(super) last_request: Instant,
}

/// What became of the write after it woke up.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) wrote: i64,
    pub(super) late: Result<(), CheckError>,
    /// Why the library gives it no token any more; none if it does.
    pub(super) lost: Option<String>,
    /// If the late write was refused: the token under which it was repeated.
    pub(super) repeated: Option<u64>,
}

impl Ended {
    /// The token that came late, and the one that was seen before it.
    pub(super) fn refused(&self) -> Option<(u64, u64)> {
        match &self.late {
            Err(CheckError::Refused(Refusal::Stale { token, highest, .. })) => {
                Some((*token, *highest))
            }
            _ => None,
        }
    }
}

impl Worker {
    pub(super) fn start(errand: Task, bank: Arc<Bank>) -> std::io::Result<Worker> {
        let (wake, woken) = mpsc::channel();
        let (tell_started, started) = oneshot::channel();
        let (tell_ended, ended) = oneshot::channel();
        thread::Builder::new().name("worker A".to_owned()).spawn(move || {
            let runtime = match Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime,
                Err(error) => return drop(tell_started.send(Err(error.to_string()))),
            };
            let (client, guard, fence, read, last_request) = match begin(&runtime, &errand, &bank) {
                Ok(begun) => begun,
                Err(error) => return drop(tell_started.send(Err(error.to_string()))),
            };
            // It looked: it holds the lock. Whatever happens from here on, it does not look again.
            let token = guard.token().unwrap_or_default();
            let _ = tell_started.send(Ok(Started { token, read, last_request }));
            if woken.recv().is_err() {
                return;
            }
            let wrote = read + errand.deposit;
            let late = bank.write(&fence, wrote, errand.deposit);
            let lost = guard.token().err().map(|lost| lost.reason.to_string());
            let repeated = match &late {
                Ok(()) => Ok(None),
                Err(_) => repeat_work(&runtime, &client, &errand, &bank).map(Some),
            };
            let ended = repeated.map(|repeated| Ended { wrote, late, lost, repeated });
            let _ = tell_ended.send(ended.map_err(|error| error.to_string()));
            // The cluster may not answer any more.
            let _ = runtime.block_on(client.close());
        })?;
        Ok(Worker { started, wake, ended })
    }

    /// Returns when it stands still.
    pub(super) async fn started(&mut self) -> Result<Started, String> {
        (&mut self.started).await.unwrap_or_else(|_| Err("worker A is gone".to_owned()))
    }

    pub(super) async fn wake(self) -> Result<Ended, String> {
        let _ = self.wake.send(());
        self.ended.await.unwrap_or_else(|_| Err("worker A is gone".to_owned()))
    }
}

type Failure = Box<dyn std::error::Error>;

fn begin(
    runtime: &Runtime,
    errand: &Task,
    bank: &Bank,
) -> Result<(Client, Guard, String, i64, Instant), Failure> {
    let (client, guard, asked) = runtime.block_on(async {
        let client = Client::builder().ttl(errand.ttl).note("worker A");
        let client = client.connect(&errand.endpoints).await?;
        let asked = Instant::now();
        let guard = client.lock(&errand.account).wait(WAIT).acquire().await?;
        Ok::<_, Failure>((client, guard, asked))
    })?;
    let fence = guard.fence()?;
    let read = bank.read(&fence)?;
    Ok((client, guard, fence, read, asked))
}

/// As the refusal says: take the lock again, and begin with reading.
fn repeat_work(
    runtime: &Runtime,
    client: &Client,
    errand: &Task,
    bank: &Bank,
) -> Result<u64, Failure> {
    let ask = || runtime.block_on(client.lock(&errand.account).wait(WAIT).acquire());
    let guard = match ask() {
        // That of before the pause. The next request opens a new one.
        Err(AcquireError::SessionLost(_)) => ask()?,
        answer => answer?,
    };
    let (token, fence) = (guard.token()?, guard.fence()?);
    let read = bank.read(&fence)?;
    bank.write(&fence, read + errand.deposit, errand.deposit)?;
    runtime.block_on(guard.release())?;
    Ok(token)
}
