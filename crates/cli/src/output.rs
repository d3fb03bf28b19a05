//! Where words go: data to stdout, as a table or as JSON; our own words to stderr.

use std::borrow::Cow;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::Serialize;

use crate::exit::{Code, Problem};
use crate::global::Format;

const LOOK_FOR_READER_EVERY: Duration = Duration::from_millis(500);

/// Something to show to the caller: `Serialize` for programs, `to_table` for people.
pub(crate) trait Show: Serialize {
    fn to_table(&self) -> String;
}

/// Writes the data and says how to end.
pub(crate) fn show(format: Format, data: &impl Show) -> Result<ExitCode, Problem> {
    data_to_stdout(&text(format, data)?).map(|()| ExitCode::SUCCESS)
}

/// As [`show`], of what must not get lost: it is a mistake if nobody is there to read it.
pub(crate) fn hand_over(format: Format, data: &impl Show) -> Result<ExitCode, Problem> {
    let text = text(format, data)?;
    write_all(&text).map(|()| ExitCode::SUCCESS).map_err(cannot_write)
}

fn text(format: Format, data: &impl Show) -> Result<String, Problem> {
    match format {
        Format::Table => Ok(visible(&data.to_table()).into_owned()),
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

/// One of many lines, at once. False: whoever reads has gone, which is how an endless story usually ends.
pub(crate) fn line_to_stdout(line: &str) -> Result<bool, Problem> {
    match write_all(&format!("{line}\n")) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(cannot_write(error)),
    }
}

/// Returns when whoever reads stdout has gone, though nothing was written. Of what is no pipe that is never known.
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

/// To a person, on stderr. If that is closed there is nobody to tell.
pub(crate) fn say(words: &str) {
    let _ = io::stderr().lock().write_all(as_said(words).as_bytes());
}

/// A line of stderr that is ours.
pub(crate) fn as_said(words: &str) -> String {
    format!("holdfast: {}\n", visible(words))
}

/// With marks written out that nobody sees, or that turn round what stands behind them: names are whatever their users like.
pub(crate) fn visible(text: &str) -> Cow<'_, str> {
    if !text.contains(is_hidden) {
        return Cow::Borrowed(text);
    }
    let shown = |c: char| match c {
        c if is_hidden(c) => c.escape_unicode().to_string(),
        c => c.to_string(),
    };
    text.chars().map(shown).collect()
}

/// The same as in the dashboard, but for control characters.
fn is_hidden(c: char) -> bool {
    matches!(
        c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202f}'
        | '\u{205f}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
        | '\u{fff0}'..='\u{ffff}' | '\u{e0000}'..='\u{e0fff}'
    )
}

/// As one word for a shell, for commands that are told to people.
pub(crate) fn quoted(word: &str) -> String {
    let is_plain = |c: char| !is_hidden(c) && (c.is_alphanumeric() || "-_./:=,@%+".contains(c));
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    if word.contains(is_hidden) {
        let written = |c: char| match c {
            '\'' | '\\' => format!("\\{c}"),
            c if is_hidden(c) => format!("\\U{:08x}", u32::from(c)),
            c => c.to_string(),
        };
        return format!("$'{}'", word.chars().map(written).collect::<String>());
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// Columns as wide as their widest cell, two spaces apart, nothing at the end of a line.
pub(crate) fn table(headers: &[&str], rows: &[Vec<String>]) -> String {
    let shown = |row: &Vec<String>| row.iter().map(|cell| visible(cell).into_owned()).collect();
    let rows: Vec<Vec<String>> = rows.iter().map(shown).collect();
    let width_of = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain([headers[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..headers.len()).map(width_of).collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let padded: Vec<String> =
            cells.zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        padded.join("  ").trim_end().to_owned() + "\n"
    };
    let mut text = line(&mut headers.iter().copied());
    for row in &rows {
        text += &line(&mut row.iter().map(String::as_str));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_only_where_a_shell_would_take_them_apart() {
        assert_eq!(quoted("billing/eu:1"), "billing/eu:1");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
        assert_eq!(quoted("it's\u{202e}x"), r"$'it\'s\U0000202ex'");
        assert_eq!(quoted("a\u{3164}"), r"$'a\U00003164'", "though it is a letter");
    }

    #[test]
    fn marks_that_nobody_sees_are_written_out() {
        assert_eq!(visible("evil\u{202e}txt\n"), "evil\\u{202e}txt\n");
        assert_eq!(visible("a\u{200b}b\u{e0041}"), "a\\u{200b}b\\u{e0041}");
        for plain in ["wallet/é", "日本", "a b\tc", "العربية", "✓"] {
            assert_eq!(visible(plain), plain);
        }
        let rows = [vec!["a\u{202e}".to_owned(), "x".to_owned()]];
        assert_eq!(table(&["NAME", "B"], &rows), "NAME       B\na\\u{202e}  x\n");
    }

    #[test]
    fn columns_are_aligned_and_lines_have_no_trailing_spaces() {
        let rows = [vec!["wallet".to_owned(), "é".to_owned()], vec!["a".to_owned(), String::new()]];
        assert_eq!(table(&["NAME", "HOST"], &rows), "NAME    HOST\nwallet  é\na\n");
    }
}
