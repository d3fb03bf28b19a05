//! Who leads, seen from three sides: the leader, a candidate, an observer.
//!
//! The epoch is a fencing token, higher than that of every leader before. The leader hands it to whatever it
//! commands; what an earlier leader still sends is refused there. An observer is told of each leader, each
//! value and each vacancy; that is for routing requests, and no proof of who leads at this moment.
//!
//! Start a cluster first: `cargo run --release -- dev`. Then:
//!
//! ```sh
//! cargo run -p holdfast-client --example election
//! ```

#![allow(clippy::print_stdout)]

use std::error::Error;

use holdfast_client::{Client, Observed, Observer};

async fn describe(observer: &mut Observer) -> Result<String, Box<dyn Error>> {
    Ok(match observer.next().await? {
        Observed::Leader(leader) => {
            format!("{} leads in epoch {}", String::from_utf8_lossy(&leader.value), leader.epoch)
        }
        Observed::Vacant => "no leader".to_owned(),
        Observed::Missed { why } => format!("something was missed: {why}"),
        _ => "something new".to_owned(),
    })
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let endpoints = std::env::var("HOLDFAST_ENDPOINTS").unwrap_or("127.0.0.1:7420".to_owned());
    let (ann, ben) = (Client::connect(&endpoints).await?, Client::connect(&endpoints).await?);
    let election = ann.election("shard/7");
    let mut observer = election.observe();
    println!("observer: {}", describe(&mut observer).await?);

    let mut leadership = election.campaign("ann:8080").await?;
    println!("observer: {}", describe(&mut observer).await?);
    leadership.proclaim("ann:8081").await?;
    println!("observer: {}", describe(&mut observer).await?);

    // A candidate waits; the leader sees it, and chooses it. There is a leader at every moment.
    let campaign = tokio::spawn(async move { ben.election("shard/7").campaign("ben:9090").await });
    let candidate = loop {
        if let Some(candidate) = election.candidates().await?.pop() {
            break candidate;
        }
    };
    let epoch = leadership.hand_over(candidate.session).await?;
    println!("handed over; now it is epoch {epoch}, and mine is over: {:?}", leadership.epoch());
    let next = campaign.await??;
    println!("observer: {}", describe(&mut observer).await?);
    next.resign().await?;
    println!("observer: {}", describe(&mut observer).await?);
    Ok(())
}
