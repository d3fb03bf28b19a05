//! A TTL that is shorter than the work, and how to choose one that is not.

use std::time::{Duration, Instant};

use holdfast_client::{Client, Guard};

use crate::account::{Account, as_stale};
use crate::failure::{StoryFailure, must};
use crate::stage::Stage;
use crate::story::Story;
use crate::transcript::{Transcript, span};

pub(crate) const STORY: Story = Story {
    name: "short-ttl",
    title: "a TTL chosen too short",
    nodes: 3,
    play: |stage, transcript| Box::pin(play(stage, transcript)),
};

const SESSION: Duration = Duration::from_secs(20);
const TOO_SHORT: Duration = Duration::from_millis(600);
const WORK: Duration = Duration::from_millis(1_500);

async fn play(stage: &mut Stage, transcript: &mut Transcript) -> Result<(), StoryFailure> {
    let mut account = Account::with("export", 0);
    let (client, other) = (stage.client("A", SESSION).await?, stage.client("B", SESSION).await?);
    let a = begin(&client, &account, TOO_SHORT).await?;
    let (token, fence, began) = (a.token()?, a.fence()?, Instant::now());
    transcript.note(format!(
        "A holds export under token {token} with a TTL of 600 ms; its work takes 1.5 s"
    ));
    let waiting = stage.queue_up(&other, "export").await?;
    a.at_risk().await;
    transcript.note(format!(
        "A is warned after {}: {} are left",
        span(began.elapsed()),
        span(a.valid_for())
    ));
    let reason = a.lost().await;
    transcript.note(format!("A knows that it is lost after {}: {reason}", span(began.elapsed())));
    let b = waiting.await??;
    account.read(&b.fence()?)?;
    transcript.note(format!("B holds it under token {} and shows that to the store", b.token()?));
    tokio::time::sleep_until((began + WORK).into()).await;
    let answer = account.write(&fence, 1);
    let Some((late, highest)) = as_stale(&answer) else {
        return Err(StoryFailure::Unexpected(format!(
            "the late write was not refused: {answer:?}"
        )));
    };
    transcript.note(format!(
        "A did not listen, has done its work and writes: refused, {late} is lower than {highest}"
    ));
    must((late, highest) == (token, b.token()?), "other tokens than were granted")?;
    b.release().await?;

    let mut ask = stage.holdfast(&["advise-ttl", "--operation", "1500ms", "--output", "json"]);
    let advice = ask.output().await?;
    must(advice.status.success(), String::from_utf8_lossy(&advice.stderr))?;
    let advice: serde_json::Value = serde_json::from_slice(&advice.stdout)?;
    let ttl_ms = advice["ttl_ms"].as_u64().unwrap_or_default();
    transcript
        .note(format!("`holdfast advise-ttl --operation 1500ms` measures, and says {ttl_ms} ms"));
    let a = begin(&client, &account, Duration::from_millis(ttl_ms)).await?;
    let began = Instant::now();
    tokio::time::sleep_until((began + WORK).into()).await;
    account.write(&a.fence()?, 2)?;
    let left = a.valid_for();
    let released = a.release().await?;
    transcript.note(format!(
        "with that, A's work ends with {} to spare: written, {released:?}",
        span(left)
    ));
    must(account.cents() == 2, "the write is not there")?;
    must(ttl_ms >= 2 * WORK.as_millis() as u64, "less than twice the work was advised")
}

async fn begin(client: &Client, account: &Account, ttl: Duration) -> Result<Guard, StoryFailure> {
    let guard = client.lock("export").ttl(ttl).wait(Duration::from_secs(10)).acquire().await?;
    account.read(&guard.fence()?)?;
    Ok(guard)
}
