//! Pictures of every view of the dashboard, light and dark, wide and narrow, of a cluster in which something
//! goes on. `cargo xtask screenshots` runs it.
//!
//! Arguments: the `holdfast` binary, and the directory for the pictures.

#![allow(clippy::print_stdout)]

use std::error::Error;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use holdfast_browser::Browser;
use holdfast_client::{Client, Guard, Leadership, Owner};
use serde_json::json;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const LONG: Duration = Duration::from_secs(600);
const WIDE: (u32, u32) = (1280, 860);
const NARROW: (u32, u32) = (390, 844);
/// For the plots to have something to show.
const SECONDS_BEFORE: usize = 45;

const VIEWS: [(&str, &str, &str); 7] = [
    ("overview", "#/", "Longest queues"),
    ("locks", "#/locks?sort=queue", "deploy/api"),
    ("lock", "#/lock?name=deploy%2Fapi", "Recent history"),
    ("graph", "#/graph", "The same in words"),
    ("sessions", "#/sessions", "billing"),
    ("events", "#/events", "granted"),
    ("elections", "#/elections?prefix=leader%2F", "leader/scheduler"),
];

#[tokio::main]
async fn main() -> Outcome<()> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let (Some(holdfast), Some(directory)) = (arguments.next(), arguments.next()) else {
        return Err("arguments: the holdfast binary, and the directory for the pictures".into());
    };
    std::fs::create_dir_all(&directory)?;
    let cluster = Dev::start(&holdfast)?;
    let scene = tokio::time::timeout(LONG / 4, Scene::play(&cluster.endpoints())).await??;
    let url = format!("http://127.0.0.1:{}/", cluster.port + 2);
    let written = tokio::task::spawn_blocking(move || take(&url, &directory)).await??;
    println!("{} pictures, {} KiB", written.0, written.1 / 1024);
    drop(scene);
    Ok(())
}

fn take(url: &str, directory: &Path) -> Outcome<(usize, usize)> {
    let browser = Browser::start(WIDE.0, WIDE.1)?;
    browser.open(url)?;
    let (mut count, mut bytes) = (0, 0);
    for (size, word) in [(WIDE, "wide"), (NARROW, "narrow")] {
        for (dark, scheme) in [(false, "light"), (true, "dark")] {
            browser.pretend(size.0, size.1, dark)?;
            for (name, hash, sign) in VIEWS {
                browser.run("location.hash = arguments[0]; scrollTo(0, 0)", &[json!(hash)])?;
                browser.wait_for_text("main", |text| text.contains(sign))?;
                let height = browser.run("return document.documentElement.scrollHeight", &[])?;
                let tall = u32::try_from(height.as_u64().unwrap_or(0))?.clamp(size.1, 1_000);
                browser.pretend(size.0, tall, dark)?;
                let picture = browser.picture()?;
                browser.pretend(size.0, size.1, dark)?;
                std::fs::write(directory.join(format!("{name}-{word}-{scheme}.png")), &picture)?;
                (count, bytes) = (count + 1, bytes + picture.len());
            }
        }
    }
    Ok((count, bytes))
}

/// A cluster in one process, gone with the value.
struct Dev {
    process: Child,
    port: u16,
    _directory: tempfile::TempDir,
}

impl Dev {
    fn start(holdfast: &Path) -> Outcome<Dev> {
        let directory = tempfile::tempdir()?;
        let secret = directory.path().join("secret");
        std::fs::write(&secret, "only for pictures\n")?;
        std::fs::set_permissions(&secret, PermissionsExt::from_mode(0o600))?;
        let port = free_port()?;
        let mut process = Command::new(holdfast)
            .args(["dev", "--port", &port.to_string(), "--actions-secret-file"])
            .arg(&secret)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let output = process.stdout.take().ok_or("holdfast dev says nothing")?;
        let dev = Dev { process, port, _directory: directory };
        for line in BufReader::new(output).lines() {
            if line? == "ready" {
                return Ok(dev);
            }
        }
        Err("holdfast dev did not become ready".into())
    }

    fn endpoints(&self) -> String {
        [0, 10, 20].map(|step| format!("127.0.0.1:{}", self.port + step)).join(",")
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// With room for all ports of three nodes.
fn free_port() -> Outcome<u16> {
    let is_free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    let found = (21_000..30_000).step_by(30).find(|base| (*base..base + 30).all(is_free));
    found.ok_or_else(|| "no free ports".into())
}

/// A day in the life of a cluster.
struct Scene {
    _clients: Vec<Client>,
    _guards: Vec<Guard>,
    _led: Vec<Leadership>,
}

impl Scene {
    async fn play(endpoints: &str) -> Outcome<Scene> {
        let mut clients = Vec::new();
        for (application, host, note) in [
            ("billing", "app-1", "month end"),
            ("deployer", "ci-7", "pipeline 4711"),
            ("deployer", "ci-8", "pipeline 4712"),
            ("reports", "app-2", ""),
            ("migrate", "db-admin", "by hand"),
            ("scheduler", "app-3", ""),
            ("scheduler", "app-4", ""),
            ("indexer", "app-5", ""),
        ] {
            let owner = Owner {
                application: application.into(),
                host: host.into(),
                pid: 4_000 + u32::try_from(clients.len())? * 37,
                note: note.into(),
            };
            clients.push(Client::builder().owner(owner).connect(endpoints).await?);
        }
        let [billing, ci_7, ci_8, reports, migrate, leader, candidate, indexer] =
            clients.as_slice()
        else {
            return Err("eight clients".into());
        };
        let mut guards = vec![
            ci_7.lock("deploy/api").actor(1).reason("release 2.14").acquire().await?,
            billing.lock("billing/month-end").reason("closing October").acquire().await?,
            migrate.lock("db/orders/schema").actor(1).reason("adding a column").acquire().await?,
            reports.lock("catalog").shared().acquire().await?,
            indexer.lock("catalog").shared().acquire().await?,
            indexer.lock("gpu").permits(4).acquire().await?,
            reports.lock("gpu").permits(4).acquire().await?,
        ];
        for name in ["<img src=x onerror=alert(1)>", "invoice\u{202e}fdp.exe", "nightly \"report\""]
        {
            guards.push(reports.lock(name).acquire().await?);
        }
        for number in 0..60 {
            guards.push(billing.lock(format!("account/{number:04}")).acquire().await?);
        }
        for (client, name) in [
            (ci_8, "deploy/api"),
            (billing, "deploy/api"),
            (reports, "deploy/api"),
            (ci_7, "db/orders/schema"),
            (indexer, "db/orders/schema"),
            (reports, "billing/month-end"),
            (migrate, "catalog"),
        ] {
            wait_in_line(client, name).await;
        }
        // To wait for what ci-7 holds, while ci-7 waits for what migrate holds.
        let refused = migrate.lock("deploy/api").actor(1).wait(LONG).acquire().await;
        if refused.is_ok() {
            return Err("a deadlock was not refused".into());
        }
        let mut led = Vec::new();
        for (client, name) in [(leader, "leader/scheduler"), (candidate, "leader/compactor")] {
            led.push(client.election(name).campaign("app-3:9000").await?);
        }
        let vacant = leader.election("leader/janitor").campaign("app-3:9000").await?;
        vacant.resign().await?;
        let waits = candidate.election("leader/scheduler");
        tokio::spawn(async move { waits.campaign("app-4:9000").await.map(drop) });
        keep_busy(indexer.clone());
        // One sample a second; the browser comes when there is something to plot.
        let mut seconds = tokio::time::interval(Duration::from_secs(1));
        for _ in 0..SECONDS_BEFORE {
            seconds.tick().await;
        }
        Ok(Scene { _clients: clients, _guards: guards, _led: led })
    }
}

/// Returns when it stands in line; it goes on to stand there.
async fn wait_in_line(client: &Client, name: &str) {
    let (queued, when_queued) = tokio::sync::oneshot::channel();
    let request = client.lock(name).actor(1).wait(LONG).on_queued(move |_| {
        let _ = queued.send(());
    });
    tokio::spawn(async move {
        if let Ok(guard) = request.acquire().await {
            guard.lost().await;
        }
    });
    let _ = when_queued.await;
}

/// Short holds, now and then two at once.
fn keep_busy(client: Client) {
    for worker in 0..3_u64 {
        let client = client.clone();
        tokio::spawn(async move {
            for round in 0_u64.. {
                let name = format!("queue/part-{}", (round * (worker + 1)) % 5);
                let Ok(guard) = client.lock(name).wait(LONG).acquire().await else { return };
                tokio::time::sleep(Duration::from_millis(5 + round % 40 * (worker + 1))).await;
                let _ = guard.release().await;
            }
        });
    }
}
