//! Bad input for what is more than one exclusive lock: modes, acquire-all, conversions, interventions.
//! Each is told what is wrong, and nothing enters the log.

use holdfast_client::AcquireError;
use holdfast_proto::v1::*;
use tonic::Code;

use crate::bad_input::{Scene, reason};

const DAY_MS: u64 = 24 * 60 * 60 * 1_000;

/// By every node, whether it leads or not.
macro_rules! refused {
    ($scene:ident, $service:ident.$method:ident, $request:expr, $reason:literal) => {{
        for id in $scene.cluster.ids() {
            let mut stub = $scene.cluster.client_of(id).$service();
            let request = $request;
            let status = stub.$method(request).await.expect_err(stringify!($request));
            assert_eq!(status.code(), Code::InvalidArgument, "{}: {status}", stringify!($request));
            assert_eq!(reason(&status), $reason, "{}: {status}", stringify!($request));
            assert!(!status.message().is_empty());
        }
    }};
}

#[tokio::test(flavor = "multi_thread")]
async fn modes_policies_permits_and_delays_that_cannot_be() {
    let scene = Scene::set().await;
    let acquire = || scene.acquire();
    let mode = |mode| AcquireRequest { mode, ..acquire() };
    refused!(scene, stub.acquire, mode(4), "invalid_mode");
    refused!(scene, stub.acquire, mode(-1), "invalid_mode");
    let policy = |policy| AcquireRequest { policy, ..acquire() };
    refused!(scene, stub.acquire, policy(5), "invalid_policy");
    refused!(scene, stub.acquire, policy(i32::MAX), "invalid_policy");
    let permits = |permits| AcquireRequest { mode: Mode::Permit.into(), permits, ..acquire() };
    refused!(scene, stub.acquire, permits(1_000_001), "invalid_permits");
    refused!(scene, stub.acquire, permits(u32::MAX), "invalid_permits");
    let of_no_semaphore = || AcquireRequest { permits: 2, ..acquire() };
    refused!(scene, stub.acquire, of_no_semaphore(), "invalid_permits");
    let counted = || AcquireRequest { reentrant: true, ..permits(3) };
    refused!(scene, stub.acquire, counted(), "invalid_mode");
    let delay = |ms| AcquireRequest { lock_delay_ms: Some(ms), ..acquire() };
    refused!(scene, stub.acquire, delay(60 * 60 * 1_000 + 1), "invalid_lock_delay");
    refused!(scene, stub.acquire, delay(u64::MAX), "invalid_lock_delay");

    let convert = || ConvertRequest {
        session_id: scene.session.id.clone(),
        request_id: 1_000,
        name: "held".into(),
        token: scene.token,
        mode: Mode::Shared.into(),
        ..ConvertRequest::default()
    };
    let to = |mode| ConvertRequest { mode, ..convert() };
    refused!(scene, stub.convert, to(Mode::Permit.into()), "invalid_mode");
    refused!(scene, stub.convert, to(9), "invalid_mode");
    refused!(scene, stub.convert, ConvertRequest { token: 0, ..convert() }, "invalid_token");
    refused!(
        scene,
        stub.convert,
        ConvertRequest { name: "\n".into(), ..convert() },
        "invalid_name"
    );
    refused!(scene, stub.convert, ConvertRequest { policy: 77, ..convert() }, "invalid_policy");
    let long = || ConvertRequest { wait_ms: DAY_MS + 1, ..convert() };
    refused!(scene, stub.convert, long(), "invalid_wait");

    let proclaim = || ProclaimRequest {
        session_id: scene.session.id.clone(),
        request_id: 1_000,
        name: "held".into(),
        token: scene.token,
        ..ProclaimRequest::default()
    };
    let huge = || ProclaimRequest { metadata: vec![0; 1_025], ..proclaim() };
    refused!(scene, stub.proclaim, huge(), "invalid_metadata");
    refused!(scene, stub.proclaim, ProclaimRequest { token: 0, ..proclaim() }, "invalid_token");

    let transfer = |to: &str| TransferRequest {
        session_id: scene.session.id.clone(),
        request_id: 1_000,
        name: "held".into(),
        token: scene.token,
        to_public_session_id: to.into(),
        ..TransferRequest::default()
    };
    refused!(scene, stub.transfer, transfer(""), "invalid_session_id");
    refused!(scene, stub.transfer, transfer("0123456789ABCDEF"), "invalid_session_id");
    refused!(scene, stub.transfer, transfer(&"0123456789abcdef".repeat(2)), "invalid_session_id");

    scene.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acquire_all_with_one_bad_member_takes_none() {
    let scene = Scene::set().await;
    let member = |name: &str| Member { name: name.into(), ..Member::default() };
    let all = |members: Vec<Member>| AcquireAllRequest {
        session_id: scene.session.id.clone(),
        request_id: 1_000,
        members,
        ..AcquireAllRequest::default()
    };
    let good = || member("good");

    refused!(scene, stub.acquire_all, all(Vec::new()), "too_many_names");
    let many = |count: u32| (0..count).map(|number| member(&format!("n{number}"))).collect();
    refused!(scene, stub.acquire_all, all(many(257)), "too_many_names");
    refused!(scene, stub.acquire_all, all(many(50_000)), "too_many_names");
    refused!(scene, stub.acquire_all, all(vec![good(), good()]), "duplicate_name");
    let in_two_modes = || vec![good(), Member { mode: Mode::Shared.into(), ..good() }];
    refused!(scene, stub.acquire_all, all(in_two_modes()), "duplicate_name");
    for bad in ["", "a\nb", &"x".repeat(513)] {
        refused!(scene, stub.acquire_all, all(vec![good(), member(bad)]), "invalid_name");
        refused!(scene, stub.acquire_all, all(vec![member(bad), good()]), "invalid_name");
    }
    let odd_mode = || Member { mode: 44, ..member("odd") };
    refused!(scene, stub.acquire_all, all(vec![good(), odd_mode()]), "invalid_mode");
    let permits = |permits| Member { mode: Mode::Permit.into(), permits, ..member("gpu") };
    refused!(scene, stub.acquire_all, all(vec![good(), permits(u32::MAX)]), "invalid_permits");
    let stray_permits = || Member { permits: 3, ..member("gpu") };
    refused!(scene, stub.acquire_all, all(vec![good(), stray_permits()]), "invalid_permits");
    let odd_policy = || AcquireAllRequest { policy: 9, ..all(vec![good()]) };
    refused!(scene, stub.acquire_all, odd_policy(), "invalid_policy");
    let endless = || AcquireAllRequest { wait_ms: u64::MAX, ..all(vec![good()]) };
    refused!(scene, stub.acquire_all, endless(), "invalid_wait");
    let no_id = || AcquireAllRequest { request_id: 0, ..all(vec![good()]) };
    refused!(scene, stub.acquire_all, no_id(), "invalid_request_id");

    let status = scene.cluster.client().status("good").await;
    assert_eq!((status.holder_count, status.waiter_count), (0, 0));
    scene.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn interventions_without_a_reason_or_an_aim() {
    let scene = Scene::set().await;
    let why = |reason: &str| Some(Intervention { by: "ops".into(), reason: reason.into() });
    let because = || why("a test");
    let breaking = || BreakRequest { intervention: because(), name: "held".into(), token: 0 };

    // Without a reason, in each of the calls.
    for reasonless in [None, why(""), why(" \t"), why(&"x".repeat(513))] {
        let intervention = || reasonless.clone();
        let r#break = || BreakRequest { intervention: intervention(), ..breaking() };
        refused!(scene, operator.r#break, r#break(), "invalid_intervention");
        let moving = || MoveLockRequest {
            intervention: intervention(),
            name: "held".into(),
            token: scene.token,
            to_public_session_id: "0123456789abcdef".into(),
        };
        refused!(scene, operator.move_lock, moving(), "invalid_intervention");
        let freezing =
            || FreezeRequest { intervention: intervention(), prefix: "good".into(), ttl_ms: 1_000 };
        refused!(scene, operator.freeze, freezing(), "invalid_intervention");
        let thawing = || ThawRequest { intervention: intervention(), prefix: "good".into() };
        refused!(scene, operator.thaw, thawing(), "invalid_intervention");
        let setting =
            || SetPermitsRequest { intervention: intervention(), name: "good".into(), permits: 3 };
        refused!(scene, operator.set_permits, setting(), "invalid_intervention");
        let killing = || KillSessionRequest {
            intervention: intervention(),
            public_session_id: "0123456789abcdef".into(),
        };
        refused!(scene, operator.kill_session, killing(), "invalid_intervention");
    }

    let long_name = Some(Intervention { by: "x".repeat(513), reason: "a test".into() });
    let by_whom = || BreakRequest { intervention: long_name.clone(), ..breaking() };
    refused!(scene, operator.r#break, by_whom(), "invalid_intervention");
    refused!(
        scene,
        operator.r#break,
        BreakRequest { token: 1 << 63, ..breaking() },
        "invalid_token"
    );
    refused!(
        scene,
        operator.r#break,
        BreakRequest { name: "".into(), ..breaking() },
        "invalid_name"
    );

    let moving = |token, to: &str| MoveLockRequest {
        intervention: because(),
        name: "held".into(),
        token,
        to_public_session_id: to.into(),
    };
    refused!(scene, operator.move_lock, moving(0, "0123456789abcdef"), "invalid_token");
    refused!(scene, operator.move_lock, moving(scene.token, "nobody"), "invalid_session_id");

    let freezing = |prefix: &str, ttl_ms| FreezeRequest {
        intervention: because(),
        prefix: prefix.into(),
        ttl_ms,
    };
    refused!(scene, operator.freeze, freezing("good", 0), "invalid_freeze");
    refused!(scene, operator.freeze, freezing("good", 31 * DAY_MS), "invalid_freeze");
    refused!(scene, operator.freeze, freezing("good", u64::MAX), "invalid_freeze");
    refused!(scene, operator.freeze, freezing(&"x".repeat(513), 1_000), "invalid_freeze");
    refused!(scene, operator.freeze, freezing("a\u{7}", 1_000), "invalid_freeze");

    let setting = |name: &str, permits| SetPermitsRequest {
        intervention: because(),
        name: name.into(),
        permits,
    };
    refused!(scene, operator.set_permits, setting("good", 1_000_001), "invalid_permits");
    refused!(scene, operator.set_permits, setting("", 1), "invalid_name");

    let killing =
        |id: &str| KillSessionRequest { intervention: because(), public_session_id: id.into() };
    for id in ["", "xyz", "0123456789ABCDEF", &"0123456789abcdef".repeat(2)] {
        refused!(scene, operator.kill_session, killing(id), "invalid_session_id");
    }

    scene.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_there_is_told_by_its_own_reason() {
    let scene = Scene::set().await;
    let mut operator = scene.cluster.client().operator();
    let because = || Some(Intervention { by: "ops".into(), reason: "a test".into() });
    let nobody = "0123456789abcdef";

    let breaking =
        |name: &str, token| BreakRequest { intervention: because(), name: name.into(), token };
    let told = operator.r#break(breaking("free", 0)).await.unwrap_err();
    assert_eq!(reason(&told), "not_held", "{told}");
    let told = operator.r#break(breaking("held", scene.token + 1)).await.unwrap_err();
    assert_eq!(reason(&told), "not_held", "{told}");
    let moving = MoveLockRequest {
        intervention: because(),
        name: "held".into(),
        token: scene.token,
        to_public_session_id: nobody.into(),
    };
    let told = operator.move_lock(moving).await.unwrap_err();
    assert_eq!(reason(&told), "no_such_waiter", "{told}");
    let thawing = ThawRequest { intervention: because(), prefix: "never".into() };
    let told = operator.thaw(thawing).await.unwrap_err();
    assert_eq!(reason(&told), "not_frozen", "{told}");
    let killing = KillSessionRequest { intervention: because(), public_session_id: nobody.into() };
    let told = operator.kill_session(killing).await.unwrap_err();
    assert_eq!(reason(&told), "no_such_session", "{told}");

    // The hold is as it was.
    assert_eq!(scene.cluster.client().status("held").await.holders[0].token, scene.token);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_no_message_could_carry_does_not_get_in_the_way_of_others() {
    let scene = Scene::set().await;
    let client = scene.cluster.library().await;
    let refused = |error: AcquireError| match error {
        AcquireError::Rejected(rejection) if !rejection.may_have_happened => rejection.reason,
        other => panic!("{other:?}"),
    };
    let huge = client.lock("x".repeat(20 << 20)).acquire().await.unwrap_err();
    assert_eq!(refused(huge), Reason::InvalidName);
    let wordy = client.lock("a").metadata(vec![0; 20 << 20]).acquire().await.unwrap_err();
    assert_eq!(refused(wordy), Reason::InvalidMetadata);
    let names = || (0..100_000).map(|number| format!("{number:0>500}"));
    let many = client.lock_all(names()).acquire().await.unwrap_err();
    assert_eq!(refused(many), Reason::TooManyNames);
    let none = client.lock_all(Vec::<String>::new()).acquire().await.unwrap_err();
    assert_eq!(refused(none), Reason::TooManyNames);

    // As large as it may be, and as many at once as one likes: that is more than one frame.
    let full = (0..60).map(|round| {
        let names: Vec<String> = names().skip(round * 256).take(256).collect();
        tokio::spawn(client.lock_all(names).acquire())
    });
    for all in full.collect::<Vec<_>>() {
        assert_eq!(all.await.unwrap().unwrap().tokens().unwrap().len(), 256);
    }
}
