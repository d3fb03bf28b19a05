//! The audit of a cluster that demands credentials: who did what, by which credential, from where, and what was denied.
//! And what is in no file, no log and no argument: secrets.

use std::path::Path;

use serde_json::Value;

use crate::support::{PATIENCE, eventually, json, json_lines, output, text};
use crate::tls_cluster::TlsCluster;

const DENIED: i32 = 77;
const UNAVAILABLE: i32 = 69;

pub(crate) const AUDIT: &str = "log = \"trace\"\n[audit]\nfile = \"{dir}/audit-{node}.jsonl\"\n";

fn lines_of(secured: &TlsCluster, node: u64) -> Vec<Value> {
    let file = secured.path(&format!("audit-{node}.jsonl"));
    // The last line may be half written.
    let bytes = std::fs::read(file).unwrap_or_default();
    let end = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    json_lines(&bytes[..end])
}

fn all_lines(secured: &TlsCluster) -> Vec<Value> {
    secured.cluster.ids().into_iter().flat_map(|id| lines_of(secured, id)).collect()
}

/// The lines that have all these values.
fn with<'a>(lines: &'a [Value], fields: &[(&str, &str)]) -> Vec<&'a Value> {
    let has = |line: &&Value| fields.iter().all(|(field, value)| line[*field] == *value);
    lines.iter().filter(has).collect()
}

pub(crate) async fn appears(secured: &TlsCluster, fields: &[(&str, &str)]) -> Value {
    eventually(&format!("a line has {fields:?}"), PATIENCE, || {
        let lines = all_lines(secured);
        std::future::ready(with(&lines, fields).first().map(|line| (*line).clone()))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_audit_names_principal_credential_and_address_of_changes_and_denials_and_no_secret() {
    let secured = TlsCluster::start(3, AUDIT).await;
    secured.user("worker", &["read,exclusive:work/*", "connect"]).await;
    secured.done("admin", &["access", "user", "create", "cert:reports", "--role", "reader"]).await;
    let token_id = |user: &str| {
        let secret = std::fs::read_to_string(secured.path(user)).unwrap();
        format!("token:{}", secret.split('_').nth(1).unwrap())
    };
    let (worker, admin) = (token_id("worker"), token_id("admin"));

    // What is allowed.
    secured.done("worker", &["lock", "work/a", "--", "true"]).await;
    let held = secured.done("worker", &["acquire", "work/b", "--output", "json"]).await;
    let held: Value = serde_json::from_str(&held).unwrap();
    let session = held["session"].as_str().unwrap().to_owned();
    secured.done("worker", &["acquire", "work/c"]).await;
    secured.done("admin", &["break", "work/b", "--reason", "for the audit"]).await;
    let backup = secured.path("backup");
    let backup = backup.to_str().unwrap();
    secured.done("admin", &["snapshot", "save", backup]).await;
    // What is not.
    let denied = secured.run("worker", &["lock", "other/x", "--", "true"]).await;
    assert_eq!(denied.status.code(), Some(DENIED), "{denied:?}");
    let denied = output(secured.anonymous(&["status", "work/a"])).await;
    assert_eq!(denied.status.code(), Some(DENIED), "{denied:?}");
    let good = std::fs::read_to_string(secured.path("worker")).unwrap();
    let id = good.split('_').nth(1).unwrap();
    let wrong = secured.path("wrong");
    std::fs::write(&wrong, format!("hft_{id}_{}\n", "A".repeat(43))).unwrap();
    std::fs::set_permissions(&wrong, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let denied = secured.run("wrong", &["status", "work/a"]).await;
    assert_eq!(denied.status.code(), Some(DENIED), "{denied:?}");
    let mut by_certificate = secured.anonymous(&["lock", "work/a", "--", "true"]);
    by_certificate.env("HOLDFAST_CERT", secured.path("certs/client-reports.pem"));
    by_certificate.env("HOLDFAST_KEY", secured.path("certs/client-reports-key.pem"));
    let denied = output(by_certificate).await;
    assert_eq!(denied.status.code(), Some(DENIED), "{denied:?}");

    // The certificate's serial number, as the command shows it.
    let mut show = crate::support::holdfast();
    show.args(["cert", "show", "--output", "json"]).arg(secured.path("certs/client-reports.pem"));
    let shown = json(&output(show).await);
    let serial = format!("cert:{}", shown["certificates"][0]["serial"].as_str().unwrap());

    let fields = [("event", "granted"), ("principal", "token:worker"), ("credential", &*worker)];
    let granted = appears(&secured, &fields).await;
    assert_eq!(granted["address"], "127.0.0.1", "{granted}");
    for (event, more) in [
        ("login", [("principal", "token:worker"), ("credential", &*worker)]),
        ("requested", [("method", "Break"), ("credential", &admin)]),
        ("requested", [("method", "SaveSnapshot"), ("credential", &admin)]),
        ("requested", [("method", "ChangeAccess"), ("credential", "bootstrap")]),
        ("access_changed", [("by", "token:admin"), ("event", "access_changed")]),
        ("intervened", [("by", "token:admin"), ("event", "intervened")]),
        ("denied", [("principal", "token:worker"), ("reason", "permission_denied")]),
        ("denied", [("principal", "anonymous"), ("reason", "unauthenticated")]),
        ("denied", [("principal", "cert:reports"), ("credential", &serial)]),
    ] {
        let line = appears(&secured, &[&[("event", event)], &more[..]].concat()).await;
        if !["access_changed", "intervened"].contains(&event) {
            assert_eq!(line["address"], "127.0.0.1", "{line}");
            assert!(line["protocol"].is_string() && line["method"].is_string(), "{line}");
        }
    }
    // Every node knows the principal of a change. The credential and the address are known where the client came to.
    for id in secured.cluster.ids() {
        let granted = [("event", "granted"), ("principal", "token:worker")];
        eventually("the node's file has the grants", PATIENCE, || {
            let lines = lines_of(&secured, id);
            std::future::ready((with(&lines, &granted).len() == 3).then_some(()))
        })
        .await;
    }

    // A command that runs, so that its arguments can be read, and that of its companion.
    let mut holder = secured.command("worker", &["lock", "work/d", "--", "sleep", "600"]);
    let mut holder = holder.spawn().unwrap();
    appears(
        &secured,
        &[("event", "granted"), ("principal", "token:worker"), ("mode", "exclusive")],
    )
    .await;
    eventually("work/d is held", PATIENCE, async || {
        let status = secured.run("worker", &["status", "work/d", "--output", "json"]).await;
        (json(&status)["holder_count"] == 1).then_some(())
    })
    .await;
    let arguments: Vec<u8> = std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .flat_map(|process| std::fs::read(process.path().join("cmdline")).unwrap_or_default())
        .collect();
    let mut texts = vec![("an argument".to_owned(), arguments)];
    for id in secured.cluster.ids() {
        texts.push((format!("the log of node {id}"), secured.cluster.log_of(id).into_bytes()));
        read_all(&secured.cluster.data_dir(id), &mut texts);
        let audit = std::fs::read(secured.path(&format!("audit-{id}.jsonl"))).unwrap();
        texts.push((format!("the audit of node {id}"), audit));
    }
    texts.push(("the backup".to_owned(), std::fs::read(backup).unwrap()));
    holder.kill().unwrap();
    holder.wait().unwrap();
    assert!(texts.iter().map(|(_, bytes)| bytes.len()).sum::<usize>() > 100_000);

    let raw: Vec<u8> =
        (0..16).map(|at| u8::from_str_radix(&session[2 * at..2 * at + 2], 16).unwrap()).collect();
    let reversed: Vec<u8> = raw.iter().rev().copied().collect();
    for (place, bytes) in &texts {
        for secret in [session.as_bytes(), &raw, &reversed] {
            assert!(!contains(bytes, secret), "a session's secret is in {place}");
        }
    }
    for user in ["admin", "worker"] {
        let token = std::fs::read_to_string(secured.path(user)).unwrap();
        // It may contain the separator.
        let secret = token.trim().splitn(3, '_').nth(2).unwrap();
        for (place, bytes) in &texts {
            assert!(!contains(bytes, secret.as_bytes()), "the token of {user} is in {place}");
        }
    }
    let ids = ["ca-key.pem", "node-1-key.pem", "client-reports-key.pem"];
    for key in ids.map(|key| std::fs::read_to_string(secured.path("certs").join(key)).unwrap()) {
        let line = key.lines().nth(1).unwrap();
        assert!(texts.iter().all(|(_, bytes)| !contains(bytes, line.as_bytes())));
    }
}

fn contains(bytes: &[u8], secret: &[u8]) -> bool {
    assert!(secret.len() >= 16);
    bytes.windows(secret.len()).any(|window| window == secret)
}

/// Log, snapshots, and what else is in a data directory; not the token of the first administrator, which is there to be
/// read.
fn read_all(dir: &Path, texts: &mut Vec<(String, Vec<u8>)>) {
    for entry in std::fs::read_dir(dir).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            read_all(&path, texts);
        } else if path.file_name().is_some_and(|name| name != "bootstrap") {
            texts.push((path.display().to_string(), std::fs::read(&path).unwrap()));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_cannot_write_its_audit_refuses_changes_keeps_sessions_and_recovers() {
    let settings =
        format!("{AUDIT}file_bytes = 20000\nfiles_kept = 1\non_failure = \"refuse-changes\"\n");
    let secured = TlsCluster::start(1, &settings).await;
    secured.user("worker", &["read,exclusive:work/*", "connect"]).await;
    let taken = secured.done("worker", &["acquire", "work/a", "--output", "json"]).await;
    let taken: Value = serde_json::from_str(&taken).unwrap();
    let (session, token) = (taken["session"].as_str().unwrap(), taken["token"].as_str().unwrap());

    // The next rotation fails: a directory is where the older file goes.
    let in_the_way = secured.path("audit-1.jsonl.1");
    std::fs::create_dir_all(in_the_way.join("full")).unwrap();
    let refused = eventually("changes are refused", PATIENCE, async || {
        let tried = secured.run("worker", &["lock", "work/b", "--wait", "1s", "--", "true"]).await;
        (!tried.status.success()).then_some(tried)
    })
    .await;
    let words = text(&refused.stderr);
    assert!(words.contains("audit"), "{words}");
    assert_eq!(refused.status.code(), Some(UNAVAILABLE), "{words}");
    // Reads, heartbeats and releases go on.
    secured.done("worker", &["status", "work/a"]).await;
    secured.done("worker", &["renew", "work/a", "--session", session, "--token", token]).await;
    secured.done("worker", &["release", "work/a", "--session", session, "--token", token]).await;

    std::fs::remove_dir_all(&in_the_way).unwrap();
    eventually("changes are taken again", PATIENCE, async || {
        let tried = secured.run("worker", &["lock", "work/c", "--wait", "5s", "--", "true"]).await;
        tried.status.success().then_some(())
    })
    .await;
    // What happened meanwhile was written when it could be.
    appears(&secured, &[("event", "released"), ("principal", "token:worker")]).await;
}
