//! The dashboard: what its pages ask for, over plain HTTP; and the pages themselves, in a real browser.

mod api;
mod browser;
mod groups;
mod leaderless;

use serde_json::Value;

use crate::support::{Cluster, ClusterOptions};

const SECRET: &str = "correct horse battery staple";
/// As hostile as a name can be: markup, quotes, and a mark that turns the direction of what follows.
const HOSTILE: &str = "<img src=x onerror=\"window.pwned=1\">'&amp;\u{202e}gnp.x";

async fn cluster() -> Cluster {
    let settings = format!("[http]\nactions_secret = \"{SECRET}\"\nhosts = [\"locks.example\"]\n");
    Cluster::start_with(ClusterOptions { nodes: 3, settings }).await
}

pub(crate) fn get(address: &str, path: &str) -> (u16, Value) {
    send(address, "GET", path, &[], "")
}

fn send(
    address: &str,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> (u16, Value) {
    let answer = tokio::task::block_in_place(|| {
        holdfast_browser::request(address, method, path, headers, body.as_bytes()).unwrap()
    });
    (answer.status, serde_json::from_slice(&answer.body).unwrap_or_default())
}
