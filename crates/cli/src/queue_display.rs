//! What a caller sees while it waits for a lock. On a terminal: a line that moves, with the place in the queue and what
//! is in the way. With `--status-fd`: the place. Everywhere: that the cluster does not answer.

use std::convert::Infallible;
use std::io::{self, IsTerminal};
use std::time::Duration;

use holdfast_client::unary::{CallError, Unary};
use holdfast_client::{Circuit, CircuitState, Client};
use holdfast_proto::v1;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use crate::duration::in_words;
use crate::exit::Problem;
use crate::nonblocking_output::NonblockingOutput;
use crate::obstacle;
use crate::output;
use crate::status::OwnerInfo;
use crate::status_fd::StatusEvents;
use crate::text::on_one_line;
use crate::tier::TierArg;

const FRAMES: [char; 10] = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];
const FRAME_TIME: Duration = Duration::from_millis(100);
/// How often the queue is read for a reader of the place.
const READ_INTERVAL: Duration = Duration::from_secs(1);
/// A node without a leader needs a second or two to say why there is none.
const READ_PATIENCE: Duration = Duration::from_millis(2_500);
/// Of several names, so many are read.
const NAMES_MAX: usize = 8;
/// A caller that gets the lock at once has nothing to read.
const QUIET_TIME: Duration = Duration::from_millis(300);

/// Shows it until it is dropped; never returns. The session's heartbeats run on the same thread, so nothing here waits for
/// a reader of stderr.
pub(crate) async fn show(
    names: &[String],
    tier: TierArg,
    client: &Client,
    calls: &Unary,
    status_events: &StatusEvents,
    is_quiet: bool,
) -> Infallible {
    if is_quiet && !status_events.has_listener() {
        return std::future::pending().await;
    }
    // A program that can start no thread waits all the same, and says nothing.
    let Ok(stderr) = NonblockingOutput::on(io::stderr()) else {
        return std::future::pending().await;
    };
    let say = |words: String| {
        if !is_quiet {
            stderr.write(output::message_line(&words));
        }
    };
    let on_terminal = !is_quiet
        && io::stderr().is_terminal()
        && std::env::var_os("TERM").is_none_or(|kind| kind != "dumb");
    let calls = calls.clone().timeout(READ_PATIENCE);
    if !on_terminal && !status_events.has_listener() {
        return warn_of_outages(names, client.circuit(), &calls, say).await;
    }
    tokio::time::sleep(QUIET_TIME).await;
    let since = Instant::now() - QUIET_TIME;
    let mut line = on_terminal.then(|| Line::on(stderr.clone()));
    let mut frames = interval(FRAME_TIME);
    frames.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut view = QueueView::default();
    loop {
        let read = read_queues(names, tier, &calls);
        tokio::pin!(read);
        let next_read = Instant::now() + READ_INTERVAL;
        let mut is_read = false;
        while Instant::now() < next_read || !is_read {
            tokio::select! {
                now = &mut read, if !is_read => {
                    is_read = true;
                    let was_answered = view.no_answer.is_none();
                    view.take(now);
                    match &view.no_answer {
                        Some(cause) if was_answered && !on_terminal => say(unanswered(names, cause)),
                        None if !was_answered && !on_terminal => say(answered_again(names)),
                        _ => {}
                    }
                    if let Some(position) = view.news() {
                        status_events.waiting(position);
                    }
                }
                _ = frames.tick(), if line.is_some() => {
                    if let Some(line) = &mut line {
                        line.draw(|room| view.words(names, since.elapsed(), room));
                    }
                }
                () = sleep_until(next_read), if is_read => {}
            }
        }
    }
}

/// For a caller to whom the queue is not shown, which is not read for it: thousands may wait. Its session tells whether the
/// cluster answers. The cluster is asked for the cause only.
async fn warn_of_outages(
    names: &[String],
    mut circuit: Circuit,
    calls: &Unary,
    say: impl Fn(String),
) -> Infallible {
    loop {
        while circuit.state() == CircuitState::Closed {
            circuit.changed().await;
        }
        let cause = match calls.freezes().await {
            Ok(_) => "the cluster does not answer the heartbeats of this session".to_owned(),
            Err(error) => on_one_line(Problem::from(error).first_line()),
        };
        // A new leader may have been elected since.
        if circuit.state() == CircuitState::Closed {
            continue;
        }
        say(unanswered(names, &cause));
        circuit.closed().await;
        say(answered_again(names));
    }
}

fn unanswered(names: &[String], cause: &str) -> String {
    format!("still waiting for {}: {cause}", names.join(","))
}

fn answered_again(names: &[String]) -> String {
    format!("the cluster answers again; waiting for {}", names.join(","))
}

/// What the caller knows of the queues in which it waits.
#[derive(Debug, Default)]
struct QueueView {
    place: Option<QueuePosition>,
    /// The position that was told last.
    told: Option<u64>,
    /// Why the last read was not answered.
    no_answer: Option<String>,
}

/// In the longest queue of those in which the caller waits.
#[derive(Debug, PartialEq, Eq)]
struct QueuePosition {
    position: u64,
    /// The lock whose queue that is, and what is in the way.
    name: String,
    obstacle: String,
    /// In few words: the first holder.
    holder: String,
}

impl QueueView {
    /// A read that was not answered leaves the place as it was known.
    fn take(&mut self, read: Result<Option<QueuePosition>, CallError>) {
        match read {
            Ok(place) => {
                self.no_answer = None;
                self.place = place.or_else(|| self.place.take());
            }
            Err(error) => {
                self.no_answer = Some(on_one_line(Problem::from(error).first_line()));
            }
        }
    }

    /// The position, if it is another one than before.
    fn news(&mut self) -> Option<u64> {
        let position = self.place.as_ref().map(|place| place.position)?;
        (self.told.replace(position) != Some(position)).then_some(position)
    }

    /// All of it if there is room, else so that the holder can still be read: names are long, and can be looked up.
    fn words(&self, names: &[String], waited: Duration, room: usize) -> String {
        let waited = in_words(waited.as_secs().saturating_mul(1_000));
        if let Some(cause) = &self.no_answer {
            return format!("waiting for {waited}: {cause}");
        }
        let Some(QueuePosition { position, name, obstacle, holder }) = &self.place else {
            return format!("waiting for {} for {waited}", names.join(","));
        };
        let place =
            format!("waiting for {} for {waited}, place {position} in line", names.join(","));
        let obstacle = match obstacle.as_str() {
            "" => String::new(),
            obstacle => format!("; {name} {obstacle}"),
        };
        if place.chars().count() + obstacle.chars().count() <= room || holder.is_empty() {
            return place + &obstacle;
        }
        let before = format!("place {position} for {waited}: ");
        let between = " is held by ";
        let left = room.saturating_sub(before.len() + between.len());
        // The holder may have two thirds, and what the name leaves.
        let name_room = (left / 3).max(left.saturating_sub(holder.chars().count()));
        let name = elided(name, name_room);
        let holder = elided(holder, left.saturating_sub(name.chars().count()));
        format!("{before}{name}{between}{holder}")
    }
}

/// None: the caller is in none of the queues yet.
async fn read_queues(
    names: &[String],
    tier: TierArg,
    calls: &Unary,
) -> Result<Option<QueuePosition>, CallError> {
    let mut longest: Option<QueuePosition> = None;
    for name in names.iter().take(NAMES_MAX) {
        let status = tier.part_of(calls.status(name).await?);
        let known = longest.as_ref().map(|place| place.position);
        let Some(position) = own_position(&status).filter(|own| Some(*own) > known) else {
            continue;
        };
        let obstacle = obstacle::of(&status).into_iter().next();
        let holder = status.holders.first().and_then(|holder| holder.owner.clone());
        longest = Some(QueuePosition {
            position,
            name: on_one_line(name),
            obstacle: obstacle.map(|it| on_one_line(&it.words)).unwrap_or_default(),
            holder: holder
                .map(|owner| on_one_line(&OwnerInfo::from(Some(owner)).in_words()))
                .unwrap_or_default(),
        });
    }
    Ok(longest)
}

/// The beginning and the end of a text, so that it fits.
fn elided(text: &str, room: usize) -> String {
    let count = text.chars().count();
    if count <= room {
        return text.to_owned();
    }
    let kept = room.saturating_sub(1);
    let start: String = text.chars().take(kept.div_ceil(2)).collect();
    let end: String = text.chars().skip(count - kept / 2).collect();
    format!("{start}…{end}")
}

/// One `holdfast` runs under this host and process id, and it makes one request.
fn own_position(status: &v1::StatusResponse) -> Option<u64> {
    let host = holdfast_client::host_name();
    let is_us = |owner: &v1::Owner| owner.host == host && owner.pid == std::process::id();
    let ours = status.waiters.iter().find(|waiter| waiter.owner.as_ref().is_some_and(is_us));
    ours.map(|waiter| waiter.position)
}

/// A line of the terminal that is drawn over and over, and removed at the end.
struct Line {
    frame: usize,
    terminal: NonblockingOutput,
}

impl Line {
    fn on(terminal: NonblockingOutput) -> Line {
        Line { frame: 0, terminal }
    }

    fn draw(&mut self, words: impl Fn(usize) -> String) {
        self.frame = (self.frame + 1) % FRAMES.len();
        let width = crossterm::terminal::size().map_or(0, |(columns, _)| usize::from(columns));
        let width = if width == 0 { 80 } else { width };
        // One less than there are columns, so that the terminal does not begin another line.
        let room = width.saturating_sub(3);
        let words: String = words(room).chars().take(room).collect();
        self.terminal.write(format!("\r{} {words}\x1b[K", FRAMES[self.frame]));
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.terminal.write("\r\x1b[K".to_owned());
    }
}

#[cfg(test)]
mod tests {
    use holdfast_client::{Unavailable, UnavailableCause};

    use super::*;

    #[test]
    fn our_own_place_is_found_among_others() {
        let waiter = |host: &str, pid, position| v1::Waiter {
            owner: Some(v1::Owner { host: host.into(), pid, ..Default::default() }),
            position,
            ..Default::default()
        };
        let (host, pid) = (holdfast_client::host_name(), std::process::id());
        let mut status = v1::StatusResponse {
            waiters: vec![waiter(&host, pid + 1, 1), waiter("elsewhere", pid, 2)],
            ..Default::default()
        };
        assert_eq!(own_position(&status), None);
        status.waiters.push(waiter(&host, pid, 3));
        assert_eq!(own_position(&status), Some(3));
    }

    #[test]
    fn the_line_tells_place_and_time_and_who_is_in_the_way() {
        let view = view("a", "is held by x", "x");
        let words = view.words(&["a".to_owned()], Duration::from_secs(61), 77);
        assert_eq!(words, "waiting for a for 1m01s, place 2 in line; a is held by x");
    }

    #[test]
    fn the_line_says_that_the_cluster_does_not_answer() {
        let mut view = view("a", "is held by x", "x");
        let no_leader = Unavailable {
            message: "b:2 knows no leader".to_owned(),
            cause: UnavailableCause::NoLeader,
            may_have_happened: false,
        };
        view.take(Err(CallError::Unavailable(no_leader)));
        let words = view.words(&["a".to_owned()], Duration::from_secs(61), 77);
        assert!(words.starts_with("waiting for 1m01s: the cluster has no leader"), "{words}");
        assert!(!words.contains("held by x"), "{words}");
        view.take(Ok(None));
        assert!(view.words(&["a".to_owned()], Duration::ZERO, 77).contains("place 2"));
    }

    fn view(name: &str, obstacle: &str, holder: &str) -> QueueView {
        let (name, obstacle, holder) = (name.to_owned(), obstacle.to_owned(), holder.to_owned());
        let place = Some(QueuePosition { position: 2, name, obstacle, holder });
        QueueView { place, ..QueueView::default() }
    }

    #[test]
    fn on_80_columns_the_holder_can_be_read_however_long_the_name_is() {
        let holder = "nightly-batch@build-host-17.example.org:21346";
        for length in [20, 60, 200] {
            let name = format!("jobs/{}/end", "x".repeat(length));
            let obstacle =
                format!("is held by {holder} under token 42 for 3m12s, because: month end");
            let words = view(&name, &obstacle, holder).words(
                std::slice::from_ref(&name),
                Duration::from_secs(61),
                77,
            );
            assert!(words.chars().count() <= 77, "{words}");
            assert!(
                words.ends_with("is held by nightly-batch@build-host-17.example.org:21346")
                    || words.contains("is held by nightly-batch@"),
                "{words}"
            );
            assert!(words.contains("jobs/") && words.contains("place 2 for 1m01s"), "{words}");
        }
        let long = "y".repeat(100);
        let words = view("deploy", &format!("is held by {long}"), &long).words(
            &["deploy".into()],
            Duration::from_secs(1),
            77,
        );
        assert!(
            words.chars().count() <= 77 && words.contains("deploy is held by yyyyyyyy"),
            "{words}"
        );
    }
}
