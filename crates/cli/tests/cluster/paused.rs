//! A process that holds a lock and is stopped past its TTL, while another takes the lock.

use std::process::Stdio;
use std::time::Duration;

use holdfast_client::Client;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use crate::support::Cluster;

const LONG: Duration = Duration::from_secs(30);
const TTL: Duration = Duration::from_secs(3);
const ENDPOINTS: &str = "HOLDFAST_TEST_HOLDER_ENDPOINTS";
const MARK: &str = "holder: ";

/// Not a test: the holder itself, as a process of its own. It answers the words on its stdin.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the other process of the test below"]
async fn holder_process() {
    let Ok(endpoints) = std::env::var(ENDPOINTS) else { return };
    let client = Client::builder().ttl(TTL).connect(&endpoints).await.unwrap();
    let mut guard = Some(client.lock("a").acquire().await.unwrap());
    println!("{MARK}held {}", guard.as_ref().unwrap().token().unwrap());
    // Blocks a thread of the runtime; the session has others.
    for word in std::io::stdin().lines() {
        let word = word.unwrap();
        let answer = match (word.as_str(), &guard) {
            ("token", Some(guard)) => match (guard.token(), guard.fence()) {
                (Err(lost), Err(_)) => format!("none: {}", lost.reason),
                given => format!("{given:?}"),
            },
            ("lost", Some(guard)) => format!("lost: {}", guard.lost().await),
            ("proclaim", Some(guard)) => format!("{}", guard.proclaim("me").await.unwrap_err()),
            ("release", _) => match guard.take() {
                Some(guard) => format!("{:?}", guard.release().await.unwrap()),
                None => "nothing to release".to_owned(),
            },
            ("try", _) => format!("{}", client.lock("a").acquire().await.unwrap_err()),
            (other, _) => panic!("{other}"),
        };
        println!("{MARK}{answer}");
    }
}

struct Holder {
    process: Child,
    stdin: ChildStdin,
    stdout: Lines<BufReader<ChildStdout>>,
}

impl Holder {
    fn start(cluster: &Cluster) -> Holder {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "paused::holder_process", "--ignored", "--nocapture"])
            .env(ENDPOINTS, cluster.endpoints())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let stdin = process.stdin.take().unwrap();
        let stdout = BufReader::new(process.stdout.take().unwrap()).lines();
        Holder { process, stdin, stdout }
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.process.id().unwrap()).unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
    }

    async fn ask(&mut self, word: &str) {
        self.stdin.write_all(format!("{word}\n").as_bytes()).await.unwrap();
    }

    async fn answer(&mut self) -> String {
        loop {
            let line = timeout(LONG, self.stdout.next_line()).await.unwrap().unwrap();
            // The test harness of the process has words of its own.
            if let Some((_, answer)) = line.expect("the holder has ended").split_once(MARK) {
                return answer.to_owned();
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_that_was_stopped_past_its_ttl_gets_no_token_and_harms_nobody() {
    let cluster = Cluster::start(3).await;
    let mut holder = Holder::start(&cluster);
    let held = holder.answer().await;
    let token: u64 = held.strip_prefix("held ").unwrap().parse().unwrap();

    holder.signal(Signal::STOP);
    let newer = cluster.library().await.lock("a").wait(LONG).acquire().await.unwrap();
    assert!(newer.token().unwrap() > token);
    // Asked while it sleeps, it answers before any message from the cluster can have told it.
    holder.ask("token").await;
    holder.ask("lost").await;
    holder.ask("proclaim").await;
    holder.ask("release").await;
    holder.ask("try").await;
    holder.signal(Signal::CONT);
    let told = holder.answer().await;
    assert!(told.starts_with("none: "), "{told}");
    let told = holder.answer().await;
    assert!(told.starts_with("lost: "), "{told}");
    let told = holder.answer().await;
    assert!(told.starts_with("the lock is lost"), "{told}");
    assert_eq!(holder.answer().await, "Expired");
    assert_eq!(holder.answer().await, "the lock is held by somebody else");
    let status = cluster.client().status("a").await;
    assert_eq!((status.holder_count, status.waiter_count), (1, 0));
    assert_eq!(status.holders[0].token, newer.token().unwrap());
    assert!(status.holders[0].metadata.is_empty());
}
