//! A cluster with several Raft groups: what its nodes tell of each, and the page that shows it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::block_in_place;

use super::browser::{run, see, start_browser};
use super::{cluster, get};
use crate::groups_backup::{GROUPS, hold_in_each, names_of_groups};
use crate::support::{Cluster, PATIENCE, data, eventually, hold, metric, metrics, wait_in_line};

const TTL: Duration = Duration::from_secs(60);

/// By group, what `cluster status` or a page of the dashboard says of it.
fn by_group(shown: &Value, key: &str) -> BTreeMap<u64, Value> {
    let groups = shown["groups"].as_array().unwrap().iter();
    groups.map(|group| (group["group"].as_u64().unwrap(), group[key].clone())).collect()
}

/// Asks a node for its page of groups until it is as wanted.
async fn page_shows(what: &str, at: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    eventually(what, PATIENCE, || async {
        let (code, shown) = get(at, "/api/groups");
        (code == 200 && wanted(&shown)).then_some(shown)
    })
    .await
}

/// The leaders of all groups, once each node leads at least one.
async fn spread_leaders(cluster: &Cluster) -> BTreeMap<u64, Value> {
    eventually("leaders are spread", 3 * PATIENCE, || async {
        let status = data(cluster, 0, &["cluster", "status"]).await;
        let leaders = by_group(&status, "leader");
        let leads = |id: &u64| leaders.values().any(|leader| leader == *id);
        cluster.ids().iter().all(leads).then_some(leaders)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn each_node_tells_who_leads_each_group_and_how_busy_it_is() {
    let cluster = Cluster::start_divided(3, GROUPS).await;
    let leaders = spread_leaders(&cluster).await;
    let names = names_of_groups(&cluster.client(), 1).await;
    let holder = cluster.client().open(TTL).await;
    hold_in_each(&holder, &names, 0).await;
    let waiter = Arc::new(cluster.client().open(TTL).await);
    let waiting = wait_in_line(Arc::clone(&waiter), &names[&3][0], TTL);
    for id in cluster.ids() {
        let at = cluster.http_address(id);
        let shown = page_shows("the page has what was done", &at, |shown| {
            let locks = by_group(shown, "locks");
            by_group(shown, "waiters")[&3] == 1 && locks.values().all(|locks| *locks == 1)
        })
        .await;
        assert_eq!(by_group(&shown, "leader"), leaders, "{shown}");
        let status = data(&cluster, 0, &["cluster", "status"]).await;
        assert_eq!(by_group(&shown, "term"), by_group(&status, "term"), "{shown}");
        for group in shown["groups"].as_array().unwrap() {
            assert_eq!(group["leader_answers"], true, "{shown}");
            assert_eq!(group["other_roles"], json!([]), "{shown}");
            assert!(group["applied_index"].as_u64() > Some(0), "{shown}");
            assert_eq!(group["commit_index"], group["applied_index"], "{shown}");
            // A call that opens a session opens it in each group.
            assert_eq!(group["sessions"], 2, "{shown}");
        }
        let nodes = shown["nodes"].as_array().unwrap();
        let led = nodes.iter().flat_map(|node| node["leads"].as_array().unwrap());
        assert_eq!((nodes.len(), led.count()), (3, GROUPS as usize), "{shown}");
        assert!(nodes.iter().all(|node| node["up"] == true), "{shown}");
    }

    // One group is busy. A follower sees it, too.
    let busy = "busy";
    let group = u64::from(cluster.client().status(busy).await.group);
    let stop = Arc::new(AtomicBool::new(false));
    let load = tokio::spawn({
        let stop = Arc::clone(&stop);
        async move {
            while !stop.load(Ordering::Relaxed) {
                let grant = hold(&holder, busy).await;
                holder.release(busy, grant.token).await.unwrap();
            }
        }
    });
    for id in cluster.ids() {
        page_shows("one group is busy, and no other is", &cluster.http_address(id), |shown| {
            let rates = by_group(shown, "grants_per_second");
            let is_as_busy = |(of, rate): (&u64, &Value)| {
                rate.as_f64().is_some_and(|rate| (rate > 0.0) == (*of == group))
            };
            rates.iter().all(is_as_busy)
        })
        .await;
    }
    stop.store(true, Ordering::Relaxed);
    load.await.unwrap();

    // The metrics agree: each group has one leader, which counts its grants.
    let value = |page: &str, name: &str, group: u64| {
        metric(page, &format!("holdfast_group_{name}{{group=\"{group}\"}}"))
    };
    let pages = eventually("all nodes have applied the last release", PATIENCE, || async {
        let mut pages = Vec::new();
        for id in cluster.ids() {
            pages.push((id, metrics(&cluster.http_address(id)).await));
        }
        let is_done = |(_, page): &(u64, String)| value(page, "locks", group) == 1.0;
        pages.iter().all(is_done).then_some(pages)
    })
    .await;
    for (of, leader) in &leaders {
        let mut granted = 0.0;
        for (id, page) in &pages {
            let value = |name: &str| value(page, name, *of);
            let leads = if *leader == *id { 1.0 } else { 0.0 };
            assert_eq!(value("is_leader"), leads, "{page}");
            assert_eq!(value("leader"), leader.as_f64().unwrap(), "{page}");
            assert!(value("term") >= 1.0 && value("applied_index") >= 1.0, "{page}");
            assert_eq!(value("locks"), 1.0, "{page}");
            assert_eq!(value("waiters"), if *of == 3 { 1.0 } else { 0.0 }, "{page}");
            let of_node = value("grants_total");
            assert!(of_node == 0.0 || *leader == *id, "{page}");
            granted += of_node;
        }
        assert!(if *of == group { granted > 2.0 } else { granted == 1.0 }, "{of}: {granted}");
    }

    let top = data(&cluster, 0, &["top", "--interval", "200ms"]).await;
    assert_eq!(by_group(&top, "leader"), leaders, "{top}");
    assert_eq!(by_group(&top, "waiting")[&3], 1, "{top}");
    let led = top["nodes"].as_array().unwrap().iter();
    let led = led.flat_map(|node| node["leads"].as_array().unwrap());
    assert_eq!(led.count(), GROUPS as usize, "{top}");
    waiting.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_of_groups_shows_the_leaders_and_that_others_lead_after_a_kill() {
    let Some(browser) = start_browser() else { return };
    let mut cluster = Cluster::start_divided(3, GROUPS).await;
    let leaders = spread_leaders(&cluster).await;
    let looked_at = cluster.ids()[0];
    let page = format!("http://{}/", cluster.http_address(looked_at));

    // The overview counts the groups that each node leads, and has a way to the page.
    block_in_place(|| browser.open(&page)).unwrap();
    see(&browser, "#connection", |text| text == "live · 4 groups led");
    let text = see(&browser, "main", |text| text.contains("4 groups, all led"));
    assert!(text.contains("all 4 groups"), "{text}");
    see(&browser, "#banner", str::is_empty);
    block_in_place(|| browser.click("#tabs [data-id=groups]")).unwrap();
    see(&browser, "h1", |text| text == "Groups");

    let rows = || run(&browser, ROWS).as_array().unwrap().clone();
    let expected = |leaders: &BTreeMap<u64, Value>| -> Vec<Value> {
        leaders
            .iter()
            .map(|(of, leader)| json!([of.to_string(), format!("node {leader}")]))
            .collect()
    };
    eventually("the page shows the leaders", PATIENCE, || async {
        (rows() == expected(&leaders)).then_some(())
    })
    .await;

    // A bar grows with the load of its group.
    assert_eq!(run(&browser, WIDEST_BAR), json!(0));
    let library = cluster.library().await;
    eventually("the load is seen", PATIENCE, || async {
        library.lock("busy").acquire().await.unwrap().release().await.unwrap();
        (run(&browser, WIDEST_BAR) == 60).then_some(())
    })
    .await;

    // A node is killed: its groups get other leaders, and the page goes on.
    run(&browser, "window.notLoadedAgain = true");
    let killed = leaders.values().filter_map(Value::as_u64).find(|leader| *leader != looked_at);
    let killed = killed.unwrap();
    cluster.kill(killed);
    let dead = format!("node {killed}");
    see(&browser, "main", |text| text.contains("not answering"));
    eventually("its groups have other leaders", 2 * PATIENCE, || async {
        let rows = rows();
        let is_led = |row: &Value| {
            let leader = row[1].as_str().unwrap();
            leader.starts_with("node ") && !leader.starts_with(&dead)
        };
        (rows.len() == GROUPS as usize && rows.iter().all(is_led)).then_some(())
    })
    .await;
    see(&browser, "#connection", |text| text == "live · 4 groups led");
    assert_eq!(run(&browser, "return window.notLoadedAgain"), json!(true));

    // Without a majority no group has a leader. The page says so first, and the overview shows what the node knows.
    let other = cluster.ids().into_iter().find(|id| ![killed, looked_at].contains(id)).unwrap();
    cluster.kill(other);
    see(&browser, "#banner", |text| text.starts_with("No group has a leader"));
    see(&browser, "#connection", |text| text == "4 of 4 groups not led");
    assert_eq!(run(&browser, "return document.querySelectorAll('tr.alarm').length"), json!(4));
    run(&browser, "location.hash = '#/'");
    see(&browser, "main", |text| text.contains("of 4 groups, none has one"));
    cluster.launch(other);
    see(&browser, "#banner", str::is_empty);
    see(&browser, "main", |text| text.contains("4 groups, all led"));

    // Some groups without a leader are named.
    let warning = |missing: &[u64]| {
        let groups: Vec<Value> = (1..=16)
            .map(|group| json!({ "group": group, "leader": u64::from(!missing.contains(&group)) }))
            .collect();
        let script = "return import('/assets/groups.js').then((m) => m.warning(arguments[0]))";
        let said = block_in_place(|| browser.run(script, &[json!(groups)])).unwrap();
        said.as_str().unwrap().to_owned()
    };
    assert_eq!(warning(&[]), "");
    assert!(
        warning(&[3]).starts_with("No leader: group 3. None of its locks"),
        "{}",
        warning(&[3])
    );
    assert!(warning(&[1, 3, 16]).starts_with("No leader: groups 1, 3 and 16."));
    let most: Vec<u64> = (1..=15).collect();
    let said = warning(&most);
    assert!(said.contains("11, 12 and 3 more."), "{said}");
}

/// Of each row in the table of groups, the number of the group and who leads it.
const ROWS: &str = "
    const table = [...document.querySelectorAll('main table')].at(-1);
    return [...table.querySelectorAll('tbody tr')].map((row) =>
        [row.dataset.key, row.querySelector('[data-label=Leader]').innerText.trim()])";

const WIDEST_BAR: &str = "
    const bars = [...document.querySelectorAll('[data-label=\"Grants /s\"] .bar')];
    return Math.max(...bars.map((bar) => bar.getBoundingClientRect().width))";

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_with_one_group_has_no_page_of_groups() {
    let Some(browser) = start_browser() else { return };
    let cluster = cluster().await;
    let at = cluster.http_address(1);
    let shown = page_shows("the only group has a leader", &at, |shown| {
        shown["groups"][0]["leader"].as_u64() > Some(0)
    })
    .await;
    assert_eq!(shown["groups"].as_array().unwrap().len(), 1, "{shown}");
    block_in_place(|| browser.open(&format!("http://{at}/"))).unwrap();
    see(&browser, "#connection", |text| text.ends_with("leads"));
    let tabs = see(&browser, "#tabs", |text| text.contains("Locks"));
    assert!(!tabs.contains("Groups"), "{tabs}");
    run(&browser, "location.hash = '#/groups'");
    see(&browser, "main", |text| text.contains("This cluster has one group"));
}
