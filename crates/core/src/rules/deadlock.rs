//! Would a wait never end? The graph of waits, and the search for a cycle in it.
//!
//! The nodes are actors. An actor that waits is stuck if those in its way are: the holders that conflict
//! with it, and those ahead in the queue ([`Blockers`]). For a permit it takes as many stuck ones as there are
//! permits; for everything else, one. Before a request is queued, the search looks whether its wait would make
//! its own actor stuck on itself.
//!
//! Somebody ahead in the queue who stands nowhere else is in the way only for what this queue shows
//! already, so only *tangled* waiters are looked at: a queue of a hundred thousand costs no more than one
//! of ten. The one who asks is about to stand elsewhere as well, so its place counts too; and if it converts, it
//! is about to stand before everybody. Who holds nothing and waits for nothing else cannot be waited for.
//!
//! The search is bounded: all searches of one log entry together take so many steps (under the first rules, those of
//! each command). Past the bound the request is queued without a search, and that is counted; its deadline ends it.

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

/// The longest cycle that is told in full.
const LINKS_MAX: usize = 32;

/// One place in which an actor stands or would stand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Want<'a> {
    pub(crate) name: &'a LockName,
    pub(crate) mode: Mode,
    /// None: at the end of the queue.
    pub(crate) ticket: Option<Ticket>,
    /// The hold that it is to convert. It is, or would be, before all others.
    pub(crate) converts: Option<HoldKey>,
}

/// What the search has seen: who waits for whom.
struct Graph<'a> {
    obstacles: Obstacles<'a>,
    /// Steps that the search may still take.
    steps_left: usize,
    /// Holds that are as good as ended.
    ended: &'a Wounds,
    /// Who asks, and where it will be in the way though no queue shows it yet.
    asking: Actor,
    place: Option<QueuePlace>,
    converts: Option<&'a LockName>,
}

/// What a search has found.
pub(crate) enum Found {
    Cycle(Box<[CycleLink]>),
    NoCycle,
    /// The bound was reached before it was known.
    OutOfSteps,
}

/// Holds that are about to be taken away.
pub(crate) type Wounds = BTreeSet<(LockName, HoldKey)>;

impl LockTable {
    /// The cycle that would close if the actor waited for these; none if it would not, or if it is not known because
    /// the searches of this log entry have used up their steps.
    pub(crate) fn search_cycle(
        &mut self,
        actor: Actor,
        wants: &[Want<'_>],
        ended: &Wounds,
    ) -> Option<Box<[CycleLink]>> {
        let before = self.search_steps();
        let mut left = before;
        let found = self.cycle_through(actor, wants, ended, &mut left);
        let skipped = u64::from(matches!(found, Found::OutOfSteps));
        self.search_ended(before, left, skipped);
        match found {
            Found::Cycle(cycle) => Some(cycle),
            Found::NoCycle | Found::OutOfSteps => None,
        }
    }

    /// `steps` is what the search may cost, and what is left of it.
    fn cycle_through(
        &self,
        actor: Actor,
        wants: &[Want<'_>],
        ended: &Wounds,
        steps: &mut usize,
    ) -> Found {
        let Some(session) = self.session_map().get(&actor.0) else { return Found::NoCycle };
        if session.hold_count() == 0 && session.waits.is_empty() {
            return Found::NoCycle;
        }
        if *steps == 0 && self.rules() >= RulesVersion::TWO {
            return Found::OutOfSteps;
        }
        let converted = wants.iter().find(|want| want.converts.is_some());
        let mut graph = Graph {
            obstacles: BTreeMap::new(),
            steps_left: *steps,
            ended,
            asking: actor,
            place: self.place_if_only(actor),
            converts: converted.map(|want| want.name),
        };
        let mut own: Vec<Obstacle<'_>> = wants
            .iter()
            .flat_map(|want| self.obstacles(actor, *want, &mut graph))
            .flatten()
            .collect();
        // Others will wait for who steps before them; so whatever that one waits for elsewhere counts too.
        if converted.is_some() {
            for (_, wait) in self.waits_of(actor) {
                for place in wait.places.as_slice() {
                    let obstacles = self.obstacles(actor, wait.want(actor.0, place), &mut graph);
                    own.extend(obstacles.into_iter().flatten());
                    if !graph.spend(1) {
                        *steps = 0;
                        return Found::OutOfSteps;
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
            // Who waits for nothing can go on, and need not be remembered.
            if places.peek().is_none() {
                continue;
            }
            for want in places {
                obstacles.extend(self.obstacles(next, want, &mut graph).into_iter().flatten());
                if !graph.spend(1) {
                    *steps = 0;
                    return Found::OutOfSteps;
                }
            }
            to_look_at.extend(obstacles.iter().flat_map(|obstacle| obstacle.actors.keys()));
            graph.obstacles.insert(next, obstacles);
        }
        *steps = graph.steps_left;
        // Mostly nobody in the way waits for who asks, however far one looks.
        if !comes_back {
            return Found::NoCycle;
        }
        graph.obstacles.insert(actor, own);
        match find_cycle(actor, &graph.obstacles) {
            Some(way) => Found::Cycle(self.told(actor, &way)),
            None => Found::NoCycle,
        }
    }

    /// Something has changed that may have closed a cycle through these waits: they are refused now, but for one
    /// that was looked at itself.
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
                Found::Cycle(cycle) => in_cycles.push((request, cycle)),
                Found::NoCycle => {}
                Found::OutOfSteps => skipped += 1,
            }
        }
        self.search_ended(before, *steps, skipped);
        for (request, cycle) in in_cycles {
            self.end_wait(actor.0, request, Reply::Deadlock(cycle), events);
        }
    }

    /// What is in the way of an actor at one place.
    fn obstacles<'a>(
        &self,
        actor: Actor,
        want: Want<'a>,
        graph: &mut Graph<'_>,
    ) -> [Option<Obstacle<'a>>; 2] {
        let Some(resource) = self.lock_map().get(want.name) else { return [None, None] };
        let queue = resource.queue();
        let last_unlike = queue.last_unlike_before(want.mode, want.ticket);
        let mut in_the_way = Blockers::of(want.mode, last_unlike);
        let room = graph.steps_left.saturating_add(1);
        let mut looked_at = 0;
        let is_ended =
            |key| !graph.ended.is_empty() && graph.ended.contains(&(want.name.clone(), key));
        for hold in resource.holds().take(room) {
            looked_at += 1;
            if !is_ended(hold.key()) && want.converts != Some(hold.key()) {
                in_the_way.add_holder(hold.actor(), hold.mode);
            }
        }
        // Who converts is, or would be, before all who wait.
        let room = if want.converts.is_none() { room } else { 0 };
        #[cfg(feature = "planted")]
        let room = match crate::planted::Bug::CycleThroughQueueMissed.is_active() {
            true => 0,
            false => room,
        };
        for (ticket, waiter) in queue.in_several_queues_before(want.ticket).take(room) {
            looked_at += 1;
            in_the_way.add_waiter((waiter.session, waiter.actor), waiter.mode, ticket);
        }
        if let Some(place) = graph.place_ahead_of(want) {
            in_the_way.add_waiter(graph.asking, place.mode, place.ticket);
        }
        if graph.steps_before(actor, want) {
            in_the_way.add_holder(graph.asking, Mode::Exclusive);
        }
        graph.spend(looked_at);
        in_the_way.obstacles(want.name, self.permits_of(want.name, want.mode))
    }

    fn told(&self, actor: Actor, way: &[(Actor, LockName)]) -> Box<[CycleLink]> {
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
    /// What it wants at one of its places.
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
    /// Is there something left after so many steps?
    fn spend(&mut self, steps: usize) -> bool {
        self.steps_left = self.steps_left.saturating_sub(steps);
        self.steps_left > 0
    }

    /// Where the one who asks stands ahead of this place, though its queue does not show yet that it matters.
    fn place_ahead_of(&self, want: Want<'_>) -> Option<&QueuePlace> {
        self.place.as_ref().filter(|place| {
            want.converts.is_none()
                && place.name == *want.name
                && want.ticket.is_none_or(|ticket| place.ticket < ticket)
        })
    }

    /// Will the one who asks step before another at this place?
    fn steps_before(&self, actor: Actor, want: Want<'_>) -> bool {
        actor != self.asking && want.converts.is_none() && self.converts == Some(want.name)
    }
}
