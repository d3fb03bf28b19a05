//! The program itself, run as a person or a script would.

use std::process::{Command, Output};

use serde_json::Value;

use super::{Cluster, holdfast};

/// Runs `holdfast ARGS` against the cluster.
pub(crate) async fn run(cluster: &Cluster, args: &[&str]) -> Output {
    let mut command = holdfast();
    command.args(args).env("HOLDFAST_ENDPOINTS", cluster.endpoints());
    output(command).await
}

pub(crate) async fn output(mut command: Command) -> Output {
    tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap()
}

pub(crate) fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// One JSON document a line.
pub(crate) fn json_lines(bytes: &[u8]) -> Vec<Value> {
    let parse = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    text(bytes).lines().map(parse).collect()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Runs it, demands this exit code, and returns its data.
pub(crate) async fn data(cluster: &Cluster, code: i32, args: &[&str]) -> Value {
    let output = run(cluster, &[args, &["--output", "json"]].concat()).await;
    assert_eq!(output.status.code(), Some(code), "{args:?}: {output:?}");
    if output.stdout.is_empty() { Value::Null } else { json(&output) }
}

/// Runs it, demands this exit code, and returns its words on stderr.
pub(crate) async fn words(cluster: &Cluster, code: i32, args: &[&str]) -> String {
    let output = run(cluster, args).await;
    assert_eq!(output.status.code(), Some(code), "{args:?}: {output:?}");
    text(&output.stderr)
}
