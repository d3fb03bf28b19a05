//! Large files beside which the log is written.
//!
//! Whoever syncs a few bytes waits for all that the disk was given before: the log does, and so do those of other nodes on the
//! same disk. So a large file is written a stretch at a time, and each is synced before the next.

use crate::disk::DiskFile;
use crate::store::Unfilled;

/// What a fast disk writes within a millisecond.
pub(crate) const STRETCH_BYTES: usize = 512 << 10;

/// Who waits for a large file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Haste {
    /// Nobody: others come first.
    None,
    /// The log itself, which writes nothing meanwhile.
    Log,
}

/// None may be longer than [`STRETCH_BYTES`]. The last is left for who syncs the file.
pub(crate) fn write<'a, F: DiskFile>(
    file: &F,
    mut offset: u64,
    stretches: impl Iterator<Item = &'a [u8]>,
    haste: Haste,
) -> Result<(), Unfilled> {
    let mut stretches = stretches.peekable();
    while let Some(stretch) = stretches.next() {
        debug_assert!(stretch.len() <= STRETCH_BYTES, "a stretch of {} bytes", stretch.len());
        file.write_at(offset, stretch).map_err(Unfilled::Unwritten)?;
        offset += stretch.len() as u64;
        if haste == Haste::None && stretches.peek().is_some() {
            file.sync_data().map_err(Unfilled::Unsynced)?;
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
    fn the_disk_never_has_more_than_a_stretch_to_write_of_a_segment() {
        let disk = SimDisk::default();
        // Three stretches and a block.
        let segment_bytes = 3 * STRETCH_BYTES as u64 + 1;
        let (mut wal, _) = Wal::open(disk.clone(), Options { segment_bytes }).unwrap();
        let preparer = wal.segment_preparer();
        let operations = traced(&disk, || wal.add_spare(preparer.prepare().unwrap()));
        let writes = operations.iter().filter(|kind| **kind == Operation::Write).count();
        assert!(writes == 4 && are_apart(&operations), "{operations:?}");
        let [name] = &disk.list().unwrap()[..] else { panic!("one file") };
        let bytes = crate::disk::read_whole(&disk.open(name).unwrap()).unwrap();
        assert!(bytes.len() == 3 * STRETCH_BYTES + 512 && bytes.iter().all(|byte| *byte == 0));
    }

    #[test]
    fn nor_of_a_snapshot_but_for_its_header() {
        let disk = SimDisk::default();
        let (mut wal, _) = Wal::open(disk.clone(), Options::default()).unwrap();
        let data = vec![7; 2 * STRETCH_BYTES + 1];
        let snapshot = Snapshot { index: 1, term: 1, data };
        let operations = traced(&disk, || wal.install_snapshot(1, &snapshot).unwrap());
        assert_eq!(operations[..2], [Operation::Create, Operation::Write], "its header");
        assert!(are_apart(&operations[2..]), "{operations:?}");
        let writes = operations.iter().filter(|kind| **kind == Operation::Write).count();
        assert_eq!(writes, 1 + 3);
    }
}
