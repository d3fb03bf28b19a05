//! The stories: what goes wrong with locks, each played on a cluster of its own and checked for its ending.
//!
//! One file per story in `stories/`; `docs/stories` has a page for each. A story that ends in another way than it
//! is told makes the program fail. Every process that was started is stopped at the end, also when a
//! story fails or is interrupted.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command talks to its terminal")]

mod account;
mod failure;
mod plain_session;
mod stage;
mod stories;
mod story;
mod transcript;
mod wait_until;
mod worker;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;
use tokio::task::{JoinSet, LocalSet};

use crate::failure::StoryFailure;
use crate::stage::Stage;
use crate::stories::ALL;
use crate::story::Story;
use crate::transcript::{Transcript, span};

/// No story takes as long.
const STORY_PATIENCE: Duration = Duration::from_secs(60);

/// Plays what goes wrong with locks on a real cluster, and checks how it ends.
#[derive(Debug, Parser)]
struct Arguments {
    /// The `holdfast` binary to run.
    #[arg(long, default_value = "holdfast")]
    holdfast: PathBuf,
    /// Play this one; may be given several times.
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Name the stories, and play none.
    #[arg(long)]
    list: bool,
    /// How many at a time: most of them wait most of the time.
    #[arg(long, value_name = "N", default_value_t = 3)]
    jobs: usize,
    #[command(subcommand)]
    part: Option<Part>,
}

#[derive(Debug, Subcommand)]
enum Part {
    /// A process that holds a lock, for the stories that stop or kill it.
    #[command(hide = true)]
    Worker(worker::Arguments),
}

/// How a story went.
struct Played {
    story: &'static Story,
    ending: Result<(), StoryFailure>,
    took: Duration,
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(Part::Worker(worker)) = arguments.part {
        return worker::run(worker).await;
    }
    if arguments.list {
        for story in ALL {
            println!("{:<16} {}", story.name, story.title);
        }
        return ExitCode::SUCCESS;
    }
    let is_unknown = |name: &&String| !ALL.iter().any(|story| story.name == **name);
    if let Some(unknown) = arguments.only.iter().find(is_unknown) {
        eprintln!("stories: there is no story `{unknown}`; --list names them");
        return ExitCode::from(64);
    }
    match LocalSet::new().run_until(play_all(&arguments)).await {
        Ok(played) => conclude(played),
        Err(words) => {
            eprintln!("stories: {words}");
            ExitCode::FAILURE
        }
    }
}

/// Dropping the tasks stops the processes of their stories.
async fn play_all(arguments: &Arguments) -> Result<Vec<Played>, String> {
    let listen = |kind| signal(kind).map_err(|error| format!("cannot listen for signals: {error}"));
    let mut interrupted = listen(SignalKind::interrupt())?;
    let mut terminated = listen(SignalKind::terminate())?;
    let chosen = |story: &&Story| {
        arguments.only.is_empty() || arguments.only.iter().any(|name| name == story.name)
    };
    let turns = Arc::new(Semaphore::new(arguments.jobs.max(1)));
    let mut playing = JoinSet::new();
    for story in ALL.iter().filter(chosen) {
        let (turns, holdfast) = (Arc::clone(&turns), arguments.holdfast.clone());
        playing.spawn_local(async move {
            let _turn = turns.acquire_owned().await;
            play(story, &holdfast).await
        });
    }
    let mut played = Vec::new();
    loop {
        tokio::select! {
            ended = playing.join_next() => match ended {
                Some(Ok(one)) => played.push(one),
                Some(Err(error)) => return Err(format!("a story broke off: {error}")),
                None => return Ok(played),
            },
            _ = interrupted.recv() => return Err("interrupted".to_owned()),
            _ = terminated.recv() => return Err("interrupted".to_owned()),
        }
    }
}

async fn play(story: &'static Story, holdfast: &Path) -> Played {
    let started = Instant::now();
    let mut transcript = Transcript::begin(story.full_title());
    let ending = async {
        let mut stage = Stage::set(holdfast, story.nodes).await?;
        transcript.restart_clock();
        (story.play)(&mut stage, &mut transcript).await
    };
    let ending = tokio::time::timeout(STORY_PATIENCE, ending).await.unwrap_or_else(|_| {
        Err(StoryFailure::Aborted(format!("it had not ended after {STORY_PATIENCE:?}")))
    });
    transcript.end(&ending);
    // In one piece: others are played at the same time.
    println!("{transcript}");
    Played { story, ending, took: started.elapsed() }
}

fn conclude(mut played: Vec<Played>) -> ExitCode {
    played.sort_by_key(|one| ALL.iter().position(|story| story.name == one.story.name));
    println!("{:<16} {:<10} {:>8}  ABOUT", "STORY", "ENDING", "TOOK");
    for Played { story, ending, took } in &played {
        let word = match ending {
            Ok(()) => "held",
            Err(StoryFailure::Unsupported(_)) => "NOT PLAYED",
            Err(_) => "FAILED",
        };
        println!("{:<16} {word:<10} {:>8}  {}", story.name, span(*took), story.title);
    }
    let mut failed = 0;
    for Played { story, ending, .. } in &played {
        match ending {
            Ok(()) => {}
            Err(StoryFailure::Unsupported(why)) => {
                eprintln!("stories: WARNING: {} was NOT PLAYED: {why}", story.name);
            }
            Err(failure) => {
                failed += 1;
                eprintln!("stories: {} failed: {failure}", story.name);
            }
        }
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_story_has_a_page_that_tells_of_the_others_too() {
        let pages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/stories");
        let index = std::fs::read_to_string(pages.join("README.md")).unwrap();
        for story in ALL {
            let page = format!("{}.md", story.name);
            assert!(index.contains(&format!("({page})")), "{page} is not in the index");
            let text = std::fs::read_to_string(pages.join(&page)).unwrap();
            for system in ["Redis", "Redlock", "etcd", "ZooKeeper"] {
                assert!(text.contains(&format!("**{system}")), "{page} leaves {system} out");
            }
            let command = format!("cargo xtask stories --only {}", story.name);
            assert!(text.contains(&command), "{page} does not say how to play it");
        }
    }

    #[test]
    fn no_two_stories_have_one_name() {
        let mut names: Vec<_> = ALL.iter().map(|story| story.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ALL.len());
    }
}
