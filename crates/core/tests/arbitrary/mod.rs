//! Random commands over few sessions and few names, so that they meet.

use holdfast_core::command::{
    Acquire, AcquireAll, Action, Call, HoldRef, Intervention, Member, Mode, OpenSession, Owner,
    Policy, Terms,
};
use holdfast_core::{
    Access, AccessChange, ActorId, ChangeAccess, Command, FenceToken, Identity, Limits, LockName,
    LockTable, LogIndex, LogicalTime, MapEpoch, Pattern, Principal, PublicSessionId, Quota,
    QuotaSubject, RequestId, RoleName, Rule, RulesVersion, SessionId, Slot, SlotSet, Span,
    StreamId, TokenId, TokenRecord, Verb, Verbs,
};
use proptest::prelude::*;

pub(crate) const PRINCIPALS: [&str; 3] = ["cert:zero", "token:one", "token:two"];
pub(crate) const NAMES: [&str; 3] = ["wallet", "keys", "eu/hat"];

/// Any command, well-formed or not.
pub(crate) fn command() -> impl Strategy<Value = Command> {
    prop_oneof![
        2 => open_session().prop_map(Command::OpenSession),
        1 => (session(), stream()).prop_map(|(session, stream)| Command::AttachStream {
            session,
            stream,
            identity: identity(session),
        }),
        1 => (session(), stream())
            .prop_map(|(session, stream)| Command::DetachStream { session, stream }),
        1 => (session(), acked_through())
            .prop_map(|(session, acked_through)| Command::Touch { session, acked_through }),
        1 => session().prop_map(|session| Command::CloseSession { session }),
        12 => acquire().prop_map(Command::Acquire),
        4 => acquire_all().prop_map(Command::AcquireAll),
        3 => (call(), request()).prop_map(|(call, target)| Command::Cancel { call, target }),
        1 => (session(), request())
            .prop_map(|(session, request)| Command::Abandon { session, request }),
        6 => (call(), hold()).prop_map(|(call, hold)| Command::Release { call, hold }),
        3 => (call(), hold(), ttl()).prop_map(|(call, hold, ttl)| Command::Renew { call, hold, ttl }),
        3 => (call(), hold(), mode(), wait(), policy()).prop_map(|(call, hold, to, wait, policy)| {
            Command::Convert { call, hold, to, wait, policy }
        }),
        1 => (call(), hold(), metadata())
            .prop_map(|(call, hold, metadata)| Command::Proclaim { call, hold, metadata }),
        2 => (call(), hold(), session())
            .prop_map(|(call, hold, to)| Command::Transfer { call, hold, to: public(to) }),
        2 => intervention().prop_map(Command::Intervene),
        1 => (0_u64..2_000).prop_map(|ms| Command::BeginTerm { grace: Span::from_ms(ms) }),
        4 => Just(Command::Tick),
        2 => (0_u64..40, 0_u64..400, 0_u64..4).prop_map(|(through, index, term)| {
            Command::EventsPublished { through, index: LogIndex(index), term }
        }),
        1 => prop_oneof![Just(RulesVersion::ONE), Just(RulesVersion::TWO), Just(RulesVersion::THREE), Just(RulesVersion::FOUR), Just(RulesVersion::FIVE), Just(RulesVersion::SIX), Just(RulesVersion::SEVEN), Just(RulesVersion::EIGHT), Just(RulesVersion::NINE), Just(RulesVersion::TEN)]
            .prop_map(|version| Command::AdoptRules { version }),
        3 => change_of_access().prop_map(Command::ChangeAccess),
        3 => proptest::collection::vec(change_of_access(), 0..6)
            .prop_map(|changes| Command::AdoptPolicy(Box::new(policy_of(changes)))),
        3 => (0_u64..40, slots()).prop_map(|(epoch, slots)| Command::SetOwnership {
            epoch: MapEpoch(epoch),
            slots,
        }),
    ]
}

/// The policy after these changes.
fn policy_of(changes: impl IntoIterator<Item = Box<ChangeAccess>>) -> Access {
    let mut table = LockTable::with_rules(Limits::default(), RulesVersion::NEWEST);
    for (index, change) in (1..).zip(changes) {
        let (index, change) = (LogIndex(index), Command::ChangeAccess(change));
        table.apply(index, LogicalTime::ZERO, change, &mut Vec::new());
    }
    table.access().clone()
}

/// All slots, or all but those of some names.
fn slots() -> impl Strategy<Value = SlotSet> {
    let but_some = proptest::sample::subsequence(NAMES.to_vec(), 1..=NAMES.len());
    prop_oneof![
        2 => Just(SlotSet::ALL),
        2 => but_some.prop_map(|names| {
            let mut slots = SlotSet::ALL;
            names.iter().for_each(|name| slots.remove(Slot::of(name)));
            slots
        }),
    ]
}

fn open_session() -> impl Strategy<Value = OpenSession> {
    (session(), proptest::option::of(stream())).prop_map(|(session, stream)| {
        // Settings follow from the id: opening again is a retry, mostly.
        let number = session.0 as u64;
        OpenSession {
            session,
            public: public(session),
            stream,
            ttl: Span::from_ms(1_000 * (number + 1)),
            linger: Span::from_ms(500 * number),
            owner: Owner { application: format!("app-{number}"), ..Owner::default() },
            identity: identity(session),
        }
    })
}

/// Some sessions have one, the others are not checked.
fn identity(session: SessionId) -> Option<Box<Identity>> {
    let principal = PRINCIPALS.get(session.0 as usize)?;
    let mut identity = Identity::of(Principal::parse(principal).unwrap());
    if session.0 == 1 {
        identity.claimed.insert(RoleName::parse("readers").unwrap());
    }
    Some(Box::new(identity))
}

fn change_of_access() -> impl Strategy<Value = Box<ChangeAccess>> {
    let principal =
        || (0..PRINCIPALS.len()).prop_map(|at| Principal::parse(PRINCIPALS[at]).unwrap());
    let role = || {
        prop_oneof![3 => Just("user"), 1 => Just("reader"), 2 => Just("readers")]
            .prop_map(|name| RoleName::parse(name).unwrap())
    };
    let pattern = prop_oneof![Just("wallet"), Just("eu/*"), Just("*")];
    let change = prop_oneof![
        6 => (principal(), role())
            .prop_map(|(principal, role)| AccessChange::Grant { principal, role }),
        2 => (principal(), role())
            .prop_map(|(principal, role)| AccessChange::Revoke { principal, role }),
        1 => principal().prop_map(|principal| AccessChange::Ban { principal }),
        2 => pattern.prop_map(|pattern| AccessChange::PutRole {
            role: RoleName::parse("readers").unwrap(),
            rules: [
                Rule::on_names(Verbs::of(&[Verb::Shared]), Pattern::parse(pattern).unwrap()),
                Rule::on_cluster(Verbs::of(&[Verb::Connect])),
            ].into_iter().flatten().collect(),
        }),
        1 => (principal(), 0_u64..3).prop_map(|(principal, id)| AccessChange::PutToken(TokenRecord {
            id: TokenId(id),
            digest: [id as u8; 32],
            principal,
            expires_at_unix_ms: Some(5),
            note: String::from("ci"),
        })),
        1 => (0_u64..3).prop_map(|id| AccessChange::RevokeToken { id: TokenId(id) }),
        3 => (quota_subject(), quota())
            .prop_map(|(subject, quota)| AccessChange::SetQuotas([(subject, quota)].into())),
    ];
    let changes = proptest::collection::vec(change, 0..3).prop_map(Vec::into_boxed_slice);
    let expected = proptest::option::weighted(0.1, 0_u64..20);
    (changes, expected, proptest::bool::weighted(0.3)).prop_map(
        |(changes, expected, end_sessions)| {
            let (by, identity) = ("token:root".into(), None);
            Box::new(ChangeAccess { by, identity, expected, changes, end_sessions })
        },
    )
}

fn quota_subject() -> impl Strategy<Value = QuotaSubject> {
    let prefixes = ["*", "eu/*", "w*"];
    proptest::sample::select([&prefixes[..], &PRINCIPALS[..]].concat())
        .prop_map(|text| QuotaSubject::parse(text).unwrap())
}

fn quota() -> impl Strategy<Value = Quota> {
    let number = || proptest::option::weighted(0.6, 0_u64..6);
    (number(), number(), number()).prop_map(|(sessions, locks, waits)| Quota {
        sessions,
        locks,
        waits,
        ..Quota::default()
    })
}

pub(crate) fn public(session: SessionId) -> PublicSessionId {
    PublicSessionId(u64::MAX - session.0 as u64)
}

fn acquire() -> impl Strategy<Value = Acquire> {
    (call(), 0_u64..3, name(), mode(), terms()).prop_map(|(call, actor, name, mode, terms)| {
        Acquire { call, actor: ActorId(actor), name, mode, terms }
    })
}

fn acquire_all() -> impl Strategy<Value = AcquireAll> {
    let member = (name(), mode()).prop_map(|(name, mode)| Member { name, mode });
    let members = proptest::collection::vec(member, 1..=3).prop_map(Vec::into_boxed_slice);
    (call(), 0_u64..3, members, terms()).prop_map(|(call, actor, members, terms)| AcquireAll {
        call,
        actor: ActorId(actor),
        members,
        terms,
    })
}

fn terms() -> impl Strategy<Value = Terms> {
    let since = proptest::option::weighted(0.2, (0_u64..9_000).prop_map(LogicalTime::from_ms));
    let max_hold = proptest::option::weighted(0.2, (1_u64..4_000).prop_map(Span::from_ms));
    let lock_delay = proptest::option::weighted(0.2, (0_u64..2_000).prop_map(Span::from_ms));
    let flags = (proptest::bool::weighted(0.4), proptest::bool::weighted(0.2));
    (wait(), policy(), since, flags, ttl(), max_hold, lock_delay, metadata()).prop_map(
        |(wait, policy, since, (preemptible, reentrant), ttl, max_hold, lock_delay, metadata)| {
            Terms {
                wait,
                policy,
                since,
                preemptible,
                reentrant,
                ttl,
                max_hold,
                lock_delay,
                metadata,
            }
        },
    )
}

fn intervention() -> impl Strategy<Value = Intervention> {
    let prefix = || prop_oneof![Just(""), Just("w"), Just("eu/")].prop_map(Box::from);
    let action = prop_oneof![
        (name(), proptest::option::of(token()))
            .prop_map(|(name, token)| Action::Break { name, token }),
        (name(), token(), session()).prop_map(|(name, token, to)| Action::Transfer {
            name,
            token,
            to: public(to)
        }),
        (prefix(), 0_u64..3_000)
            .prop_map(|(prefix, ms)| Action::Freeze { prefix, ttl: Span::from_ms(ms) }),
        prefix().prop_map(|prefix| Action::Thaw { prefix }),
        name().prop_map(|name| Action::Reopen { name }),
        (name(), proptest::option::of(0_u32..4))
            .prop_map(|(name, limit)| Action::SetPermits { name, limit }),
        session().prop_map(|session| Action::KillSession { session: public(session) }),
        // More than these histories take: what is refused at a limit is tested elsewhere.
        (proptest::option::of(1_u64..100), proptest::option::of(1_000_u64..2_000))
            .prop_map(|(mib, locks)| Action::SetLimits { bytes: mib.map(|mib| mib << 20), locks }),
    ];
    let reason = prop_oneof![5 => Just("it is stuck"), 1 => Just("")].prop_map(Box::from);
    (reason, action).prop_map(|(reason, action)| Intervention {
        by: "an operator".into(),
        reason,
        action,
        identity: None,
    })
}

fn mode() -> impl Strategy<Value = Mode> {
    prop_oneof![
        4 => Just(Mode::Exclusive),
        3 => Just(Mode::Shared),
        3 => (0_u32..4).prop_map(|limit| Mode::Permit { limit }),
    ]
}

fn policy() -> impl Strategy<Value = Policy> {
    prop_oneof![
        3 => Just(Policy::Detect),
        1 => Just(Policy::Wait),
        2 => Just(Policy::WaitDie),
        2 => Just(Policy::WoundWait),
    ]
}

fn wait() -> impl Strategy<Value = Span> {
    prop_oneof![Just(0_u64), 1..5_000_u64].prop_map(Span::from_ms)
}

fn metadata() -> impl Strategy<Value = Box<[u8]>> {
    proptest::collection::vec(any::<u8>(), 0..3).prop_map(Vec::into_boxed_slice)
}

fn hold() -> impl Strategy<Value = HoldRef> {
    let acquire = prop_oneof![4 => Just(RequestId(0)), 1 => request()];
    (name(), token(), acquire).prop_map(|(name, token, acquire)| HoldRef { name, token, acquire })
}

fn call() -> impl Strategy<Value = Call> {
    (session(), request(), acked_through()).prop_map(|(session, request, acked_through)| Call {
        session,
        request,
        acked_through,
    })
}

fn session() -> impl Strategy<Value = SessionId> {
    (1_u128..=4).prop_map(SessionId)
}

fn stream() -> impl Strategy<Value = StreamId> {
    (1_u64..=3).prop_map(StreamId)
}

fn request() -> impl Strategy<Value = RequestId> {
    (0_u64..=30).prop_map(RequestId)
}

fn acked_through() -> impl Strategy<Value = RequestId> {
    prop_oneof![6 => Just(0_u64), 1 => 1_u64..=20].prop_map(RequestId)
}

fn name() -> impl Strategy<Value = LockName> {
    (0..NAMES.len()).prop_map(|number| LockName::new(NAMES[number]).unwrap())
}

fn token() -> impl Strategy<Value = FenceToken> {
    (0_u64..=12).prop_map(FenceToken)
}

fn ttl() -> impl Strategy<Value = Option<Span>> {
    proptest::option::weighted(0.3, (90_u64..3_000).prop_map(Span::from_ms))
}
