//! A client releases a lock that is not its own: by mistake, or too late.

use std::time::Duration;

use holdfast_client::ReleaseOutcome;

use crate::failure::{StoryFailure, must};
use crate::plain_session::PlainSession;
use crate::stage::Stage;
use crate::story::Story;
use crate::transcript::Transcript;

pub(crate) const STORY: Story = Story {
    name: "wrong-owner",
    title: "a client releases another client's lock",
    nodes: 3,
    play: |stage, transcript| Box::pin(play(stage, transcript)),
};

const TTL: Duration = Duration::from_secs(20);

async fn play(stage: &mut Stage, transcript: &mut Transcript) -> Result<(), StoryFailure> {
    let calls = stage.calls()?;
    let (a, b) = (PlainSession::open(&calls, TTL).await?, PlainSession::open(&calls, TTL).await?);
    let first = a.try_acquire("deploy").await?;
    transcript.note(format!("A holds deploy under token {first}"));
    let answer = b.release("deploy", first).await?;
    transcript.note(format!("B releases it, with A's token: {answer:?}"));
    must(answer == ReleaseOutcome::NotOwner, "B was not told that it is not the owner")?;
    must(stage.is_held("deploy").await? == first, "B freed the lock of A")?;

    let answer = a.release("deploy", first).await?;
    must(answer == ReleaseOutcome::Released, format!("A's own release: {answer:?}"))?;
    let second = b.try_acquire("deploy").await?;
    transcript.note(format!("A releases it; B holds it under token {second}"));
    let answer = a.release("deploy", first).await?;
    transcript
        .note(format!("A's clean-up code releases once more, with token {first}: {answer:?}"));
    must(answer == ReleaseOutcome::AlreadyReleased, "A was not told that it had released it")?;
    let answer = a.release("deploy", second).await?;
    transcript.note(format!("A guesses B's token {second}: {answer:?}"));
    must(answer == ReleaseOutcome::NotOwner, "A was not told that it is not the owner")?;

    let held = stage.is_held("deploy").await?;
    transcript.note(format!("B holds it all the time, under token {held}"));
    must(held == second, "B's lock was freed by another client")
}
