//! A client whose connections are cut and broken at random, under load.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use holdfast_client::{AcquireError, Client, LossReason};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::support::{Cluster, Proxy, eventually};

const TTL: Duration = Duration::from_secs(6);
const STORM: Duration = Duration::from_secs(60);
/// Two thirds of the TTL less a round trip, and what a machine with other work to do may take for that.
const CUT_MAX: Duration = Duration::from_millis(3_200);
const LOCKS: usize = 4;
const WORKERS: usize = 12;
const LONG: Duration = Duration::from_secs(60);

/// Numbers that look random, and are the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// What the locks protect: no client may be inside twice, and tokens only rise.
#[derive(Default)]
struct Protected {
    is_inside: AtomicBool,
    last_token: AtomicU64,
}

#[derive(Default)]
struct Load {
    protected: [Protected; LOCKS],
    stop: AtomicBool,
    done: AtomicU64,
    unavailable: AtomicU64,
}

async fn work(client: Client, load: Arc<Load>, number: usize) {
    let mut random = Random(number as u64);
    while !load.stop.load(Ordering::Relaxed) {
        let at = random.below(LOCKS as u64) as usize;
        match client.lock(format!("hot-{at}")).wait(LONG).acquire().await {
            Ok(guard) => {
                let token = guard.token().expect("lost in a short cut");
                let protected = &load.protected[at];
                assert!(!protected.is_inside.swap(true, Ordering::SeqCst), "held twice");
                let before = protected.last_token.swap(token, Ordering::SeqCst);
                assert!(before < token, "{token} after {before}");
                tokio::task::yield_now().await;
                guard.token().expect("lost in a short cut");
                protected.is_inside.store(false, Ordering::SeqCst);
                // Given back in words or by dropping it, and the caller may not wait for it.
                if random.below(2) == 0 {
                    let _ = guard.release().await;
                }
                load.done.fetch_add(1, Ordering::Relaxed);
            }
            Err(AcquireError::Unavailable(_)) => {
                // The circuit was open, or the patience of the call was over: neither is a loss.
                load.unavailable.fetch_add(1, Ordering::Relaxed);
                client.circuit().closed().await;
            }
            Err(error) => panic!("{error:?}"),
        }
    }
}

fn start_load(clients: [&Client; 2], load: &Arc<Load>) -> Vec<JoinHandle<()>> {
    let work = |number: usize| work(clients[number % 2].clone(), Arc::clone(load), number);
    (0..WORKERS).map(|number| tokio::spawn(work(number))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn short_cuts_cost_no_session_and_no_lock_and_a_long_one_is_told() {
    let cluster = Cluster::start(3).await;
    let mut proxies = Vec::new();
    for id in cluster.ids() {
        proxies.push(Proxy::to(cluster.client_address(id)).await);
    }
    let endpoints: Vec<_> = proxies.iter().map(Proxy::address).collect();
    let stormy =
        Client::builder().ttl(TTL).without_discovery().connect(&endpoints.join(",")).await.unwrap();
    let calm = cluster.library().await;
    let kept = stormy.lock("kept").acquire().await.unwrap();
    let kept_token = kept.token().unwrap();
    let session = cluster.client().status("kept").await.holders[0].public_session_id.clone();

    let load = Arc::new(Load::default());
    let workers = start_load([&stormy, &calm], &load);
    let mut random = Random(1);
    let mut cuts = 0;
    let begun = Instant::now();
    while begun.elapsed() < STORM {
        let cut_for = Duration::from_millis(random.below(CUT_MAX.as_millis() as u64));
        let breaks = random.below(2) == 0;
        for proxy in &proxies {
            proxy.cut();
        }
        // The storm itself: how long it lasts is the point.
        sleep(cut_for).await;
        for proxy in &proxies {
            if breaks {
                proxy.break_connections();
            }
            proxy.heal();
        }
        cuts += 1;
        assert_eq!(kept.token(), Ok(kept_token), "after a cut of {cut_for:?}, broken: {breaks}");
        // One request has to get through, or two cuts would be one.
        let token = stormy.lock("through").wait(LONG).acquire().await.unwrap().token().unwrap();
        assert!(token > kept_token);
        // And some work is done between them, more or less of it.
        let enough = load.done.load(Ordering::Relaxed) + random.below(100);
        eventually("the workers go on", LONG, || async {
            (load.done.load(Ordering::Relaxed) >= enough).then_some(())
        })
        .await;
    }
    load.stop.store(true, Ordering::Relaxed);
    for worker in workers {
        timeout(LONG, worker).await.expect("a worker is stuck").unwrap();
    }
    let (done, unavailable) =
        (load.done.load(Ordering::Relaxed), load.unavailable.load(Ordering::Relaxed));
    println!("{cuts} cuts, {done} times locked, {unavailable} calls unavailable");
    assert!(cuts >= 10 && done > 1_000);
    for at in 0..LOCKS {
        eventually("nothing is stuck", LONG, || async {
            let status = cluster.client().status(&format!("hot-{at}")).await;
            (status.holder_count == 0 && status.waiter_count == 0).then_some(())
        })
        .await;
    }
    let holder = cluster.client().status("kept").await.holders.remove(0);
    assert_eq!((holder.token, holder.public_session_id), (kept_token, session.clone()));

    // A cut that is too long: what was held is lost, and its holder is told so, by the clock.
    let also = stormy.lock("also").shared().acquire().await.unwrap();
    for proxy in &proxies {
        proxy.cut();
    }
    for guard in [&kept, &also] {
        assert_eq!(timeout(LONG, guard.lost()).await.unwrap(), LossReason::Expired);
    }
    eventually("the session ends", LONG, || async {
        let sessions = cluster.client().sessions().await;
        sessions.iter().all(|info| info.public_id != session).then_some(())
    })
    .await;
    for proxy in &proxies {
        proxy.heal();
    }
    timeout(LONG, stormy.circuit().closed()).await.unwrap();
    let again = stormy.lock("kept").wait(LONG).acquire().await.unwrap();
    assert!(again.token().unwrap() > kept_token && kept.token().is_err());
    drop((kept, also));
    again.token().unwrap();
}
