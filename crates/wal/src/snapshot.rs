//! Snapshot files: one per group and index, complete from the moment that it has its name.
//!
//! ```text
//! offset  bytes
//!      0      8  magic
//!      8      4  CRC32C of everything from byte 12 on
//!     12      4  format version
//!     16      4  group
//!     20      8  index
//!     28      8  term
//!     36      8  the turn through which the log is void for this group
//!     44      8  length of the data
//!     52         data, opaque
//! ```
//!
//! The content is synced under a temporary name before the rename, so a file with a final name and a
//! wrong checksum is damage, never a crash.
//!
//! A snapshot that was received (and not taken from the group's own log) replaces a log that may end
//! early or contradict it. It says itself through which turn the older entries are void: the rename
//! installs the snapshot and drops the entries in one step, and no crash can separate the two.

use crate::block::Turn;
use crate::chunked_write::{self, CHUNK_BYTES, Urgency};
use crate::disk::{Disk, DiskFile, read_whole};
use crate::error::{OpenError, WriteError};
use crate::name;
use crate::store::{FillError, Store};
use crate::{Snapshot, SnapshotRef};

const MAGIC: [u8; 8] = *b"HFSTSNAP";
const FORMAT_VERSION: u32 = 1;
const HEADER_BYTES: usize = 52;
const CHECKED_FROM: usize = 12;
const VERSION_OFFSET: u64 = 12;

/// Writes snapshots that the node takes of its own state, on whatever thread has time.
#[derive(Clone, Debug)]
pub struct SnapshotWriter<D> {
    pub(crate) store: Store<D>,
}

/// Proof that a snapshot is durable, for [`snapshot_written`](crate::Wal::snapshot_written).
#[derive(Debug)]
#[must_use = "the log keeps old segments until it is told of the snapshot"]
pub struct DurableSnapshot {
    pub(crate) group: u32,
    pub(crate) index: u64,
    pub(crate) term: u64,
}

impl<D: Disk> SnapshotWriter<D> {
    /// Returns once the snapshot is durable. On `NoSpace` nothing is left of it.
    pub fn write<'a>(
        &self,
        group: u32,
        snapshot: impl Into<SnapshotRef<'a>>,
    ) -> Result<DurableSnapshot, WriteError> {
        write(&self.store, group, snapshot.into(), Turn::default())
    }
}

impl DurableSnapshot {
    pub fn group(&self) -> u32 {
        self.group
    }

    pub fn index(&self) -> u64 {
        self.index
    }
}

pub(crate) fn write<D: Disk>(
    store: &Store<D>,
    group: u32,
    snapshot: SnapshotRef<'_>,
    void_through: Turn,
) -> Result<DurableSnapshot, WriteError> {
    let header = encode_header(group, snapshot, void_through);
    let (temporary, _file) = store.write_temporary(|file| {
        file.write_at(0, &header).map_err(FillError::Unwritten)?;
        let data = snapshot.data.chunks(CHUNK_BYTES);
        chunked_write::write_chunks(file, HEADER_BYTES as u64, data, Urgency::Background)
    })?;
    store.publish(&temporary, &name::snapshot(group, snapshot.index))?;
    Ok(DurableSnapshot { group, index: snapshot.index, term: snapshot.term })
}

fn encode_header(group: u32, snapshot: SnapshotRef<'_>, void_through: Turn) -> Vec<u8> {
    let mut header = Vec::with_capacity(HEADER_BYTES);
    header.extend_from_slice(&MAGIC);
    header.extend_from_slice(&[0; 4]);
    header.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
    header.extend_from_slice(&group.to_le_bytes());
    header.extend_from_slice(&snapshot.index.to_le_bytes());
    header.extend_from_slice(&snapshot.term.to_le_bytes());
    header.extend_from_slice(&void_through.0.to_le_bytes());
    header.extend_from_slice(&(snapshot.data.len() as u64).to_le_bytes());
    let checksum = crc32c::crc32c_append(crc32c::crc32c(&header[CHECKED_FROM..]), snapshot.data);
    header[MAGIC.len()..CHECKED_FROM].copy_from_slice(&checksum.to_le_bytes());
    header
}

/// A snapshot file that was found whole.
#[derive(Debug)]
pub(crate) struct LoadedSnapshot {
    pub(crate) snapshot: Snapshot,
    pub(crate) void_through: Turn,
}

pub(crate) fn load<D: Disk>(disk: &D, group: u32, index: u64) -> Result<LoadedSnapshot, OpenError> {
    let name = name::snapshot(group, index);
    let io = |source| OpenError::Io { file: name.clone(), source };
    let bytes = read_whole(&disk.open(&name).map_err(io)?).map_err(io)?;
    let damaged = |reason: &str| OpenError::Damaged {
        file: name.clone(),
        offset: 0,
        reason: reason.to_owned(),
    };
    let fields = decode(bytes).map_err(|fault| match fault {
        Fault::Damaged(reason) => damaged(reason),
        Fault::UnknownVersion(found) => OpenError::UnknownFormat {
            file: name.clone(),
            offset: VERSION_OFFSET,
            what: "snapshot format version",
            found: found.into(),
        },
    })?;
    if (fields.group, fields.loaded.snapshot.index) != (group, index) {
        return Err(damaged("the file holds another snapshot than its name says"));
    }
    Ok(fields.loaded)
}

#[derive(Debug)]
struct Fields {
    group: u32,
    loaded: LoadedSnapshot,
}

enum Fault {
    Damaged(&'static str),
    UnknownVersion(u32),
}

fn decode(mut bytes: Vec<u8>) -> Result<Fields, Fault> {
    let mut rest = bytes.as_slice();
    if take(&mut rest)? != MAGIC {
        return Err(Fault::Damaged("the snapshot has a wrong magic"));
    }
    let checksum = u32::from_le_bytes(take(&mut rest)?);
    let is_whole = checksum == crc32c::crc32c(rest);
    #[cfg(feature = "planted")]
    let is_whole = is_whole || crate::planted::Bug::SnapshotChecksumIgnored.is_active();
    if !is_whole {
        return Err(Fault::Damaged("the snapshot fails its checksum"));
    }
    let version = u32::from_le_bytes(take(&mut rest)?);
    if version != FORMAT_VERSION {
        return Err(Fault::UnknownVersion(version));
    }
    let group = u32::from_le_bytes(take(&mut rest)?);
    let index = u64::from_le_bytes(take(&mut rest)?);
    let term = u64::from_le_bytes(take(&mut rest)?);
    let void_through = Turn(u64::from_le_bytes(take(&mut rest)?));
    let length = u64::from_le_bytes(take(&mut rest)?);
    if length != rest.len() as u64 {
        return Err(Fault::Damaged("the snapshot is shorter or longer than it says"));
    }
    bytes.drain(..HEADER_BYTES);
    Ok(Fields {
        group,
        loaded: LoadedSnapshot { snapshot: Snapshot { index, term, data: bytes }, void_through },
    })
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], Fault> {
    let (head, rest) =
        bytes.split_first_chunk().ok_or(Fault::Damaged("the snapshot ends within its header"))?;
    *bytes = rest;
    Ok(*head)
}
