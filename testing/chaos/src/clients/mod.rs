//! The clients of a run: some over unary calls, some through the client library, and one that keeps
//! what it gets. Some fall silent as soon as they hold something. One per node only reads, to find out when the cluster serves.

mod calls;
mod keeper;
mod leaver;
mod library;
mod plain;
mod prober;
mod session;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use holdfast_core::LockName;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::division::Division;
use crate::random::Random;
use crate::recorder::Recorder;

pub(crate) use calls::{Answer, Calls};
pub(crate) use keeper::Kept;

const PLAIN_CLIENTS: u64 = 8;
const LIBRARY_CLIENTS: u64 = 4;
const LEAVERS: u64 = 4;
/// Fewer than clients: they meet.
const SHARED_LOCKS: usize = 4;
/// With several groups: in each of them.
const SHARED_LOCKS_OF_GROUP: usize = 2;

/// What all clients know.
#[derive(Clone, Debug)]
pub(crate) struct ClientContext {
    /// Where the nodes are, as clients reach them.
    pub(crate) addresses: Arc<BTreeMap<u64, String>>,
    pub(crate) recorder: Recorder,
    pub(crate) division: Arc<Division>,
    /// Locks that all clients want.
    shared: Arc<[LockName]>,
    /// True when the clients shall come to an end.
    stop: watch::Receiver<bool>,
}

#[derive(Debug)]
pub(crate) struct Clients {
    stop: watch::Sender<bool>,
    working: Vec<JoinHandle<()>>,
    keeper: JoinHandle<Vec<Kept>>,
}

impl Clients {
    pub(crate) fn start(
        addresses: BTreeMap<u64, String>,
        division: &Division,
        recorder: &Recorder,
        random: &Random,
    ) -> Clients {
        let stop = watch::Sender::new(false);
        let context = ClientContext {
            addresses: Arc::new(addresses),
            recorder: recorder.clone(),
            division: Arc::new(division.clone()),
            shared: shared_locks(division).into(),
            stop: stop.subscribe(),
        };
        let mut working = Vec::new();
        for number in 0..PLAIN_CLIENTS {
            let random = random.fork(100 + number);
            working.push(tokio::spawn(plain::work(number, context.clone(), random)));
        }
        for number in 0..LIBRARY_CLIENTS {
            let random = random.fork(200 + number);
            working.push(tokio::spawn(library::work(number, context.clone(), random)));
        }
        for number in 0..LEAVERS {
            working.push(tokio::spawn(leaver::work(number, context.clone())));
        }
        for node in context.addresses.keys().copied() {
            let random = random.fork(300 + node);
            working.push(tokio::spawn(prober::work(node, context.clone(), random)));
        }
        let keeper = tokio::spawn(keeper::work(context));
        Clients { stop, working, keeper }
    }

    /// Lets all come to an end within `patience`; gives what the keeper holds. A node that does not end in
    /// time is cut off, and its operation has no answer.
    pub(crate) async fn stop(self, patience: Duration) -> Vec<Kept> {
        self.stop.send_replace(true);
        let deadline = tokio::time::Instant::now() + patience;
        for client in self.working {
            let handle = client.abort_handle();
            if tokio::time::timeout_at(deadline, client).await.is_err() {
                handle.abort();
            }
        }
        let handle = self.keeper.abort_handle();
        match tokio::time::timeout_at(deadline, self.keeper).await {
            Ok(Ok(kept)) => kept,
            _ => {
                handle.abort();
                Vec::new()
            }
        }
    }
}

impl ClientContext {
    fn is_over(&self) -> bool {
        *self.stop.borrow()
    }

    fn shared_lock(&self, random: &mut Random) -> Option<LockName> {
        let place = random.within(0..self.shared.len() as u64);
        self.shared.get(place as usize).cloned()
    }

    /// Sleeps for so long, or until the end.
    async fn pause(&self, time: Duration) {
        let mut stop = self.stop.clone();
        let _ = tokio::time::timeout(time, stop.wait_for(|stop| *stop)).await;
    }
}

/// The same number in each group.
fn shared_locks(division: &Division) -> Vec<LockName> {
    let of_each = match division.groups().len() {
        1 => SHARED_LOCKS,
        _ => SHARED_LOCKS_OF_GROUP,
    };
    let mut found: BTreeMap<u32, usize> = division.groups().map(|group| (group, 0)).collect();
    let mut names = Vec::new();
    let mut candidates = (0..).map_while(|number| LockName::new(&format!("shared:{number}")).ok());
    while names.len() < of_each * found.len()
        && let Some(name) = candidates.next()
    {
        let count = found.entry(division.group_of(name.as_str())).or_default();
        if *count < of_each {
            *count += 1;
            names.push(name);
        }
    }
    names
}
