//! A backup: the snapshots of all groups of a cluster, as a self-contained file.
//!
//! The file is a sequence of *parts*, one for each group, in the order of their numbers. This is a part:
//!
//! ```text
//! offset  bytes
//!      0      8  magic
//!      8      4  format version
//!     12      4  length of the fields
//!     16         the fields, see `BackupHeader`
//!             4  CRC32C of everything before
//!                the body: a snapshot, as nodes send it to each other
//! ```
//!
//! All numbers are little endian. A text is its length (`u16`) and its bytes. The fields contain the length of the body
//! and its CRC32C, so that a truncated or overlong file is refused.
//!
//! A cluster with one group has a file with one part, in format 1. The parts of several groups have format 2. Each says
//! how many there are, and which slots its group owns; [`parts`] checks that they belong together. A build that knows
//! format 1 only refuses the file by the version of its first part.

mod parts;
mod share;

use std::ops::RangeInclusive;

use holdfast_core::{LogicalTime, Slot};
use thiserror::Error;

pub use parts::{BackupPart, PartsCheck, read_parts};
pub use share::GroupShare;

use crate::id::{ClusterId, GroupId};

const MAGIC: [u8; 8] = *b"HFBACKUP";
/// Of the file of a cluster with one group.
const ONE_GROUP_VERSION: u32 = 1;
/// The newest version that this build reads: of a part of several.
const VERSION: u32 = 2;
const FIXED_BYTES: usize = 16;
/// Room for every set of slots.
const FIELDS_BYTES_MAX: usize = 16_384;
const TEXT_BYTES_MAX: usize = 256;
const CHECKSUM_BYTES: usize = 4;

/// The origin of a snapshot, and the length and checksum of its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupHeader {
    /// The name of the cluster.
    pub cluster: String,
    /// None if the cluster had not chosen one yet.
    pub cluster_id: Option<ClusterId>,
    pub group: GroupId,
    pub index: u64,
    pub term: u64,
    pub logical_time: LogicalTime,
    /// By the clock of the node that made it.
    pub created_unix_ms: u64,
    /// The version of the node that made it.
    pub made_by: String,
    pub body_bytes: u64,
    pub body_crc32c: u32,
    /// None in the file of a cluster with one group.
    pub share: Option<GroupShare>,
}

/// Why a file is not a usable backup.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BackupError {
    #[error("it is not a snapshot file of holdfast")]
    Foreign,
    #[error(
        "it was written in format {found}, and this build reads formats up to {VERSION}; use a newer holdfast"
    )]
    UnknownVersion { found: u32 },
    #[error("it ends too early: {found} bytes of {expected} are there")]
    Truncated { expected: u64, found: u64 },
    #[error("it ends too early: {found} of {groups} groups are there")]
    GroupsMissing { found: u32, groups: u32 },
    #[error("group {found} is where group {expected} should be")]
    GroupsOutOfOrder { expected: GroupId, found: GroupId },
    #[error(
        "group {group} does not belong to the groups before it: the cluster, the number of its groups, or their \
         map is another one"
    )]
    Unrelated { group: GroupId },
    #[error("slot {slot} belongs to group {group} and to a group before it")]
    SlotOwnedTwice { slot: Slot, group: GroupId },
    #[error("slot {slot} belongs to no group")]
    SlotWithoutOwner { slot: Slot },
    #[error("it is damaged: {0}")]
    Damaged(&'static str),
}

impl BackupHeader {
    /// The bytes before the body.
    pub fn encode(&self) -> Vec<u8> {
        let mut fields = Vec::new();
        put_text(&mut fields, &self.cluster);
        fields.push(self.cluster_id.is_some().into());
        fields.extend(self.cluster_id.map(|id| id.0).unwrap_or_default());
        fields.extend(self.group.0.to_le_bytes());
        fields.extend(self.index.to_le_bytes());
        fields.extend(self.term.to_le_bytes());
        fields.extend(self.logical_time.as_ms().to_le_bytes());
        fields.extend(self.created_unix_ms.to_le_bytes());
        put_text(&mut fields, &self.made_by);
        fields.extend(self.body_bytes.to_le_bytes());
        fields.extend(self.body_crc32c.to_le_bytes());
        if let Some(share) = &self.share {
            share.write(&mut fields);
        }
        let mut bytes = Vec::with_capacity(FIXED_BYTES + fields.len() + CHECKSUM_BYTES);
        bytes.extend(MAGIC);
        let version = self.share.as_ref().map_or(ONE_GROUP_VERSION, |_| VERSION);
        bytes.extend(version.to_le_bytes());
        bytes.extend((fields.len() as u32).to_le_bytes());
        bytes.extend(fields);
        let checksum = crc32c::crc32c(&bytes);
        bytes.extend(checksum.to_le_bytes());
        bytes
    }

    /// Returns the header and the bytes after it.
    pub fn decode(bytes: &[u8]) -> Result<(BackupHeader, &[u8]), BackupError> {
        let too_short = |expected: usize| BackupError::Truncated {
            expected: expected as u64,
            found: bytes.len() as u64,
        };
        let magic = bytes.get(..MAGIC.len()).ok_or(BackupError::Foreign)?;
        if magic != MAGIC {
            return Err(BackupError::Foreign);
        }
        let fixed = bytes.get(..FIXED_BYTES).ok_or_else(|| too_short(FIXED_BYTES))?;
        let (_, mut numbers) = fixed.split_at(MAGIC.len());
        let version = u32::from_le_bytes(take(&mut numbers)?);
        if !(ONE_GROUP_VERSION..=VERSION).contains(&version) {
            return Err(BackupError::UnknownVersion { found: version });
        }
        let length = usize::try_from(u32::from_le_bytes(take(&mut numbers)?)).unwrap_or(usize::MAX);
        if length > FIELDS_BYTES_MAX {
            return Err(BackupError::Damaged("its header is longer than any that is written"));
        }
        let end = FIXED_BYTES + length;
        let whole =
            bytes.get(..end + CHECKSUM_BYTES).ok_or_else(|| too_short(end + CHECKSUM_BYTES))?;
        let (checked, mut checksum) = whole.split_at(end);
        if u32::from_le_bytes(take(&mut checksum)?) != crc32c::crc32c(checked) {
            return Err(BackupError::Damaged("the checksum of its header is wrong"));
        }
        let header = BackupHeader::decode_fields(version, &checked[FIXED_BYTES..])?;
        Ok((header, &bytes[whole.len()..]))
    }

    fn decode_fields(version: u32, mut fields: &[u8]) -> Result<BackupHeader, BackupError> {
        let rest = &mut fields;
        let cluster = take_text(rest, 1..=TEXT_BYTES_MAX)?;
        let [has_id] = take(rest)?;
        let id = ClusterId(take(rest)?);
        let group = GroupId(u32::from_le_bytes(take(rest)?));
        let header = BackupHeader {
            cluster,
            cluster_id: (has_id == 1).then_some(id),
            group,
            index: u64::from_le_bytes(take(rest)?),
            term: u64::from_le_bytes(take(rest)?),
            logical_time: LogicalTime::from_ms(u64::from_le_bytes(take(rest)?)),
            created_unix_ms: u64::from_le_bytes(take(rest)?),
            made_by: take_text(rest, 0..=TEXT_BYTES_MAX)?,
            body_bytes: u64::from_le_bytes(take(rest)?),
            body_crc32c: u32::from_le_bytes(take(rest)?),
            share: match version {
                ONE_GROUP_VERSION => None,
                _ => Some(GroupShare::read(rest, group)?),
            },
        };
        if !rest.is_empty() || has_id > 1 {
            return Err(BackupError::Damaged("its header says what no header says"));
        }
        Ok(header)
    }
}

/// Checks a body that comes in pieces.
#[derive(Clone, Copy, Debug, Default)]
pub struct BodyCheck {
    bytes: u64,
    crc32c: u32,
}

impl BodyCheck {
    pub fn take(&mut self, piece: &[u8]) {
        self.bytes += piece.len() as u64;
        self.crc32c = crc32c::crc32c_append(self.crc32c, piece);
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn crc32c(&self) -> u32 {
        self.crc32c
    }

    /// All pieces were taken: are they what the header says?
    pub fn end(self, header: &BackupHeader) -> Result<(), BackupError> {
        let (expected, found) = (header.body_bytes, self.bytes);
        if found < expected {
            return Err(BackupError::Truncated { expected, found });
        }
        if found > expected {
            return Err(BackupError::Damaged("there is more in it than its header says"));
        }
        if self.crc32c != header.body_crc32c {
            return Err(BackupError::Damaged("the checksum of its body is wrong"));
        }
        Ok(())
    }
}

fn put_text(bytes: &mut Vec<u8>, text: &str) {
    let mut ends = (0..=text.len().min(TEXT_BYTES_MAX)).rev();
    let end = ends.find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    bytes.extend((end as u16).to_le_bytes());
    bytes.extend(&text.as_bytes()[..end]);
}

fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], BackupError> {
    let (chunk, after) =
        rest.split_first_chunk().ok_or(BackupError::Damaged("its header ends too early"))?;
    *rest = after;
    Ok(*chunk)
}

fn take_text(rest: &mut &[u8], allowed: RangeInclusive<usize>) -> Result<String, BackupError> {
    let length = usize::from(u16::from_le_bytes(take(rest)?));
    let damaged = BackupError::Damaged("a text in its header is none");
    if !allowed.contains(&length) {
        return Err(damaged);
    }
    let (text, after) = rest.split_at_checked(length).ok_or(damaged.clone())?;
    *rest = after;
    let text = std::str::from_utf8(text).map_err(|_| damaged.clone())?;
    if text.chars().any(char::is_control) { Err(damaged) } else { Ok(text.to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(body: &[u8]) -> Vec<u8> {
        let mut check = BodyCheck::default();
        check.take(body);
        let header = BackupHeader {
            cluster: "prod".into(),
            cluster_id: Some(ClusterId([7; 16])),
            group: GroupId(1),
            index: 4_711,
            term: 3,
            logical_time: LogicalTime::from_ms(90_000),
            created_unix_ms: 1_790_000_000_000,
            made_by: "0.1.0".into(),
            body_bytes: check.bytes(),
            body_crc32c: check.crc32c(),
            share: None,
        };
        assert_eq!(BackupHeader::decode(&header.encode()), Ok((header.clone(), &[][..])));
        [&header.encode()[..], body].concat()
    }

    #[test]
    fn a_backup_is_read_back_as_written() {
        let file = file(b"the body");
        let parts = read_parts(&file).unwrap();
        let [BackupPart { header, body }] = &parts[..] else { panic!("{parts:?}") };
        assert_eq!(
            (header.index, header.cluster.as_str(), *body),
            (4_711, "prod", &b"the body"[..])
        );
    }

    #[test]
    fn every_changed_byte_of_a_backup_is_detected() {
        let good = file(b"some body of a snapshot");
        for at in 0..good.len() {
            for flip in [1, 0x80, 0xff] {
                let mut bad = good.clone();
                bad[at] ^= flip;
                assert!(read_parts(&bad).is_err(), "byte {at} with {flip:#x}");
            }
        }
    }

    #[test]
    fn a_truncated_or_overlong_backup_is_detected() {
        let good = file(b"some body of a snapshot");
        for length in 0..good.len() {
            assert!(read_parts(&good[..length]).is_err(), "{length} bytes");
        }
        let words = read_parts(&good[..good.len() - 1]).unwrap_err().to_string();
        assert!(words.contains("22 bytes of 23"), "{words}");
        let longer = [&good[..], b"!"].concat();
        assert!(read_parts(&longer).is_err());
    }

    #[test]
    fn foreign_newer_and_damaged_backups_have_different_errors() {
        assert_eq!(read_parts(b"PK\x03\x04 a zip archive"), Err(BackupError::Foreign));
        assert_eq!(read_parts(b""), Err(BackupError::Foreign));
        let mut newer = file(b"body");
        newer[8] = 3;
        let words = read_parts(&newer).unwrap_err().to_string();
        assert!(words.contains("format 3") && words.contains("newer holdfast"), "{words}");
    }
}
