//! Two sites, and the line between them is cut. Then the larger one burns down.

use std::time::{Duration, Instant};

use crate::failure::{StoryFailure, must};
use crate::plain_session::PlainSession;
use crate::stage::Stage;
use crate::story::Story;
use crate::transcript::{Transcript, span};
use crate::wait_until::until;

pub(crate) const STORY: Story = Story {
    name: "two-sites",
    title: "two sites are cut apart, and the smaller must refuse",
    nodes: 3,
    play: |stage, transcript| Box::pin(play(stage, transcript)),
};

const EAST: [u64; 2] = [1, 2];
const WEST: [u64; 1] = [3];
const TTL: Duration = Duration::from_secs(10);

async fn play(stage: &mut Stage, transcript: &mut Transcript) -> Result<(), StoryFailure> {
    let calls = stage.calls()?;
    // It may be that it leads already, or that there is an election just now.
    until("node 3 leads", || async {
        let _ = calls.transfer_leadership(Some(3)).await;
        (stage.view_of(3).await?.leader == 3).then_some(())
    })
    .await?;
    let before = PlainSession::open(&calls, TTL).await?.try_acquire("before").await?;
    transcript
        .note(format!("east has nodes 1 and 2, west has node 3, which leads; a token is {before}"));

    stage.split_off(&WEST);
    let cut = Instant::now();
    transcript.note("the line between the sites is cut");
    let east = async {
        stage.leader_among(&EAST).await?;
        let session = PlainSession::open(&stage.calls_to(&EAST)?, TTL).await?;
        let token = session.try_acquire("job").await?;
        Ok::<_, StoryFailure>((Instant::now(), token))
    };
    let west = async { refuses(stage, "job").await };
    let (west, east) = tokio::join!(west, east);
    // If west granted the lock, then that is why east did not.
    let ((refused, words), (served, token)) = (west?, east?);
    transcript.note_at(
        served,
        format!("east serves {} after the cut: job under token {token}", span(served - cut)),
    );
    transcript.note_at(refused, format!("west refuses: {words}"));
    must(token > before, "the token did not rise")?;

    stage.kill(&EAST)?;
    transcript.note("east burns down: west is all that is left");
    let (refused, words) = refuses(stage, "job").await?;
    transcript.note_at(refused, format!("west still refuses: {words}"));

    stage.network.heal();
    stage.start(&EAST)?;
    stage.leader().await?;
    let held = stage.is_held("job").await?;
    let after = PlainSession::open(&stage.calls()?, TTL).await?.try_acquire("after").await?;
    transcript.note(format!("east is rebuilt and the line is mended: job is held under {held}, the next token is {after}"));
    must(held == token, "what east had granted is not what is held")?;
    must(after > token, "the token did not rise")
}

/// West is asked, and says why not.
async fn refuses(stage: &Stage, name: &str) -> Result<(Instant, String), StoryFailure> {
    let calls = stage.calls_to(&WEST)?;
    let answer = async { PlainSession::open(&calls, TTL).await?.try_acquire(name).await }.await;
    match answer {
        Ok(token) => {
            Err(StoryFailure::Unexpected(format!("west granted {name} under token {token}")))
        }
        Err(StoryFailure::Aborted(words)) => {
            // It names the address of each node, which says nothing here.
            let words = words.rsplit_once(": ").map_or(words.clone(), |(_, end)| end.to_owned());
            Ok((Instant::now(), words))
        }
        Err(other) => Err(other),
    }
}
