//! The holder stands still for longer than its lease, and wakes up in the middle of its write.

use std::time::{Duration, Instant};

use crate::account::{Account, as_stale};
use crate::failure::{StoryFailure, must};
use crate::stage::Stage;
use crate::story::Story;
use crate::transcript::{Transcript, span};
use crate::worker::Worker;

pub(crate) const STORY: Story = Story {
    name: "pause",
    title: "a pause outlives the lease",
    nodes: 3,
    play: |stage, transcript| Box::pin(play(stage, transcript)),
};

const TTL: Duration = Duration::from_secs(2);

async fn play(stage: &mut Stage, transcript: &mut Transcript) -> Result<(), StoryFailure> {
    let mut account = Account::with("wallet:42", 100);
    let mut a = Worker::start(stage, "wallet:42", TTL)?;
    let first = a.holds().await?;
    must(a.ask("check").await? == "checked", "A does not hold what it was granted")?;
    let read = account.read(&fence_of(&mut a).await?)?;
    transcript.note(format!("A holds wallet:42 under token {first}, lease 2 s, and reads 100"));
    transcript.note("A looks once more: it still holds the lock; it is about to write 100 - 50");
    a.pause()?;
    let paused = Instant::now();
    transcript.note("SIGSTOP: A stands still between looking and writing");

    let client = stage.client("B", Duration::from_secs(10)).await?;
    let guard = stage.queue_up(&client, "wallet:42").await?.await??;
    let second = guard.token()?;
    transcript.note(format!(
        "the lease has run out; B holds the lock {} after the stop, under token {second}",
        span(paused.elapsed())
    ));
    let balance = account.read(&guard.fence()?)?;
    account.write(&guard.fence()?, balance - 30)?;
    transcript.note(format!("B reads {balance} and writes {}", account.cents()));

    a.note(&format!("write {}", read - 50)).await?;
    a.wake()?;
    let (fence, late) = a.hear_write().await?;
    let late: i64 = late.parse()?;
    transcript
        .note(format!("SIGCONT: A goes on where it was, and writes {late} with its token {first}"));
    let answer = account.write(&fence, late);
    let Some((token, highest)) = as_stale(&answer) else {
        return Err(StoryFailure::Unexpected(format!(
            "the late write was not refused: {answer:?}"
        )));
    };
    transcript.note(format!("the fence refuses it: token {token} is lower than {highest}"));
    let now = a.ask("check").await?;
    transcript.note(format!("asked now, the library gives A no token ({now})"));

    must(second > first && token == first && highest == second, "other tokens than were granted")?;
    must(now.starts_with("none"), "A is given a token that it no longer has")?;
    must(account.cents() == 70, format!("the account has {}, not 70", account.cents()))
}

async fn fence_of(worker: &mut Worker) -> Result<String, StoryFailure> {
    worker.note("write nothing").await?;
    Ok(worker.hear_write().await?.0)
}
