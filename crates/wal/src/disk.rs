//! The little that the log needs of a disk: one flat directory of files.
//!
//! Two implementations stand beside each other: [`FileDisk`] is a real directory, [`SimDisk`] is its
//! twin in memory, which can crash, lose what was not synced, and fail on demand.
//!
//! What both promise, and what the log builds on:
//!
//! - a block of 512 bytes, aligned to 512 bytes, is written whole or not at all;
//! - what was written before a successful [`DiskFile::sync_data`] survives a crash, with the length of
//!   the file that is needed to read it;
//! - a name that was created, renamed or removed before a successful [`Disk::sync_dir`] stays so.
//!
//! Nothing else is promised: without a sync each block and each directory operation may be kept or
//! lost by a crash, independently of the others.

mod file;
mod sim;
mod uncached;

use std::fmt::Debug;
use std::io;

pub use file::{DirectoryError, FileDisk, OpenFile};
pub use sim::{Operation, SimDisk, SimFile, TraceEvent, Unsynced};

/// A flat directory. Clones are handles to the same directory, so that a snapshot can be written on
/// another thread.
pub trait Disk: Clone + Debug + Send {
    type File: DiskFile;

    /// The names of all files, in no particular order.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Creates an empty file; fails if the name is taken.
    fn create(&self, name: &str) -> io::Result<Self::File>;

    /// Opens an existing file for reading and writing.
    fn open(&self, name: &str) -> io::Result<Self::File>;

    /// The same for a file that has its full size, and whose blocks are overwritten, synced at once, and seldom read.
    fn open_for_turns(&self, name: &str) -> io::Result<Self::File> {
        self.open(name)
    }

    /// Renames a file; replaces what bears the new name.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes all creations, renames and removals so far durable.
    fn sync_dir(&self) -> io::Result<()>;
}

/// An open file of a [`Disk`].
#[allow(clippy::len_without_is_empty)]
pub trait DiskFile: Debug + Send {
    fn len(&self) -> io::Result<u64>;

    /// Fills the buffer; a file that ends earlier is an error.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;

    /// Writes all the bytes, extending the file if needed. After an error any part of them may have
    /// been written.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Makes all writes so far durable. After an error it is unknown which of them are durable, and another call proves
    /// nothing.
    fn sync_data(&self) -> io::Result<()>;
}

/// Reads a whole file. Its length comes from the disk, so a failed allocation is an error and no abort.
pub(crate) fn read_whole<F: DiskFile>(file: &F) -> io::Result<Vec<u8>> {
    let length = usize::try_from(file.len()?).map_err(|_| io::ErrorKind::OutOfMemory)?;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(length).map_err(|_| io::ErrorKind::OutOfMemory)?;
    bytes.resize(length, 0);
    file.read_at(0, &mut bytes)?;
    Ok(bytes)
}
