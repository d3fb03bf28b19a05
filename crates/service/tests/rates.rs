//! How often callers may ask, by the quotas of the policy.

#![allow(clippy::unwrap_used, reason = "it is a test")]

use std::cell::Cell;
use std::time::Duration;

use holdfast_core::{
    AccessChange, ChangeAccess, Command, Identity, Limits, LockTable, LogIndex, LogicalTime,
    Principal, Quota, QuotaSubject, RoleName, RulesVersion,
};
use holdfast_proto::v1::{Failure, Reason};
use holdfast_service::{About, AuthMode, Caller, Credential, Method, Protocol, Service};

thread_local! {
    static NOW_MS: Cell<u64> = const { Cell::new(1_000) };
}

/// A policy of that generation, with these rates. Every user may do everything.
fn policy(generation: u64, rates: &[(&str, u64, Option<u64>)]) -> LockTable {
    let quotas = rates.iter().map(|(subject, rate, burst)| {
        let quota = Quota { rate: Some(*rate), burst: *burst, ..Quota::default() };
        (QuotaSubject::parse(subject).unwrap(), quota)
    });
    let grant = |principal| AccessChange::Grant {
        principal: Principal::parse(principal).unwrap(),
        role: RoleName::parse("user").unwrap(),
    };
    let change = ChangeAccess {
        by: "a test".into(),
        identity: None,
        expected: None,
        changes: [AccessChange::SetQuotas(quotas.collect()), grant("token:a"), grant("token:b")]
            .into(),
        end_sessions: false,
    };
    let mut table = LockTable::with_rules(Limits::default(), RulesVersion::NEWEST);
    for index in 1..=generation {
        let change = Command::ChangeAccess(Box::new(change.clone()));
        table.apply(LogIndex(index), LogicalTime::ZERO, change, &mut Vec::new());
    }
    assert_eq!(table.access().generation(), generation);
    table
}

fn service(mode: AuthMode, rates: &[(&str, u64, Option<u64>)]) -> Service {
    let clock = || Duration::from_millis(NOW_MS.get());
    let service = Service::default().with_mode(mode).with_rate_clock(clock);
    service.policy().publish(policy(1, rates).access());
    service
}

fn user(name: &str) -> Caller {
    let client = Caller::client(Protocol::Grpc, None);
    client.authenticated(Identity::of(Principal::parse(name).unwrap()), Credential::Bootstrap)
}

fn read(service: &Service, caller: &Caller, name: &str) -> Result<(), Failure> {
    service.authorise(caller, Method::Status, About::Name(name)).map(drop)
}

#[test]
fn a_user_that_asks_too_often_is_told_when_to_ask_again_and_others_are_not_concerned() {
    let service = service(AuthMode::Required, &[("token:a", 2, Some(3))]);
    let (a, b) = (user("token:a"), user("token:b"));
    for _ in 0..3 {
        read(&service, &a, "x").unwrap();
    }
    let failure = read(&service, &a, "x").unwrap_err();
    assert_eq!((failure.reason(), failure.retry_after_ms), (Reason::RateLimited, 500));
    assert!(failure.retryable && !failure.may_have_happened);
    assert!(failure.message.contains("token:a"), "{}", failure.message);
    for _ in 0..100 {
        read(&service, &b, "x").unwrap();
    }
    NOW_MS.set(NOW_MS.get() + failure.retry_after_ms);
    read(&service, &a, "x").unwrap();
    assert!(read(&service, &a, "x").is_err());
}

#[test]
fn a_prefix_is_limited_for_all_users_together_in_every_mode() {
    for mode in [AuthMode::Off, AuthMode::Permissive, AuthMode::Required] {
        let service = service(mode, &[("jobs/*", 2, None)]);
        read(&service, &user("token:a"), "jobs/1").unwrap();
        read(&service, &user("token:b"), "jobs/2").unwrap();
        let failure = read(&service, &user("token:a"), "jobs/3").unwrap_err();
        assert!(failure.message.contains("jobs/*"), "{}", failure.message);
        read(&service, &user("token:a"), "job").unwrap();
    }
}

#[test]
fn a_refused_request_takes_nothing_from_the_other_quotas() {
    let service = service(AuthMode::Required, &[("token:a", 2, None), ("jobs/*", 1, None)]);
    let a = user("token:a");
    read(&service, &a, "jobs/1").unwrap();
    assert!(read(&service, &a, "jobs/1").is_err());
    read(&service, &a, "x").unwrap();
    assert!(read(&service, &a, "x").is_err());
}

#[test]
fn what_keeps_or_gives_up_locks_is_never_limited() {
    let service = service(AuthMode::Required, &[("token:a", 1, None)]);
    let a = user("token:a");
    read(&service, &a, "x").unwrap();
    assert!(read(&service, &a, "x").is_err());
    for method in [
        Method::KeepAlive,
        Method::KeepAliveMany,
        Method::ResumeSession,
        Method::CloseSession,
        Method::Cancel,
        Method::Release,
        Method::Resign,
        Method::WhoAmI,
    ] {
        assert!(!method.counts_for_rates(), "{method:?}");
        assert!(service.authorise(&a, method, About::Nothing).is_ok(), "{method:?}");
    }
    assert!(!Method::Renew.counts_for_rates());
    for method in [Method::OpenSession, Method::Acquire, Method::AcquireAll, Method::Watch] {
        assert!(method.counts_for_rates(), "{method:?}");
    }
}

#[test]
fn a_change_of_the_policy_gives_no_new_burst() {
    let service = service(AuthMode::Required, &[("token:a", 1, None)]);
    let a = user("token:a");
    read(&service, &a, "x").unwrap();
    service.policy().publish(policy(2, &[("token:a", 1, None)]).access());
    assert_eq!(read(&service, &a, "x").unwrap_err().reason(), Reason::RateLimited);
}
