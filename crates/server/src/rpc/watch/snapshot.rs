//! How a watch begins: the locks as they are, page by page.
//!
//! Each page is read at its own moment, so a lock may change before its page is read and the change comes
//! again as an event. The watch remembers up to which entry each page tells, and leaves such events out.

use holdfast_core::{Event, LockSummary};
use holdfast_engine::{Query, ReadData};
use holdfast_proto::v1::Failure;
use holdfast_replica::GroupId;
use holdfast_service::Admitted;

use super::super::Rpc;
use super::super::failure::bug;
use super::{Scope, WatchTarget};
use crate::events::{Position, Recorded};

const PAGE_SIZE: usize = 1_000;

/// The log index up to which the snapshot is complete, for each range of names.
#[derive(Debug)]
pub(super) struct SnapshotExtent {
    group: GroupId,
    /// The last name of each page but the last, and the entry at which the page was read.
    pages: Vec<(String, u64)>,
    last_page: u64,
}

#[derive(Debug)]
pub(super) struct SnapshotPage {
    pub(super) locks: Vec<LockSummary>,
    pub(super) at: holdfast_core::LogicalTime,
    pub(super) applied_index: u64,
    /// After which name to go on; none on the last page.
    pub(super) next: Option<String>,
}

impl SnapshotExtent {
    pub(super) fn of(group: GroupId) -> SnapshotExtent {
        SnapshotExtent { group, pages: Vec::new(), last_page: 0 }
    }

    pub(super) fn note(&mut self, page: &SnapshotPage) {
        match &page.next {
            Some(last) => self.pages.push((last.clone(), page.applied_index)),
            None => self.last_page = page.applied_index,
        }
    }

    /// Where the events begin: nothing before is of interest, some after may be extent already.
    pub(super) fn start(&self) -> Position {
        let index = self.pages.first().map_or(self.last_page, |(_, index)| *index);
        Position::end_of(self.group, index)
    }

    /// From here on nothing is left of what the pages showed at different moments: a watch that goes on
    /// from here needs no account of them.
    pub(super) fn is_left_behind(&self, position: Position) -> bool {
        position >= Position::end_of(self.group, self.last_page) || position.index > self.last_page
    }

    /// Did the snapshot show this? Of an event with several names, all must have been shown.
    pub(super) fn includes(&self, recorded: &Recorded) -> bool {
        let index = recorded.position.index;
        if index > self.last_page {
            return false;
        }
        let shown = |name: &str| {
            let page = self.pages.partition_point(|(last, _)| last.as_str() < name);
            index <= self.pages.get(page).map_or(self.last_page, |(_, index)| *index)
        };
        match &recorded.event {
            Event::Granted { name, .. }
            | Event::Queued { name, .. }
            | Event::Converted { name, .. }
            | Event::Proclaimed { name, .. }
            | Event::Released { name, .. }
            | Event::HoldEnded { name, .. }
            | Event::Reopened { name } => shown(name),
            Event::Refused { names, .. } | Event::WaitEnded { names, .. } => {
                names.iter().all(|name| shown(name))
            }
            Event::SessionOpened { .. }
            | Event::SessionEnded { .. }
            | Event::SessionEnding { .. }
            | Event::Intervened(_)
            | Event::AccessChanged { .. }
            | Event::PolicyAdopted { .. }
            | Event::OwnershipChanged { .. }
            | Event::HoldMovedIn { .. }
            | Event::Thawed { .. } => index <= self.start().index,
        }
    }
}

/// Reads the page after a name; this node should lead.
pub(super) async fn page(
    rpc: &Rpc,
    ask: &Admitted<WatchTarget>,
    after: Option<String>,
) -> Result<SnapshotPage, Failure> {
    let names = &ask.get().names;
    let prefix = names.prefix().to_owned();
    // A single name comes before all that begin with it.
    let limit = if matches!(names, Scope::Only(_)) { 1 } else { PAGE_SIZE + 1 };
    let query = Query::List { prefix, after, limit };
    let answer = rpc.door.read_for(ask.get().group, ask, query).await?;
    let ReadData::List(mut locks) = answer.data else {
        return Err(bug("the shard read something else"));
    };
    locks.retain(|lock| names.covers(&lock.name));
    let more = locks.len() > PAGE_SIZE;
    locks.truncate(PAGE_SIZE);
    let next = locks.last().filter(|_| more).map(|lock| lock.name.as_str().to_owned());
    Ok(SnapshotPage { locks, at: answer.at, applied_index: answer.applied_index, next })
}

/// The entry up to which this node has applied, which is at least what was committed when it was asked.
pub(super) async fn applied_index(rpc: &Rpc, ask: &Admitted<WatchTarget>) -> Result<u64, Failure> {
    let query = Query::List { prefix: String::new(), after: None, limit: 0 };
    Ok(rpc.door.read_for(ask.get().group, ask, query).await?.applied_index)
}

#[cfg(test)]
mod tests {
    use holdfast_core::{LockName, LogicalTime};

    use super::*;

    fn page(index: u64, next: Option<&str>) -> SnapshotPage {
        SnapshotPage {
            locks: Vec::new(),
            at: LogicalTime::ZERO,
            applied_index: index,
            next: next.map(str::to_owned),
        }
    }

    fn reopened(name: &str, index: u64) -> Recorded {
        let event = Event::Reopened { name: LockName::new(name).unwrap() };
        let position = Position { group: GroupId::FIRST, index, number: 0 };
        Recorded { position, at: LogicalTime::ZERO, unix_ms: 0, event, serial: 0 }
    }

    #[test]
    fn an_event_is_sent_once_in_its_snapshot_page_or_afterwards() {
        let mut extent = SnapshotExtent::of(GroupId::FIRST);
        extent.note(&page(10, Some("m")));
        extent.note(&page(20, Some("t")));
        extent.note(&page(30, None));
        assert_eq!(extent.start(), Position::end_of(GroupId::FIRST, 10));
        for (index, left_behind) in [(10, false), (29, false), (30, true), (31, true)] {
            assert_eq!(
                extent.is_left_behind(Position::end_of(GroupId::FIRST, index)),
                left_behind,
                "{index}"
            );
        }
        assert!(!extent.is_left_behind(Position { group: GroupId::FIRST, index: 30, number: 2 }));
        for (name, index, shown) in [
            ("a", 10, true),
            ("a", 11, false),
            ("m", 10, true),
            ("n", 20, true),
            ("n", 21, false),
            ("z", 30, true),
            ("z", 31, false),
        ] {
            assert_eq!(extent.includes(&reopened(name, index)), shown, "{name} at {index}");
        }
    }
}
