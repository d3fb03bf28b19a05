//! Random commands over few sessions and few names, so that they meet.

use holdfast_core::command::{Acquire, Call, Mode, OpenSession, Owner};
use holdfast_core::{
    ActorId, Command, FenceToken, LockName, PublicSessionId, RequestId, SessionId, Span, StreamId,
};
use proptest::prelude::*;

pub(crate) const NAMES: [&str; 3] = ["wallet", "keys", "eu/hat"];

/// Any command, well-formed or not.
pub(crate) fn command() -> impl Strategy<Value = Command> {
    prop_oneof![
        2 => open_session().prop_map(Command::OpenSession),
        1 => (session(), stream())
            .prop_map(|(session, stream)| Command::AttachStream { session, stream }),
        1 => (session(), stream())
            .prop_map(|(session, stream)| Command::DetachStream { session, stream }),
        1 => (session(), acked_through())
            .prop_map(|(session, acked_through)| Command::Touch { session, acked_through }),
        1 => session().prop_map(|session| Command::CloseSession { session }),
        12 => acquire().prop_map(Command::Acquire),
        3 => (call(), request()).prop_map(|(call, target)| Command::Cancel { call, target }),
        6 => (call(), name(), token())
            .prop_map(|(call, name, token)| Command::Release { call, name, token }),
        3 => (call(), name(), token(), ttl())
            .prop_map(|(call, name, token, ttl)| Command::Renew { call, name, token, ttl }),
        1 => (0_u64..2_000).prop_map(|ms| Command::BeginTerm { grace: Span::from_ms(ms) }),
        4 => Just(Command::Tick),
    ]
}

fn open_session() -> impl Strategy<Value = OpenSession> {
    (session(), proptest::option::of(stream())).prop_map(|(session, stream)| {
        // Settings follow from the id: opening again is a retry, mostly.
        let number = session.0 as u64;
        OpenSession {
            session,
            public: PublicSessionId(u64::MAX - number),
            stream,
            ttl: Span::from_ms(1_000 * (number + 1)),
            linger: Span::from_ms(500 * number),
            owner: Owner { application: format!("app-{number}"), ..Owner::default() },
        }
    })
}

fn acquire() -> impl Strategy<Value = Acquire> {
    let wait = prop_oneof![Just(0_u64), 1..5_000_u64].prop_map(Span::from_ms);
    let max_hold = proptest::option::weighted(0.2, (1_u64..4_000).prop_map(Span::from_ms));
    let metadata = proptest::collection::vec(any::<u8>(), 0..3).prop_map(Vec::into_boxed_slice);
    (call(), 0_u64..3, name(), wait, ttl(), max_hold, metadata).prop_map(
        |(call, actor, name, wait, ttl, max_hold, metadata)| Acquire {
            call,
            actor: ActorId(actor),
            name,
            mode: Mode::Exclusive,
            wait,
            ttl,
            max_hold,
            metadata,
        },
    )
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
