//! Checks of a command that do not need the lock table.

use alloc::collections::BTreeSet;

use super::{Acquire, AcquireAll, Action, Call, Command, Intervention, Mode, OpenSession, Terms};
use crate::model::access::change::{ACCESS_CHANGES_MAX, AccessChange, AccessRefusal, ChangeAccess};
use crate::model::access::identity::{CLAIMED_ROLES_MAX, Identity};
use crate::model::access::quota::QUOTAS_MAX;
use crate::model::id::{RequestId, SessionId};
use crate::model::limits::{Limits, NAME_BYTES_MAX};
use crate::model::outcome::Rejection;
use crate::model::rules_version::RulesVersion;
use crate::model::table_limits::TableLimits;
use crate::model::time::Span;

/// The longest lock delay that a table under rules 1 accepts.
const LOCK_DELAY_MAX_OF_RULES_1: Span = Span::from_secs(24 * 60 * 60);

impl Command {
    /// Whether the command is well-formed and within the limits. Front ends should check it before it enters the log;
    /// the table checks it again.
    pub fn check(&self, limits: &Limits) -> Result<(), Rejection> {
        self.check_under(limits, RulesVersion::NEWEST)
    }

    /// The same check under these rules.
    pub(crate) fn check_under(
        &self,
        limits: &Limits,
        rules: RulesVersion,
    ) -> Result<(), Rejection> {
        // A leader refuses such a command before it enters the log. This check is the second one: a table of older
        // rules cannot store an identity.
        let needed = self.rules_needed();
        if needed >= RulesVersion::FOUR && rules < needed {
            return Err(Rejection::RulesNotAdopted);
        }
        match self {
            Command::OpenSession(open) => check_open(open, limits),
            Command::Acquire(acquire) => check_acquire(acquire, limits, rules),
            Command::AcquireAll(acquire) => check_acquire_all(acquire, limits, rules),
            Command::Convert { call, to, wait, .. } => {
                check_request(call.request)?;
                check_wait(*wait, limits)?;
                match to {
                    Mode::Permit { .. } => Err(Rejection::InvalidMode),
                    Mode::Exclusive | Mode::Shared => Ok(()),
                }
            }
            Command::Cancel { call, target } => {
                check_request(call.request)?;
                check_request(*target)?;
                // One request cannot be both an acquire and the cancellation of that acquire.
                if *target == call.request { Err(Rejection::InvalidRequestId) } else { Ok(()) }
            }
            Command::Release { call, .. } | Command::Transfer { call, .. } => {
                check_request(call.request)
            }
            Command::Proclaim { call, metadata, .. } => {
                check_request(call.request)?;
                check_metadata(metadata, limits)
            }
            Command::Intervene(intervention) => check_intervention(intervention, limits),
            Command::Renew { call, ttl, .. } => {
                check_request(call.request)?;
                ttl.map_or(Ok(()), |ttl| check_ttl(ttl, limits))
            }
            Command::AttachStream { identity, .. } => check_identity(identity.as_deref()),
            Command::DetachStream { .. }
            | Command::Abandon { .. }
            | Command::Touch { .. }
            | Command::CloseSession { .. }
            | Command::BeginTerm { .. }
            | Command::Tick
            | Command::EventsPublished { .. }
            | Command::AdoptRules { .. }
            | Command::AdoptPolicy(_)
            | Command::SetOwnership { .. }
            | Command::MoveSlots(_) => Ok(()),
            Command::ChangeAccess(change) => check_change_of_access(change, limits),
        }
    }

    /// The rules version that a log must have adopted before this command may enter it. Older builds cannot read the
    /// command. A leader proposes to adopt a version only when every member can read its log entries.
    pub fn rules_needed(&self) -> RulesVersion {
        match self {
            Command::MoveSlots(_) => RulesVersion::TEN,
            Command::AdoptPolicy(_) => RulesVersion::NINE,
            Command::SetOwnership { .. } => RulesVersion::SEVEN,
            Command::Intervene(Intervention { identity: Some(_), .. }) => RulesVersion::FIVE,
            Command::ChangeAccess(change) if change.sets_quotas() => RulesVersion::SIX,
            Command::ChangeAccess(change) if change.identity.is_some() => RulesVersion::FIVE,
            Command::ChangeAccess(_)
            | Command::OpenSession(OpenSession { identity: Some(_), .. })
            | Command::AttachStream { identity: Some(_), .. } => RulesVersion::FOUR,
            Command::Abandon { .. }
            | Command::Intervene(Intervention {
                action: Action::Reopen { .. } | Action::SetLimits { .. },
                ..
            }) => RulesVersion::TWO,
            _ => RulesVersion::ONE,
        }
    }

    /// Removes the identity from an intervention or a change of the policy if a table under these rules does not check
    /// it. So the command can enter the log.
    pub fn fit_rules(&mut self, rules: RulesVersion) {
        if rules >= RulesVersion::FIVE {
            return;
        }
        match self {
            Command::Intervene(intervention) => intervention.identity = None,
            Command::ChangeAccess(change) => change.identity = None,
            _ => {}
        }
    }

    /// How much work it is to apply the command: how many names it touches. The cost of deadlock detection is not
    /// included; it is bounded per log entry.
    pub fn cost(&self) -> usize {
        match self {
            Command::AcquireAll(acquire) => acquire.members.len().max(1),
            _ => 1,
        }
    }

    /// The call of a command that can wait in a queue, and is then answered when its wait ends. `None` for other
    /// commands.
    pub fn wait(&self) -> Option<Call> {
        match self {
            Command::Acquire(acquire) => Some(acquire.call),
            Command::AcquireAll(acquire) => Some(acquire.call),
            Command::Convert { call, .. } => Some(*call),
            _ => None,
        }
    }

    /// The session and the request id of a command whose answer is stored for deduplication.
    pub fn call_mut(&mut self) -> Option<&mut Call> {
        match self {
            Command::Acquire(acquire) => Some(&mut acquire.call),
            Command::AcquireAll(acquire) => Some(&mut acquire.call),
            Command::Convert { call, .. }
            | Command::Cancel { call, .. }
            | Command::Release { call, .. }
            | Command::Renew { call, .. }
            | Command::Proclaim { call, .. }
            | Command::Transfer { call, .. } => Some(call),
            _ => None,
        }
    }

    /// The session that sent the command. Front ends replace the secret id that the client sent by the id in the table.
    pub fn session_mut(&mut self) -> Option<&mut SessionId> {
        match self {
            Command::OpenSession(open) => Some(&mut open.session),
            Command::AttachStream { session, .. }
            | Command::DetachStream { session, .. }
            | Command::Abandon { session, .. }
            | Command::Touch { session, .. }
            | Command::CloseSession { session } => Some(session),
            command => command.call_mut().map(|call| &mut call.session),
        }
    }

    /// The session that sent it; none for the commands of the leader and of operators.
    pub fn session(&self) -> Option<SessionId> {
        match self {
            Command::OpenSession(open) => Some(open.session),
            Command::AttachStream { session, .. }
            | Command::DetachStream { session, .. }
            | Command::Abandon { session, .. }
            | Command::Touch { session, .. }
            | Command::CloseSession { session } => Some(*session),
            Command::Acquire(acquire) => Some(acquire.call.session),
            Command::AcquireAll(acquire) => Some(acquire.call.session),
            Command::Convert { call, .. }
            | Command::Cancel { call, .. }
            | Command::Release { call, .. }
            | Command::Renew { call, .. }
            | Command::Proclaim { call, .. }
            | Command::Transfer { call, .. } => Some(call.session),
            Command::Intervene(_)
            | Command::BeginTerm { .. }
            | Command::Tick
            | Command::EventsPublished { .. }
            | Command::AdoptRules { .. }
            | Command::AdoptPolicy(_)
            | Command::ChangeAccess(_)
            | Command::SetOwnership { .. }
            | Command::MoveSlots(_) => None,
        }
    }
}

fn check_open(open: &OpenSession, limits: &Limits) -> Result<(), Rejection> {
    check_ttl(open.ttl, limits)?;
    if open.linger > limits.linger_max {
        return Err(Rejection::InvalidTtl);
    }
    let texts = [&open.owner.application, &open.owner.host, &open.owner.note];
    if texts.iter().any(|text| text.len() > limits.owner_text_bytes_max) {
        return Err(Rejection::InvalidOwner);
    }
    check_identity(open.identity.as_deref())
}

fn check_identity(identity: Option<&Identity>) -> Result<(), Rejection> {
    let claimed = identity.map_or(0, |identity| identity.claimed.len());
    if claimed > CLAIMED_ROLES_MAX { Err(Rejection::InvalidIdentity) } else { Ok(()) }
}

fn check_change_of_access(change: &ChangeAccess, limits: &Limits) -> Result<(), Rejection> {
    if change.by.len() > limits.intervention_text_bytes_max {
        return Err(Rejection::InvalidIntervention);
    }
    check_identity(change.identity.as_deref())?;
    let quotas = change.changes.iter().map(|change| match change {
        AccessChange::SetQuotas(quotas) => quotas.len(),
        _ => 0,
    });
    // A change can delete all quotas that there can be, and set as many new ones.
    let fits = (1..=ACCESS_CHANGES_MAX).contains(&change.changes.len())
        && quotas.sum::<usize>() <= 2 * QUOTAS_MAX;
    if fits { Ok(()) } else { Err(Rejection::AccessRefused(AccessRefusal::ChangeCount)) }
}

fn check_acquire(acquire: &Acquire, limits: &Limits, rules: RulesVersion) -> Result<(), Rejection> {
    check_request(acquire.call.request)?;
    check_mode(acquire.mode, &acquire.terms, limits)?;
    check_terms(&acquire.terms, limits, rules)
}

fn check_acquire_all(
    acquire: &AcquireAll,
    limits: &Limits,
    rules: RulesVersion,
) -> Result<(), Rejection> {
    check_request(acquire.call.request)?;
    if !(1..=limits.names_per_acquire_max).contains(&acquire.members.len()) {
        return Err(Rejection::TooManyNames);
    }
    let names: BTreeSet<&str> = acquire.members.iter().map(|member| &*member.name).collect();
    if names.len() < acquire.members.len() {
        return Err(Rejection::DuplicateName);
    }
    for member in &acquire.members {
        check_mode(member.mode, &acquire.terms, limits)?;
    }
    // Such a request would re-enter some of the locks and acquire the others: these are two operations.
    if acquire.terms.reentrant {
        return Err(Rejection::InvalidMode);
    }
    check_terms(&acquire.terms, limits, rules)
}

fn check_mode(mode: Mode, terms: &Terms, limits: &Limits) -> Result<(), Rejection> {
    match mode {
        Mode::Permit { limit } if limit > limits.permits_max => Err(Rejection::InvalidPermits),
        Mode::Permit { .. } if terms.reentrant => Err(Rejection::InvalidMode),
        _ => Ok(()),
    }
}

fn check_terms(terms: &Terms, limits: &Limits, rules: RulesVersion) -> Result<(), Rejection> {
    check_wait(terms.wait, limits)?;
    if let Some(ttl) = terms.ttl {
        check_ttl(ttl, limits)?;
    }
    if let Some(max_hold) = terms.max_hold
        && (max_hold == Span::ZERO || max_hold > limits.max_hold_max)
    {
        return Err(Rejection::InvalidTtl);
    }
    let lock_delay_max = match rules {
        RulesVersion::ONE => LOCK_DELAY_MAX_OF_RULES_1,
        _ => limits.lock_delay_max,
    };
    if terms.lock_delay.is_some_and(|delay| delay > lock_delay_max) {
        return Err(Rejection::InvalidLockDelay);
    }
    check_metadata(&terms.metadata, limits)
}

fn check_intervention(intervention: &Intervention, limits: &Limits) -> Result<(), Rejection> {
    let Intervention { by, reason, action, identity } = intervention;
    check_identity(identity.as_deref())?;
    let too_long = |text: &str| text.len() > limits.intervention_text_bytes_max;
    if reason.trim().is_empty() || too_long(reason) || too_long(by) {
        return Err(Rejection::InvalidIntervention);
    }
    let is_prefix =
        |prefix: &str| prefix.len() <= NAME_BYTES_MAX && !prefix.chars().any(char::is_control);
    match action {
        Action::Freeze { prefix, ttl } => {
            let allowed = is_prefix(prefix) && *ttl > Span::ZERO && *ttl <= limits.freeze_max;
            if allowed { Ok(()) } else { Err(Rejection::InvalidFreeze) }
        }
        Action::SetLimits { bytes, locks } => {
            let default = TableLimits::default();
            let limits = TableLimits {
                bytes: bytes.unwrap_or(default.bytes),
                locks: locks.unwrap_or(default.locks),
            };
            let says_something = bytes.is_some() || locks.is_some();
            let allowed = says_something && limits.are_possible();
            if allowed { Ok(()) } else { Err(Rejection::InvalidLimits) }
        }
        Action::SetPermits { limit: Some(limit), .. }
            if *limit == 0 || *limit > limits.permits_max =>
        {
            Err(Rejection::InvalidPermits)
        }
        _ => Ok(()),
    }
}

fn check_wait(wait: Span, limits: &Limits) -> Result<(), Rejection> {
    if wait > limits.wait_max { Err(Rejection::InvalidWait) } else { Ok(()) }
}

fn check_metadata(metadata: &[u8], limits: &Limits) -> Result<(), Rejection> {
    let too_long = metadata.len() > limits.metadata_bytes_max;
    if too_long { Err(Rejection::InvalidMetadata) } else { Ok(()) }
}

fn check_request(request: RequestId) -> Result<(), Rejection> {
    if request == RequestId(0) { Err(Rejection::InvalidRequestId) } else { Ok(()) }
}

fn check_ttl(ttl: Span, limits: &Limits) -> Result<(), Rejection> {
    let allowed = limits.ttl_min..=limits.ttl_max;
    if allowed.contains(&ttl) { Ok(()) } else { Err(Rejection::InvalidTtl) }
}
