//! The content of a group's snapshot: its members and its lock table.
//!
//! Version 1 contains only the ids of the voters. It is still written as long as nothing else is known: nodes of an old
//! build, which read only version 1, may be in the group until the membership is first recorded.

use bytes::Bytes;
use holdfast_core::{Limits, LockTable};
use thiserror::Error;

use crate::id::NodeId;
use crate::membership::{Configuration, Membership, MembershipBytesError};

const VOTERS_ONLY: u8 = 1;
const WHOLE_MEMBERSHIP: u8 = 2;
const NODE_BYTES: usize = 8;

#[derive(Debug, Error)]
pub enum SnapshotError {
    #[error("the snapshot ends too early")]
    Truncated,
    #[error("the snapshot has version {found}; this build reads versions up to {WHOLE_MEMBERSHIP}")]
    UnknownVersion { found: u8 },
    #[error("the snapshot's members cannot be: {0}")]
    Members(#[from] MembershipBytesError),
    #[error("the snapshot's voters cannot be")]
    Voters,
    #[error("the lock table in the snapshot is not valid: {0}")]
    Table(holdfast_core::DecodeError),
}

/// The bytes before the table: `1, voter count (u16), voters (u64 each)` or `2, length (u32), membership`, all little
/// endian.
pub(crate) fn head(membership: &Membership) -> Vec<u8> {
    let mut bytes = Vec::new();
    if membership.is_plain() {
        let voters = &membership.configuration.voters;
        bytes.push(VOTERS_ONLY);
        bytes.extend_from_slice(&(voters.len() as u16).to_le_bytes());
        bytes.extend(voters.iter().flat_map(|voter| voter.0.to_le_bytes()));
    } else {
        let membership = membership.encode();
        bytes.push(WHOLE_MEMBERSHIP);
        bytes.extend_from_slice(&(membership.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&membership);
    }
    bytes
}

/// Encodes members and table at once.
pub(crate) fn encode(membership: &Membership, table: &LockTable) -> Bytes {
    let mut bytes = head(membership);
    bytes.extend(table.encode());
    Bytes::from(bytes)
}

pub(crate) fn decode(
    bytes: &[u8],
    limits: Limits,
) -> Result<(Membership, LockTable), SnapshotError> {
    let (membership, table) = parts(bytes)?;
    Ok((membership, LockTable::decode(table, limits).map_err(SnapshotError::Table)?))
}

/// The format versions of the snapshot and of the table in it.
pub(crate) fn versions(bytes: &[u8]) -> Result<(u8, u8), SnapshotError> {
    let (_, table) = parts(bytes)?;
    match (bytes.first(), table.first()) {
        (Some(snapshot), Some(table)) => Ok((*snapshot, *table)),
        _ => Err(SnapshotError::Truncated),
    }
}

fn parts(bytes: &[u8]) -> Result<(Membership, &[u8]), SnapshotError> {
    let (version, rest) = bytes.split_first().ok_or(SnapshotError::Truncated)?;
    match *version {
        VOTERS_ONLY => voters_only(rest),
        WHOLE_MEMBERSHIP => {
            let (length, rest) = rest.split_first_chunk().ok_or(SnapshotError::Truncated)?;
            let length = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX);
            let (membership, table) =
                rest.split_at_checked(length).ok_or(SnapshotError::Truncated)?;
            Ok((Membership::decode(membership)?, table))
        }
        found => Err(SnapshotError::UnknownVersion { found }),
    }
}

fn voters_only(bytes: &[u8]) -> Result<(Membership, &[u8]), SnapshotError> {
    let (count, rest) = bytes.split_first_chunk::<2>().ok_or(SnapshotError::Truncated)?;
    let voters_bytes = usize::from(u16::from_le_bytes(*count)) * NODE_BYTES;
    let (voters, table) = rest.split_at_checked(voters_bytes).ok_or(SnapshotError::Truncated)?;
    let voters: Vec<NodeId> = voters
        .as_chunks::<NODE_BYTES>()
        .0
        .iter()
        .map(|node| NodeId(u64::from_le_bytes(*node)))
        .collect();
    if !Configuration::of_voters(&voters).is_sound() {
        return Err(SnapshotError::Voters);
    }
    Ok((Membership::founded_by(&voters), table))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::ClusterId;
    use crate::membership::Note;

    /// Written by the build before memberships could change.
    const OF_VERSION_1: &[u8] = include_bytes!("../tests/fixtures/snapshot-v1.bin");

    #[test]
    fn a_snapshot_of_the_first_format_is_read_and_written_back_as_it_was() {
        let (membership, table) = decode(OF_VERSION_1, Limits::default()).unwrap();
        assert_eq!(membership, Membership::founded_by(&[1, 2, 3].map(NodeId)));
        assert!(table.lock_count() > 0);
        assert!(OF_VERSION_1.starts_with(&head(&membership)));
    }

    #[test]
    fn once_the_membership_is_recorded_snapshots_carry_all_of_it() {
        let (mut membership, table) = decode(OF_VERSION_1, Limits::default()).unwrap();
        membership.note(&Note { cluster: Some(ClusterId([5; 16])), members: Vec::new() });
        let bytes = [head(&membership), table.encode()].concat();
        let (read, _) = decode(&bytes, Limits::default()).unwrap();
        assert_eq!(read, membership);
        for length in 0..60 {
            assert!(decode(&bytes[..length], Limits::default()).is_err());
        }
        let newer = [&[3], &bytes[1..]].concat();
        let error = decode(&newer, Limits::default()).unwrap_err().to_string();
        assert!(error.contains("version 3"), "{error}");
    }
}
