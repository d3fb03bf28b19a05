//! The holder's network goes silent: it must know that it lost the lock before any other client has it.

use std::time::{Duration, Instant};

use holdfast_client::Client;
use holdfast_cluster_kit::Wire;

use crate::failure::{StoryFailure, must};
use crate::stage::Stage;
use crate::story::Story;
use crate::transcript::{Transcript, span};

pub(crate) const STORY: Story = Story {
    name: "cut-off",
    title: "the client is cut off, and warned before the end",
    nodes: 3,
    play: |stage, transcript| Box::pin(play(stage, transcript)),
};

const TTL: Duration = Duration::from_secs(3);

async fn play(stage: &mut Stage, transcript: &mut Transcript) -> Result<(), StoryFailure> {
    let leader = stage.leader().await?;
    let wire = Wire::to(&stage.endpoints_of(&[leader])).await?;
    let client = Client::builder().ttl(TTL).without_discovery().connect(wire.address()).await?;
    let a = client.lock("index").acquire().await?;
    let first = a.token()?;
    transcript
        .note(format!("A holds index under token {first}, lease 3 s, a heartbeat every second"));
    let other = stage.client("B", Duration::from_secs(10)).await?;
    let waiting = stage.queue_up(&other, "index").await?;
    transcript.note("B waits for it");

    wire.cut();
    let cut = Instant::now();
    transcript.note("A's network goes silent: connections stay, nothing passes");
    let watch_a = async {
        a.at_risk().await;
        let (warned, left) = (Instant::now(), a.valid_for());
        let reason = a.lost().await;
        (warned, left, Instant::now(), reason)
    };
    let watch_b = async {
        let guard = waiting.await??;
        Ok::<_, StoryFailure>((Instant::now(), guard))
    };
    let ((warned, left, lost, reason), granted) = tokio::join!(watch_a, watch_b);
    let (granted, b) = granted?;
    let since_cut = |at: Instant| span(at - cut);
    transcript.note_at(
        warned,
        format!("A is warned, {} after the cut: {} are left", since_cut(warned), span(left)),
    );
    transcript.note_at(
        lost,
        format!("A knows that it is lost, {} after the cut: {reason}", since_cut(lost)),
    );
    let second = b.token()?;
    transcript.note_at(
        granted,
        format!("B holds it, {} after the cut, under token {second}", since_cut(granted)),
    );

    must(
        left > Duration::from_millis(300),
        format!("A had {} left when it was warned", span(left)),
    )?;
    must(warned < lost, "A was not warned before the end")?;
    must(lost < granted, "B held the lock while A still trusted its own")?;
    must(a.token().is_err(), "A is given a token that it no longer has")?;
    must(second > first, "the token did not rise")
}
