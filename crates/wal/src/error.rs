//! One narrow error per operation, and the poison that an unknown state of the disk leaves behind.

use std::io;
use std::sync::{Arc, OnceLock};

/// Why a log cannot be opened. Nothing on the disk was changed, unless the error is `Io`.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("{file}: {source}")]
    Io { file: String, source: io::Error },
    #[error(
        "{file} is damaged at byte {offset}: {reason}; remove this node, and add it again with an empty data directory"
    )]
    Damaged { file: String, offset: u64, reason: String },
    #[error(
        "{file} at byte {offset} has {what} {found}, which this program does not know; use the \
         program that wrote it, or a newer one"
    )]
    UnknownFormat { file: String, offset: u64, what: &'static str, found: u64 },
    #[error(
        "{file} is missing: {reason}; remove this node, and add it again with an empty data directory"
    )]
    Missing { file: String, reason: String },
    #[error(
        "the log contradicts itself about group {group}: {reason}; remove this node, and add \
         it again with an empty data directory"
    )]
    Inconsistent { group: u32, reason: String },
}

/// Why an entry was not taken. The caller broke the contract; the log is as it was before.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    #[error("group {group} continues with entry {expected}, but was given entry {index}")]
    Gap { group: u32, expected: u64, index: u64 },
    #[error("entry {index} of group {group} is already in its snapshot at {snapshot}")]
    Compacted { group: u32, index: u64, snapshot: u64 },
    #[error("entry {index} of group {group} would replace a committed one (commit is {commit})")]
    Committed { group: u32, index: u64, commit: u64 },
    #[error("entry {index} of group {group} has {bytes} bytes, more than {bytes_max}")]
    TooLarge { group: u32, index: u64, bytes: usize, bytes_max: usize },
    #[error(transparent)]
    Fatal(#[from] FatalError),
}

/// Why something is not known to be durable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// Nothing is acknowledged and nothing is lost: the turn stays buffered, and the same call may be
    /// made again once there is room.
    #[error(
        "no space left while writing {file}; the node stops serving writes until there is room"
    )]
    NoSpace { file: String },
    /// A file could not be created or opened, for a reason that says nothing about what is on the disk, such as
    /// too many open files. As with `NoSpace` nothing is acknowledged and nothing is lost, and the same call may
    /// be made again.
    #[error(
        "{operation} of {file} failed: {message}; nothing is lost, and it is tried again; if it lasts, give the \
         process more file descriptors or memory"
    )]
    NotNow { operation: &'static str, file: String, message: String },
    /// The caller broke the contract: such a log would not open again, so it is not written.
    #[error("group {group} cannot commit up to {commit}: its log ends at {last}")]
    CommitBeyondLog { group: u32, commit: u64, last: u64 },
    #[error(transparent)]
    Fatal(#[from] FatalError),
}

/// Why a snapshot was not taken over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    #[error("a snapshot of group {group} at {index} would undo what is committed at {commit}")]
    BeforeCommit { group: u32, index: u64, commit: u64 },
    #[error("a snapshot of group {group} at {index} is beyond its log, which ends at {last}")]
    BeyondLog { group: u32, index: u64, last: u64 },
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// It is unknown what the disk holds. The log takes nothing until a new process opens it again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{operation} of {file} failed: {message}; the state of the disk is unknown, stop the node")]
pub struct FatalError {
    pub operation: &'static str,
    pub file: String,
    pub message: String,
}

/// The first fatal error, shared by all writers of the same log.
#[derive(Clone, Debug, Default)]
pub(crate) struct Poison(Arc<OnceLock<FatalError>>);

impl WriteError {
    /// The same call may succeed later, and until then nothing is lost.
    pub fn may_be_tried_again(&self) -> bool {
        matches!(self, WriteError::NoSpace { .. } | WriteError::NotNow { .. })
    }
}

/// Errors of creating or opening a file that concern the process or the machine, and not the disk.
fn says_nothing_about_disk(error: &io::Error) -> bool {
    let by_number = matches!(
        error.raw_os_error(),
        Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::EAGAIN | libc::EINTR)
    );
    by_number
        || matches!(
            error.kind(),
            io::ErrorKind::OutOfMemory | io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
        )
}

impl Poison {
    pub(crate) fn check(&self) -> Result<(), FatalError> {
        self.0.get().cloned().map_or(Ok(()), Err)
    }

    /// Poisons the log, and answers with the first error that did.
    pub(crate) fn fatal(
        &self,
        operation: &'static str,
        file: &str,
        error: &io::Error,
    ) -> WriteError {
        let error = FatalError { operation, file: file.to_owned(), message: error.to_string() };
        WriteError::Fatal(self.0.get_or_init(|| error).clone())
    }

    /// For creating and opening files. Nothing has been written through the file yet, so a lack of descriptors or
    /// memory leaves the log as it was.
    pub(crate) fn not_now_or_fatal(
        &self,
        operation: &'static str,
        file: &str,
        error: &io::Error,
    ) -> WriteError {
        if says_nothing_about_disk(error) {
            let (file, message) = (file.to_owned(), error.to_string());
            return WriteError::NotNow { operation, file, message };
        }
        self.no_space_or_fatal(operation, file, error)
    }

    /// For operations that a full disk can refuse and that may then be tried again. A sync is none.
    pub(crate) fn no_space_or_fatal(
        &self,
        operation: &'static str,
        file: &str,
        error: &io::Error,
    ) -> WriteError {
        match error.kind() {
            // The last one is the process's limit on the size of its files, which an operator can raise.
            io::ErrorKind::StorageFull
            | io::ErrorKind::QuotaExceeded
            | io::ErrorKind::FileTooLarge => WriteError::NoSpace { file: file.to_owned() },
            _ => self.fatal(operation, file, error),
        }
    }
}
