//! The account of one story, in lines with the time since the curtain rose.

use std::fmt;
use std::time::{Duration, Instant};

use crate::failure::StoryFailure;

#[derive(Debug)]
pub(crate) struct Transcript {
    title: String,
    began: Instant,
    /// Told out of order here and there.
    lines: Vec<(Instant, String)>,
}

impl Transcript {
    pub(crate) fn begin(title: String) -> Transcript {
        Transcript { title, began: Instant::now(), lines: Vec::new() }
    }

    /// The cluster stands; the story's own time begins.
    pub(crate) fn restart_clock(&mut self) {
        self.began = Instant::now();
    }

    pub(crate) fn note(&mut self, words: impl AsRef<str>) {
        self.note_at(Instant::now(), words);
    }

    /// Of something that happened a while ago.
    pub(crate) fn note_at(&mut self, at: Instant, words: impl AsRef<str>) {
        let seconds = at.saturating_duration_since(self.began).as_secs_f64();
        self.lines.push((at, format!("{seconds:>7.2} s  {}", words.as_ref())));
    }

    pub(crate) fn end(&mut self, ending: &Result<(), StoryFailure>) {
        let words = match ending {
            Ok(()) => "it held.".to_owned(),
            Err(failure) => failure.to_string().to_uppercase(),
        };
        self.lines.sort_by_key(|(at, _)| *at);
        self.lines.push((Instant::now(), format!("           {words}")));
    }
}

impl fmt::Display for Transcript {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.title)?;
        self.lines.iter().try_for_each(|(_, line)| writeln!(f, "{line}"))
    }
}

/// As short as it is precise enough.
pub(crate) fn span(duration: Duration) -> String {
    match duration.as_millis() {
        0..10 => format!("{:.1} ms", duration.as_secs_f64() * 1_000.0),
        10..1_000 => format!("{} ms", duration.as_millis()),
        _ => format!("{:.2} s", duration.as_secs_f64()),
    }
}
