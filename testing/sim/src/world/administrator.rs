//! An administrator of the root group who takes rights from clients, or gives them low quotas, and undoes it. From its first change on, all nodes demand to know
//! who a client is, so that sessions which come from then on are checked against the policy. The other groups adopt it.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_core::{
    AccessChange, ChangeAccess, Command, Event, Pattern, Quota, QuotaSubject, RoleName, Roles,
    Rule, Scope, Verb, Verbs,
};

use holdfast_replica::GroupId;

use crate::client::principal;
use crate::fault::Undo;
use crate::history::RealTime;
use crate::node::Incoming;
use crate::recorder::place;
use crate::world::{Due, World};

/// What clients may do is mended so often.
const MEND_US: u64 = 2_000_000;
/// The patterns of a role from which some are left out.
const PATTERNS: [&str; 6] = ["own-*", "hot-*", "mix-0", "mix-1", "mix-2*", "sem-*"];
/// Those that can have a quota.
const LIMITED_PREFIXES: [&str; 3] = ["hot-*", "mix-*", "sem-*"];

#[derive(Debug, Default)]
pub(crate) struct Administrator {
    /// A policy was in force at some node: clients say who they are.
    pub(crate) is_checked: bool,
    /// It has begun, and looks after the policy.
    is_at_work: bool,
    /// Faults that have taken rights and are not over.
    revocations: usize,
}

fn role() -> Option<RoleName> {
    RoleName::parse("clients").ok()
}

/// To connect, and to use locks of these names.
fn rules(patterns: &[&str]) -> Vec<Rule> {
    let mut uses = Verbs::of(Verb::ALL).within(Scope::Names);
    uses = uses.without(Verbs::of(&[Verb::Break, Verb::Move, Verb::Freeze, Verb::SetPermits]));
    let names = patterns.iter().filter_map(|pattern| {
        let pattern = Pattern::parse(pattern).ok()?;
        Rule::on_names(uses, pattern)
    });
    names.chain(Rule::on_cluster(Verbs::of(&[Verb::Connect]))).collect()
}

impl World {
    /// Everything is allowed to every client.
    fn everything(&self) -> Option<Roles> {
        let role = role()?;
        let clients = (0..self.clients.len()).filter_map(principal);
        let bindings = clients.map(|client| (client, BTreeSet::from([role.clone()]))).collect();
        Some(Roles { roles: BTreeMap::from([(role, rules(&["*"]))]), bindings })
    }

    pub(crate) fn revoke(&mut self) -> Option<Undo> {
        let group = GroupId::FIRST;
        let administrator = &mut self.administrators[place(group)];
        if !administrator.is_checked {
            if !std::mem::replace(&mut administrator.is_at_work, true) {
                self.agenda.plan(self.now, Due::MendAccess(group));
            }
            return None;
        }
        let client = principal(self.fault_rng.index(self.clients.len()))?;
        let change = match self.fault_rng.below(4) {
            0 => AccessChange::Ban { principal: client },
            1 => AccessChange::Revoke { principal: client, role: role()? },
            2 => AccessChange::SetQuotas(self.low_quotas()),
            _ => {
                let mut patterns = PATTERNS.to_vec();
                self.fault_rng.shuffle(&mut patterns);
                patterns.truncate(self.fault_rng.between(2, 5) as usize);
                AccessChange::PutRole { role: role()?, rules: rules(&patterns) }
            }
        };
        let end_sessions = self.fault_rng.percent(30);
        self.change_access(group, change, end_sessions)?;
        self.administrators[place(group)].revocations += 1;
        Some(Undo::GiveRightsBack(group))
    }

    /// None for any subject that could have one: the checker knows all quotas from the last change of them.
    fn no_quotas(&self) -> BTreeMap<QuotaSubject, Quota> {
        let clients = (0..self.clients.len()).filter_map(principal).map(QuotaSubject::Principal);
        let prefixes = LIMITED_PREFIXES.iter().filter_map(|text| QuotaSubject::parse(text).ok());
        clients.chain(prefixes).map(|subject| (subject, Quota::default())).collect()
    }

    /// For some clients and prefixes, of one or two locks.
    fn low_quotas(&mut self) -> BTreeMap<QuotaSubject, Quota> {
        let mut quotas = self.no_quotas();
        for quota in quotas.values_mut() {
            if self.fault_rng.percent(50) {
                quota.locks = Some(self.fault_rng.between(1, 2));
                quota.waits = self.fault_rng.percent(50).then(|| self.fault_rng.below(2));
            }
        }
        quotas
    }

    pub(crate) fn give_rights_back(&mut self, group: GroupId) {
        let administrator = &mut self.administrators[place(group)];
        administrator.revocations = administrator.revocations.saturating_sub(1);
    }

    /// Makes the policy whole if nothing is meant to be missing. A leader may have been lost with the change before.
    pub(crate) fn mend_access(&mut self, group: GroupId) {
        self.agenda.plan(RealTime(self.now.0 + MEND_US), Due::MendAccess(group));
        let Some(everything) = self.everything() else { return };
        let leader = self.leader(group).and_then(|leader| self.nodes[leader].replica(group));
        let Some(in_force) = leader.map(|replica| replica.table().access()) else { return };
        let (is_whole, is_limited) =
            (*in_force.roles() == everything, !in_force.quotas().is_empty());
        let has_revoked = self.administrators[place(group)].revocations > 0;
        if !has_revoked && !is_whole {
            self.change_access(group, AccessChange::Replace(everything), false);
        }
        if !has_revoked && is_limited {
            self.change_access(group, AccessChange::SetQuotas(self.no_quotas()), false);
        }
    }

    fn change_access(
        &mut self,
        group: GroupId,
        change: AccessChange,
        end_sessions: bool,
    ) -> Option<()> {
        let leader = self.leader(group)?;
        self.trace.line(self.now, || format!("administrator: {change:?}"));
        let (by, identity, expected) = ("cert:administrator".into(), None, None);
        let changes = [change].into();
        let change = ChangeAccess { by, identity, expected, changes, end_sessions };
        let command = Command::ChangeAccess(Box::new(change));
        let after = self.fault_rng.between(200, 50_000);
        self.schedule_input(
            leader,
            Incoming::Administer { group, command: Box::new(command) },
            after,
        );
        Some(())
    }

    pub(crate) fn note_policy(&mut self, group: GroupId, event: &Event) {
        self.administrators[place(group)].is_checked |=
            matches!(event, Event::AccessChanged { .. } | Event::PolicyAdopted { .. });
    }
}
