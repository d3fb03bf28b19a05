//! The file under the audit: appended to, rotated by size, and taken up again after a restart.
//!
//! `audit.jsonl` is the one that is written; `audit.jsonl.1` is the one before, and so on.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::AuditSettings;
use super::line::SPECIAL;
use crate::events::Position;
use holdfast_replica::GroupId;

/// More than the longest line.
const TAIL_BYTES: u64 = 1 << 20;

/// The audit file cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("the audit file {} cannot be used: {source}", path.display())]
pub struct AuditFileError {
    path: PathBuf,
    source: io::Error,
}

#[derive(Debug)]
pub(crate) struct AuditFile {
    path: PathBuf,
    bytes_max: u64,
    kept: u64,
    file: File,
    /// Of whole lines in the file.
    length: u64,
    /// Lines that are yet to be written.
    waiting: Vec<u8>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Written {
    pub(super) bytes: u64,
    pub(super) rotations: u64,
}

#[derive(Deserialize)]
struct Where {
    event: String,
    index: u64,
    number: u32,
}

impl AuditFile {
    /// Also tells what the last line with an event was about.
    pub(crate) fn open(
        settings: &AuditSettings,
    ) -> Result<(AuditFile, Option<Position>), AuditFileError> {
        let path = settings.file.clone();
        let wrong = |source| AuditFileError { path: path.clone(), source };
        let mut file = open(&path).map_err(wrong)?;
        let (length, last) = whole_lines(&mut file).map_err(wrong)?;
        // A line that a crash cut off is written again.
        file.set_len(length).map_err(wrong)?;
        let last = match last {
            Some(last) => Some(last),
            None => File::open(numbered(&path, 1))
                .and_then(|mut before| whole_lines(&mut before))
                .map_or(None, |(_, last)| last),
        };
        let (bytes_max, kept) = (settings.bytes_max, settings.kept);
        Ok((AuditFile { path, bytes_max, kept, file, length, waiting: Vec::new() }, last))
    }

    /// Where lines are put that are to be written.
    pub(crate) fn lines(&mut self) -> &mut Vec<u8> {
        &mut self.waiting
    }

    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Writes what waits. If it fails, none of what still waits is in the file.
    pub(crate) fn write(&mut self) -> io::Result<Written> {
        let mut written = Written::default();
        while !self.waiting.is_empty() {
            let room = self.bytes_max.saturating_sub(self.length);
            let fits = self.whole_lines_within(room);
            if fits == 0 && self.length > 0 {
                self.rotate()?;
                written.rotations += 1;
                continue;
            }
            // A line that is larger than a file should be has a file of its own.
            let fits = if fits == 0 { self.whole_lines_within(u64::MAX) } else { fits };
            let lines = self.waiting.get(..fits).unwrap_or_default();
            if let Err(error) = self.file.write_all(lines) {
                self.file.set_len(self.length)?;
                return Err(error);
            }
            self.length += fits as u64;
            written.bytes += fits as u64;
            self.waiting.drain(..fits);
        }
        Ok(written)
    }

    /// How many of the waiting bytes are lines that end within the limit; without one, all of them.
    fn whole_lines_within(&self, limit: u64) -> usize {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX).min(self.waiting.len());
        let within = self.waiting.get(..limit).unwrap_or_default();
        within.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1)
    }

    fn rotate(&mut self) -> io::Result<()> {
        self.file.sync_all()?;
        if self.kept == 0 {
            self.file.set_len(0)?;
            self.length = 0;
            return Ok(());
        }
        // First, because it may fail: then no file has moved.
        let next = with_suffix(&self.path, "new");
        let file = open(&next)?;
        // A step that was done before a failure is not done again.
        if self.path.exists() {
            let is_free = |number: &u64| !numbered(&self.path, *number).exists();
            let free = (1..self.kept).find(is_free).unwrap_or(self.kept);
            for number in (1..free).rev() {
                fs::rename(numbered(&self.path, number), numbered(&self.path, number + 1))?;
            }
            fs::rename(&self.path, numbered(&self.path, 1))?;
        }
        fs::rename(&next, &self.path)?;
        self.file = file;
        self.length = 0;
        Ok(())
    }
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.read(true).append(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o640);
    options.open(path)
}

fn numbered(path: &Path, number: u64) -> PathBuf {
    with_suffix(path, &number.to_string())
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{suffix}"));
    PathBuf::from(name)
}

/// How long the file is up to the end of its last whole line, and where the last event in it was.
fn whole_lines(file: &mut File) -> io::Result<(u64, Option<Position>)> {
    let length = file.seek(SeekFrom::End(0))?;
    let start = length.saturating_sub(TAIL_BYTES);
    file.seek(SeekFrom::Start(start))?;
    let mut tail = Vec::new();
    file.read_to_end(&mut tail)?;
    let end = tail.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    if end == 0 && start > 0 {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "its end is not made of lines"));
    }
    let whole = tail.get(..end).unwrap_or_default();
    let last = whole.rsplit(|byte| *byte == b'\n').find_map(|line| {
        let line: Where = serde_json::from_slice(line).ok()?;
        let is_past = !SPECIAL.contains(&line.event.as_str());
        is_past.then_some(Position {
            group: GroupId::FIRST,
            index: line.index,
            number: line.number,
        })
    });
    Ok((start + end as u64, last))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(dir: &Path, bytes_max: u64, kept: u64) -> AuditSettings {
        AuditSettings { file: dir.join("audit.jsonl"), bytes_max, kept }
    }

    fn line(index: u64) -> Vec<u8> {
        format!("{{\"event\":\"granted\",\"index\":{index},\"number\":0}}\n").into_bytes()
    }

    fn indexes(path: &Path) -> Vec<u64> {
        let text = fs::read_to_string(path).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str::<Where>(line).unwrap().index).collect()
    }

    #[test]
    fn files_are_rotated_at_whole_lines_and_the_oldest_goes() {
        let dir = tempfile::tempdir().unwrap();
        let bytes_max = 2 * line(1).len() as u64 + 1;
        let (mut file, last) = AuditFile::open(&settings(dir.path(), bytes_max, 2)).unwrap();
        assert_eq!(last, None);
        for index in 1..=7 {
            file.lines().extend_from_slice(&line(index));
        }
        let written = file.write().unwrap();
        assert_eq!(written, Written { bytes: 7 * line(1).len() as u64, rotations: 3 });
        let path = dir.path().join("audit.jsonl");
        assert_eq!(indexes(&path), [7]);
        assert_eq!(indexes(&numbered(&path, 1)), [5, 6]);
        assert_eq!(indexes(&numbered(&path, 2)), [3, 4]);
        assert!(!numbered(&path, 3).exists());
    }

    #[test]
    fn a_rotation_that_fails_again_and_again_loses_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let (mut file, _) = AuditFile::open(&settings(dir.path(), 1, 3)).unwrap();
        let path = dir.path().join("audit.jsonl");
        for index in 1..=3 {
            file.lines().extend_from_slice(&line(index));
            file.write().unwrap();
        }
        // The next file cannot be made.
        let next = with_suffix(&path, "new");
        fs::create_dir(&next).unwrap();
        file.lines().extend_from_slice(&line(4));
        (0..5).for_each(|_| assert!(file.write().is_err()));
        assert_eq!((indexes(&path), indexes(&numbered(&path, 1))), (vec![3], vec![2]));
        fs::remove_dir(&next).unwrap();
        // The last step failed: all files have moved already.
        fs::rename(numbered(&path, 2), numbered(&path, 3)).unwrap();
        fs::rename(numbered(&path, 1), numbered(&path, 2)).unwrap();
        fs::rename(&path, numbered(&path, 1)).unwrap();
        file.write().unwrap();
        let kept = [0, 1, 2, 3].map(|number| match number {
            0 => indexes(&path),
            _ => indexes(&numbered(&path, number)),
        });
        assert_eq!(kept, [[4], [3], [2], [1]]);
    }

    #[test]
    fn a_line_larger_than_a_file_is_written_all_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let (mut file, _) = AuditFile::open(&settings(dir.path(), 4, 1)).unwrap();
        file.lines().extend_from_slice(&line(1));
        file.lines().extend_from_slice(&line(2));
        file.write().unwrap();
        assert_eq!(indexes(&dir.path().join("audit.jsonl")).last(), Some(&2));
    }

    #[test]
    fn an_audit_file_continues_after_the_last_whole_line_even_of_an_older_file() {
        let dir = tempfile::tempdir().unwrap();
        let settings = settings(dir.path(), 1_000, 2);
        let at = |index| Some(Position { group: GroupId::FIRST, index, number: 0 });
        let (mut file, _) = AuditFile::open(&settings).unwrap();
        file.lines().extend_from_slice(&line(5));
        file.lines().extend_from_slice(b"{\"event\":\"leadership\",\"index\":9,\"number\":0}\n");
        file.lines().extend_from_slice(b"{\"event\":\"granted\",\"ind");
        file.file.write_all(&file.waiting).unwrap();
        drop(file);
        let (mut file, last) = AuditFile::open(&settings).unwrap();
        assert_eq!(last, at(5));
        file.lines().extend_from_slice(&line(6));
        file.write().unwrap();
        assert_eq!(indexes(&settings.file), [5, 9, 6]);
        file.rotate().unwrap();
        drop(file);
        assert_eq!(AuditFile::open(&settings).unwrap().1, at(6));
    }
}
