//! The locks of a run, by the use that is made of them. Some are only ever held exclusively and left alone by
//! operators, so that everything about them is simple to judge, also where only the clients' side is known. At
//! others all modes and all interventions meet.

use holdfast_core::LockName;
use holdfast_core::command::Mode;

use crate::rng::Rng;

#[derive(Clone, Debug)]
pub(crate) struct Names {
    /// Exclusive only; everybody's.
    pub(crate) plain: Vec<LockName>,
    /// Exclusive only; one client's.
    pub(crate) own: LockName,
    /// Exclusive and shared, in every way.
    pub(crate) mixed: Vec<LockName>,
    pub(crate) semaphores: Vec<LockName>,
}

/// Prefixes that operators freeze.
const PREFIXES: [&str; 5] = ["mix-", "mix-0", "mix-1", "sem-", "sem-0"];

impl Names {
    /// None only if a name were not allowed.
    pub(crate) fn new(client: usize, plain: usize, mixed: usize, semaphores: usize) -> Names {
        let all = |kind: &str, count: usize| {
            (0..count)
                .filter_map(|number| LockName::new(&format!("{kind}-{number}")).ok())
                .collect()
        };
        let own: Vec<LockName> = all("own", client + 1);
        Names {
            plain: all("hot", plain),
            own: own[client].clone(),
            mixed: all("mix", mixed),
            semaphores: all("sem", semaphores),
        }
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
