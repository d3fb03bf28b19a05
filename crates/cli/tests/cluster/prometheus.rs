//! What is shipped for Prometheus and Grafana, tried with a real Prometheus that scrapes real nodes.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use holdfast_client::Tier;
use serde_json::{Value, json};

use crate::metrics::promtool_accepts;
use crate::servers::prometheus::PrometheusServer;
use crate::support::{Cluster, ClusterOptions, Load, PATIENCE, eventually, metric, metrics};

/// Longer than the part of the test that the figures come from.
const RATE_INTERVAL: &str = "2m";

fn shipped(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(file)
}

fn read(file: &str) -> String {
    std::fs::read_to_string(shipped(file)).unwrap()
}

/// Every expression of the dashboard, as Grafana would send it, with the title of its panel.
fn dashboard_expressions() -> Vec<(String, String)> {
    let dashboard: Value = serde_json::from_str(&read("grafana/holdfast.json")).unwrap();
    let mut expressions = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let expression = target["expr"].as_str().unwrap();
            let expression =
                expression.replace("$job", "holdfast").replace("$__rate_interval", RATE_INTERVAL);
            assert!(!expression.contains('$'), "the test does not know a variable of {expression}");
            expressions.push((panel["title"].to_string(), expression));
        }
    }
    expressions
}

fn alerts_of(rules: &str) -> Vec<&str> {
    rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect()
}

/// The expressions of the dashboard that have no figure, with the title of their panel and what they have instead.
async fn expressions_without_figures(prometheus: &PrometheusServer) -> Vec<String> {
    let mut without = Vec::new();
    for (panel, expression) in dashboard_expressions() {
        let series = prometheus.query(&expression).await;
        let is_quantile = expression.starts_with("histogram_quantile");
        let is_figure = |value: f64| value.is_finite() && (value > 0.0 || !is_quantile);
        if series.is_empty() || !series.iter().all(|(_, value)| is_figure(*value)) {
            without.push(format!("{panel}: {expression}: {series:?}"));
        }
    }
    without
}

/// Locks are taken, awaited and given back, in both tiers; snapshots are taken, and one node needs one.
async fn make_figures(cluster: &mut Cluster) {
    let behind = cluster.follower().await;
    cluster.kill(behind);
    let leader = cluster.leader().await;
    let load = Load::start(&cluster.client_of(leader)).await;
    let address = cluster.http_address(leader);
    eventually("the log has moved past what node {behind} has", 3 * PATIENCE, || async {
        let text = metrics(&address).await;
        (metric(&text, "holdfast_snapshot_take_seconds_count") >= 3.0).then_some(())
    })
    .await;
    cluster.launch(behind);
    let address = cluster.http_address(behind);
    eventually("node {behind} gets a snapshot", 3 * PATIENCE, || async {
        cluster.view_of(behind).await?;
        let text = metrics(&address).await;
        (metric(&text, "holdfast_snapshot_install_seconds_count") >= 1.0).then_some(())
    })
    .await;
    let report = load.stop().await;
    assert!(report.operations > 0);
    let library = cluster.library().await;
    let cheap = library.lock("m/cheap").tier(Tier::Efficiency).acquire().await.unwrap();
    cheap.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn every_figure_of_the_grafana_dashboard_is_one_and_dead_nodes_raise_alerts() {
    // As few entries as the configuration allows.
    let settings = "snapshot_every_entries = 100".to_owned();
    let mut cluster = Cluster::start_with(ClusterOptions { nodes: 3, settings }).await;
    let targets: Vec<String> = cluster.ids().iter().map(|id| cluster.http_address(*id)).collect();
    let started = PrometheusServer::start(&shipped("prometheus"), &targets).await;
    let Some(prometheus) = started else { return };
    let up = "sum(up{job=\"holdfast\"}) == 3 and count(holdfast_build_info) == 3";
    eventually("all nodes are scraped", PATIENCE, || async {
        (prometheus.query(up).await.len() == 1).then_some(())
    })
    .await;
    make_figures(&mut cluster).await;

    let give_up = Instant::now() + PATIENCE;
    loop {
        let without = expressions_without_figures(&prometheus).await;
        if without.is_empty() {
            break;
        }
        assert!(Instant::now() < give_up, "no figures: {without:#?}");
        // What happened last has to be scraped first.
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    let clusters = prometheus.ask("/api/v1/label/job/values?match[]=holdfast_build_info").await;
    assert_eq!(clusters, json!(["holdfast"]), "the choice of clusters in the dashboard");

    let rules = prometheus.ask("/api/v1/rules").await;
    let groups = rules["groups"].as_array().unwrap();
    let rules: Vec<_> =
        groups.iter().flat_map(|group| group["rules"].as_array().unwrap().clone()).collect();
    let known: Vec<&str> = rules.iter().map(|rule| rule["name"].as_str().unwrap()).collect();
    assert_eq!(known, alerts_of(&read("prometheus/alerts.yml")));
    assert!(rules.iter().all(|rule| rule["health"] == "ok"), "{rules:#?}");

    // The wiped connections and restarts above raised some; a cluster that is well again raises none of these.
    let about_dead_nodes =
        ["HoldfastNodeDown", "HoldfastNoLeader", "HoldfastClusterDown", "HoldfastNotScraped"];
    fires_exactly(&prometheus, &about_dead_nodes, &[]).await;
    let follower = cluster.follower().await;
    cluster.kill(follower);
    fires_exactly(&prometheus, &about_dead_nodes, &["HoldfastNodeDown"]).await;
    let leader = cluster.leader().await;
    cluster.kill(leader);
    fires_exactly(&prometheus, &about_dead_nodes, &["HoldfastNoLeader", "HoldfastNodeDown"]).await;
    let last = cluster.running()[0];
    cluster.kill(last);
    let all_dead = ["HoldfastClusterDown", "HoldfastNodeDown", "HoldfastNotScraped"];
    fires_exactly(&prometheus, &about_dead_nodes, &all_dead).await;
}

/// Waits until of these alerts those fire and the others do not.
async fn fires_exactly(prometheus: &PrometheusServer, of: &[&str], wanted: &[&str]) {
    eventually(&format!("of {of:?} fire {wanted:?}"), PATIENCE, || async {
        let firing: BTreeSet<String> = prometheus.firing().await.into_iter().collect();
        let firing: Vec<&str> =
            firing.iter().map(String::as_str).filter(|alert| of.contains(alert)).collect();
        (firing == wanted).then_some(())
    })
    .await;
}

#[test]
fn each_alert_fires_on_the_series_it_is_for_and_on_no_others() {
    let tests = read("prometheus/alerts_test.yml");
    for alert in alerts_of(&read("prometheus/alerts.yml")) {
        let is_quiet = tests.contains(&format!("alertname: {alert}, exp_alerts: [] }}"));
        let fires = tests.contains(&format!("alertname: {alert}\n        exp_alerts:\n"));
        assert!(is_quiet && fires, "alerts_test.yml does not test {alert} both ways");
    }
    let file = shipped("prometheus/alerts_test.yml");
    promtool_accepts(&["test", "rules", file.to_str().unwrap()], "");
}
