//! Writes large files in chunks, so that they do not delay the log.
//!
//! A sync of a few bytes waits for everything that the disk was given before. That concerns this log, and the logs of
//! other nodes on the same disk. So a large file is written chunk by chunk, and each chunk is synced before the next.

use crate::disk::DiskFile;
use crate::store::FillError;

/// A fast disk writes so much within a millisecond.
pub(crate) const CHUNK_BYTES: usize = 512 << 10;

/// Whether the log waits for a large file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// No: other writes come first.
    Background,
    /// Yes: the log writes nothing meanwhile.
    LogWaits,
}

/// Writes the chunks, none longer than [`CHUNK_BYTES`]. The caller syncs the last one.
pub(crate) fn write_chunks<'a, F: DiskFile>(
    file: &F,
    mut offset: u64,
    chunks: impl Iterator<Item = &'a [u8]>,
    urgency: Urgency,
) -> Result<(), FillError> {
    let mut chunks = chunks.peekable();
    while let Some(chunk) = chunks.next() {
        debug_assert!(chunk.len() <= CHUNK_BYTES, "a chunk of {} bytes", chunk.len());
        file.write_at(offset, chunk).map_err(FillError::Unwritten)?;
        offset += chunk.len() as u64;
        if urgency == Urgency::Background && chunks.peek().is_some() {
            file.sync_data().map_err(FillError::Unsynced)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{Disk, Operation, SimDisk};
    use crate::{Options, Snapshot, Wal};

    /// No two writes without a sync between them.
    fn are_apart(operations: &[Operation]) -> bool {
        let of_content = |kind: &&Operation| matches!(kind, Operation::Write | Operation::SyncData);
        let of_content: Vec<_> = operations.iter().filter(of_content).collect();
        of_content.windows(2).all(|two| two != [&Operation::Write, &Operation::Write])
    }

    fn traced(disk: &SimDisk, work: impl FnOnce()) -> Vec<Operation> {
        disk.start_trace();
        work();
        disk.take_trace().into_iter().map(|event| event.operation).collect()
    }

    #[test]
    fn a_segment_is_written_in_synced_chunks() {
        let disk = SimDisk::default();
        // Three chunks and a block.
        let segment_bytes = 3 * CHUNK_BYTES as u64 + 1;
        let (mut wal, _) = Wal::open(disk.clone(), Options { segment_bytes }).unwrap();
        let preparer = wal.segment_preparer();
        let operations = traced(&disk, || wal.add_spare(preparer.prepare().unwrap()));
        let writes = operations.iter().filter(|kind| **kind == Operation::Write).count();
        assert!(writes == 4 && are_apart(&operations), "{operations:?}");
        let [name] = &disk.list().unwrap()[..] else { panic!("one file") };
        let bytes = crate::disk::read_whole(&disk.open(name).unwrap()).unwrap();
        assert!(bytes.len() == 3 * CHUNK_BYTES + 512 && bytes.iter().all(|byte| *byte == 0));
    }

    #[test]
    fn a_snapshot_is_written_in_synced_chunks_after_its_header() {
        let disk = SimDisk::default();
        let (mut wal, _) = Wal::open(disk.clone(), Options::default()).unwrap();
        let data = vec![7; 2 * CHUNK_BYTES + 1];
        let snapshot = Snapshot { index: 1, term: 1, data };
        let operations = traced(&disk, || wal.install_snapshot(1, &snapshot).unwrap());
        assert_eq!(operations[..2], [Operation::Create, Operation::Write], "its header");
        assert!(are_apart(&operations[2..]), "{operations:?}");
        let writes = operations.iter().filter(|kind| **kind == Operation::Write).count();
        assert_eq!(writes, 1 + 3);
    }
}
