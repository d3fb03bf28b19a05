//! Where a request is carried out: here if this node leads, else at the leader, one hop away.

use std::time::Duration;

use holdfast_core::Command;
use holdfast_proto::v1::Failure;
use holdfast_replica::Leadership;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::Rpc;
use super::failure::{dropped_by_driver, no_leader, overloaded, stopping, unavailable};
use super::forward::Leader;
use super::origin::Origin;
use crate::driver::{Answer, CallRef, FIRST_GROUP, Input, Query, ReadAnswer, Unavailable};

/// An election is over well within this time if a majority is up.
const LEADER_WAIT: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) enum Route {
    Here,
    There(Leader),
}

impl Rpc {
    /// Waits for a leader if none is known. A forwarded request goes no further than here.
    pub(super) async fn route(&self, origin: &Origin) -> Result<Route, Failure> {
        let me = self.membership.me;
        let mut leadership = self.driver.watch_leadership();
        let is_known = |now: &Leadership| {
            let elsewhere = now.leader.is_some_and(|leader| leader != me);
            now.is_here || elsewhere
        };
        let has_leader = is_known(&leadership.borrow());
        let waited = self.leader_search.leaderless_for(has_leader);
        // A node with a full disk follows no leader until there is room.
        let wait = if self.has_full_disk() { Duration::ZERO } else { LEADER_WAIT };
        let found = timeout(wait.saturating_sub(waited), leadership.wait_for(is_known));
        let found = found.await.map(|found| found.map(|leadership| *leadership));
        let leadership = match found {
            Ok(Ok(leadership)) => leadership,
            Ok(Err(_)) => return Err(stopping()),
            Err(_) if origin.is_forwarded() => return Err(no_leader()),
            Err(_) => return Err(self.why_no_leader().await),
        };
        if leadership.is_here {
            return Ok(Route::Here);
        }
        match leadership.leader {
            Some(leader) if !origin.is_forwarded() => {
                Ok(Route::There(self.leaders.client_of(leader)?))
            }
            leader => Err(unavailable(Unavailable::NotLeader { leader }, &self.membership)),
        }
    }

    /// Has the driver carry the command out. This node should lead.
    pub(super) async fn call(&self, command: Command) -> Result<Answer, Failure> {
        self.abandonable_call(command, None).await
    }

    /// As [`Rpc::call`], of a command that is undone if its caller hangs up.
    pub(super) async fn abandonable_call(
        &self,
        command: Command,
        call: Option<CallRef>,
    ) -> Result<Answer, Failure> {
        let (reply, answer) = oneshot::channel();
        self.ask(Input::Call { group: FIRST_GROUP, command, reply, call })?;
        answer.await.map_err(|_| dropped_by_driver())
    }

    /// A linearizable read. This node should lead.
    pub(super) async fn read(&self, query: Query) -> Result<ReadAnswer, Failure> {
        let (reply, answer) = oneshot::channel();
        self.ask(Input::Read { group: FIRST_GROUP, query, reply })?;
        let answer = answer.await.map_err(|_| dropped_by_driver())?;
        answer.map_err(|reason| unavailable(reason, &self.membership))
    }

    pub(super) fn ask(&self, input: Input) -> Result<(), Failure> {
        self.driver
            .send(input)
            .map_err(|_| if self.driver.is_gone() { stopping() } else { overloaded() })
    }
}
