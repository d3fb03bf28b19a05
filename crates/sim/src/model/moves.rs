//! What can happen next, and the command that it is.

use holdfast_core::command::{Acquire, Call, HoldRef, Mode, OpenSession, Owner, Policy, Terms};
use holdfast_core::{
    ActorId, Command, FenceToken, LockName, PublicSessionId, RequestId, SessionId, Span, StreamId,
};

use super::account::Account;
use super::{NAMES_MAX, SESSIONS_MAX, Scope};

pub(super) const TTL_MS: u64 = 300;
pub(super) const LINGER_MS: u64 = 100;
const WAIT_MS: u64 = 200;
const HOLD_TTL_MS: u64 = 100;
const MAX_HOLD_MS: u64 = 200;
const GRACE_MS: u64 = 200;
const STREAM: StreamId = StreamId(1);

/// Clients and locks by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Move {
    Open {
        session: u8,
    },
    Attach {
        session: u8,
    },
    Detach {
        session: u8,
    },
    Touch {
        session: u8,
    },
    Close {
        session: u8,
    },
    /// A new request.
    Ask {
        session: u8,
        ask: Ask,
    },
    /// The last request comes again, late.
    Repeat {
        session: u8,
    },
    BeginTerm,
    /// Time passes, and nothing is written.
    Pass,
    Tick {
        after_ms: u16,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ask {
    Acquire { name: u8, waits: bool, bound: HoldBound },
    Cancel { target: u8 },
    Release { name: u8, token: u64 },
    Renew { name: u8, token: u64 },
}

/// What a hold has beside its session's TTL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HoldBound {
    None,
    Ttl,
    MaxHold,
}

/// A client, as far as it decides what can happen next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub(super) struct Client {
    pub(super) opened: bool,
    pub(super) last_request: u8,
    pub(super) last_ask: Option<Ask>,
}

pub(super) type Clients = [Client; SESSIONS_MAX];

/// The names of the locks, made once.
#[derive(Debug)]
pub(super) struct Names(Vec<LockName>);

impl Names {
    pub(super) fn new() -> Names {
        Names(["a", "b"].iter().filter_map(|text| LockName::new(text).ok()).collect())
    }

    pub(super) fn number(&self, name: &LockName) -> Option<usize> {
        self.0.iter().position(|known| known == name)
    }

    pub(super) fn get(&self, number: usize) -> &LockName {
        &self.0[number.min(NAMES_MAX - 1)]
    }
}

pub(super) fn moves(scope: &Scope, clients: &Clients, account: &Account) -> Vec<Move> {
    let mut moves = all_moves(scope, clients, account);
    if scope.essentials_only {
        moves.retain(|step| is_essential(*step, account));
    }
    moves
}

fn is_essential(step: Move, account: &Account) -> bool {
    match step {
        Move::Open { .. } | Move::Close { .. } | Move::Repeat { .. } | Move::BeginTerm => true,
        Move::Tick { after_ms } => after_ms == 100,
        Move::Ask { session, ask } => match ask {
            Ask::Acquire { waits, bound, .. } => waits && bound == HoldBound::None,
            Ask::Release { name, token } => account
                .holder(name.into())
                .is_some_and(|holder| holder.session == session && holder.token == token),
            Ask::Cancel { .. } => true,
            Ask::Renew { .. } => false,
        },
        Move::Attach { .. } | Move::Detach { .. } | Move::Touch { .. } | Move::Pass => false,
    }
}

fn all_moves(scope: &Scope, clients: &Clients, account: &Account) -> Vec<Move> {
    let mut moves = vec![Move::BeginTerm, Move::Pass];
    moves.extend([0, 100, 300].map(|after_ms| Move::Tick { after_ms }));
    for (session, client) in (0_u8..).zip(clients).take(scope.sessions) {
        if !client.opened {
            moves.push(Move::Open { session });
            continue;
        }
        moves.extend([Move::Attach { session }, Move::Detach { session }]);
        moves.extend([Move::Touch { session }, Move::Close { session }]);
        if client.last_ask.is_some() {
            moves.push(Move::Repeat { session });
        }
        let mut ask = |ask| moves.push(Move::Ask { session, ask });
        for name in 0..scope.names {
            for_each_ask(name, session, client, account, &mut ask);
        }
        // One that waits, or the last; and one that is yet to come.
        for target in [client.last_request, client.last_request + 2] {
            if target > 0 {
                ask(Ask::Cancel { target });
            }
        }
    }
    moves
}

fn for_each_ask(
    lock: usize,
    session: u8,
    client: &Client,
    account: &Account,
    ask: &mut impl FnMut(Ask),
) {
    let name = lock as u8;
    ask(Ask::Acquire { name, waits: false, bound: HoldBound::None });
    for bound in [HoldBound::None, HoldBound::Ttl, HoldBound::MaxHold] {
        // The second lock is there for crossings, not for all variants again.
        if lock == 0 || bound == HoldBound::None {
            ask(Ask::Acquire { name, waits: true, bound });
        }
    }
    let Some(holder) = account.holder(lock) else {
        // The hold that it had, or another's.
        if account.highest_token() > 0 && client.last_request > 0 {
            ask(Ask::Release { name, token: account.highest_token() });
            ask(Ask::Renew { name, token: account.highest_token() });
        }
        return;
    };
    ask(Ask::Release { name, token: holder.token });
    if holder.session == session {
        ask(Ask::Renew { name, token: holder.token });
    }
    if holder.token > 1 {
        ask(Ask::Release { name, token: holder.token - 1 });
    }
}

impl Move {
    /// The command, if it is one.
    pub(super) fn command(self, clients: &Clients, names: &Names) -> Option<Command> {
        Some(match self {
            Move::Open { session } => Command::OpenSession(OpenSession {
                session: session_id(session),
                public: PublicSessionId(u64::from(session) + 1),
                stream: Some(STREAM),
                ttl: Span::from_ms(TTL_MS),
                linger: Span::from_ms(LINGER_MS),
                owner: Owner::default(),
            }),
            Move::Attach { session } => {
                Command::AttachStream { session: session_id(session), stream: STREAM }
            }
            Move::Detach { session } => {
                Command::DetachStream { session: session_id(session), stream: STREAM }
            }
            Move::Touch { session } => {
                let last_request = clients[usize::from(session)].last_request;
                Command::Touch {
                    session: session_id(session),
                    acked_through: RequestId(last_request.into()),
                }
            }
            Move::Close { session } => Command::CloseSession { session: session_id(session) },
            Move::Ask { session, ask } => {
                let request = clients[usize::from(session)].last_request + 1;
                ask.command(session, request, names)
            }
            Move::Repeat { session } => {
                let client = &clients[usize::from(session)];
                client.last_ask?.command(session, client.last_request, names)
            }
            Move::BeginTerm => Command::BeginTerm { grace: Span::from_ms(GRACE_MS) },
            Move::Pass => return None,
            Move::Tick { .. } => Command::Tick,
        })
    }

    pub(super) fn ms_passed(self) -> u16 {
        match self {
            Move::Pass => 100,
            Move::Tick { after_ms } => after_ms,
            _ => 0,
        }
    }

    /// The clients after this move.
    pub(super) fn changed(self, clients: &Clients) -> Clients {
        let mut clients = *clients;
        match self {
            Move::Open { session } => clients[usize::from(session)].opened = true,
            Move::Ask { session, ask } => {
                let client = &mut clients[usize::from(session)];
                client.last_request += 1;
                client.last_ask = Some(ask);
            }
            _ => {}
        }
        clients
    }
}

impl Ask {
    /// The session has all answers before this request.
    fn command(self, session: u8, request: u8, names: &Names) -> Command {
        let call = Call {
            session: session_id(session),
            request: RequestId(request.into()),
            acked_through: RequestId(u64::from(request) - 1),
        };
        match self {
            Ask::Acquire { name, waits, bound } => Command::Acquire(Acquire {
                call,
                actor: ActorId(0),
                name: names.get(name.into()).clone(),
                mode: Mode::Exclusive,
                terms: Terms {
                    wait: Span::from_ms(if waits { WAIT_MS } else { 0 }),
                    policy: Policy::Wait,
                    ttl: (bound == HoldBound::Ttl).then_some(Span::from_ms(HOLD_TTL_MS)),
                    max_hold: (bound == HoldBound::MaxHold).then_some(Span::from_ms(MAX_HOLD_MS)),
                    ..Terms::default()
                },
            }),
            Ask::Cancel { target } => Command::Cancel { call, target: RequestId(target.into()) },
            Ask::Release { name, token } => {
                let name = names.get(name.into()).clone();
                Command::Release { call, hold: hold(name, token) }
            }
            Ask::Renew { name, token } => {
                let name = names.get(name.into()).clone();
                Command::Renew { call, hold: hold(name, token), ttl: None }
            }
        }
    }
}

fn hold(name: LockName, token: u64) -> HoldRef {
    HoldRef { name, token: FenceToken(token), acquire: RequestId(0) }
}

pub(super) fn session_id(session: u8) -> SessionId {
    SessionId(u128::from(session) + 1)
}

pub(super) fn session_number(session: SessionId) -> u8 {
    u8::try_from(session.0.saturating_sub(1)).unwrap_or(u8::MAX)
}
