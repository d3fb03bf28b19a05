//! Explains why an acquire of a lock waits: the actors that block it, what these wait for themselves, and the free
//! locks that are reserved for an acquire-all. The answer is bounded, however large the table is.

use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;

use crate::model::command::Owner;
use crate::model::id::{PublicSessionId, RequestId, SessionId};
use crate::model::name::LockName;
use crate::queries::status::{HolderInfo, LockStatus, WaiterInfo};
use crate::state::hold::Actor;
use crate::state::lock::Lock;
use crate::state::table::LockTable;
use crate::state::wait::{QueuePlace, Wait};

/// The most links in an answer.
const LINKS_MAX: usize = 32;
/// How many holders of one lock the search follows.
const HOLDERS_MAX: usize = 16;
/// How many holders each link of the answer contains.
const HOLDERS_PER_LINK_MAX: usize = 3;
/// How many reserved locks the answer contains.
const RESERVED_MAX: usize = 32;
/// How many queue places the search for reserved locks visits: an acquire-all has up to 256.
const PLACES_MAX: usize = 1_024;

/// Why an acquire of a lock waits, or would wait.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockWhy {
    pub status: LockStatus,
    /// The blocking actors that wait for other locks, in the order of their depth.
    pub chain: Vec<WaitLink>,
    /// The chain has more than `LINKS_MAX` links, and ends there.
    pub chain_is_cut: bool,
    /// Free locks that are reserved for acquire-alls that wait for this lock, too.
    pub reserved: Vec<ReservedLock>,
}

/// A blocking actor that waits for another lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitLink {
    /// 1: it blocks the lock of the question; 2: it blocks one of the actors of depth 1; and so on.
    pub depth: u32,
    /// The lock that it blocks.
    pub in_the_way_of: LockName,
    pub waits_for: LockName,
    pub waiter: WaiterInfo,
    /// The first holders of the lock that it waits for.
    pub holders: Vec<HolderInfo>,
    /// How many holders that lock has. If the waiter converts a hold of its own, that hold does not count.
    pub holder_count: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReservedLock {
    pub name: LockName,
    /// The session of the waiter for which the lock is reserved.
    pub session: PublicSessionId,
    pub owner: Owner,
}

impl LockTable {
    /// Why a lock cannot be acquired now, with at most `shown_max` of its holders and of its waiters.
    pub fn why(&self, name: &LockName, shown_max: usize) -> LockWhy {
        let (chain, chain_is_cut) = self.chain_behind(name);
        LockWhy {
            status: self.status(name, shown_max),
            chain,
            chain_is_cut,
            reserved: self.reserved_with(name, shown_max),
        }
    }

    /// A breadth-first search. It visits each actor once, so it also ends if the waits form a cycle.
    fn chain_behind(&self, name: &LockName) -> (Vec<WaitLink>, bool) {
        let mut links = Vec::new();
        let mut seen = BTreeSet::new();
        let mut to_visit = VecDeque::new();
        self.push_blockers(name, 1, &mut to_visit);
        while let Some((depth, through, actor)) = to_visit.pop_front() {
            if !seen.insert(actor) {
                continue;
            }
            for (request, wait) in self.waits_of(actor) {
                for place in wait.places.as_slice() {
                    // The search reached this actor because it is first in the queue of `through`: that place is no
                    // link of its own.
                    if place.name == through && wait.converts.is_none() {
                        continue;
                    }
                    if links.len() == LINKS_MAX {
                        return (links, true);
                    }
                    let Some(link) = self.link(depth, &through, actor.0, (request, wait), place)
                    else {
                        continue;
                    };
                    links.push(link);
                    self.push_blockers(&place.name, depth + 1, &mut to_visit);
                }
            }
        }
        (links, false)
    }

    /// Adds the holders of a lock, or its first waiter if the lock is reserved for that waiter.
    fn push_blockers(
        &self,
        name: &LockName,
        depth: u32,
        to_visit: &mut VecDeque<(u32, LockName, Actor)>,
    ) {
        let Some(lock) = self.lock_map().get(name) else { return };
        let holders = lock.holds().take(HOLDERS_MAX).map(|hold| hold.actor());
        let first = lock.queue().first().map(|(_, waiter)| (waiter.session, waiter.actor));
        let reserved_for = first.filter(|_| lock.holder_count() == 0);
        let all = holders.chain(reserved_for).map(|actor| (depth, name.clone(), actor));
        to_visit.extend(all);
    }

    fn link(
        &self,
        depth: u32,
        through: &LockName,
        session: SessionId,
        (request, wait): (RequestId, &Wait),
        place: &QueuePlace,
    ) -> Option<WaitLink> {
        let lock = self.lock_map().get(&place.name)?;
        let waiter = lock.queue().get(place.ticket)?;
        debug_assert!(waiter.session == session && waiter.request == request);
        let position = lock.queue().position(place.ticket);
        // A shared holder that converts to exclusive does not wait for itself.
        let converts = wait.converts.map(|converts| (session, converts.acquire));
        let others = lock.holds().filter(|hold| Some(hold.key()) != converts);
        Some(WaitLink {
            depth,
            in_the_way_of: through.clone(),
            waits_for: place.name.clone(),
            waiter: self.waiter_info(&place.name, waiter, position),
            holders: others.take(HOLDERS_PER_LINK_MAX).map(|hold| self.holder_info(hold)).collect(),
            holder_count: lock.holder_count() - usize::from(converts.is_some()),
        })
    }

    fn reserved_with(&self, name: &LockName, waiters_max: usize) -> Vec<ReservedLock> {
        let Some(lock) = self.lock_map().get(name) else { return Vec::new() };
        let waits = lock.queue().iter().take(waiters_max).filter_map(|(_, waiter)| {
            let session = self.session_map().get(&waiter.session)?;
            Some((session, waiter, session.waits.get(waiter.request)?))
        });
        let places = waits.flat_map(|(session, waiter, wait)| {
            wait.places.as_slice().iter().map(move |place| (session, waiter, place))
        });
        places
            .take(PLACES_MAX)
            .filter(|(_, _, place)| place.name != *name)
            .filter(|(_, waiter, place)| {
                self.is_kept_for(&place.name, waiter.session, waiter.request)
            })
            .take(RESERVED_MAX)
            .map(|(session, _, place)| ReservedLock {
                name: place.name.clone(),
                session: session.public,
                owner: session.owner.clone(),
            })
            .collect()
    }

    /// Whether the lock is free and reserved for this request, because the request is first in its queue.
    fn is_kept_for(&self, name: &LockName, session: SessionId, request: RequestId) -> bool {
        let is_first = |lock: &Lock| {
            let first = lock.queue().first();
            first.is_some_and(|(_, first)| (first.session, first.request) == (session, request))
        };
        self.lock_map().get(name).is_some_and(|lock| {
            lock.holder_count() == 0
                && lock.closed_until().is_none()
                && self.freezes_in_force().over(name).is_none()
                && is_first(lock)
        })
    }
}
