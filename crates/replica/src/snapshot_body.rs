//! What a snapshot of a group contains: who its members are, and its lock table.

use bytes::Bytes;
use holdfast_core::{Limits, LockTable};
use thiserror::Error;

use crate::id::NodeId;

const VERSION: u8 = 1;
const NODE_BYTES: usize = 8;

#[derive(Debug, Error)]
pub enum SnapshotError {
    #[error("the snapshot ends too early")]
    Truncated,
    #[error("the snapshot has version {found}; this build reads version {VERSION}")]
    UnknownVersion { found: u8 },
    #[error("the lock table in the snapshot is not valid: {0}")]
    Table(holdfast_core::DecodeError),
}

/// `version, voter count (u16), voters (u64 each), table`, all little endian.
pub(crate) fn encode(voters: &[NodeId], table: &LockTable) -> Bytes {
    let table = table.encode();
    let mut bytes = Vec::with_capacity(3 + voters.len() * NODE_BYTES + table.len());
    bytes.push(VERSION);
    bytes.extend_from_slice(&(voters.len() as u16).to_le_bytes());
    for voter in voters {
        bytes.extend_from_slice(&voter.0.to_le_bytes());
    }
    bytes.extend_from_slice(&table);
    Bytes::from(bytes)
}

pub(crate) fn decode(
    bytes: &[u8],
    limits: Limits,
) -> Result<(Vec<NodeId>, LockTable), SnapshotError> {
    let (version, rest) = bytes.split_first().ok_or(SnapshotError::Truncated)?;
    if *version != VERSION {
        return Err(SnapshotError::UnknownVersion { found: *version });
    }
    let (count, rest) = rest.split_first_chunk::<2>().ok_or(SnapshotError::Truncated)?;
    let voters_bytes = usize::from(u16::from_le_bytes(*count)) * NODE_BYTES;
    let (voters, table) = rest.split_at_checked(voters_bytes).ok_or(SnapshotError::Truncated)?;
    let voters = voters
        .as_chunks::<NODE_BYTES>()
        .0
        .iter()
        .map(|node| NodeId(u64::from_le_bytes(*node)))
        .collect();
    Ok((voters, LockTable::decode(table, limits).map_err(SnapshotError::Table)?))
}
