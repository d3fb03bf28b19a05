//! Where the file goes on: for each group, the position of the last line about it.
//!
//! With one group the last line about an event says so. With several, any number of lines of other groups can follow
//! it. So a line `positions` has the positions of all groups. It is the first line of each file that a rotation begins,
//! and comes again after each [`MARK_EVERY`] bytes. Who looks backwards from the end of the file stops there.
//!
//! Invariant: no position is ahead of what the files have of its group. A position that is behind costs lines that are
//! written twice, or a line `gap`. A group without a position gets a line `beginning`, unless its log is whole.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

use holdfast_replica::GroupId;
use serde::Deserialize;

use super::line::{POSITIONS, SPECIAL};
use crate::events::Position;

/// With several groups, their positions are written again after so many bytes.
pub(super) const MARK_EVERY: u64 = 1 << 20;
/// More than the longest line.
const PIECE_BYTES: u64 = 1 << 20;
/// No further back. A file that a node has written has a line `positions` much later.
const LOOK_BACK_BYTES: u64 = 256 << 20;

pub(crate) type Positions = BTreeMap<GroupId, Position>;

#[derive(Debug)]
pub(super) struct LastPositions {
    groups: u32,
    found: Positions,
    is_complete: bool,
}

#[derive(Debug, Deserialize)]
struct Line {
    event: String,
    #[serde(flatten)]
    at: At,
    #[serde(default)]
    positions: Vec<At>,
}

#[derive(Debug, Deserialize)]
struct At {
    #[serde(default = "root_group")]
    group: u32,
    index: u64,
    number: u32,
}

fn root_group() -> u32 {
    GroupId::FIRST.0
}

/// How long the file is up to the end of its last whole line.
pub(super) fn whole_length(file: &mut File) -> io::Result<u64> {
    let length = file.seek(SeekFrom::End(0))?;
    let start = length.saturating_sub(PIECE_BYTES);
    let tail = read(file, start, length)?;
    let end = tail.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    if end == 0 && start > 0 {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "its end is not made of lines"));
    }
    Ok(start + end as u64)
}

fn read(file: &mut File, start: u64, end: u64) -> io::Result<Vec<u8>> {
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    file.take(end.saturating_sub(start)).read_to_end(&mut bytes)?;
    Ok(bytes)
}

impl LastPositions {
    /// Of a node with so many groups.
    pub(super) fn new(groups: u32) -> LastPositions {
        LastPositions { groups, found: Positions::new(), is_complete: false }
    }

    /// Nothing before what was looked at can tell more.
    pub(super) fn is_complete(&self) -> bool {
        self.is_complete
    }

    pub(super) fn found(self) -> Positions {
        self.found
    }

    /// Looks through a file from the end of its whole lines backwards, after the files that follow it.
    pub(super) fn look_through(&mut self, file: &mut File, length: u64) -> io::Result<()> {
        // The end of a line whose beginning is yet to be read.
        let mut rest = Vec::new();
        let mut end = length;
        while end > 0 && !self.is_complete && length - end < LOOK_BACK_BYTES {
            let start = end.saturating_sub(PIECE_BYTES);
            let mut piece = read(file, start, end)?;
            let first_end = piece.iter().position(|byte| *byte == b'\n');
            let whole = match first_end {
                _ if start == 0 => 0,
                Some(end) => end + 1,
                // It is not made of lines.
                None => return Ok(()),
            };
            piece.append(&mut rest);
            for line in piece.get(whole..).unwrap_or_default().rsplit(|byte| *byte == b'\n') {
                self.take(line);
                if self.is_complete {
                    break;
                }
            }
            piece.truncate(whole);
            rest = piece;
            end = start;
        }
        Ok(())
    }

    fn take(&mut self, line: &[u8]) {
        let Ok(line) = serde_json::from_slice::<Line>(line) else { return };
        if line.event == POSITIONS {
            line.positions.into_iter().for_each(|at| self.insert(at));
            self.is_complete = true;
        } else if !SPECIAL.contains(&line.event.as_str()) {
            self.insert(line.at);
        }
        self.is_complete |= self.found.len() == self.groups as usize;
    }

    /// Unless a later line has told of the group.
    fn insert(&mut self, At { group, index, number }: At) {
        if (1..=self.groups).contains(&group) {
            let group = GroupId(group);
            self.found.entry(group).or_insert(Position { group, index, number });
        }
    }
}
