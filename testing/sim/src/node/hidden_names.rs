//! Names that a client may not read are hidden from it in answers about other locks.
//!
//! The node answers `why` as a real one does, and hides what the service hides. What must not be in the answer is decided
//! here by hand, from the rules of the policy.

use holdfast_core::{Access, Identity, LockTable, Pattern, Principal, Rule, Verb};
use holdfast_proto::encode::read;
use holdfast_service::{VisibleNames, hidden_names};

/// Of a simulation, all.
const LOCKS_MAX: usize = 500;
const SHOWN_MAX: usize = 16;

/// What one of the clients is shown of a lock that it may read, though it may not read that. `turn` chooses the client.
pub(super) fn first_shown(table: &LockTable, turn: u64) -> Option<String> {
    let access = table.access();
    let clients = &access.roles().bindings;
    let turn = usize::try_from(turn).unwrap_or_default();
    let client = clients.keys().nth(turn.checked_rem(clients.len())?)?;
    let locks = table.list("", None, LOCKS_MAX);
    let (readable, hidden): (Vec<_>, Vec<_>) =
        locks.into_iter().map(|lock| lock.name).partition(|name| may_read(access, client, name));
    if hidden.is_empty() {
        return None;
    }
    let visible = VisibleNames::to(access.grants(&Identity::of(client.clone())));
    for name in &readable {
        let why = table.why(name, SHOWN_MAX);
        let mut why = read::why(name, why, table.now(), 0, 0);
        hidden_names::in_why(&mut why, &visible);
        let text = format!("{why:?}");
        if let Some(shown) =
            hidden.iter().find(|hidden| text.contains(&format!("{:?}", &***hidden)))
        {
            return Some(format!(
                "{client} may not read {shown}, and is shown it in an answer about {name}"
            ));
        }
    }
    None
}

fn may_read(access: &Access, client: &Principal, name: &str) -> bool {
    let policy = access.roles();
    let roles = policy.bindings.get(client).into_iter().flatten();
    roles.filter_map(|role| policy.roles.get(role)).flatten().any(|rule| match rule {
        Rule::Names { verbs, pattern: Pattern::Exact(exact) } => {
            verbs.contains(Verb::Read) && **exact == *name
        }
        Rule::Names { verbs, pattern: Pattern::Prefix(prefix) } => {
            verbs.contains(Verb::Read) && name.starts_with(&**prefix)
        }
        Rule::Cluster { .. } => false,
    })
}
