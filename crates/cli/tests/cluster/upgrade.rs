//! A rolling upgrade from an older build, under load. The older binary is not kept in the repository: `cargo xtask upgrade
//! --from PATH` hands it over.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use holdfast_cluster_kit::{Addresses, Nodes, Plan, WallClocks};

use crate::support::{PlainClient, all_cluster_slots, eventually};

const NEW: &str = env!("CARGO_BIN_EXE_holdfast");
const PATIENCE: Duration = Duration::from_secs(60);

fn old() -> PathBuf {
    let path = std::env::var_os("HOLDFAST_OLD_BINARY")
        .expect("HOLDFAST_OLD_BINARY names the older binary");
    let path = PathBuf::from(path);
    assert!(path.is_file(), "{} is no file", path.display());
    path
}

fn command(binary: &Path, endpoints: &str) -> Command {
    let mut command = Command::new(binary);
    command
        .env("HOLDFAST_ENDPOINTS", endpoints)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Takes one lock again and again, and notes each token in a file while it holds it.
fn worker(
    binary: PathBuf,
    endpoints: String,
    tokens: PathBuf,
    stop: Arc<AtomicBool>,
) -> JoinHandle<u64> {
    std::thread::spawn(move || {
        let mut count = 0;
        while !stop.load(Ordering::Relaxed) {
            let script = r#"echo "$HOLDFAST_TOKEN" >> "$0""#;
            let mut lock = command(&binary, &endpoints);
            lock.args(["lock", "counter", "--wait", "50s", "--", "sh", "-c", script]).arg(&tokens);
            let output = lock.output().unwrap();
            assert!(output.status.success(), "{}: {output:?}", binary.display());
            count += 1;
        }
        count
    })
}

struct Holder(Child);

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A command that runs under a lock until the test ends it.
fn hold(binary: &Path, endpoints: &str, name: &str) -> Holder {
    let mut lock = command(binary, endpoints);
    lock.args(["lock", name, "--", "sleep", "600"]).stdout(Stdio::null()).stderr(Stdio::null());
    Holder(lock.spawn().unwrap())
}

fn acquire(binary: &Path, endpoints: &str, name: &str) -> u64 {
    let output =
        command(binary, endpoints).args(["acquire", name, "--ttl", "30m"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let token = text.lines().find_map(|line| line.strip_prefix("token=")).unwrap();
    token.parse().unwrap()
}

async fn token_of(endpoints: &str, name: &str) -> Option<u64> {
    let calls = holdfast_client::unary::Unary::new(endpoints).unwrap();
    let status = calls.status(name).await.ok()?;
    status.holders.first().map(|holder| holder.token)
}

/// All nodes answer, follow one leader and have applied the same.
async fn settled(addresses: &Addresses) {
    eventually("the nodes follow one leader", PATIENCE, || async {
        let mut leaders = Vec::new();
        for address in addresses.client.values() {
            let client = PlainClient::new(vec![address.clone()]);
            leaders.push(client.own_view().await?.groups.first()?.leader);
        }
        (leaders[0] > 0 && leaders.iter().all(|leader| *leader == leaders[0])).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "it needs an older binary: cargo xtask upgrade --from PATH"]
async fn nodes_are_upgraded_one_by_one_under_load_and_nothing_is_lost() {
    let _slot = all_cluster_slots().await;
    let dir = tempfile::tempdir().unwrap();
    let addresses = Addresses::choose(3);
    let plan = Plan { cluster: "upgrade", addresses: &addresses, network: None, settings: "" };
    let clocks = || WallClocks::untouched(dir.path());
    let mut before = Nodes::prepare(&old(), dir.path(), clocks(), &plan).unwrap();
    let mut after = Nodes::prepare(NEW.as_ref(), dir.path(), clocks(), &plan).unwrap();
    for node in 1..=3 {
        before.start(node).unwrap();
    }
    let endpoints = addresses.client.values().cloned().collect::<Vec<_>>().join(",");
    settled(&addresses).await;

    let kept = acquire(&old(), &endpoints, "kept");
    let mut holders =
        [hold(&old(), &endpoints, "held-by-old"), hold(NEW.as_ref(), &endpoints, "held-by-new")];
    let mut held = Vec::new();
    for name in ["held-by-old", "held-by-new"] {
        let token = eventually("the lock is held", PATIENCE, || token_of(&endpoints, name)).await;
        held.push((name, token));
    }
    let tokens = dir.path().join("tokens");
    let stop = Arc::new(AtomicBool::new(false));
    let start =
        |binary: PathBuf| worker(binary, endpoints.clone(), tokens.clone(), Arc::clone(&stop));
    let workers = [start(old()), start(NEW.into()), start(old()), start(NEW.into())];
    let noted = || std::fs::read_to_string(&tokens).unwrap_or_default().lines().count();

    for node in 1..=3 {
        let so_far = noted();
        eventually("the load goes on", PATIENCE, || async { (noted() > so_far + 5).then_some(()) })
            .await;
        before.terminate(node).await.unwrap();
        after.start(node).unwrap();
        settled(&addresses).await;
        println!("node {node} runs the new build after {} grants", noted());
    }
    let so_far = noted();
    eventually("the load goes on", PATIENCE, || async { (noted() > so_far + 20).then_some(()) })
        .await;
    stop.store(true, Ordering::Relaxed);
    let counts: Vec<u64> = workers.into_iter().map(|worker| worker.join().unwrap()).collect();

    let text = std::fs::read_to_string(&tokens).unwrap();
    let tokens: Vec<u64> = text.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(tokens.len() as u64, counts.iter().sum::<u64>(), "each command ran once");
    assert!(tokens.is_sorted_by(|a, b| a < b), "tokens rise: {tokens:?}");
    assert_eq!(token_of(&endpoints, "kept").await, Some(kept));
    for (name, token) in held {
        assert_eq!(token_of(&endpoints, name).await, Some(token), "{name}");
    }
    for holder in &mut holders {
        assert_eq!(holder.0.try_wait().unwrap(), None, "a command lost its lock");
    }
    println!("{} grants over the upgrade, by four workers: {counts:?}", tokens.len());
}
