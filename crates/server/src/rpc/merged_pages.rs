//! One page of a listing, made of the pages of all groups.
//!
//! The page of a group ends at its `next_page`: what comes after it in that group is not known. So a merged page ends at
//! the first end of all pages, at the latest.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use holdfast_proto::decode::page::PageSize;
use holdfast_proto::v1::{
    Frozen, ListFreezesResponse, ListOrder, ListResponse, ListSessionsResponse, LockSummary,
    SessionInfo,
};

/// How many lines each of so many groups is asked for. Names are spread evenly, so twice the share nearly always fills the
/// page; otherwise the page is shorter.
pub(super) fn part_size(page_size: u32, groups: usize) -> u32 {
    const SPARE: usize = 20;
    let Ok(size) = PageSize::new(page_size) else { return page_size };
    let lines = size.limit() - 1;
    let part = lines.min(2 * lines.div_ceil(groups.max(1)) + SPARE);
    u32::try_from(part).unwrap_or(page_size)
}

/// The page in the order of the names. Each lock is in one group.
pub(super) fn by_name(parts: Vec<ListResponse>, size: PageSize) -> ListResponse {
    let end = first_end(parts.iter().map(|part| part.next_page.as_str()));
    let mut locks: Vec<LockSummary> = parts.into_iter().flat_map(|part| part.locks).collect();
    locks.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    let next_page = cut(&mut locks, size, end, |lock| &lock.name);
    // Each group has its own logical time.
    ListResponse { locks, next_page, logical_time_ms: 0, matched: None }
}

/// The lines from `first` on, of the first lines of each group in this order. A group's own order among equals is kept.
pub(super) fn by_rank(
    parts: Vec<ListResponse>,
    order: ListOrder,
    first: usize,
    end: usize,
) -> ListResponse {
    let matched = parts.iter().filter_map(|part| part.matched).sum();
    let has_more = parts.iter().any(|part| !part.next_page.is_empty());
    let mut locks: Vec<LockSummary> = parts.into_iter().flat_map(|part| part.locks).collect();
    locks.sort_by(|one, other| {
        let rank = |lock: &LockSummary| match order {
            ListOrder::QueueLength => lock.waiter_count,
            _ => lock.held_for_ms,
        };
        (Reverse(rank(one)), &one.name).cmp(&(Reverse(rank(other)), &other.name))
    });
    let has_more = has_more || locks.len() > end;
    locks.truncate(end);
    let locks = locks.split_off(first.min(locks.len()));
    let next_page = if has_more && !locks.is_empty() { end.to_string() } else { String::new() };
    ListResponse { locks, next_page, logical_time_ms: 0, matched: Some(matched) }
}

/// A client has a session in each group whose locks it uses, under one id: they are one line.
pub(super) fn sessions(parts: Vec<ListSessionsResponse>, size: PageSize) -> ListSessionsResponse {
    let end = first_end(parts.iter().map(|part| part.next_page.as_str()));
    let mut of_groups: Vec<SessionInfo> =
        parts.into_iter().flat_map(|part| part.sessions).collect();
    of_groups.sort_by(|one, other| one.public_id.cmp(&other.public_id));
    let mut sessions: Vec<SessionInfo> = Vec::new();
    for session in of_groups {
        match sessions.last_mut().filter(|last| last.public_id == session.public_id) {
            Some(last) => add_group(last, session),
            None => sessions.push(session),
        }
    }
    let next_page = cut(&mut sessions, size, end, |session| &session.public_id);
    ListSessionsResponse { sessions, next_page, logical_time_ms: 0 }
}

fn add_group(session: &mut SessionInfo, other: SessionInfo) {
    session.ttl_ms = session.ttl_ms.max(other.ttl_ms);
    session.remaining_ms = session.remaining_ms.max(other.remaining_ms);
    session.age_ms = session.age_ms.max(other.age_ms);
    session.hold_count += other.hold_count;
    session.wait_count += other.wait_count;
    session.connected |= other.connected;
    if session.principal.is_empty() {
        session.principal = other.principal;
    }
}

/// A freeze is in all groups, and whole until it ends in the first of them. One that is not in all groups says so.
pub(super) fn freezes(parts: Vec<ListFreezesResponse>) -> ListFreezesResponse {
    let group_count = parts.len();
    let mut by_prefix: BTreeMap<String, Vec<Frozen>> = BTreeMap::new();
    for freeze in parts.into_iter().flat_map(|part| part.freezes) {
        by_prefix.entry(freeze.prefix.clone()).or_default().push(freeze);
    }
    let whole = by_prefix.into_values().filter_map(|in_groups| {
        let count = in_groups.len();
        let mut freeze = in_groups.into_iter().min_by_key(|freeze| freeze.remaining_ms)?;
        if count < group_count {
            freeze.reason = format!(
                "{} (only in {count} of {group_count} groups: freeze the prefix again, or thaw it)",
                freeze.reason
            );
        }
        Some(freeze)
    });
    ListFreezesResponse { logical_time_ms: 0, freezes: whole.collect() }
}

/// The first of the ends of pages after which there is more; an empty one is none.
fn first_end<'a>(ends: impl Iterator<Item = &'a str>) -> Option<String> {
    ends.filter(|end| !end.is_empty()).min().map(str::to_owned)
}

/// Cuts lines that are sorted by their keys. Gives the key after which the next page begins; empty if there is none.
fn cut<T>(
    lines: &mut Vec<T>,
    size: PageSize,
    end: Option<String>,
    key: impl Fn(&T) -> &String,
) -> String {
    if let Some(end) = &end {
        lines.truncate(lines.partition_point(|line| key(line) <= end));
    }
    size.cut(lines).map(|last| key(last).clone()).or(end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(lines: u32) -> PageSize {
        PageSize::new(lines).unwrap()
    }

    #[test]
    fn groups_are_asked_for_their_share_of_a_page_and_some_more() {
        assert_eq!([part_size(0, 4), part_size(1_000, 64), part_size(10, 4)], [70, 52, 10]);
    }

    fn locks(names: &[&str], next_page: &str) -> ListResponse {
        let lock = |name: &&str| LockSummary { name: (*name).to_owned(), ..Default::default() };
        let locks = names.iter().map(lock).collect();
        ListResponse { locks, next_page: next_page.to_owned(), ..Default::default() }
    }

    fn names(page: &ListResponse) -> Vec<&str> {
        page.locks.iter().map(|lock| lock.name.as_str()).collect()
    }

    #[test]
    fn a_page_by_name_ends_where_the_first_page_of_a_group_ends() {
        let page = by_name(vec![locks(&["a", "c"], "c"), locks(&["b", "d"], "")], size(10));
        assert_eq!((names(&page), page.next_page.as_str()), (vec!["a", "b", "c"], "c"));
        let page = by_name(vec![locks(&["a", "c"], ""), locks(&["b", "d"], "")], size(3));
        assert_eq!((names(&page), page.next_page.as_str()), (vec!["a", "b", "c"], "c"));
        let page = by_name(vec![locks(&["a"], ""), locks(&[], "")], size(3));
        assert_eq!((names(&page), page.next_page.as_str()), (vec!["a"], ""));
    }

    #[test]
    fn a_group_that_found_nothing_in_time_says_where_to_go_on() {
        let page = by_name(vec![locks(&["b"], ""), locks(&[], "a")], size(3));
        assert_eq!((names(&page), page.next_page.as_str()), (vec![], "a"));
    }

    #[test]
    fn all_pages_together_have_each_lock_once() {
        let all: [Vec<String>; 3] =
            [0, 1, 2].map(|group| (0..40).map(|i| format!("{:03}", 3 * i + group)).collect());
        let (mut after, mut seen) = (String::new(), Vec::new());
        loop {
            let part = |names: &Vec<String>| {
                let mut rest: Vec<&str> =
                    names.iter().map(String::as_str).filter(|name| **name > *after).collect();
                let more = rest.len() > 7;
                rest.truncate(7);
                let next_page = if more { rest.last().copied().unwrap_or_default() } else { "" };
                locks(&rest, next_page)
            };
            let page = by_name(all.iter().map(part).collect(), size(7));
            seen.extend(page.locks.into_iter().map(|lock| lock.name));
            after = page.next_page;
            if after.is_empty() {
                break;
            }
        }
        let expected: Vec<String> = (0..120).map(|number| format!("{number:03}")).collect();
        assert_eq!(seen, expected);
    }

    fn queues(lengths: &[(&str, u64)], next_page: &str) -> ListResponse {
        let lock = |(name, waiter_count): &(&str, u64)| LockSummary {
            name: (*name).to_owned(),
            waiter_count: *waiter_count,
            ..Default::default()
        };
        ListResponse {
            locks: lengths.iter().map(lock).collect(),
            next_page: next_page.to_owned(),
            matched: Some(lengths.len() as u64),
            ..Default::default()
        }
    }

    #[test]
    fn a_ranking_has_the_first_of_all_groups_and_goes_on_by_number() {
        let parts = || vec![queues(&[("a", 9), ("b", 2)], ""), queues(&[("c", 5), ("d", 2)], "")];
        let page = by_rank(parts(), ListOrder::QueueLength, 0, 3);
        assert_eq!((names(&page), page.next_page.as_str()), (vec!["a", "c", "b"], "3"));
        assert_eq!(page.matched, Some(4));
        let page = by_rank(parts(), ListOrder::QueueLength, 3, 6);
        assert_eq!((names(&page), page.next_page.as_str()), (vec!["d"], ""));
        let page = by_rank(parts(), ListOrder::QueueLength, 6, 9);
        assert_eq!((names(&page), page.next_page.as_str()), (vec![], ""));
    }

    #[test]
    fn the_sessions_of_one_client_in_several_groups_are_one_line() {
        let session = |id: &str, hold_count, remaining_ms| SessionInfo {
            public_id: id.to_owned(),
            hold_count,
            remaining_ms,
            ..Default::default()
        };
        let part = |sessions| ListSessionsResponse { sessions, ..Default::default() };
        let page = sessions(
            vec![
                part(vec![session("1", 2, 50), session("3", 0, 10)]),
                part(vec![session("1", 3, 70), session("2", 1, 20)]),
            ],
            size(2),
        );
        let lines: Vec<_> =
            page.sessions.iter().map(|it| (&*it.public_id, it.hold_count)).collect();
        assert_eq!((lines, &*page.next_page), (vec![("1", 5), ("2", 1)], "2"));
        assert_eq!(page.sessions[0].remaining_ms, 70);
    }

    #[test]
    fn a_freeze_of_all_groups_is_one_line_and_one_of_some_groups_says_so() {
        let freeze = |prefix: &str, remaining_ms| Frozen {
            prefix: prefix.to_owned(),
            remaining_ms,
            ..Default::default()
        };
        let part = |freezes| ListFreezesResponse { freezes, ..Default::default() };
        let merged =
            freezes(vec![part(vec![freeze("a", 10), freeze("b", 5)]), part(vec![freeze("a", 30)])]);
        let lines: Vec<_> =
            merged.freezes.iter().map(|it| (&*it.prefix, it.remaining_ms)).collect();
        assert_eq!(lines, [("a", 10), ("b", 5)]);
        assert_eq!(merged.freezes[0].reason, "");
        assert!(merged.freezes[1].reason.contains("only in 1 of 2 groups"), "{merged:?}");
    }
}
