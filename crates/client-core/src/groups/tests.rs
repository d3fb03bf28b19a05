use holdfast_proto::v1;
use proptest::prelude::*;

use super::*;

/// Each group has one run of slots, in the order of the numbers that are given.
fn map(epoch: u64, runs: &[(u32, u32)]) -> Arc<GroupMap> {
    let mut first = 0;
    let mut groups: Vec<v1::GroupRoute> = Vec::new();
    for (group, count) in runs {
        let slots = vec![v1::SlotRun { first, count: *count }];
        first += count;
        groups.push(v1::GroupRoute {
            group: *group,
            leader: format!("node-{group}-{epoch}:1"),
            slots,
        });
    }
    groups.sort_by_key(|route| route.group);
    Arc::new(GroupMap::decode(v1::GroupMap { epoch, groups }).unwrap())
}

fn acquire(name: &str) -> Request {
    Request::Acquire(v1::AcquireRequest { name: name.to_owned(), ..Default::default() })
}

fn acquire_all(names: &[&str], tier: v1::Tier) -> Request {
    let member = |name: &&str| v1::Member { name: (*name).to_owned(), ..Default::default() };
    let members = names.iter().map(member).collect();
    Request::AcquireAll(v1::AcquireAllRequest { members, tier: tier.into(), ..Default::default() })
}

fn refusal(map_epoch: u64) -> Rejection {
    let failure = v1::Failure {
        reason: Reason::WrongGroup.into(),
        message: "elsewhere".to_owned(),
        map_epoch,
        ..Default::default()
    };
    Rejection::of(failure)
}

#[test]
fn without_a_map_everything_is_in_the_root_group() {
    let routes = Routes::default();
    assert!(routes.is_one_group());
    assert_eq!(routes.epoch(), 0);
    assert_eq!(routes.group_of(&acquire("orders/42")), Ok(GroupId::ROOT));
    let request = acquire_all(&["a", "b", "c"], v1::Tier::Correctness);
    assert_eq!(routes.group_of(&request), Ok(GroupId::ROOT));
    assert_eq!(GroupId::ROOT.to_wire(), 0);
    assert_eq!(GroupId::from_wire(0), GroupId::from_wire(1));
}

#[test]
fn a_name_belongs_to_the_group_of_its_slot_and_names_with_one_tag_belong_together() {
    let mut routes = Routes::default();
    // The slots are those of the vectors: a 816, b 196, orders 138.
    routes.learn(&map(1, &[(2, 190), (1, 600), (7, 3_306)]));
    let group = |name| routes.group_of_name(name).number();
    assert_eq!([group("orders"), group("b"), group("a")], [2, 1, 7]);
    let request = acquire_all(&["{orders}/1", "lines/{orders}"], v1::Tier::Correctness);
    assert_eq!(routes.group_of(&request).map(GroupId::number), Ok(2));
    assert_eq!(routes.leader_of(GroupId::from_wire(7)), "node-7-1:1");
    assert_eq!(routes.leader_of(GroupId::from_wire(3)), "");
}

#[test]
fn an_acquire_all_in_several_groups_is_refused_with_a_hint() {
    let mut routes = Routes::default();
    routes.learn(&map(1, &[(2, 190), (1, 600), (7, 3_306)]));
    let several = routes.group_of(&acquire_all(&["a", "a", "b"], v1::Tier::Correctness));
    let rejection = Rejection::from(several.unwrap_err());
    assert_eq!((rejection.reason, rejection.may_have_happened), (Reason::SeveralGroups, false));
    assert!(!rejection.is_retryable());
    for part in ["'a'", "'b'", "7 and 1", "{order}/a and {order}/b"] {
        assert!(rejection.message.contains(part), "{}", rejection.message);
    }
}

#[test]
fn the_efficiency_tier_is_in_the_root_group() {
    let mut routes = Routes::default();
    routes.learn(&map(1, &[(2, 190), (1, 600), (7, 3_306)]));
    let request = acquire_all(&["a", "orders"], v1::Tier::Efficiency);
    assert_eq!(routes.group_of(&request), Ok(GroupId::ROOT));
    let mut request = v1::AcquireRequest { name: "a".to_owned(), ..Default::default() };
    request.set_tier(v1::Tier::Efficiency);
    assert_eq!(routes.group_of(&Request::Acquire(request)), Ok(GroupId::ROOT));
}

#[test]
fn a_map_with_the_same_epoch_brings_other_leaders_and_no_other_owners() {
    let mut routes = Routes::default();
    routes.learn(&map(3, &[(1, 2_048), (2, 2_048)]));
    let mut message = map(3, &[(1, 2_048), (2, 2_048)]).encode();
    message.groups[1].leader = "another:1".to_owned();
    routes.learn(&Arc::new(GroupMap::decode(message).unwrap()));
    assert_eq!(routes.leader_of(GroupId::from_wire(2)), "another:1");
    routes.learn(&map(3, &[(1, 1), (2, 4_095)]));
    assert_eq!(routes.leader_of(GroupId::from_wire(2)), "another:1");
}

#[test]
fn a_refusal_is_followed_to_the_group_that_owns_the_lock() {
    let mut routes = Routes::default();
    routes.learn(&map(3, &[(1, 2_048), (2, 2_048)]));
    let [one, two] = [1, 2].map(GroupId::from_wire);
    let mut redirects = Redirects::new(1);
    // The map was learned after the request was sent.
    assert_eq!(redirects.next(&refusal(3), one, two, &routes), Redirect::To(two));
    // The group knows a newer map.
    let newer = redirects.next(&refusal(4), two, two, &routes);
    assert!(matches!(newer, Redirect::AfterMap { epoch: 4, .. }), "{newer:?}");
    // The group does not know the newest map yet.
    let later = redirects.next(&refusal(2), two, two, &routes);
    assert!(matches!(later, Redirect::After(pause) if !pause.is_zero()), "{later:?}");
}

#[test]
fn only_a_refusal_that_certainly_did_nothing_is_sent_elsewhere() {
    let mut routes = Routes::default();
    routes.learn(&map(3, &[(1, 2_048), (2, 2_048)]));
    let [one, two] = [1, 2].map(GroupId::from_wire);
    let next = |refusal: Rejection| Redirects::new(1).next(&refusal, one, two, &routes);
    assert_eq!(next(Rejection { may_have_happened: true, ..refusal(3) }), Redirect::No);
    assert_eq!(next(Rejection { reason: Reason::SeveralGroups, ..refusal(9) }), Redirect::No);
    assert_eq!(next(Rejection { reason: Reason::Frozen, ..refusal(3) }), Redirect::No);
}

#[test]
fn groups_that_never_agree_do_not_keep_a_request_for_ever() {
    let routes = Routes::default();
    let mut redirects = Redirects::new(1);
    let tries = (0..).take_while(|_| {
        redirects.next(&refusal(0), GroupId::ROOT, GroupId::ROOT, &routes) != Redirect::No
    });
    assert_eq!(tries.count() as u32, REDIRECTS_MAX);
}

/// A map of up to five groups: for each epoch, the cuts between their slots.
fn any_map(epoch: u64) -> impl Strategy<Value = Arc<GroupMap>> {
    proptest::collection::btree_set(1..u32::from(SLOTS), 0..5).prop_map(move |cuts| {
        let mut runs = Vec::new();
        let mut from = 0;
        for cut in cuts.into_iter().chain([u32::from(SLOTS)]) {
            runs.push((runs.len() as u32 + 1, cut - from));
            from = cut;
        }
        // Which group owns a run differs from one epoch to the next.
        let count = runs.len();
        let groups: Vec<u32> = runs.iter().map(|(group, _)| *group).collect();
        for (number, run) in runs.iter_mut().enumerate() {
            run.0 = groups[(number + epoch as usize) % count];
        }
        map(epoch, &runs)
    })
}

fn any_history() -> impl Strategy<Value = Vec<Arc<GroupMap>>> {
    (any_map(1), any_map(2), any_map(3), any_map(4)).prop_map(|(a, b, c, d)| vec![a, b, c, d])
}

proptest! {
    #[test]
    fn the_newest_map_counts_in_whatever_order_they_come(
        history in any_history(),
        order in proptest::collection::vec(0_usize..4, 1..12),
        name in ".{1,20}",
    ) {
        let mut routes = Routes::default();
        let mut epoch = 0;
        for place in &order {
            routes.learn(&history[*place]);
            prop_assert!(routes.epoch() >= epoch);
            epoch = routes.epoch();
        }
        let newest = order.iter().max().unwrap();
        prop_assert_eq!(routes.epoch(), *newest as u64 + 1);
        let owner = history[*newest].owner_of(Slot::of(&name));
        prop_assert_eq!(routes.group_of_name(&name).number(), owner);
    }

    /// The nodes refuse by the newest map, and a welcome tells some map that is newer than the client's.
    #[test]
    fn a_request_by_any_old_map_reaches_the_owner_and_is_carried_out_once(
        history in any_history(),
        known in 0_usize..4,
        told in proptest::collection::vec(0_usize..4, 0..4),
        name in ".{1,20}",
    ) {
        let truth = &history[3];
        let owner = GroupId::from_wire(truth.owner_of(Slot::of(&name)));
        let mut routes = Routes::default();
        routes.learn(&history[known]);
        let mut told = told.into_iter().chain([3]);
        let mut redirects = Redirects::new(7);
        let mut asked = routes.group_of(&acquire(&name)).unwrap();
        let mut tries = 1;
        while asked != owner {
            let by_map = routes.group_of(&acquire(&name)).unwrap();
            match redirects.next(&refusal(truth.epoch().0), asked, by_map, &routes) {
                Redirect::To(group) => asked = group,
                Redirect::AfterMap { .. } => {
                    routes.learn(&history[told.next().unwrap_or(3)]);
                    asked = routes.group_of(&acquire(&name)).unwrap();
                }
                other => prop_assert!(false, "{:?} at try {}", other, tries),
            }
            tries += 1;
            prop_assert!(tries <= REDIRECTS_MAX + 1);
        }
    }
}
