//! The search for an order, after Wing & Gong with Lowe's memory of what was tried.
//!
//! A *configuration* is the set of steps that have been placed and the lock after them. From one, any step can
//! come next that was invoked before the earliest return among those not placed. Three things keep the
//! search short:
//! * a configuration is tried once (sets are told apart by 128-bit hashes), and not at all if one was tried that
//!   differs only in having spent fewer of the steps that may be left out;
//! * a step that leaves the lock as it is is placed as soon as it can be: to wait could only hurt;
//! * grants whose tokens are known come in the order of their tokens.
//!
//! Steps without a return may be placed or left out. A hold may end on its own from the moment on that is
//! given with the step that began it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;

use holdfast_core::{FenceToken, SessionId};

use super::label::Label;
use super::model::{Action, Hold, Lock};
use crate::check::findings::At;
use crate::history::RealTime;

#[derive(Clone, Debug)]
pub(super) struct Step<'a> {
    pub(super) action: Action,
    pub(super) invoked: RealTime,
    /// None: it may have taken effect at any time since, or never.
    pub(super) returned: Option<RealTime>,
    /// Of a grant: from when on the hold can have ended on its own; None is never.
    pub(super) may_end_from: Option<RealTime>,
    /// For people.
    pub(super) label: Label<'a>,
}

/// What came of a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Linearizable,
    Impossible { why: String },
    GaveUp { visited: u64 },
}

pub(super) fn search(steps: &[Step<'_>], configurations_max: u64) -> Verdict {
    Search::new(steps).run(configurations_max)
}

#[derive(Clone, Copy, Debug)]
enum Choice {
    Endpoint(usize),
    /// The hold ends on its own.
    Expire,
}

/// A configuration with several ways on.
struct Branch {
    lock: Lock,
    /// How many steps had been placed.
    placed: usize,
    choices: Vec<Choice>,
}

type Bits = Vec<u64>;

struct Search<'a> {
    steps: &'a [Step<'a>],
    /// Steps not placed, in order of invocation, as a doubly linked ring; the last place is its head.
    next: Vec<usize>,
    previous: Vec<usize>,
    is_placed: Vec<bool>,
    /// In order of placing.
    placed: Vec<usize>,
    /// Of those that must be placed.
    placed_hash: u128,
    mandatory_left: usize,
    /// The bit of each step that may be left out, and those that are placed.
    spendable: Vec<Option<usize>>,
    spent: Bits,
    known_tokens: BTreeSet<FenceToken>,
    /// Mandatory grants in order of their tokens, and how many of them are placed.
    grants_in_order: Vec<usize>,
    grants_placed: usize,
    grants_of: BTreeMap<SessionId, Vec<usize>>,
    closings_of: BTreeMap<SessionId, Vec<usize>>,
    tried: HashMap<(u128, Lock), Vec<Bits>>,
    furthest: Option<(usize, Lock, Vec<usize>)>,
}

impl<'a> Search<'a> {
    fn new(steps: &'a [Step<'a>]) -> Search<'a> {
        let count = steps.len();
        let mut in_order: Vec<usize> = (0..count).collect();
        in_order.sort_by_key(|number| steps[*number].invoked);
        let mut next = vec![count; count + 1];
        let mut previous = vec![count; count + 1];
        let mut last = count;
        for number in in_order {
            next[last] = number;
            previous[number] = last;
            last = number;
        }
        next[last] = count;
        previous[count] = last;

        let mut grants: Vec<(FenceToken, usize)> = Vec::new();
        let mut grants_of: BTreeMap<SessionId, Vec<usize>> = BTreeMap::new();
        let mut closings_of: BTreeMap<SessionId, Vec<usize>> = BTreeMap::new();
        for (number, step) in steps.iter().enumerate() {
            match &step.action {
                Action::Grant { session, token } => {
                    grants_of.entry(*session).or_default().push(number);
                    if let (Some(token), Some(_)) = (token, step.returned) {
                        grants.push((*token, number));
                    }
                }
                Action::Join { session, .. } | Action::Permit { session, .. } => {
                    grants_of.entry(*session).or_default().push(number);
                }
                Action::Close { session } => closings_of.entry(*session).or_default().push(number),
                _ => {}
            }
        }
        grants.sort_unstable();
        let mut bits = 0..;
        let spendable: Vec<Option<usize>> =
            steps.iter().map(|step| if is_spendable(step) { bits.next() } else { None }).collect();
        Search {
            steps,
            next,
            previous,
            is_placed: vec![false; count],
            placed: Vec::with_capacity(count),
            placed_hash: 0,
            mandatory_left: steps.iter().filter(|step| step.returned.is_some()).count(),
            spent: vec![0; bits.start.div_ceil(64)],
            spendable,
            known_tokens: grants.iter().map(|(token, _)| *token).collect(),
            grants_in_order: grants.into_iter().map(|(_, number)| number).collect(),
            grants_placed: 0,
            grants_of,
            closings_of,
            tried: HashMap::new(),
            furthest: None,
        }
    }

    fn run(mut self, configurations_max: u64) -> Verdict {
        let mut visited = 0;
        let mut branches: Vec<Branch> = Vec::new();
        let mut at = Some(Lock::FREE);
        loop {
            if let Some(lock) = at.take() {
                let (lock, choices) = self.settle(lock);
                if self.mandatory_left == 0 {
                    return Verdict::Linearizable;
                }
                if self.is_worth_trying(lock) {
                    visited += 1;
                    if visited > configurations_max {
                        return Verdict::GaveUp { visited: configurations_max };
                    }
                    branches.push(Branch { lock, placed: self.placed.len(), choices });
                }
            }
            let Some(branch) = branches.last_mut() else {
                return Verdict::Impossible { why: self.explain() };
            };
            let (lock, placed) = (branch.lock, branch.placed);
            match branch.choices.pop() {
                None => drop(branches.pop()),
                Some(choice) => {
                    self.unplace_to(placed);
                    at = match choice {
                        Choice::Expire => Some(lock.freed()),
                        Choice::Endpoint(number) => {
                            let action = &self.steps[number].action;
                            let after = lock.after(number, action, &self.known_tokens);
                            self.place(number);
                            after
                        }
                    };
                }
            }
        }
    }

    /// Notes the configuration, unless it leads to nothing that a known one does not lead to.
    fn is_worth_trying(&mut self, lock: Lock) -> bool {
        let known = self.tried.entry((self.placed_hash, lock)).or_default();
        let within = |few: &Bits, many: &Bits| few.iter().zip(many).all(|(a, b)| a & !b == 0);
        if known.iter().any(|spent| within(spent, &self.spent)) {
            return false;
        }
        known.retain(|spent| !within(&self.spent, spent));
        known.push(self.spent.clone());
        true
    }

    /// Places all steps that leave the lock as it is. Returns the ways on from there, the likeliest last.
    fn settle(&mut self, lock: Lock) -> (Lock, Vec<Choice>) {
        loop {
            let (candidates, until) = self.candidates();
            let harmless: Vec<usize> =
                candidates.iter().copied().filter(|step| self.is_harmless(*step, lock)).collect();
            if harmless.is_empty() {
                return (lock, self.choices(lock, candidates, until));
            }
            for number in harmless {
                self.place(number);
            }
        }
    }

    /// The steps that can come next as far as time goes, and the earliest return of those not placed.
    fn candidates(&self) -> (Vec<usize>, Option<RealTime>) {
        let head = self.steps.len();
        let mut until: Option<RealTime> = None;
        let mut found = Vec::new();
        let mut number = self.next[head];
        while number != head {
            let step = &self.steps[number];
            if until.is_some_and(|until| step.invoked > until) {
                break;
            }
            until = match (until, step.returned) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
            found.push(number);
            number = self.next[number];
        }
        // One that was found early may begin after a return that was found late.
        found.retain(|number| until.is_none_or(|until| self.steps[*number].invoked <= until));
        (found, until)
    }

    fn is_harmless(&self, number: usize, lock: Lock) -> bool {
        let step = &self.steps[number];
        if step.returned.is_none()
            || lock.after(number, &step.action, &self.known_tokens) != Some(lock)
        {
            return false;
        }
        match &step.action {
            // After it, the session gets nothing more.
            Action::Close { session } => self.all_placed(self.grants_of.get(session)),
            _ => true,
        }
    }

    fn choices(
        &mut self,
        lock: Lock,
        candidates: Vec<usize>,
        until: Option<RealTime>,
    ) -> Vec<Choice> {
        let mut choices = Vec::new();
        let may_end = |hold: Hold| self.steps[hold.begun_by].may_end_from;
        if let Some(from) = lock.hold.and_then(may_end)
            && until.is_none_or(|until| from <= until)
        {
            choices.push(Choice::Expire);
        }
        let mut possible: Vec<usize> = candidates
            .iter()
            .copied()
            .filter(|number| self.is_allowed(*number))
            .filter(|number| {
                lock.after(*number, &self.steps[*number].action, &self.known_tokens).is_some()
            })
            .collect();
        // Tried from the end: what must be placed soonest first, what may be left out last.
        possible.sort_by_key(|number| {
            std::cmp::Reverse(self.steps[*number].returned.map_or(u64::MAX, |returned| returned.0))
        });
        let optional =
            possible.iter().filter(|number| self.steps[**number].returned.is_none()).count();
        choices
            .splice(0..0, possible.iter().take(optional).map(|number| Choice::Endpoint(*number)));
        choices.extend(possible.iter().skip(optional).map(|number| Choice::Endpoint(*number)));
        let is_furthest =
            self.furthest.as_ref().is_none_or(|(placed, ..)| *placed < self.placed.len());
        if is_furthest {
            self.furthest = Some((self.placed.len(), lock, candidates));
        }
        choices
    }

    /// Is there nothing but the lock's state to be said against this step now?
    fn is_allowed(&self, number: usize) -> bool {
        let step = &self.steps[number];
        match &step.action {
            Action::Grant { session, token } => {
                let in_order = token.is_none()
                    || step.returned.is_none()
                    || self.grants_in_order.get(self.grants_placed) == Some(&number);
                let mut closings = self.closings_of.get(session).into_iter().flatten();
                in_order && !closings.any(|closing| self.is_placed[*closing])
            }
            Action::Join { session, .. } | Action::Permit { session, .. } => {
                let mut closings = self.closings_of.get(session).into_iter().flatten();
                !closings.any(|closing| self.is_placed[*closing])
            }
            Action::Close { session } => {
                let mut grants = self.grants_of.get(session).into_iter().flatten();
                grants.all(|grant| self.is_placed[*grant] || self.steps[*grant].returned.is_none())
            }
            _ => true,
        }
    }

    fn all_placed(&self, steps: Option<&Vec<usize>>) -> bool {
        steps.into_iter().flatten().all(|number| self.is_placed[*number])
    }

    fn place(&mut self, number: usize) {
        let (before, after) = (self.previous[number], self.next[number]);
        self.next[before] = after;
        self.previous[after] = before;
        self.placed.push(number);
        self.mark(number, true);
    }

    fn unplace_to(&mut self, count: usize) {
        while self.placed.len() > count {
            let Some(number) = self.placed.pop() else { return };
            let (before, after) = (self.previous[number], self.next[number]);
            self.next[before] = number;
            self.previous[after] = number;
            self.mark(number, false);
        }
    }

    fn mark(&mut self, number: usize, placed: bool) {
        self.is_placed[number] = placed;
        if let Some(bit) = self.spendable[number] {
            self.spent[bit / 64] ^= 1 << (bit % 64);
        }
        let step = &self.steps[number];
        if step.returned.is_some() {
            self.placed_hash ^= random_bits(number);
            if placed {
                self.mandatory_left -= 1;
            } else {
                self.mandatory_left += 1;
            }
            if matches!(step.action, Action::Grant { token: Some(_), .. }) {
                if placed {
                    self.grants_placed += 1;
                } else {
                    self.grants_placed -= 1;
                }
            }
        }
    }

    /// Where the best attempt got stuck.
    fn explain(&self) -> String {
        let Some((placed, lock, candidates)) = &self.furthest else {
            return String::from("no order explains the answers");
        };
        let mut why = format!(
            "no order explains the answers; the best one explains {placed} of {} steps, then ",
            self.steps.len()
        );
        let _ = match lock.hold {
            None => write!(why, "no writer holds the lock ({lock:?})"),
            Some(hold) => write!(
                why,
                "the lock is held by {} since: {}",
                crate::check::findings::Who(hold.session),
                self.steps[hold.begun_by].label
            ),
        };
        why.push_str(", and none of these can come next:");
        // What has to come first: what may be left out is in the way of nothing.
        let (must, may): (Vec<usize>, Vec<usize>) =
            candidates.iter().partition(|number| self.steps[**number].returned.is_some());
        for number in must.iter().chain(&may).take(8) {
            let step = &self.steps[*number];
            let _ = match step.returned {
                Some(returned) => {
                    write!(why, " [{} .. {}] {};", At(step.invoked), At(returned), step.label)
                }
                None => write!(why, " [{} ..] {};", At(step.invoked), step.label),
            };
        }
        why
    }
}

/// May the step be left out, and is something lost when it is not? A release can be placed only while its token is
/// held, so when that is over it is worth nothing either way.
fn is_spendable(step: &Step<'_>) -> bool {
    step.returned.is_none() && !matches!(step.action, Action::Release { .. })
}

/// A fixed random number for each step, so that a set of steps has a hash that is easy to change.
fn random_bits(number: usize) -> u128 {
    let mix = |seed: u64| {
        let mut bits = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^ (bits >> 31)
    };
    let number = number as u64 + 1;
    (u128::from(mix(number)) << 64) | u128::from(mix(number | 1 << 63))
}
