//! How the program ends: exit codes that scripts can rely on, and words for people.

use std::io::Write;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use holdfast_client::unary::CallError;
use holdfast_client::{
    AcquireError, AuthFileError, CampaignError, ConnectError, InvalidEndpoints, Rejection,
    TlsError, Unavailable, UnavailableCause,
};
use holdfast_proto::v1::Reason;

use crate::text;

/// The exit codes that are ours; `lock` passes on those of its command otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Code {
    Usage = 64,
    Unavailable = 69,
    /// Busy, timed out, frozen, over a quota, or a deadlock: the same later may succeed.
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

    /// What happened, without the lines that say what to do.
    pub(crate) fn first_line(&self) -> &str {
        self.words.lines().next().unwrap_or_default()
    }
}

impl From<Code> for ExitCode {
    fn from(code: Code) -> ExitCode {
        ExitCode::from(code as u8)
    }
}

/// `--help` and `--version` are no mistakes, though they end the parsing.
pub(crate) fn of_arguments(error: clap::Error) -> ExitCode {
    if !error.use_stderr() {
        // A closed stdout is no mistake of the caller.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    // Arguments may be any bytes.
    let args = std::env::args_os().map(|arg| arg.to_string_lossy().into_owned());
    let _ = std::io::stderr().write_all(usage_message(error, &args.collect::<Vec<_>>()).as_bytes());
    Code::Usage.into()
}

/// What is wrong about the arguments, and what to write instead.
pub(crate) fn usage_message(mut error: clap::Error, args: &[String]) -> String {
    let other_word = other_word_for(&error);
    if other_word.is_some() {
        // Options and commands that sound alike mean something else.
        for misleading in [
            ContextKind::SuggestedArg,
            ContextKind::SuggestedSubcommand,
            ContextKind::Suggested,
            ContextKind::Usage,
        ] {
            error.remove(misleading);
        }
    }
    cut_value(&mut error);
    let mut message = error.render().to_string();
    if let Some(tip) = other_word.map(str::to_owned).or_else(|| tip_for(&error, args)) {
        message += &format!("\n  tip: {tip}\n");
    }
    message
}

/// A long value would hide what is wrong about it.
fn cut_value(error: &mut clap::Error) {
    const CHARS_MAX: usize = 80;
    let Some(ContextValue::String(value)) = error.get(ContextKind::InvalidValue) else { return };
    if value.chars().count() > CHARS_MAX {
        let beginning: String = value.chars().take(CHARS_MAX).collect();
        error.insert(ContextKind::InvalidValue, ContextValue::String(beginning + "…"));
    }
}

/// People who know other tools use the words of those.
fn other_word_for(error: &clap::Error) -> Option<&'static str> {
    if let Some(ContextValue::String(command)) = error.get(ContextKind::InvalidSubcommand) {
        let is_unlock = ["unlock", "free"].contains(&command.as_str());
        return is_unlock.then_some(
            "`holdfast lock NAME -- CMD` releases the lock when CMD ends; `holdfast release` releases what `holdfast \
             acquire` took",
        );
    }
    let Some(ContextValue::String(unknown)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    match unknown.split('=').next()? {
        "--timeout" | "--time-out" | "--max-wait" | "-w" => Some(
            "--wait D is how long to wait for the lock; with `holdfast lock`, --max-hold D is how long the command may \
             have it",
        ),
        "--max-time" | "--max-runtime" | "--duration" => {
            Some("with `holdfast lock`, --max-hold D is how long the command may have the lock")
        }
        "--lease" | "--lease-time" | "--expire" | "--expiry" => {
            Some("--ttl D is how long the lock stays held after its last renewal")
        }
        _ => None,
    }
}

/// People who know `sudo` or `flock` write the command right behind the name.
fn tip_for(error: &clap::Error, args: &[String]) -> Option<String> {
    let verb_at = args.iter().position(|arg| arg == "lock")?;
    if error.kind() != ErrorKind::UnknownArgument || args.iter().any(|arg| arg == "--") {
        return None;
    }
    let Some(ContextValue::String(unknown)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    let command_at = args.iter().skip(verb_at + 1).position(|arg| arg == unknown)? + verb_at + 1;
    if unknown.starts_with('-') {
        return None;
    }
    let quoted =
        |args: &[String]| args.iter().map(|arg| text::quoted(arg)).collect::<Vec<_>>().join(" ");
    let (ours, command) = (quoted(&args[1..command_at]), quoted(&args[command_at..]));
    Some(format!("put the command after `--`: holdfast {ours} -- {command}"))
}

impl From<InvalidEndpoints> for Problem {
    fn from(error: InvalidEndpoints) -> Problem {
        Problem::new(Code::Usage, error.to_string())
    }
}

impl From<TlsError> for Problem {
    fn from(error: TlsError) -> Problem {
        Problem::new(Code::Usage, error.to_string())
    }
}

/// What is missing is a credential.
impl From<AuthFileError> for Problem {
    fn from(error: AuthFileError) -> Problem {
        Problem::new(Code::Denied, error.to_string())
    }
}

impl From<ConnectError> for Problem {
    fn from(error: ConnectError) -> Problem {
        let code = match &error {
            ConnectError::InvalidEndpoints(_)
            | ConnectError::InvalidEfficiency(_)
            | ConnectError::Tls(_) => Code::Usage,
            ConnectError::AuthFile(_) => Code::Denied,
            ConnectError::Rejected(rejection) => return rejected(rejection, error.to_string()),
            ConnectError::Unavailable(unavailable) => return unavailable.into(),
            _ => Code::Unavailable,
        };
        Problem::new(code, error.to_string())
    }
}

impl From<AcquireError> for Problem {
    fn from(error: AcquireError) -> Problem {
        let code = match &error {
            AcquireError::Busy
            | AcquireError::TimedOut
            | AcquireError::Deadlock(_)
            | AcquireError::Died { .. } => Code::Busy,
            AcquireError::Lost(_) | AcquireError::SessionLost(_) => Code::LockLost,
            AcquireError::Rejected(rejection) => return rejected(rejection, error.to_string()),
            AcquireError::Unavailable(unavailable) => return unavailable.into(),
            AcquireError::GuaranteeRequired(_) | AcquireError::NotInThisTier(_) => Code::Usage,
            _ => Code::Unavailable,
        };
        Problem::new(code, error.to_string())
    }
}

impl From<CampaignError> for Problem {
    fn from(error: CampaignError) -> Problem {
        let code = match &error {
            CampaignError::TimedOut | CampaignError::Deadlock(_) => Code::Busy,
            CampaignError::Lost(_) | CampaignError::SessionLost(_) => Code::LockLost,
            CampaignError::Rejected(rejection) => return rejected(rejection, error.to_string()),
            CampaignError::Unavailable(unavailable) => return unavailable.into(),
            _ => Code::Unavailable,
        };
        Problem::new(code, error.to_string())
    }
}

impl From<CallError> for Problem {
    fn from(error: CallError) -> Problem {
        match &error {
            CallError::Rejected(rejection) => rejected(rejection, error.to_string()),
            CallError::Unavailable(unavailable) => unavailable.into(),
            _ => Problem::new(Code::Unavailable, error.to_string()),
        }
    }
}

fn rejected(rejection: &Rejection, words: String) -> Problem {
    let next_step = next_step(rejection.reason).map(|step| format!("; {step}"));
    Problem::new(code_of(rejection), words + &next_step.unwrap_or_default())
}

/// Where to find what the caller should have named, and the options for what it should have shown.
fn next_step(reason: Reason) -> Option<&'static str> {
    match reason {
        Reason::Unauthenticated => Some(
            "the options are --ca (HOLDFAST_CA), --auth-file (HOLDFAST_AUTH_FILE), --cert and --key; or \
             HOLDFAST_CONFIG names a file with them",
        ),
        Reason::NotFrozen => Some("`holdfast freezes` lists the prefixes that are"),
        Reason::NotClosed => Some("`holdfast why NAME` says what is in the way"),
        Reason::NoSuchSession => Some("`holdfast sessions` lists the sessions"),
        Reason::NoSuchWaiter => Some("`holdfast status NAME` lists the waiters"),
        Reason::PermitsInUse => Some("`holdfast status NAME` lists the holders"),
        Reason::UnknownNode | Reason::NotAVoter => {
            Some("`holdfast cluster status` lists the nodes")
        }
        _ => None,
    }
}

/// With the next step.
impl From<&Unavailable> for Problem {
    fn from(unavailable: &Unavailable) -> Problem {
        let Unavailable { message, cause, .. } = unavailable;
        let words = match cause {
            UnavailableCause::NotReached => format!(
                "cannot reach any node: {message}\n  name nodes that run with --endpoints or HOLDFAST_ENDPOINTS; `holdfast \
                 dev` starts a cluster to try things out"
            ),
            UnavailableCause::NoLeader => format!(
                "the cluster has no leader: {}\n  `holdfast cluster status` shows which nodes answer; the dashboard of a \
                 node shows what it knew last",
                message.replace("there is no leader: ", "")
            ),
            _ => format!("{unavailable}\n  `holdfast cluster status` shows which nodes answer"),
        };
        Problem::new(Code::Unavailable, words)
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
        | Reason::InvalidPermits
        | Reason::InvalidPolicy
        | Reason::InvalidTier
        | Reason::InvalidLimits
        | Reason::InvalidLockDelay
        | Reason::InvalidFreeze
        | Reason::InvalidIntervention
        | Reason::TooManyNames
        | Reason::DuplicateName
        | Reason::SeveralGroups
        | Reason::MessageTooLarge
        | Reason::AlreadyHeld
        | Reason::OtherPermits
        | Reason::NoPermitsSet
        | Reason::NoSuchWaiter
        | Reason::NoSuchSession
        | Reason::NotFrozen
        | Reason::NotClosed
        | Reason::AccessRefused
        | Reason::InvalidAccess
        | Reason::RequestIdReused
        | Reason::SessionExists
        | Reason::AmbiguousHold
        | Reason::InvalidNodeId
        | Reason::InvalidAddress
        | Reason::NodeIdInUse
        | Reason::AddressInUse
        | Reason::UnknownNode
        | Reason::NotAVoter
        | Reason::LastVoter
        | Reason::TooManyNodes => Code::Usage,
        Reason::Unauthenticated | Reason::PermissionDenied | Reason::CredentialExpired => {
            Code::Denied
        }
        Reason::ChangeUnderWay | Reason::NotCaughtUp => Code::Busy,
        Reason::UnknownSession | Reason::NotHeld | Reason::GrantEnded => Code::LockLost,
        Reason::TooManySessions
        | Reason::TooManyHolds
        | Reason::TooManyLocks
        | Reason::TooManyBytes
        | Reason::SessionTooLarge
        | Reason::QuotaExceeded
        | Reason::RateLimited
        | Reason::TooManyWaits
        | Reason::QueueFull
        | Reason::Frozen
        | Reason::PermitsInUse
        | Reason::TooManyPermitsSet
        | Reason::TooManyFreezes
        | Reason::TooManyReentries
        | Reason::TooManyUnacknowledged => Code::Busy,
        _ => Code::Unavailable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tip(line: &str) -> Option<String> {
        let args: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let error = crate::cli::command().try_get_matches_from(&args).unwrap_err();
        tip_for(&error, &args)
    }

    #[test]
    fn a_time_in_the_words_of_other_tools_is_told_in_ours() {
        for (line, word) in [
            ("holdfast lock a --timeout 5s -- true", "--wait D"),
            ("holdfast acquire a --timeout=5s", "--wait D"),
            ("holdfast lock a --max-time 5s -- true", "--max-hold D"),
            ("holdfast acquire a --lease 5s", "--ttl D"),
            ("holdfast unlock a", "releases the lock when CMD ends"),
        ] {
            let args = line.split(' ');
            let error = crate::cli::command().try_get_matches_from(args).unwrap_err();
            let words = other_word_for(&error).unwrap();
            assert!(words.contains(word), "{line}: {words}");
        }
    }

    #[test]
    fn a_command_without_the_dashes_is_told_where_they_belong() {
        let words = tip("holdfast lock x --ttl 5s echo -n hi").unwrap();
        assert!(words.ends_with("holdfast lock x --ttl 5s -- echo -n hi"), "{words}");
        for other in ["holdfast lock x --no-such -- echo", "holdfast lock", "holdfast status a b"] {
            assert_eq!(tip(other), None, "{other}");
        }
    }
}
