//! Takes a lock and falls silent, again and again: then looks when the lock is free again, as it must be soon
//! after the session's time is over.

use std::time::Duration;

use holdfast_core::{LockName, RequestId, SessionId};
use holdfast_sim::history::Input;

use super::ClientContext;
use super::calls::{Answer, Calls};
use super::session::Session;
use crate::late_expiry::{NAME_PREFIX, TTL};

const BETWEEN_READS: Duration = Duration::from_millis(150);
/// Reads belong to no session; in the history they are told apart by these.
const OWN_IDS: u128 = 0x0000_1eaf << 96;

pub(super) async fn work(number: u64, context: ClientContext) {
    let recorder = &context.recorder;
    let Ok(mut calls) = Calls::to(&context.addresses, number, recorder) else { return };
    let reader = SessionId(OWN_IDS | u128::from(number));
    let (mut locks, mut reads) = (0, 0);
    while !context.is_over() {
        locks += 1;
        let name = LockName::new(&format!("{NAME_PREFIX}{number}:{locks}"));
        let (Ok(name), Ok(mut session)) = (name, Session::open(calls.clone(), &context, TTL).await)
        else {
            continue;
        };
        let Ok(Some(_)) = session.acquire(&name, Duration::ZERO, None).await else { continue };
        let mut is_held = true;
        while is_held && !context.is_over() {
            context.pause(BETWEEN_READS).await;
            reads += 1;
            let input = Input::Status { name: name.clone() };
            let begun = recorder.begin(reader, RequestId(reads), input);
            if let Answer::Given(status, last_sent) = calls.status(&name).await {
                is_held = !status.holders.is_empty();
                recorder.finish_read(begun, last_sent, status);
            }
        }
    }
}
