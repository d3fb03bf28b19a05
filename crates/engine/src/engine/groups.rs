//! The Raft groups of this node, and which of them the present turn works on (ARCHITECTURE.md explains *turn* and
//! *pass*).
//!
//! A turn *touches* a group if it runs the group's replica. A group is ready if it has had input since the last turn
//! that touched it, or if the clock has reached its `due`. `choose_ready` looks at the `due` of every group. All other
//! steps of a turn visit the ready groups only.

use std::time::Duration;

use holdfast_core::{Event, LogIndex, LogicalTime, Publication};
use holdfast_replica::{GroupId, Replica};

use crate::callers::Callers;
use crate::host::Host;

/// One Raft group on this node.
#[derive(Debug)]
pub(super) struct Group<H: Host> {
    pub(super) id: GroupId,
    pub(super) replica: Replica,
    pub(super) callers: Callers<H>,
    /// As last reported to the host.
    pub(super) is_leader: bool,
    /// This node was removed from the group.
    pub(super) is_removed: bool,
    /// Events for the next `Effect::Publish`.
    pub(super) events: Vec<(LogIndex, LogicalTime, Event)>,
    /// How far the Kafka publisher was, by the log, when the last events were applied.
    pub(super) publication: Option<Publication>,
    /// Input has come since the last turn that touched the group.
    has_input: bool,
    /// From then on the group is ready even without input.
    due: Duration,
}

impl<H: Host> Group<H> {
    /// How long the group can go without a turn, if no input comes.
    fn idle_for_at_most(&self) -> Duration {
        let idle = self.replica.idle_for_at_most();
        self.replica.next_turn_within().map_or(idle, |within| within.min(idle))
    }
}

#[derive(Debug)]
pub(super) struct Groups<H: Host> {
    /// In the order of their ids.
    all: Vec<Group<H>>,
    /// The places of the groups that the present turn touches, in order.
    ready: Vec<usize>,
    /// The places of groups whose input came after `ready` was chosen.
    late: Vec<usize>,
}

impl<H: Host> Groups<H> {
    pub(super) fn new(replicas: impl IntoIterator<Item = (GroupId, Replica)>) -> Groups<H> {
        let group = |(id, replica)| Group {
            id,
            replica,
            callers: Callers::default(),
            is_leader: false,
            is_removed: false,
            events: Vec::new(),
            publication: None,
            has_input: true,
            due: Duration::ZERO,
        };
        let mut all: Vec<Group<H>> = replicas.into_iter().map(group).collect();
        all.sort_by_key(|group| group.id);
        let late = (0..all.len()).collect();
        Groups { all, ready: Vec::new(), late }
    }

    fn place(&self, id: GroupId) -> Option<usize> {
        self.all.binary_search_by_key(&id, |group| group.id).ok()
    }

    pub(super) fn get(&self, id: GroupId) -> Option<&Group<H>> {
        self.all.get(self.place(id)?)
    }

    /// For the effects of a group. An input goes through [`Groups::input`].
    pub(super) fn get_mut(&mut self, id: GroupId) -> Option<&mut Group<H>> {
        let place = self.place(id)?;
        self.all.get_mut(place)
    }

    /// The group gets an input, so that the next turn touches it.
    pub(super) fn input(&mut self, id: GroupId) -> Option<&mut Group<H>> {
        let place = self.place(id)?;
        let group = self.all.get_mut(place)?;
        if !std::mem::replace(&mut group.has_input, true) {
            self.late.push(place);
        }
        Some(group)
    }

    /// All groups get an input.
    pub(super) fn inputs(&mut self) -> impl Iterator<Item = &mut Group<H>> {
        for (place, group) in self.all.iter_mut().enumerate() {
            if !std::mem::replace(&mut group.has_input, true) {
                self.late.push(place);
            }
        }
        self.all.iter_mut()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Group<H>> {
        self.all.iter()
    }

    /// Begins a turn: it touches the groups with input, those whose time has come, and those that `is_wanted` names.
    pub(super) fn choose_ready(&mut self, now: Duration, is_wanted: impl Fn(&Group<H>) -> bool) {
        self.ready.clear();
        self.late.clear();
        for (place, group) in self.all.iter_mut().enumerate() {
            if group.has_input || group.due <= now || is_wanted(group) {
                group.has_input = false;
                self.ready.push(place);
            }
        }
    }

    /// Begins a pass. Adds the groups that have had input since the turn began to the ready ones. The engine calls
    /// `Replica::handle_time` for the added groups only in the next turn.
    pub(super) fn add_late(&mut self) {
        for place in self.late.drain(..) {
            if let Err(at) = self.ready.binary_search(&place) {
                self.ready.insert(at, place);
            }
        }
    }

    pub(super) fn ready_count(&self) -> usize {
        self.ready.len()
    }

    /// The ready group with this number, counted from 0. None if there are fewer ready groups.
    pub(super) fn ready(&mut self, number: usize) -> Option<&mut Group<H>> {
        self.all.get_mut(*self.ready.get(number)?)
    }

    /// The turn is over.
    pub(super) fn end_turn(&mut self, now: Duration) {
        for place in &self.ready {
            if let Some(group) = self.all.get_mut(*place) {
                group.due = now + group.idle_for_at_most();
            }
        }
    }

    /// How long the host may wait for input. None without groups.
    pub(super) fn idle_for_at_most(&self, now: Duration) -> Option<Duration> {
        let idle = |group: &Group<H>| {
            let idle = group.due.saturating_sub(now);
            if group.has_input { idle.min(group.idle_for_at_most()) } else { idle }
        };
        self.all.iter().map(idle).min()
    }
}
