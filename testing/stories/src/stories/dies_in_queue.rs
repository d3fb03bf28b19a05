//! A client dies while it waits, and must not be granted what it can no longer use.

use std::time::{Duration, Instant};

use crate::failure::{StoryFailure, must};
use crate::stage::Stage;
use crate::story::Story;
use crate::transcript::{Transcript, span};
use crate::worker::Worker;

pub(crate) const STORY: Story = Story {
    name: "dies-in-queue",
    title: "a session dies while it is queued",
    nodes: 3,
    play: |stage, transcript| Box::pin(play(stage, transcript)),
};

const TTL: Duration = Duration::from_secs(2);
/// TTL x 1.01 + one grace + two ticks, as promised; and what it takes to look.
const ENDS_WITHIN: Duration = Duration::from_millis(2_020 + 1_000 + 100 + 500);

async fn play(stage: &mut Stage, transcript: &mut Transcript) -> Result<(), StoryFailure> {
    let client = stage.client("A", Duration::from_secs(20)).await?;
    let a = client.lock("printer").acquire().await?;
    let first = a.token()?;
    let mut b = Worker::start(stage, "printer", TTL)?;
    let place = b.hear().await?;
    must(place == "queued 1", format!("B says: {place}"))?;
    let other = stage.client("C", Duration::from_secs(20)).await?;
    let c = stage.queue_up(&other, "printer").await?;
    transcript.note(format!(
        "A holds printer under token {first}; B is first in line, lease 2 s, C is second"
    ));

    b.kill().await?;
    let killed = Instant::now();
    transcript.note("kill -9 of B, while it waits");
    stage.has_waiters("printer", 1).await?;
    let took = killed.elapsed();
    transcript
        .note(format!("B's session ended {} later, and its place with it: C is first", span(took)));
    must(took <= ENDS_WITHIN, format!("the dead one stood in line for {}", span(took)))?;

    let released = Instant::now();
    a.release().await?;
    let guard = c.await??;
    let (took, second) = (released.elapsed(), guard.token()?);
    transcript.note(format!(
        "A releases: C holds it {} later, under token {second}, the very next",
        span(took)
    ));
    must(second == first + 1, "a client was granted it in between")?;
    must(took < Duration::from_secs(1), "C had to wait for another client")?;
    let status = stage.status("printer").await?;
    must((status.holder_count, status.waiter_count) == (1, 0), "there is a ghost")
}
