//! Two restores of one history: no token comes twice, in either tier, whatever the clock shows.

use std::path::Path;
use std::process::Output;
use std::time::Duration;

use serde_json::Value;

use crate::backup::{NOWHERE, json};
use crate::membership::run;
use crate::support::{Cluster, hold};

const TTL: Duration = Duration::from_secs(60);
const LEAP: u64 = 1 << 40;

fn number(value: &Value) -> u64 {
    // Tokens may be written as strings, for programs that round large numbers.
    value.as_u64().or_else(|| value.as_str()?.parse().ok()).unwrap_or_else(|| panic!("{value}"))
}

async fn save(cluster: &Cluster, file: &Path) {
    let save = ["snapshot", "save", file.to_str().unwrap(), "--output", "json"];
    json(&run(&cluster.endpoints(), &save).await);
}

async fn restore(cluster: &Cluster, file: &Path, more: &[&str]) -> Output {
    let config = cluster.config_path(1);
    let restore = ["snapshot", "restore", file.to_str().unwrap(), "--config", &config];
    let closed = ["--closed-for", "0s", "--output", "json"];
    run(NOWHERE, &[&restore[..], &closed, more].concat()).await
}

/// Grants of the correctness tier, one after the other. The locks stay held.
async fn tokens(cluster: &Cluster, names: &str, count: usize) -> Vec<u64> {
    let session = cluster.client().open(TTL).await;
    let mut tokens = Vec::new();
    for number in 0..count {
        tokens.push(hold(&session, &format!("{names} {number}")).await.token);
    }
    tokens
}

async fn best_effort_token(cluster: &Cluster) -> u64 {
    let acquire = ["acquire", "thumbs", "--tier", "efficiency", "--output", "json"];
    number(&json(&run(&cluster.endpoints(), &acquire).await)["token"])
}

/// All is lost but what is elsewhere.
fn lose(cluster: &mut Cluster) {
    cluster.kill(1);
    cluster.wipe(1);
}

async fn serve_again(cluster: &mut Cluster) {
    cluster.launch(1);
    cluster.leader().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_whose_tokens_are_above_the_clock_is_restored_only_with_a_floor_above_them() {
    let mut cluster = Cluster::start(1).await;
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = (dir.path().join("first"), dir.path().join("second"));
    save(&cluster, &first).await;
    lose(&mut cluster);
    let floor = 4_000_000_000_000_000_000u64;
    json(&restore(&cluster, &first, &["--token-floor", &floor.to_string()]).await);
    serve_again(&mut cluster).await;
    let in_backup = tokens(&cluster, "in the backup", 1).await[0];
    assert!(in_backup > floor, "{in_backup}");
    save(&cluster, &second).await;
    let lost = tokens(&cluster, "after the backup", 5).await;

    lose(&mut cluster);
    let refused = restore(&cluster, &second, &[]).await;
    assert_eq!(refused.status.code(), Some(64), "{refused:?}");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    let safe = in_backup + LEAP;
    assert!(said.contains(&format!("--token-floor {safe}")), "{said}");
    let too_low = restore(&cluster, &second, &["--token-floor", &in_backup.to_string()]).await;
    assert_eq!(too_low.status.code(), Some(64), "{too_low:?}");
    let said = String::from_utf8_lossy(&too_low.stderr).into_owned();
    assert!(said.contains("not above the last token"), "{said}");

    let restored = restore(&cluster, &second, &["--token-floor", &safe.to_string()]).await;
    assert_eq!(number(&json(&restored)["last_token"]), safe);
    serve_again(&mut cluster).await;
    let new = tokens(&cluster, "after the restore", 5).await;
    assert!(new.iter().all(|token| lost.iter().all(|lost| token > lost)), "{new:?} after {lost:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn best_effort_tokens_rise_over_a_restore_though_the_terms_after_the_backup_are_lost() {
    let mut cluster = Cluster::start(1).await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("locks");
    save(&cluster, &file).await;
    // Each start is a term.
    for _ in 0..4 {
        cluster.kill(1);
        serve_again(&mut cluster).await;
    }
    let lost = best_effort_token(&cluster).await;

    lose(&mut cluster);
    json(&restore(&cluster, &file, &[]).await);
    serve_again(&mut cluster).await;
    let first = best_effort_token(&cluster).await;
    assert!(first > lost, "{first} after {lost}");

    // The same backup once more, while the first restored cluster has had a term more.
    cluster.kill(1);
    serve_again(&mut cluster).await;
    let later = best_effort_token(&cluster).await;
    lose(&mut cluster);
    json(&restore(&cluster, &file, &[]).await);
    serve_again(&mut cluster).await;
    let second = best_effort_token(&cluster).await;
    assert!(second > later, "{second} after {later}");
}

#[tokio::test(flavor = "multi_thread")]
async fn best_effort_tokens_rise_over_a_recovery() {
    let mut cluster = Cluster::start(3).await;
    let survivor = cluster.follower().await;
    let others: Vec<u64> = cluster.ids().into_iter().filter(|id| *id != survivor).collect();
    // Terms that the survivor never heard of.
    cluster.freeze(survivor);
    for _ in 0..3 {
        for other in &others {
            cluster.kill(*other);
        }
        for other in &others {
            cluster.launch(*other);
        }
        let acquire = ["acquire", "warm-up", "--tier", "efficiency"];
        let endpoints = cluster.client_address(others[0]);
        crate::support::eventually("a leader of two", Duration::from_secs(30), || async {
            run(&endpoints, &acquire).await.status.code().filter(|code| matches!(code, 0 | 75))
        })
        .await;
    }
    let acquire = ["acquire", "thumbs", "--tier", "efficiency", "--output", "json"];
    let acquired = json(&run(&cluster.client_address(others[0]), &acquire).await);
    let lost = number(&acquired["token"]);
    for id in cluster.ids() {
        cluster.kill(id);
    }
    let config = cluster.config_path(survivor);
    let recover = ["recover", "--config", &config, "--i-lost-the-majority", "--closed-for", "0s"];
    json(&run(NOWHERE, &[&recover[..], &["--output", "json"]].concat()).await);
    for other in &others {
        cluster.forget(*other);
    }
    cluster.launch(survivor);
    cluster.leader().await;
    let first = best_effort_token(&cluster).await;
    assert!(first > lost, "{first} after {lost}");
}
