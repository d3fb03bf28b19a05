//! The holder crashes in the middle of its work, and the next one goes on where it ended.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use holdfast_fence::in_process::{CheckError, HighWaterMarks};
use holdfast_fence::{Accepts, admit};

use crate::failure::{StoryFailure, must};
use crate::stage::Stage;
use crate::story::Story;
use crate::transcript::{Transcript, span};
use crate::worker::Worker;

pub(crate) const STORY: Story = Story {
    name: "crash-mid-work",
    title: "a crash in mid-work, and the next holder resumes",
    nodes: 3,
    play: |stage, transcript| Box::pin(play(stage, transcript)),
};

const TTL: Duration = Duration::from_secs(2);
const STEPS: u32 = 5;
const WAGE: i64 = 1_000;

/// What is paid, and how far the work is: together with the fence's mark.
#[derive(Debug)]
struct Payroll {
    marks: HighWaterMarks,
    /// By an idempotency key: what is paid a second time under one key is paid once.
    paid: BTreeMap<String, i64>,
    done: BTreeSet<u32>,
}

impl Payroll {
    /// `pay N` or `done N`.
    fn write(&mut self, fence: &str, what: &str) -> Result<(), CheckError> {
        let claim = admit(fence, "payroll", Accepts::Linearizable)?;
        let Payroll { marks, paid, done } = self;
        marks.write(&claim, || match what.split_once(' ') {
            Some(("pay", step)) => {
                paid.entry(format!("november/{step}")).or_insert(WAGE);
            }
            Some(("done", step)) => done.extend(step.parse::<u32>()),
            _ => {}
        })
    }

    fn next_step(&self, fence: &str) -> Result<u32, CheckError> {
        self.marks.check(&admit(fence, "payroll", Accepts::Linearizable)?)?;
        Ok((1..=STEPS).find(|step| !self.done.contains(step)).unwrap_or(STEPS + 1))
    }
}

async fn play(stage: &mut Stage, transcript: &mut Transcript) -> Result<(), StoryFailure> {
    let marks = HighWaterMarks::new(1);
    let mut payroll = Payroll { marks, paid: BTreeMap::new(), done: BTreeSet::new() };
    let mut a = Worker::start(stage, "payroll", TTL)?;
    let first = a.holds().await?;
    transcript.note(format!(
        "A holds payroll under token {first}, lease 2 s: {STEPS} wages of {WAGE} are to be paid"
    ));
    for what in ["pay 1", "done 1", "pay 2", "done 2", "pay 3"] {
        must(a.ask("check").await? == "checked", "A lost its lock")?;
        a.note(&format!("write {what}")).await?;
        let (fence, what) = a.hear_write().await?;
        payroll.write(&fence, &what)?;
    }
    a.kill().await?;
    let killed = Instant::now();
    transcript.note("A pays 1, 2 and 3, and is killed with -9 before it can note that 3 is done");

    let client = stage.client("B", Duration::from_secs(10)).await?;
    let guard = stage.queue_up(&client, "payroll").await?.await??;
    let (second, fence) = (guard.token()?, guard.fence()?);
    transcript.note(format!(
        "B holds payroll {} after the crash, under token {second}",
        span(killed.elapsed())
    ));
    let resumed = payroll.next_step(&fence)?;
    transcript.note(format!(
        "B shows its token, reads how far the work is, and goes on with step {resumed}"
    ));
    for step in resumed..=STEPS {
        payroll.write(&guard.fence()?, &format!("pay {step}"))?;
        payroll.write(&guard.fence()?, &format!("done {step}"))?;
    }
    guard.release().await?;
    let total: i64 = payroll.paid.values().sum();
    transcript.note(format!(
        "step {resumed} was paid by both, under one key: {} payments, {total} in all",
        payroll.paid.len()
    ));
    must(second > first, "the token did not rise")?;
    must(resumed == 3, format!("B went on with step {resumed}"))?;
    must(total == i64::from(STEPS) * WAGE, format!("{total} was paid"))?;
    must(payroll.done.len() == STEPS as usize, "some step was not done")
}
