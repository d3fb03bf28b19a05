//! A process that holds a lock and is stopped past its TTL, while another takes the lock.

use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use crate::support::{Cluster, build_examples};

const LONG: Duration = Duration::from_secs(30);
const TTL: Duration = Duration::from_secs(3);

struct Holder {
    process: Child,
    stdin: ChildStdin,
    stdout: Lines<BufReader<ChildStdout>>,
}

impl Holder {
    fn start(cluster: &Cluster) -> Holder {
        let mut process = Command::new(build_examples().join("holder"))
            .args([cluster.endpoints(), TTL.as_millis().to_string()])
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
        let line = timeout(LONG, self.stdout.next_line()).await.unwrap().unwrap();
        line.expect("the holder has ended")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_that_was_stopped_past_its_ttl_gets_no_token_and_harms_no_client() {
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
    let reported = holder.answer().await;
    assert!(reported.starts_with("none: "), "{reported}");
    let reported = holder.answer().await;
    assert!(reported.starts_with("lost: "), "{reported}");
    let reported = holder.answer().await;
    assert!(reported.starts_with("the lock is lost"), "{reported}");
    assert_eq!(holder.answer().await, "Expired");
    assert_eq!(holder.answer().await, "the lock is held by another client");
    let status = cluster.client().status("a").await;
    assert_eq!((status.holder_count, status.waiter_count), (1, 0));
    assert_eq!(status.holders[0].token, newer.token().unwrap());
    assert!(status.holders[0].metadata.is_empty());
}
