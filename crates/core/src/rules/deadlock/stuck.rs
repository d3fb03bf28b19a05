//! Finds the stuck actors, and a cycle from one of them back to itself.
//!
//! Every waiting actor counts as stuck until enough of its blockers can go on. The remaining actors are stuck for good.
//! That also finds actors that are stuck only together, as around a semaphore whose holders wait for different locks. A
//! search that starts from one stuck actor and follows the actors it blocks would miss those.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use crate::model::name::LockName;
use crate::state::hold::Actor;

/// The blockers of an actor at one place.
pub(super) struct Obstacle<'a> {
    pub(super) name: &'a LockName,
    /// Each with a count: an actor may hold several permits.
    pub(super) actors: BTreeMap<Actor, usize>,
    /// How many of them must be stuck for the actor to be stuck.
    pub(super) stuck_min: usize,
}

/// The obstacles of each waiting actor.
pub(super) type Obstacles<'a> = BTreeMap<Actor, Vec<Obstacle<'a>>>;

/// A cycle of stuck actors from this actor back to itself, each with the lock that it waits for. None if the actor is
/// not stuck, or if it is stuck only behind actors that do not wait for it.
pub(super) fn find_cycle(
    actor: Actor,
    obstacles: &Obstacles<'_>,
) -> Option<Vec<(Actor, LockName)>> {
    let stuck = Stuck::among(obstacles);
    // For each actor reached: the actor that waits for it, and at which lock.
    let mut reached_from: BTreeMap<Actor, (Actor, &LockName)> = BTreeMap::new();
    let mut to_go_on_from = VecDeque::from([actor]);
    while !reached_from.contains_key(&actor) {
        let from = to_go_on_from.pop_front()?;
        for (other, name) in stuck.blockers_of(from) {
            reached_from.entry(other).or_insert_with(|| {
                to_go_on_from.push_back(other);
                (from, name)
            });
        }
    }
    let mut way = Vec::new();
    let mut at = actor;
    while way.is_empty() || at != actor {
        let (from, name) = reached_from.get(&at)?;
        way.push((*from, (*name).clone()));
        at = *from;
    }
    way.reverse();
    Some(way)
}

struct Stuck<'a, 'b> {
    obstacles: &'b Obstacles<'a>,
    /// The stuck actors, each with the number of obstacles that keep it stuck.
    actors: BTreeMap<Actor, usize>,
}

impl<'a, 'b> Stuck<'a, 'b> {
    fn among(obstacles: &'b Obstacles<'a>) -> Stuck<'a, 'b> {
        // Each obstacle: its actor, how many of its blockers are stuck, and how many must be.
        let mut counted: Vec<(Actor, usize, usize)> = Vec::new();
        let mut part_of: BTreeMap<Actor, Vec<(usize, usize)>> = BTreeMap::new();
        let mut actors: BTreeMap<Actor, usize> = BTreeMap::new();
        for (actor, own) in obstacles {
            actors.insert(*actor, own.len());
            for obstacle in own {
                let number = counted.len();
                let mut waiting = 0;
                for (other, times) in &obstacle.actors {
                    if obstacles.contains_key(other) {
                        part_of.entry(*other).or_default().push((number, *times));
                        waiting += times;
                    }
                }
                counted.push((*actor, waiting, obstacle.stuck_min));
            }
        }
        let mut can_go_on = Vec::new();
        for (actor, waiting, stuck_min) in &counted {
            if waiting < stuck_min
                && let Some(left) = actors.get_mut(actor)
            {
                *left -= 1;
            }
        }
        can_go_on.extend(actors.iter().filter(|(_, left)| **left == 0).map(|(actor, _)| *actor));
        while let Some(actor) = can_go_on.pop() {
            actors.remove(&actor);
            for (number, times) in part_of.get(&actor).into_iter().flatten() {
                let (whose, waiting, stuck_min) = &mut counted[*number];
                let was_enough = *waiting >= *stuck_min;
                *waiting -= times;
                if was_enough
                    && *waiting < *stuck_min
                    && let Some(left) = actors.get_mut(whose)
                {
                    *left -= 1;
                    if *left == 0 {
                        can_go_on.push(*whose);
                    }
                }
            }
        }
        Stuck { obstacles, actors }
    }

    /// The stuck blockers of a stuck actor, and at which locks.
    fn blockers_of(&self, actor: Actor) -> impl Iterator<Item = (Actor, &'a LockName)> + '_ {
        let own = match self.actors.contains_key(&actor) {
            true => self.obstacles.get(&actor).map_or(&[][..], |own| own),
            false => &[],
        };
        own.iter().filter(|obstacle| self.is_enough(obstacle)).flat_map(|obstacle| {
            let stuck = obstacle.actors.keys().filter(|other| self.actors.contains_key(other));
            stuck.map(|other| (*other, obstacle.name))
        })
    }

    fn is_enough(&self, obstacle: &Obstacle<'_>) -> bool {
        let stuck = obstacle.actors.iter().filter(|(other, _)| self.actors.contains_key(other));
        stuck.map(|(_, times)| times).sum::<usize>() >= obstacle.stuck_min
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use super::*;
    use crate::model::id::{ActorId, SessionId};

    fn actor(number: u128) -> Actor {
        (SessionId(number), ActorId(0))
    }

    /// Who waits, for whom, and how many of those must be stuck.
    fn way(from: u128, waits: &[(u128, &[u128], usize)]) -> Option<Vec<u128>> {
        let name = LockName::new(&format!("lock/{from}")).unwrap();
        let mut obstacles = Obstacles::new();
        for (waiting, others, stuck_min) in waits {
            let actors = others.iter().map(|other| (actor(*other), 1)).collect();
            let obstacle = Obstacle { name: &name, actors, stuck_min: *stuck_min };
            obstacles.entry(actor(*waiting)).or_default().push(obstacle);
        }
        let way = find_cycle(actor(from), &obstacles)?;
        Some(way.into_iter().map(|((session, _), _)| session.0).collect())
    }

    #[test]
    fn an_actor_that_waits_for_a_stuck_actor_is_stuck_and_gets_the_cycle() {
        assert_eq!(way(1, &[(1, &[2], 1), (2, &[1], 1)]), Some(Vec::from([1, 2])));
        assert_eq!(way(1, &[(1, &[2, 3], 2), (2, &[1], 1), (3, &[1], 1)]), Some(Vec::from([1, 2])));
    }

    /// One of the two permits that 1 waits for comes free: 3 waits for 4, who goes on.
    #[test]
    fn a_free_permit_unblocks_all_waiters_behind_it() {
        assert_eq!(way(1, &[(1, &[2, 3], 2), (2, &[1], 1), (3, &[4], 1)]), None);
        let longer: [(u128, &[u128], usize); 4] =
            [(1, &[2, 3], 2), (2, &[1], 1), (3, &[4], 1), (4, &[5], 1)];
        assert_eq!(way(1, &longer), None);
    }

    /// 1 waits for 2 and 4, who wait for each other; and for one of two permits, of which one comes free.
    #[test]
    fn a_queue_place_that_blocks_no_actor_is_not_in_the_cycle() {
        let waits: [(u128, &[u128], usize); 5] =
            [(1, &[2], 1), (2, &[4], 1), (4, &[2], 1), (1, &[3, 5], 2), (3, &[1], 1)];
        assert_eq!(way(1, &waits), None);
    }
}
