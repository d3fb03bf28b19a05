//! Segments: files of a fixed size that are zeroed and synced before the first turn goes in, so that a
//! turn changes no metadata and its sync is cheap.
//!
//! Zeroing takes a while. A shard that does not want to wait for it inside [`sync_turn`] watches
//! [`spare_wanted`], runs a [`SegmentPreparer`] on another thread and hands the [`Spare`] over.
//!
//! [`sync_turn`]: crate::Wal::sync_turn
//! [`spare_wanted`]: crate::Wal::spare_wanted

use std::collections::BTreeMap;

use crate::block::{BlockNumber, Sequence};
use crate::chunked_write::{self, CHUNK_BYTES, Urgency};
use crate::disk::{Disk, DiskFile};
use crate::error::WriteError;
use crate::name;
use crate::store::{FillError, Store};

/// What the log remembers of a segment.
#[derive(Debug)]
pub(crate) struct SegmentSummary {
    pub(crate) sequence: Sequence,
    pub(crate) blocks: u64,
    /// The highest index that the segment holds of each group. A truncation does not lower it: until
    /// it is durable the entries that it cuts may be needed.
    pub(crate) index_max: BTreeMap<u32, u64>,
}

impl SegmentSummary {
    pub(crate) fn new(sequence: Sequence, blocks: u64) -> SegmentSummary {
        SegmentSummary { sequence, blocks, index_max: BTreeMap::new() }
    }

    pub(crate) fn note(&mut self, group: u32, index: u64) {
        let index_max = self.index_max.entry(group).or_default();
        *index_max = index.max(*index_max);
    }

    pub(crate) fn bytes(&self) -> u64 {
        BlockNumber(self.blocks).offset()
    }
}

/// The segment that turns are written to.
#[derive(Debug)]
pub(crate) struct ActiveSegment<F> {
    pub(crate) summary: SegmentSummary,
    pub(crate) name: String,
    pub(crate) file: F,
    pub(crate) next_block: BlockNumber,
}

impl<F> ActiveSegment<F> {
    pub(crate) fn blocks_left(&self) -> u64 {
        self.summary.blocks.saturating_sub(self.next_block.0)
    }
}

/// A zeroed and synced file that waits to become a segment.
#[derive(Debug)]
pub struct Spare<D: Disk> {
    name: String,
    file: D::File,
    pub(crate) blocks: u64,
}

impl<D: Disk> Spare<D> {
    pub(crate) fn prepare(
        store: &Store<D>,
        blocks: u64,
        urgency: Urgency,
    ) -> Result<Spare<D>, WriteError> {
        let (name, _) = store.write_temporary(|file| write_zeros(file, blocks, urgency))?;
        match store.disk.open_for_turns(&name) {
            Ok(file) => Ok(Spare { name, file, blocks }),
            Err(error) => {
                let error = store.poison.not_now_or_fatal("open", &name, &error);
                if error.may_be_tried_again() {
                    store.remove([name.as_str()])?;
                }
                Err(error)
            }
        }
    }

    pub(crate) fn activate(
        self,
        store: &Store<D>,
        sequence: Sequence,
    ) -> Result<ActiveSegment<D::File>, WriteError> {
        let name = name::segment(sequence);
        store.publish(&self.name, &name)?;
        let summary = SegmentSummary::new(sequence, self.blocks);
        Ok(ActiveSegment { summary, name, file: self.file, next_block: BlockNumber(0) })
    }
}

fn write_zeros<F: DiskFile>(file: &F, blocks: u64, urgency: Urgency) -> Result<(), FillError> {
    let (bytes, chunk) = (BlockNumber(blocks).offset(), CHUNK_BYTES as u64);
    let zeros = vec![0; chunk.min(bytes) as usize];
    let lengths = (0..bytes).step_by(CHUNK_BYTES).map(|at| (bytes - at).min(chunk) as usize);
    chunked_write::write_chunks(file, 0, lengths.map(|length| &zeros[..length]), urgency)
}

/// Prepares a segment ahead of use, on whatever thread has time.
#[derive(Clone, Debug)]
pub struct SegmentPreparer<D> {
    pub(crate) store: Store<D>,
    pub(crate) blocks: u64,
}

impl<D: Disk> SegmentPreparer<D> {
    pub fn prepare(&self) -> Result<Spare<D>, WriteError> {
        Spare::prepare(&self.store, self.blocks, Urgency::Background)
    }
}
