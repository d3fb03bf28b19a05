//! `holdfast top`: the cluster at work, as it works.

mod draw;
mod gather;
mod probe;
mod rates;
mod view;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use holdfast_client::unary::{CallError, Unary, Watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use crate::exit::{Code, Problem};
use crate::global::{Format, Global};
use crate::live::board::Millis;
use crate::live::drawing::Palette;
use crate::live::screen::{Key, Screen};
use crate::name;
use crate::one_shot;
use crate::output;
use crate::stop_signal::StopSignal;
use gather::Gathered;

const FRAME_TIME: Duration = Duration::from_millis(250);

/// Shows the busiest locks, the longest queues, sessions, nodes, and latencies.
///
/// On a terminal it fills the screen and updates it; q quits. Otherwise, or with --output json, it counts for one
/// interval, prints the result, and ends. Grants are counted over the last ten seconds. The command only reads. It
/// times what a node knows by itself, and linearizable reads, which need a quorum.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  holdfast top
  holdfast top billing/
  holdfast top --interval 500ms --output json | jq '.queues[0]'")]
pub(crate) struct TopArgs {
    /// Only locks whose names start with this.
    #[arg(default_value = "", value_parser = name::parse_prefix)]
    prefix: String,
    /// How often to read the state of the cluster.
    #[arg(long, value_name = "D", default_value = "1s", allow_hyphen_values = true,
          value_parser = parse_interval)]
    interval: Duration,
}

fn parse_interval(text: &str) -> Result<Duration, String> {
    let allowed = Duration::from_millis(100)..=Duration::from_secs(60);
    match crate::duration::parse(text) {
        Ok(interval) if allowed.contains(&interval) => Ok(interval),
        Ok(_) => Err("must be 100ms to 1m".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

struct Clock(Instant);

impl Clock {
    fn now(&self) -> Millis {
        u64::try_from(self.0.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

pub(crate) async fn run(args: TopArgs, global: &Global) -> Result<ExitCode, Problem> {
    let calls = one_shot::calls(global)?;
    let clock = Clock(Instant::now());
    let mut gathered = Gathered::under(&args.prefix);
    let mut watch = calls.watch(&args.prefix);
    // Before the screen is taken, so that what is wrong is said where it can be read.
    gathered.take(watch.next().await?, clock.now());
    gathered.see(gather::look(calls.clone(), gathered.probe.clone(), None).await, &calls)?;
    // The first answers include the time to connect: they are not counted.
    gather::look(calls.clone(), gathered.probe.clone(), gathered.leader()).await;
    if global.output == Format::Json || !std::io::stdout().is_terminal() {
        count_once(&mut gathered, &mut watch, &calls, &clock, args.interval).await?;
        return output::show(global.output, &gathered.view(clock.now()));
    }
    // The first frame shows measured nodes.
    let look = gather::look(calls.clone(), gathered.probe.clone(), gathered.leader()).await;
    gathered.see(look, &calls)?;
    on_screen(&mut gathered, &mut watch, &calls, &clock, args.interval).await
}

async fn count_once(
    gathered: &mut Gathered,
    watch: &mut Watch,
    calls: &Unary,
    clock: &Clock,
    time: Duration,
) -> Result<(), Problem> {
    let end = Instant::now() + time;
    loop {
        tokio::select! {
            watched = watch.next() => gathered.take(watched?, clock.now()),
            () = sleep_until(end) => break,
        }
    }
    let look = gather::look(calls.clone(), gathered.probe.clone(), gathered.leader()).await;
    gathered.see(look, calls)?;
    Ok(())
}

async fn on_screen(
    gathered: &mut Gathered,
    watch: &mut Watch,
    calls: &Unary,
    clock: &Clock,
    look_interval: Duration,
) -> Result<ExitCode, Problem> {
    let palette = Palette::of_environment();
    let mut stop = StopSignal::listen()?;
    let mut screen = Screen::open()?;
    let mut frames = interval(FRAME_TIME);
    frames.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        let look = gather::look(calls.clone(), gathered.probe.clone(), gathered.leader());
        tokio::pin!(look);
        let next_look = Instant::now() + look_interval;
        let mut has_looked = false;
        while !has_looked || Instant::now() < next_look {
            tokio::select! {
                seen = &mut look, if !has_looked => {
                    has_looked = true;
                    gathered.see(seen, calls)?;
                }
                watched = watch.next() => match watched {
                    Ok(watched) => gathered.take(watched, clock.now()),
                    Err(CallError::Unavailable(unavailable)) => {
                        gathered.set_read_error(Problem::from(&unavailable).first_line().to_owned());
                    }
                    Err(error) => return Err(error.into()),
                },
                _ = frames.tick() => {
                    let view = gathered.view(clock.now());
                    let drawn = screen.draw(|frame| draw::draw(frame, &view, palette));
                    drawn.map_err(|error| Problem::new(Code::Unavailable, error.to_string()))?;
                }
                key = screen.key() => if key == Key::Quit {
                    return Ok(ExitCode::SUCCESS);
                },
                () = stop.received() => return Ok(ExitCode::SUCCESS),
            }
        }
    }
}
