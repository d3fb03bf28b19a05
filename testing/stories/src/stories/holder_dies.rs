//! The holder is killed, and cannot release what it holds.

use std::path::Path;
use std::time::{Duration, Instant};

use tokio::io::{AsyncBufReadExt, BufReader};

use crate::failure::{StoryFailure, must};
use crate::stage::Stage;
use crate::story::Story;
use crate::transcript::{Transcript, span};
use crate::wait_until::until;

pub(crate) const STORY: Story = Story {
    name: "holder-dies",
    title: "the holder is killed",
    nodes: 3,
    play: |stage, transcript| Box::pin(play(stage, transcript)),
};

/// The companion of `holdfast lock` needs a tenth of a second; the rest is for the debug build of a busy machine.
const FREED_WITHIN: Duration = Duration::from_secs(3);

async fn play(stage: &mut Stage, transcript: &mut Transcript) -> Result<(), StoryFailure> {
    let mut arguments = vec!["lock", "report", "--ttl", "30s", "--"];
    arguments.extend(["sh", "-c", "echo $$; exec sleep 60"]);
    let mut holder = stage.holdfast(&arguments).spawn()?;
    let stdout = holder.stdout.take().ok_or_else(|| StoryFailure::Aborted("no pipe".to_owned()))?;
    let pid = BufReader::new(stdout).lines().next_line().await?.unwrap_or_default();
    let first = stage.is_held("report").await?;
    transcript.note(format!(
        "A runs `holdfast lock report -- …` with a lease of 30 s, under token {first}"
    ));
    let client = stage.client("B", Duration::from_secs(10)).await?;
    let waiting = stage.queue_up(&client, "report").await?;
    transcript.note("B waits for it");

    holder.kill().await?;
    let killed = Instant::now();
    transcript.note("kill -9: A can release nothing");
    let guard = waiting.await??;
    let (took, second) = (killed.elapsed(), guard.token()?);
    transcript.note(format!("B holds it {} later, under token {second}", span(took)));
    until("the command of A is gone", || async { is_gone(&pid).then_some(()) }).await?;
    transcript.note(format!("the command that A ran (process {pid}) was killed with it"));

    must(took < FREED_WITHIN, format!("B had to wait for {}", span(took)))?;
    must(second > first, "the token did not rise")
}

fn is_gone(pid: &str) -> bool {
    let stat = std::fs::read_to_string(Path::new("/proc").join(pid).join("stat"));
    // One that has ended and is not yet collected counts as gone.
    stat.map_or(true, |stat| stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('Z')))
}
