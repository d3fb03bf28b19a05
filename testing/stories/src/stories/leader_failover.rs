//! The leader is killed while a lock is held and others wait for it.

use std::time::{Duration, Instant};

use crate::failure::{StoryFailure, must};
use crate::stage::Stage;
use crate::story::Story;
use crate::transcript::{Transcript, span};

pub(crate) const STORY: Story = Story {
    name: "leader-failover",
    title: "the leader is killed: holds, queue and tokens survive",
    nodes: 3,
    play: |stage, transcript| Box::pin(play(stage, transcript)),
};

const TTL: Duration = Duration::from_secs(10);

async fn play(stage: &mut Stage, transcript: &mut Transcript) -> Result<(), StoryFailure> {
    let client = stage.client("A", TTL).await?;
    let a = client.lock("ledger").acquire().await?;
    let first = a.token()?;
    transcript.note(format!("A holds ledger under token {first}"));
    let (b, c) = (stage.client("B", TTL).await?, stage.client("C", TTL).await?);
    let b = stage.queue_up(&b, "ledger").await?;
    let c = stage.queue_up(&c, "ledger").await?;
    let line = in_line(stage).await?;
    transcript.note(format!("B and C wait, in this order: {}", line.join(", ")));

    let old = stage.leader().await?;
    stage.kill(&[old])?;
    let killed = Instant::now();
    transcript.note(format!("kill -9 of node {old}, which leads"));
    let new = stage.leader_among(&stage.others(&[old])).await?;
    let after = in_line(stage).await?;
    let status = stage.status("ledger").await?;
    transcript.note(format!("node {new} leads and answers {} later", span(killed.elapsed())));
    let held = status.holders.first().map(|holder| holder.token);
    transcript
        .note(format!("A holds it still, under token {first}; in line: {}", after.join(", ")));
    must(held == Some(first) && a.token()? == first, "A's hold did not survive as it was")?;
    must(after == line, "the queue is not the one that it was")?;

    a.release().await?;
    let b = b.await??;
    let second = b.token()?;
    transcript.note(format!("A releases; B holds it under token {second}"));
    b.release().await?;
    let third = c.await??.token()?;
    transcript.note(format!("B releases; C holds it under token {third}"));
    must(first < second && second < third, "the tokens did not rise")
}

/// Who waits, by their public ids.
async fn in_line(stage: &Stage) -> Result<Vec<String>, StoryFailure> {
    let waiters = stage.status("ledger").await?.waiters;
    Ok(waiters.into_iter().map(|waiter| waiter.public_session_id).collect())
}
