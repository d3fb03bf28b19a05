//! A request is refused as in a deadlock if its wait would never end, and only then.
//!
//! Whether it would is tried out on a copy of the table, which shares with the search for cycles nothing but
//! the rules by which locks are granted.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "it is a test")]

mod play;

use holdfast_core::command::{
    Acquire, AcquireAll, Action, HoldRef, Intervention, Member, Mode, Policy, Terms,
};
use holdfast_core::{ActorId, Command, LockName, Outcome, PublicSessionId, SessionId, Span};
use play::{Actor, Play};
use proptest::prelude::*;
use proptest::sample::{Index, subsequence};

const SESSIONS: u64 = 3;
const ACTORS_PER_SESSION: u64 = 2;
const LOCKS: usize = 3;
const PERMITS: u32 = 2;
const WAIT: Span = Span::from_secs(600);

/// What a client does next. Holds and waits are chosen among those that there are.
#[derive(Clone, Debug)]
enum Move {
    Take { actor: (u64, u64), members: Vec<(usize, Mode)>, policy: Policy, flags: Flags },
    Release(Index),
    Convert { hold: Index, to: Mode, policy: Policy },
    Cancel(Index),
    Transfer { hold: Index, to: u64 },
    SetPermits { lock: usize, limit: u32 },
}

#[derive(Clone, Copy, Debug)]
struct Flags {
    reentrant: bool,
    preemptible: bool,
}

fn a_move(policy: impl Strategy<Value = Policy> + Clone + 'static) -> impl Strategy<Value = Move> {
    let actor = (1..=SESSIONS, 0..ACTORS_PER_SESSION);
    let locks = prop_oneof![6 => Just(1_usize), 2 => Just(2), 1 => Just(3)]
        .prop_flat_map(|count| subsequence((0..LOCKS).collect::<Vec<usize>>(), count));
    let members = (locks, [mode(), mode(), mode()])
        .prop_map(|(locks, modes)| locks.into_iter().zip(modes).collect());
    let flags = (proptest::bool::weighted(0.2), proptest::bool::weighted(0.2))
        .prop_map(|(reentrant, preemptible)| Flags { reentrant, preemptible });
    let to = prop_oneof![3 => Just(Mode::Exclusive), 1 => Just(Mode::Shared)];
    prop_oneof![
        12 => (actor, members, policy.clone(), flags)
            .prop_map(|(actor, members, policy, flags)| Move::Take { actor, members, policy, flags }),
        2 => any::<Index>().prop_map(Move::Release),
        2 => (any::<Index>(), to, policy)
            .prop_map(|(hold, to, policy)| Move::Convert { hold, to, policy }),
        1 => any::<Index>().prop_map(Move::Cancel),
        1 => (any::<Index>(), 1..=SESSIONS).prop_map(|(hold, to)| Move::Transfer { hold, to }),
        1 => (0..LOCKS, 1_u32..4).prop_map(|(lock, limit)| Move::SetPermits { lock, limit }),
    ]
}

fn mode() -> impl Strategy<Value = Mode> {
    let permit = Mode::Permit { limit: PERMITS };
    prop_oneof![Just(Mode::Exclusive), Just(Mode::Shared), Just(permit)]
}

fn refusing_policy() -> impl Strategy<Value = Policy> + Clone {
    prop_oneof![4 => Just(Policy::Detect), 1 => Just(Policy::WaitDie), 1 => Just(Policy::WoundWait)]
}

fn any_policy() -> impl Strategy<Value = Policy> + Clone {
    prop_oneof![2 => Just(Policy::Wait), 3 => refusing_policy()]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn no_actor_is_stuck_if_all_use_a_refusing_policy(
        moves in proptest::collection::vec(a_move(refusing_policy()), 1..40),
    ) {
        let mut history = History::new();
        for a_move in moves {
            history.take(a_move);
            let stuck = history.play.stuck();
            assert!(stuck.is_empty(), "stuck for ever: {stuck:?}");
        }
    }

    #[test]
    fn a_refused_acquire_would_have_waited_for_ever(
        moves in proptest::collection::vec(a_move(any_policy()), 1..40),
    ) {
        let mut history = History::new();
        for a_move in moves {
            history.take(a_move);
        }
    }
}

/// What was done so far, and what came of it.
struct History {
    play: Play,
    commands: Vec<Command>,
    permits: [u32; LOCKS],
}

impl History {
    fn new() -> History {
        History { play: Play::among(SESSIONS), commands: Vec::new(), permits: [PERMITS; LOCKS] }
    }

    /// Makes a move, and judges those who are refused by it.
    fn take(&mut self, a_move: Move) {
        let Some(command) = self.command(a_move) else { return };
        let before = self.play.clone();
        let outcome = self.play.apply(command.clone());
        if let Outcome::Deadlock(_) = outcome {
            self.was_refused_rightly(before, &command);
        }
        self.commands.push(command);
        // Of several that are refused at once, one alone need not be stuck for ever.
        if let [(session, request)] = self.play.refused_late[..] {
            self.was_ended_rightly(session, request.0);
        }
    }

    fn was_refused_rightly(&self, mut play: Play, command: &Command) {
        let outcome = play.apply(waiting_in_any_case(command));
        // Two that convert are refused whatever they wish.
        if matches!(outcome, Outcome::Deadlock(_)) && matches!(command, Command::Convert { .. }) {
            return;
        }
        assert!(matches!(outcome, Outcome::Queued { .. }), "{outcome:?}");
        // Another wait of the same actor may be refused instead of a conversion.
        if !play.refused_late.is_empty() {
            return;
        }
        let asked = command.wait().map(|call| (call.session, call.request)).unwrap();
        let actor: Actor = (asked.0, play.waits[&asked]);
        assert!(play.stuck().contains(&actor), "refused, though its wait would end: {command:?}");
    }

    /// The same history once more, in which that request wished to wait whatever comes of it.
    fn was_ended_rightly(&self, session: SessionId, request: u64) {
        let mut play = Play::among(SESSIONS);
        let mut asked = None;
        for command in &self.commands {
            let call =
                command.wait().filter(|call| (call.session, call.request.0) == (session, request));
            if call.is_some() && policy(command) != Some(Policy::Detect) {
                return;
            }
            asked = asked.or(call);
            play.apply(call.map_or_else(|| command.clone(), |_| waiting_in_any_case(command)));
        }
        let asked = asked.map(|call| (call.session, call.request)).unwrap();
        // Another client may have been refused instead.
        if play.refused_late.is_empty() {
            let actor: Actor = (session, play.waits[&asked]);
            assert!(play.stuck().contains(&actor), "ended, though its wait would end");
        }
    }

    fn command(&mut self, a_move: Move) -> Option<Command> {
        Some(match a_move {
            Move::Take { actor: (session, actor), members, policy, flags } => {
                let Flags { reentrant, preemptible } = flags;
                let terms =
                    Terms { wait: WAIT, policy, reentrant, preemptible, ..Terms::default() };
                let call = self.play.call(SessionId(session.into()));
                let actor = ActorId(actor);
                let mut members: Vec<Member> =
                    members.into_iter().map(|(lock, mode)| self.member(lock, mode)).collect();
                match members.len() {
                    1 => {
                        let Member { name, mode } = members.pop()?;
                        Command::Acquire(Acquire { call, actor, name, mode, terms })
                    }
                    _ => {
                        let members = members.into_boxed_slice();
                        Command::AcquireAll(AcquireAll { call, actor, members, terms })
                    }
                }
            }
            Move::Release(hold) => {
                let (session, hold) = self.hold(hold)?;
                Command::Release { call: self.play.call(session), hold }
            }
            Move::Convert { hold, to, policy } => {
                let (session, hold) = self.hold(hold)?;
                Command::Convert { call: self.play.call(session), hold, to, wait: WAIT, policy }
            }
            Move::Cancel(wait) => {
                let waits: Vec<_> = self.play.waits.keys().collect();
                let (session, target) = *waits.get(wait.index(waits.len().max(1)))?;
                Command::Cancel { call: self.play.call(*session), target: *target }
            }
            Move::Transfer { hold, to } => {
                let (session, hold) = self.hold(hold)?;
                Command::Transfer { call: self.play.call(session), hold, to: PublicSessionId(to) }
            }
            Move::SetPermits { lock, limit } => {
                self.permits[lock] = limit;
                let action = Action::SetPermits { name: name(lock), limit: Some(limit) };
                Command::Intervene(Intervention {
                    by: "olga".into(),
                    reason: "room".into(),
                    action,
                    identity: None,
                })
            }
        })
    }

    fn member(&self, lock: usize, mode: Mode) -> Member {
        let mode = match mode {
            Mode::Permit { .. } => Mode::Permit { limit: self.permits[lock] },
            mode => mode,
        };
        Member { name: name(lock), mode }
    }

    fn hold(&self, which: Index) -> Option<(SessionId, HoldRef)> {
        let holds: Vec<_> = self.play.holds.iter().collect();
        let ((name, (session, acquire)), hold) = holds.get(which.index(holds.len().max(1)))?;
        let meant = HoldRef { name: name.clone(), token: hold.token, acquire: *acquire };
        Some((*session, meant))
    }
}

fn name(lock: usize) -> LockName {
    LockName::new(["wallet", "keys", "seats"][lock]).unwrap()
}

fn policy(command: &Command) -> Option<Policy> {
    match command {
        Command::Acquire(acquire) => Some(acquire.terms.policy),
        Command::AcquireAll(acquire) => Some(acquire.terms.policy),
        Command::Convert { policy, .. } => Some(*policy),
        _ => None,
    }
}

fn waiting_in_any_case(command: &Command) -> Command {
    let mut command = command.clone();
    match &mut command {
        Command::Acquire(acquire) => acquire.terms.policy = Policy::Wait,
        Command::AcquireAll(acquire) => acquire.terms.policy = Policy::Wait,
        Command::Convert { policy, .. } => *policy = Policy::Wait,
        _ => {}
    }
    command
}
