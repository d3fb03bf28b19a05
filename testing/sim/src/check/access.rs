//! Nothing is granted to a principal that may not have it, in the order of the log: not at once, not after a wait, and
//! not as a part of an acquire-all. If a change of the policy ends sessions, those of the principals that it names end
//! in the same entry. The account of the policy is kept here by hand, from the changes that the log of the root group
//! tells. Another group has those of the generations that it has adopted, and the generation only rises.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_core::command::Mode;
use holdfast_core::{
    AccessChange, ChangeAccess, Event, LockName, Pattern, Principal, Roles, Rule, SessionId, Verb,
    Verbs,
};

use super::evidence::Evidence;
use super::findings::{Findings, Who};
use crate::history::Violation;

/// Of a simulation: one role, which some clients have.
#[derive(Default)]
struct Policy {
    /// All of it was told. A cluster that was restored has a policy of which the history does not tell.
    is_known: bool,
    clients: BTreeSet<Principal>,
    rules: Vec<Rule>,
}

impl Policy {
    fn change(&mut self, change: &AccessChange) {
        match change {
            AccessChange::Replace(Roles { roles, bindings }) => {
                self.is_known = true;
                self.clients = bindings.keys().cloned().collect();
                self.rules = roles.values().flatten().cloned().collect();
            }
            AccessChange::PutRole { rules, .. } => self.rules = rules.clone(),
            AccessChange::Ban { principal } | AccessChange::Revoke { principal, .. } => {
                self.clients.remove(principal);
            }
            AccessChange::Grant { principal, .. } => drop(self.clients.insert(principal.clone())),
            AccessChange::DeleteRole { .. } => self.rules.clear(),
            AccessChange::PutToken(_)
            | AccessChange::RevokeToken { .. }
            | AccessChange::SetQuotas(_) => {}
        }
    }

    /// The principals whose sessions the change ends, as far as it names them.
    fn ended_by(change: &ChangeAccess) -> impl Iterator<Item = &Principal> {
        let changes = change.changes.iter().filter(|_| change.end_sessions);
        changes.filter_map(|change| match change {
            AccessChange::Ban { principal } | AccessChange::Revoke { principal, .. } => {
                Some(principal)
            }
            _ => None,
        })
    }

    fn may_hold(&self, principal: &Principal, name: &LockName, mode: Mode) -> bool {
        let verb = match mode {
            Mode::Exclusive => Verb::Exclusive,
            Mode::Shared => Verb::Shared,
            Mode::Permit { .. } => Verb::Permit,
        };
        let allows = |rule: &Rule| match rule {
            Rule::Names { verbs, pattern } => verbs.contains(verb) && fits(pattern, name),
            Rule::Cluster { .. } => false,
        };
        self.clients.contains(principal) && self.rules.iter().any(allows)
    }

    fn may_connect(&self, principal: &Principal) -> bool {
        let connect = Verbs::of(&[Verb::Connect]);
        let allows =
            |rule: &Rule| matches!(rule, Rule::Cluster { verbs } if verbs.contains_all(connect));
        self.clients.contains(principal) && self.rules.iter().any(allows)
    }
}

fn fits(pattern: &Pattern, name: &LockName) -> bool {
    match pattern {
        Pattern::Exact(exact) => **exact == **name,
        Pattern::Prefix(prefix) => name.starts_with(&**prefix),
    }
}

pub fn check(history: &Evidence<'_>) -> Vec<Violation> {
    let mut findings = Findings::of("access");
    let mut policy = Policy::default();
    let mut checked: BTreeMap<SessionId, Principal> = BTreeMap::new();
    let mut open: BTreeSet<SessionId> = BTreeSet::new();
    let mut generation = 0;
    for entry in history.log() {
        let index = entry.index.0;
        let mut to_end: BTreeSet<SessionId> = BTreeSet::new();
        for event in &entry.events {
            let changes: Vec<&ChangeAccess> = match event {
                Event::AccessChanged { change, .. } => vec![change],
                Event::PolicyAdopted { generation: adopted } => {
                    if *adopted <= generation {
                        findings.add(format!(
                            "the policy of generation {adopted} was adopted at index {index}, after {generation}"
                        ));
                    }
                    let changes = history.adopted_changes(generation, *adopted).collect();
                    generation = *adopted;
                    changes
                }
                _ => Vec::new(),
            };
            for change in changes {
                change.changes.iter().for_each(|change| policy.change(change));
                for principal in Policy::ended_by(change) {
                    let is_of = |id: &&SessionId| checked.get(*id) == Some(principal);
                    to_end.extend(open.iter().filter(is_of));
                }
            }
            match event {
                Event::SessionEnding { session, .. } | Event::SessionEnded { session, .. } => {
                    open.remove(session);
                    to_end.remove(session);
                }
                Event::SessionOpened { session, principal: Some(principal), .. } => {
                    if policy.is_known && !policy.may_connect(principal) {
                        findings.add(format!("{principal} opened a session at index {index}"));
                    }
                    checked.insert(*session, principal.clone());
                    open.insert(*session);
                }
                Event::Granted { name, session, mode, .. }
                | Event::Converted { name, session, mode, .. } => {
                    let principal = checked.get(session).filter(|_| policy.is_known);
                    if let Some(principal) = principal
                        && !policy.may_hold(principal, name, *mode)
                    {
                        findings.add(format!(
                            "{} of {principal} was granted {name} ({mode:?}) at index {index}, though the policy \
                             forbids it",
                            Who(*session)
                        ));
                    }
                }
                _ => {}
            }
        }
        for session in to_end {
            findings.add(format!(
                "{} goes on after index {index}, where a change of the policy ended it",
                Who(session)
            ));
        }
    }
    findings.into_violations()
}

#[cfg(test)]
mod tests {
    use holdfast_core::{EndReason, PublicSessionId, RoleName};

    use super::*;
    use crate::check::test_history::*;

    fn client() -> Principal {
        Principal::parse("cert:client-1").unwrap()
    }

    fn changed(change: AccessChange) -> Event {
        let (by, changes) = ("cert:root".into(), [change].into());
        let (identity, expected) = (None, None);
        let change = ChangeAccess { by, identity, expected, changes, end_sessions: false };
        Event::AccessChanged { change: Box::new(change), generation: 1 }
    }

    fn role() -> RoleName {
        RoleName::parse("clients").unwrap()
    }

    fn allowed(pattern: &str) -> Vec<Rule> {
        let pattern = Pattern::parse(pattern).unwrap();
        let names = Rule::on_names(Verbs::of(&[Verb::Exclusive]), pattern);
        [names, Rule::on_cluster(Verbs::of(&[Verb::Connect]))].into_iter().flatten().collect()
    }

    fn opened_as(session: u128, principal: Option<Principal>) -> Event {
        let (session, public) = (SessionId(session), PublicSessionId(session as u64));
        Event::SessionOpened { session, public, owner: Box::default(), principal }
    }

    /// The policy allows everything, and a session is open.
    fn begun(principal: Option<Principal>) -> TestHistory {
        let mut history = TestHistory::default();
        let roles = BTreeMap::from([(role(), allowed("*"))]);
        let bindings = BTreeMap::from([(client(), BTreeSet::from([role()]))]);
        history.log(1, [changed(AccessChange::Replace(Roles { roles, bindings }))]);
        history.log(2, [opened_as(1, principal)]);
        history
    }

    #[test]
    fn a_grant_after_a_revocation_is_found_and_one_before_it_is_not() {
        let mut history = begun(Some(client()));
        history.log(3, [granted("a", 1, 1, 1)]);
        let ban = changed(AccessChange::Ban { principal: client() });
        history.log(4, [ban]);
        assert_eq!(check(&history.evidence()), []);
        history.log(5, [granted("b", 1, 2, 2)]);
        history.log(6, [opened_as(2, Some(client()))]);
        assert_eq!(check(&history.evidence()).len(), 2);
    }

    #[test]
    fn a_name_outside_of_the_rules_is_found() {
        let mut history = begun(Some(client()));
        history.log(3, [changed(AccessChange::PutRole { role: role(), rules: allowed("eu/*") })]);
        history.log(4, [granted("eu/a", 1, 1, 1)]);
        assert_eq!(check(&history.evidence()), []);
        history.log(5, [granted("us/a", 1, 2, 2)]);
        assert_eq!(check(&history.evidence()).len(), 1);
    }

    fn ban() -> ChangeAccess {
        let changes = [AccessChange::Ban { principal: client() }].into();
        let (by, identity, expected) = ("cert:root".into(), None, None);
        ChangeAccess { by, identity, expected, changes, end_sessions: true }
    }

    #[test]
    fn a_session_that_outlives_its_end_by_the_policy_is_found() {
        let mut history = begun(Some(client()));
        let banned = Event::AccessChanged { change: Box::new(ban()), generation: 2 };
        let (session, public) = (SessionId(1), PublicSessionId(1));
        let ended = Event::SessionEnded { session, public, reason: EndReason::Killed };
        let mut whole = history.clone();
        whole.log(3, [banned.clone(), ended]);
        assert_eq!(check(&whole.evidence()), []);
        history.log(3, [banned]);
        assert_eq!(check(&history.evidence()).len(), 1);
    }

    #[test]
    fn a_group_is_judged_by_the_generations_that_it_has_adopted() {
        let mut history = begun(Some(client()));
        history.history.changes_in_root = BTreeMap::from([(5, ban())]);
        history.log(3, [granted("a", 1, 1, 1)]);
        history.log(4, [Event::PolicyAdopted { generation: 4 }]);
        history.log(5, [granted("b", 1, 2, 2)]);
        assert_eq!(check(&history.evidence()), []);
        // The session goes on, and is granted a lock.
        history.log(6, [Event::PolicyAdopted { generation: 6 }]);
        history.log(7, [granted("c", 1, 3, 3)]);
        assert_eq!(check(&history.evidence()).len(), 2);
        history.log(8, [Event::PolicyAdopted { generation: 6 }]);
        assert_eq!(check(&history.evidence()).len(), 3, "it is adopted again");
    }

    #[test]
    fn a_session_that_is_not_checked_may_have_everything() {
        let mut history = begun(None);
        history.log(3, [changed(AccessChange::Ban { principal: client() })]);
        history.log(4, [granted("a", 1, 1, 1)]);
        assert_eq!(check(&history.evidence()), []);
    }
}
