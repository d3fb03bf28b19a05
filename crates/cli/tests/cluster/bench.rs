//! `holdfast bench`, on a cluster that is there and on one of its own.

use crate::support::{Cluster, data, holdfast, json, output, text};

const SHORT: [&str; 10] = [
    "--clients",
    "6",
    "--connections",
    "2",
    "--seconds",
    "500ms",
    "--warm-up",
    "0s",
    "--repeats",
    "1",
];

#[tokio::test(flavor = "multi_thread")]
async fn every_load_is_measured_and_nothing_is_left_of_it() {
    let cluster = Cluster::start_alone(3).await;
    let loads = ["bench", "uncontended", "w2", "mixed", "reads"];
    let report = data(&cluster, 0, &[&loads[..], &SHORT].concat()).await;
    let loads = report["workloads"].as_array().unwrap();
    let names: Vec<_> = loads.iter().map(|load| load["workload"].as_str().unwrap()).collect();
    assert_eq!(names, ["uncontended", "hot", "mixed", "reads"]);
    for load in loads {
        let median = &load["median"];
        assert!(median["per_second"].as_f64().unwrap() > 0.0, "{load}");
        let at = |key: &str| median["latency"][key].as_f64().unwrap();
        assert!(0.0 < at("p50_us") && at("p50_us") <= at("p99_us"), "{load}");
        assert!(at("p99_us") <= at("p999_us") && at("p999_us") <= at("max_us"), "{load}");
        assert_eq!(load["repeats"].as_array().map(Vec::len), Some(1), "{load}");
        // These nodes are not its own, so that it does not see what they cost.
        assert_eq!(median["cores"]["servers"], 0.0, "{load}");
    }
    // Hand-overs of one lock are fair, and every client has had it.
    assert_eq!(loads[1]["median"]["waits"]["starved"], 0, "{report}");
    let locks = data(&cluster, 0, &["ls", "bench/"]).await;
    assert_eq!(locks["locks"].as_array().map(Vec::len), Some(0), "{locks}");
    let sessions = data(&cluster, 0, &["sessions"]).await;
    assert_eq!(sessions["sessions"].as_array().map(Vec::len), Some(0), "{sessions}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_of_its_own_is_measured_too() {
    let mut command = holdfast();
    command.args(["bench", "--nodes", "1", "--json"]).args(SHORT);
    let ran = output(command).await;
    assert!(ran.status.success(), "{ran:?}");
    let report = json(&ran);
    assert!(report["workloads"][0]["median"]["per_second"].as_f64().unwrap() > 0.0, "{report}");
    assert!(text(&ran.stderr).contains("uncontended 1/1: "), "{ran:?}");
}
