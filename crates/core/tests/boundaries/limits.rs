//! What may be asked for: names, times, sizes, numbers.

use holdfast_core::command::{Acquire, Action, Intervention, Mode, OpenSession, Owner};
use holdfast_core::{
    Command, Limits, LockName, NAME_BYTES_MAX, NameError, Outcome, Rejection, Span,
};

use crate::world::{World, lock_name};
use crate::{just_over, just_under, wallet, world};

#[test]
fn the_limits_of_a_session_are_themselves_allowed() {
    let limits = Limits::default();
    let open = |change: &dyn Fn(&mut OpenSession)| {
        let mut world = World::new(limits.clone());
        let mut open = world.opening("alice", Span::from_secs(30));
        change(&mut open);
        world.apply(Command::OpenSession(open))
    };
    let is_open = |outcome| matches!(outcome, Outcome::SessionOpen { .. });
    assert!(is_open(open(&|open| open.ttl = limits.ttl_min)));
    assert!(is_open(open(&|open| open.ttl = limits.ttl_max)));
    assert!(is_open(open(&|open| open.linger = Span::ZERO)));
    assert!(is_open(open(&|open| open.linger = limits.linger_max)));
    let invalid_ttl = Outcome::Rejected(Rejection::InvalidTtl);
    assert_eq!(open(&|open| open.ttl = just_under(limits.ttl_min)), invalid_ttl);
    assert_eq!(open(&|open| open.ttl = just_over(limits.ttl_max)), invalid_ttl);
    assert_eq!(open(&|open| open.linger = just_over(limits.linger_max)), invalid_ttl);

    let texts: [fn(&mut Owner) -> &mut String; 3] =
        [|owner| &mut owner.application, |owner| &mut owner.host, |owner| &mut owner.note];
    for text in texts {
        let of_length = |bytes| open(&|open| *text(&mut open.owner) = "x".repeat(bytes));
        assert!(is_open(of_length(limits.owner_text_bytes_max)));
        let refused = of_length(limits.owner_text_bytes_max + 1);
        assert_eq!(refused, Outcome::Rejected(Rejection::InvalidOwner));
    }
}

#[test]
fn the_limits_of_an_acquire_are_themselves_allowed() {
    let limits = Limits::default();
    let acquire = |change: &dyn Fn(&mut Acquire)| {
        let mut world = world();
        let mut acquire = world.acquiring("alice", 1, "wallet", 0);
        change(&mut acquire);
        world.apply(Command::Acquire(acquire))
    };
    let is_granted = |outcome| matches!(outcome, Outcome::Granted(_));
    assert!(is_granted(acquire(&|acquire| acquire.terms.wait = limits.wait_max)));
    assert!(is_granted(acquire(&|acquire| acquire.terms.ttl = Some(limits.ttl_min))));
    assert!(is_granted(acquire(&|acquire| acquire.terms.max_hold = Some(Span::from_ms(1)))));
    assert!(is_granted(acquire(&|acquire| acquire.terms.max_hold = Some(limits.max_hold_max))));
    assert!(is_granted(acquire(&|acquire| acquire.terms.lock_delay = Some(limits.lock_delay_max))));
    let metadata = |bytes| acquire(&|acquire| acquire.terms.metadata = vec![7; bytes].into());
    assert!(is_granted(metadata(limits.metadata_bytes_max)));

    let refused = |outcome, rejection| assert_eq!(outcome, Outcome::Rejected(rejection));
    let over = |acquire: &mut Acquire| acquire.terms.wait = just_over(limits.wait_max);
    refused(acquire(&over), Rejection::InvalidWait);
    let over = |acquire: &mut Acquire| acquire.terms.ttl = Some(just_over(limits.ttl_max));
    refused(acquire(&over), Rejection::InvalidTtl);
    let over =
        |acquire: &mut Acquire| acquire.terms.max_hold = Some(just_over(limits.max_hold_max));
    refused(acquire(&over), Rejection::InvalidTtl);
    let never = |acquire: &mut Acquire| acquire.terms.max_hold = Some(Span::ZERO);
    refused(acquire(&never), Rejection::InvalidTtl);
    let over =
        |acquire: &mut Acquire| acquire.terms.lock_delay = Some(just_over(limits.lock_delay_max));
    refused(acquire(&over), Rejection::InvalidLockDelay);
    refused(metadata(limits.metadata_bytes_max + 1), Rejection::InvalidMetadata);
}

#[test]
fn the_limits_of_an_intervention_are_themselves_allowed() {
    let limits = Limits::default();
    let intervene = |by: usize, reason: usize, action| {
        let (by, reason) = ("b".repeat(by).into(), "r".repeat(reason).into());
        world().apply(Command::Intervene(Intervention { by, reason, action, identity: None }))
    };
    let is_done = |outcome| matches!(outcome, Outcome::Intervened(_));
    let rejected = Outcome::Rejected;
    let permits = |limit| Action::SetPermits { name: lock_name("seats"), limit: Some(limit) };
    let longest = limits.intervention_text_bytes_max;
    assert!(is_done(intervene(longest, longest, permits(1))));
    assert_eq!(intervene(longest + 1, 1, permits(1)), rejected(Rejection::InvalidIntervention));
    assert_eq!(intervene(1, longest + 1, permits(1)), rejected(Rejection::InvalidIntervention));
    assert_eq!(intervene(1, 0, permits(1)), rejected(Rejection::InvalidIntervention));

    assert!(is_done(intervene(1, 1, permits(limits.permits_max))));
    for limit in [0, limits.permits_max + 1] {
        assert_eq!(intervene(1, 1, permits(limit)), rejected(Rejection::InvalidPermits));
    }

    let freeze = |prefix: &str, ttl| Action::Freeze { prefix: prefix.into(), ttl };
    let second = Span::from_secs(1);
    assert!(is_done(intervene(1, 1, freeze("", limits.freeze_max))));
    assert!(is_done(intervene(1, 1, freeze(&"n".repeat(NAME_BYTES_MAX), second))));
    let not_allowed = [
        freeze("", Span::ZERO),
        freeze("", just_over(limits.freeze_max)),
        freeze(&"n".repeat(NAME_BYTES_MAX + 1), second),
        freeze("eu\n", second),
    ];
    for freeze in not_allowed {
        assert_eq!(intervene(1, 1, freeze), rejected(Rejection::InvalidFreeze));
    }
}

#[test]
fn a_name_has_one_to_512_bytes_and_no_control_characters() {
    assert_eq!(LockName::new(""), Err(NameError::Empty));
    assert!(LockName::new("x").is_ok());
    assert!(LockName::new(&"x".repeat(512)).is_ok());
    assert_eq!(LockName::new(&"x".repeat(513)), Err(NameError::TooLong { bytes: 513 }));
    assert!(LockName::new(&"é".repeat(256)).is_ok());
    assert_eq!(LockName::new("é\u{7f}"), Err(NameError::ControlCharacter { at_byte: 2 }));
    let name = LockName::new("wallet").unwrap();
    assert_eq!((name.as_str(), &*name, name.to_string().as_str()), ("wallet", "wallet", "wallet"));
}

#[test]
fn a_semaphore_has_at_most_so_many_permits() {
    let limits = Limits::default();
    let acquire = |limit| {
        let mut world = world();
        let mut acquire = world.acquiring("alice", 1, "wallet", 0);
        acquire.mode = Mode::Permit { limit };
        world.apply(Command::Acquire(acquire))
    };
    assert!(matches!(acquire(1), Outcome::Granted(_)));
    assert!(matches!(acquire(limits.permits_max), Outcome::Granted(_)));
    let refused = Outcome::Rejected(Rejection::InvalidPermits);
    assert_eq!(acquire(limits.permits_max + 1), refused);
}

#[test]
fn a_renewal_asks_for_a_ttl_within_the_limits() {
    let mut world = world();
    world.acquire("alice", 1, "wallet", 0);
    let mut renew = |request, ttl| {
        let call = world.call("alice", request);
        let ttl = Some(Span::from_ms(ttl));
        world.apply(Command::Renew { call, hold: wallet(), ttl })
    };
    assert!(matches!(renew(2, 100), Outcome::Renewed { .. }));
    assert_eq!(renew(3, 99), Outcome::Rejected(Rejection::InvalidTtl));
}

#[test]
fn no_request_has_the_number_zero_and_none_cancels_itself() {
    let mut world = world();
    let refused = Outcome::Rejected(Rejection::InvalidRequestId);
    assert_eq!(world.acquire("alice", 0, "wallet", 0), refused);
    assert_eq!(world.release("alice", 0, "wallet", 1), refused);
    assert_eq!(world.renew("alice", 0, "wallet", 1), refused);
    assert_eq!(world.cancel("alice", 0, 1), refused);
    assert_eq!(world.cancel("alice", 1, 0), refused);
    assert_eq!(world.cancel("alice", 1, 1), refused);
    assert_eq!(world.cancel("alice", 1, 2), Outcome::CancelDone);
}
