//! What an action needs, by its method's row of the table and by what it is about.

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
    Command(&'a Command),
    /// A command for the efficiency tier.
    InMemory(&'a Command),
}

/// Whether the grants allow it.
pub(crate) fn are_met(verb: Verb, about: About<'_>, grants: &Grants) -> bool {
    let of_cluster = |right| grants.allow_cluster(right);
    match verb {
        Verb::Open | Verb::Authenticated => true,
        Verb::Connect => of_cluster(Right::Connect),
        Verb::Sessions => of_cluster(Right::Sessions),
        Verb::KillSession => of_cluster(Right::KillSession),
        Verb::ClusterRead => of_cluster(Right::ClusterRead),
        Verb::ClusterChange => of_cluster(Right::ClusterChange),
        Verb::Snapshot => of_cluster(Right::Snapshot),
        Verb::Metrics => of_cluster(Right::Metrics),
        Verb::Access => of_cluster(Right::Access),
        Verb::Read => on_names(Right::Read, about, grants),
        Verb::Elect => on_names(Right::Elect, about, grants),
        Verb::Transfer => on_names(Right::Transfer, about, grants),
        Verb::Break => on_names(Right::Break, about, grants),
        Verb::Move => on_names(Right::Move, about, grants),
        Verb::Freeze => on_names(Right::Freeze, about, grants),
        Verb::SetPermits => on_names(Right::SetPermits, about, grants),
        Verb::Lock => match about {
            About::Command(command) => may_lock(command, grants),
            About::InMemory(command) => {
                may_lock(command, grants) && on_names(Right::Efficiency, about, grants)
            }
            About::Nothing | About::Name(_) | About::Prefix(_) => false,
        },
    }
}

/// One verb, for all that the action is about.
fn on_names(right: Right, about: About<'_>, grants: &Grants) -> bool {
    let verbs = Verbs::of(&[right]);
    match about {
        About::Nothing => grants.cover(verbs, ""),
        About::Name(name) => grants.allow(verbs, name),
        About::Prefix(prefix) => grants.cover(verbs, prefix),
        About::Command(command) | About::InMemory(command) => {
            let (allow, cover) = (
                |name: &str| grants.allow(verbs, name),
                |prefix: &str| grants.cover(verbs, prefix),
            );
            match command {
                Command::Acquire(acquire) => allow(&acquire.name),
                Command::AcquireAll(acquire) => {
                    acquire.members.iter().all(|member| allow(&member.name))
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
            }
        }
    }
}

/// To take a lock, or to keep one. The lock table asks once more, in log order.
fn may_lock(command: &Command, grants: &Grants) -> bool {
    let take = |name: &LockName, mode: Mode, policy: Policy| {
        let wound = policy == Policy::WoundWait;
        let needed = Verbs::of(&[right_to_hold(mode)]);
        let needed = if wound { needed.and(Verbs::of(&[Right::Wound])) } else { needed };
        grants.allow(needed, name)
    };
    match command {
        Command::Acquire(Acquire { name, mode, terms, .. }) => take(name, *mode, terms.policy),
        Command::AcquireAll(AcquireAll { members, terms, .. }) => {
            members.iter().all(|Member { name, mode }| take(name, *mode, terms.policy))
        }
        Command::Convert { hold, to, .. } => {
            grants.allow(Verbs::of(&[right_to_hold(*to)]), &hold.name)
        }
        // How it is held, the table knows.
        Command::Renew { hold, .. } | Command::Proclaim { hold, .. } => {
            const ANY: Verbs =
                Verbs::of(&[Right::Shared, Right::Exclusive, Right::Permit, Right::Elect]);
            grants.allow_any(ANY, &hold.name)
        }
        _ => false,
    }
}

fn right_to_hold(mode: Mode) -> Right {
    match mode {
        Mode::Exclusive => Right::Exclusive,
        Mode::Shared => Right::Shared,
        Mode::Permit { .. } => Right::Permit,
    }
}
