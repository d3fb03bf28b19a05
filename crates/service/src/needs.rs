//! What an action needs, by its method's row of the table and by what it is about.

use std::fmt;

use holdfast_core::command::{Acquire, AcquireAll, Action, Member, Mode, Policy};
use holdfast_core::{Command, Grants, LockName, Verb as Right, Verbs};

use crate::method::Verb;

/// What an action is about.
#[derive(Clone, Copy, Debug)]
pub enum About<'a> {
    /// No lock in particular. A verb that is for names then needs all names.
    Nothing,
    Name(&'a str),
    /// All names that begin so.
    Prefix(&'a str),
    /// What the caller may see: the answer leaves out the rest. One name is enough.
    VisibleNames,
    Command(&'a Command),
    /// A command for the efficiency tier.
    InMemory(&'a Command),
}

impl<'a> About<'a> {
    /// The names that it has.
    pub(crate) fn names(self) -> Vec<&'a str> {
        match self {
            About::Nothing | About::Prefix(_) | About::VisibleNames => Vec::new(),
            About::Name(name) => vec![name],
            About::Command(command) | About::InMemory(command) => match command {
                Command::Acquire(acquire) => vec![&acquire.name],
                Command::AcquireAll(acquire) => {
                    acquire.members.iter().map(|member| &*member.name).collect()
                }
                Command::Convert { hold, .. }
                | Command::Release { hold, .. }
                | Command::Renew { hold, .. }
                | Command::Proclaim { hold, .. }
                | Command::Transfer { hold, .. } => vec![&hold.name],
                _ => Vec::new(),
            },
        }
    }
}

/// A verb that the caller does not have, and for what it needs it. The caller named that, so it learns nothing by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Missing<'a> {
    right: Right,
    on: Subject<'a>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject<'a> {
    Cluster,
    Name(&'a str),
    Prefix(&'a str),
    AnyName,
}

impl fmt::Display for Missing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let right = self.right;
        match self.on {
            Subject::Cluster => write!(f, "the verb {right}"),
            Subject::Name(name) => write!(f, "the verb {right} for {name:?}"),
            Subject::Prefix("") => write!(f, "the verb {right} for all names"),
            Subject::Prefix(prefix) => write!(f, "the verb {right} for {:?}", format!("{prefix}*")),
            Subject::AnyName => write!(f, "the verb {right} for any name"),
        }
    }
}

/// Whether the grants allow it, or what is missing.
pub(crate) fn check<'a>(verb: Verb, about: About<'a>, grants: &Grants) -> Result<(), Missing<'a>> {
    let of_cluster = |right| match grants.allow_cluster(right) {
        true => Ok(()),
        false => Err(Missing { right, on: Subject::Cluster }),
    };
    match verb {
        Verb::Open | Verb::Authenticated => Ok(()),
        Verb::Connect => of_cluster(Right::Connect),
        Verb::Sessions => of_cluster(Right::Sessions),
        Verb::KillSession => of_cluster(Right::KillSession),
        Verb::ClusterRead => of_cluster(Right::ClusterRead),
        Verb::ClusterChange => of_cluster(Right::ClusterChange),
        Verb::Snapshot => of_cluster(Right::Snapshot),
        Verb::Metrics => of_cluster(Right::Metrics),
        Verb::Access => of_cluster(Right::Access),
        Verb::Read => on_names(Right::Read, about, grants),
        Verb::Elect => match about {
            About::Command(Command::Acquire(Acquire { name, .. }))
            | About::InMemory(Command::Acquire(Acquire { name, .. })) => {
                let is_allowed = grants.allow_any(ALONE, name);
                needed(is_allowed, Right::Elect, Subject::Name(name))
                    .and_then(|()| check_tier(about, grants))
            }
            _ => on_names(Right::Elect, about, grants),
        },
        Verb::Transfer => {
            on_names(Right::Transfer, about, grants).and_then(|()| check_tier(about, grants))
        }
        Verb::Break => on_names(Right::Break, about, grants),
        Verb::Move => on_names(Right::Move, about, grants),
        Verb::Freeze => on_names(Right::Freeze, about, grants),
        Verb::SetPermits => on_names(Right::SetPermits, about, grants),
        Verb::Lock => match about {
            About::Command(command) | About::InMemory(command) => {
                check_lock(command, grants).and_then(|()| check_tier(about, grants))
            }
            _ => Err(Missing { right: Right::Exclusive, on: Subject::Prefix("") }),
        },
    }
}

/// An election is an exclusive lock, and libraries campaign by acquiring it. So a caller with either verb may do both.
const ALONE: Verbs = Verbs::of(&[Right::Exclusive, Right::Elect]);

/// The weaker tier has a verb of its own, whatever is taken in it.
fn check_tier<'a>(about: About<'a>, grants: &Grants) -> Result<(), Missing<'a>> {
    match about {
        About::InMemory(_) => on_names(Right::Efficiency, about, grants),
        _ => Ok(()),
    }
}

/// One verb, for all that the action is about.
fn on_names<'a>(right: Right, about: About<'a>, grants: &Grants) -> Result<(), Missing<'a>> {
    let verbs = Verbs::of(&[right]);
    let allow = |name: &'a str| needed(grants.allow(verbs, name), right, Subject::Name(name));
    let cover =
        |prefix: &'a str| needed(grants.cover(verbs, prefix), right, Subject::Prefix(prefix));
    match about {
        About::Nothing => cover(""),
        About::Name(name) => allow(name),
        About::Prefix(prefix) => cover(prefix),
        About::VisibleNames => needed(grants.reach(right, ""), right, Subject::AnyName),
        About::Command(command) | About::InMemory(command) => match command {
            Command::Acquire(acquire) => allow(&acquire.name),
            Command::AcquireAll(acquire) => {
                acquire.members.iter().try_for_each(|member| allow(&member.name))
            }
            Command::Convert { hold, .. }
            | Command::Release { hold, .. }
            | Command::Renew { hold, .. }
            | Command::Proclaim { hold, .. }
            | Command::Transfer { hold, .. } => allow(&hold.name),
            Command::Intervene(intervention) => match &intervention.action {
                Action::Break { name, .. }
                | Action::Transfer { name, .. }
                | Action::SetPermits { name, .. }
                | Action::Reopen { name } => allow(name),
                Action::Freeze { prefix, .. } | Action::Thaw { prefix } => cover(prefix),
                Action::KillSession { .. } | Action::SetLimits { .. } => cover(""),
            },
            _ => cover(""),
        },
    }
}

fn needed(is_allowed: bool, right: Right, on: Subject<'_>) -> Result<(), Missing<'_>> {
    if is_allowed { Ok(()) } else { Err(Missing { right, on }) }
}

/// To take a lock, or to keep one. The lock table asks once more, in log order.
fn check_lock<'a>(command: &'a Command, grants: &Grants) -> Result<(), Missing<'a>> {
    let allow = |right: Right, name: &'a LockName| {
        needed(grants.allow(Verbs::of(&[right]), name), right, Subject::Name(name))
    };
    let take = |name: &'a LockName, mode: Mode, policy: Policy| {
        match mode {
            Mode::Exclusive => {
                let is_allowed = grants.allow_any(ALONE, name);
                needed(is_allowed, Right::Exclusive, Subject::Name(name))?;
            }
            Mode::Shared | Mode::Permit { .. } => allow(right_to_hold(mode), name)?,
        }
        if policy == Policy::WoundWait { allow(Right::Wound, name) } else { Ok(()) }
    };
    match command {
        Command::Acquire(Acquire { name, mode, terms, .. }) => take(name, *mode, terms.policy),
        Command::AcquireAll(AcquireAll { members, terms, .. }) => {
            members.iter().try_for_each(|Member { name, mode }| take(name, *mode, terms.policy))
        }
        Command::Convert { hold, to, .. } => allow(right_to_hold(*to), &hold.name),
        // How it is held, the table knows.
        Command::Renew { hold, .. } | Command::Proclaim { hold, .. } => {
            const ANY: Verbs =
                Verbs::of(&[Right::Shared, Right::Exclusive, Right::Permit, Right::Elect]);
            let is_allowed = grants.allow_any(ANY, &hold.name);
            needed(is_allowed, Right::Exclusive, Subject::Name(&hold.name))
        }
        _ => Err(Missing { right: Right::Exclusive, on: Subject::Prefix("") }),
    }
}

fn right_to_hold(mode: Mode) -> Right {
    match mode {
        Mode::Exclusive => Right::Exclusive,
        Mode::Shared => Right::Shared,
        Mode::Permit { .. } => Right::Permit,
    }
}
