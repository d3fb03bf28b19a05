//! What is refused, and with which words.

use std::time::Duration;

use holdfast_client::{
    AcquireError, Client, ConnectError, ConvertError, Efficiency, Guarantee, NotInThisTier,
    ProclaimError, ServedBy, Since, Tier, TransferError,
};

use crate::scene::{Scene, acquire, connected, lock};

#[tokio::test]
async fn operations_that_need_the_cluster_are_refused_with_an_error() {
    let Some(scene) = Scene::start().await else { return };
    let client = scene.client().await;
    let request = || lock(&client, "a");
    for (request, what) in [
        (request().shared(), "a shared lock"),
        (request().permits(3), "a semaphore"),
        (request().reentrant(), "re-entry"),
        (request().lock_delay(Duration::from_secs(1)), "a lock delay"),
        (request().reason("nightly"), "metadata"),
        (request().wait_die(), "an order by age"),
        (request().wound_wait(), "an order by age"),
        (request().since(Since::NOW), "an order by age"),
        (request().preemptible(), "an order by age"),
    ] {
        let refused = request.acquire().await.unwrap_err();
        let expected = NotInThisTier { what, served_by: ServedBy::Redis };
        assert_eq!(refused, AcquireError::NotInThisTier(expected));
        assert!(!refused.is_retryable() && !refused.may_have_happened());
        assert!(refused.to_string().contains("redis"), "{refused}");
    }
    let several = client.lock_all(["a", "b"]).tier(Tier::Efficiency).acquire().await.unwrap_err();
    assert!(matches!(several, AcquireError::NotInThisTier(_)), "{several:?}");
    for name in ["", "a\nb", &"a".repeat(513)] {
        let refused = lock(&client, name).acquire().await.unwrap_err();
        assert!(matches!(refused, AcquireError::Rejected(_)), "{refused:?}");
    }

    let mut held = acquire(&client, "a").await;
    let refused = held.convert_to_shared().await.unwrap_err();
    assert!(matches!(refused, ConvertError::NotInThisTier(_)), "{refused:?}");
    let refused = held.convert_to_exclusive(Duration::ZERO).await.unwrap_err();
    assert!(matches!(refused, ConvertError::NotInThisTier(_)), "{refused:?}");
    let refused = held.proclaim("x").await.unwrap_err();
    assert!(matches!(refused, ProclaimError::NotInThisTier(_)), "{refused:?}");
    let other = "0123456789abcdef".parse().unwrap();
    let refused = held.transfer(other).await.unwrap_err();
    assert!(matches!(refused, TransferError::NotInThisTier(_)), "{refused:?}");
    assert_eq!(held.since(), None);
    held.token().expect("none of it harmed the hold");
}

#[tokio::test]
async fn the_weaker_tier_is_refused_where_more_is_required() {
    let Some(scene) = Scene::start().await else { return };
    let builder = Client::builder().require_under("wallet/", Guarantee::Linearizable);
    let client = scene.client_of(builder).await;
    let refused = lock(&client, "wallet/1").acquire().await.unwrap_err();
    let AcquireError::GuaranteeRequired(required) = &refused else { panic!("{refused:?}") };
    assert_eq!((&*required.prefix, required.required), ("wallet/", Guarantee::Linearizable));
    assert!(refused.to_string().contains("leave out .tier(Tier::Efficiency)"), "{refused}");
    assert!(!refused.is_retryable() && !refused.may_have_happened());
    acquire(&client, "cache/1").await;
    let counts = client.efficiency().counts;
    assert_eq!((counts.granted, counts.refused), (1, 1));

    let strict = scene.client_of(Client::builder().require(Guarantee::Linearizable)).await;
    let refused = lock(&strict, "cache/1").acquire().await.unwrap_err();
    assert!(matches!(refused, AcquireError::GuaranteeRequired(_)), "{refused:?}");
}

/// No server has to be there for that.
#[tokio::test]
async fn an_invalid_backend_is_refused_before_any_connection() {
    let url = |port: u16| format!("redis://127.0.0.1:{port}");
    for (backend, words) in [
        (Efficiency::redis("not a url"), "URL"),
        (Efficiency::redis("redis://127.0.0.1:1,redis://127.0.0.1:2"), "3 to 15"),
        (Efficiency::Redlock { urls: vec![url(1), url(2), url(1)] }, "twice"),
    ] {
        let refused = Client::builder().efficiency(backend).connect("127.0.0.1:1").await;
        let refused = refused.unwrap_err();
        assert!(matches!(&refused, ConnectError::InvalidEfficiency(_)), "{refused:?}");
        assert!(refused.to_string().contains(words), "{refused}");
    }
    let backend = Efficiency::redis("redis://user:secret@127.0.0.1:1");
    assert!(!format!("{backend:?}").contains("secret"));
    let client = connected(Client::builder().efficiency(backend)).await;
    assert!(!format!("{client:?}").contains("secret"));
    let refused = lock(&client, "a").acquire().await.unwrap_err();
    assert!(!refused.to_string().contains("secret"), "{refused}");
}
