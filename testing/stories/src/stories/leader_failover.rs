//! The leader is killed while a lock is held and others wait for it.

use std::time::{Duration, Instant};

use crate::stage::Stage;
use crate::story::Story;
use crate::tale::{Tale, span};
use crate::trouble::{Trouble, must};

pub(crate) const STORY: Story = Story {
    name: "leader-failover",
    title: "the leader is killed: holds, queue and tokens survive",
    nodes: 3,
    play: |stage, tale| Box::pin(play(stage, tale)),
};

const TTL: Duration = Duration::from_secs(10);

async fn play(stage: &mut Stage, tale: &mut Tale) -> Result<(), Trouble> {
    let client = stage.client("A", TTL).await?;
    let a = client.lock("ledger").acquire().await?;
    let first = a.token()?;
    tale.say(format!("A holds ledger under token {first}"));
    let (b, c) = (stage.client("B", TTL).await?, stage.client("C", TTL).await?);
    let b = stage.queue_up(&b, "ledger").await?;
    let c = stage.queue_up(&c, "ledger").await?;
    let line = in_line(stage).await?;
    tale.say(format!("B and C wait, in this order: {}", line.join(", ")));

    let old = stage.leader().await?;
    stage.kill(&[old])?;
    let killed = Instant::now();
    tale.say(format!("kill -9 of node {old}, which leads"));
    let new = stage.leader_among(&stage.others(&[old])).await?;
    let after = in_line(stage).await?;
    let status = stage.status("ledger").await?;
    tale.say(format!("node {new} leads and answers {} later", span(killed.elapsed())));
    let held = status.holders.first().map(|holder| holder.token);
    tale.say(format!("A holds it still, under token {first}; in line: {}", after.join(", ")));
    must(held == Some(first) && a.token()? == first, "A's hold did not survive as it was")?;
    must(after == line, "the queue is not the one that it was")?;

    a.release().await?;
    let b = b.await??;
    let second = b.token()?;
    tale.say(format!("A releases; B holds it under token {second}"));
    b.release().await?;
    let third = c.await??.token()?;
    tale.say(format!("B releases; C holds it under token {third}"));
    must(first < second && second < third, "the tokens did not rise")
}

/// Who waits, by their public ids.
async fn in_line(stage: &Stage) -> Result<Vec<String>, Trouble> {
    let waiters = stage.status("ledger").await?.waiters;
    Ok(waiters.into_iter().map(|waiter| waiter.public_session_id).collect())
}
