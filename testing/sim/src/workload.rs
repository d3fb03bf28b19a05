//! Which commands take part, and how. The match below is exhaustive: a command that the lock table
//! learns does not compile here until it has a row that says where it comes from.

use holdfast_core::Command;
use holdfast_core::command::Action;

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
    Abandon,
    Release,
    Renew,
    AcquireAll,
    Convert,
    Proclaim,
    Transfer,
    Break,
    MoveHold,
    Freeze,
    Thaw,
    SetPermits,
    KillSession,
    Reopen,
    SetLimits,
    BeginTerm,
    Tick,
    EventsPublished,
    AdoptRules,
    ChangeAccess,
    AdoptPolicy,
    SetOwnership,
    /// The last: see [`CommandKind::ALL`].
    MoveSlots,
}

/// Who sends it in the simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    Client,
    Operator,
    /// A node does, about a client whose stream broke.
    Stream,
    /// A node does, about a caller that hung up. The clients of the simulation have streams, so none does.
    UnaryCall,
    Leader,
    /// No server proposes it yet, and the simulation does not either.
    Unsent,
}

impl CommandKind {
    /// Each at the place of its number, and so many as the last says: none can be left out.
    pub const ALL: [CommandKind; CommandKind::MoveSlots as usize + 1] = [
        CommandKind::OpenSession,
        CommandKind::AttachStream,
        CommandKind::DetachStream,
        CommandKind::Touch,
        CommandKind::CloseSession,
        CommandKind::Acquire,
        CommandKind::Cancel,
        CommandKind::Abandon,
        CommandKind::Release,
        CommandKind::Renew,
        CommandKind::AcquireAll,
        CommandKind::Convert,
        CommandKind::Proclaim,
        CommandKind::Transfer,
        CommandKind::Break,
        CommandKind::MoveHold,
        CommandKind::Freeze,
        CommandKind::Thaw,
        CommandKind::SetPermits,
        CommandKind::KillSession,
        CommandKind::Reopen,
        CommandKind::SetLimits,
        CommandKind::BeginTerm,
        CommandKind::Tick,
        CommandKind::EventsPublished,
        CommandKind::AdoptRules,
        CommandKind::ChangeAccess,
        CommandKind::AdoptPolicy,
        CommandKind::SetOwnership,
        CommandKind::MoveSlots,
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
            Command::Abandon { .. } => CommandKind::Abandon,
            Command::Release { .. } => CommandKind::Release,
            Command::Renew { .. } => CommandKind::Renew,
            Command::AcquireAll(_) => CommandKind::AcquireAll,
            Command::Convert { .. } => CommandKind::Convert,
            Command::Proclaim { .. } => CommandKind::Proclaim,
            Command::Transfer { .. } => CommandKind::Transfer,
            Command::Intervene(intervention) => match intervention.action {
                Action::Break { .. } => CommandKind::Break,
                Action::Transfer { .. } => CommandKind::MoveHold,
                Action::Freeze { .. } => CommandKind::Freeze,
                Action::Thaw { .. } => CommandKind::Thaw,
                Action::SetPermits { .. } => CommandKind::SetPermits,
                Action::KillSession { .. } => CommandKind::KillSession,
                Action::Reopen { .. } => CommandKind::Reopen,
                Action::SetLimits { .. } => CommandKind::SetLimits,
            },
            Command::BeginTerm { .. } => CommandKind::BeginTerm,
            Command::Tick => CommandKind::Tick,
            Command::EventsPublished { .. } => CommandKind::EventsPublished,
            Command::AdoptRules { .. } => CommandKind::AdoptRules,
            Command::ChangeAccess(_) => CommandKind::ChangeAccess,
            Command::AdoptPolicy(_) => CommandKind::AdoptPolicy,
            Command::SetOwnership { .. } => CommandKind::SetOwnership,
            Command::MoveSlots(_) => CommandKind::MoveSlots,
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
            | CommandKind::Transfer => Origin::Client,
            CommandKind::Break
            | CommandKind::MoveHold
            | CommandKind::Freeze
            | CommandKind::Thaw
            | CommandKind::SetPermits
            | CommandKind::KillSession
            | CommandKind::Reopen
            | CommandKind::SetLimits
            | CommandKind::ChangeAccess
            | CommandKind::SetOwnership => Origin::Operator,
            CommandKind::DetachStream => Origin::Stream,
            CommandKind::MoveSlots => Origin::Unsent,
            CommandKind::Abandon => Origin::UnaryCall,
            CommandKind::BeginTerm
            | CommandKind::Tick
            | CommandKind::EventsPublished
            | CommandKind::AdoptRules
            | CommandKind::AdoptPolicy => Origin::Leader,
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
            CommandKind::Abandon => "abandon",
            CommandKind::Release => "release",
            CommandKind::Renew => "renew",
            CommandKind::AcquireAll => "acquire-all",
            CommandKind::Convert => "convert",
            CommandKind::Proclaim => "proclaim",
            CommandKind::Transfer => "transfer",
            CommandKind::Break => "break",
            CommandKind::MoveHold => "move-hold",
            CommandKind::Freeze => "freeze",
            CommandKind::Thaw => "thaw",
            CommandKind::SetPermits => "set-permits",
            CommandKind::KillSession => "kill-session",
            CommandKind::Reopen => "reopen",
            CommandKind::SetLimits => "set-limits",
            CommandKind::BeginTerm => "begin-term",
            CommandKind::Tick => "tick",
            CommandKind::EventsPublished => "published",
            CommandKind::AdoptRules => "adopt-rules",
            CommandKind::ChangeAccess => "change-access",
            CommandKind::AdoptPolicy => "adopt-policy",
            CommandKind::SetOwnership => "set-ownership",
            CommandKind::MoveSlots => "move-slots",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::CommandKind;

    #[test]
    fn every_kind_stands_in_its_place() {
        for (number, kind) in CommandKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, number, "{}", kind.name());
        }
    }
}
