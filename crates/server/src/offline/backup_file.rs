//! Backups as files. A backup is written and synced under a temporary name, and then gets its final name.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use holdfast_core::{LockTable, LogicalTime};
use holdfast_replica::{
    BackupHeader, BodyCheck, ClusterId, GroupId, Membership, SnapshotFile, read_snapshot,
};

use super::OfflineError;
use crate::durable_file::{FileError, sync_dir};
use crate::shard::unix_ms;

/// The header of a backup of this state.
pub(crate) fn header_of(
    cluster: &str,
    cluster_id: Option<ClusterId>,
    group: GroupId,
    logical_time: LogicalTime,
    state: &SnapshotFile,
) -> BackupHeader {
    let mut body = BodyCheck::default();
    body.take(&state.data);
    BackupHeader {
        cluster: cluster.to_owned(),
        cluster_id,
        group,
        index: state.index,
        term: state.term,
        logical_time,
        created_unix_ms: unix_ms(),
        made_by: env!("CARGO_PKG_VERSION").to_owned(),
        body_bytes: body.bytes(),
        body_crc32c: body.crc32c(),
    }
}

/// A backup that was read and found whole.
#[derive(Debug)]
pub(super) struct Backup {
    pub(super) header: BackupHeader,
    pub(super) state: SnapshotFile,
    pub(super) membership: Membership,
    pub(super) table: LockTable,
    pub(super) file_bytes: u64,
}

pub(super) fn read(path: &Path) -> Result<Backup, OfflineError> {
    let bytes = fs::read(path).map_err(FileError::of("read", path))?;
    let unusable = |source| OfflineError::Backup { path: path.to_owned(), source };
    let (header, body) = BackupHeader::decode_file(&bytes).map_err(unusable)?;
    if header.group != GroupId::FIRST {
        return Err(OfflineError::OtherGroup { path: path.to_owned(), group: header.group });
    }
    let (membership, table) = read_snapshot(body)
        .map_err(|source| OfflineError::Content { path: path.to_owned(), source })?;
    let (index, term) = (header.index, header.term);
    let state = SnapshotFile { index, term, data: body.to_vec().into() };
    Ok(Backup { header, state, membership, table, file_bytes: bytes.len() as u64 })
}

/// Writes a backup to a file as it arrives from the cluster: the header first, then the body in pieces. A writer that
/// is dropped before `finish` deletes its file.
#[derive(Debug)]
pub struct BackupWriter {
    path: PathBuf,
    temporary: PathBuf,
    file: File,
    header: BackupHeader,
    body: BodyCheck,
    finished: bool,
}

impl BackupWriter {
    /// Refuses a path that exists, unless `overwrite` is set.
    pub fn check_target(path: &Path, overwrite: bool) -> Result<(), OfflineError> {
        if !overwrite && path.symlink_metadata().is_ok() {
            return Err(OfflineError::Exists { path: path.to_owned() });
        }
        Ok(())
    }

    pub fn begin(path: &Path, header_bytes: &[u8]) -> Result<BackupWriter, OfflineError> {
        let (header, rest) = BackupHeader::decode(header_bytes).map_err(OfflineError::Received)?;
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.partial", std::process::id()));
        let temporary = path.with_file_name(name);
        let mut options = File::options();
        // Only the owner may read the file: session ids are secrets.
        options.write(true).create(true).truncate(true).mode(0o600);
        let file = options.open(&temporary).map_err(FileError::of("create", &temporary))?;
        let path = path.to_owned();
        let body = BodyCheck::default();
        let mut writer = BackupWriter { path, temporary, file, header, body, finished: false };
        writer.write(&header_bytes[..header_bytes.len() - rest.len()])?;
        writer.take(rest)?;
        Ok(writer)
    }

    pub fn take(&mut self, piece: &[u8]) -> Result<(), OfflineError> {
        self.body.take(piece);
        if self.body.bytes() > self.header.body_bytes {
            // A node that sends more than the header announces might never stop. `end` returns the error.
            self.body.end(&self.header).map_err(OfflineError::Received)?;
        }
        self.write(piece)
    }

    /// How many bytes of the body have arrived, and how many the header announces.
    pub fn progress(&self) -> (u64, u64) {
        (self.body.bytes(), self.header.body_bytes)
    }

    pub fn index(&self) -> u64 {
        self.header.index
    }

    /// When this returns, the backup is on disk under its final name. Returns its size in bytes.
    pub fn finish(mut self, overwrite: bool) -> Result<u64, OfflineError> {
        self.body.end(&self.header).map_err(OfflineError::Received)?;
        self.file.sync_all().map_err(FileError::of("sync", &self.temporary))?;
        self.give_name(overwrite)?;
        self.finished = true;
        let directory = self.path.parent().filter(|parent| !parent.as_os_str().is_empty());
        sync_dir(directory.unwrap_or(Path::new(".")))?;
        let written = self.file.metadata().map_err(FileError::of("look at", &self.path))?;
        Ok(written.len())
    }

    fn give_name(&self, overwrite: bool) -> Result<(), OfflineError> {
        if !overwrite {
            // Unlike a rename, a link never replaces a file that appeared meanwhile.
            match fs::hard_link(&self.temporary, &self.path) {
                Ok(()) => {
                    let removed = fs::remove_file(&self.temporary);
                    return Ok(removed.map_err(FileError::of("remove", &self.temporary))?);
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    return Err(OfflineError::Exists { path: self.path.clone() });
                }
                // Some file systems have no links.
                Err(_) => BackupWriter::check_target(&self.path, false)?,
            }
        }
        let renamed = fs::rename(&self.temporary, &self.path);
        Ok(renamed.map_err(FileError::of("rename into place", &self.path))?)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), OfflineError> {
        Ok(self.file.write_all(bytes).map_err(FileError::of("write", &self.temporary))?)
    }
}

impl Drop for BackupWriter {
    fn drop(&mut self) {
        if !self.finished {
            // If that fails too, the name ends in `.partial`.
            let _ = fs::remove_file(&self.temporary);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    fn received(body: &[u8]) -> Vec<u8> {
        let data = body.to_vec().into();
        let state = SnapshotFile { index: 9, term: 2, data };
        header_of("test", None, GroupId::FIRST, LogicalTime::ZERO, &state).encode()
    }

    #[test]
    fn a_backup_file_gets_its_name_only_when_complete() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("backup");
        let mut writer = BackupWriter::begin(&path, &received(b"12345")).unwrap();
        writer.take(b"123").unwrap();
        assert_eq!(writer.progress(), (3, 5));
        assert!(!path.exists());
        let error = writer.finish(false).unwrap_err().to_string();
        assert!(error.contains("ends too early"), "{error}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left of it");

        let mut writer = BackupWriter::begin(&path, &received(b"12345")).unwrap();
        writer.take(b"123").unwrap();
        writer.take(b"45").unwrap();
        let bytes = writer.finish(false).unwrap();
        let metadata = fs::metadata(&path).unwrap();
        assert_eq!((metadata.len(), metadata.mode() & 0o777), (bytes, 0o600));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn another_file_is_overwritten_only_if_that_is_wanted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("backup");
        let writer = BackupWriter::begin(&path, &received(b"")).unwrap();
        fs::write(&path, "other content").unwrap();
        assert!(matches!(writer.finish(false), Err(OfflineError::Exists { .. })));
        assert_eq!(fs::read(&path).unwrap(), b"other content");
        assert!(BackupWriter::check_target(&path, false).is_err());
        BackupWriter::check_target(&path, true).unwrap();
        BackupWriter::begin(&path, &received(b"")).unwrap().finish(true).unwrap();
        assert_ne!(fs::read(&path).unwrap(), b"other content");
    }

    #[test]
    fn a_sender_of_more_bytes_than_announced_is_cut_off() {
        let dir = tempfile::tempdir().unwrap();
        let mut writer =
            BackupWriter::begin(&dir.path().join("backup"), &received(b"12345")).unwrap();
        assert!(writer.take(b"123456").is_err());
    }
}
