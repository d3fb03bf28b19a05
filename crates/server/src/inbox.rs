//! The way to the shard: what the rest of the node and its clients say to it, and the queue and the poller through which
//! the shard gets that. The shard itself uses the peers, so nothing here does.

mod connection;
mod input;
mod leaderships;
mod policy_generations;
mod poller;
mod queue;

pub(crate) use self::connection::{
    AfterVisit, Asked, Connection, Deferrable, EndedBy, OPERATIONS_PER_TURN_MAX, Visit,
    WokenConnections,
};
pub(crate) use self::input::{GroupView, Input, OwnTable};
pub(crate) use self::leaderships::Leaderships;
pub(crate) use self::policy_generations::PolicyGenerations;
#[cfg(test)]
pub(crate) use self::poller::poller;
pub(crate) use self::poller::{Poller, ROOM, SocketEvents};
pub(crate) use self::queue::{Inbox, InboxSender, ShardHandle, inbox};
