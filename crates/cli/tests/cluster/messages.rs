//! The messages that a user meets when something is wrong, as the real program prints them.
//! `UPDATE_GOLDEN=1 cargo test -p holdfast --test cluster messages` writes them to `tests/golden/messages.txt`.

use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;
use tokio::task::JoinSet;

use crate::support::{Cluster, PATIENCE, eventually, finished, output, text};

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/messages.txt");
const HEAD: &str = "Messages of the command line, for review in ten minutes: without a cluster, for wrong input, \
    for a lost lock, without\na leader and without a quorum. A test writes this file:\n  \
    UPDATE_GOLDEN=1 cargo test -p holdfast --test cluster messages\n\
    help.txt has the help and the usage errors. Capitals (TIME, ID, NODE) stand for what differs from run to run.\n";

/// More would keep each other from starting in time.
const AT_ONCE_MAX: usize = 8;

/// All commands that need a cluster.
const WITHOUT_CLUSTER: &[&str] = &[
    "holdfast status a",
    "holdfast why a",
    "holdfast ls",
    "holdfast sessions",
    "holdfast history a",
    "holdfast who a --token 7",
    "holdfast check-token a 7",
    "holdfast watch",
    "holdfast top",
    "holdfast observe a",
    "holdfast acquire a",
    "holdfast release a --session $SESSION --token 7",
    "holdfast renew a --session $SESSION --token 7",
    "holdfast break a --reason test",
    "holdfast transfer a --to 1f3a5c7e9b2d4f60 --reason test",
    "holdfast freeze a --for 1m --reason test",
    "holdfast thaw a --reason test",
    "holdfast reopen a --reason test",
    "holdfast freezes",
    "holdfast set-permits a 2 --reason test",
    "holdfast kill-session 1f3a5c7e9b2d4f60 --reason test",
    "holdfast cluster status",
    "holdfast cluster status --check",
    "holdfast cluster remove 3",
    "holdfast cluster promote 3",
    "holdfast cluster transfer",
    "holdfast cluster limits",
    "holdfast snapshot save new-file",
    "holdfast bench --seconds 1s",
    "holdfast advise-ttl --operation 1s",
    "holdfast lock a -- true",
    "holdfast lock a --wait 0s -- true",
    "holdfast elect a -- true",
    "holdfast lock a --wait 6s -- true",
    "holdfast lock a --wait 6s --quiet -- true",
    "holdfast elect a --wait 6s -- true",
    "holdfast acquire a --wait 6s",
    "holdfast lock a --tier efficiency --when-down go-without -- true",
    "holdfast --endpoints localhost status a",
    "holdfast --endpoints 127.0.0.1:99999 status a",
];

/// `a` is held, `gpu` has one of two permits out, `frozen` is frozen.
const WRONG_INPUT: &[&str] = &[
    "holdfast lock a --wait 0s -- true",
    "holdfast lock a --wait 1s -- true",
    "holdfast lock a --wait 0s --quiet -- true",
    "holdfast lock a --shared --wait 0s -- true",
    "holdfast elect a --wait 0s -- true",
    "holdfast acquire a",
    "holdfast acquire gpu",
    "holdfast acquire gpu --permits 3",
    "holdfast lock frozen --wait 0s -- true",
    "holdfast lock --all b,c,b -- true",
    "holdfast lock b --max-hold 1s --hold-at-least 2s -- true",
    "holdfast lock b --when-down go-without -- true",
    "holdfast lock b -- ./no-such-command",
    "holdfast release a --session $SESSION --token 999",
    "holdfast release b --session $SESSION --token $TOKEN",
    "holdfast release a --session $SESSION --token $TOKEN --tier efficiency",
    "holdfast release a --session 00000000000000000000000000000001 --token $TOKEN",
    "holdfast renew a --session $SESSION --token 999",
    "holdfast renew b --session $SESSION --token $TOKEN",
    "holdfast renew a --session 00000000000000000000000000000001 --token $TOKEN",
    "holdfast server --config faults",
    "holdfast check-token a 999999999999999",
    "holdfast who a --token 999999999999999",
    "holdfast history never-used",
    "holdfast break free --reason test",
    "holdfast break a --token 999 --reason test",
    "holdfast transfer free --to 1f3a5c7e9b2d4f60 --reason test",
    "holdfast transfer a --to 1f3a5c7e9b2d4f60 --reason test",
    "holdfast thaw a --reason test",
    "holdfast reopen a --reason test",
    "holdfast kill-session 1f3a5c7e9b2d4f60 --reason test",
    "holdfast set-permits gpu --forget --reason test",
    "holdfast cluster remove 9",
    "holdfast cluster remove 1",
    "holdfast cluster promote 9",
    "holdfast cluster transfer --to 9",
    "holdfast snapshot save garbage",
    "holdfast snapshot inspect missing",
    "holdfast snapshot inspect garbage",
    "holdfast snapshot restore garbage --config missing",
    "holdfast snapshot restore garbage --config garbage",
    "holdfast server",
    "holdfast server --config missing",
    "holdfast server --config garbage",
    "holdfast recover --config missing",
    "holdfast recover --config garbage",
];

/// Each ends with the exit code of the command that lost its lock.
const LOST_LOCK: &[&str] = &[
    "holdfast lock broken -- $WORK & $BEGUN; holdfast break broken --reason test > out; wait $!",
    "holdfast elect led -- $WORK & $BEGUN; holdfast break led --reason test > out; wait $!",
    "holdfast lock killed -- $WORK & $BEGUN; holdfast kill-session $(session killed) --reason test > out; wait $!",
    "holdfast lock long --max-hold 1s -- $WORK",
    "eval $(holdfast acquire taken); holdfast break taken --reason test > out; \
     holdfast release taken --session $session --token $token",
    "eval $(holdfast acquire taken); holdfast break taken --reason test > out; \
     holdfast renew taken --session $session --token $token",
    "eval $(holdfast acquire over --ttl 200ms); while holdfast check-token over $token > out; do :; done; \
     holdfast release over --session $session --token $token",
    "holdfast lock --all one,two -- $WORK & $BEGUN; holdfast break two --reason test > out; wait $!",
    "holdfast lock --all one,two -- $WORK & $BEGUN; holdfast kill-session $(session one) --reason test > out; wait $!",
];

/// Two of three nodes are dead.
const WITHOUT_QUORUM: &[&str] = &[
    "holdfast status a",
    "holdfast why a",
    "holdfast history a",
    "holdfast acquire a",
    "holdfast break a --reason test",
    "holdfast freeze a --for 1m --reason test",
    "holdfast lock a -- true",
    "holdfast lock a --wait 0s -- true",
    "holdfast lock a --wait 3s -- true",
    "holdfast cluster status --check",
    "holdfast cluster transfer",
    "holdfast snapshot save new-file",
];

/// Where the lines run.
struct Shell {
    dir: TempDir,
    environment: Vec<(&'static str, String)>,
    /// Texts that differ between runs, and what stands for them.
    varying: Vec<(String, &'static str)>,
}

impl Shell {
    fn new(endpoints: &str) -> Shell {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("garbage"), "no snapshot, no configuration\n").unwrap();
        let faults = "cluster = \"Prod\"\nnode = 9\ndata_dir = \"data\"\ntick_ms = 0\n\
                      [[nodes]]\nid = 1\nclient = \"127.0.0.1:7420\"\npeer = \"127.0.0.1:7420\"\n";
        std::fs::write(dir.path().join("faults"), faults).unwrap();
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        let varying = vec![
            (dir.path().to_str().unwrap().to_owned(), "DIR"),
            (format!("@{}", host.trim()), "@HOST"),
        ];
        let endpoints = endpoints.to_owned();
        Shell { dir, environment: vec![("HOLDFAST_ENDPOINTS", endpoints)], varying }
    }

    fn of(cluster: &Cluster, endpoints: &str) -> Shell {
        let mut shell = Shell::new(endpoints);
        for id in cluster.ids() {
            shell.varying.push((cluster.client_address(id), "NODE"));
            shell.varying.push((cluster.peer_address(id), "PEER"));
        }
        shell
    }

    fn set(&mut self, name: &'static str, value: &str) {
        self.environment.push((name, value.to_owned()));
    }

    fn command(&self, line: &str) -> Command {
        let script = format!(
            "exec 2>&1; rm -f begun; holdfast() {{ \"$HF\" \"$@\"; }}; \
             session() {{ holdfast status $1 --output json | grep -m1 '\"session\"' | cut -d'\"' -f4; }}; {line}"
        );
        let mut command = Command::new("bash");
        command
            .args(["-c", &script])
            .env("HF", env!("CARGO_BIN_EXE_holdfast"))
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .current_dir(self.dir.path())
            .stdin(Stdio::null());
        command
    }

    /// What the line prints, and its exit code.
    async fn outcome(&self, line: &str) -> String {
        let output = output(self.command(line)).await;
        let printed = normalised(&text(&output.stdout), &self.varying);
        format!("{printed}[exit {}]\n", output.status.code().unwrap())
    }

    /// The outcomes of lines that do not depend on each other.
    async fn outcomes(self, lines: &'static [&'static str]) -> Vec<(&'static str, String)> {
        let shell = std::sync::Arc::new(self);
        let mut all = Vec::new();
        for some in lines.chunks(AT_ONCE_MAX) {
            let mut running = JoinSet::new();
            for (place, line) in some.iter().enumerate() {
                let shell = std::sync::Arc::clone(&shell);
                running.spawn(async move { (place, *line, shell.outcome(line).await) });
            }
            let mut outcomes = running.join_all().await;
            outcomes.sort();
            all.extend(outcomes.into_iter().map(|(_, line, outcome)| (line, outcome)));
        }
        all
    }
}

/// Lines with the same outcome stand together.
fn section(title: &str, outcomes: &[(&str, String)]) -> String {
    let mut section = format!("\n---- {title} ----\n");
    for group in outcomes.chunk_by(|(_, one), (_, next)| one == next) {
        let lines: String = group.iter().map(|(line, _)| format!("$ {line}\n")).collect();
        section += &format!("\n{lines}{}", group[0].1);
    }
    section
}

/// Without what differs from run to run.
fn normalised(printed: &str, varying: &[(String, &str)]) -> String {
    let mut printed = printed.to_owned();
    for (text, name) in varying {
        printed = printed.replace(text, name);
    }
    let mut out = String::new();
    let mut word = String::new();
    for c in printed.chars().chain(['\n']) {
        if c.is_ascii_alphanumeric() || "._-:@".contains(c) {
            word.push(c);
        } else {
            out += &normalised_word(&std::mem::take(&mut word));
            out.push(c);
        }
    }
    out.pop();
    out
}

fn normalised_word(word: &str) -> String {
    let (core, end) = match word.strip_suffix([':', '.']) {
        Some(core) => (core, &word[core.len()..]),
        None => (word, ""),
    };
    let has_digit = core.starts_with(|c: char| c.is_ascii_digit());
    let is_time = has_digit
        && core.ends_with(['s', 'm'])
        && core.chars().all(|c| c.is_ascii_digit() || ".hms".contains(c));
    let is_date = has_digit && core.len() > 20 && core.ends_with('Z');
    let is_id = core.len() == 16 && core.chars().all(|c| c.is_ascii_hexdigit());
    let name = if is_time {
        "TIME"
    } else if is_date {
        "DATE"
    } else if is_id {
        "ID"
    } else if let Some((owner, _)) = core.split_once("@HOST:") {
        return format!("{owner}@HOST:PID{end}");
    } else {
        core
    };
    format!("{name}{end}")
}

async fn without_cluster() -> String {
    let mut shell = Shell::new("127.0.0.1:1");
    shell.set("SESSION", &"ab".repeat(16));
    section(
        "No cluster: no program listens at the endpoint",
        &shell.outcomes(WITHOUT_CLUSTER).await,
    )
}

async fn with_a_cluster() -> String {
    let cluster = Cluster::start(1).await;
    let mut shell = Shell::of(&cluster, &cluster.endpoints());
    for line in [
        "holdfast acquire a --ttl 10m > held",
        "holdfast acquire gpu --permits 2 --ttl 10m",
        "holdfast freeze frozen --for 1h --reason migration",
    ] {
        assert!(output(shell.command(line)).await.status.success(), "{line}");
    }
    let held = std::fs::read_to_string(shell.dir.path().join("held")).unwrap();
    let value = |name: &str| {
        let line = held.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap().to_owned()
    };
    let (session, token) = (value("session="), value("token="));
    shell.set("SESSION", &session);
    shell.set("TOKEN", &token);
    shell.set("WORK", "sh -c 'touch begun; exec sleep 60'");
    let mut wrong = Vec::new();
    for line in WRONG_INPUT {
        wrong.push((*line, shell.outcome(line).await));
    }
    let mut lost = Vec::new();
    for line in LOST_LOCK {
        let written = line
            .replace("$WORK", "sh -c 'touch begun; exec sleep 60'")
            .replace("$BEGUN", "until [ -e begun ]; do sleep 0.02; done");
        lost.push((*line, shell.outcome(&written).await));
    }
    section("Wrong input: the cluster, a file or a check refuses", &wrong)
        + &section("Lost lock: $WORK writes `begun` and sleeps, $BEGUN waits for that", &lost)
}

async fn without_quorum() -> String {
    let mut cluster = Cluster::start(3).await;
    let survivor = cluster.follower().await;
    let shell = Shell::of(&cluster, &cluster.client_address(survivor));
    let holder = "holdfast lock held --ttl 30s -- sh -c 'touch begun; exec sleep 60'";
    let begun = shell.dir.path().join("begun");
    let holding = spawn(&shell, holder);
    wait_for_file(&begun).await;
    let waiter = "holdfast lock held --wait 20s -- true";
    let waiting = spawn(&shell, waiter);
    eventually("the waiter is in the queue", PATIENCE, || async {
        (cluster.client().status("held").await.waiter_count == 1).then_some(())
    })
    .await;
    for id in cluster.ids().into_iter().filter(|id| *id != survivor) {
        cluster.kill(id);
    }
    eventually("the survivor knows that there is no leader", PATIENCE, || async {
        cluster.view_of(survivor).await.filter(|view| view.leader == 0).map(drop)
    })
    .await;
    let varying = shell.varying.clone();
    let mut outcomes = shell.outcomes(WITHOUT_QUORUM).await;
    // Which nodes are dead depends on which led.
    for (_, outcome) in &mut outcomes {
        for dead in ["1, 2", "1, 3", "2, 3"] {
            *outcome = outcome.replace(&format!("not node {dead}"), "not node N, N");
        }
    }
    for (line, running) in [(holder, holding), (waiter, waiting)] {
        let output = finished(running).await;
        let printed = normalised(&text(&output.stdout), &varying);
        let code = output.status.code().unwrap();
        outcomes.push((line, format!("{printed}[exit {code}]\n")));
    }
    section(
        "No leader and no quorum: two of three nodes are killed; the last lines began before",
        &outcomes,
    )
}

fn spawn(shell: &Shell, line: &str) -> std::process::Child {
    shell.command(line).stdout(Stdio::piped()).spawn().unwrap()
}

async fn wait_for_file(path: &Path) {
    eventually("the command runs", PATIENCE, || std::future::ready(path.exists().then_some(())))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_all_situations_are_in_the_golden_file() {
    let messages = HEAD.to_owned()
        + &without_cluster().await
        + &with_a_cluster().await
        + &without_quorum().await;
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(GOLDEN, messages).unwrap();
        return;
    }
    let reviewed = std::fs::read_to_string(GOLDEN).unwrap_or_default();
    let differs = reviewed.lines().zip(messages.lines()).find(|(is, should)| is != should);
    assert!(
        reviewed == messages,
        "{differs:?}: run UPDATE_GOLDEN=1 cargo test -p holdfast --test cluster messages, and read the difference; the \
         program printed:\n{messages}"
    );
}
