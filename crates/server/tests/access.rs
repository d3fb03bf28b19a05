//! Who may do what, on whole nodes: without credentials nothing is done; each role may do what its verbs say, at the leader
//! and at a follower, by call, by stream and by framed stream; a session belongs to its principal.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

mod support;

use std::collections::BTreeSet;
use std::path::Path;

use holdfast_core::{BuiltInRole, Rule, Verbs};
use holdfast_proto::AccessToken;
use holdfast_proto::plain;
use holdfast_proto::v1::access_change::Change;
use holdfast_proto::v1::acquire_response::Outcome;
use holdfast_proto::v1::{self, Failure, Reason, answer, operation};
use holdfast_server::{AuthMode, bootstrap_token};
use holdfast_service::{Front, Kind, Method, Verb};
use support::every_method::{Names, call_everything, every_operation, with};
use support::framed::{FramedClient, Received, acquire, heartbeat, opening, release};
use support::secured::{Secured, bearer, framed_as, new_token, request, right, stream_as};
use support::{
    Client, Cluster, OnStream, PATIENCE, connect, eventually, http_request, new_session,
};
use tokio::time::timeout;

fn grpc_methods() -> impl Iterator<Item = Method> {
    Method::ALL
        .iter()
        .copied()
        .filter(|method| matches!(method.row().front, Front::Grpc(_)) && *method != Method::Session)
}

/// Which methods were refused for this reason.
async fn refused(address: &str, token: Option<&str>, reason: Reason) -> BTreeSet<Method> {
    let value = token.map(bearer);
    let header = value.as_deref().map(|value| ("authorization", value));
    let failures = call_everything(address, header).await;
    let is_it = |status: &tonic::Status| Failure::from_status(status).reason() == reason;
    failures.into_iter().filter(|(_, status)| is_it(status)).map(|(method, _)| method).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn without_credentials_every_method_is_refused_except_probes() {
    let secured = Secured::start().await;
    let demanding: BTreeSet<Method> =
        grpc_methods().filter(|method| method.row().verb != Verb::Open).collect();
    let open: Vec<Method> = grpc_methods().filter(|it| !demanding.contains(it)).collect();
    assert!(open.iter().all(|method| method.row().kind == Kind::Probe), "{open:?}");
    for node in [secured.leader, secured.follower] {
        let address = secured.cluster.address(node);
        assert_eq!(refused(&address, None, Reason::Unauthenticated).await, demanding);
        let unknown = AccessToken::random().unwrap().to_secret_text();
        let all: BTreeSet<Method> = grpc_methods().collect();
        assert_eq!(refused(&address, Some(&unknown), Reason::Unauthenticated).await, all);
        assert_eq!(refused(&address, Some("hft_0_x"), Reason::Unauthenticated).await, all);

        let mut framed = FramedClient::greet(&address).await;
        framed.send(plain::FRAME, &support::framed::frame(vec![opening(0)])).await;
        assert_eq!(framed.reason_of_end().await, Reason::Unauthenticated);
        let mut client = connect(&address).await;
        let frames = tokio_stream::once(support::framed::frame(vec![opening(0)]));
        let mut answers = client.session(frames).await.unwrap().into_inner();
        let status = answers.message().await.unwrap_err();
        assert_eq!(Failure::from_status(&status).reason(), Reason::Unauthenticated);

        let http = secured.cluster.http_address(node);
        for method in Method::ALL {
            let Front::Http(route) = method.row().front else { continue };
            let path = route.replace("{file}", "style.css").replace("{action}", "break");
            let verb = if *method == Method::HttpAction { "POST" } else { "GET" };
            let (code, _) = http_request(&http, verb, &path, "", "").await;
            assert_eq!(code == 401, method.row().verb != Verb::Open, "{path}: {code}");
        }
    }
}

fn resuming(session: &str) -> operation::Kind {
    operation::Kind::Resume(v1::ResumeSessionRequest {
        session_id: session.to_owned(),
        request_id: 1,
        ..Default::default()
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn without_credentials_no_operation_is_answered_on_a_new_stream() {
    let secured = Secured::start().await;
    for node in [secured.leader, secured.follower] {
        let address = secured.cluster.address(node);
        // A ping opens nothing: the answer says nothing, and the node does not wait longer for a session.
        let mut pinging = FramedClient::greet(&address).await;
        pinging.send(plain::PING, &v1::ClientFrame::default()).await;
        assert_eq!(pinging.next().await, Received::Frame(v1::ServerFrame::default()));
        let first = [opening(0), resuming(&new_session())];
        for kind in every_operation(&Names::WALLET).into_iter().chain(first) {
            let mut framed = FramedClient::greet(&address).await;
            framed.send(plain::PING, &v1::ClientFrame::default()).await;
            framed.send(plain::FRAME, &support::framed::frame(vec![kind.clone()])).await;
            assert_eq!(framed.next().await, Received::Frame(v1::ServerFrame::default()));
            assert_eq!(framed.reason_of_end().await, Reason::Unauthenticated, "{kind:?}");

            let mut client = connect(&address).await;
            let frames = tokio_stream::once(support::framed::frame(vec![kind.clone()]));
            let mut answers = client.session(frames).await.unwrap().into_inner();
            let first = timeout(PATIENCE, answers.message()).await.expect("no end in time");
            let reason = first.map_err(|status| Failure::from_status(&status).reason());
            assert_eq!(reason, Err(Reason::Unauthenticated), "{kind:?}");
        }
        assert_eq!(pinging.reason_of_end().await, Reason::InvalidFrame);
    }
}

/// Why a node does not open a session for this framed stream.
async fn denial_of_session(mut framed: FramedClient) -> Failure {
    framed.send(plain::FRAME, &support::framed::frame(vec![opening(0)])).await;
    match framed.next().await {
        Received::End(failure) => failure,
        said => panic!("not a denial: {said:?}"),
    }
}

/// A follower may have an older policy, older keys or another clock than the leader.
#[tokio::test(flavor = "multi_thread")]
async fn only_the_denial_of_a_session_by_the_leader_is_final() {
    let secured = Secured::start().await;
    let (without_role, put) = new_token("without-role");
    secured.change(request(vec![put])).await;
    let leads_at = secured.cluster.address(secured.leader);
    for node in [secured.leader, secured.follower] {
        let address = secured.cluster.address(node);
        let hint = if node == secured.leader { "" } else { &*leads_at };
        let expected = (node != secured.leader, hint);
        let without_token = denial_of_session(FramedClient::greet(&address).await).await;
        let without_role = denial_of_session(framed_as(&address, &without_role).await).await;
        let malformed = denial_of_session(framed_as(&address, "hft_0_x").await).await;
        let mut client = connect(&address).await;
        let frames = tokio_stream::once(support::framed::frame(vec![opening(0)]));
        let mut answers = client.session(frames).await.unwrap().into_inner();
        let by_call = Failure::from_status(&answers.message().await.unwrap_err());
        for denial in [without_token, without_role, malformed, by_call] {
            assert_eq!((denial.retryable, &*denial.leader), expected, "node {node}: {denial:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_built_in_role_may_do_what_its_verbs_say_and_nothing_else() {
    let secured = Secured::start().await;
    for role in BuiltInRole::ALL {
        let verbs = role.rules().into_iter().fold(Verbs::NONE, |all, rule| match rule {
            Rule::Names { verbs, .. } | Rule::Cluster { verbs } => all.and(verbs),
        });
        let token = secured.token(role.name(), role.name()).await;
        let may =
            |method: &Method| right(method.row().verb).is_none_or(|right| verbs.contains(right));
        let denied: BTreeSet<Method> = grpc_methods().filter(|method| !may(method)).collect();
        for node in [secured.leader, secured.follower] {
            let address = secured.cluster.address(node);
            let found = refused(&address, Some(&token), Reason::PermissionDenied).await;
            assert_eq!(found, denied, "{role:?} at node {}", node + 1);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_for_some_names_gives_nothing_for_others() {
    let secured = Secured::start().await;
    secured.put_own_role().await;
    let token = secured.token("owner", "own").await;
    let allowed = |method: &Method| {
        matches!(method.row().verb, Verb::Open | Verb::Authenticated | Verb::Connect)
            // It answers with what the caller may see.
            || *method == Method::ListFreezes
    };
    let denied: BTreeSet<Method> = grpc_methods().filter(|method| !allowed(method)).collect();
    for node in [secured.leader, secured.follower] {
        let address = secured.cluster.address(node);
        assert_eq!(refused(&address, Some(&token), Reason::PermissionDenied).await, denied);
        let header = bearer(&token);
        let mut client = connect(&address).await;
        for (prefix, is_allowed) in [("own/", true), ("own/a", true), ("own", false), ("", false)] {
            let asked = v1::ListRequest { prefix: prefix.into(), ..Default::default() };
            let listed = client.list(with(asked, Some(("authorization", &*header)))).await;
            assert_eq!(listed.is_ok(), is_allowed, "{prefix}: {listed:?}");
        }
    }
}

fn reason_of(result: answer::Result) -> Option<Reason> {
    match result {
        answer::Result::Failure(failure) => Some(failure.reason()),
        _ => None,
    }
}

fn all_of(request_id: u64, names: &[&str]) -> operation::Kind {
    let member = |name: &&str| v1::Member { name: (*name).into(), ..Default::default() };
    let members = names.iter().map(member).collect();
    operation::Kind::AcquireAll(v1::AcquireAllRequest { request_id, members, ..Default::default() })
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_framed_stream_each_name_is_checked_and_a_ban_counts_at_once() {
    let secured = Secured::start().await;
    secured.put_own_role().await;
    for node in [secured.leader, secured.follower] {
        let name = format!("framed-{node}");
        let token = secured.token(&name, "own").await;
        let address = secured.cluster.address(node);
        let mut framed = framed_as(&address, &token).await;
        framed.open().await;
        let own = format!("own/{node}");
        let held = framed.take_as(2, &own).await;
        let denied = Some(Reason::PermissionDenied);
        assert_eq!(reason_of(framed.ask(acquire(3, "other")).await), denied);
        assert_eq!(reason_of(framed.ask(all_of(4, &["own/x", "other"])).await), denied);
        assert_eq!(reason_of(framed.ask(all_of(5, &["own/x", "own/y"])).await), None);
        let status = v1::StatusRequest { request_id: 6, name: "other".into() };
        assert_eq!(reason_of(framed.ask(operation::Kind::Status(status)).await), denied);

        secured.change(request(vec![Change::Ban(format!("token:{name}"))])).await;
        assert_eq!(reason_of(framed.ask(acquire(7, "own/z")).await), denied);
        assert_eq!(reason_of(framed.ask(heartbeat(8)).await), denied);
        assert_eq!(reason_of(framed.ask(release(9, &own, held)).await), None, "it may let go");
        let mut again = framed_as(&address, &token).await;
        again.send(plain::FRAME, &support::framed::frame(vec![opening(0)])).await;
        assert!(
            matches!(again.next().await, Received::End(end) if end.reason() == Reason::Unauthenticated)
        );
    }
}

async fn open_session(client: &mut Client, token: &str) -> Result<String, Reason> {
    let session_id = new_session();
    let opened = v1::OpenSessionRequest {
        session_id: session_id.clone(),
        ttl_ms: 60_000,
        ..Default::default()
    };
    let opened = client.open_session(with(opened, Some(("authorization", &*bearer(token))))).await;
    opened.map(|_| session_id).map_err(|status| Failure::from_status(&status).reason())
}

async fn take(client: &mut Client, token: &str, session: &str, name: &str) -> Result<bool, Reason> {
    let request = support::acquire(session, 1, name, 0);
    let taken = client.acquire(with(request, Some(("authorization", &*bearer(token))))).await;
    let taken = taken.map_err(|status| Failure::from_status(&status).reason())?;
    Ok(matches!(taken.into_inner().outcome, Some(Outcome::Granted(_))))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stolen_session_id_is_useless_and_no_file_has_it() {
    let secured = Secured::start().await;
    let (alice, mallory) = (secured.token("alice", "user").await, secured.token("m", "user").await);
    let mut client = secured.cluster.client(secured.follower).await;
    let session = open_session(&mut client, &alice).await.unwrap();
    assert_eq!(take(&mut client, &alice, &session, "wallet").await, Ok(true));
    let stolen = take(&mut client, &mallory, &session, "keys").await;
    assert_eq!(stolen, Err(Reason::UnknownSession));
    let secret = session.parse::<holdfast_proto::SessionId>().unwrap().to_bytes();
    let mut reversed = secret;
    reversed.reverse();
    for config in &secured.cluster.configs {
        for found in files_under(&config.data_dir) {
            let has = |wanted: &[u8]| found.windows(wanted.len()).any(|part| part == wanted);
            assert!(!has(&secret) && !has(&reversed) && !has(session.as_bytes()));
        }
    }
}

/// How a stream is answered that cannot be opened: with a failure, and then with its end.
async fn answers_of_failed_opening(mut stream: OnStream) -> (Option<Reason>, Reason) {
    let mut frame = stream.next().await.unwrap();
    assert_eq!(frame.answers.len(), 1, "{frame:?}");
    let answer = frame.answers.remove(0).result.unwrap();
    (reason_of(answer), Failure::from_status(&stream.end().await).reason())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stolen_session_id_opens_no_stream_of_that_session() {
    let secured = Secured::start().await;
    let (alice, mallory) = (secured.token("alice", "user").await, secured.token("m", "user").await);
    let mut client = secured.cluster.client(secured.follower).await;
    let stolen = open_session(&mut client, &alice).await.unwrap();
    assert_eq!(take(&mut client, &alice, &stolen, "wallet").await, Ok(true));
    let (unknown, header) = (Some(Reason::UnknownSession), bearer(&alice));
    for node in [secured.leader, secured.follower] {
        let address = secured.cluster.address(node);
        let mut framed = framed_as(&address, &mallory).await;
        assert_eq!(reason_of(framed.ask(resuming(&stolen)).await), unknown);
        assert_eq!(framed.reason_of_end().await, Reason::UnknownSession);
        let mut client = connect(&address).await;
        let stream = stream_as(&mut client, &mallory, resuming(&stolen)).await;
        let ended = answers_of_failed_opening(stream).await;
        assert_eq!(ended, (unknown, Reason::UnknownSession));
    }
    // To open a session under this id gives Mallory a session of its own. Its end is not that of Alice's.
    let operation::Kind::Open(open) = opening(0) else { panic!() };
    let open = v1::OpenSessionRequest { session_id: stolen.clone(), ..open };
    let mut framed = framed_as(&secured.cluster.address(secured.follower), &mallory).await;
    let opened = framed.ask(operation::Kind::Open(open)).await;
    assert!(matches!(opened, answer::Result::Open(_)), "{opened:?}");
    let answer::Result::Acquire(taken) = framed.ask(acquire(2, "wallet")).await else { panic!() };
    assert!(!matches!(taken.outcome, Some(Outcome::Granted(_))), "{taken:?}");
    let close = v1::CloseSessionRequest { request_id: 3, ..Default::default() };
    let closed = framed.ask(operation::Kind::Close(close)).await;
    assert!(matches!(closed, answer::Result::Close(_)), "{closed:?}");
    let asked = v1::StatusRequest { name: "wallet".into(), request_id: 0 };
    let status = client.status(with(asked, Some(("authorization", &*header)))).await.unwrap();
    assert_eq!(status.into_inner().holder_count, 1);
    let heartbeat =
        v1::KeepAliveRequest { session_id: stolen, request_id: 2, ..Default::default() };
    client.keep_alive(with(heartbeat, Some(("authorization", &*header)))).await.unwrap();
}

fn files_under(directory: &Path) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files_under(&path));
        } else {
            found.push(std::fs::read(&path).unwrap());
        }
    }
    assert!(!found.is_empty());
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_a_caller_may_not_read_are_hidden_from_it() {
    let secured = Secured::start().await;
    secured.put_own_role().await;
    let (owner, user) = (secured.token("o", "own").await, secured.token("u", "user").await);
    let leader = secured.cluster.address(secured.leader);
    let mut holder = framed_as(&leader, &user).await;
    holder.open().await;
    holder.take("own/a").await;
    let mut waiter = framed_as(&leader, &user).await;
    waiter.open().await;
    let operation::Kind::AcquireAll(mut both) = all_of(2, &["own/a", "secret/b"]) else { panic!() };
    both.wait_ms = 60_000;
    let frame = support::framed::frame(vec![operation::Kind::AcquireAll(both)]);
    waiter.send(plain::FRAME, &frame).await;
    for node in [secured.leader, secured.follower] {
        let mut client = secured.cluster.client(node).await;
        for (token, is_shown) in [(&owner, false), (&user, true)] {
            let header = bearer(token);
            let why = eventually("the waiter waits", async || {
                let asked = v1::WhyRequest { name: "own/a".into() };
                let asked = with(asked, Some(("authorization", &*header)));
                let why = client.why(asked).await.unwrap().into_inner();
                (!why.status.as_ref().unwrap().waiters.is_empty()).then_some(why)
            })
            .await;
            assert_eq!(format!("{why:?}").contains("secret/b"), is_shown, "{why:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_bootstrap_token_makes_the_first_administrator_and_then_nothing() {
    let secured = Secured::start().await;
    for node in 0..3 {
        let token = bootstrap_token(&secured.cluster.configs[node].data_dir).unwrap();
        let address = secured.cluster.address(node);
        let all: BTreeSet<Method> = grpc_methods().collect();
        let text = token.to_secret_text();
        assert_eq!(refused(&address, Some(&text), Reason::Unauthenticated).await, all);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn in_permissive_mode_nothing_but_the_policy_is_refused() {
    let cluster = Cluster::start_with(1, |config| config.auth.mode = AuthMode::Permissive).await;
    let failures = call_everything(&cluster.address(0), None).await;
    for (method, status) in failures {
        let reason = Failure::from_status(&status).reason();
        assert_eq!(
            matches!(reason, Reason::Unauthenticated | Reason::PermissionDenied),
            method.row().verb == Verb::Access,
            "{method:?}: {status:?}"
        );
    }
}
