//! The wall clocks of the nodes jump, each to another day.

use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::failure::{StoryFailure, must};
use crate::stage::Stage;
use crate::story::Story;
use crate::transcript::{Transcript, span};

pub(crate) const STORY: Story = Story {
    name: "clock-jump",
    title: "wall clocks jump, and differ by days",
    nodes: 3,
    play: |stage, transcript| Box::pin(play(stage, transcript)),
};

const TTL: Duration = Duration::from_secs(2);
const DAY: i64 = 86_400;
/// TTL x 1.01 + one grace + two ticks, as promised; and what it takes to look.
const ENDS_WITHIN: Duration = Duration::from_millis(2_020 + 1_000 + 100 + 500);

async fn play(stage: &mut Stage, transcript: &mut Transcript) -> Result<(), StoryFailure> {
    if !stage.clocks.can_jump() {
        return Err(StoryFailure::Unsupported(
            "libfaketime is not installed (on Debian: apt-get install libfaketime)".to_owned(),
        ));
    }
    let client = stage.client("A", TTL).await?;
    let a = client.lock("billing").acquire().await?;
    let first = a.token()?;
    transcript.note(format!("A holds billing under token {first}, lease 2 s, kept by heartbeats"));
    let left = Instant::now();
    stage.leave_behind("left", TTL).await?;
    transcript.note("S holds left, lease 2 s, and falls silent");

    let leader = stage.leader().await?;
    let before = stage.status("left").await?.logical_time_ms;
    let read = Instant::now();
    let mut off_by = vec![(leader, DAY)];
    off_by.extend(stage.others(&[leader]).into_iter().zip([-DAY, DAY / 24]));
    for (node, seconds) in &off_by {
        stage.clocks.set(*node, *seconds)?;
        let seen = seconds_off(stage, *node)?;
        must((seen - seconds).abs() < 60, format!("the clock of node {node} is off by {seen} s"))?;
    }
    let words: Vec<String> =
        off_by.iter().map(|(node, seconds)| format!("node {node} by {seconds:+} s")).collect();
    transcript.note(format!("the wall clocks jump: {}; node {leader} leads", words.join(", ")));

    stage.is_free("left").await?;
    let freed = left.elapsed();
    let passed_ms = stage.status("left").await?.logical_time_ms - before;
    let real = read.elapsed();
    transcript
        .note(format!("S's lease ended {} after its last word: no sooner, no later", span(freed)));
    transcript.note(format!(
        "meanwhile the lock table's own time moved by {passed_ms} ms; a stopwatch says {} ms",
        real.as_millis()
    ));
    must(a.token()? == first, "A lost its lock")?;
    transcript.note(format!("A holds billing still, under token {first}"));
    must(freed >= TTL, format!("S was ended after {}", span(freed)))?;
    must(freed <= ENDS_WITHIN, format!("S was ended only after {}", span(freed)))?;
    let difference = Duration::from_millis(passed_ms).abs_diff(real);
    must(
        difference < Duration::from_millis(500),
        "the table's time does not run like a stopwatch",
    )?;

    stage.kill(&[leader])?;
    let new = stage.leader_among(&stage.others(&[leader])).await?;
    let status = stage.status("billing").await?;
    let held = status.holders.first().map(|holder| holder.token);
    let behind = off_by.iter().find(|(node, _)| *node == new).map_or(0, |(_, off)| DAY - off);
    transcript.note(format!(
        "kill -9 of the leader; node {new} leads, its clock {behind} s behind the last one's"
    ));
    must(held == Some(first), "A's hold did not survive as it was")?;
    a.release().await?;
    let second = client.lock("billing").acquire().await?.token()?;
    transcript.note(format!(
        "A still held it; it releases it and acquires it again, under token {second}"
    ));
    must(second > first, "the token did not rise")
}

/// What a process with the clock of this node reads.
fn seconds_off(stage: &Stage, node: u64) -> Result<i64, StoryFailure> {
    let mut date = Command::new("date");
    stage.clocks.apply(node, date.arg("+%s"));
    let seen: i64 = String::from_utf8_lossy(&date.output()?.stdout).trim().parse()?;
    Ok(seen - i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs())?)
}
