//! The leader is killed, and the tokens go on rising.

use std::time::Instant;

use holdfast_client::Client;
use serde::Serialize;

use super::broke;
use super::cluster::DemoCluster;
use super::narrator::{Narrator, Tone};
use crate::exit::Problem;
use crate::token;

const NAME: &str = "ledger";
const ROUNDS: usize = 3;

#[derive(Debug, Serialize)]
pub(super) struct Failover {
    killed_node: u64,
    new_leader: u64,
    /// From the kill to the next grant.
    gap_ms: u64,
    #[serde(serialize_with = "token::as_texts")]
    tokens_before: Vec<u64>,
    #[serde(serialize_with = "token::as_texts")]
    tokens_after: Vec<u64>,
}

impl Failover {
    pub(super) fn is_as_expected(&self) -> bool {
        let all: Vec<u64> = self.tokens_before.iter().chain(&self.tokens_after).copied().collect();
        let all_there = self.tokens_before.len() == ROUNDS && self.tokens_after.len() == ROUNDS;
        let rise = all.windows(2).all(|pair| pair[0] < pair[1]);
        all_there && rise && self.killed_node != self.new_leader
    }

    pub(super) fn in_short(&self) -> String {
        let (before, after) = (listed(&self.tokens_before), listed(&self.tokens_after));
        format!("{before}, then {after} under another leader")
    }
}

pub(super) async fn play(
    cluster: &mut DemoCluster,
    narrator: &mut Narrator,
) -> Result<Failover, Problem> {
    narrator.heading("The leader is killed").await;
    let client = Client::builder().note("worker C").connect(cluster.endpoints()).await?;
    let tokens_before = tokens(&client).await?;
    let words = format!("takes and releases {NAME}: tokens {}", listed(&tokens_before));
    narrator.say("C", &words).await;
    let killed_node = cluster.leader(None).await?;
    cluster.kill(killed_node)?;
    let killed = Instant::now();
    // The time to read the line is no part of the gap.
    let next_grant = async {
        let first = token(&client).await?;
        Ok::<_, Problem>((first, u64::try_from(killed.elapsed().as_millis()).unwrap_or(u64::MAX)))
    };
    let words = format!("node {killed_node}, the leader, is killed with SIGKILL");
    let (granted, ()) = tokio::join!(next_grant, narrator.say_as(Tone::Bad, "cluster", &words));
    let (first, gap_ms) = granted?;
    let new_leader = cluster.leader(Some(killed_node)).await?;
    let words = format!("node {new_leader} leads; the next grant came {gap_ms} ms after the kill");
    narrator.say("cluster", &words).await;
    let mut tokens_after = vec![first];
    while tokens_after.len() < ROUNDS {
        tokens_after.push(token(&client).await?);
    }
    let words = format!("takes and releases {NAME}: tokens {}", listed(&tokens_after));
    narrator.say_as(Tone::Good, "C", &words).await;
    let _ = client.close().await;
    Ok(Failover { killed_node, new_leader, gap_ms, tokens_before, tokens_after })
}

async fn tokens(client: &Client) -> Result<Vec<u64>, Problem> {
    let mut tokens = Vec::new();
    while tokens.len() < ROUNDS {
        tokens.push(token(client).await?);
    }
    Ok(tokens)
}

/// Takes the lock and gives it back.
async fn token(client: &Client) -> Result<u64, Problem> {
    let guard = client.lock(NAME).acquire().await?;
    let token = guard.token().map_err(broke)?;
    guard.release().await.map_err(broke)?;
    Ok(token)
}

fn listed(tokens: &[u64]) -> String {
    tokens.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")
}
