//! The commands that the README and the guide show are run, so that they cannot rot.
//!
//! Each block of code that is marked `sh` is one script. A block that is marked otherwise (`console`, `text`) is not
//! run: it needs several machines, or is a transcript. Its commands are parsed, by a test of the program itself.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::servers::redis::{Durability, RedisServer};
use crate::support::{Cluster, output, text};

const PAGES: [(&str, &str); 8] = [
    ("README.md", include_str!("../../../../README.md")),
    ("docs/start.md", include_str!("../../../../docs/start.md")),
    ("docs/recipes.md", include_str!("../../../../docs/recipes.md")),
    ("docs/comparison.md", include_str!("../../../../docs/comparison.md")),
    ("docs/fencing.md", include_str!("../../../../docs/fencing.md")),
    ("docs/tiers.md", include_str!("../../../../docs/tiers.md")),
    ("docs/tiers-redis.md", include_str!("../../../../docs/tiers-redis.md")),
    ("docs/scale.md", include_str!("../../../../docs/scale.md")),
];

/// What a reader does once, and this test does in its own way.
const SET_UP: [&str; 2] = ["cargo ", "alias holdfast="];

/// Programs and scripts of the reader. Each succeeds at everything.
const PROGRAMS: [&str; 8] = [
    "bin/psql",
    "browser-tests.sh",
    "deploy.sh",
    "report.sh",
    "scheduler.sh",
    "thumbnails.sh",
    "train.sh",
    "transfer.sh",
];

/// Servers of Redis by the names that pages give them.
const REDIS: [[&str; 2]; 3] = [
    ["redis://127.0.0.1:6379", "redis://r1:6379"],
    ["redis://127.0.0.1:6380", "redis://r2:6379"],
    ["redis://127.0.0.1:6381", "redis://r3:6379"],
];

fn scripts(page: &str) -> impl Iterator<Item = String> {
    let blocks = page.split("\n```sh\n").skip(1).filter_map(|rest| rest.split("\n```").next());
    blocks.map(|block| {
        let lines =
            block.lines().filter(|line| !SET_UP.iter().any(|start| line.starts_with(start)));
        lines.map(|line| format!("{line}\n")).collect()
    })
}

async fn run_script(cluster: &Cluster, script: &str) -> Output {
    let directory = tempfile::tempdir().unwrap();
    let bin = directory.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    symlink(env!("CARGO_BIN_EXE_holdfast"), bin.join("holdfast")).unwrap();
    for program in PROGRAMS {
        write_program(&directory.path().join(program));
    }
    let mut shell = Command::new("bash");
    shell
        // What the page leaves in the background ends by itself.
        .args(["-c", &format!("set -e -o pipefail\n{script}\nwait\n")])
        .current_dir(directory.path())
        .env("PATH", format!("{}:{}", bin.display(), std::env::var("PATH").unwrap()))
        .env("HOSTNAME", "host-1")
        .env("HOLDFAST_ENDPOINTS", cluster.endpoints())
        .stdin(Stdio::null());
    output(shell).await
}

fn write_program(path: &Path) {
    std::fs::write(path, "#!/bin/sh\nexit 0\n").unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn every_script_in_the_readme_and_the_guide_succeeds() {
    let cluster = Cluster::start(3).await;
    let mut servers = Vec::new();
    for _ in REDIS {
        servers.extend(RedisServer::start(Durability::None).await);
    }
    let (mut ran, mut wrong) = (0, Vec::new());
    for (path, page) in PAGES {
        for mut script in scripts(page) {
            if script.contains("redis://") && servers.len() < REDIS.len() {
                continue;
            }
            for (names, server) in REDIS.iter().zip(&servers) {
                for name in names {
                    script = script.replace(name, &server.url());
                }
            }
            let ended = run_script(&cluster, &script).await;
            ran += 1;
            if !ended.status.success() {
                wrong.push(format!("{path}:\n{script}{}: {}", ended.status, text(&ended.stderr)));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(ran > 15, "{ran}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_in_which_a_command_fails_does_not_succeed() {
    let cluster = Cluster::start(1).await;
    let page = "Text.\n\n```sh\ncargo build\nholdfast lock a -- false\nholdfast ls\n```\n";
    let script: String = scripts(page).collect();
    assert_eq!(script, "holdfast lock a -- false\nholdfast ls\n");
    assert_eq!(run_script(&cluster, &script).await.status.code(), Some(1));
}
