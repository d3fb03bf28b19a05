//! Where words go: data to stdout, as a table or as JSON; our own words to stderr.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::Serialize;

use crate::exit::{Code, Problem};
use crate::global::Format;
use crate::hint;
use crate::text::visible;

const LOOK_FOR_READER_EVERY: Duration = Duration::from_millis(500);

/// Something to show to the caller: `Serialize` for programs, `to_table` for people.
pub(crate) trait Show: Serialize {
    fn to_table(&self) -> String;
}

/// Writes the data and says how to end.
pub(crate) fn show(format: Format, data: &impl Show) -> Result<ExitCode, Problem> {
    data_to_stdout(&text(format, data)?).map(|()| ExitCode::SUCCESS)
}

/// As [`show`], for data that must not get lost: a closed stdout is an error.
pub(crate) fn hand_over(format: Format, data: &impl Show) -> Result<ExitCode, Problem> {
    let text = text(format, data)?;
    write_all(&text).map(|()| ExitCode::SUCCESS).map_err(cannot_write)
}

fn text(format: Format, data: &impl Show) -> Result<String, Problem> {
    match format {
        Format::Table => Ok(visible(&hint::complete(&data.to_table())).into_owned()),
        Format::Json => serde_json::to_string_pretty(data)
            .map(|text| text + "\n")
            .map_err(|error| Problem::new(Code::Unavailable, error.to_string())),
    }
}

/// A reader that has seen enough (`| head`) is no mistake.
pub(crate) fn data_to_stdout(text: &str) -> Result<(), Problem> {
    match write_all(text) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(cannot_write(error)),
        _ => Ok(()),
    }
}

fn write_all(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush())
}

fn cannot_write(error: io::Error) -> Problem {
    Problem::new(Code::Unavailable, format!("cannot write to stdout: {error}"))
}

/// Writes one of many lines, unbuffered. False: the reader has closed the pipe.
pub(crate) fn line_to_stdout(line: &str) -> Result<bool, Problem> {
    match write_all(&format!("{line}\n")) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(cannot_write(error)),
    }
}

/// Returns when the reader of stdout has closed its pipe, though nothing was written. Never, if stdout is no pipe.
pub(crate) async fn reader_gone() {
    loop {
        tokio::time::sleep(LOOK_FOR_READER_EVERY).await;
        let stdout = io::stdout();
        let mut looked_at = [PollFd::new(stdout.as_fd(), PollFlags::empty())];
        let has_news = poll(&mut looked_at, PollTimeout::ZERO).is_ok_and(|found| found > 0);
        let gone = PollFlags::POLLERR | PollFlags::POLLHUP;
        if has_news && looked_at[0].revents().is_some_and(|news| news.intersects(gone)) {
            return;
        }
    }
}

/// A message for people, on stderr, if that is open.
pub(crate) fn message(words: &str) {
    let _ = io::stderr().lock().write_all(message_line(words).as_bytes());
}

/// A line of stderr that is ours.
pub(crate) fn message_line(words: &str) -> String {
    format!("holdfast: {}\n", visible(&hint::complete(words)))
}
