//! The watches of all groups as one.
//!
//! - What happens in one group comes in its order. Between the groups there is no order.
//! - The snapshot is complete when the pages of all groups have come. A group whose pages have all come waits for the
//!   others, so events come after the whole snapshot. Its ring keeps them meanwhile; if that takes too long, the watch
//!   ends as for a slow reader.
//! - Each frame has the position in its own group. To go on, a client sends the latest position of each group.
//! - If the watch of one group ends, the whole watch ends for the same reason.

use std::pin::Pin;
use std::task::{Context, Poll};

use holdfast_proto::GROUPS_MAX;
use holdfast_proto::failure::refused;
use holdfast_proto::v1::{EventPosition, Failure, Reason, WatchFrame, WatchRequest};
use holdfast_replica::GroupId;
use tokio_stream::Stream;
use tonic::Status;

use super::WatchFrames;

/// The request for the part of one group, which may be the only one. Fails if the client wants to go on and has no position
/// of this group.
pub(super) fn part(request: &WatchRequest, group: GroupId) -> Result<WatchRequest, Failure> {
    if request.after_groups.len() > GROUPS_MAX as usize {
        let words = format!("a watch has at most {GROUPS_MAX} positions, one of each group");
        return Err(refused(Reason::InvalidPage, words));
    }
    let mut positions = request.after.iter().chain(&request.after_groups);
    let after: Option<EventPosition> = positions.clone().find(|it| it.group == group.0).copied();
    if after.is_none() && positions.next().is_some() {
        let words = format!(
            "the client wants to go on, and has sent no position of group {}; start a new watch, or send a position \
             of each group",
            group.0
        );
        return Err(refused(Reason::Compacted, words));
    }
    Ok(WatchRequest { after, after_groups: Vec::new(), ..request.clone() })
}

pub(super) struct AllGroups {
    parts: Vec<Part>,
    /// The part that is asked first, so that no group has to wait for another one's events.
    next: usize,
}

struct Part {
    frames: WatchFrames,
    has_snapshot: bool,
}

impl AllGroups {
    /// `has_snapshot`: whether the parts begin with a snapshot.
    pub(super) fn new(parts: Vec<WatchFrames>, has_snapshot: bool) -> AllGroups {
        let part = |frames| Part { frames, has_snapshot: !has_snapshot };
        AllGroups { parts: parts.into_iter().map(part).collect(), next: 0 }
    }

    /// The part's frame, as one of the whole watch.
    fn of_whole(&mut self, place: usize, frame: WatchFrame) -> WatchFrame {
        self.parts[place].has_snapshot |= frame.snapshot_complete;
        let is_whole = self.parts.iter().all(|part| part.has_snapshot);
        WatchFrame { snapshot_complete: frame.snapshot_complete && is_whole, ..frame }
    }
}

impl Stream for AllGroups {
    type Item = Result<WatchFrame, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let is_whole = self.parts.iter().all(|part| part.has_snapshot);
        let count = self.parts.len();
        for step in 0..count {
            let place = (self.next + step) % count;
            if self.parts[place].has_snapshot && !is_whole {
                continue;
            }
            match self.parts[place].frames.as_mut().poll_next(cx) {
                Poll::Pending => {}
                Poll::Ready(Some(Ok(frame))) => {
                    self.next = (place + 1) % count;
                    let frame = self.of_whole(place, frame);
                    return Poll::Ready(Some(Ok(frame)));
                }
                Poll::Ready(end) => return Poll::Ready(end),
            }
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use holdfast_proto::v1::LockSummary;
    use tokio_stream::StreamExt;

    use super::*;

    fn position(group: u32, index: u64) -> EventPosition {
        EventPosition { group, index, number: 0 }
    }

    fn page(name: &str, snapshot_complete: bool) -> WatchFrame {
        let lock = LockSummary { name: name.to_owned(), ..Default::default() };
        WatchFrame { locks: vec![lock], snapshot_complete, ..Default::default() }
    }

    fn at(group: u32, index: u64) -> WatchFrame {
        WatchFrame { position: Some(position(group, index)), ..Default::default() }
    }

    fn frames(frames: Vec<WatchFrame>) -> WatchFrames {
        Box::pin(tokio_stream::iter(frames.into_iter().map(Ok)))
    }

    #[tokio::test]
    async fn events_come_when_the_snapshots_of_all_groups_are_complete() {
        let one = frames(vec![page("a", true), at(1, 5), at(1, 6)]);
        let two = frames(vec![page("b", false), page("c", false), page("d", true), at(2, 9)]);
        let mut whole = AllGroups::new(vec![one, two], true);
        let (mut names, mut is_complete) = (Vec::new(), false);
        while !is_complete {
            let frame = whole.next().await.unwrap().unwrap();
            assert_eq!(frame.position, None, "no event yet");
            names.extend(frame.locks.into_iter().map(|lock| lock.name));
            is_complete = frame.snapshot_complete;
        }
        assert_eq!(names, ["a", "b", "c", "d"]);
        let mut seen = Vec::new();
        while let Some(Ok(WatchFrame { position: Some(position), .. })) = whole.next().await {
            seen.push((position.group, position.index));
        }
        assert!(seen.iter().filter(|(group, _)| *group == 1).is_sorted(), "{seen:?}");
        assert!(seen.contains(&(1, 5)), "{seen:?}");
    }

    #[tokio::test]
    async fn without_a_snapshot_all_groups_tell_events_at_once_in_turns() {
        let parts = vec![frames(vec![at(1, 1), at(1, 2)]), frames(vec![at(2, 1), at(2, 2)])];
        let mut whole = AllGroups::new(parts, false);
        let mut groups = Vec::new();
        for _ in 0..4 {
            groups.push(whole.next().await.unwrap().unwrap().position.unwrap().group);
        }
        assert_eq!(groups, [1, 2, 1, 2]);
    }

    #[tokio::test]
    async fn the_end_of_one_group_ends_the_whole_watch() {
        let ending: WatchFrames =
            Box::pin(tokio_stream::iter([Ok(at(1, 1)), Err(Status::unavailable("moved"))]));
        let silent: WatchFrames = Box::pin(tokio_stream::pending());
        let mut whole = AllGroups::new(vec![ending, silent], false);
        assert!(whole.next().await.unwrap().is_ok());
        assert_eq!(whole.next().await.unwrap().unwrap_err().message(), "moved");
    }

    #[test]
    fn to_go_on_a_client_needs_a_position_of_each_group() {
        let fresh = WatchRequest { prefix: "a".into(), ..Default::default() };
        assert_eq!(part(&fresh, GroupId(2)), Ok(fresh.clone()));
        let after = |after, after_groups| WatchRequest { after, after_groups, ..fresh.clone() };
        let both = after(None, vec![position(1, 7), position(2, 9)]);
        assert_eq!(part(&both, GroupId(2)), Ok(after(Some(position(2, 9)), vec![])));
        let one = after(Some(position(1, 7)), vec![]);
        assert_eq!(part(&one, GroupId(1)), Ok(one.clone()));
        assert_eq!(part(&one, GroupId(2)).unwrap_err().reason(), Reason::Compacted);
        let only = after(None, vec![position(1, 7)]);
        assert_eq!(part(&only, GroupId(1)), Ok(one), "a single group takes it, too");
        let flood = after(None, vec![position(1, 7); GROUPS_MAX as usize + 1]);
        assert_eq!(part(&flood, GroupId(1)).unwrap_err().reason(), Reason::InvalidPage);
    }
}
