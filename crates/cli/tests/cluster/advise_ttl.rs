//! `holdfast advise-ttl` on a real cluster.

use crate::support::{Cluster, data, run, text, words};

#[tokio::test(flavor = "multi_thread")]
async fn the_advice_is_twice_the_sum_of_what_was_given_and_measured() {
    let cluster = Cluster::start(3).await;
    let advice = data(&cluster, 0, &["advise-ttl", "--operation", "3s", "--samples", "10"]).await;
    let number = |key: &str| advice[key].as_f64().unwrap();
    assert_eq!((number("operation_ms"), &advice["operation_is"]), (3_000.0, &"given".into()));
    let slowest = advice["measured"].as_array().unwrap().iter();
    let slowest = slowest.map(|it| it["p99_ms"].as_f64().unwrap()).fold(0.0, f64::max);
    assert!(slowest > 0.0, "{advice}");
    assert_eq!(number("latency_ms"), slowest, "{advice}");
    let sum = number("operation_ms") + number("latency_ms") + number("drift_ms");
    assert!((number("sum_ms") - sum).abs() < 0.001, "{advice}");
    let rounded_by = number("ttl_ms") - 2.0 * sum;
    assert!((0.0..101.0).contains(&rounded_by), "{advice}");
    assert!(number("takeover_ms") > number("ttl_ms") * 1.01, "{advice}");
    for measured in advice["measured"].as_array().unwrap() {
        assert_eq!(measured["samples"], 10, "{advice}");
    }
    // It is what `--ttl` takes, and nothing is left of the measuring.
    data(&cluster, 0, &["acquire", "job", "--ttl", advice["ttl"].as_str().unwrap()]).await;
    let sessions = data(&cluster, 0, &["sessions"]).await;
    assert_eq!(sessions["sessions"].as_array().map(Vec::len), Some(1), "{sessions}");
    let locks = data(&cluster, 0, &["ls", "holdfast/"]).await;
    assert_eq!(locks["locks"].as_array().map(Vec::len), Some(0), "{locks}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_is_timed_and_what_it_prints_is_not_mixed_with_the_advice() {
    let cluster = Cluster::start(1).await;
    let measure = ["advise-ttl", "--samples", "10", "--"];
    let slow = [&measure[..], &["sh", "-c", "echo its own words; sleep 0.3"]].concat();
    let ran = run(&cluster, &slow).await;
    assert!(ran.status.success(), "{ran:?}");
    let (table, said) = (text(&ran.stdout), text(&ran.stderr));
    assert!(table.contains("measured") && !table.contains("its own words"), "{table}");
    assert!(said.contains("its own words"), "{said}");
    // Less than a change of leader takes.
    assert!(said.contains("warning: ") && said.contains("less than heartbeats allow"), "{said}");

    let fails = [&measure[..], &["false"]].concat();
    assert!(words(&cluster, 64, &fails).await.contains("how long it takes when it succeeds"));
    let missing = words(&cluster, 64, &["advise-ttl"]).await;
    assert!(missing.contains("--operation"), "{missing}");
}
