//! No second holder starts while the first one's work runs: whatever dies between a client and its node, and however the
//! holder dies itself.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::support::{
    Cluster, ClusterOptions, CommandFixture, PATIENCE, Proxy, build_examples, data, eventually,
    finished, holdfast, signal,
};

/// Writes the time again and again, in the command itself and in a process that it left behind. Both ignore SIGTERM.
const STUBBORN: &str = "trap '' TERM HUP INT
beat() { while :; do date +%s%N > alive.$1.new; mv alive.$1.new alive.$1; sleep 0.02; done; }
(beat forked) & echo $$ > pid; beat command";

/// After a kill the lock is free within this time.
const FREED_SOON: Duration = Duration::from_millis(1_500);

/// One node that tells no client where it is, so that a client behind a relay knows the relay only.
async fn fixture_behind_relays() -> CommandFixture {
    let settings = "announce_addresses = false".to_owned();
    CommandFixture::of(Cluster::start_with(ClusterOptions { nodes: 1, settings }).await)
}

/// A process beside the test, which can be killed.
struct Relay {
    process: Child,
    address: String,
}

impl Relay {
    fn start(target: &str) -> Relay {
        let mut process = Command::new(build_examples().join("relay"))
            .arg(target)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut address = String::new();
        let mut stdout = BufReader::new(process.stdout.take().unwrap());
        stdout.read_line(&mut address).unwrap();
        Relay { process, address: address.trim().to_owned() }
    }

    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// `holdfast VERB a …`, with the stubborn command; returns when that works.
async fn first(fixture: &CommandFixture, verb: &str, endpoints: &str, more: &[&str]) -> Child {
    let mut args = vec![verb, "a", "--endpoints", endpoints];
    args.extend(more);
    args.extend(["--", "bash", "-c", STUBBORN]);
    let process = fixture.holdfast(&args).process_group(0).spawn().unwrap();
    for part in ["alive.command", "alive.forked"] {
        fixture.appears(part).await;
    }
    process
}

/// The next in line, whose command notes when it began.
async fn second(fixture: &CommandFixture, verb: &str) -> Child {
    let command = ["--wait", "60s", "--", "sh", "-c", "date +%s%N > second"];
    let process = fixture.holdfast(&[&[verb, "a"][..], &command].concat()).spawn().unwrap();
    fixture.has_waiter("a").await;
    process
}

fn time_in(fixture: &CommandFixture, file: &str) -> Duration {
    let text = std::fs::read_to_string(fixture.path(file)).unwrap();
    Duration::from_nanos(text.trim().parse().unwrap())
}

/// The second has run to its end, and began after the last sign of life of the first.
async fn none_overlaps(fixture: &CommandFixture, second: Child) {
    let ended = finished(second).await;
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    let began = time_in(fixture, "second");
    for part in ["alive.command", "alive.forked"] {
        let last = time_in(fixture, part);
        println!("{part}: {:?} before the second began", began.saturating_sub(last));
        assert!(last < began, "{part} lived {:?} beside the second", last.saturating_sub(began));
    }
}

/// The companion of a `holdfast lock`.
async fn companion_of(process: &Child) -> u32 {
    let children = format!("/proc/{0}/task/{0}/children", process.id());
    eventually("the companion runs", PATIENCE, || async {
        let children = std::fs::read_to_string(&children).unwrap();
        let mut children = children.split_whitespace().map(|pid| pid.parse::<u32>().unwrap());
        children.find(|pid| {
            std::fs::read(format!("/proc/{pid}/cmdline"))
                .is_ok_and(|it| it == b"holdfast\0companion\0")
        })
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn while_a_relay_is_dead_no_second_holder_starts_before_the_first_command_is_dead() {
    for verb in ["lock", "elect"] {
        let fixture = fixture_behind_relays().await;
        let mut relay = Relay::start(&fixture.cluster.client_address(1));
        let holder = first(&fixture, verb, &relay.address, &["--ttl", "3s"]).await;
        let next = second(&fixture, verb).await;
        relay.kill();
        none_overlaps(&fixture, next).await;
        assert_eq!(finished(holder).await.status.code(), Some(79));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn while_a_connection_is_cut_no_second_holder_starts_before_the_first_command_is_dead() {
    let fixture = fixture_behind_relays().await;
    let proxy = Proxy::to(fixture.cluster.client_address(1)).await;
    let holder = first(&fixture, "lock", proxy.address(), &["--ttl", "3s"]).await;
    let next = second(&fixture, "lock").await;
    proxy.cut();
    none_overlaps(&fixture, next).await;
    assert_eq!(finished(holder).await.status.code(), Some(79));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_that_is_killed_and_started_again_costs_no_lock() {
    let fixture = fixture_behind_relays().await;
    let proxy = Proxy::to(fixture.cluster.client_address(1)).await;
    let args = ["lock", "a", "--ttl", "6s", "--endpoints", proxy.address(), "--", "sleep", "3"];
    let process = fixture.holdfast(&args).spawn().unwrap();
    eventually("the lock is held", PATIENCE, || async {
        (!fixture.is_free("a").await).then_some(())
    })
    .await;
    proxy.break_connections();
    assert_eq!(finished(process).await.status.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_holder_frees_its_lock_soon_and_not_before_its_command_is_dead() {
    for verb in ["lock", "elect"] {
        let fixture = CommandFixture::start().await;
        let holder = first(&fixture, verb, &fixture.cluster.endpoints(), &[]).await;
        let next = second(&fixture, verb).await;
        companion_of(&holder).await;
        let killed = Instant::now();
        signal(&holder, Signal::KILL);
        none_overlaps(&fixture, next).await;
        println!("the second had ended {:?} after the kill", killed.elapsed());
        assert!(killed.elapsed() < FREED_SOON, "freed after {:?}", killed.elapsed());
        drop(holder);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_that_is_killed_with_its_process_group_frees_its_lock_soon() {
    let fixture = CommandFixture::start().await;
    let holder = first(&fixture, "lock", &fixture.cluster.endpoints(), &[]).await;
    let next = second(&fixture, "lock").await;
    companion_of(&holder).await;
    let killed = Instant::now();
    kill_process_group(Pid::from_child(&holder), Signal::KILL).unwrap();
    none_overlaps(&fixture, next).await;
    assert!(killed.elapsed() < FREED_SOON, "freed after {:?}", killed.elapsed());
    drop(holder);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_that_is_killed_leaves_its_place_soon() {
    let fixture = CommandFixture::start().await;
    let holder = fixture.holdfast(&["lock", "a", "--", "sleep", "60"]).spawn().unwrap();
    eventually("the lock is held", PATIENCE, || async {
        (!fixture.is_free("a").await).then_some(())
    })
    .await;
    let waiter = second(&fixture, "lock").await;
    companion_of(&waiter).await;
    signal(&waiter, Signal::KILL);
    let killed = Instant::now();
    eventually("the place is left", PATIENCE, || async {
        (fixture.cluster.client().status("a").await.waiter_count == 0).then_some(())
    })
    .await;
    assert!(killed.elapsed() < FREED_SOON, "left after {:?}", killed.elapsed());
    signal(&holder, Signal::TERM);
    finished(holder).await;
    drop(waiter);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_is_killed_frees_the_lock_at_once() {
    let fixture = CommandFixture::start().await;
    let process = fixture.holdfast(&["lock", "a", "--", "sh", "-c", "kill -9 $$"]).spawn().unwrap();
    assert_eq!(finished(process).await.status.code(), Some(128 + 9));
    assert!(fixture.is_free("a").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_command_frees_the_lock_soon_and_not_before_the_processes_it_left_are_dead() {
    for verb in ["lock", "elect"] {
        let fixture = CommandFixture::start().await;
        let holder = first(&fixture, verb, &fixture.cluster.endpoints(), &[]).await;
        let next = second(&fixture, verb).await;
        let command = std::fs::read_to_string(fixture.path("pid")).unwrap();
        let killed = Instant::now();
        let command = Pid::from_raw(command.trim().parse().unwrap()).unwrap();
        kill_process(command, Signal::KILL).unwrap();
        none_overlaps(&fixture, next).await;
        assert!(killed.elapsed() < FREED_SOON, "freed after {:?}", killed.elapsed());
        assert_eq!(finished(holder).await.status.code(), Some(128 + 9));
    }
}

/// `sh` dies of the signal at once. What it started wants a moment.
#[tokio::test(flavor = "multi_thread")]
async fn a_signal_that_ends_the_command_leaves_its_processes_the_grace_before_the_lock_is_free() {
    const SLOW_END: &str = "(trap 'sleep 0.7; date +%s%N > cleaned; exit' TERM; touch ready
while :; do sleep 0.02; done) & sleep 60";
    let fixture = CommandFixture::start().await;
    let holder = fixture.holdfast(&["lock", "a", "--", "sh", "-c", SLOW_END]).spawn().unwrap();
    fixture.appears("ready").await;
    let next = second(&fixture, "lock").await;
    signal(&holder, Signal::TERM);
    assert_eq!(finished(holder).await.status.code(), Some(128 + 15));
    assert_eq!(finished(next).await.status.code(), Some(0));
    assert!(time_in(&fixture, "cleaned") < time_in(&fixture, "second"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lock_of_a_killed_holder_stays_closed_for_its_lock_delay() {
    let fixture = CommandFixture::start().await;
    let delay = ["--lock-delay", "2s"];
    let holder = first(&fixture, "lock", &fixture.cluster.endpoints(), &delay).await;
    let next = second(&fixture, "lock").await;
    companion_of(&holder).await;
    let killed = Instant::now();
    signal(&holder, Signal::KILL);
    none_overlaps(&fixture, next).await;
    let took = killed.elapsed();
    assert!(took >= Duration::from_secs(2), "freed after {took:?}");
    assert!(took < Duration::from_secs(2) + FREED_SOON, "freed after {took:?}");
    let history = data(&fixture.cluster, 0, &["history", "a"]).await;
    assert!(history.to_string().contains("killed"), "{history}");
    drop(holder);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_companion_keeps_nothing_open_and_knows_the_secret_by_its_pipe_alone() {
    let fixture = CommandFixture::start().await;
    // A descriptor that the shell has open, as for `flock 9`.
    let script = "exec 9>mine; exec $HF lock a -- sh -c 'echo $$ > pid; sleep 60'";
    let holder = fixture.shell(script).spawn().unwrap();
    fixture.number_in("pid").await;
    let companion = companion_of(&holder).await;
    let proc = |part: &str| format!("/proc/{companion}/{part}");
    eventually("it has closed all but its own", PATIENCE, || async {
        let open = std::fs::read_dir(proc("fd")).unwrap().count();
        (open == 3).then_some(())
    })
    .await;
    assert_eq!(std::fs::read_link(proc("cwd")).unwrap(), std::path::Path::new("/"));
    let stdout = std::fs::read_link(proc("fd/1")).unwrap();
    assert_eq!(stdout, std::path::Path::new("/dev/null"));
    // Its arguments are those that `companion_of` has compared.
    let environment =
        String::from_utf8_lossy(&std::fs::read(proc("environ")).unwrap()).into_owned();
    let is_secret = |word: &str| {
        word.len() == 32 && word.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    assert!(!environment.split(['\0', '=']).any(is_secret), "{environment}");
    signal(&holder, Signal::TERM);
    finished(holder).await;
    eventually("the companion goes with its holder", PATIENCE, || async {
        (!std::path::Path::new(&proc("")).exists()).then_some(())
    })
    .await;
}

/// A program with the client library that holds the lock `a`.
fn program(cluster: &Cluster, companion: Option<&str>) -> Child {
    let mut process = Command::new(build_examples().join("holder"))
        .args([cluster.endpoints(), "30000".to_owned()])
        .args(companion)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut held = String::new();
    BufReader::new(process.stdout.take().unwrap()).read_line(&mut held).unwrap();
    assert!(held.starts_with("held "), "{held}");
    process
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_program_frees_its_locks_soon_if_it_has_a_companion() {
    let cluster = Cluster::start(3).await;
    let is_held = || async { !cluster.client().status("a").await.holders.is_empty() };
    let binary = holdfast().get_program().to_str().unwrap().to_owned();
    let mut process = program(&cluster, Some(&binary));
    let killed = Instant::now();
    process.kill().unwrap();
    process.wait().unwrap();
    eventually("the lock is free", PATIENCE, || async { (!is_held().await).then_some(()) }).await;
    assert!(killed.elapsed() < FREED_SOON, "freed after {:?}", killed.elapsed());

    // Without one its connection ends as well, and that is no evidence.
    let mut process = program(&cluster, None);
    process.kill().unwrap();
    process.wait().unwrap();
    let held_for = || async {
        cluster.client().status("a").await.holders.first().map(|holder| holder.held_for_ms)
    };
    eventually("time has passed", PATIENCE, || async {
        (held_for().await.expect("the lock is kept") > 3_000).then_some(())
    })
    .await;
}
