//! Files with secrets.

use std::fs::Metadata;

/// Whether a secret in this file is none. What belongs to this user is for this user alone. A file of another owner, such
/// as a secret that is mounted into a container, may be readable by its group.
#[cfg(unix)]
pub fn is_readable_by_others(metadata: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    let is_own = metadata.uid() == rustix::process::geteuid().as_raw();
    metadata.mode() & if is_own { 0o077 } else { 0o007 } != 0
}

#[cfg(not(unix))]
pub fn is_readable_by_others(_: &Metadata) -> bool {
    false
}
