//! The examples in the help of every command are run, so that they cannot rot.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

use crate::support::{Cluster, free_base_port, output, run, text};

/// These change who belongs to a cluster, or need one that is in ruins, or ports that are not ours. They are
/// only parsed, by a test of the program itself; `membership`, `replacement` and `recovery` run their like. Commands of
/// the policy need a cluster that demands credentials: `access_command` has one.
const NOT_RUN: [&str; 8] = [
    "holdfast access",
    "holdfast --auth-file",
    "holdfast server --config",
    "holdfast cluster add",
    "holdfast cluster remove",
    "holdfast cluster replace",
    "holdfast cluster promote",
    "holdfast recover",
];

/// What an example needs to be there, and what has to go afterwards. `X` is the rest of the line.
const SETUPS: [(&str, &str, &str); 19] = [
    (
        "$session",
        r#"eval "$(holdfast acquire deploy --ttl 5m)""#,
        "holdfast break deploy --reason over || true",
    ),
    (
        "deploy.session",
        "(umask 077; holdfast acquire deploy --ttl 5m > deploy.session); . ./deploy.session",
        "holdfast break deploy --reason over || true",
    ),
    ("check-token thumbnails", r#"eval "$(holdfast acquire thumbnails --tier efficiency)""#, ""),
    (
        "check-token deploy",
        r#"eval "$(holdfast acquire deploy --ttl 5m)""#,
        "holdfast break deploy --reason over",
    ),
    (
        "holdfast who deploy",
        r#"eval "$(holdfast acquire deploy --ttl 5m)""#,
        "holdfast break deploy --reason over",
    ),
    ("holdfast break", r#"eval "$(holdfast acquire X --ttl 5m)""#, ""),
    (
        "holdfast reopen db/migration",
        "holdfast acquire db/migration --ttl 5m --lock-delay 10m > /dev/null; holdfast break db/migration --reason over",
        "",
    ),
    ("holdfast thaw billing/", "holdfast freeze billing/ --for 1m --reason test", ""),
    ("holdfast freeze billing/", "", "holdfast thaw billing/ --reason over"),
    ("holdfast freeze '*'", "", "holdfast thaw '*' --reason over"),
    ("snapshot inspect", "holdfast snapshot save locks.holdfast --force", ""),
    (
        "snapshot restore",
        "holdfast snapshot save locks.holdfast --force; holdfast server --example-config | sed \"s|^data_dir.*|data_dir = '$PWD/restored-$RANDOM$RANDOM'|\" > node-1.toml",
        "",
    ),
    ("snapshot save", "rm -f locks.holdfast", ""),
    ("holdfast cert ca", "rm -rf certs holdfast", ""),
    ("holdfast cert node", "rm -rf certs; holdfast cert ca --cluster prod", ""),
    ("holdfast cert client", "rm -rf certs; holdfast cert ca --cluster prod", ""),
    (
        "holdfast cert ",
        "rm -rf certs; holdfast cert ca --cluster prod; holdfast cert node --id 1; holdfast cert node --id 3; \
         holdfast cert client billing",
        "",
    ),
    (
        "holdfast kill-session",
        "public=$(holdfast acquire runaway --output json | jq -r .public_session)",
        "",
    ),
    (
        "holdfast transfer leader",
        "holdfast acquire leader > /dev/null; holdfast lock leader -- true & \
         until public=$(holdfast status leader --output json | jq -er '.waiters[0].session'); do :; done",
        "wait",
    ),
];

struct ExampleFixture {
    dir: TempDir,
    endpoints: String,
    dev_port: u16,
}

impl ExampleFixture {
    fn new(cluster: &Cluster) -> ExampleFixture {
        let dir = tempfile::tempdir().unwrap();
        let bin = dir.path().join("bin");
        std::fs::create_dir(&bin).unwrap();
        symlink(env!("CARGO_BIN_EXE_holdfast"), bin.join("holdfast")).unwrap();
        for program in ["bin/psql", "bin/man"] {
            write_program(&dir.path().join(program));
        }
        for script in
            ["report", "deploy", "backup", "export", "train", "thumbnails", "transfer", "scheduler"]
        {
            write_program(&dir.path().join(format!("{script}.sh")));
        }
        for home in
            [".local/share/bash-completion/completions", ".zfunc", ".config/fish/completions"]
        {
            std::fs::create_dir_all(dir.path().join(home)).unwrap();
        }
        ExampleFixture { dir, endpoints: cluster.endpoints(), dev_port: free_base_port(30) }
    }

    /// The example as a person would run it, as far as a test can.
    async fn run(&self, example: &str) -> Output {
        let setup = SETUPS.iter().find(|(part, _, _)| example.contains(part));
        let (_, before, after) = setup.unwrap_or(&("", "", ""));
        let subject = example.split_whitespace().nth(2).unwrap_or_default();
        let before = before.replace('X', subject);
        let script = format!("set -e -o pipefail\n{before}\n{}\n{after}\n", self.adapted(example));
        let path =
            format!("{}:{}", self.dir.path().join("bin").display(), std::env::var("PATH").unwrap());
        let mut shell = Command::new("bash");
        shell
            .args(["-c", &script])
            .current_dir(self.dir.path())
            .env("PATH", path)
            .env("HOME", self.dir.path())
            .env("HOSTNAME", "host-1")
            .env("HOLDFAST_ENDPOINTS", &self.endpoints)
            .stdin(Stdio::null());
        output(shell).await
    }

    fn adapted(&self, example: &str) -> String {
        let mut line = example
            .replace("10.0.0.1:7420,10.0.0.2:7420", &self.endpoints)
            .replace("1f3a5c7e9b2d4f60", "$public")
            .replace("--token 42", "--token $token")
            .replace("/backup/", "./")
            .replace("/secure/", "./")
            .replace(" --port 8420", "");
        if line.starts_with("holdfast dev") {
            line =
                line.replacen("holdfast dev", &format!("holdfast dev --port {}", self.dev_port), 1);
        }
        if line.contains(" bench") {
            let line_without_times = line.replace("--seconds 10s", "").replace("--repeats 5", "");
            let quick = " bench --seconds 200ms --warm-up 100ms --repeats 1";
            line = line_without_times.replacen(" bench", quick, 1);
        }
        if is_endless(example) {
            // The line may end with a comment.
            line = format!("{{ timeout 3 {line}\n}} || test $? = 124");
        }
        line
    }
}

fn is_endless(example: &str) -> bool {
    let verbs = ["holdfast dev", "holdfast watch", "holdfast observe"];
    verbs.iter().any(|verb| example.starts_with(verb)) && !example.contains("--once")
}

/// One that succeeds at whatever it is asked to do.
fn write_program(path: &Path) {
    std::fs::write(path, "#!/bin/sh\nexit 0\n").unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// The lines below `Examples:` of a help text.
fn examples(help: &str) -> Vec<String> {
    // One that goes on in the next line is one.
    let help = help.replace("\\\n", "");
    let lines = help.lines().skip_while(|line| !line.starts_with("Examples:")).skip(1);
    let lines = lines.take_while(|line| line.starts_with("  "));
    lines.map(|line| line.trim().to_owned()).collect()
}

/// The verbs that a help text lists.
fn verbs(help: &str) -> Vec<String> {
    let lines = help.lines().skip_while(|line| !line.starts_with("Commands:")).skip(1);
    let listed = lines.take_while(|line| !line.is_empty());
    let names = listed
        .filter(|line| !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

async fn help_of(cluster: &Cluster, verb: &[&str]) -> String {
    text(&run(cluster, &[verb, &["--help"]].concat()).await.stdout)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_example_in_the_help_does_what_it_says() {
    let cluster = Cluster::start(3).await;
    let fixture = ExampleFixture::new(&cluster);
    let top = help_of(&cluster, &[]).await;
    let mut pages = vec![(String::new(), top.clone())];
    for verb in verbs(&top) {
        let help = help_of(&cluster, &[&verb]).await;
        for below in verbs(&help) {
            pages.push((format!("{verb} {below}"), help_of(&cluster, &[&verb, &below]).await));
        }
        pages.push((verb, help));
    }
    assert!(pages.len() > 35, "{}", pages.len());
    let (mut ran, mut not_run, mut wrong) = (0, 0, Vec::new());
    for (verb, help) in &pages {
        let examples = examples(help);
        assert!(!examples.is_empty(), "holdfast {verb} --help has no examples");
        for example in examples {
            if NOT_RUN.iter().any(|start| example.starts_with(start)) {
                not_run += 1;
                continue;
            }
            // Its own words would be in the way of the next one that needs the same lock.
            if example.contains("acquire") {
                let _ = run(&cluster, &["break", "deploy", "--reason", "over"]).await;
            }
            let ended = fixture.run(&example).await;
            ran += 1;
            if !ended.status.success() {
                let words = text(&ended.stderr);
                wrong.push(format!("holdfast {verb} --help: {example}\n{}: {words}", ended.status));
            }
            if example.contains("acquire") {
                for name in ["deploy", "gpu"] {
                    let _ = run(&cluster, &["break", name, "--reason", "over"]).await;
                }
            }
        }
    }
    println!("{ran} examples ran, {not_run} did not");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(ran > 60, "{ran}");
}
