//! Small files that must be whole or absent: written aside, synced, renamed into place, and the
//! directory synced, so that a crash leaves the old text or the new one and never a part of it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// What could not be done to which file.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {}: {source}", path.display())]
pub struct FileError {
    action: &'static str,
    path: PathBuf,
    source: io::Error,
}

impl FileError {
    pub(crate) fn of(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> FileError {
        let path = path.to_owned();
        move |source| FileError { action, path, source }
    }
}

/// `None` if there is no such file.
pub(crate) fn read(path: &Path) -> Result<Option<String>, FileError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(FileError::of("read", path)(error)),
    }
}

/// The user of this process alone can read it.
pub(crate) fn replace(path: &Path, text: &str) -> Result<(), FileError> {
    #[cfg(unix)]
    use std::os::unix::fs::OpenOptionsExt;
    #[cfg_attr(not(unix), expect(unused_mut, reason = "there are no modes"))]
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    options.mode(0o600);
    replace_with(path, text, options)
}

/// For what contains no secret, and may be written by root for a node of another user.
pub(crate) fn replace_readable(path: &Path, text: &str) -> Result<(), FileError> {
    replace_with(path, text, OpenOptions::new())
}

fn replace_with(path: &Path, text: &str, mut options: OpenOptions) -> Result<(), FileError> {
    let aside = path.with_extension("new");
    let options = options.write(true).create(true).truncate(true);
    let mut file = options.open(&aside).map_err(FileError::of("create", &aside))?;
    file.write_all(text.as_bytes()).map_err(FileError::of("write", &aside))?;
    file.sync_all().map_err(FileError::of("sync", &aside))?;
    fs::rename(&aside, path).map_err(FileError::of("rename into place", path))?;
    match path.parent() {
        Some(directory) => sync_dir(directory),
        None => Ok(()),
    }
}

/// Makes the directory with its parents. Each new one is durable when this returns. What is in it is the business of the
/// node's user alone: the log names sessions by their secrets.
pub(crate) fn create_dir(directory: &Path) -> Result<(), FileError> {
    if directory.is_dir() {
        return Ok(());
    }
    let parent = directory.parent().filter(|parent| !parent.as_os_str().is_empty());
    if let Some(parent) = parent {
        create_dir(parent)?;
    }
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    match builder.create(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(FileError::of("create the directory", directory)(error));
        }
        _ => {}
    }
    sync_dir(parent.unwrap_or(Path::new(".")))
}

pub(crate) fn sync_dir(directory: &Path) -> Result<(), FileError> {
    File::open(directory)
        .and_then(|directory| directory.sync_all())
        .map_err(FileError::of("sync the directory", directory))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_as_a_whole_and_nothing_stays_aside() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b/state.toml");
        create_dir(path.parent().unwrap()).unwrap();
        assert_eq!(read(&path).unwrap(), None);
        replace(&path, "one").unwrap();
        replace(&path, "two").unwrap();
        assert_eq!(read(&path).unwrap().as_deref(), Some("two"));
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_error_names_the_operation_and_the_file() {
        let error = replace(Path::new("/nowhere/at/all.toml"), "x").unwrap_err().to_string();
        assert!(error.starts_with("cannot create /nowhere/at/all.new"), "{error}");
    }
}
