//! Tells the story: line by line, at a terminal with time to read and a lease that can be seen running out.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use crate::output::line_to_stdout;

const TIME_TO_READ: Duration = Duration::from_millis(1_000);
const FRAME: Duration = Duration::from_millis(60);
const BAR: usize = 40;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// Colours, a bar that moves, and time to read.
    Animated {
        paced: bool,
    },
    Plain,
    /// Only the data at the end.
    Silent,
}

impl Style {
    pub(super) fn of(as_json: bool, plain: bool, fast: bool) -> Style {
        let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let is_dumb = std::env::var_os("TERM").is_some_and(|kind| kind == "dumb");
        if as_json {
            Style::Silent
        } else if plain || set("NO_COLOR") || is_dumb || !io::stdout().is_terminal() {
            Style::Plain
        } else {
            Style::Animated { paced: !fast }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tone {
    Even,
    Good,
    Bad,
    Odd,
}

impl Tone {
    fn colour(self) -> &'static str {
        match self {
            Tone::Even => "",
            Tone::Good => "\x1b[32m",
            Tone::Bad => "\x1b[1;31m",
            Tone::Odd => "\x1b[33m",
        }
    }
}

#[derive(Debug)]
pub(super) struct Narrator {
    style: Style,
    began: Instant,
}

impl Narrator {
    pub(super) fn new(style: Style) -> Narrator {
        Narrator { style, began: Instant::now() }
    }

    pub(super) async fn heading(&mut self, words: &str) {
        match self.style {
            Style::Silent => {}
            Style::Plain => self.tell(&format!("\n{words}")),
            Style::Animated { .. } => self.tell(&format!("\n\x1b[1m{words}\x1b[0m")),
        }
        self.began = Instant::now();
        self.pause().await;
    }

    pub(super) async fn say(&mut self, who: &str, words: &str) {
        self.say_as(Tone::Even, who, words).await;
    }

    pub(super) async fn say_as(&mut self, tone: Tone, who: &str, words: &str) {
        let at = format!("{:>7.2} s", self.began.elapsed().as_secs_f64());
        self.line(tone, &at, who, words).await;
    }

    /// Of no moment in particular.
    pub(super) async fn sum_up(&mut self, what: &str, words: &str) {
        self.line(Tone::Even, "", what, words).await;
    }

    async fn line(&mut self, tone: Tone, at: &str, who: &str, words: &str) {
        let head = format!("{at:>9}  {who:<15}");
        match self.style {
            Style::Silent => {}
            Style::Plain => self.tell(&format!("{head}{words}")),
            Style::Animated { .. } => {
                self.tell(&format!("{head}{}{words}\x1b[0m", tone.colour()));
            }
        }
        self.pause().await;
    }

    /// Long enough to be seen running out.
    pub(super) fn lease(&self, fast: bool) -> Duration {
        match self.style {
            Style::Animated { paced: true } => Duration::from_secs(7),
            _ if fast => Duration::from_secs(1),
            _ => Duration::from_secs(3),
        }
    }

    /// Shows how much of a lease is left while something is awaited.
    pub(super) async fn while_lease_runs<T>(
        &mut self,
        whose: &str,
        from: Instant,
        ttl: Duration,
        awaited: impl Future<Output = T>,
    ) -> T {
        if !matches!(self.style, Style::Animated { .. }) {
            return awaited.await;
        }
        let mut awaited = std::pin::pin!(awaited);
        loop {
            draw(&bar(whose, ttl.saturating_sub(from.elapsed()), ttl));
            tokio::select! {
                done = &mut awaited => {
                    draw("");
                    return done;
                }
                () = tokio::time::sleep(FRAME) => {}
            }
        }
    }

    /// With a closed stdout the demo goes on: the exit code tells the outcome too.
    fn tell(&self, line: &str) {
        let _ = line_to_stdout(line);
    }

    async fn pause(&self) {
        if self.style == (Style::Animated { paced: true }) {
            tokio::time::sleep(TIME_TO_READ).await;
        }
    }
}

fn bar(whose: &str, left: Duration, ttl: Duration) -> String {
    let full = (BAR as f64 * left.as_secs_f64() / ttl.as_secs_f64()).round() as usize;
    let mut text = format!("           {whose:<15}[");
    // Writing to a string cannot fail.
    let _ = write!(text, "{:<BAR$}] {:.1} s left", "#".repeat(full.min(BAR)), left.as_secs_f64());
    text
}

/// Over the line that was drawn before.
fn draw(line: &str) {
    let mut stdout = io::stdout().lock();
    let _ = write!(stdout, "\r\x1b[K{line}").and_then(|()| stdout.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_runs_out_from_right_to_left() {
        let ttl = Duration::from_secs(4);
        let full = bar("A's lease", ttl, ttl);
        assert!(full.ends_with(&format!("[{}] 4.0 s left", "#".repeat(BAR))), "{full}");
        let half = bar("A's lease", ttl / 2, ttl);
        assert!(half.ends_with(&format!("[{:<BAR$}] 2.0 s left", "#".repeat(BAR / 2))), "{half}");
        assert_eq!(bar("A's lease", Duration::ZERO, ttl).len(), full.len());
    }
}
