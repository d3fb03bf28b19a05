//! Five nodes fall apart into two and three, and the leader is with the two.

use std::time::{Duration, Instant};

use crate::failure::{StoryFailure, must};
use crate::plain_session::PlainSession;
use crate::stage::Stage;
use crate::story::Story;
use crate::transcript::{Transcript, span};
use crate::wait_until::until;

pub(crate) const STORY: Story = Story {
    name: "split",
    title: "a 2/3 split, with the leader among the two",
    nodes: 5,
    play: |stage, transcript| Box::pin(play(stage, transcript)),
};

const TTL: Duration = Duration::from_secs(3);

async fn play(stage: &mut Stage, transcript: &mut Transcript) -> Result<(), StoryFailure> {
    let leader = stage.leader().await?;
    let Some(companion) = stage.others(&[leader]).first().copied() else {
        return Err(StoryFailure::Aborted("there are no five nodes".to_owned()));
    };
    let few = [leader, companion];
    let many = stage.others(&few);
    let client = stage.client_of(&few, "A", TTL).await?;
    let a = client.lock("ledger").acquire().await?;
    let first = a.token()?;
    transcript.note(format!("node {leader} leads; A holds ledger under token {first}, lease 3 s"));

    stage.split_off(&few);
    let split = Instant::now();
    transcript.note(format!("the network splits: {few:?} with A, {many:?} with B"));
    let other = stage.client_of(&many, "B", TTL);
    let watch_b = async {
        let other = other.await?;
        let guard = other.lock("ledger").wait(Duration::from_secs(30)).acquire().await?;
        Ok::<_, StoryFailure>((Instant::now(), guard))
    };
    let watch_a = async {
        a.at_risk().await;
        let warned = Instant::now();
        a.lost().await;
        (warned, Instant::now())
    };
    // Each of the two is asked by itself.
    let refused = async {
        for node in few {
            let answer = PlainSession::open(&stage.calls_to(&[node])?, TTL).await;
            must(answer.is_err(), format!("node {node} served without a majority"))?;
        }
        Ok::<_, StoryFailure>(Instant::now())
    };
    let (refused, (warned, lost), granted) = tokio::join!(refused, watch_a, watch_b);
    let (refused, (granted, b)) = (refused?, granted?);
    let second = b.token()?;
    let since = |at: Instant| span(at - split);
    transcript.note_at(warned, format!("A is warned, {} after the split", since(warned)));
    transcript.note_at(lost, format!("A knows that it is lost, {} after the split", since(lost)));
    transcript.note_at(
        granted,
        format!("B holds ledger, {} after the split, under token {second}", since(granted)),
    );
    transcript.note_at(refused, format!("nodes {few:?} have refused a new client, each by itself"));
    must(warned < lost, "A was not warned before the end")?;
    must(lost < granted, "B held the lock while A still trusted its own")?;
    must(second > first, "the token did not rise")?;

    stage.network.heal();
    let new = stage.leader_among(&many).await?;
    until("the two follow again", || async {
        let view = stage.view_of(leader).await?;
        (view.leader == new).then_some(())
    })
    .await?;
    let seen = stage.calls_to(&few)?.status("ledger").await?;
    let holder = seen.holders.first().map(|holder| holder.token);
    transcript
        .note(format!("healed: node {leader} follows node {new}, and tells of B's token {second}"));
    must(holder == Some(second), format!("asked through {few:?}, the holder's token is {holder:?}"))
}
