//! Reads through one node, again and again, so that it is known when the cluster served: other clients
//! may be waiting for a dead node at that moment.

use std::collections::BTreeMap;
use std::time::Duration;

use holdfast_core::{RequestId, SessionId};
use holdfast_sim::history::Input;

use super::ClientContext;
use super::calls::{Answer, Calls};
use crate::random::Random;

const BETWEEN_READS: Duration = Duration::from_millis(60);
/// Reads belong to no session; in the history they are told apart by these.
const OWN_IDS: u128 = 0x0000_bead << 96;

pub(super) async fn work(node: u64, context: ClientContext, mut random: Random) {
    let recorder = &context.recorder;
    let Some(address) = context.addresses.get(&node) else { return };
    let only = BTreeMap::from([(node, address.clone())]);
    let Ok(mut calls) = Calls::to(&only, 0, recorder) else { return };
    let session = SessionId(OWN_IDS | u128::from(node));
    let mut reads = 0;
    while !context.is_over() {
        let Some(name) = context.shared_lock(&mut random) else { return };
        reads += 1;
        let input = Input::Status { name: name.clone() };
        let begun = recorder.begin(session, RequestId(reads), input);
        if let Answer::Given(status, last_sent) = calls.status(&name).await {
            recorder.finish_read(begun, last_sent, status);
        }
        context.pause(BETWEEN_READS).await;
    }
}
