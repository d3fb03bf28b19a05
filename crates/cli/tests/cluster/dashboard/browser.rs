//! The pages, in a real browser.

use std::io::Write;
use std::time::Duration;

use holdfast_browser::{Browser, Outcome, missing};
use holdfast_client::{Client, LossReason, Owner};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::block_in_place;

use super::{HOSTILE, SECRET, cluster};
use crate::support::{Cluster, PATIENCE};

const LONG: Duration = Duration::from_secs(60);
const ENTER: &str = "\u{e007}";

/// Where there is no browser this is skipped loudly; in CI it fails.
pub(super) fn start_browser() -> Option<Browser> {
    if let Some(package) = missing() {
        let advice = format!("no browser: `cargo xtask test` or `apt-get install {package}`");
        assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{advice}");
        let _ = writeln!(std::io::stderr(), "SKIPPED a test: {advice}");
        return None;
    }
    Some(block_in_place(|| Browser::start(1200, 900)).unwrap())
}

pub(super) fn see(browser: &Browser, selector: &str, wanted: impl Fn(&str) -> bool) -> String {
    block_in_place(|| browser.wait_for_text(selector, wanted)).unwrap()
}

pub(super) fn run(browser: &Browser, script: &str) -> Value {
    block_in_place(|| browser.run(script, &[])).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_sees_what_happens_survives_a_kill_and_breaks_a_lock() {
    let Some(browser) = start_browser() else { return };
    let mut cluster = cluster().await;
    let looked_at = cluster.follower().await;
    let page = format!("http://{}/", cluster.http_address(looked_at));

    // A lock appears.
    block_in_place(|| browser.open(&format!("{page}#/locks"))).unwrap();
    see(&browser, "main", |text| text.contains("No lock is in use"));
    run(&browser, "window.notLoadedAgain = true");
    let (alice, bob, carol) =
        (cluster.library().await, cluster.library().await, cluster.library().await);
    let held = alice.lock("deploy/api").reason("release 2.14").acquire().await.unwrap();
    let text = see(&browser, "main", |text| text.contains("deploy/api"));
    assert!(text.contains("release 2.14"), "{text}");

    // A queue grows. The row is opened by the keyboard.
    run(&browser, "document.querySelector('tr.linked a').focus()");
    block_in_place(|| browser.press(ENTER)).unwrap();
    see(&browser, "h1", |text| text == "deploy/api");
    let mut waiting = Vec::new();
    for (client, place) in [(&bob, 1), (&carol, 2)] {
        let (queued, when_queued) = oneshot::channel();
        let request = client.lock("deploy/api").wait(LONG).on_queued(|_| queued.send(()).unwrap());
        waiting.push(tokio::spawn(request.acquire()));
        when_queued.await.unwrap();
        see(&browser, "main", |text| text.contains(&format!("Queue ({place})")));
    }

    // The leader is killed; the page goes on by itself.
    let leader = cluster.leader().await;
    assert_ne!(leader, looked_at, "a machine that stalled for seconds: another node was elected");
    see(&browser, "#connection", |text| text == format!("live · node {leader} leads"));
    cluster.kill(leader);
    let next = cluster.leader().await;
    see(&browser, "#connection", |text| text == format!("live · node {next} leads"));
    assert_eq!(run(&browser, "return window.notLoadedAgain"), json!(true));
    see(&browser, "main", |text| text.contains("Queue (2)"));

    // It is broken, with a reason; what is missing or wrong is said, and nothing happens.
    let by_hand = || -> Outcome<()> {
        browser.click("#break")?;
        browser.wait_for_text("dialog", |text| {
            text.contains("release") || text.contains("loses it")
        })?;
        browser.type_into("dialog input[name=reason]", "she is on holiday")?;
        browser.type_into("dialog input[name=by]", "dave")?;
        browser.type_into("dialog input[name=secret]", "not the secret")?;
        browser.click("dialog button[type=submit]")?;
        browser.wait_for_text("dialog .failed", |text| text.contains("not the secret"))?;
        browser.run("document.querySelector('dialog input[name=secret]').value = ''", &[])?;
        browser.type_into("dialog input[name=secret]", SECRET)?;
        browser.click("dialog button[type=submit]")?;
        browser.wait_for_text("main", |text| text.contains("Queue (1)"))?;
        browser.wait_for_text("main", |text| text.contains("she is on holiday"))?;
        Ok(())
    };
    assert!(held.token().is_ok());
    block_in_place(by_hand).unwrap();
    let lost = tokio::time::timeout(PATIENCE, held.lost()).await.unwrap();
    assert_eq!(lost, LossReason::Broken);
    waiting.remove(0).await.unwrap().unwrap();
    let text = see(&browser, "main", |text| text.contains("dave (dashboard)"));
    assert!(text.contains("intervened"), "{text}");

    // A hostile name is text, in the list and on its own page.
    let hostile = alice.lock(HOSTILE).reason("<script>window.pwned=2</script>").acquire().await;
    let _hostile = hostile.unwrap();
    run(&browser, "location.hash = '#/locks?contains=onerror'");
    let shown = HOSTILE.replace('\u{202e}', "\\u{202e}");
    see(&browser, "main", |text| text.contains(&shown));
    block_in_place(|| browser.click("tr.linked a")).unwrap();
    see(&browser, "h1", |text| text == shown);
    see(&browser, "main", |text| text.contains("<script>window.pwned=2</script>"));
    for view in ["graph", "sessions", "events", "elections", ""] {
        block_in_place(|| browser.run("location.hash = '#/' + arguments[0]", &[json!(view)]))
            .unwrap();
        see(&browser, "main", |text| !text.is_empty() && !text.contains("Loading"));
    }
    let intruders =
        "return [window.pwned ?? null, document.querySelectorAll('main img, main script').length]";
    assert_eq!(run(&browser, intruders), json!([null, 0]));

    // Its own node goes and comes back; the page says so, and goes on.
    cluster.kill(looked_at);
    see(&browser, "#connection", |text| text == "connection lost, retrying");
    see(&browser, "#banner", |text| text.contains("retrying"));
    cluster.launch(looked_at);
    see(&browser, "#connection", |text| text.starts_with("live"));
    assert_eq!(run(&browser, "return window.notLoadedAgain"), json!(true));
}

/// A client that says what it is.
async fn named(cluster: &Cluster, application: &str) -> Client {
    let owner = Owner { application: application.into(), host: "".into(), pid: 0, note: "".into() };
    Client::builder().owner(owner).connect(&cluster.endpoints()).await.unwrap()
}

/// Returns when it stands in line; it goes on to stand there.
async fn stand_in_line(client: &Client, name: &str) {
    let (queued, when_queued) = oneshot::channel();
    let request = client.lock(name).actor(1).wait(LONG).on_queued(|_| queued.send(()).unwrap());
    tokio::spawn(request.acquire());
    when_queued.await.unwrap();
}

/// How many arrows there are, and how many of their points are behind a box.
const HIDDEN: &str = "
    const boxes = [...document.querySelectorAll('.graph rect')].map((box) => box.getBBox());
    const covers = (at) => (box) => at.x > box.x + 1 && at.x < box.x + box.width - 1
        && at.y > box.y + 1 && at.y < box.y + box.height - 1;
    const arrows = [...document.querySelectorAll('.graph svg > path')];
    let hidden = 0;
    for (const arrow of arrows) {
        for (let along = 0; along <= arrow.getTotalLength(); along += 3) {
            if (boxes.some(covers(arrow.getPointAtLength(along)))) hidden += 1;
        }
    }
    return [arrows.length, hidden]";

#[tokio::test(flavor = "multi_thread")]
async fn a_stranger_can_read_the_graph() {
    let Some(browser) = start_browser() else { return };
    let cluster = cluster().await;
    let (payroll, archive, reports) = (
        named(&cluster, "payroll").await,
        named(&cluster, "archive").await,
        named(&cluster, "reports").await,
    );
    let _ledger = payroll.lock("ledger").actor(1).acquire().await.unwrap();
    let vault = archive.lock("vault").actor(1).acquire().await.unwrap();
    stand_in_line(&payroll, "vault").await;
    stand_in_line(&reports, "ledger").await;
    // Past the ledger and its holder.
    stand_in_line(&reports, "vault").await;
    archive.lock("ledger").actor(1).wait(LONG).acquire().await.unwrap_err();

    let page = format!("http://{}/#/graph", cluster.http_address(cluster.follower().await));
    block_in_place(|| browser.open(&page)).unwrap();
    // Both payroll and reports are before it at the ledger, and wait for its vault.
    let tells_cycle = |text: &str| {
        ["payroll", "reports"].iter().any(|other| {
            text.contains(&format!(
                "archive would wait for ledger, where {other} is in the way; \
                 {other} waits for vault, where archive is in the way"
            ))
        })
    };
    let text = see(&browser, "main", tells_cycle);
    assert!(text.contains("holds something, and waits itself"), "{text}");
    assert_eq!(run(&browser, HIDDEN), json!([5, 0]));

    // Who is gone is still named.
    drop(vault);
    archive.close().await.unwrap();
    run(&browser, "location.hash = '#/events?show=refusals'; location.reload()");
    see(&browser, "main", tells_cycle);

    see(&browser, "#theme", |text| text.contains("Theme: system"));
    block_in_place(|| browser.click("#theme")).unwrap();
    see(&browser, "#theme", |text| text.contains("Theme: light"));
}
