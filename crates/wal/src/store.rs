//! The disk as all writers of one log share it: with its poison, and with directory operations that
//! are always followed by a sync of the directory.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::disk::{Disk, DiskFile};
use crate::error::{Poison, WriteError};
use crate::name;

/// How messages name the directory itself.
const DIRECTORY: &str = "the data directory";

#[derive(Clone, Debug)]
pub(crate) struct Store<D> {
    pub(crate) disk: D,
    pub(crate) poison: Poison,
    temporaries: Arc<AtomicU64>,
}

/// Why a file could not be filled.
#[derive(Debug)]
pub(crate) enum FillError {
    Unwritten(io::Error),
    /// It is unknown what is on the disk.
    Unsynced(io::Error),
}

impl<D: Disk> Store<D> {
    pub(crate) fn new(disk: D) -> Store<D> {
        Store { disk, poison: Poison::default(), temporaries: Arc::default() }
    }

    /// A file with synced content that has no part in the log until it is published. If the disk is
    /// full the file is removed again, which gives back the space that it took.
    pub(crate) fn write_temporary(
        &self,
        fill: impl FnOnce(&D::File) -> Result<(), FillError>,
    ) -> Result<(String, D::File), WriteError> {
        self.poison.check()?;
        let name = name::temporary(self.temporaries.fetch_add(1, Ordering::Relaxed));
        let file = self
            .disk
            .create(&name)
            .map_err(|error| self.poison.not_now_or_fatal("create", &name, &error))?;
        if let Err(unfilled) = fill(&file) {
            let error = match unfilled {
                FillError::Unwritten(error) => {
                    self.poison.no_space_or_fatal("write", &name, &error)
                }
                FillError::Unsynced(error) => self.poison.fatal("sync", &name, &error),
            };
            if matches!(error, WriteError::NoSpace { .. }) {
                self.remove([name.as_str()])?;
            }
            return Err(error);
        }
        file.sync_data().map_err(|error| self.poison.fatal("sync", &name, &error))?;
        Ok((name, file))
    }

    /// Gives a temporary file its durable name.
    pub(crate) fn publish(&self, temporary: &str, name: &str) -> Result<(), WriteError> {
        if let Err(error) = self.disk.rename(temporary, name) {
            let error = self.poison.no_space_or_fatal("rename", name, &error);
            if matches!(error, WriteError::NoSpace { .. }) {
                self.remove([temporary])?;
            }
            return Err(error);
        }
        self.sync_dir()
    }

    /// Removes files whose order of removal does not matter.
    pub(crate) fn remove<'a>(
        &self,
        names: impl IntoIterator<Item = &'a str>,
    ) -> Result<(), WriteError> {
        self.poison.check()?;
        let mut removed = false;
        for name in names {
            self.disk.remove(name).map_err(|error| self.poison.fatal("remove", name, &error))?;
            removed = true;
        }
        if removed { self.sync_dir() } else { Ok(()) }
    }

    fn sync_dir(&self) -> Result<(), WriteError> {
        self.disk.sync_dir().map_err(|error| self.poison.fatal("sync", DIRECTORY, &error))
    }
}
