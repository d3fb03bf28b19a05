//! Bad input for what is more than one exclusive lock: modes, acquire-all, conversions, interventions.
//! Each is told what is wrong, and nothing enters the log.

use holdfast_client::AcquireError;
use holdfast_proto::v1::*;
use tonic::Code;

use crate::bad_input::{HeldLock, reason};

const DAY_MS: u64 = 24 * 60 * 60 * 1_000;

/// By every node, whether it leads or not.
macro_rules! refused {
    ($fixture:ident, $service:ident.$method:ident, $request:expr, $reason:literal) => {{
        for id in $fixture.cluster.ids() {
            let mut stub = $fixture.cluster.client_of(id).$service();
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
    let fixture = HeldLock::start().await;
    let acquire = || fixture.acquire();
    let mode = |mode| AcquireRequest { mode, ..acquire() };
    refused!(fixture, stub.acquire, mode(4), "invalid_mode");
    refused!(fixture, stub.acquire, mode(-1), "invalid_mode");
    let policy = |policy| AcquireRequest { policy, ..acquire() };
    refused!(fixture, stub.acquire, policy(5), "invalid_policy");
    refused!(fixture, stub.acquire, policy(i32::MAX), "invalid_policy");
    let permits = |permits| AcquireRequest { mode: Mode::Permit.into(), permits, ..acquire() };
    refused!(fixture, stub.acquire, permits(1_000_001), "invalid_permits");
    refused!(fixture, stub.acquire, permits(u32::MAX), "invalid_permits");
    let of_no_semaphore = || AcquireRequest { permits: 2, ..acquire() };
    refused!(fixture, stub.acquire, of_no_semaphore(), "invalid_permits");
    let counted = || AcquireRequest { reentrant: true, ..permits(3) };
    refused!(fixture, stub.acquire, counted(), "invalid_mode");
    let delay = |ms| AcquireRequest { lock_delay_ms: Some(ms), ..acquire() };
    refused!(fixture, stub.acquire, delay(60 * 60 * 1_000 + 1), "invalid_lock_delay");
    refused!(fixture, stub.acquire, delay(u64::MAX), "invalid_lock_delay");

    let convert = || ConvertRequest {
        session_id: fixture.session.id.clone(),
        request_id: 1_000,
        name: "held".into(),
        token: fixture.token,
        mode: Mode::Shared.into(),
        ..ConvertRequest::default()
    };
    let to = |mode| ConvertRequest { mode, ..convert() };
    refused!(fixture, stub.convert, to(Mode::Permit.into()), "invalid_mode");
    refused!(fixture, stub.convert, to(9), "invalid_mode");
    refused!(fixture, stub.convert, ConvertRequest { token: 0, ..convert() }, "invalid_token");
    refused!(
        fixture,
        stub.convert,
        ConvertRequest { name: "\n".into(), ..convert() },
        "invalid_name"
    );
    refused!(fixture, stub.convert, ConvertRequest { policy: 77, ..convert() }, "invalid_policy");
    let long = || ConvertRequest { wait_ms: DAY_MS + 1, ..convert() };
    refused!(fixture, stub.convert, long(), "invalid_wait");

    let proclaim = || ProclaimRequest {
        session_id: fixture.session.id.clone(),
        request_id: 1_000,
        name: "held".into(),
        token: fixture.token,
        ..ProclaimRequest::default()
    };
    let huge = || ProclaimRequest { metadata: vec![0; 1_025], ..proclaim() };
    refused!(fixture, stub.proclaim, huge(), "invalid_metadata");
    refused!(fixture, stub.proclaim, ProclaimRequest { token: 0, ..proclaim() }, "invalid_token");

    let transfer = |to: &str| TransferRequest {
        session_id: fixture.session.id.clone(),
        request_id: 1_000,
        name: "held".into(),
        token: fixture.token,
        to_public_session_id: to.into(),
        ..TransferRequest::default()
    };
    refused!(fixture, stub.transfer, transfer(""), "invalid_session_id");
    refused!(fixture, stub.transfer, transfer("0123456789ABCDEF"), "invalid_session_id");
    refused!(fixture, stub.transfer, transfer(&"0123456789abcdef".repeat(2)), "invalid_session_id");

    fixture.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acquire_all_with_one_bad_member_takes_none() {
    let fixture = HeldLock::start().await;
    let member = |name: &str| Member { name: name.into(), ..Member::default() };
    let all = |members: Vec<Member>| AcquireAllRequest {
        session_id: fixture.session.id.clone(),
        request_id: 1_000,
        members,
        ..AcquireAllRequest::default()
    };
    let good = || member("good");

    refused!(fixture, stub.acquire_all, all(Vec::new()), "too_many_names");
    let many = |count: u32| (0..count).map(|number| member(&format!("n{number}"))).collect();
    refused!(fixture, stub.acquire_all, all(many(257)), "too_many_names");
    refused!(fixture, stub.acquire_all, all(many(50_000)), "too_many_names");
    refused!(fixture, stub.acquire_all, all(vec![good(), good()]), "duplicate_name");
    let in_two_modes = || vec![good(), Member { mode: Mode::Shared.into(), ..good() }];
    refused!(fixture, stub.acquire_all, all(in_two_modes()), "duplicate_name");
    for bad in ["", "a\nb", &"x".repeat(513)] {
        refused!(fixture, stub.acquire_all, all(vec![good(), member(bad)]), "invalid_name");
        refused!(fixture, stub.acquire_all, all(vec![member(bad), good()]), "invalid_name");
    }
    let odd_mode = || Member { mode: 44, ..member("odd") };
    refused!(fixture, stub.acquire_all, all(vec![good(), odd_mode()]), "invalid_mode");
    let permits = |permits| Member { mode: Mode::Permit.into(), permits, ..member("gpu") };
    refused!(fixture, stub.acquire_all, all(vec![good(), permits(u32::MAX)]), "invalid_permits");
    let stray_permits = || Member { permits: 3, ..member("gpu") };
    refused!(fixture, stub.acquire_all, all(vec![good(), stray_permits()]), "invalid_permits");
    let odd_policy = || AcquireAllRequest { policy: 9, ..all(vec![good()]) };
    refused!(fixture, stub.acquire_all, odd_policy(), "invalid_policy");
    let endless = || AcquireAllRequest { wait_ms: u64::MAX, ..all(vec![good()]) };
    refused!(fixture, stub.acquire_all, endless(), "invalid_wait");
    let no_id = || AcquireAllRequest { request_id: 0, ..all(vec![good()]) };
    refused!(fixture, stub.acquire_all, no_id(), "invalid_request_id");

    let status = fixture.cluster.client().status("good").await;
    assert_eq!((status.holder_count, status.waiter_count), (0, 0));
    fixture.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn interventions_without_a_reason_or_an_aim() {
    let fixture = HeldLock::start().await;
    let why = |reason: &str| Some(Intervention { by: "ops".into(), reason: reason.into() });
    let because = || why("a test");
    let breaking = || BreakRequest { intervention: because(), name: "held".into(), token: 0 };

    // Without a reason, in each of the calls.
    for reasonless in [None, why(""), why(" \t"), why(&"x".repeat(513))] {
        let intervention = || reasonless.clone();
        let r#break = || BreakRequest { intervention: intervention(), ..breaking() };
        refused!(fixture, operator.r#break, r#break(), "invalid_intervention");
        let moving = || MoveLockRequest {
            intervention: intervention(),
            name: "held".into(),
            token: fixture.token,
            to_public_session_id: "0123456789abcdef".into(),
        };
        refused!(fixture, operator.move_lock, moving(), "invalid_intervention");
        let freezing =
            || FreezeRequest { intervention: intervention(), prefix: "good".into(), ttl_ms: 1_000 };
        refused!(fixture, operator.freeze, freezing(), "invalid_intervention");
        let thawing = || ThawRequest { intervention: intervention(), prefix: "good".into() };
        refused!(fixture, operator.thaw, thawing(), "invalid_intervention");
        let setting =
            || SetPermitsRequest { intervention: intervention(), name: "good".into(), permits: 3 };
        refused!(fixture, operator.set_permits, setting(), "invalid_intervention");
        let killing = || KillSessionRequest {
            intervention: intervention(),
            public_session_id: "0123456789abcdef".into(),
        };
        refused!(fixture, operator.kill_session, killing(), "invalid_intervention");
    }

    let long_name = Some(Intervention { by: "x".repeat(513), reason: "a test".into() });
    let by_whom = || BreakRequest { intervention: long_name.clone(), ..breaking() };
    refused!(fixture, operator.r#break, by_whom(), "invalid_intervention");
    refused!(
        fixture,
        operator.r#break,
        BreakRequest { token: 1 << 63, ..breaking() },
        "invalid_token"
    );
    refused!(
        fixture,
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
    refused!(fixture, operator.move_lock, moving(0, "0123456789abcdef"), "invalid_token");
    refused!(fixture, operator.move_lock, moving(fixture.token, "nobody"), "invalid_session_id");

    let freezing = |prefix: &str, ttl_ms| FreezeRequest {
        intervention: because(),
        prefix: prefix.into(),
        ttl_ms,
    };
    refused!(fixture, operator.freeze, freezing("good", 0), "invalid_freeze");
    refused!(fixture, operator.freeze, freezing("good", 31 * DAY_MS), "invalid_freeze");
    refused!(fixture, operator.freeze, freezing("good", u64::MAX), "invalid_freeze");
    refused!(fixture, operator.freeze, freezing(&"x".repeat(513), 1_000), "invalid_freeze");
    refused!(fixture, operator.freeze, freezing("a\u{7}", 1_000), "invalid_freeze");

    let setting = |name: &str, permits| SetPermitsRequest {
        intervention: because(),
        name: name.into(),
        permits,
    };
    refused!(fixture, operator.set_permits, setting("good", 1_000_001), "invalid_permits");
    refused!(fixture, operator.set_permits, setting("", 1), "invalid_name");

    let killing =
        |id: &str| KillSessionRequest { intervention: because(), public_session_id: id.into() };
    for id in ["", "xyz", "0123456789ABCDEF", &"0123456789abcdef".repeat(2)] {
        refused!(fixture, operator.kill_session, killing(id), "invalid_session_id");
    }

    fixture.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_there_is_told_by_its_own_reason() {
    let fixture = HeldLock::start().await;
    let mut operator = fixture.cluster.client().operator();
    let because = || Some(Intervention { by: "ops".into(), reason: "a test".into() });
    let unknown = "0123456789abcdef";

    let breaking =
        |name: &str, token| BreakRequest { intervention: because(), name: name.into(), token };
    let reported = operator.r#break(breaking("free", 0)).await.unwrap_err();
    assert_eq!(reason(&reported), "not_held", "{reported}");
    let reported = operator.r#break(breaking("held", fixture.token + 1)).await.unwrap_err();
    assert_eq!(reason(&reported), "not_held", "{reported}");
    let moving = MoveLockRequest {
        intervention: because(),
        name: "held".into(),
        token: fixture.token,
        to_public_session_id: unknown.into(),
    };
    let reported = operator.move_lock(moving).await.unwrap_err();
    assert_eq!(reason(&reported), "no_such_waiter", "{reported}");
    let thawing = ThawRequest { intervention: because(), prefix: "never".into() };
    let reported = operator.thaw(thawing).await.unwrap_err();
    assert_eq!(reason(&reported), "not_frozen", "{reported}");
    let killing = KillSessionRequest { intervention: because(), public_session_id: unknown.into() };
    let reported = operator.kill_session(killing).await.unwrap_err();
    assert_eq!(reason(&reported), "no_such_session", "{reported}");

    // The hold is as it was.
    assert_eq!(fixture.cluster.client().status("held").await.holders[0].token, fixture.token);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_no_message_could_carry_does_not_get_in_the_way_of_others() {
    let fixture = HeldLock::start().await;
    let client = fixture.cluster.library().await;
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
