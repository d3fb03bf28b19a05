//! What the pages ask for.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::{HOSTILE, SECRET, cluster, get, send};
use crate::support::{PATIENCE, eventually};

const LONG: Duration = Duration::from_secs(60);

fn names(list: &Value) -> Vec<&str> {
    list["locks"].as_array().unwrap().iter().map(|lock| lock["name"].as_str().unwrap()).collect()
}

fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02x}")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn locks_are_searched_sorted_and_paged_at_any_node() {
    let cluster = cluster().await;
    let at = cluster.http_address(cluster.follower().await);
    let (alice, bob) = (cluster.library().await, cluster.library().await);
    let mut held = vec![alice.lock("z/first").acquire().await.unwrap()];
    for number in 0..230 {
        held.push(alice.lock(format!("a/{number:03}")).acquire().await.unwrap());
    }
    held.push(bob.lock(HOSTILE).reason("</script>").acquire().await.unwrap());
    let mut waiting = Vec::new();
    for (name, times) in [("a/007", 1), ("a/100", 3)] {
        for _ in 0..times {
            let (queued, when_queued) = oneshot::channel();
            let request = bob.lock(name).wait(LONG).on_queued(|_| queued.send(()).unwrap());
            waiting.push(tokio::spawn(request.acquire()));
            when_queued.await.unwrap();
        }
    }

    // By name, page by page: each once, in order.
    let (mut all, mut page) = (Vec::new(), String::new());
    loop {
        let (code, list) = get(&at, &format!("/api/locks?prefix=a/&size=100&page={page}"));
        assert_eq!(code, 200, "{list}");
        all.extend(names(&list).into_iter().map(str::to_owned));
        page = encoded(list["next"].as_str().unwrap());
        if page.is_empty() {
            break;
        }
    }
    assert_eq!(all, (0..230).map(|number| format!("a/{number:03}")).collect::<Vec<_>>());

    let (_, queues) = get(&at, "/api/locks?sort=queue&size=3");
    assert_eq!(names(&queues)[..2], ["a/100", "a/007"], "{queues}");
    assert_eq!((&queues["matched"], &queues["next"]), (&json!(232), &json!("3")));
    assert_eq!(queues["locks"][0]["waiters"], 3);
    let (_, oldest) = get(&at, "/api/locks?sort=age&size=2");
    assert_eq!(names(&oldest)[0], "z/first", "{oldest}");
    let (_, second) = get(&at, "/api/locks?sort=age&size=2&page=2");
    assert!(!names(&second).is_empty() && names(&second) != names(&oldest), "{second}");

    // A part of the name, whatever the case; with the holder; and both with pages of their own.
    let (_, found) = get(&at, "/api/locks?contains=A/22");
    assert_eq!(names(&found).len(), 10, "{found}");
    let (_, found) = get(&at, "/api/locks?contains=0&size=5");
    assert_eq!((names(&found).len(), &found["next"]), (5, &json!("a/004")));
    let bobs = found_session(&at, 1);
    let (_, found) = get(&at, &format!("/api/locks?holder={bobs}"));
    assert_eq!(names(&found), [HOSTILE], "{found}");

    // Hostile names go through as they are.
    let (_, lock) = get(&at, &format!("/api/lock?name={}", encoded(HOSTILE)));
    assert_eq!(lock["lock"]["name"], HOSTILE, "{lock}");
    assert_eq!(lock["lock"]["holders"][0]["metadata"], "</script>");
    assert_eq!(lock["history"][0]["kind"], "granted", "{lock}");
    let (_, lock) = get(&at, "/api/lock?name=a%2F100");
    let places: Vec<_> = lock["lock"]["waiters"].as_array().unwrap().iter().collect();
    assert_eq!(places.len(), 3);
    assert_eq!(places[2]["position"], 3, "{lock}");
    let (_, graph) = get(&at, "/api/graph");
    assert_eq!(graph["locks"].as_array().unwrap().len(), 2, "{graph}");
    let (_, elections) = get(&at, "/api/elections");
    assert_eq!(elections["led"][0]["metadata"], "</script>", "{elections}");

    for wrong in [
        "/api/locks?sort=colour",
        "/api/locks?page=x&sort=queue",
        "/api/locks?colour=red",
        "/api/locks?contains=%00",
        "/api/lock?name=",
        "/api/lock?name=%0a",
        "/api/recent?kinds=colour",
        "/api/sessions?page=x",
        "/api/owners",
    ] {
        let (code, answer) = get(&at, wrong);
        assert_eq!(code, 400, "{wrong}: {answer}");
        assert_ne!(answer["error"]["words"], Value::Null, "{wrong}: {answer}");
    }
    for nowhere in ["/api/colours", "/assets/app.css.map", "/favicon.png"] {
        let (code, answer) = get(&at, nowhere);
        assert_eq!((code, &answer["error"]["reason"]), (404, &"no_such_page".into()), "{answer}");
    }
    let (code, answer) = get(&at, "/api/actions/break");
    assert_eq!((code, &answer["error"]["reason"]), (405, &"method_not_allowed".into()), "{answer}");
    drop(held);
}

/// The session with so many holds, as the dashboard lists it.
fn found_session(at: &str, holds: u64) -> String {
    let (_, sessions) = get(at, "/api/sessions?sort=age");
    let sessions = sessions["sessions"].as_array().unwrap().clone();
    let found = sessions.iter().find(|session| session["holds"] == holds);
    found.unwrap_or_else(|| panic!("{sessions:?}"))["session"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cycle_that_was_refused_is_told_with_its_owners() {
    let cluster = cluster().await;
    let at = cluster.http_address(cluster.follower().await);
    let (alice, bob) = (cluster.library().await, cluster.library().await);
    let _ledger = alice.lock("ledger").actor(1).acquire().await.unwrap();
    let _vault = bob.lock("vault").actor(1).acquire().await.unwrap();
    let (queued, when_queued) = oneshot::channel();
    let vault = alice.lock("vault").actor(1).wait(LONG).on_queued(|_| queued.send(()).unwrap());
    tokio::spawn(vault.acquire());
    when_queued.await.unwrap();
    bob.lock("ledger").actor(1).wait(LONG).acquire().await.unwrap_err();

    let cycle = eventually("the follower has seen it", PATIENCE, || async {
        let (_, graph) = get(&at, "/api/graph");
        graph["cycles"].as_array()?.first()?["cycle"].as_array().cloned()
    });
    let cycle = cycle.await;
    let waits_for: Vec<&Value> = cycle.iter().map(|link| &link["waits_for"]).collect();
    assert_eq!(waits_for, ["ledger", "vault"]);
    let session = |link: usize| cycle[link]["session"].as_str().unwrap();
    let asked = format!("/api/owners?sessions={},{},0badcafe", session(0), session(1));
    let (code, reported) = get(&at, &asked);
    assert_eq!(code, 200, "{reported}");
    let owners = reported["owners"].as_object().unwrap();
    assert_eq!(owners.len(), 2, "{reported}");
    for link in [0, 1] {
        assert_eq!(owners[session(link)]["pid"], std::process::id(), "{reported}");
    }
    let many = (0..101).map(|id| format!("{id:x}")).collect::<Vec<_>>().join(",");
    assert_eq!(get(&at, &format!("/api/owners?sessions={many}")).0, 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_our_own_page_with_the_secret_acts_and_it_is_recorded() {
    let cluster = cluster().await;
    let at = cluster.http_address(cluster.follower().await);
    let alice = cluster.library().await;
    let held = alice.lock("deploy").acquire().await.unwrap();
    let token = held.token().unwrap();
    let origin = format!("http://{at}");
    let page = [
        ("content-type", "application/json"),
        ("origin", origin.as_str()),
        ("sec-fetch-site", "same-origin"),
        ("holdfast-action", "1"),
        ("holdfast-secret", SECRET),
    ];
    let but = |name: &str, value: &'static str| {
        let mut headers = page;
        headers.iter_mut().filter(|header| header.0 == name).for_each(|header| header.1 = value);
        headers
    };
    let body = |reason: &str| {
        json!({ "by": "carol", "reason": reason, "name": "deploy", "token": token.to_string() })
            .to_string()
    };
    let post = |headers: &[(&str, &str)], body: &str| {
        send(&at, "POST", "/api/actions/break", headers, body)
    };

    for (name, value) in [
        ("origin", "http://evil.example"),
        ("sec-fetch-site", "cross-site"),
        ("content-type", "text/plain"),
        ("holdfast-action", ""),
    ] {
        let (code, answer) = post(&but(name, value), &body("x"));
        assert_eq!((code, &answer["error"]["reason"]), (403, &json!("cross_site")), "{name}");
    }
    assert_eq!(get(&at, "/api/actions/break").0, 405);
    let (code, answer) = post(&page, &body(" "));
    assert_eq!(code, 400, "{answer}");
    for wrong in ["{", "{}", "{\"by\":\"x\",\"reason\":\"y\",\"name\":\"deploy\",\"token\":\"-1\"}"]
    {
        assert_eq!(post(&page, wrong).0, 400, "{wrong}");
    }
    held.token().expect("nothing has happened yet");

    let (code, answer) = post(&page, &body("she is on holiday"));
    assert_eq!((code, &answer["holds"]), (200, &json!(1)), "{answer}");
    tokio::time::timeout(PATIENCE, held.lost()).await.unwrap();
    let recorded = eventually("the follower has seen it", PATIENCE, || async {
        let (_, recent) = get(&at, "/api/recent?kinds=intervened");
        recent["events"].as_array()?.first().cloned()
    });
    let recorded = recorded.await;
    assert_eq!(recorded["by"], "carol (dashboard)", "{recorded}");
    assert_eq!(recorded["detail"], "break: she is on holiday", "{recorded}");

    let freeze = json!({ "by": "carol", "reason": "audit", "prefix": "pay/", "ttl_ms": 60_000 });
    let (code, _) = send(&at, "POST", "/api/actions/freeze", &page, &freeze.to_string());
    assert_eq!(code, 200);
    let (_, freezes) = get(&at, "/api/freezes");
    assert_eq!(freezes["freezes"][0]["prefix"], "pay/", "{freezes}");
    let thaw = json!({ "by": "carol", "reason": "done", "prefix": "pay/" }).to_string();
    assert_eq!(send(&at, "POST", "/api/actions/thaw", &page, &thaw).0, 200);
    assert_eq!(send(&at, "POST", "/api/actions/thaw", &page, &thaw).0, 409);
    let session = found_session(&at, 0);
    let close = json!({ "by": "carol", "reason": "gone", "session": session }).to_string();
    assert_eq!(send(&at, "POST", "/api/actions/close-session", &page, &close).0, 200);

    // Wrong secrets: some, and then not even the right one for a while.
    let wrong = but("holdfast-secret", "correct horse battery stapl");
    let mut codes = Vec::new();
    for _ in 0..6 {
        codes.push(post(&wrong, &body("x")).0);
    }
    assert_eq!(codes, [401, 401, 401, 401, 401, 429]);
    assert_eq!(post(&page, &body("x")).0, 429);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_site_whose_name_points_at_a_node_cannot_read_the_dashboard() {
    let cluster = cluster().await;
    let at = cluster.http_address(1);
    let code = |path: &str, host: &str| {
        let mut node = TcpStream::connect(&at).unwrap();
        node.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(node, "GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        node.read_to_string(&mut answer).unwrap();
        (answer[9..12].parse::<u16>().unwrap(), answer)
    };
    let port = at.rsplit_once(':').unwrap().1;
    for path in ["/", "/api/locks", "/assets/app.js", "/nowhere"] {
        for host in ["evil.example".to_owned(), format!("evil.example:{port}")] {
            let (code, answer) = code(path, &host);
            assert_eq!(code, 421, "{path}: {answer}");
            assert!(answer.contains("hosts = [\\\"evil.example\\\"]"), "{answer}");
        }
        assert_eq!(code(path, "no name").0, 400);
    }
    for host in [&at, "localhost", "[::1]:80", "LOCKS.example:443"] {
        assert_eq!(code("/api/locks", host).0, 200, "{host}");
    }
    // Probes and scrapers come by whatever name they were given.
    assert_eq!(code("/healthz", "evil.example").0, 200);
    assert_eq!(code("/metrics", "holdfast.monitoring.svc").0, 200);
}

/// A stream of server-sent events, opened and read as far as its first message.
fn stream(at: &str, path: &str) -> (u16, TcpStream) {
    let mut stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: {at}\r\n\r\n").as_bytes()).unwrap();
    let mut head = [0; 12];
    stream.read_exact(&mut head).unwrap();
    let code = std::str::from_utf8(&head[9..12]).unwrap().parse().unwrap();
    (code, stream)
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_are_bounded_and_tell_what_happens_at_a_follower_too() {
    let cluster = cluster().await;
    let at = cluster.http_address(cluster.follower().await);
    let alice = cluster.library().await;
    let text = tokio::task::spawn_blocking({
        let at = at.clone();
        move || {
            let (code, mut events) = stream(&at, "/api/events?prefix=job/");
            assert_eq!(code, 200);
            let mut heard = String::new();
            let mut part = [0; 4096];
            while !heard.contains("\"kind\":\"granted\"") {
                let count = events.read(&mut part).unwrap();
                assert!(count > 0, "{heard}");
                heard += &String::from_utf8_lossy(&part[..count]);
            }
            heard
        }
    });
    // Again and again, because it is not known when the stream has begun to listen.
    let text = tokio::select! {
        text = text => text.unwrap(),
        () = async {
            loop {
                let guard = alice.lock(format!("job/{HOSTILE}")).acquire().await.unwrap();
                guard.release().await.unwrap();
            }
        } => unreachable!(),
    };
    assert!(text.contains("id: 1.") && !text.contains("other/"), "{text}");

    let open = tokio::task::block_in_place(|| {
        let open: Vec<_> = (0..64).map(|_| stream(&at, "/api/live")).collect();
        assert_eq!(open.iter().filter(|(code, _)| *code == 200).count(), 64);
        assert_eq!(stream(&at, "/api/live").0, 503);
        assert_eq!(stream(&at, "/api/events").0, 503);
        open
    });
    // Everything else is served as ever; and who goes makes room.
    assert_eq!(get(&at, "/api/locks").0, 200);
    drop(open);
    eventually("there is room again", PATIENCE, || async {
        let (code, _) = tokio::task::block_in_place(|| stream(&at, "/api/live"));
        (code == 200).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_come_under_a_strict_policy_and_are_fetched_once() {
    let cluster = cluster().await;
    let at = cluster.http_address(1);
    let fetch = |path: &str, headers: &[(&str, &str)]| {
        tokio::task::block_in_place(|| {
            holdfast_browser::request(&at, "GET", path, headers, b"").unwrap()
        })
    };
    let page = fetch("/", &[]);
    assert_eq!(page.status, 200);
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.contains("script-src 'self';") && !policy.contains("unsafe"), "{policy}");
    let missing = fetch("/no-such-page", &[]);
    assert_eq!((missing.status, missing.header("content-security-policy")), (404, Some(policy)));
    let html = String::from_utf8(page.body.clone()).unwrap();
    assert!(!html.contains("<script>") && !html.contains("style="), "{html}");
    let script = fetch("/assets/app.js", &[]);
    assert_eq!(script.header("content-type"), Some("text/javascript; charset=utf-8"));
    let tag = script.header("etag").unwrap();
    assert_eq!(fetch("/assets/app.js", &[("if-none-match", tag)]).status, 304);
    assert_eq!(fetch("/assets/../Cargo.toml", &[]).status, 404);
    assert_eq!(fetch("/assets/%2e%2e%2fCargo.toml", &[]).status, 404);
}
