//! What can happen next, and the command that it is.

use holdfast_core::command::{
    Acquire, AcquireAll, Action, Call, HoldRef, Intervention, Member, Mode, OpenSession, Owner,
    Policy, Terms,
};
use holdfast_core::{
    ActorId, Command, FenceToken, LockName, PublicSessionId, RequestId, Span, StreamId,
};

use super::account::{Account, Holder};
use super::setup::{LINGER_MS, Names, PERMITS, TTL_MS, session_id};
use super::{Kind, SESSIONS_MAX, Scope};

const WAIT_MS: u64 = 200;
const HOLD_TTL_MS: u64 = 100;
const MAX_HOLD_MS: u64 = 200;
const DELAY_MS: u64 = 200;
const FREEZE_MS: u64 = 200;
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
    /// An operator steps in.
    Operate(Operation),
    /// The last request comes again, late.
    Repeat {
        session: u8,
    },
    BeginTerm,
    /// Time passes, and nothing is written.
    PassTime,
    Tick {
        after_ms: u16,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ask {
    Acquire {
        name: u8,
        waits: bool,
        bound: HoldBound,
    },
    Cancel {
        target: u8,
    },
    Release {
        name: u8,
        token: u64,
    },
    Renew {
        name: u8,
        token: u64,
    },
    /// Always willing to wait.
    Take {
        name: u8,
        manner: Manner,
    },
    TakeBoth {
        first: Manner,
    },
    Convert {
        name: u8,
        token: u64,
        to_shared: bool,
    },
    Transfer {
        name: u8,
        token: u64,
        to: u8,
    },
}

/// How an acquire is made where all modes meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Manner {
    Exclusive,
    Shared,
    Reentrant,
    WaitDie,
    /// By wound-wait, and preemptible itself.
    WoundWait,
    /// With a short TTL of its own and a lock delay.
    Delayed,
    /// One of [`PERMITS`].
    Permit,
    /// One of as many as an operator has set.
    PermitAsSet,
}

/// All at the first lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    Break { token: u64 },
    Move { token: u64, to: u8 },
    Freeze,
    Thaw,
    Kill { session: u8 },
    SetPermits { limit: Option<u8> },
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

pub(super) fn moves(scope: &Scope, clients: &Clients, account: &Account) -> Vec<Move> {
    match scope.kind {
        Kind::Modes => return moves_in_all_modes(scope, clients, account),
        Kind::Permits => return moves_at_a_semaphore(scope, clients, account),
        Kind::Exclusive | Kind::ExclusiveEssentials => {}
    }
    let mut moves = all_moves(scope, clients, account);
    if scope.kind == Kind::ExclusiveEssentials {
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
            _ => false,
        },
        Move::Operate(_) => false,
        Move::Attach { .. } | Move::Detach { .. } | Move::Touch { .. } | Move::PassTime => false,
    }
}

fn moves_in_all_modes(scope: &Scope, clients: &Clients, account: &Account) -> Vec<Move> {
    use Manner::{Delayed, Exclusive, Reentrant, Shared, WaitDie, WoundWait};
    let mut moves = vec![Move::Tick { after_ms: 100 }];
    moves.extend([Operation::Freeze, Operation::Thaw].map(Move::Operate));
    if let Some(holder) = account.holder(0) {
        moves.push(Move::Operate(Operation::Break { token: holder.token }));
    }
    for (session, client) in (0_u8..).zip(clients).take(scope.sessions) {
        let other = 1 - session.min(1);
        moves.extend([Move::Close { session }, Move::Operate(Operation::Kill { session })]);
        if client.last_ask.is_some() {
            moves.push(Move::Repeat { session });
        }
        let mut ask = |ask| moves.push(Move::Ask { session, ask });
        for manner in [Exclusive, Shared, Reentrant, WaitDie, WoundWait, Delayed] {
            ask(Ask::Take { name: 0, manner });
        }
        for manner in [Exclusive, Shared] {
            ask(Ask::Take { name: 1, manner });
        }
        ask(Ask::TakeBoth { first: Exclusive });
        ask(Ask::TakeBoth { first: Shared });
        if client.last_request > 0 {
            ask(Ask::Cancel { target: client.last_request });
        }
        for name in 0..2 {
            let own = |holder: &&Holder| holder.session == session;
            let Some(holder) = account.holders(name.into()).iter().find(own) else { continue };
            let token = holder.token;
            ask(Ask::Release { name, token });
            ask(Ask::Convert { name, token, to_shared: holder.mode == Mode::Exclusive });
            ask(Ask::Transfer { name, token, to: other });
        }
        if let Some(holder) = account.holder(0) {
            let (token, to) = (holder.token, session);
            moves.push(Move::Operate(Operation::Move { token, to }));
        }
    }
    moves
}

fn moves_at_a_semaphore(scope: &Scope, clients: &Clients, account: &Account) -> Vec<Move> {
    let mut moves = vec![Move::Tick { after_ms: 100 }];
    let set = [None, Some(1), Some(3)].map(|limit| Operation::SetPermits { limit });
    moves.extend(set.map(Move::Operate));
    for (session, client) in (0_u8..).zip(clients).take(scope.sessions) {
        moves.push(Move::Close { session });
        if client.last_ask.is_some() {
            moves.push(Move::Repeat { session });
        }
        let mut ask = |ask| moves.push(Move::Ask { session, ask });
        for manner in [Manner::Permit, Manner::PermitAsSet, Manner::Exclusive] {
            ask(Ask::Take { name: 0, manner });
        }
        ask(Ask::Take { name: 1, manner: Manner::Exclusive });
        ask(Ask::TakeBoth { first: Manner::Permit });
        if client.last_request > 0 {
            ask(Ask::Cancel { target: client.last_request });
        }
        for name in 0..2 {
            let own = |holder: &&Holder| holder.session == session;
            if let Some(holder) = account.holders(name.into()).iter().find(own) {
                ask(Ask::Release { name, token: holder.token });
            }
        }
    }
    moves
}

fn all_moves(scope: &Scope, clients: &Clients, account: &Account) -> Vec<Move> {
    let mut moves = vec![Move::BeginTerm, Move::PassTime];
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
                identity: None,
            }),
            Move::Attach { session } => Command::AttachStream {
                session: session_id(session),
                stream: STREAM,
                identity: None,
            },
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
            Move::Operate(operation) => operation.command(names),
            Move::BeginTerm => Command::BeginTerm { grace: Span::from_ms(GRACE_MS) },
            Move::PassTime => return None,
            Move::Tick { .. } => Command::Tick,
        })
    }

    pub(super) fn ms_passed(self) -> u16 {
        match self {
            Move::PassTime => 100,
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
            Ask::Take { name, manner } => Command::Acquire(Acquire {
                call,
                actor: ActorId(0),
                name: names.get(name.into()).clone(),
                mode: manner.mode(),
                terms: manner.terms(),
            }),
            Ask::TakeBoth { first } => {
                let member = |name, mode| Member { name: names.get(name).clone(), mode };
                Command::AcquireAll(AcquireAll {
                    call,
                    actor: ActorId(0),
                    members: Box::new([member(0, first.mode()), member(1, Mode::Exclusive)]),
                    terms: Manner::Exclusive.terms(),
                })
            }
            Ask::Convert { name, token, to_shared } => Command::Convert {
                call,
                hold: hold(names.get(name.into()).clone(), token),
                to: if to_shared { Mode::Shared } else { Mode::Exclusive },
                wait: Span::from_ms(WAIT_MS),
                policy: Policy::Detect,
            },
            Ask::Transfer { name, token, to } => Command::Transfer {
                call,
                hold: hold(names.get(name.into()).clone(), token),
                to: PublicSessionId(u64::from(to) + 1),
            },
        }
    }
}

impl Manner {
    fn mode(self) -> Mode {
        match self {
            Manner::Shared => Mode::Shared,
            Manner::Permit => Mode::Permit { limit: PERMITS },
            Manner::PermitAsSet => Mode::Permit { limit: 0 },
            _ => Mode::Exclusive,
        }
    }

    fn terms(self) -> Terms {
        let policy = match self {
            Manner::WaitDie => Policy::WaitDie,
            Manner::WoundWait => Policy::WoundWait,
            _ => Policy::Detect,
        };
        let delayed = self == Manner::Delayed;
        Terms {
            wait: Span::from_ms(WAIT_MS),
            policy,
            preemptible: self == Manner::WoundWait,
            reentrant: self == Manner::Reentrant,
            ttl: delayed.then_some(Span::from_ms(HOLD_TTL_MS)),
            lock_delay: delayed.then_some(Span::from_ms(DELAY_MS)),
            ..Terms::default()
        }
    }
}

impl Operation {
    fn command(self, names: &Names) -> Command {
        let name = names.get(0).clone();
        let action = match self {
            Operation::Break { token } => Action::Break { name, token: Some(FenceToken(token)) },
            Operation::Move { token, to } => {
                let to = PublicSessionId(u64::from(to) + 1);
                Action::Transfer { name, token: FenceToken(token), to }
            }
            Operation::Freeze => {
                Action::Freeze { prefix: (&*name).into(), ttl: Span::from_ms(FREEZE_MS) }
            }
            Operation::Thaw => Action::Thaw { prefix: (&*name).into() },
            Operation::Kill { session } => {
                Action::KillSession { session: PublicSessionId(u64::from(session) + 1) }
            }
            Operation::SetPermits { limit } => {
                Action::SetPermits { name, limit: limit.map(u32::from) }
            }
        };
        Command::Intervene(Intervention {
            by: "operator".into(),
            reason: "why not".into(),
            action,
            identity: None,
        })
    }
}

fn hold(name: LockName, token: u64) -> HoldRef {
    HoldRef { name, token: FenceToken(token), acquire: RequestId(0) }
}
