//! Records: what a turn says, one after another in its payload.
//!
//! ```text
//! version u8 | kind u8 | group u32 | length u32 | payload
//! ```
//!
//! The payload has a fixed layout per kind. A version or a kind that this program does not know is
//! refused, never skipped: a record that is skipped may be a vote.

use crate::{HardState, LogEntry, LogEntryRef};

const VERSION: u8 = 1;
const HEADER_BYTES: usize = 10;
const ENTRY_HEADER_BYTES: usize = 17;
const MAGIC: [u8; 8] = *b"HOLDFAST";

const SEGMENT_START: u8 = 1;
const ENTRY: u8 = 2;
const HARD_STATE: u8 = 3;
const SNAPSHOT_MARK: u8 = 4;
const LOG_RESET: u8 = 5;

/// A snapshot as the log knows it: where the state stands, not the state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SnapshotMark {
    pub(crate) index: u64,
    pub(crate) term: u64,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Record<'a> {
    /// The first record of every segment.
    SegmentStart {
        blocks: u64,
    },
    /// Cuts the group's log before this index, then extends it.
    Entry(LogEntryRef<'a>),
    HardState(HardState),
    /// A snapshot file of at least this index is durable.
    SnapshotMark(SnapshotMark),
    /// As `SnapshotMark`, and the group's log restarts after it.
    LogReset(SnapshotMark),
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RecordFault {
    Malformed(&'static str),
    UnknownVersion(u8),
    UnknownKind(u8),
}

pub(crate) fn put(out: &mut Vec<u8>, group: u32, record: &Record<'_>) {
    let (kind, length) = match record {
        Record::SegmentStart { .. } => (SEGMENT_START, MAGIC.len() + 8),
        Record::Entry(entry) => (ENTRY, ENTRY_HEADER_BYTES + entry.data.len()),
        Record::HardState(_) => (HARD_STATE, 24),
        Record::SnapshotMark(_) => (SNAPSHOT_MARK, 16),
        Record::LogReset(_) => (LOG_RESET, 16),
    };
    out.reserve(HEADER_BYTES + length);
    out.extend_from_slice(&[VERSION, kind]);
    out.extend_from_slice(&group.to_le_bytes());
    out.extend_from_slice(&(length as u32).to_le_bytes());
    match record {
        Record::SegmentStart { blocks } => {
            out.extend_from_slice(&MAGIC);
            out.extend_from_slice(&blocks.to_le_bytes());
        }
        Record::Entry(entry) => {
            out.extend_from_slice(&entry.index.to_le_bytes());
            out.extend_from_slice(&entry.term.to_le_bytes());
            out.push(entry.kind);
            out.extend_from_slice(entry.data);
        }
        Record::HardState(state) => {
            out.extend_from_slice(&state.term.to_le_bytes());
            out.extend_from_slice(&state.vote.to_le_bytes());
            out.extend_from_slice(&state.commit.to_le_bytes());
        }
        Record::SnapshotMark(mark) | Record::LogReset(mark) => {
            out.extend_from_slice(&mark.index.to_le_bytes());
            out.extend_from_slice(&mark.term.to_le_bytes());
        }
    }
}

/// Takes the first record off the front of `payload`: its group, the record, and what follows.
pub(crate) fn take(payload: &[u8]) -> Result<(u32, Record<'_>, &[u8]), RecordFault> {
    let mut rest = payload;
    let [version, kind] = take_bytes(&mut rest)?;
    if version != VERSION {
        return Err(RecordFault::UnknownVersion(version));
    }
    let group = u32::from_le_bytes(take_bytes(&mut rest)?);
    let length = u32::from_le_bytes(take_bytes(&mut rest)?) as usize;
    let Some((mut body, rest)) = rest.split_at_checked(length) else {
        return Err(RecordFault::Malformed("a record is longer than its turn"));
    };
    let record = take_body(kind, &mut body)?;
    if !body.is_empty() {
        return Err(RecordFault::Malformed("a record is longer than its kind"));
    }
    Ok((group, record, rest))
}

fn take_body<'a>(kind: u8, body: &mut &'a [u8]) -> Result<Record<'a>, RecordFault> {
    Ok(match kind {
        SEGMENT_START => {
            if take_bytes(body)? != MAGIC {
                return Err(RecordFault::Malformed("a segment starts with a wrong magic"));
            }
            Record::SegmentStart { blocks: take_u64(body)? }
        }
        ENTRY => {
            let (index, term) = (take_u64(body)?, take_u64(body)?);
            let [kind] = take_bytes(body)?;
            Record::Entry(LogEntryRef { index, term, kind, data: std::mem::take(body) })
        }
        HARD_STATE => Record::HardState(HardState {
            term: take_u64(body)?,
            vote: take_u64(body)?,
            commit: take_u64(body)?,
        }),
        SNAPSHOT_MARK => Record::SnapshotMark(take_mark(body)?),
        LOG_RESET => Record::LogReset(take_mark(body)?),
        unknown => return Err(RecordFault::UnknownKind(unknown)),
    })
}

fn take_mark(body: &mut &[u8]) -> Result<SnapshotMark, RecordFault> {
    Ok(SnapshotMark { index: take_u64(body)?, term: take_u64(body)? })
}

fn take_u64(bytes: &mut &[u8]) -> Result<u64, RecordFault> {
    Ok(u64::from_le_bytes(take_bytes(bytes)?))
}

fn take_bytes<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], RecordFault> {
    let (head, rest) =
        bytes.split_first_chunk().ok_or(RecordFault::Malformed("a record ends too early"))?;
    *bytes = rest;
    Ok(*head)
}

impl LogEntryRef<'_> {
    pub(crate) fn to_owned(self) -> LogEntry {
        let LogEntryRef { index, term, kind, data } = self;
        LogEntry { index, term, kind, data: data.to_vec() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_record_reads_back_as_it_was_written() {
        let mark = SnapshotMark { index: 4, term: 2 };
        let records = [
            Record::SegmentStart { blocks: 8 },
            Record::Entry(LogEntryRef { index: 5, term: 2, kind: 1, data: b"data" }),
            Record::HardState(HardState { term: 2, vote: 3, commit: 4 }),
            Record::SnapshotMark(mark),
            Record::LogReset(mark),
        ];
        let mut payload = Vec::new();
        for record in &records {
            put(&mut payload, 7, record);
        }
        let mut rest = payload.as_slice();
        for record in &records {
            let (group, read, after) = take(rest).unwrap();
            assert_eq!((group, &read), (7, record));
            rest = after;
        }
        assert!(rest.is_empty());
    }

    #[test]
    fn an_unknown_version_or_kind_is_refused() {
        let mut payload = Vec::new();
        put(&mut payload, 0, &Record::SnapshotMark(SnapshotMark::default()));
        let mut other_version = payload.clone();
        other_version[0] = 9;
        assert_eq!(take(&other_version), Err(RecordFault::UnknownVersion(9)));
        payload[1] = 77;
        assert_eq!(take(&payload), Err(RecordFault::UnknownKind(77)));
    }

    #[test]
    fn a_record_that_is_cut_anywhere_is_refused() {
        let mut payload = Vec::new();
        put(&mut payload, 0, &Record::HardState(HardState::default()));
        for length in 0..payload.len() {
            assert!(matches!(take(&payload[..length]), Err(RecordFault::Malformed(_))));
        }
    }
}
