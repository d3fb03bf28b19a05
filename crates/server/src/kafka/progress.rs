//! How far the events of a group are published, in the log of that group. The next leader of the group reads it there.

use std::time::Duration;

use holdfast_core::{Command, LogIndex, Outcome, Publication};
use holdfast_replica::GroupId;
use tokio::sync::{oneshot, watch};
use tokio::time::{sleep, timeout};

use crate::inbox::{Input, ShardHandle};

/// How often the log is told how far publishing has come, if it has.
const MARK_INTERVAL: Duration = Duration::from_secs(1);
/// Or after so many events: the next leader would publish them again.
const MARK_EVENTS: u64 = 50_000;
/// How long the log may take to answer.
const MARK_PATIENCE: Duration = Duration::from_secs(5);
/// Between attempts to learn from the log how far its leaders have come.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// How far a leader is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Reached {
    /// So many of the counted events are published.
    pub(super) through: u64,
    /// The log entry of the last of them.
    pub(super) index: u64,
    /// Of the last election that is published.
    pub(super) term: u64,
}

/// The progress of one group in its log. Only the leader of the group can write it.
#[derive(Clone, Debug)]
pub(super) struct ProgressLog {
    pub(super) group: GroupId,
    pub(super) shard: ShardHandle,
}

impl ProgressLog {
    /// What the log says of the leaders before; the first time ever, it begins to count.
    pub(super) async fn resume_position(&self) -> Reached {
        let (mut pause, mut was_warned) = (PAUSE_MIN, false);
        loop {
            if let Some(publication) = self.record(Reached::default()).await {
                let Publication { through, index, term, .. } = publication;
                return Reached { through, index: index.0, term };
            }
            if pause == PAUSE_MAX && !std::mem::replace(&mut was_warned, true) {
                tracing::warn!(
                    group = self.group.0,
                    "no events are published yet: the log does not take the mark, perhaps because not all \
                     members are known to read it"
                );
            }
            sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Records what is reached, beginning with what the log has. Publishing does not wait for it.
    pub(super) async fn keep_recording(&self, mut reached: watch::Receiver<Reached>) {
        let mut marked = *reached.borrow_and_update();
        loop {
            let is_new = reached.wait_for(|now| *now != marked).await.is_ok();
            if !is_new {
                return std::future::pending().await;
            }
            let many = reached.wait_for(|now| now.through - marked.through >= MARK_EVENTS);
            // Whichever comes first.
            let _ = timeout(MARK_INTERVAL, many).await;
            let now = *reached.borrow_and_update();
            match self.record(now).await {
                Some(_) => marked = now,
                None => sleep(MARK_INTERVAL).await,
            }
        }
    }

    async fn record(&self, reached: Reached) -> Option<Publication> {
        let Reached { through, index, term } = reached;
        let command = Command::EventsPublished { through, index: LogIndex(index), term };
        let (reply, answer) = oneshot::channel();
        self.shard.send(Input::EventsPublished { group: self.group, command, reply }).ok()?;
        let answer = timeout(MARK_PATIENCE, answer).await.ok()?.ok()?;
        match answer.result {
            Ok(Outcome::Published(publication)) => Some(publication),
            _ => None,
        }
    }
}
