//! Which names can be judged how. At most names a lock is held exclusively and ends by its own time, so that
//! answers alone tell a lot. Where all modes, delays, reservations and interventions meet, *busy* does not mean
//! held and free does not mean that no session waits; there only the log and what is said about holds counts.

use std::collections::BTreeSet;

use holdfast_core::command::{Action, Mode};
use holdfast_core::{Event, LockName, Slot, SlotSet};

use crate::history::{Happening, History, Input};

#[derive(Debug, Default)]
pub(super) struct Kinds<'a> {
    mixed: BTreeSet<&'a LockName>,
    prefixes: BTreeSet<&'a str>,
    /// The slots that the group had at some time.
    slots: Vec<&'a SlotSet>,
}

impl<'a> Kinds<'a> {
    pub(super) fn of(history: &'a History) -> Kinds<'a> {
        let mut kinds = Kinds::default();
        for operation in &history.operations {
            match &operation.input {
                Input::Take(take) => {
                    let terms = &take.terms;
                    let mixed = take.all
                        || terms.preemptible
                        || terms.reentrant
                        || terms.lock_delay.is_some();
                    for member in &take.members {
                        if mixed || member.mode != Mode::Exclusive {
                            kinds.mixed.insert(&member.name);
                        }
                    }
                }
                Input::Convert { name, .. }
                | Input::Transfer { name, .. }
                | Input::Intervene(
                    Action::Break { name, .. }
                    | Action::Transfer { name, .. }
                    | Action::SetPermits { name, .. }
                    | Action::Reopen { name },
                ) => drop(kinds.mixed.insert(name)),
                Input::Intervene(Action::Freeze { prefix, .. }) => {
                    kinds.prefixes.insert(prefix);
                }
                _ => {}
            }
        }
        kinds.slots.extend(history.replicated.iter().filter_map(|record| match &record.what {
            Happening::Event(Event::OwnershipChanged { slots, .. }) => Some(slots),
            _ => None,
        }));
        kinds
    }

    /// Held exclusively, only its holder and time can end it, and the group has always owned its slot.
    pub(super) fn is_plain(&self, name: &LockName) -> bool {
        let slot = Slot::of(name);
        !self.mixed.contains(name)
            && !self.prefixes.iter().any(|prefix| name.starts_with(prefix))
            && self.slots.iter().all(|slots| slots.contains(slot))
    }
}
