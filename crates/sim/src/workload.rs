//! Which commands take part, and how. The match below is exhaustive: a command that the lock table
//! learns does not compile here until somebody has decided where it comes from.

use holdfast_core::Command;

/// The kinds of commands, in the order of the table that `coverage` prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CommandKind {
    OpenSession,
    AttachStream,
    DetachStream,
    Touch,
    CloseSession,
    Acquire,
    Cancel,
    Release,
    Renew,
    AcquireAll,
    Convert,
    Proclaim,
    Transfer,
    Intervene,
    BeginTerm,
    Tick,
}

/// Who sends it in the simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    Client,
    /// A node does, about a client whose stream broke.
    Stream,
    Leader,
}

impl CommandKind {
    pub const ALL: [CommandKind; 11] = [
        CommandKind::OpenSession,
        CommandKind::AttachStream,
        CommandKind::DetachStream,
        CommandKind::Touch,
        CommandKind::CloseSession,
        CommandKind::Acquire,
        CommandKind::Cancel,
        CommandKind::Release,
        CommandKind::Renew,
        CommandKind::BeginTerm,
        CommandKind::Tick,
    ];

    pub fn of(command: &Command) -> CommandKind {
        match command {
            Command::OpenSession(_) => CommandKind::OpenSession,
            Command::AttachStream { .. } => CommandKind::AttachStream,
            Command::DetachStream { .. } => CommandKind::DetachStream,
            Command::Touch { .. } => CommandKind::Touch,
            Command::CloseSession { .. } => CommandKind::CloseSession,
            Command::Acquire(_) => CommandKind::Acquire,
            Command::Cancel { .. } => CommandKind::Cancel,
            Command::Release { .. } => CommandKind::Release,
            Command::Renew { .. } => CommandKind::Renew,
            Command::AcquireAll(_) => CommandKind::AcquireAll,
            Command::Convert { .. } => CommandKind::Convert,
            Command::Proclaim { .. } => CommandKind::Proclaim,
            Command::Transfer { .. } => CommandKind::Transfer,
            Command::Intervene(_) => CommandKind::Intervene,
            Command::BeginTerm { .. } => CommandKind::BeginTerm,
            Command::Tick => CommandKind::Tick,
        }
    }

    pub fn origin(self) -> Origin {
        match self {
            CommandKind::OpenSession
            | CommandKind::AttachStream
            | CommandKind::Touch
            | CommandKind::CloseSession
            | CommandKind::Acquire
            | CommandKind::Cancel
            | CommandKind::Release
            | CommandKind::Renew
            | CommandKind::AcquireAll
            | CommandKind::Convert
            | CommandKind::Proclaim
            | CommandKind::Transfer
            | CommandKind::Intervene => Origin::Client,
            CommandKind::DetachStream => Origin::Stream,
            CommandKind::BeginTerm | CommandKind::Tick => Origin::Leader,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            CommandKind::OpenSession => "open",
            CommandKind::AttachStream => "attach",
            CommandKind::DetachStream => "detach",
            CommandKind::Touch => "touch",
            CommandKind::CloseSession => "close",
            CommandKind::Acquire => "acquire",
            CommandKind::Cancel => "cancel",
            CommandKind::Release => "release",
            CommandKind::Renew => "renew",
            CommandKind::AcquireAll => "acquire-all",
            CommandKind::Convert => "convert",
            CommandKind::Proclaim => "proclaim",
            CommandKind::Transfer => "transfer",
            CommandKind::Intervene => "intervene",
            CommandKind::BeginTerm => "begin-term",
            CommandKind::Tick => "tick",
        }
    }
}
