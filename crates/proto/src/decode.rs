//! From the wire to a [`Command`]. Pure: no node, no clock.
//!
//! A request that is wrong in itself is refused here, with words, so that it never reaches the lock table. The lock table
//! checks again, because it must not depend on this.

use holdfast_core::command::{
    Acquire, AcquireAll, Call, HoldRef, Member, OpenSession, Owner, Terms,
};
use holdfast_core::{
    ActorId, Command, FenceToken, Limits, LockName, LogicalTime, PublicSessionId, Rejection,
    RequestId, SessionId, Span, StreamId,
};

use crate::failure::{refused, rejected};
use crate::plain::{BorrowedAcquire, BorrowedRelease};
use crate::v1::{self, Failure, Reason};

mod access;
mod choice;
mod intervention;
pub mod operation;
pub mod page;

pub use access::{access_policy, access_quotas, change_access, token_id};
pub use choice::tier;
use choice::{mode, policy};
pub use intervention::{
    break_holds, freeze, kill_session, move_lock, reopen, set_limits, set_permits, thaw,
};

const ROOT_GROUP: u32 = 1;
const DEFAULT_TTL: Span = Span::from_secs(30);

/// To which session an operation belongs.
#[derive(Clone, Copy, Debug)]
pub enum Scope {
    /// The request names it.
    Unary,
    /// The stream's own. An operation need not name it, and must not name another.
    Stream { session: SessionId, acked_through: RequestId },
}

impl Scope {
    fn session(self, text: &str) -> Result<SessionId, Failure> {
        match self {
            Scope::Unary => secret_id(text),
            Scope::Stream { session, .. } if text.is_empty() => Ok(session),
            Scope::Stream { session, .. } => {
                if secret_id(text)? == session {
                    return Ok(session);
                }
                let words = "the stream belongs to another session; leave session_id empty here";
                Err(refused(Reason::InvalidSessionId, words))
            }
        }
    }

    fn call(self, session: &str, request_id: u64, acked_through: u64) -> Result<Call, Failure> {
        Ok(Call {
            session: self.session(session)?,
            request: RequestId(request_id),
            acked_through: self.acked_through(acked_through),
        })
    }

    /// The later of the operation's mark and its frame's.
    fn acked_through(self, own: u64) -> RequestId {
        match self {
            Scope::Unary => RequestId(own),
            Scope::Stream { acked_through, .. } => acked_through.max(RequestId(own)),
        }
    }
}

/// The secret and what may be shown of it.
pub fn session_id(text: &str) -> Result<(SessionId, PublicSessionId), Failure> {
    let id = parsed_id(text)?;
    Ok((secret(id), PublicSessionId(id.public_number())))
}

/// The secret alone: what may be shown of it is a hash.
pub fn secret_id(text: &str) -> Result<SessionId, Failure> {
    parsed_id(text).map(secret)
}

fn parsed_id(text: &str) -> Result<crate::SessionId, Failure> {
    text.parse().map_err(|error: crate::ParseSessionIdError| {
        refused(Reason::InvalidSessionId, error.to_string())
    })
}

/// In the order of the digits.
fn secret(id: crate::SessionId) -> SessionId {
    SessionId(u128::from_be_bytes(id.to_bytes()))
}

/// The number of the group that a request names.
pub fn group(number: u32) -> u32 {
    match number {
        0 => ROOT_GROUP,
        number => number,
    }
}

pub fn open(request: v1::OpenSessionRequest, stream: Option<StreamId>) -> Result<Command, Failure> {
    let (session, public) = session_id(&request.session_id)?;
    let ttl = match request.ttl_ms {
        0 => DEFAULT_TTL,
        ttl_ms => Span::from_ms(ttl_ms),
    };
    let linger = request.linger_ms.map_or(ttl, Span::from_ms);
    let owner = request.owner.map_or_else(Owner::default, |owner| Owner {
        application: owner.application,
        host: owner.host,
        pid: owner.pid,
        note: owner.note,
    });
    checked(Command::OpenSession(OpenSession {
        session,
        public,
        stream,
        ttl,
        linger,
        owner,
        identity: None,
    }))
}

pub fn keep_alive(request: &v1::KeepAliveRequest, scope: Scope) -> Result<Command, Failure> {
    let session = scope.session(&request.session_id)?;
    checked(Command::Touch { session, acked_through: scope.acked_through(request.acked_through) })
}

pub fn close(request: &v1::CloseSessionRequest, scope: Scope) -> Result<Command, Failure> {
    checked(Command::CloseSession { session: scope.session(&request.session_id)? })
}

pub fn acquire<'a>(
    request: impl Into<BorrowedAcquire<'a>>,
    scope: Scope,
) -> Result<Command, Failure> {
    let request: BorrowedAcquire<'_> = request.into();
    checked(Command::Acquire(Acquire {
        call: scope.call(request.session_id, request.request_id, request.acked_through)?,
        actor: ActorId(request.actor),
        name: new_lock_name(request.name)?,
        mode: mode(request.mode, request.permits)?,
        terms: Terms {
            wait: Span::from_ms(request.wait_ms),
            policy: policy(request.policy)?,
            since: request.since_ms.map(LogicalTime::from_ms),
            preemptible: request.preemptible,
            reentrant: request.reentrant,
            ttl: request.ttl_ms.map(Span::from_ms),
            max_hold: request.max_hold_ms.map(Span::from_ms),
            lock_delay: request.lock_delay_ms.map(Span::from_ms),
            metadata: request.metadata.into(),
        },
    }))
}

pub fn acquire_all(request: v1::AcquireAllRequest, scope: Scope) -> Result<Command, Failure> {
    // Before the names are looked at one by one.
    if request.members.len() > Limits::default().names_per_acquire_max {
        return Err(rejected(Rejection::TooManyNames));
    }
    let members = request.members.into_iter().map(|member| {
        let mode = mode(member.mode, member.permits)?;
        Ok(Member { name: new_lock_name(&member.name)?, mode })
    });
    checked(Command::AcquireAll(AcquireAll {
        call: scope.call(&request.session_id, request.request_id, request.acked_through)?,
        actor: ActorId(request.actor),
        members: members.collect::<Result<_, Failure>>()?,
        terms: Terms {
            wait: Span::from_ms(request.wait_ms),
            policy: policy(request.policy)?,
            since: request.since_ms.map(LogicalTime::from_ms),
            preemptible: request.preemptible,
            reentrant: false,
            ttl: request.ttl_ms.map(Span::from_ms),
            max_hold: request.max_hold_ms.map(Span::from_ms),
            lock_delay: request.lock_delay_ms.map(Span::from_ms),
            metadata: request.metadata.into_boxed_slice(),
        },
    }))
}

pub fn convert(request: &v1::ConvertRequest, scope: Scope) -> Result<Command, Failure> {
    checked(Command::Convert {
        call: scope.call(&request.session_id, request.request_id, request.acked_through)?,
        hold: hold(&request.name, request.token, request.acquire_request_id)?,
        to: mode(request.mode, 0)?,
        wait: Span::from_ms(request.wait_ms),
        policy: policy(request.policy)?,
    })
}

pub fn cancel(request: &v1::CancelRequest, scope: Scope) -> Result<Command, Failure> {
    checked(Command::Cancel {
        call: scope.call(&request.session_id, request.request_id, request.acked_through)?,
        target: RequestId(request.target),
    })
}

pub fn release<'a>(
    request: impl Into<BorrowedRelease<'a>>,
    scope: Scope,
) -> Result<Command, Failure> {
    let request: BorrowedRelease<'_> = request.into();
    checked(Command::Release {
        call: scope.call(request.session_id, request.request_id, request.acked_through)?,
        hold: hold(request.name, request.token, request.acquire_request_id)?,
    })
}

pub fn renew(request: &v1::RenewRequest, scope: Scope) -> Result<Command, Failure> {
    checked(Command::Renew {
        call: scope.call(&request.session_id, request.request_id, request.acked_through)?,
        hold: hold(&request.name, request.token, request.acquire_request_id)?,
        ttl: request.ttl_ms.map(Span::from_ms),
    })
}

pub fn proclaim(request: v1::ProclaimRequest, scope: Scope) -> Result<Command, Failure> {
    checked(Command::Proclaim {
        call: scope.call(&request.session_id, request.request_id, request.acked_through)?,
        hold: hold(&request.name, request.token, request.acquire_request_id)?,
        metadata: request.metadata.into_boxed_slice(),
    })
}

pub fn transfer(request: &v1::TransferRequest, scope: Scope) -> Result<Command, Failure> {
    checked(Command::Transfer {
        call: scope.call(&request.session_id, request.request_id, request.acked_through)?,
        hold: hold(&request.name, request.token, 0)?,
        to: public_session_id(&request.to_public_session_id)?,
    })
}

pub fn lock_name(text: &str) -> Result<LockName, Failure> {
    LockName::new(text).map_err(|error| refused(Reason::InvalidName, error.to_string()))
}

/// Of a lock that may not exist yet. What exists can be released and broken, whatever its name.
fn new_lock_name(text: &str) -> Result<LockName, Failure> {
    if !text.is_empty() && LockName::is_blank(text) {
        let words = "the name of a lock must not be blank: this one has nothing but spaces; is a variable unset?";
        return Err(refused(Reason::InvalidName, words));
    }
    lock_name(text)
}

fn hold(name: &str, number: u64, acquire: u64) -> Result<HoldRef, Failure> {
    Ok(HoldRef { name: lock_name(name)?, token: token(number)?, acquire: RequestId(acquire) })
}

/// As listings show it.
fn public_session_id(text: &str) -> Result<PublicSessionId, Failure> {
    let id: crate::PublicSessionId =
        text.parse().map_err(|error: crate::ParsePublicSessionIdError| {
            refused(Reason::InvalidSessionId, error.to_string())
        })?;
    Ok(PublicSessionId(id.to_number()))
}

pub fn token(number: u64) -> Result<FenceToken, Failure> {
    if (1..=FenceToken::MAX.0).contains(&number) {
        return Ok(FenceToken(number));
    }
    Err(refused(Reason::InvalidToken, "a token is a number from 1 to 2^63 - 1; give the grant's"))
}

fn checked(command: Command) -> Result<Command, Failure> {
    command.check(&Limits::default()).map_err(rejected)?;
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SESSION: &str = "000102030405060708090a0b0c0d0e0f";

    #[test]
    fn ids_stand_in_the_order_of_their_digits() {
        let id = |digits: &str| secret_id(digits).unwrap();
        assert_eq!(id(SESSION).0 >> 96, 0x0001_0203);
        assert!(id("00ffffffffffffffffffffffffffffff") < id("01000000000000000000000000000000"));
    }

    fn good_open() -> v1::OpenSessionRequest {
        v1::OpenSessionRequest { session_id: SESSION.into(), ..Default::default() }
    }

    fn good_acquire() -> v1::AcquireRequest {
        v1::AcquireRequest {
            session_id: SESSION.into(),
            request_id: 1,
            name: "wallet".into(),
            ..Default::default()
        }
    }

    fn good_release() -> v1::ReleaseRequest {
        v1::ReleaseRequest {
            session_id: SESSION.into(),
            request_id: 1,
            name: "wallet".into(),
            token: 7,
            ..Default::default()
        }
    }

    fn good_renew() -> v1::RenewRequest {
        v1::RenewRequest {
            session_id: SESSION.into(),
            request_id: 1,
            name: "wallet".into(),
            token: 7,
            ..Default::default()
        }
    }

    fn good_cancel() -> v1::CancelRequest {
        v1::CancelRequest {
            session_id: SESSION.into(),
            request_id: 2,
            target: 1,
            ..Default::default()
        }
    }

    fn session() -> SessionId {
        session_id(SESSION).unwrap().0
    }

    fn decode_acquire(change: impl FnOnce(&mut v1::AcquireRequest)) -> Result<Command, Failure> {
        let mut request = good_acquire();
        change(&mut request);
        acquire(&request, Scope::Unary)
    }

    fn decode_open(change: impl FnOnce(&mut v1::OpenSessionRequest)) -> Result<Command, Failure> {
        let mut request = good_open();
        change(&mut request);
        open(request, None)
    }

    fn decode_release(change: impl FnOnce(&mut v1::ReleaseRequest)) -> Result<Command, Failure> {
        let mut request = good_release();
        change(&mut request);
        release(&request, Scope::Unary)
    }

    fn decode_renew(change: impl FnOnce(&mut v1::RenewRequest)) -> Result<Command, Failure> {
        let mut request = good_renew();
        change(&mut request);
        renew(&request, Scope::Unary)
    }

    fn decode_cancel(change: impl FnOnce(&mut v1::CancelRequest)) -> Result<Command, Failure> {
        let mut request = good_cancel();
        change(&mut request);
        cancel(&request, Scope::Unary)
    }

    #[test]
    fn every_bad_input_has_its_reason_and_message() {
        use Reason::*;
        const DAY_MS: u64 = 24 * 60 * 60 * 1_000;
        let long = |length: usize| "x".repeat(length);
        let owner = |owner: v1::Owner| decode_open(|r| r.owner = Some(owner));
        let cases: Vec<(&str, Result<Command, Failure>, Reason)> = vec![
            ("no session", decode_acquire(|r| r.session_id.clear()), InvalidSessionId),
            ("short session", decode_acquire(|r| r.session_id = long(8)), InvalidSessionId),
            ("upper case", decode_acquire(|r| r.session_id = "A".repeat(32)), InvalidSessionId),
            ("zero session", decode_open(|r| r.session_id = "0".repeat(32)), InvalidSessionId),
            ("no name", decode_acquire(|r| r.name.clear()), InvalidName),
            ("long name", decode_acquire(|r| r.name = long(513)), InvalidName),
            ("blank name", decode_acquire(|r| r.name = "  ".into()), InvalidName),
            ("invisible name", decode_acquire(|r| r.name = "\u{200b}\u{3000}".into()), InvalidName),
            ("control character", decode_release(|r| r.name = "a\nb".into()), InvalidName),
            ("no name", decode_renew(|r| r.name.clear()), InvalidName),
            ("request 0", decode_acquire(|r| r.request_id = 0), InvalidRequestId),
            ("request 0", decode_release(|r| r.request_id = 0), InvalidRequestId),
            ("request 0", decode_renew(|r| r.request_id = 0), InvalidRequestId),
            ("request 0", decode_cancel(|r| r.request_id = 0), InvalidRequestId),
            ("target 0", decode_cancel(|r| r.target = 0), InvalidRequestId),
            ("cancels itself", decode_cancel(|r| r.target = 2), InvalidRequestId),
            ("mode 99", decode_acquire(|r| r.mode = 99), InvalidMode),
            ("mode -1", decode_acquire(|r| r.mode = -1), InvalidMode),
            ("wait", decode_acquire(|r| r.wait_ms = DAY_MS + 1), InvalidWait),
            ("wait", decode_acquire(|r| r.wait_ms = u64::MAX), InvalidWait),
            ("ttl 0", decode_acquire(|r| r.ttl_ms = Some(0)), InvalidTtl),
            ("ttl 99", decode_acquire(|r| r.ttl_ms = Some(99)), InvalidTtl),
            ("ttl", decode_acquire(|r| r.ttl_ms = Some(DAY_MS + 1)), InvalidTtl),
            ("max hold 0", decode_acquire(|r| r.max_hold_ms = Some(0)), InvalidTtl),
            ("max hold", decode_acquire(|r| r.max_hold_ms = Some(u64::MAX)), InvalidTtl),
            ("ttl 0", decode_renew(|r| r.ttl_ms = Some(0)), InvalidTtl),
            ("ttl 1", decode_open(|r| r.ttl_ms = 1), InvalidTtl),
            ("ttl", decode_open(|r| r.ttl_ms = u64::MAX), InvalidTtl),
            ("linger", decode_open(|r| r.linger_ms = Some(DAY_MS + 1)), InvalidTtl),
            ("metadata", decode_acquire(|r| r.metadata = vec![0; 1_025]), InvalidMetadata),
            (
                "owner",
                owner(v1::Owner { application: long(257), ..Default::default() }),
                InvalidOwner,
            ),
            ("owner", owner(v1::Owner { host: long(257), ..Default::default() }), InvalidOwner),
            ("owner", owner(v1::Owner { note: long(257), ..Default::default() }), InvalidOwner),
            ("token 0", decode_release(|r| r.token = 0), InvalidToken),
            ("token 2^63", decode_release(|r| r.token = 1 << 63), InvalidToken),
            ("token", decode_renew(|r| r.token = u64::MAX), InvalidToken),
        ];
        for (what, decoded, reason) in cases {
            let failure = decoded.expect_err(what);
            assert_eq!(failure.reason(), reason, "{what}");
            assert!(failure.message.len() > 10, "{what}: {}", failure.message);
            assert!(!failure.retryable && !failure.may_have_happened, "{what}");
        }
    }

    #[test]
    fn values_within_the_limits_are_accepted() {
        assert!(decode_acquire(|_| ()).is_ok());
        assert!(decode_acquire(|r| r.metadata = vec![0; 1_024]).is_ok());
        assert!(decode_release(|r| r.token = FenceToken::MAX.0).is_ok());
        assert!(decode_renew(|_| ()).is_ok());
        assert!(decode_cancel(|_| ()).is_ok());
    }

    #[test]
    fn a_session_has_thirty_seconds_and_lingers_as_long_by_default() {
        let Ok(Command::OpenSession(open)) = decode_open(|_| ()) else { panic!("refused") };
        assert_eq!((open.ttl, open.linger), (DEFAULT_TTL, DEFAULT_TTL));
        let Ok(Command::OpenSession(open)) =
            decode_open(|r| (r.ttl_ms, r.linger_ms) = (5_000, Some(0)))
        else {
            panic!("refused")
        };
        assert_eq!((open.ttl, open.linger), (Span::from_secs(5), Span::ZERO));
    }

    #[test]
    fn on_a_stream_the_session_is_implied_and_cannot_be_another() {
        let scope = Scope::Stream { session: session(), acked_through: RequestId(5) };
        let mut request = good_release();
        request.session_id.clear();
        request.acked_through = 3;
        let Ok(Command::Release { call, .. }) = release(&request, scope) else { panic!("refused") };
        assert_eq!((call.session, call.acked_through), (session(), RequestId(5)));

        assert!(release(&good_release(), scope).is_ok());
        request.session_id = "f".repeat(32);
        let failure = release(&request, scope).unwrap_err();
        assert_eq!(failure.reason(), Reason::InvalidSessionId);
    }
}
