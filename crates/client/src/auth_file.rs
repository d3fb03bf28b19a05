//! The token by which a client proves who it is: in a file, which is read again when it has changed.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use holdfast_proto::AccessToken;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::{Request, Status};

/// Each call looks at the file that comes this long after the last look. A session looks for each connection, too.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// More is no token, and is not read.
const FILE_BYTES_MAX: u64 = 8 * 1024;

/// Why the file with a token cannot be used. It does not repeat what is in the file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AuthFileError {
    #[error("cannot read the token in {}: {reason}", path.display())]
    Unreadable { path: PathBuf, reason: String },
    #[error(
        "{} has a token that other users of this machine can read: `chmod 600 {}`", path.display(), path.display()
    )]
    ReadableByOthers { path: PathBuf },
    #[error(
        "{} has no token: it must have one line, hft_<16 hexadecimal digits>_<43 letters, digits, - or _>, or a JWT",
        path.display()
    )]
    NoToken { path: PathBuf },
}

/// The token of a client, as its file says.
pub(crate) struct AuthFile {
    path: PathBuf,
    loaded: Mutex<LoadedToken>,
}

struct LoadedToken {
    /// A token, or a JWT.
    secret: String,
    /// How often the file was replaced.
    generation: u64,
    /// For calls of gRPC.
    header: Option<MetadataValue<Ascii>>,
    version: Option<FileVersion>,
    checked_at: Instant,
}

/// A file that has the same is the same.
#[derive(Clone, Copy, PartialEq, Eq)]
struct FileVersion {
    modified: Option<SystemTime>,
    inode: u64,
}

impl AuthFile {
    pub(crate) fn load(path: PathBuf) -> Result<AuthFile, AuthFileError> {
        let loaded = Mutex::new(LoadedToken::read(&path)?);
        Ok(AuthFile { path, loaded })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The secret.
    pub(crate) fn to_secret_text(&self) -> String {
        self.with_current(|loaded| loaded.secret.clone())
    }

    /// Becomes another number when the file has another token.
    pub(crate) fn generation(&self) -> u64 {
        self.with_current(|loaded| loaded.generation)
    }

    /// Looks at the file now. A client that was denied connects again soon, and shows what the file says then.
    pub(crate) fn refresh(&self) {
        self.loaded().refresh(&self.path);
    }

    fn loaded(&self) -> MutexGuard<'_, LoadedToken> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn header(&self) -> Option<MetadataValue<Ascii>> {
        self.with_current(|loaded| loaded.header.clone())
    }

    /// If the file cannot be used, the token that was loaded before stays in use.
    fn with_current<T>(&self, read: impl FnOnce(&LoadedToken) -> T) -> T {
        let mut loaded = self.loaded();
        if loaded.checked_at.elapsed() >= CHECK_INTERVAL {
            loaded.refresh(&self.path);
        }
        read(&loaded)
    }
}

impl LoadedToken {
    fn refresh(&mut self, path: &Path) {
        self.checked_at = Instant::now();
        if FileVersion::of(path) == self.version {
            return;
        }
        match LoadedToken::read(path) {
            Ok(newer) => {
                let generation = self.generation + 1;
                *self = LoadedToken { generation, ..newer };
            }
            Err(error) => tracing::warn!("the token loaded before stays in use: {error}"),
        }
    }

    fn read(path: &Path) -> Result<LoadedToken, AuthFileError> {
        let unreadable = |error: std::io::Error| AuthFileError::Unreadable {
            path: path.to_owned(),
            reason: error.to_string(),
        };
        let no_token = || AuthFileError::NoToken { path: path.to_owned() };
        let metadata = std::fs::metadata(path).map_err(unreadable)?;
        if is_readable_by_others(&metadata) {
            return Err(AuthFileError::ReadableByOthers { path: path.to_owned() });
        }
        if metadata.len() > FILE_BYTES_MAX {
            return Err(no_token());
        }
        // A change after this is found by the next check.
        let version = FileVersion::of(path);
        let bytes = std::fs::read(path).map_err(unreadable)?;
        let text = std::str::from_utf8(&bytes).map_err(|_| no_token())?;
        let secret = text.trim().to_owned();
        if secret.parse::<AccessToken>().is_err() && !is_jwt(&secret) {
            return Err(no_token());
        }
        let header = MetadataValue::try_from(format!("Bearer {secret}"));
        let header = header.ok().map(|mut header| {
            header.set_sensitive(true);
            header
        });
        Ok(LoadedToken { secret, generation: 0, header, version, checked_at: Instant::now() })
    }
}

/// Three parts of base64url. Whether it is good, the node says.
fn is_jwt(text: &str) -> bool {
    let is_part = |part: &str| {
        let is_known = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        !part.is_empty() && part.bytes().all(is_known)
    };
    text.split('.').count() == 3 && text.split('.').all(is_part)
}

/// Like the keys of ssh: what belongs to this user is for this user alone. A file of another owner, such as a secret that
/// is mounted into a container, may be readable by its group.
#[cfg(unix)]
fn is_readable_by_others(metadata: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    let is_own = metadata.uid() == rustix::process::geteuid().as_raw();
    metadata.mode() & if is_own { 0o077 } else { 0o007 } != 0
}

#[cfg(not(unix))]
fn is_readable_by_others(_: &std::fs::Metadata) -> bool {
    false
}

impl FileVersion {
    fn of(path: &Path) -> Option<FileVersion> {
        let metadata = std::fs::metadata(path).ok()?;
        #[cfg(unix)]
        let inode = std::os::unix::fs::MetadataExt::ino(&metadata);
        #[cfg(not(unix))]
        let inode = 0;
        Some(FileVersion { modified: metadata.modified().ok(), inode })
    }
}

impl fmt::Debug for AuthFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AuthFile").field(&self.path).finish()
    }
}

/// Shows the token, if there is one, with every call.
#[derive(Debug, Clone)]
pub struct ShowToken(pub(crate) Option<Arc<AuthFile>>);

impl Interceptor for ShowToken {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(header) = self.0.as_ref().and_then(|file| file.header()) {
            request.metadata_mut().insert("authorization", header);
        }
        Ok(request)
    }
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn write(path: &Path, text: &str, mode: u32) {
        std::fs::write(path, text).unwrap();
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_file_that_others_can_read_or_that_has_no_token_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let refused = |path: &Path| AuthFile::load(path.to_owned()).unwrap_err().to_string();
        assert!(refused(&path).contains("cannot read the token"), "{}", refused(&path));
        let token = AccessToken::random().unwrap().to_secret_text();
        for mode in [0o644, 0o640, 0o604, 0o660] {
            write(&path, &token, mode);
            assert!(refused(&path).contains("chmod 600"), "{mode:o}: {}", refused(&path));
        }
        write(&path, "-----BEGIN PRIVATE KEY-----\nMIGH\n", 0o600);
        assert!(!refused(&path).contains("MIGH"));
        assert!(refused(&path).contains("has no token"));
        write(&path, &format!("{token}\n{token}\n"), 0o600);
        assert!(refused(&path).contains("has no token"));
    }

    #[test]
    fn a_file_that_was_replaced_is_read_again_and_a_wrong_one_is_not_used() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let tokens = [(); 2].map(|()| AccessToken::random().unwrap().to_secret_text());
        write(&path, &format!("{}\n", tokens[0]), 0o600);
        let file = AuthFile::load(path.clone()).unwrap();
        assert_eq!(file.to_secret_text(), tokens[0]);
        let due = || file.loaded.lock().unwrap().checked_at -= CHECK_INTERVAL;
        let replace = |text: &str| {
            let new = dir.path().join("new");
            write(&new, text, 0o600);
            std::fs::rename(&new, &path).unwrap();
        };
        replace("nothing");
        due();
        assert_eq!(file.to_secret_text(), tokens[0]);
        replace(&tokens[1]);
        due();
        assert_eq!(file.to_secret_text(), tokens[1]);
        let before = file.generation();
        replace(&tokens[0]);
        file.refresh();
        assert_eq!(file.to_secret_text(), tokens[0], "no second has passed");
        assert!(file.generation() > before);
        let shown = format!("{file:?} {:?}", file.header());
        assert!(!shown.contains(&tokens[0][21..]), "{shown}");
    }
}
