//! `holdfast dev --secure`, and commands that reach a cluster with TLS.

use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use crate::command_line::Dev;
use crate::support::{
    PATIENCE, cluster_slot, eventually, free_base_port, holdfast, json, output, text,
};
use crate::tls_cluster::TlsCluster;

const DENIED: i32 = 77;

fn with_config(dir: &Path, args: &[&str]) -> Command {
    let mut command = holdfast();
    command.env("HOLDFAST_CONFIG", dir.join("client.toml")).args(args);
    command
}

fn refused(output: &Output, code: i32) -> String {
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    text(&output.stderr)
}

#[tokio::test(flavor = "multi_thread")]
async fn dev_secure_serves_clients_with_its_configuration_file_and_tells_others_what_is_missing() {
    let _slots = cluster_slot().await;
    let dir = tempfile::tempdir().unwrap();
    let data_dir = dir.path().to_str().unwrap();
    let port = free_base_port(30).to_string();
    let endpoints = format!("127.0.0.1:{port}");
    let args = ["--secure", "--data-dir", data_dir, "--port", &port];
    let mut dev = Dev::start(&args);
    let lines = dev.lines_until("ready").await;
    assert!(lines.contains("client.toml") && lines.contains("https://"), "{lines}");

    let taken = output(with_config(dir.path(), &["lock", "a", "--", "true"])).await;
    assert!(taken.status.success(), "{taken:?}");
    let nodes =
        json(&output(with_config(dir.path(), &["cluster", "status", "--output", "json"])).await);
    let reachable = nodes["nodes"].as_array().unwrap().iter();
    assert_eq!(reachable.filter(|node| node["reachable"] == true).count(), 3, "{nodes}");

    // Without the file the command speaks plaintext.
    for verb in [&["lock", "a", "--", "true"][..], &["status", "a"], &["ls"]] {
        let mut command = holdfast();
        command.env("HOLDFAST_ENDPOINTS", &endpoints).args(verb);
        let words = refused(&output(command).await, DENIED);
        assert!(words.contains("speaks TLS") && words.contains("--ca"), "{words}");
    }

    // By options: with the authority alone the client is let in, and has not proved who it is.
    let certs = dir.path().join("certs");
    let with_ca = |ca: &Path, verb: &[&str]| {
        let mut command = holdfast();
        command.env("HOLDFAST_ENDPOINTS", &endpoints).arg("--ca").arg(ca).args(verb);
        command
    };
    for verb in [&["lock", "a", "--", "true"][..], &["--verify", "host", "status", "a"]] {
        let words = refused(&output(with_ca(&certs.join("ca.pem"), verb)).await, DENIED);
        assert!(words.contains("--auth-file") && words.contains("--cert"), "{words}");
    }
    // The token for the dashboard is an administrator's, as is the client's certificate.
    let mut by_token = with_ca(&certs.join("ca.pem"), &["access", "whoami", "--output", "json"]);
    by_token.arg("--auth-file").arg(dir.path().join("dashboard.token"));
    assert_eq!(json(&output(by_token).await)["roles"][0], "admin");
    let whoami = output(with_config(dir.path(), &["access", "whoami", "--output", "json"])).await;
    assert_eq!(json(&whoami)["principal"], "cert:dev");
    let other = dir.path().join("other");
    let mut make = holdfast();
    make.args(["cert", "ca", "--cluster", "dev", "--dir"]).arg(&other);
    assert!(output(make).await.status.success());
    for verb in [&["lock", "a", "--", "true"][..], &["status", "a"]] {
        let words = refused(&output(with_ca(&other.join("ca.pem"), verb)).await, DENIED);
        assert!(words.contains("an authority that is not trusted here"), "{words}");
    }
    // A node's certificate is no client's.
    let (cert, key) = (certs.join("node-1.pem"), certs.join("node-1-key.pem"));
    for verb in ["status", "lock"] {
        let mut command = with_ca(&certs.join("ca.pem"), &[verb, "a"]);
        command.arg("--cert").arg(&cert).arg("--key").arg(&key);
        if verb == "lock" {
            command.args(["--", "true"]);
        }
        let words = refused(&output(command).await, DENIED);
        assert!(words.contains("not one for this port"), "{words}");
    }
    let mut incomplete = holdfast();
    incomplete.args(["--cert", "me.pem", "status", "a"]);
    assert!(refused(&output(incomplete).await, 64).contains("--ca"));

    // A holder that is killed frees its lock: its companion reaches the cluster with TLS, too.
    let mut holder = with_config(dir.path(), &["lock", "b", "--ttl", "60s", "--", "sleep", "600"]);
    let mut holder = holder.spawn().unwrap();
    let held = async || {
        let shown = output(with_config(dir.path(), &["status", "b", "--output", "json"])).await;
        json(&shown)["holder_count"].as_u64()
    };
    eventually("it holds", PATIENCE, async || (held().await == Some(1)).then_some(())).await;
    holder.kill().unwrap();
    holder.wait().unwrap();
    let within = Duration::from_secs(20);
    eventually("it is free", within, async || (held().await == Some(0)).then_some(())).await;
    assert_eq!(dev.ended_by_one_signal().await, Some(0));

    // The data stays, and so does the authority.
    let mut dev = Dev::start(&args);
    dev.lines_until("ready").await;
    let taken = output(with_config(dir.path(), &["lock", "a", "--", "true"])).await;
    assert!(taken.status.success(), "{taken:?}");
    assert_eq!(dev.ended_by_one_signal().await, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_with_tls_announces_its_http_port_with_https() {
    let secured = TlsCluster::start(1, "").await;
    eventually("the node announces its HTTP port", PATIENCE, || {
        let log = secured.cluster.log_of(1);
        let line =
            log.lines().find(|line| line.contains("health and metrics on")).map(str::to_owned);
        std::future::ready(line.inspect(|line| assert!(line.contains(" https://"), "{line}")))
    })
    .await;
}
