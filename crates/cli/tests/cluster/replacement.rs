//! All five nodes are replaced, one after another, under load: no acknowledged operation is lost, and no client
//! is refused for longer than an election takes. The clients know nothing but the first five nodes.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use holdfast_client::{Client, Guard, ReleaseOutcome};
use tokio::task::JoinHandle;

use crate::membership::bring_in;
use crate::support::{Cluster, eventually};

const WORKERS: usize = 6;
/// So many of them also take turns at one lock.
const SHARING: usize = 2;
/// Every so many locks one is kept, to be found again at the end.
const KEEP_EVERY: usize = 10;
/// An election timeout is drawn from 0.5 to 1 s; then come the votes, and the clients' way to the winner.
const ELECTION_MAX: Duration = Duration::from_millis(1_500);

/// What all workers share.
#[derive(Default)]
struct Load {
    stop: AtomicBool,
    operations: AtomicUsize,
    /// How long each operation took that did not have to wait for another worker.
    slowest: Mutex<Duration>,
}

impl Load {
    fn took(&self, span: Duration) {
        self.operations.fetch_add(1, Ordering::Relaxed);
        let mut slowest = self.slowest.lock().unwrap();
        *slowest = span.max(*slowest);
    }

    /// Every client has been served some more.
    async fn goes_on(&self) {
        let served = self.operations.load(Ordering::Relaxed) + 20 * WORKERS;
        eventually("the clients are served", Duration::from_secs(30), || async {
            (self.operations.load(Ordering::Relaxed) >= served).then_some(())
        })
        .await;
    }

    /// Of the time since it was last asked for.
    fn take_slowest(&self) -> Duration {
        std::mem::take(&mut *self.slowest.lock().unwrap())
    }
}

/// What a worker holds in the end.
struct Held {
    kept: Vec<(Guard, u64)>,
    shared: Vec<(Instant, u64)>,
    _client: Client,
}

fn start(endpoints: &str, worker: usize, load: &Arc<Load>) -> JoinHandle<Held> {
    let (endpoints, load) = (endpoints.to_owned(), Arc::clone(load));
    tokio::spawn(async move {
        let client = Client::connect(&endpoints).await.unwrap();
        work(worker, client, &load).await
    })
}

async fn work(worker: usize, client: Client, load: &Load) -> Held {
    let (mut kept, mut shared) = (Vec::new(), Vec::new());
    let mut last_token = 0;
    let mut rises = |token| {
        assert!(token > last_token, "a token went back: {last_token}, then {token}");
        last_token = token;
    };
    for round in 0.. {
        if load.stop.load(Ordering::Relaxed) {
            break;
        }
        let name = format!("load:{worker}:{round}");
        let started = Instant::now();
        let guard = client.lock(&name).acquire().await.unwrap();
        load.took(started.elapsed());
        let token = guard.token().unwrap();
        rises(token);
        if round % KEEP_EVERY == 0 {
            kept.push((guard, token));
        } else {
            let started = Instant::now();
            assert_eq!(guard.release().await.unwrap(), ReleaseOutcome::Released, "{name}");
            load.took(started.elapsed());
        }
        if worker < SHARING {
            let wait = Duration::from_secs(30);
            let guard = client.lock("load:shared").wait(wait).acquire().await.unwrap();
            let token = guard.token().unwrap();
            rises(token);
            shared.push((Instant::now(), token));
            assert_eq!(guard.release().await.unwrap(), ReleaseOutcome::Released);
        }
    }
    Held { kept, shared, _client: client }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_five_nodes_are_replaced_under_load_and_nothing_is_lost() {
    let mut cluster = Cluster::start_alone(5).await;
    let first_five = cluster.endpoints();
    // A client that does nothing but keep its session alive.
    let idle = Client::connect(&first_five).await.unwrap();
    let held = idle.lock("held throughout").acquire().await.unwrap();
    let held_token = held.token().unwrap();
    let load = Arc::new(Load::default());
    let workers: Vec<_> = (0..WORKERS).map(|worker| start(&first_five, worker, &load)).collect();

    for old in 1..=5 {
        let (new, endpoints) = (old + 5, cluster.endpoints());
        bring_in(&mut cluster, &endpoints, new, &["cluster", "replace", &old.to_string()]).await;
        assert_eq!(cluster.ends(old).await.code(), Some(77));
        load.goes_on().await;
    }
    assert_eq!(cluster.ids(), [6, 7, 8, 9, 10]);
    let while_replaced = load.take_slowest();
    // None of the first five nodes is there any more, and the leader that all clients are with goes too.
    let leader = cluster.leader().await;
    cluster.kill(leader);
    cluster.leader().await;
    load.goes_on().await;
    cluster.launch(leader);
    load.stop.store(true, Ordering::Relaxed);

    let (mut shared, mut kept_count) = (Vec::new(), 0);
    for worker in workers {
        let Held { kept, shared: turns, _client } = worker.await.unwrap();
        shared.extend(turns);
        for (guard, token) in &kept {
            assert_eq!(guard.token(), Ok(*token), "{} was lost", guard.name());
            let holders = cluster.client().status(guard.name()).await.holders;
            let held: Vec<u64> = holders.iter().map(|holder| holder.token).collect();
            assert_eq!(held, [*token], "{} was acknowledged under {token}", guard.name());
        }
        kept_count += kept.len();
    }
    let while_dead = load.take_slowest();
    shared.sort();
    assert!(shared.windows(2).all(|pair| pair[0].1 < pair[1].1), "tokens went back");
    assert_eq!(held.token(), Ok(held_token));
    assert_eq!(held.release().await.unwrap(), ReleaseOutcome::Released);
    let operations = load.operations.load(Ordering::Relaxed);
    println!(
        "{operations} operations by {WORKERS} clients, {kept_count} locks kept; the slowest took \
         {while_replaced:?} while five nodes were replaced, {while_dead:?} when the leader was killed"
    );
    assert!(kept_count > 30, "hardly any load: {operations} operations, {kept_count} locks kept");
    for slowest in [while_replaced, while_dead] {
        assert!(slowest < ELECTION_MAX, "the slowest took {slowest:?}");
    }
    cluster.converged().await;
}
