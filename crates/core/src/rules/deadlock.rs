//! Deadlock detection: the graph of waits, and the search for a cycle in it.
//!
//! The nodes are actors. A waiting actor is stuck if its blockers are: the conflicting holders, and the waiters ahead
//! in the queue ([`Blockers`]). For a permit, as many blockers must be stuck as there are permits. For every other mode
//! one stuck blocker is enough. Before a request is queued, the search checks whether its wait would close a cycle.
//!
//! A waiter ahead that is in no other queue blocks only for reasons that this queue shows already. So the search visits
//! only waiters *in several queues*: a queue of a hundred thousand costs no more than one of ten. The requester is
//! about to be in another queue as well, so its place counts, too. If it converts, it is about to be first in the
//! queue. An actor that holds nothing and waits for nothing else blocks no one.
//!
//! The search is bounded: all searches of one log entry share a number of steps (under the first rules, those of each
//! command). Past the bound, the request is queued without a search, and that is counted. Its deadline ends it.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

mod blockers;
mod stuck;

use blockers::Blockers;
use stuck::{Obstacle, Obstacles, find_cycle};

use crate::model::command::{Mode, Policy};
use crate::model::event::Event;
use crate::model::id::{PublicSessionId, RequestId, SessionId};
use crate::model::name::LockName;
use crate::model::outcome::CycleLink;
use crate::model::rules_version::RulesVersion;
use crate::state::answers::Reply;
use crate::state::hold::{Actor, HoldKey};
use crate::state::queue::Ticket;
use crate::state::table::LockTable;
use crate::state::wait::{QueuePlace, Wait};

/// The longest cycle that an answer contains in full.
const LINKS_MAX: usize = 32;

/// One queue place of an actor, present or future.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Want<'a> {
    pub(crate) name: &'a LockName,
    pub(crate) mode: Mode,
    /// None: at the end of the queue.
    pub(crate) ticket: Option<Ticket>,
    /// The hold that it converts. Its place is, or would be, before all others.
    pub(crate) converts: Option<HoldKey>,
}

/// The state of a search.
struct Graph<'a> {
    obstacles: Obstacles<'a>,
    /// Steps that the search may still take.
    steps_left: usize,
    /// Holds that are as good as ended.
    ended: &'a Wounds,
    /// The actor whose wait is checked, and the place at which it will block others though no queue shows it yet.
    requester: Actor,
    place: Option<QueuePlace>,
    converts: Option<&'a LockName>,
}

/// The result of a search.
pub(crate) enum CycleSearch {
    Cycle(Box<[CycleLink]>),
    NoCycle,
    /// The bound was reached before the search was complete.
    OutOfSteps,
}

/// Holds that are about to be taken away.
pub(crate) type Wounds = BTreeSet<(LockName, HoldKey)>;

impl LockTable {
    /// The cycle that would close if the actor waited for these. None if there is no cycle, or if the searches of this
    /// log entry have used up their steps.
    pub(crate) fn search_cycle(
        &mut self,
        actor: Actor,
        wants: &[Want<'_>],
        ended: &Wounds,
    ) -> Option<Box<[CycleLink]>> {
        let before = self.search_steps();
        let mut left = before;
        let found = self.cycle_through(actor, wants, ended, &mut left);
        let skipped = u64::from(matches!(found, CycleSearch::OutOfSteps));
        self.search_ended(before, left, skipped);
        match found {
            CycleSearch::Cycle(cycle) => Some(cycle),
            CycleSearch::NoCycle | CycleSearch::OutOfSteps => None,
        }
    }

    /// `steps` is the budget of the search. It returns what is left.
    fn cycle_through(
        &self,
        actor: Actor,
        wants: &[Want<'_>],
        ended: &Wounds,
        steps: &mut usize,
    ) -> CycleSearch {
        let Some(session) = self.session_map().get(&actor.0) else { return CycleSearch::NoCycle };
        if session.hold_count() == 0 && session.waits.is_empty() {
            return CycleSearch::NoCycle;
        }
        if *steps == 0 && self.rules() >= RulesVersion::TWO {
            return CycleSearch::OutOfSteps;
        }
        let converted = wants.iter().find(|want| want.converts.is_some());
        let mut graph = Graph {
            obstacles: BTreeMap::new(),
            steps_left: *steps,
            ended,
            requester: actor,
            place: self.place_if_only(actor),
            converts: converted.map(|want| want.name),
        };
        let mut own: Vec<Obstacle<'_>> = wants
            .iter()
            .flat_map(|want| self.obstacles(actor, *want, &mut graph))
            .flatten()
            .collect();
        // Other waiters will wait for a request that goes before them, so its waits elsewhere count, too.
        if converted.is_some() {
            for (_, wait) in self.waits_of(actor) {
                for place in wait.places.as_slice() {
                    let obstacles = self.obstacles(actor, wait.want(actor.0, place), &mut graph);
                    own.extend(obstacles.into_iter().flatten());
                    if !graph.spend(1) {
                        *steps = 0;
                        return CycleSearch::OutOfSteps;
                    }
                }
            }
        }
        let mut to_look_at: Vec<Actor> =
            own.iter().flat_map(|obstacle| obstacle.actors.keys().copied()).collect();
        let mut comes_back = false;
        while let Some(next) = to_look_at.pop() {
            comes_back |= next == actor;
            if next == actor || graph.obstacles.contains_key(&next) {
                continue;
            }
            let mut obstacles = Vec::new();
            let mut places = self
                .waits_of(next)
                .flat_map(|(_, wait)| {
                    wait.places.as_slice().iter().map(move |place| wait.want(next.0, place))
                })
                .peekable();
            // An actor that waits for nothing can go on, and need not be remembered.
            if places.peek().is_none() {
                continue;
            }
            for want in places {
                obstacles.extend(self.obstacles(next, want, &mut graph).into_iter().flatten());
                if !graph.spend(1) {
                    *steps = 0;
                    return CycleSearch::OutOfSteps;
                }
            }
            to_look_at.extend(obstacles.iter().flat_map(|obstacle| obstacle.actors.keys()));
            graph.obstacles.insert(next, obstacles);
        }
        *steps = graph.steps_left;
        // Mostly no blocker waits for the requester.
        if !comes_back {
            return CycleSearch::NoCycle;
        }
        graph.obstacles.insert(actor, own);
        match find_cycle(actor, &graph.obstacles) {
            Some(way) => CycleSearch::Cycle(self.cycle_links(actor, &way)),
            None => CycleSearch::NoCycle,
        }
    }

    /// A change may have closed cycles through the actor's waits. Refuses those waits, except `but`, which was checked
    /// already.
    pub(crate) fn end_waits_in_cycles(
        &mut self,
        actor: Actor,
        but: Option<RequestId>,
        steps: &mut usize,
        events: &mut Vec<Event>,
    ) {
        let nothing_ended = Wounds::new();
        let mut skipped = 0;
        let before = *steps;
        let mut in_cycles: Vec<(RequestId, Box<[CycleLink]>)> = Vec::new();
        for (request, wait) in self.waits_of(actor) {
            if self.rules() >= RulesVersion::THREE {
                // An actor may have many waits, and a search may end before its first step.
                if *steps == 0 {
                    skipped += 1;
                    break;
                }
                *steps -= 1;
            }
            if Some(request) == but || wait.terms.policy == Policy::Wait {
                continue;
            }
            let wants: Vec<Want<'_>> =
                wait.places.as_slice().iter().map(|place| wait.want(actor.0, place)).collect();
            match self.cycle_through(actor, &wants, &nothing_ended, steps) {
                CycleSearch::Cycle(cycle) => in_cycles.push((request, cycle)),
                CycleSearch::NoCycle => {}
                CycleSearch::OutOfSteps => skipped += 1,
            }
        }
        self.search_ended(before, *steps, skipped);
        for (request, cycle) in in_cycles {
            self.end_wait(actor.0, request, Reply::Deadlock(cycle), events);
        }
    }

    /// What blocks an actor at one place.
    fn obstacles<'a>(
        &self,
        actor: Actor,
        want: Want<'a>,
        graph: &mut Graph<'_>,
    ) -> [Option<Obstacle<'a>>; 2] {
        let Some(lock) = self.lock_map().get(want.name) else { return [None, None] };
        let queue = lock.queue();
        let last_unlike = queue.last_unlike_before(want.mode, want.ticket);
        let mut blockers = Blockers::of(want.mode, last_unlike);
        let room = graph.steps_left.saturating_add(1);
        let mut looked_at = 0;
        let is_ended =
            |key| !graph.ended.is_empty() && graph.ended.contains(&(want.name.clone(), key));
        for hold in lock.holds().take(room) {
            looked_at += 1;
            if !is_ended(hold.key()) && want.converts != Some(hold.key()) {
                blockers.add_holder(hold.actor(), hold.mode);
            }
        }
        // A converting holder is, or would be, before all waiters.
        let room = if want.converts.is_none() { room } else { 0 };
        #[cfg(feature = "planted")]
        let room = match crate::planted::Bug::CycleThroughQueueMissed.is_active() {
            true => 0,
            false => room,
        };
        for (ticket, waiter) in queue.in_several_queues_before(want.ticket).take(room) {
            looked_at += 1;
            blockers.add_waiter((waiter.session, waiter.actor), waiter.mode, ticket);
        }
        if let Some(place) = graph.place_ahead_of(want) {
            blockers.add_waiter(graph.requester, place.mode, place.ticket);
        }
        if graph.steps_before(actor, want) {
            blockers.add_holder(graph.requester, Mode::Exclusive);
        }
        graph.spend(looked_at);
        blockers.obstacles(want.name, self.permits_of(want.name, want.mode))
    }

    fn cycle_links(&self, actor: Actor, way: &[(Actor, LockName)]) -> Box<[CycleLink]> {
        debug_assert!(way.first().is_some_and(|(first, _)| *first == actor));
        let links = way.iter().take(LINKS_MAX).map(|((id, actor), waits_for)| CycleLink {
            session: self
                .session_map()
                .get(id)
                .map_or(PublicSessionId(0), |session| session.public),
            actor: *actor,
            waits_for: waits_for.clone(),
        });
        links.collect()
    }
}

impl Wait {
    /// What a session wants at one of its places.
    fn want<'a>(&self, session: SessionId, place: &'a QueuePlace) -> Want<'a> {
        Want {
            name: &place.name,
            mode: place.mode,
            ticket: Some(place.ticket),
            converts: self.converts.map(|converts| (session, converts.acquire)),
        }
    }
}

impl Graph<'_> {
    /// Spends steps. Returns whether any are left.
    fn spend(&mut self, steps: usize) -> bool {
        self.steps_left = self.steps_left.saturating_sub(steps);
        self.steps_left > 0
    }

    /// The requester's place, if it is ahead of this one and the queue does not yet show that it matters.
    fn place_ahead_of(&self, want: Want<'_>) -> Option<&QueuePlace> {
        self.place.as_ref().filter(|place| {
            want.converts.is_none()
                && place.name == *want.name
                && want.ticket.is_none_or(|ticket| place.ticket < ticket)
        })
    }

    /// Whether the requester will go before another actor at this place.
    fn steps_before(&self, actor: Actor, want: Want<'_>) -> bool {
        actor != self.requester && want.converts.is_none() && self.converts == Some(want.name)
    }
}
