//! Somebody releases a lock that is not theirs: by mistake, or too late.

use std::time::Duration;

use holdfast_client::ReleaseOutcome;

use crate::plain_session::PlainSession;
use crate::stage::Stage;
use crate::story::Story;
use crate::tale::Tale;
use crate::trouble::{Trouble, must};

pub(crate) const STORY: Story = Story {
    name: "wrong-owner",
    title: "a client releases another client's lock",
    nodes: 3,
    play: |stage, tale| Box::pin(play(stage, tale)),
};

const TTL: Duration = Duration::from_secs(20);

async fn play(stage: &mut Stage, tale: &mut Tale) -> Result<(), Trouble> {
    let calls = stage.calls()?;
    let (a, b) = (PlainSession::open(&calls, TTL).await?, PlainSession::open(&calls, TTL).await?);
    let first = a.try_acquire("deploy").await?;
    tale.say(format!("A holds deploy under token {first}"));
    let answer = b.release("deploy", first).await?;
    tale.say(format!("B releases it, with A's token: {answer:?}"));
    must(answer == ReleaseOutcome::NotOwner, "B was not told that it is not the owner")?;
    must(stage.is_held("deploy").await? == first, "B freed the lock of A")?;

    let answer = a.release("deploy", first).await?;
    must(answer == ReleaseOutcome::Released, format!("A's own release: {answer:?}"))?;
    let second = b.try_acquire("deploy").await?;
    tale.say(format!("A releases it; B holds it under token {second}"));
    let answer = a.release("deploy", first).await?;
    tale.say(format!("A's clean-up code releases once more, with token {first}: {answer:?}"));
    must(answer == ReleaseOutcome::AlreadyReleased, "A was not told that it had released it")?;
    let answer = a.release("deploy", second).await?;
    tale.say(format!("A guesses B's token {second}: {answer:?}"));
    must(answer == ReleaseOutcome::NotOwner, "A was not told that it is not the owner")?;

    let held = stage.is_held("deploy").await?;
    tale.say(format!("B holds it all the time, under token {held}"));
    must(held == second, "B's lock was freed by somebody else")
}
