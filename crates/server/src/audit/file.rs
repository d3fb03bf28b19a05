//! The file under the audit: appended to, rotated by size, and taken up again after a restart.
//!
//! `audit.jsonl` is the one that is written; `audit.jsonl.1` is the one before, and so on.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use holdfast_replica::GroupId;

use super::AuditSettings;
use super::last_positions::{LastPositions, MARK_EVERY, Positions, whole_length};
use super::line;
use crate::events::Position;
use crate::shard::unix_ms;

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
    groups: u32,
    file: File,
    /// Of whole lines in the file.
    length: u64,
    /// Of the line with which a rotation began the file; 0 if there is none.
    head: u64,
    /// How much was written since the positions of the groups were.
    since_positions: u64,
    /// Where the groups were when the file was begun, or opened.
    known: Positions,
    /// Lines that are yet to be written.
    waiting: Vec<u8>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Written {
    pub(super) bytes: u64,
    pub(super) rotations: u64,
}

impl AuditFile {
    /// Of a node with so many groups. Also tells of each group what the last line about it was about.
    pub(crate) fn open(
        settings: &AuditSettings,
        groups: u32,
    ) -> Result<(AuditFile, Positions), AuditFileError> {
        let path = settings.file.clone();
        let wrong = |source| AuditFileError { path: path.clone(), source };
        let mut file = open(&path).map_err(wrong)?;
        let length = whole_length(&mut file).map_err(wrong)?;
        // A line that a crash cut off is written again.
        file.set_len(length).map_err(wrong)?;
        let mut last = LastPositions::new(groups);
        last.look_through(&mut file, length).map_err(wrong)?;
        if !last.is_complete()
            && let Ok(mut before) = File::open(numbered(&path, 1))
            && let Ok(length) = whole_length(&mut before)
            && let Err(error) = last.look_through(&mut before, length)
        {
            tracing::warn!(%error, "the audit file before the last one cannot be read");
        }
        let (bytes_max, kept, known) = (settings.bytes_max, settings.kept, last.found());
        let file = AuditFile {
            path,
            bytes_max,
            kept,
            groups,
            file,
            length,
            head: 0,
            // How long ago it was is not known.
            since_positions: MARK_EVERY,
            known: known.clone(),
            waiting: Vec::new(),
        };
        Ok((file, known))
    }

    /// Where lines are put that are to be written.
    pub(crate) fn lines(&mut self) -> &mut Vec<u8> {
        &mut self.waiting
    }

    /// To be called when all lines up to these positions have been put. With several groups the positions have a line
    /// now and then, so that they are found after a restart.
    pub(super) fn put_positions(&mut self, positions: impl FnOnce() -> Positions) {
        if self.groups > 1 && self.is_waiting() && self.since_positions >= MARK_EVERY {
            self.since_positions = 0;
            self.waiting.extend_from_slice(&positions_line(&positions()));
        }
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
            if fits == 0 && self.length > self.head {
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
            self.since_positions += fits as u64;
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
        let positions = self.positions_at_end()?;
        if self.kept == 0 {
            self.file.set_len(0)?;
            self.begin(positions);
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
        self.begin(positions);
        Ok(())
    }

    /// Of the groups, as far as they are in the file. What waits can be further.
    fn positions_at_end(&mut self) -> io::Result<Positions> {
        if self.groups == 1 {
            return Ok(Positions::new());
        }
        let mut last = LastPositions::new(self.groups);
        last.look_through(&mut self.file, self.length)?;
        let mut positions = self.known.clone();
        positions.extend(last.found());
        Ok(positions)
    }

    /// The file is empty.
    fn begin(&mut self, positions: Positions) {
        (self.length, self.head) = (0, 0);
        if self.groups > 1 {
            let line = positions_line(&positions);
            self.head = line.len() as u64;
            self.since_positions = 0;
            self.waiting.splice(..0, line);
        }
        self.known = positions;
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

fn positions_line(positions: &Positions) -> Vec<u8> {
    let root = positions.get(&GroupId::FIRST).copied();
    line::positions(positions, root.unwrap_or(Position::start_of(GroupId::FIRST)), unix_ms())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn settings(dir: &Path, bytes_max: u64, kept: u64) -> AuditSettings {
        AuditSettings { file: dir.join("audit.jsonl"), bytes_max, kept }
    }

    fn line(index: u64) -> Vec<u8> {
        format!("{{\"event\":\"granted\",\"index\":{index},\"number\":0}}\n").into_bytes()
    }

    fn values(path: &Path) -> Vec<Value> {
        let text = fs::read_to_string(path).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn indexes(path: &Path) -> Vec<u64> {
        values(path).iter().map(|line| line["index"].as_u64().unwrap()).collect()
    }

    fn line_of(group: u32, event: &str, index: u64) -> Vec<u8> {
        let line = json!({"event": event, "group": group, "index": index, "number": 0});
        format!("{line}\n").into_bytes()
    }

    fn at(positions: &Positions) -> Vec<(u32, u64)> {
        positions.iter().map(|(group, at)| (group.0, at.index)).collect()
    }

    #[test]
    fn files_are_rotated_at_whole_lines_and_the_oldest_goes() {
        let dir = tempfile::tempdir().unwrap();
        let bytes_max = 2 * line(1).len() as u64 + 1;
        let (mut file, last) = AuditFile::open(&settings(dir.path(), bytes_max, 2), 1).unwrap();
        assert_eq!(last, Positions::new());
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
        let (mut file, _) = AuditFile::open(&settings(dir.path(), 1, 3), 1).unwrap();
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
        let (mut file, _) = AuditFile::open(&settings(dir.path(), 4, 1), 1).unwrap();
        file.lines().extend_from_slice(&line(1));
        file.lines().extend_from_slice(&line(2));
        file.write().unwrap();
        assert_eq!(indexes(&dir.path().join("audit.jsonl")).last(), Some(&2));
    }

    #[test]
    fn an_audit_file_continues_after_the_last_whole_line_even_of_an_older_file() {
        let dir = tempfile::tempdir().unwrap();
        let settings = settings(dir.path(), 1_000, 2);
        let (mut file, _) = AuditFile::open(&settings, 1).unwrap();
        file.lines().extend_from_slice(&line(5));
        file.lines().extend_from_slice(b"{\"event\":\"leadership\",\"index\":9,\"number\":0}\n");
        file.lines().extend_from_slice(b"{\"event\":\"granted\",\"ind");
        file.file.write_all(&file.waiting).unwrap();
        drop(file);
        let (mut file, last) = AuditFile::open(&settings, 1).unwrap();
        assert_eq!(at(&last), [(1, 5)]);
        file.lines().extend_from_slice(&line(6));
        file.write().unwrap();
        assert_eq!(indexes(&settings.file), [5, 9, 6]);
        file.rotate().unwrap();
        drop(file);
        assert_eq!(at(&AuditFile::open(&settings, 1).unwrap().1), [(1, 6)]);
    }
    #[test]
    fn the_last_line_of_a_group_is_found_and_lines_of_others_do_not_move_it() {
        let dir = tempfile::tempdir().unwrap();
        let settings = settings(dir.path(), 1 << 30, 1);
        let (mut file, _) = AuditFile::open(&settings, 3).unwrap();
        file.lines().extend_from_slice(&line_of(2, "granted", 5));
        // More than one piece of the file, and no line with the positions.
        let many = MARK_EVERY * 3 / line_of(1, "granted", 100_000).len() as u64;
        for index in 100_000..100_000 + many {
            file.lines().extend_from_slice(&line_of(1, "granted", index));
        }
        // Those are near an event of their group that has no line yet.
        for event in ["leadership", "gap"] {
            file.lines().extend_from_slice(&line_of(2, event, 9));
        }
        file.lines().extend_from_slice(&line_of(7, "granted", 9));
        file.write().unwrap();
        drop(file);
        let (_, last) = AuditFile::open(&settings, 3).unwrap();
        assert_eq!(at(&last), [(1, 100_000 + many - 1), (2, 5)]);
    }

    #[test]
    fn a_rotation_forgets_no_group_and_goes_ahead_of_none() {
        for kept in [0, 1, 30] {
            let dir = tempfile::tempdir().unwrap();
            let settings = settings(dir.path(), 500, kept);
            let (mut file, _) = AuditFile::open(&settings, 3).unwrap();
            file.lines().extend_from_slice(&line_of(2, "granted", 5));
            (1..=40)
                .for_each(|index| file.lines().extend_from_slice(&line_of(1, "granted", index)));
            // Those of the last line, while all of them still wait.
            let [root, second] = [(1, 40), (2, 5)].map(|(group, index)| {
                let group = GroupId(group);
                (group, Position { group, index, number: 0 })
            });
            file.put_positions(|| Positions::from([root, second]));
            file.lines().extend_from_slice(&line_of(1, "granted", 41));
            assert!(file.write().unwrap().rotations >= 5);
            drop(file);
            let (_, last) = AuditFile::open(&settings, 3).unwrap();
            assert_eq!(at(&last), [(1, 41), (2, 5)], "{kept} files are kept");
            let mut before = 0;
            for number in (0..=kept).rev() {
                let path = if number == 0 {
                    settings.file.clone()
                } else {
                    numbered(&settings.file, number)
                };
                for line in values(&path) {
                    if line["event"] != line::POSITIONS {
                        before = line["index"].as_u64().unwrap();
                    } else if before > 0 {
                        let positions = json!([
                            {"group": 1, "index": before, "number": 0},
                            {"group": 2, "index": 5, "number": 0}
                        ]);
                        assert_eq!(line["positions"], positions, "a line is skipped or repeated");
                    }
                }
            }
        }
    }

    #[test]
    fn a_file_that_is_smaller_than_the_positions_is_written_all_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let settings = settings(dir.path(), 1, 1);
        let (mut file, _) = AuditFile::open(&settings, 2).unwrap();
        for index in 1..=3 {
            file.lines().extend_from_slice(&line_of(2, "granted", index));
            file.write().unwrap();
        }
        drop(file);
        assert_eq!(at(&AuditFile::open(&settings, 2).unwrap().1), [(2, 3)]);
        // A crash took the lines of the newest file, even the first.
        fs::write(&settings.file, "{\"event\":\"posi").unwrap();
        assert_eq!(at(&AuditFile::open(&settings, 2).unwrap().1), [(2, 2)]);
    }
}
