//! How the program ends: exit codes that scripts can rely on, and words for people.

use std::process::ExitCode;

use holdfast_client::unary::CallError;
use holdfast_client::{AcquireError, ConnectError, InvalidEndpoints, Rejection};
use holdfast_proto::v1::Reason;

/// The exit codes that are ours; `lock` passes on those of its command otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Code {
    Usage = 64,
    Unavailable = 69,
    /// Busy or timed out: the same later may succeed.
    Busy = 75,
    Denied = 77,
    LockLost = 79,
}

/// Why the program did not do what it was asked for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) code: Code,
    pub(crate) words: String,
}

impl Problem {
    pub(crate) fn new(code: Code, words: impl Into<String>) -> Problem {
        Problem { code, words: words.into() }
    }
}

impl From<Code> for ExitCode {
    fn from(code: Code) -> ExitCode {
        ExitCode::from(code as u8)
    }
}

/// `--help` and `--version` are no mistakes, though they end the parsing.
pub(crate) fn of_arguments(error: &clap::Error) -> ExitCode {
    // Nobody to tell if even stderr is closed.
    let _ = error.print();
    if error.use_stderr() { Code::Usage.into() } else { ExitCode::SUCCESS }
}

impl From<InvalidEndpoints> for Problem {
    fn from(error: InvalidEndpoints) -> Problem {
        Problem::new(Code::Usage, error.to_string())
    }
}

impl From<ConnectError> for Problem {
    fn from(error: ConnectError) -> Problem {
        let code = match &error {
            ConnectError::InvalidEndpoints(_) => Code::Usage,
            ConnectError::Rejected(rejection) => code_of(rejection),
            _ => Code::Unavailable,
        };
        Problem::new(code, error.to_string())
    }
}

impl From<AcquireError> for Problem {
    fn from(error: AcquireError) -> Problem {
        let code = match &error {
            AcquireError::Busy | AcquireError::TimedOut => Code::Busy,
            AcquireError::Lost(_) => Code::LockLost,
            AcquireError::Rejected(rejection) => code_of(rejection),
            _ => Code::Unavailable,
        };
        Problem::new(code, error.to_string())
    }
}

impl From<CallError> for Problem {
    fn from(error: CallError) -> Problem {
        let code = match &error {
            CallError::Rejected(rejection) => code_of(rejection),
            _ => Code::Unavailable,
        };
        Problem::new(code, error.to_string())
    }
}

fn code_of(rejection: &Rejection) -> Code {
    match rejection.reason {
        Reason::InvalidName
        | Reason::InvalidTtl
        | Reason::InvalidWait
        | Reason::InvalidToken
        | Reason::InvalidRequestId
        | Reason::InvalidSessionId
        | Reason::InvalidMode
        | Reason::InvalidMetadata
        | Reason::InvalidOwner
        | Reason::InvalidPage
        | Reason::InvalidFrame
        | Reason::RequestIdReused
        | Reason::SessionExists => Code::Usage,
        Reason::UnknownSession | Reason::NotHeld | Reason::GrantEnded => Code::LockLost,
        Reason::TooManySessions
        | Reason::TooManyHolds
        | Reason::TooManyWaits
        | Reason::QueueFull
        | Reason::TooManyUnacknowledged => Code::Busy,
        _ => Code::Unavailable,
    }
}
