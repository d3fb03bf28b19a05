//! `holdfast elect` and `holdfast observe`.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::sync::mpsc;

use crate::support::{Cluster, data, eventually, holdfast, json_lines, run, text, words};

const PATIENCE: Duration = Duration::from_secs(20);

/// What `holdfast observe` tells, line by line.
struct Observer {
    process: Child,
    lines: mpsc::UnboundedReceiver<Value>,
}

impl Observer {
    fn of(cluster: &Cluster, name: &str) -> Observer {
        let mut process = holdfast()
            .args(["observe", name, "--endpoints", &cluster.endpoints()])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = process.stdout.take().unwrap();
        let (reported, lines) = mpsc::unbounded_channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let _ = reported.send(serde_json::from_str(&line).unwrap());
            }
        });
        Observer { process, lines }
    }

    async fn next(&mut self) -> Value {
        tokio::time::timeout(PATIENCE, self.lines.recv()).await.expect("nothing is told").unwrap()
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn elect(cluster: &Cluster, value: &str) -> Child {
    let script = "echo $HOLDFAST_LOCK $HOLDFAST_TOKEN $HOLDFAST_FENCE; exec sleep 60";
    holdfast()
        .args(["elect", "cron", "--value", value, "--endpoints", &cluster.endpoints()])
        .args(["--", "sh", "-c", script])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

async fn ended(process: Child) -> std::process::Output {
    tokio::task::spawn_blocking(move || process.wait_with_output()).await.unwrap().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn leaders_follow_each_other_and_observers_are_told_of_each_and_of_vacancies() {
    let mut cluster = Cluster::start(3).await;
    let mut observer = Observer::of(&cluster, "cron");
    assert_eq!(observer.next().await["event"], "vacant");

    let first = elect(&cluster, "host-1:80");
    let reported = observer.next().await;
    assert_eq!(
        (&reported["event"], &reported["value"]),
        (&"leader".into(), &"host-1:80".into()),
        "{reported}"
    );
    let epoch =
        |reported: &serde_json::Value| reported["epoch"].as_str().unwrap().parse::<u64>().unwrap();
    let first_epoch = epoch(&reported);
    let second = elect(&cluster, "host-2:80");
    eventually("the second stands for election", PATIENCE, || async {
        (cluster.client().status("cron").await.waiter_count == 1).then_some(())
    })
    .await;

    // The cluster's own leader goes, and no candidate and no observer is disturbed.
    let node = cluster.leader().await;
    cluster.kill(node);
    cluster.leader().await;
    kill_process(Pid::from_child(&first), Signal::TERM).unwrap();
    let first = ended(first).await;
    assert_eq!(first.status.code(), Some(128 + 15), "{first:?}");
    let line = text(&first.stdout);
    let fence: holdfast_proto::Fence = line.split_whitespace().nth(2).unwrap().parse().unwrap();
    assert_eq!(line, format!("cron {first_epoch} {}\n", fence));

    let mut reported = observer.next().await;
    // Between the two no candidate leads for a moment; whether that is seen depends on how the log fell.
    if reported["event"] == "vacant" {
        reported = observer.next().await;
    }
    assert_eq!(reported["value"], "host-2:80", "{reported}");
    assert!(epoch(&reported) > first_epoch, "{reported}");
    let once = run(&cluster, &["observe", "cron", "--once"]).await;
    assert_eq!(json_lines(&once.stdout)[0]["epoch"], reported["epoch"]);

    // Taken away by an operator: the command ends, and the observer learns that there is no leader.
    data(&cluster, 0, &["break", "cron", "--reason", "test"]).await;
    let second = ended(second).await;
    assert_eq!(second.status.code(), Some(79), "{second:?}");
    // It may be over before the command could begin.
    let reported = text(&second.stderr);
    assert!(
        reported.contains("lost the leadership of cron") || reported.contains("the lock is lost"),
        "{second:?}"
    );
    assert_eq!(observer.next().await["event"], "vacant");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_not_elected_in_time_is_told_who_leads() {
    let cluster = Cluster::start(1).await;
    data(&cluster, 0, &["acquire", "cron", "--ttl", "60s", "--reason", "leads"]).await;
    let elect = ["elect", "cron", "--wait", "200ms"];
    let late = words(&cluster, 75, &[&elect[..], &["--", "true"]].concat()).await;
    assert!(late.contains("cron is held by holdfast acquire"), "{late}");
    words(&cluster, 5, &[&elect[..], &["-E", "5", "--", "true"]].concat()).await;
    assert_eq!(cluster.client().status("cron").await.waiter_count, 0);
    words(&cluster, 7, &["elect", "other", "--value", "v", "--", "sh", "-c", "exit 7"]).await;
    assert_eq!(cluster.client().status("other").await.holder_count, 0);
}
