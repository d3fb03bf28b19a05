//! Three, each of whom holds what the next one needs.

use std::time::{Duration, Instant};

use holdfast_client::AcquireError;

use crate::failure::{StoryFailure, must};
use crate::stage::Stage;
use crate::story::Story;
use crate::transcript::{Transcript, span};

pub(crate) const STORY: Story = Story {
    name: "circular-wait",
    title: "a circular wait is refused, and named",
    nodes: 3,
    play: |stage, transcript| Box::pin(play(stage, transcript)),
};

const TTL: Duration = Duration::from_secs(10);
const WAIT: Duration = Duration::from_secs(30);

async fn play(stage: &mut Stage, transcript: &mut Transcript) -> Result<(), StoryFailure> {
    let mut clients = Vec::new();
    let mut held = Vec::new();
    for (who, name) in [("A", "red"), ("B", "green"), ("C", "blue")] {
        let client = stage.client(who, TTL).await?;
        // One actor of its session: what holds here is what waits below.
        held.push(client.lock(name).actor(1).acquire().await?);
        clients.push(client);
    }
    transcript.note("A holds red, B holds green, C holds blue");
    let a = stage.queue_up(&clients[0], "green").await?;
    let b = stage.queue_up(&clients[1], "blue").await?;
    transcript.note("A waits for green, B waits for blue");

    let asked = Instant::now();
    let answer = clients[2].lock("red").actor(1).wait(WAIT).acquire().await;
    let took = asked.elapsed();
    let Err(AcquireError::Deadlock(cycle)) = answer else {
        return Err(StoryFailure::Unexpected(format!("C was to be refused: {answer:?}")));
    };
    transcript
        .note(format!("C asks for red, and may wait 30 s; it is refused after {}:", span(took)));
    for link in &cycle.0 {
        transcript
            .note(format!("  session {} waits for {}", link.public_session_id, link.waits_for));
    }
    let mut names: Vec<&str> = cycle.0.iter().map(|link| link.waits_for.as_str()).collect();
    names.sort_unstable();
    must(names == ["blue", "green", "red"], format!("the cycle is said to be {names:?}"))?;
    must(took < Duration::from_secs(3), "the refusal took as long as a wait")?;

    for guard in held.drain(2..) {
        guard.release().await?;
    }
    let blue = b.await??;
    transcript.note(format!("C gives up blue; B holds it under token {}", blue.token()?));
    blue.release().await?;
    for guard in held.drain(1..) {
        guard.release().await?;
    }
    let green = a.await??;
    transcript.note(format!("B is done; A holds green under token {}: all go on", green.token()?));
    Ok(())
}
