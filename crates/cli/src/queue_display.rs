//! What somebody sees who waits for a lock: a line that moves, with the place in the queue and who is in the
//! way. On a terminal only; a program hears the place through `--status-fd`.

use std::convert::Infallible;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use holdfast_client::unary::Unary;
use holdfast_proto::v1;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::duration::in_words;
use crate::obstacle;
use crate::status::OwnerInfo;
use crate::status_fd::StatusEvents;
use crate::text::on_one_line;
use crate::tier::TierArg;

const FRAMES: [char; 10] = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];
const FRAME_TIME: Duration = Duration::from_millis(100);
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Of several names, so many are looked at.
const NAMES_MAX: usize = 8;
/// Somebody who gets the lock at once has nothing to read.
const QUIET_TIME: Duration = Duration::from_millis(300);

/// Shows it until it is dropped; never returns.
pub(crate) async fn show(
    names: &[String],
    tier: TierArg,
    calls: &Unary,
    status_events: &StatusEvents,
    is_quiet: bool,
) -> Infallible {
    let on_terminal = !is_quiet
        && io::stderr().is_terminal()
        && std::env::var_os("TERM").is_none_or(|kind| kind != "dumb");
    if !on_terminal && !status_events.has_listener() {
        return std::future::pending().await;
    }
    tokio::time::sleep(QUIET_TIME).await;
    let since = Instant::now() - QUIET_TIME;
    let mut line = on_terminal.then(Line::new);
    let calls = calls.clone().timeout(LOOK_INTERVAL);
    let mut frames = interval(FRAME_TIME);
    frames.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut seen = Seen::default();
    loop {
        let look = look(names, tier, &calls);
        tokio::pin!(look);
        let next_look = Instant::now() + LOOK_INTERVAL;
        let mut looked = false;
        while Instant::now() < next_look || !looked {
            tokio::select! {
                now_seen = &mut look, if !looked => {
                    looked = true;
                    if let Some(position) = now_seen.position.filter(|_| now_seen.position != seen.position) {
                        status_events.waiting(position);
                    }
                    // If nobody answered, what was seen before is better than nothing.
                    if now_seen.position.is_some() {
                        seen = now_seen;
                    }
                }
                _ = frames.tick() => {
                    if let Some(line) = &mut line {
                        line.draw(|room| seen.words(names, since.elapsed(), room));
                    }
                }
            }
        }
    }
}

/// What the last look has shown.
#[derive(Debug, Default, PartialEq, Eq)]
struct Seen {
    /// In the longest queue of those in which we stand.
    position: Option<u64>,
    /// The lock whose queue that is, and who or what is in the way.
    name: String,
    obstacle: String,
    /// In few words: the first holder.
    holder: String,
}

impl Seen {
    /// All of it if there is room, else so that the holder can still be read: names are long, and can be looked up.
    fn words(&self, names: &[String], waited: Duration, room: usize) -> String {
        let waited = in_words(waited.as_secs().saturating_mul(1_000));
        let Some(position) = self.position else {
            return format!("waiting for {} since {waited}", names.join(","));
        };
        let place =
            format!("waiting for {} since {waited}, place {position} in line", names.join(","));
        let obstacle = match self.obstacle.as_str() {
            "" => String::new(),
            obstacle => format!("; {} {obstacle}", self.name),
        };
        if place.chars().count() + obstacle.chars().count() <= room || self.holder.is_empty() {
            return place + &obstacle;
        }
        let before = format!("place {position} for {waited}: ");
        let between = " is held by ";
        let left = room.saturating_sub(before.len() + between.len());
        // The holder may have two thirds, and what the name leaves.
        let name_room = (left / 3).max(left.saturating_sub(self.holder.chars().count()));
        let name = elided(&self.name, name_room);
        let holder = elided(&self.holder, left.saturating_sub(name.chars().count()));
        format!("{before}{name}{between}{holder}")
    }
}

async fn look(names: &[String], tier: TierArg, calls: &Unary) -> Seen {
    let mut seen = Seen::default();
    for name in names.iter().take(NAMES_MAX) {
        let Ok(status) = calls.status(name).await else { continue };
        let status = tier.part_of(status);
        if let Some(position) = own_position(&status).filter(|own| Some(*own) > seen.position) {
            let obstacle = obstacle::of(&status).into_iter().next();
            let holder = status.holders.first().and_then(|holder| holder.owner.clone());
            seen = Seen {
                position: Some(position),
                name: on_one_line(name),
                obstacle: obstacle.map(|it| on_one_line(&it.words)).unwrap_or_default(),
                holder: holder
                    .map(|owner| on_one_line(&OwnerInfo::from(Some(owner)).in_words()))
                    .unwrap_or_default(),
            };
        }
    }
    seen
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

/// Only one `holdfast` runs under this host and process id, and it waits for one thing.
fn own_position(status: &v1::StatusResponse) -> Option<u64> {
    let host = holdfast_client::host_name();
    let is_us = |owner: &v1::Owner| owner.host == host && owner.pid == std::process::id();
    let ours = status.waiters.iter().find(|waiter| waiter.owner.as_ref().is_some_and(is_us));
    ours.map(|waiter| waiter.position)
}

/// A line of the terminal that is written anew again and again, and gone at the end.
struct Line {
    frame: usize,
}

impl Line {
    fn new() -> Line {
        Line { frame: 0 }
    }

    fn draw(&mut self, words: impl Fn(usize) -> String) {
        self.frame = (self.frame + 1) % FRAMES.len();
        let width = crossterm::terminal::size().map_or(0, |(columns, _)| usize::from(columns));
        let width = if width == 0 { 80 } else { width };
        // One less than there are columns, so that the terminal does not begin another line.
        let room = width.saturating_sub(3);
        let words: String = words(room).chars().take(room).collect();
        let _ = write!(io::stderr(), "\r{} {words}\x1b[K", FRAMES[self.frame]);
        let _ = io::stderr().flush();
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let _ = write!(io::stderr(), "\r\x1b[K");
        let _ = io::stderr().flush();
    }
}

#[cfg(test)]
mod tests {
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
        let seen = seen("a", "is held by x", "x");
        let words = seen.words(&["a".to_owned()], Duration::from_secs(61), 77);
        assert_eq!(words, "waiting for a since 1m01s, place 2 in line; a is held by x");
    }

    fn seen(name: &str, obstacle: &str, holder: &str) -> Seen {
        let (name, obstacle, holder) = (name.to_owned(), obstacle.to_owned(), holder.to_owned());
        Seen { position: Some(2), name, obstacle, holder }
    }

    #[test]
    fn on_80_columns_the_holder_can_be_read_however_long_the_name_is() {
        let holder = "nightly-batch@build-host-17.example.org:21346";
        for length in [20, 60, 200] {
            let name = format!("jobs/{}/end", "x".repeat(length));
            let obstacle =
                format!("is held by {holder} under token 42 for 3m12s, because: month end");
            let words = seen(&name, &obstacle, holder).words(
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
        let words = seen("deploy", &format!("is held by {long}"), &long).words(
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
