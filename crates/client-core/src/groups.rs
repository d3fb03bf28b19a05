//! Which group of the cluster carries a request out. Each group has locks of its own, and so a client has a session in
//! each group whose locks it uses.
//!
//! A client learns from the welcome of its session which group owns which slots ([`GroupMap`]). The map can be outdated.
//! The group that is asked then refuses with `wrong_group`, and has not carried the request out. So an old map makes a
//! request slow, and never wrong.
//!
//! - [`Routes`]: the newest map that a session of the client has learned. A cluster of one group tells no map, and then
//!   everything is in the root group.
//! - [`Redirects`]: what becomes of one request that groups refuse because they do not own its lock.
//!
//! Invariant: the epoch of [`Routes`] only rises, whatever order the maps come in.

use std::sync::Arc;
use std::time::Duration;

use holdfast_proto::v1::Reason;
use holdfast_proto::{GroupMap, SLOTS, Slot};

use crate::backoff::Backoff;
use crate::error::Rejection;
pub use crate::group_id::GroupId;
use crate::session::Request;
use crate::tier::Tier;

/// After this many redirects the caller gets the refusal: the groups do not agree on who owns the lock.
const REDIRECTS_MAX: u32 = 8;

/// How long a request waits for a newer map before it asks again by the present one.
const MAP_PATIENCE: Duration = Duration::from_secs(2);

/// The locks of an acquire-all are in several groups, so no group can grant them together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{}' and '{}' are in different groups of the cluster ({} and {}), so no acquire-all can take both; put the same tag \
     into their names, such as {{order}}/a and {{order}}/b",
    .names[0], .names[1], .groups[0], .groups[1]
)]
pub struct SeveralGroups {
    pub names: [String; 2],
    pub groups: [GroupId; 2],
}

impl From<SeveralGroups> for Rejection {
    fn from(several: SeveralGroups) -> Rejection {
        Rejection {
            reason: Reason::SeveralGroups,
            message: several.to_string(),
            may_have_happened: false,
            retry_after: None,
            map_epoch: 0,
        }
    }
}

/// In which group each lock is, as far as the client knows.
#[derive(Debug, Clone, Default)]
pub struct Routes {
    /// `None`: all are in the root group.
    map: Option<Arc<GroupMap>>,
}

impl Routes {
    /// Takes the map if it is newer than the present one. Of two maps with one epoch only the leaders can differ, and the
    /// later one counts.
    pub fn learn(&mut self, map: &Arc<GroupMap>) {
        let is_wanted = match &self.map {
            None => true,
            Some(known) if known.epoch() == map.epoch() => has_same_owners(known, map),
            Some(known) => known.epoch() < map.epoch(),
        };
        #[cfg(feature = "planted")]
        let is_wanted = is_wanted || crate::planted::Bug::OlderMapTaken.is_active();
        if is_wanted {
            self.map = Some(Arc::clone(map));
        }
    }

    /// The epoch of the map; 0 without one.
    pub fn epoch(&self) -> u64 {
        self.map.as_ref().map_or(0, |map| map.epoch().0)
    }

    pub fn is_one_group(&self) -> bool {
        self.map.is_none()
    }

    pub fn group_of_name(&self, name: &str) -> GroupId {
        match &self.map {
            None => GroupId::ROOT,
            Some(map) => GroupId::from_wire(map.owner_of(Slot::of(name))),
        }
    }

    /// The group that a request for new locks, or a read, has to be sent to. Used for acquires and reads. A request
    /// about a hold is not routed by this: it goes to the session that has the hold.
    pub fn group_of(&self, request: &Request) -> Result<GroupId, SeveralGroups> {
        match request {
            // The efficiency tier is kept by the leader of the root group, whatever the name.
            Request::Acquire(request) if Tier::from_wire(request.tier()) == Tier::Efficiency => {
                Ok(GroupId::ROOT)
            }
            Request::AcquireAll(request) if Tier::from_wire(request.tier()) == Tier::Efficiency => {
                Ok(GroupId::ROOT)
            }
            Request::Acquire(request) => Ok(self.group_of_name(&request.name)),
            Request::AcquireAll(request) => {
                self.group_of_all(request.members.iter().map(|member| member.name.as_str()))
            }
            Request::Status { name } => Ok(self.group_of_name(name)),
            Request::Convert { hold, .. }
            | Request::Release { hold }
            | Request::Renew { hold, .. }
            | Request::Proclaim { hold, .. }
            | Request::Transfer { hold, .. } => Ok(self.group_of_name(&hold.name)),
        }
    }

    /// An acquire-all without names goes to the root group, and a node refuses it.
    fn group_of_all<'a>(
        &self,
        mut names: impl Iterator<Item = &'a str>,
    ) -> Result<GroupId, SeveralGroups> {
        let Some(first) = names.next() else { return Ok(GroupId::ROOT) };
        let group = self.group_of_name(first);
        let other = names.find(|name| self.group_of_name(name) != group);
        #[cfg(feature = "planted")]
        let other = crate::planted::Bug::SeveralGroupsSent.instead(other, None);
        match other {
            None => Ok(group),
            Some(other) => Err(SeveralGroups {
                names: [first.to_owned(), other.to_owned()],
                groups: [group, self.group_of_name(other)],
            }),
        }
    }

    /// The client address of the group's leader; empty if it is not known.
    pub fn leader_of(&self, group: GroupId) -> &str {
        self.map.as_ref().map_or("", |map| map.leader_of(group.number()))
    }
}

fn has_same_owners(one: &GroupMap, other: &GroupMap) -> bool {
    (0..SLOTS).filter_map(Slot::new).all(|slot| one.owner_of(slot) == other.owner_of(slot))
}

/// What to do with a request that a group has refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Redirect {
    /// Send it to this group.
    To(GroupId),
    /// Wait until [`Routes`] have this epoch, but not for longer than this. Then ask the group that owns the lock by the
    /// map of that time.
    AfterMap { epoch: u64, at_most: Duration },
    /// The client's map is at least as new as that of the group that refused, and still names this group. Ask it again
    /// after this time.
    After(Duration),
    /// The caller gets the refusal.
    No,
}

/// The tries of one request that groups refuse because they do not own its lock. A request that was refused with
/// `wrong_group` was not carried out, so it may be sent to another group, in another session and under another id.
#[derive(Debug)]
pub struct Redirects {
    count: u32,
    backoff: Backoff,
}

impl Redirects {
    /// Clients with different seeds pause for different times.
    pub fn new(jitter_seed: u64) -> Redirects {
        Redirects { count: 0, backoff: Backoff::new(jitter_seed) }
    }

    /// The group `asked` has refused. `owner` has the lock by the map of now.
    pub fn next(
        &mut self,
        refusal: &Rejection,
        asked: GroupId,
        owner: GroupId,
        routes: &Routes,
    ) -> Redirect {
        let is_elsewhere = refusal.reason == Reason::WrongGroup && !refusal.may_have_happened;
        if !is_elsewhere || self.count == REDIRECTS_MAX {
            return Redirect::No;
        }
        self.count += 1;
        if owner != asked {
            Redirect::To(owner)
        } else if routes.epoch() < refusal.map_epoch {
            Redirect::AfterMap { epoch: refusal.map_epoch, at_most: MAP_PATIENCE }
        } else {
            Redirect::After(self.backoff.next_delay())
        }
    }
}

#[cfg(test)]
mod tests;
