//! Backups as files. A backup is written and synced under a temporary name, and then gets its final name.
//!
//! The file has a part for each group of the cluster (`holdfast_replica::BackupPart`).

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use holdfast_core::{LockTable, LogicalTime};
use holdfast_replica::{
    BackupError, BackupHeader, BackupPart, BodyCheck, ClusterId, GroupId, GroupShare, Membership,
    PartsCheck, SnapshotFile, read_parts, read_snapshot,
};

use super::OfflineError;
use crate::durable_file::{FileError, sync_dir};
use crate::shard::unix_ms;

/// The header of a backup of this state of a group. The share is none in a cluster with one group.
pub(crate) fn header_of(
    cluster: &str,
    cluster_id: Option<ClusterId>,
    (group, share): (GroupId, Option<GroupShare>),
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
        share,
    }
}

/// A backup that was read and found whole.
#[derive(Debug)]
pub(super) struct Backup {
    /// The first group, whose members are those of the cluster.
    pub(super) root: GroupBackup,
    /// In the order of their numbers.
    pub(super) others: Vec<GroupBackup>,
    pub(super) file_bytes: u64,
}

/// What a backup has of one group.
#[derive(Debug)]
pub(super) struct GroupBackup {
    pub(super) header: BackupHeader,
    pub(super) state: SnapshotFile,
    pub(super) membership: Membership,
    pub(super) table: LockTable,
}

impl Backup {
    pub(super) fn groups(&self) -> impl Iterator<Item = &GroupBackup> {
        std::iter::once(&self.root).chain(&self.others)
    }

    pub(super) fn group_count(&self) -> u32 {
        1 + self.others.len() as u32
    }

    /// When the last group was written.
    pub(super) fn created_unix_ms(&self) -> u64 {
        let created = self.groups().map(|group| group.header.created_unix_ms);
        created.max().unwrap_or_default()
    }
}

pub(super) fn read(path: &Path) -> Result<Backup, OfflineError> {
    let bytes = Bytes::from(fs::read(path).map_err(FileError::of("read", path))?);
    let unusable = |source| OfflineError::Backup { path: path.to_owned(), source };
    let mut groups = Vec::new();
    for part in read_parts(&bytes).map_err(unusable)? {
        groups.push(read_group(path, &bytes, part)?);
    }
    let mut groups = groups.into_iter();
    let root = groups.next().ok_or_else(|| unusable(BackupError::Foreign))?;
    Ok(Backup { root, others: groups.collect(), file_bytes: bytes.len() as u64 })
}

fn read_group(
    path: &Path,
    file: &Bytes,
    BackupPart { header, body }: BackupPart<'_>,
) -> Result<GroupBackup, OfflineError> {
    if header.share.is_none() && header.group != GroupId::FIRST {
        return Err(OfflineError::OtherGroup { path: path.to_owned(), group: header.group });
    }
    let (membership, table) = read_snapshot(body)
        .map_err(|source| OfflineError::Content { path: path.to_owned(), source })?;
    let owned = table.ownership();
    let is_as_said = match &header.share {
        None => owned.slots().is_all(),
        Some(share) => (owned.epoch(), owned.slots()) == (share.epoch, &share.slots),
    };
    if !is_as_said {
        return Err(OfflineError::OtherSlots { path: path.to_owned(), group: header.group });
    }
    let (index, term) = (header.index, header.term);
    let state = SnapshotFile { index, term, data: file.slice_ref(body) };
    Ok(GroupBackup { header, state, membership, table })
}

/// Writes a backup to a file as it arrives from the cluster: for each group the header first, then the body in pieces. A
/// writer that is dropped before `finish` deletes its file.
#[derive(Debug)]
pub struct BackupWriter {
    path: PathBuf,
    temporary: PathBuf,
    file: File,
    parts: PartsCheck,
    /// Of the group that is being written, like the next.
    header: BackupHeader,
    body: BodyCheck,
    indexes: Vec<(GroupId, u64)>,
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

    /// Begins with the first group.
    pub fn begin(path: &Path, header_bytes: &[u8]) -> Result<BackupWriter, OfflineError> {
        let mut parts = PartsCheck::default();
        let (header, rest) = parts.read_header(header_bytes).map_err(OfflineError::Received)?;
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.partial", std::process::id()));
        let temporary = path.with_file_name(name);
        let mut options = File::options();
        // Only the owner may read the file: session ids are secrets.
        options.write(true).create(true).truncate(true).mode(0o600);
        let file = options.open(&temporary).map_err(FileError::of("create", &temporary))?;
        let path = path.to_owned();
        let (body, indexes) = (BodyCheck::default(), vec![(header.group, header.index)]);
        let mut writer =
            BackupWriter { path, temporary, file, parts, header, body, indexes, finished: false };
        writer.write(&header_bytes[..header_bytes.len() - rest.len()])?;
        writer.take(rest)?;
        Ok(writer)
    }

    /// The group before is complete, and the next one begins.
    pub fn next_group(&mut self, header_bytes: &[u8]) -> Result<(), OfflineError> {
        self.body.end(&self.header).map_err(OfflineError::Received)?;
        let more = BackupError::Damaged("there are more groups than the first one says");
        if self.parts.is_complete() {
            return Err(OfflineError::Received(more));
        }
        let (header, rest) =
            self.parts.read_header(header_bytes).map_err(OfflineError::Received)?;
        self.indexes.push((header.group, header.index));
        self.header = header;
        self.body = BodyCheck::default();
        self.write(&header_bytes[..header_bytes.len() - rest.len()])?;
        self.take(rest)
    }

    pub fn take(&mut self, piece: &[u8]) -> Result<(), OfflineError> {
        self.body.take(piece);
        if self.body.bytes() > self.header.body_bytes {
            // A node that sends more than the header announces might never stop. `end` returns the error.
            self.body.end(&self.header).map_err(OfflineError::Received)?;
        }
        self.write(piece)
    }

    /// How many bytes of the present group's body have arrived, and how many its header announces.
    pub fn progress(&self) -> (u64, u64) {
        (self.body.bytes(), self.header.body_bytes)
    }

    /// The number of each group whose header has arrived, and the index of its log at which it was saved.
    pub fn indexes(&self) -> Vec<(u32, u64)> {
        self.indexes.iter().map(|(group, index)| (group.0, *index)).collect()
    }

    /// When this returns, the backup is on disk under its final name. Returns its size in bytes.
    pub fn finish(mut self, overwrite: bool) -> Result<u64, OfflineError> {
        self.body.end(&self.header).map_err(OfflineError::Received)?;
        self.parts.end().map_err(OfflineError::Received)?;
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
    use crate::groups::Groups;

    fn received(body: &[u8]) -> Vec<u8> {
        let data = body.to_vec().into();
        let state = SnapshotFile { index: 9, term: 2, data };
        header_of("test", None, (GroupId::FIRST, None), LogicalTime::ZERO, &state).encode()
    }

    fn received_of(group: u32, body: &[u8]) -> Vec<u8> {
        let data = body.to_vec().into();
        let state = SnapshotFile { index: 9 + u64::from(group), term: 2, data };
        let share = Groups::with_equal_shares(3).share_of(GroupId(group));
        header_of("test", None, (GroupId(group), share), LogicalTime::ZERO, &state).encode()
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

    #[test]
    fn a_backup_of_several_groups_has_its_name_only_when_all_groups_are_in_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("backup");
        let write = |groups: &[u32]| {
            let mut writer = BackupWriter::begin(&path, &received_of(groups[0], b"12345"))?;
            writer.take(b"12345")?;
            for group in &groups[1..] {
                writer.next_group(&received_of(*group, b"123"))?;
                writer.take(b"12")?;
                writer.take(b"3")?;
            }
            let indexes = writer.indexes();
            writer.finish(false).map(|bytes| (bytes, indexes))
        };
        for (groups, words) in [
            (&[1][..], "1 of 3 groups"),
            (&[1, 2], "2 of 3 groups"),
            (&[1, 3], "group 3 is where group 2 should be"),
            (&[2], "group 2 is where group 1 should be"),
            (&[1, 1], "group 1 is where group 2 should be"),
            (&[1, 2, 3, 3], "more groups than"),
        ] {
            let error = write(groups).unwrap_err();
            assert!(error.is_of_the_disk() && error.to_string().contains(words), "{error}");
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left of it");
        }
        let (bytes, indexes) = write(&[1, 2, 3]).unwrap();
        assert_eq!(indexes, [(1, 10), (2, 11), (3, 12)]);
        let written = fs::read(&path).unwrap();
        assert_eq!(written.len() as u64, bytes);
        let bodies: Vec<_> = read_parts(&written).unwrap().iter().map(|part| part.body).collect();
        assert_eq!(bodies, [&b"12345"[..], b"123", b"123"]);
    }

    #[test]
    fn a_group_that_is_not_complete_is_followed_by_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let first = received_of(1, b"12345");
        let mut writer = BackupWriter::begin(&dir.path().join("backup"), &first).unwrap();
        writer.take(b"1234").unwrap();
        let error = writer.next_group(&received_of(2, b"")).unwrap_err().to_string();
        assert!(error.contains("4 bytes of 5"), "{error}");
    }
}
