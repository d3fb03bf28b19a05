//! `holdfast watch`: what is held and what happens. A table that moves on a terminal, JSON lines in a pipe.

mod lines;
mod owners;
mod picture;

pub(crate) use lines::{end_reason, kind_name};

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use holdfast_client::unary::{CallError, Watch, Watched};
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::exit::{Code, Problem};
use crate::global::{Format, Global};
use crate::live::drawing::Palette;
use crate::live::screen::{Key, Screen};
use crate::name;
use crate::one_shot;
use crate::output;
use crate::stop_signal::StopSignal;
use crate::text;
use lines::Style;
use owners::Owners;
use picture::Picture;

/// How often the table is drawn, at most.
const FRAME_TIME: Duration = Duration::from_millis(200);

/// Shows the locks under a prefix, and then every event.
///
/// On a terminal: a live table with the last events below; q quits. In a pipe, or with --output json: one JSON object
/// per line. With --lines: one line of text per lock and event.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  holdfast watch
  holdfast watch billing/
  holdfast watch --lines
  holdfast watch --changes-only | jq -c 'select(.event == \"broken\")'

The watch continues over a change of leader without a gap. Where it cannot, it prints that and starts
again with a snapshot. It is for people and dashboards: do not decide by it who holds a lock.")]
pub(crate) struct WatchArgs {
    /// Only names that start with this. Without it, all locks and sessions.
    #[arg(default_value = "", value_parser = name::parse_prefix)]
    prefix: String,
    /// Prints only events, not the locks that are held already.
    #[arg(long)]
    changes_only: bool,
    /// Prints one line of text for each lock and event, also on a terminal.
    #[arg(long)]
    lines: bool,
}

pub(crate) async fn run(args: WatchArgs, global: &Global) -> Result<ExitCode, Problem> {
    let calls = one_shot::calls(global)?;
    let mut watch = calls.watch(&args.prefix);
    let owners = Owners::new(calls);
    if args.changes_only {
        watch = watch.without_snapshot();
    }
    match (global.output, args.lines) {
        (Format::Json, _) => in_lines(watch, owners, Style::Json).await,
        (_, true) => in_lines(watch, owners, Style::Text).await,
        _ if std::io::stdout().is_terminal() => on_screen(watch, owners, &args.prefix).await,
        _ => in_lines(watch, owners, Style::Json).await,
    }
}

async fn in_lines(mut watch: Watch, mut owners: Owners, style: Style) -> Result<ExitCode, Problem> {
    let mut told_something = false;
    loop {
        let watched = tokio::select! {
            watched = next(&mut watch, told_something) => watched?,
            () = output::reader_gone() => return Ok(ExitCode::SUCCESS),
        };
        if let (Style::Text, Some(watched)) = (style, &watched) {
            owners.learn(watched).await;
        }
        let lines: Vec<String> = match watched {
            Some(Watched::Snapshot { locks, .. }) => {
                locks.iter().map(|lock| lines::held(lock, style)).collect()
            }
            Some(Watched::Events(events)) => {
                events.iter().map(|event| lines::happened(&event, &owners, style)).collect()
            }
            Some(Watched::Restarted { why }) => {
                output::message(&format!("the watch starts again with a snapshot: {why}"));
                continue;
            }
            _ => continue,
        };
        told_something = true;
        let lines = lines.join("\n");
        // Of JSON each character counts.
        let lines = if style == Style::Text { text::visible(&lines) } else { lines.into() };
        if !lines.is_empty() && !output::line_to_stdout(&lines)? {
            return Ok(ExitCode::SUCCESS);
        }
    }
}

/// None: the cluster was away for a while, and the watch goes on.
async fn next(watch: &mut Watch, told_something: bool) -> Result<Option<Watched>, Problem> {
    match watch.next().await {
        Ok(watched) => Ok(Some(watched)),
        Err(CallError::Unavailable(unavailable)) if told_something => {
            let problem = Problem::from(&unavailable);
            output::message(&format!("{}; the watch tries again", problem.first_line()));
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

async fn on_screen(
    mut watch: Watch,
    mut owners: Owners,
    prefix: &str,
) -> Result<ExitCode, Problem> {
    let start = Instant::now();
    let now = || u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
    let mut picture = Picture::new(prefix, Palette::of_environment());
    // Before the screen is taken, so that what is wrong is said where it can be read.
    let first = watch.next().await?;
    owners.learn(&first).await;
    picture.take(first, &owners, now());
    let mut stop = StopSignal::listen()?;
    let mut screen = Screen::open()?;
    let mut frames = interval(FRAME_TIME);
    frames.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        tokio::select! {
            watched = watch.next() => match watched {
                Ok(watched) => {
                    owners.learn(&watched).await;
                    picture.take(watched, &owners, now());
                }
                Err(CallError::Unavailable(unavailable)) => {
                    picture.set_read_error(Problem::from(&unavailable).first_line());
                }
                Err(error) => return Err(error.into()),
            },
            _ = frames.tick() => {
                let drawn = screen.draw(|frame| picture.draw(frame, now()));
                drawn.map_err(|error| Problem::new(Code::Unavailable, error.to_string()))?;
            }
            key = screen.key() => if key == Key::Quit {
                return Ok(ExitCode::SUCCESS);
            },
            () = stop.received() => return Ok(ExitCode::SUCCESS),
        }
    }
}
