//! Writes past the page cache.
//!
//! A turn is written once, synced at once, and read only by a node that starts. In the cache it would be copied,
//! marked, looked for and written back, which takes as long again as the disk does. That it is durable only the sync
//! says, as ever: the disk has a cache of its own.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Where the bytes lie in memory; enough for any disk.
const ALIGNMENT: usize = 4_096;
/// A turn that was larger does not hold on to its memory.
const KEPT_BYTES_MAX: usize = 1 << 20;

#[derive(Debug)]
pub(super) struct UncachedWriter {
    file: File,
    buffer: Vec<u8>,
}

impl UncachedWriter {
    /// None where that is not possible.
    pub(super) fn open(path: &Path) -> Option<UncachedWriter> {
        let mut options = OpenOptions::new();
        options.write(true);
        #[cfg(target_os = "linux")]
        std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_DIRECT);
        let file = cfg!(target_os = "linux").then(|| options.open(path)).and_then(Result::ok)?;
        Some(UncachedWriter { file, buffer: Vec::new() })
    }

    /// `InvalidInput` if offset or length are not those of whole blocks of this disk. Then some of the bytes may
    /// have been written.
    pub(super) fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let needed = bytes.len() + ALIGNMENT;
        if self.buffer.len() < needed {
            self.buffer.resize(needed, 0);
        }
        let start = self.buffer.as_ptr().align_offset(ALIGNMENT);
        let Some(aligned) =
            self.buffer.get_mut(start..).and_then(|rest| rest.get_mut(..bytes.len()))
        else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        aligned.copy_from_slice(bytes);
        let written = self.file.write_all_at(aligned, offset);
        if self.buffer.capacity() > KEPT_BYTES_MAX {
            self.buffer = Vec::new();
        }
        written
    }
}
