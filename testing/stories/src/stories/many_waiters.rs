//! Two hundred wait, and one release wakes one of them.

use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use crate::failure::{StoryFailure, must};
use crate::stage::Stage;
use crate::story::Story;
use crate::transcript::{Transcript, span};

pub(crate) const STORY: Story = Story {
    name: "many-waiters",
    title: "200 waiters and one release",
    nodes: 3,
    play: |stage, transcript| Box::pin(play(stage, transcript)),
};

const WAITERS: u64 = 200;
const SESSIONS: u64 = 8;
const TTL: Duration = Duration::from_secs(20);
const WAIT: Duration = Duration::from_secs(50);

async fn play(stage: &mut Stage, transcript: &mut Transcript) -> Result<(), StoryFailure> {
    let client = stage.client("A", TTL).await?;
    let guard = client.lock("hot").acquire().await?;
    let mut last = guard.token()?;
    let mut clients = Vec::new();
    for _ in 0..SESSIONS {
        clients.push(stage.client("waiter", TTL).await?);
    }
    let (granted, mut grants) = mpsc::unbounded_channel();
    let (queued, mut places) = mpsc::unbounded_channel();
    for (client, number) in clients.iter().cycle().zip(1..=WAITERS) {
        let (granted, queued) = (granted.clone(), queued.clone());
        let request = client.lock("hot").wait(WAIT).actor(number);
        let request = request.on_queued(move |place| {
            let _ = queued.send(place);
        });
        tokio::spawn(async move {
            let _ = granted.send((number, request.acquire().await));
        });
        let place = places.recv().await.unwrap_or_default();
        must(place == number, format!("waiter {number} was told place {place}"))?;
    }
    transcript
        .note(format!("A holds hot under token {last}; {WAITERS} wait, by {SESSIONS} sessions"));

    let released = Instant::now();
    guard.release().await?;
    for expected in 1..=WAITERS {
        let Some((number, guard)) = grants.recv().await else {
            return Err(StoryFailure::Aborted("no client waits any more".to_owned()));
        };
        let guard = guard?;
        let token = guard.token()?;
        must(number == expected, format!("waiter {number} was served, it was {expected}'s turn"))?;
        must(token > last, format!("token {token} after {last}"))?;
        // All the others still stand in line, and no other client was told anything.
        let waiting = stage.status("hot").await?.waiter_count;
        must(waiting == WAITERS - expected, format!("{waiting} are left"))?;
        must(grants.try_recv().is_err(), "a second one was woken")?;
        if expected == 1 {
            let took = span(released.elapsed());
            transcript.note(format!(
                "A releases: waiter 1 holds it {took} later, under token {token}; {waiting} sleep on"
            ));
        }
        last = token;
        guard.release().await?;
    }
    transcript.note(format!(
        "each releases in turn: all {WAITERS} were served in the order in which they came, in {}",
        span(released.elapsed())
    ));
    transcript.note(format!(
        "{WAITERS} releases, {WAITERS} grants, each to one; the last token is {last}"
    ));
    must(stage.status("hot").await?.holders.is_empty(), "a client holds it still")
}
