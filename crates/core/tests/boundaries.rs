//! Where exactly a rule begins to hold: the last value that is taken and the first that is not.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "it is a test")]

mod world;

use holdfast_core::command::{
    Acquire, AcquireAll, Action, HoldRef, Intervention, Member, Mode, OpenSession, Owner, Policy,
    Terms,
};
use holdfast_core::{
    ActorId, Command, EndReason, Event, FenceToken, Limits, LockName, LogIndex, LogicalTime,
    NAME_BYTES_MAX, NameError, NewBeginning, Outcome, Part, PublicSessionId, Rejection,
    ReleaseAnswer, RequestId, Span, StreamId, Survey,
};
use world::{World, lock_name, token};

/// Alice and Bob, for ten minutes.
fn world() -> World {
    with_limits(Limits::default())
}

fn with_limits(limits: Limits) -> World {
    let mut world = World::new(limits);
    world.open("alice", 600_000);
    world.open("bob", 600_000);
    world
}

/// The first hold of all.
fn wallet() -> HoldRef {
    HoldRef { name: lock_name("wallet"), token: FenceToken(1), acquire: RequestId(1) }
}

fn just_over(span: Span) -> Span {
    Span::from_ms(span.as_ms() + 1)
}

fn just_under(span: Span) -> Span {
    Span::from_ms(span.as_ms() - 1)
}

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
fn a_session_is_opened_again_only_with_the_same_settings() {
    let changes: [fn(&mut OpenSession); 4] = [
        |open| open.public = PublicSessionId(99),
        |open| open.ttl = Span::from_secs(31),
        |open| open.linger = Span::from_secs(1),
        |open| open.owner.pid = 7,
    ];
    for change in changes {
        let mut world = World::new(Limits::default());
        let open = world.opening("alice", Span::from_secs(30));
        world.apply(Command::OpenSession(open.clone()));
        let again = world.apply(Command::OpenSession(open.clone()));
        assert!(matches!(again, Outcome::SessionOpen { .. }));
        let mut other = open;
        change(&mut other);
        let refused = world.apply(Command::OpenSession(other));
        assert_eq!(refused, Outcome::Rejected(Rejection::SessionExists));
    }
}

#[test]
fn every_command_of_a_session_keeps_it_alive_and_no_other_does() {
    let mut world = World::new(Limits::default());
    world.open("alice", 10_000);
    world.acquire("alice", 1, "wallet", 0);
    let session = world.session("alice");
    let call = world.call("alice", 2);
    let stream = StreamId(1);
    let open = world.opening("alice", Span::from_secs(10));
    let said = [
        Command::OpenSession(open),
        Command::AttachStream { session, stream },
        Command::Touch { session, acked_through: RequestId(0) },
        Command::Acquire(world.acquiring("alice", 3, "other", 0)),
        Command::Cancel { call, target: RequestId(9) },
        Command::Release { call, hold: wallet() },
        Command::Renew { call, hold: wallet(), ttl: None },
    ];
    let mut now = 0;
    for command in said {
        assert_eq!(command.session(), Some(session));
        now += 1_000;
        world.at(now).apply(command.clone());
        let ends = world.table.next_deadline().map(|deadline| deadline.as_ms());
        assert_eq!(ends, Some(now + 10_000), "{command:?}");
    }
    assert_eq!(Command::CloseSession { session }.session(), Some(session));
    assert_eq!(Command::DetachStream { session, stream }.session(), Some(session));
    for command in [Command::Tick, Command::BeginTerm { grace: Span::from_ms(1) }] {
        assert_eq!(command.session(), None);
        world.at(now + 500).apply(command);
        let ends = world.table.next_deadline().map(|deadline| deadline.as_ms());
        assert_eq!(ends, Some(now + 10_000));
    }
}

#[test]
fn the_highest_token_is_the_highest_number_of_a_signed_column() {
    assert_eq!(FenceToken::MAX.0, i64::MAX as u64);
}

#[test]
fn tokens_that_were_never_granted_are_nobodys() {
    let mut world = world();
    world.acquire("alice", 1, "wallet", 0);
    world.release("alice", 2, "wallet", 1);
    let mut release = |request, token| world.release("alice", request, "wallet", token);
    let answer = Outcome::Release;
    assert_eq!(release(3, 0), answer(ReleaseAnswer::NotOwner));
    assert_eq!(release(4, 1), answer(ReleaseAnswer::AlreadyReleased));
    assert_eq!(release(5, 2), answer(ReleaseAnswer::NotOwner));
}

#[test]
fn a_token_from_before_the_session_was_never_its_own() {
    let mut world = world();
    world.acquire("alice", 1, "wallet", 0);
    world.release("alice", 2, "wallet", 1);
    world.open("carol", 60_000);
    let not_owner = Outcome::Release(ReleaseAnswer::NotOwner);
    assert_eq!(world.release("carol", 1, "wallet", 1), not_owner);
    assert_eq!(token(&world.acquire("alice", 3, "wallet", 0)), 2);
    assert_eq!(world.release("carol", 2, "wallet", 2), not_owner, "it is held by another");
}

#[test]
fn a_release_needs_the_right_name() {
    let mut world = world();
    world.acquire("alice", 1, "wallet", 0);
    assert!(!matches!(
        world.release("alice", 2, "purse", 1),
        Outcome::Release(ReleaseAnswer::Released)
    ));
    assert_eq!(world.holder("wallet").as_deref(), Some("alice"));
}

#[test]
fn only_the_latest_losses_are_remembered() {
    let limits = Limits { remembered_losses_max: 2, ..Limits::default() };
    let mut world = with_limits(limits);
    for request in 1..=3 {
        let mut acquire = world.acquiring("alice", request, &format!("lock-{request}"), 0);
        acquire.terms.ttl = Some(Span::from_ms(1_000));
        world.apply(Command::Acquire(acquire));
    }
    world.at(1_000).tick();
    let mut release =
        |request, token| world.release("alice", request, &format!("lock-{token}"), token);
    let answer = Outcome::Release;
    assert_eq!(release(4, 1), answer(ReleaseAnswer::AlreadyReleased), "forgotten");
    assert_eq!(release(5, 2), answer(ReleaseAnswer::Expired));
    assert_eq!(release(6, 3), answer(ReleaseAnswer::Expired));
}

#[test]
fn only_the_latest_ended_sessions_are_remembered() {
    let limits = Limits { ended_sessions_max: 2, ..Limits::default() };
    let mut world = World::new(limits);
    for who in ["alice", "bob", "carol"] {
        world.open(who, 60_000);
    }
    for who in ["alice", "bob", "carol"] {
        world.close(who);
    }
    let again = |world: &mut World, who| world.open(who, 60_000);
    let ended = Outcome::Rejected(Rejection::SessionExists);
    assert!(matches!(again(&mut world, "alice"), Outcome::SessionOpen { .. }), "forgotten");
    assert_eq!(again(&mut world, "bob"), ended);
    assert_eq!(again(&mut world, "carol"), ended);
    // A second life that ends does not shorten the memory of others.
    world.close("alice");
    assert_eq!(again(&mut world, "carol"), ended);
    assert_eq!(again(&mut world, "alice"), ended);
}

#[test]
fn a_wait_that_ends_at_the_moment_of_the_release_is_over() {
    let mut world = world();
    world.open("carol", 600_000);
    world.acquire("alice", 1, "wallet", 0);
    world.acquire("bob", 1, "wallet", 5_000);
    world.acquire("carol", 1, "wallet", 5_001);
    world.at(5_000).release("alice", 2, "wallet", 1);
    assert_eq!(world.holder("wallet").as_deref(), Some("carol"));
    assert_eq!(world.acquire("bob", 1, "wallet", 5_000), Outcome::TimedOut);
}

#[test]
fn everything_ends_at_its_deadline_and_not_before() {
    let ended = |at: u64| {
        let mut world = World::new(Limits::default());
        world.open("alice", 5_000);
        world.at(at).tick();
        world.events.iter().any(|event| matches!(event, Event::SessionEnded { .. }))
    };
    assert!(!ended(4_999));
    assert!(ended(5_000));
}

#[test]
fn a_grace_moves_what_ends_before_it_and_nothing_else() {
    let deadline_after = |ttl: u64| {
        let mut world = World::new(Limits::default());
        world.open("alice", ttl);
        world.begin_term(1_000);
        world.table.next_deadline().map(|deadline| deadline.as_ms())
    };
    assert_eq!(deadline_after(999), Some(1_000));
    assert_eq!(deadline_after(1_000), Some(1_000));
    assert_eq!(deadline_after(1_001), Some(1_001));
}

#[test]
fn a_hold_is_given_one_grace_since_its_renewal_and_none_past_its_max_hold() {
    let mut world = world();
    let mut acquire = world.acquiring("alice", 1, "wallet", 0);
    acquire.terms.ttl = Some(Span::from_ms(500));
    acquire.terms.max_hold = Some(Span::from_ms(2_700));
    world.apply(Command::Acquire(acquire));
    let deadline = |world: &World| world.table.status("wallet", 1).holders[0].deadline.unwrap();
    world.at(400).begin_term(1_000);
    assert_eq!(deadline(&world).as_ms(), 1_400);
    world.at(1_000).begin_term(1_000);
    assert_eq!(deadline(&world).as_ms(), 1_400, "it had its grace");
    world.at(1_300).renew("alice", 2, "wallet", 1);
    assert_eq!(deadline(&world).as_ms(), 1_800);
    world.at(1_750).begin_term(1_000);
    assert_eq!(deadline(&world).as_ms(), 2_700, "its max-hold");
    world.at(2_700).tick();
    let reasons: Vec<_> = world
        .events
        .iter()
        .filter_map(|event| match event {
            Event::HoldEnded { reason, .. } => Some(*reason),
            _ => None,
        })
        .collect();
    assert_eq!(reasons, [EndReason::MaxHold]);
}

#[test]
fn a_renewal_without_a_ttl_of_its_own_changes_nothing() {
    let mut world = world();
    world.acquire("alice", 1, "wallet", 0);
    match world.at(1_000).renew("alice", 2, "wallet", 1) {
        Outcome::Renewed { deadline, session_deadline } => {
            assert_eq!((deadline, session_deadline.as_ms()), (None, 601_000));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_session_that_comes_back_by_a_stream_lives_its_ttl() {
    let mut world = World::new(Limits::default());
    let mut open = world.opening("alice", Span::from_ms(10_000));
    (open.stream, open.linger) = (Some(StreamId(5)), Span::from_ms(500));
    world.apply(Command::OpenSession(open));
    let session = world.session("alice");
    let next_ms = |world: &World| world.table.next_deadline().unwrap().as_ms();
    world.at(100).detach("alice", 4);
    assert_eq!(next_ms(&world), 10_000, "not its stream");
    world.at(100).detach("alice", 5);
    assert_eq!(next_ms(&world), 600);
    world.at(200).detach("alice", 5);
    assert_eq!(next_ms(&world), 600, "it broke once");
    world.at(300).apply(Command::AttachStream { session, stream: StreamId(5) });
    assert_eq!(next_ms(&world), 10_300);
    world.at(400).detach("alice", 5);
    assert_eq!(next_ms(&world), 900, "it was open again");
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
fn the_table_knows_how_far_the_log_was_applied() {
    let mut world = world();
    assert_eq!(world.table.applied_index(), LogIndex(2));
    world.table.apply(LogIndex(1), world.now, Command::Tick, &mut Vec::new());
    assert_eq!(world.table.applied_index(), LogIndex(2), "it never goes back");
}

#[test]
fn a_cancel_of_what_is_yet_to_come_takes_room_for_two_answers() {
    let limits = Limits { unacknowledged_answers_max: 1, ..Limits::default() };
    let mut room_for_two = with_limits(limits.clone());
    assert_eq!(room_for_two.cancel("alice", 1, 9), Outcome::CancelDone);
    let mut room_for_one = with_limits(limits);
    room_for_one.release("alice", 1, "wallet", 1);
    let refused = Outcome::Rejected(Rejection::TooManyUnacknowledged);
    assert_eq!(room_for_one.cancel("alice", 2, 9), refused);
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
fn acquires_and_conversions_can_wait_and_nothing_else() {
    let mut world = world();
    let call = world.call("alice", 7);
    let acquire = world.acquiring("alice", 7, "wallet", 0);
    let members = Box::new([Member { name: lock_name("wallet"), mode: Mode::Exclusive }]);
    let (actor, terms) = (ActorId(0), Terms::default());
    let all = AcquireAll { call, actor, members, terms };
    let (to, wait, policy) = (Mode::Shared, Span::ZERO, Policy::Wait);
    let waiting = [
        Command::Acquire(acquire),
        Command::AcquireAll(all),
        Command::Convert { call, hold: wallet(), to, wait, policy },
    ];
    assert_eq!(waiting.map(|command| command.wait()), [Some(call); 3]);
    assert_eq!(Command::Release { call, hold: wallet() }.wait(), None);
}

#[test]
fn a_session_is_there_from_its_opening_to_its_end() {
    let mut world = world();
    let (alice, carol) = (world.session("alice"), world.session("carol"));
    assert!(world.table.has_session(alice) && !world.table.has_session(carol));
    world.close("alice");
    assert!(!world.table.has_session(alice));
}

#[test]
fn the_limits_of_an_intervention_are_themselves_allowed() {
    let limits = Limits::default();
    let intervene = |by: usize, reason: usize, action| {
        let (by, reason) = ("b".repeat(by).into(), "r".repeat(reason).into());
        world().apply(Command::Intervene(Intervention { by, reason, action }))
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
fn a_lock_is_not_handed_to_a_wait_that_ends_at_that_moment() {
    let transfer_at = |ms| {
        let mut world = world();
        world.acquire("alice", 1, "wallet", 0);
        world.acquire("bob", 1, "wallet", 5_000);
        let (call, to) = (world.call("alice", 2), PublicSessionId(2));
        world.at(ms).apply(Command::Transfer { call, hold: wallet(), to })
    };
    assert_eq!(transfer_at(4_999), Outcome::Transferred { token: FenceToken(2) });
    assert!(matches!(transfer_at(5_000), Outcome::Rejected(_)));
}

#[test]
fn a_token_stands_while_it_is_held() {
    let mut world = world();
    world.acquire("alice", 1, "wallet", 0);
    world.acquire("alice", 2, "keys", 0);
    let standing = |name, token| {
        let standing = world.table.token_standing(name, FenceToken(token));
        (standing.is_held, standing.current, standing.last_given)
    };
    assert_eq!(standing("wallet", 1), (true, Some(FenceToken(1)), 2));
    assert_eq!(standing("wallet", 2), (false, Some(FenceToken(1)), 2));
    assert_eq!(standing("desk", 1), (false, None, 2));
}

#[test]
fn a_survey_begins_where_its_prefix_does() {
    let mut world = world();
    world.acquire("alice", 1, "bank", 0);
    world.acquire("alice", 2, "eu/keys", 0);
    let survey = Survey { prefix: "eu/".to_owned(), ..Survey::default() };
    let part = Part { after: Some("asia"), locks_max: 9, above: None, found_max: 9 };
    assert_eq!(world.table.survey(&survey, part).matched, 1);
}

#[test]
fn a_new_beginning_ends_all_that_was_and_grants_nothing_for_a_while() {
    let begun_anew = |closed_for| {
        let mut world = world();
        world.open("carol", 900_000);
        assert_eq!(world.table.longest_ttl(), Some(Span::from_secs(900)));
        world.acquire("alice", 1, "wallet", 0);
        world.acquire("alice", 2, "keys", 0);
        world.acquire("bob", 1, "wallet", 9_000);
        let (by, reason) = ("olga".into(), "restored".into());
        let (token_floor, index) = (1_000, LogIndex(500));
        let beginning = NewBeginning { token_floor, index, closed_for, by, reason };
        let ended = world.table.begin_anew(beginning);
        world.table.check().unwrap();
        assert_eq!((ended.sessions, ended.holds, ended.waits), (3, 2, 1));
        assert_eq!((world.table.session_count(), world.table.lock_count()), (0, 0));
        assert_eq!((world.table.longest_ttl(), world.table.waiter_count()), (None, 0));
        assert_eq!(world.table.applied_index(), LogIndex(500));
        world
    };
    let mut open = begun_anew(Span::ZERO);
    assert_eq!(open.table.next_deadline(), None);
    open.open("dave", 60_000);
    assert_eq!(token(&open.acquire("dave", 1, "wallet", 0)), 1_001);

    let mut closed = begun_anew(Span::from_secs(9));
    closed.open("dave", 60_000);
    assert_eq!(closed.acquire("dave", 1, "wallet", 0), Outcome::Rejected(Rejection::Frozen));
    closed.at(9_000).tick();
    assert_eq!(token(&closed.acquire("dave", 2, "wallet", 0)), 1_001);
}

#[test]
fn when_the_tokens_run_out_nothing_is_granted_any_more() {
    let mut world = world();
    let (token_floor, index) = (FenceToken::MAX.0 - 1, LogIndex(0));
    let (by, reason) = ("olga".into(), "restored".into());
    let closed_for = Span::ZERO;
    world.table.begin_anew(NewBeginning { token_floor, index, closed_for, by, reason });
    world.open("carol", 60_000);
    assert_eq!(token(&world.acquire("carol", 1, "wallet", 0)), FenceToken::MAX.0);
    let refused = Outcome::Rejected(Rejection::TooManyHolds);
    assert_eq!(world.acquire("carol", 2, "keys", 0), refused);
    assert_eq!(world.table.last_token(), FenceToken::MAX.0);
}

#[test]
fn a_snapshot_is_written_in_parts_as_it_was_when_it_was_begun() {
    for entries_max in 1..8 {
        let mut world = world();
        for request in 1..4 {
            world.acquire("alice", request, &format!("lock/{request}"), 0);
        }
        assert!(!world.table.is_writing_snapshot());
        let as_it_was = world.table.encode();
        world.table.begin_snapshot(b"head");
        assert!(world.table.is_writing_snapshot());
        world.release("alice", 4, "lock/2", 2);
        let mut parts = 1;
        let bytes = loop {
            match world.table.continue_snapshot(entries_max) {
                Some(bytes) => break bytes,
                None => parts += 1,
            }
            assert!(parts < 9, "it does not end");
        };
        assert_eq!(bytes, [b"head".to_vec(), as_it_was].concat());
        assert_eq!(parts, 5 / entries_max + 1, "two sessions and three locks");
        assert!(!world.table.is_writing_snapshot());
        assert_eq!(world.table.continue_snapshot(entries_max), None);
    }
}

#[test]
fn who_converts_is_not_counted_among_those_in_its_way() {
    let mut world = world();
    for who in ["alice", "bob"] {
        let mut acquire = world.acquiring(who, 1, "wallet", 0);
        acquire.mode = Mode::Shared;
        world.apply(Command::Acquire(acquire));
    }
    let call = world.call("alice", 2);
    let (to, wait, policy) = (Mode::Exclusive, Span::from_secs(9), Policy::Wait);
    world.apply(Command::Convert { call, hold: wallet(), to, wait, policy });
    let why = world.table.why(&lock_name("wallet"), 9);
    assert_eq!((why.chain.len(), why.chain[0].holder_count), (1, 1));
}

#[test]
fn a_session_that_outlives_a_grace_has_not_used_it() {
    let mut world = World::new(Limits::default());
    world.open("alice", 60_000);
    world.begin_term(60_000);
    world.at(59_000).begin_term(5_000);
    assert_eq!(world.table.next_deadline(), Some(LogicalTime::from_ms(64_000)));
}
