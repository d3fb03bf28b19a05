//! Breadth first through all states.
//!
//! States that wait to be explored are kept as bytes, so that millions fit; that they decode to what they were is
//! one of the checks. Those that are known are kept as 128-bit fingerprints.

use std::collections::HashSet;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

use holdfast_core::{Command, Event, Limits, LockTable, LogIndex, LogicalTime, Outcome, Rejection};

use super::account::Account;
use super::moves::{Clients, Move, moves};
use super::setup::Names;
use super::{Kind, Scope};

/// How far an exploration got without finding anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reached {
    pub states: usize,
    pub transitions: u64,
    /// Every state within this many moves is known, and those before the last were explored.
    pub depth: u32,
    /// Some of the states one move further are known as well.
    pub stopped_early: bool,
}

/// A promise that the table broke, and the shortest way there.
#[derive(Clone, Debug)]
pub struct Broken {
    pub what: String,
    pub path: Vec<Move>,
}

/// Explores everything within the scope.
pub fn explore(scope: &Scope) -> Result<Reached, Broken> {
    let mut explorer = Explorer {
        scope,
        names: Names::new(),
        known: HashSet::new(),
        ways: Vec::new(),
        reached: Reached::default(),
    };
    explorer.run()?;
    Ok(explorer.reached)
}

/// One state that is to be explored.
#[derive(Clone)]
struct State {
    number: u32,
    table: Box<[u8]>,
    now_ms: u16,
    clients: Clients,
    account: Account,
}

struct Explorer<'a> {
    scope: &'a Scope,
    names: Names,
    known: HashSet<(u64, u64)>,
    /// How each state was first reached: from which, by which move.
    ways: Vec<(u32, Move)>,
    reached: Reached,
}

/// The beginning has no way that leads to it.
const BEGINNING: u32 = u32::MAX;

impl Explorer<'_> {
    fn run(&mut self) -> Result<(), Broken> {
        let mut level = vec![self.beginning()?];
        for depth in 1..=self.scope.depth {
            let mut next = Vec::new();
            for state in &level {
                self.explore_from(state, &mut next)?;
                if self.known.len() >= self.scope.states_max {
                    self.reached.stopped_early = true;
                    return Ok(());
                }
            }
            self.reached.depth = depth;
            level = next;
        }
        Ok(())
    }

    /// All sessions but the last are open: so no move is wasted on it, and opening is explored too. Where there are
    /// moves enough, all are.
    fn beginning(&mut self) -> Result<State, Broken> {
        let mut state = State {
            number: BEGINNING,
            table: LockTable::new(Limits::default()).encode().into_boxed_slice(),
            now_ms: 0,
            clients: Clients::default(),
            account: Account::default(),
        };
        let opened = match self.scope.kind {
            Kind::Modes | Kind::Permits => self.scope.sessions,
            _ => self.scope.sessions.saturating_sub(1),
        };
        for session in 0..opened {
            let mut reached = Vec::new();
            let table = self.decode(&state)?;
            self.take(&state, &table, Move::Open { session: session as u8 }, &mut reached)?;
            if let Some(opened) = reached.pop() {
                state = opened;
            }
        }
        Ok(state)
    }

    fn explore_from(&mut self, state: &State, next: &mut Vec<State>) -> Result<(), Broken> {
        let table = self.decode(state)?;
        for step in moves(self.scope, &state.clients, &state.account) {
            self.take(state, &table, step, next)?;
        }
        Ok(())
    }

    fn decode(&self, state: &State) -> Result<LockTable, Broken> {
        let table = LockTable::decode(&state.table, Limits::default())
            .map_err(|error| self.broken(state.number, None, error.to_string()))?;
        if *table.encode() == *state.table {
            Ok(table)
        } else {
            Err(self.broken(state.number, None, "the bytes changed on the way".into()))
        }
    }

    /// Takes one step, checks what came of it, and notes the state if it is new.
    fn take(
        &mut self,
        state: &State,
        table: &LockTable,
        step: Move,
        next: &mut Vec<State>,
    ) -> Result<(), Broken> {
        self.reached.transitions += 1;
        let now_ms = state.now_ms + step.ms_passed();
        let mut table = table.clone();
        let mut account = state.account.clone();
        if let Some(command) = step.command(&state.clients, &self.names) {
            let at = LogicalTime::from_ms(now_ms.into());
            judge(&mut table, &mut account, at, command, step, &self.names)
                .map_err(|what| self.broken(state.number, Some(step), what))?;
        }
        let bytes = table.encode().into_boxed_slice();
        let clients = step.changed(&state.clients);
        let mut hasher = DefaultHasher::new();
        (&bytes, now_ms, &clients).hash(&mut hasher);
        if self.known.insert((table.digest().0, hasher.finish())) {
            let number = self.ways.len() as u32;
            self.ways.push((state.number, step));
            next.push(State { number, table: bytes, now_ms, clients, account });
        }
        self.reached.states = self.known.len();
        Ok(())
    }

    fn broken(&self, mut number: u32, last: Option<Move>, what: String) -> Broken {
        let mut path: Vec<Move> = last.into_iter().collect();
        while let Some((from, step)) = self.ways.get(number as usize) {
            path.push(*step);
            number = *from;
        }
        path.reverse();
        Broken { what, path }
    }
}

/// Carries out one command and holds the table to its promises.
fn judge(
    table: &mut LockTable,
    account: &mut Account,
    at: LogicalTime,
    command: Command,
    step: Move,
    names: &Names,
) -> Result<(), String> {
    // The index is not what is explored: were it to rise, no state would ever be met again.
    let index = LogIndex(1);
    let mut events: Vec<Event> = Vec::new();
    let outcome = table.apply(index, at, command.clone(), &mut events);
    table.check()?;
    account.take(&command, at.as_ms(), &outcome, &events, names)?;
    account.compare(table, names)?;
    if matches!(step, Move::Repeat { .. }) && !events.is_empty() {
        return Err(format!("a request that came again did something: {events:?}"));
    }
    let is_unknown = outcome == Outcome::Rejected(Rejection::UnknownSession);
    if is_unknown && !events.is_empty() {
        return Err(format!("an unknown session did something: {events:?}"));
    }

    // An operator who says it again may mean it again.
    if matches!(command, Command::Intervene(_)) {
        return Ok(());
    }
    let digest = table.digest();
    events.clear();
    let again = table.apply(index, at, command, &mut events);
    if !events.is_empty() || table.digest() != digest {
        return Err(format!("the same command again did something: {events:?}"));
    }
    let is_closing = outcome == Outcome::SessionClosed;
    if again != outcome && !is_closing {
        return Err(format!("answered {outcome:?}, and then {again:?}"));
    }
    Ok(())
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.what)?;
        self.path
            .iter()
            .enumerate()
            .try_for_each(|(number, step)| writeln!(f, "  {:>2}. {step:?}", number + 1))
    }
}
