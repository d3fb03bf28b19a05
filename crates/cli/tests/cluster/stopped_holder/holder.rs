//! A process that holds the lock `a` and answers the words on its stdin, for tests that stop or kill it:
//! `holder ENDPOINTS TTL_MS [COMPANION]`.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a helper of a test")]

use std::time::Duration;

use holdfast_client::Client;
use holdfast_client::companion::Companion;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let (endpoints, ttl_ms) = (arguments.next().unwrap(), arguments.next().unwrap());
    let ttl = Duration::from_millis(ttl_ms.parse().unwrap());
    let mut builder = Client::builder().ttl(ttl);
    if let Some(program) = arguments.next() {
        builder = builder.companion(Companion::start(program).unwrap());
    }
    let client = builder.connect(&endpoints).await.unwrap();
    let mut guard = Some(client.lock("a").acquire().await.unwrap());
    println!("held {}", guard.as_ref().unwrap().token().unwrap());
    // Blocks a thread of the runtime; the session has others.
    for word in std::io::stdin().lines() {
        let word = word.unwrap();
        let answer = match (word.as_str(), &guard) {
            ("token", Some(guard)) => match (guard.token(), guard.fence()) {
                (Err(lost), Err(_)) => format!("none: {}", lost.reason),
                given => format!("{given:?}"),
            },
            ("lost", Some(guard)) => format!("lost: {}", guard.lost().await),
            ("proclaim", Some(guard)) => format!("{}", guard.proclaim("me").await.unwrap_err()),
            ("release", _) => match guard.take() {
                Some(guard) => format!("{:?}", guard.release().await.unwrap()),
                None => "nothing to release".to_owned(),
            },
            ("try", _) => format!("{}", client.lock("a").acquire().await.unwrap_err()),
            (other, _) => panic!("{other}"),
        };
        println!("{answer}");
    }
}
