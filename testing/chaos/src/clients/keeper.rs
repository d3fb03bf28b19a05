//! Takes locks all through the run and never gives one back: each must be found again at the end.

use std::time::Duration;

use holdfast_core::{FenceToken, LockName};

use super::ClientContext;
use super::calls::Calls;
use super::session::Session;

const TTL: Duration = Duration::from_secs(12 * 60 * 60);
const BETWEEN_LOCKS: Duration = Duration::from_millis(250);
/// A session can hold 1,000 locks or more.
const KEPT_MAX: usize = 900;

/// A lock that was granted and never released.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub(crate) name: LockName,
    pub(crate) token: FenceToken,
    pub(crate) public_session_id: String,
}

pub(super) async fn work(context: ClientContext) -> Vec<Kept> {
    let mut kept = Vec::new();
    let recorder = &context.recorder;
    let Ok(calls) = Calls::to(&context.addresses, 0, recorder) else { return kept };
    let mut number = 0;
    while !context.is_over() {
        let Ok(mut session) = Session::open(calls.clone(), &context, TTL).await else { continue };
        // A session with a request that was never answered is left, and its locks stay.
        while !context.is_over() && kept.len() < KEPT_MAX {
            number += 1;
            let Ok(name) = LockName::new(&format!("kept:{number}")) else { return kept };
            match session.acquire(&name, Duration::ZERO, None).await {
                Ok(Some(held)) => kept.push(Kept {
                    name,
                    token: held.token,
                    public_session_id: session.public_id().to_owned(),
                }),
                Ok(None) => {}
                Err(_) => break,
            }
            context.pause(BETWEEN_LOCKS).await;
        }
        context.pause(BETWEEN_LOCKS).await;
    }
    kept
}
