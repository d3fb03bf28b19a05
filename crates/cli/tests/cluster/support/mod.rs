//! Real nodes as real processes on loopback, and small clients to load and to question them.

mod cluster_slots;
mod command;
mod command_fixture;
mod example;
mod http;
mod load;
mod nodes;
mod plain;
mod proxy;
mod raw;
mod terminal;

use std::future::Future;
use std::time::{Duration, Instant};

pub(crate) use holdfast_cluster_kit::free_base_port;

pub(crate) use cluster_slots::{all_cluster_slots, cluster_slot};
pub(crate) use command::{data, json, json_lines, output, run, text, words};
pub(crate) use command_fixture::{
    CommandFixture, PATIENCE, ends, finished, is_gone, is_running, signal,
};
pub(crate) use example::build_examples;
pub(crate) use http::{metrics, page, value as metric};
pub(crate) use load::{Load, LoadReport};
pub(crate) use nodes::{Cluster, ClusterOptions, holdfast};
pub(crate) use plain::{PlainClient, PlainSession, hold, wait_in_line};
pub(crate) use proxy::Proxy;
pub(crate) use raw::call_with_bytes;
pub(crate) use terminal::Terminal;

/// Asks again and again until there is an answer; fails the test after `patience`.
pub(crate) async fn eventually<T, F>(
    what: &str,
    patience: Duration,
    mut ask: impl FnMut() -> F,
) -> T
where
    F: Future<Output = Option<T>>,
{
    let give_up = Instant::now() + patience;
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(Instant::now() < give_up, "not within {patience:?}: {what}");
        // The interval of asking, not a guess at how long it takes.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
