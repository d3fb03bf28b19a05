//! The locks of a run, by the use that is made of them. Some are only ever held exclusively and left alone by
//! operators, so that everything about them is simple to judge, also where only the clients' side is known. At
//! others all modes and all interventions meet.

use holdfast_core::LockName;
use holdfast_core::command::Mode;

use crate::rng::Rng;

#[derive(Clone, Debug)]
pub(crate) struct Names {
    /// Exclusive only; all clients use them.
    pub(crate) plain: Vec<LockName>,
    /// Exclusive only; one client uses it.
    pub(crate) own: LockName,
    /// Exclusive and shared, in every way.
    pub(crate) mixed: Vec<LockName>,
    pub(crate) semaphores: Vec<LockName>,
    /// Those of other groups, which a wrong map takes for this one's.
    pub(crate) foreign: Vec<LockName>,
}

/// How often a client of several groups has a wrong map.
const WRONG_MAP_PERCENT: u64 = 6;

/// Prefixes that operators freeze.
const PREFIXES: [&str; 5] = ["mix-", "mix-0", "mix-1", "sem-", "sem-0"];

impl Names {
    /// The names that a session uses. They are numbered through all groups: of `groups`, the name with number `n` is
    /// in group `n % groups + 1`, and so is the session with that number.
    pub(crate) fn new(session: usize, groups: usize, counts: [usize; 3]) -> Names {
        let in_group = |kind: &str, count: usize, group: usize| -> Vec<LockName> {
            let numbers = (0..count).map(|number| number * groups + group);
            numbers.filter_map(|number| LockName::new(&format!("{kind}-{number}")).ok()).collect()
        };
        let [plain, mixed, semaphores] = counts;
        let group = session % groups;
        let others = (0..groups).filter(|other| *other != group);
        let foreign = others.flat_map(|other| {
            let shared = in_group("mix", mixed, other).into_iter();
            shared.chain(in_group("hot", plain, other)).chain(in_group("sem", semaphores, other))
        });
        Names {
            foreign: foreign.collect(),
            plain: in_group("hot", plain, group),
            own: in_group("own", session + 1, group)[session / groups].clone(),
            mixed: in_group("mix", mixed, group),
            semaphores: in_group("sem", semaphores, group),
        }
    }

    /// All of them that are in the session's group.
    pub(crate) fn in_own_group(&self) -> impl Iterator<Item = &LockName> {
        let shared = self.plain.iter().chain(&self.mixed).chain(&self.semaphores);
        shared.chain([&self.own])
    }

    /// What to acquire: now and then a name that only a wrong map gives to this group.
    pub(crate) fn any_to_acquire(&self, rng: &mut Rng) -> LockName {
        self.any_foreign(rng).unwrap_or_else(|| self.any(rng))
    }

    fn any_foreign(&self, rng: &mut Rng) -> Option<LockName> {
        if self.foreign.is_empty() || !rng.percent(WRONG_MAP_PERCENT) {
            return None;
        }
        rng.pick(&self.foreign).cloned()
    }

    pub(crate) fn any(&self, rng: &mut Rng) -> LockName {
        match rng.below(100) {
            0..12 => self.own.clone(),
            12..45 => self.plain[rng.index(self.plain.len())].clone(),
            45..85 => self.any_mixed(rng),
            _ => self.semaphores[rng.index(self.semaphores.len())].clone(),
        }
    }

    pub(crate) fn any_mixed(&self, rng: &mut Rng) -> LockName {
        self.mixed[rng.index(self.mixed.len())].clone()
    }

    /// Different names for an acquire-all.
    pub(crate) fn some(&self, rng: &mut Rng) -> Vec<LockName> {
        let mut all: Vec<LockName> = self.mixed.iter().chain(&self.semaphores).cloned().collect();
        all.push(self.own.clone());
        rng.shuffle(&mut all);
        all.truncate(rng.between(2, 3) as usize);
        if let (Some(foreign), Some(last)) = (self.any_foreign(rng), all.last_mut()) {
            *last = foreign;
        }
        all
    }

    pub(crate) fn any_prefix(rng: &mut Rng) -> &'static str {
        PREFIXES[rng.index(PREFIXES.len())]
    }

    /// Does every use of it go, modes and interventions and all?
    pub(crate) fn is_mixed(&self, name: &LockName) -> bool {
        self.mixed.contains(name)
    }

    /// The mode of a semaphore, in which all clients state the same number, or leave it to the operator.
    pub(crate) fn permit(&self, name: &LockName, rng: &mut Rng) -> Option<Mode> {
        let number = self.semaphores.iter().position(|semaphore| semaphore == name)?;
        let limit = if rng.percent(25) { 0 } else { number as u32 + 2 };
        Some(Mode::Permit { limit })
    }
}
