//! A real directory, held by one process at a time.

use std::cell::RefCell;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::uncached::UncachedWriter;
use super::{Disk, DiskFile};

const LOCK_NAME: &str = "LOCK";

/// The log and the snapshots are for the user of this process alone: they contain what clients said.
const FILE_MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o700;

/// A directory of the file system. The directory stays locked until the last clone is dropped.
#[derive(Clone, Debug)]
pub struct FileDisk {
    directory: Arc<Directory>,
}

#[derive(Debug)]
struct Directory {
    path: PathBuf,
    /// Open for fsync: a directory is synced through a handle of its own.
    handle: File,
    /// The operating system frees the lock when this is closed, also after a kill.
    _lock: File,
}

/// Why a data directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    #[error(
        "data directory {} is in use by another process; stop that process, or give this node a \
         directory of its own",
        path.display()
    )]
    InUse { path: PathBuf },
    #[error("data directory {} cannot be used: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
}

impl FileDisk {
    /// Locks the directory, and creates it first if it does not exist.
    pub fn open(path: impl AsRef<Path>) -> Result<FileDisk, DirectoryError> {
        let path = path.as_ref();
        let failed = |source| DirectoryError::Io { path: path.to_owned(), source };
        create_durably(path).map_err(failed)?;
        let lock = OpenOptions::new()
            .create(true)
            .write(true)
            .truncate(false)
            .mode(FILE_MODE)
            .open(path.join(LOCK_NAME))
            .map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(DirectoryError::InUse { path: path.to_owned() });
            }
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        let handle = File::open(path).map_err(failed)?;
        let directory = Directory { path: path.to_owned(), handle, _lock: lock };
        Ok(FileDisk { directory: Arc::new(directory) })
    }

    pub fn path(&self) -> &Path {
        &self.directory.path
    }

    fn at(&self, name: &str) -> PathBuf {
        self.directory.path.join(name)
    }
}

/// Creates each missing directory of the path and syncs the parent that names it; a log inside a
/// directory whose own name a crash can lose would not be durable.
fn create_durably(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    create_durably(parent)?;
    match DirBuilder::new().mode(DIRECTORY_MODE).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    File::open(parent)?.sync_all()
}

impl Disk for FileDisk {
    type File = OpenFile;

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.directory.path)? {
            // The log's own names are ASCII; a name that is not even UTF-8 is a foreign file.
            if let Ok(name) = entry?.file_name().into_string() {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn create(&self, name: &str) -> io::Result<OpenFile> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(FILE_MODE);
        let file = options.open(self.at(name))?;
        Ok(OpenFile { file, uncached: RefCell::new(None) })
    }

    fn open(&self, name: &str) -> io::Result<OpenFile> {
        let file = OpenOptions::new().read(true).write(true).open(self.at(name))?;
        Ok(OpenFile { file, uncached: RefCell::new(None) })
    }

    fn open_for_turns(&self, name: &str) -> io::Result<OpenFile> {
        let uncached = RefCell::new(UncachedWriter::open(&self.at(name)));
        Ok(OpenFile { uncached, ..self.open(name)? })
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.at(from), self.at(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.at(name))
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.directory.handle.sync_all()
    }
}

/// A file of a [`FileDisk`].
#[derive(Debug)]
pub struct OpenFile {
    file: File,
    /// None: what is written goes through the page cache.
    uncached: RefCell<Option<UncachedWriter>>,
}

impl DiskFile for OpenFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut uncached = self.uncached.borrow_mut();
        match uncached.as_mut().map(|writer| writer.write_at(offset, bytes)) {
            // A disk whose blocks are larger says so at the first write, and takes the same bytes otherwise.
            Some(Err(error)) if error.kind() == io::ErrorKind::InvalidInput => *uncached = None,
            Some(written) => return written,
            None => {}
        }
        self.file.write_all_at(bytes, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}
