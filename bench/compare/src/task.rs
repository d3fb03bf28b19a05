//! What is asked of every service.

mod failover;
mod loaded;
mod memory;
mod planned_size;
mod ramp;
mod snapshots;

use std::time::Duration;

use holdfast_bench::workload::Heartbeats;
use holdfast_bench::{Length, Locks, Outcome, Turn, clients_over, close_all, workload};

use crate::figures::Figures;
use crate::service::Service;

/// A workload, with its numbers.
#[derive(Debug, Clone)]
pub(crate) struct Task {
    pub(crate) kind: Kind,
    pub(crate) length: Length,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Kind {
    /// W1.
    Uncontended { clients: usize, connections: usize },
    /// W2.
    Hot { clients: usize, connections: usize },
    /// W3.
    LeaderKilled { clients: usize, connections: usize },
    /// W3, and no node is killed.
    Loaded { clients: usize, connections: usize },
    /// W4.
    Memory { locks: usize },
    /// W5.
    Mixed { clients: usize, connections: usize },
    /// W6.
    Reads { clients: usize, connections: usize },
    /// W6, while others write.
    ReadsBeside { readers: usize, writers: usize, connections: usize },
    /// W7.
    Ramp { connections: usize },
    /// W8, the first half.
    Offered { sessions: usize, locks: usize, operations_per_second: f64 },
    /// W8, the second.
    Sessions {
        sessions: usize,
        connections: usize,
        operations_per_second: f64,
        heartbeats: Heartbeats,
    },
    /// W9, the second half.
    Snapshots { clients: usize, connections: usize },
}

impl Task {
    pub(crate) fn new(kind: Kind, measured: Duration) -> Task {
        Task { kind, length: Length { warm_up: measured / 3, measured } }
    }
}

/// One turn; none if the service has nothing like it. Clients connect for it, and leave nothing behind.
pub(crate) async fn perform<S: Service>(service: &mut S, task: &Task) -> Outcome<Option<Figures>>
where
    <S::Client as Locks>::Held: 'static,
{
    let length = task.length;
    let turn = match task.kind {
        Kind::LeaderKilled { clients, connections } => {
            return failover::silence(service, clients, connections).await;
        }
        Kind::Loaded { clients, connections } => {
            return loaded::elections(service, clients, connections, length).await;
        }
        Kind::Snapshots { clients, connections } => {
            return snapshots::noticed(service, clients, connections, length).await;
        }
        Kind::Memory { locks } => return memory::of_locks(service, locks).await.map(Some),
        Kind::Ramp { connections } => {
            return ramp::to_the_knee(service, connections, length).await.map(Some);
        }
        Kind::Offered { sessions, locks, operations_per_second } => {
            planned_size::offered(service, sessions, locks, operations_per_second, length).await?
        }
        Kind::Sessions { sessions, connections, operations_per_second, heartbeats } => {
            let load = planned_size::Load {
                sessions,
                connections,
                operations_per_second,
                heartbeats,
                length,
            };
            return planned_size::sessions(service, load).await;
        }
        _ => closed_loop(service, task).await?,
    };
    match turn {
        Some(turn) if turn.latency.count == 0 => Err("nothing was answered within the turn".into()),
        turn => Ok(turn.map(Figures::Load)),
    }
}

async fn closed_loop<S: Service>(service: &mut S, task: &Task) -> Outcome<Option<Turn>> {
    let (servers, length) = (service.servers(), task.length);
    let (clients, connections, beside) = match task.kind {
        Kind::ReadsBeside { readers, writers, connections } => (readers, connections, writers),
        Kind::Uncontended { clients, connections }
        | Kind::Hot { clients, connections }
        | Kind::Mixed { clients, connections }
        | Kind::Reads { clients, connections } => (clients, connections, 0),
        _ => return Ok(None),
    };
    let clients = clients_over(service, clients, connections).await?;
    let writers = clients_over(service, beside, connections).await?;
    let turn = match task.kind {
        Kind::Uncontended { .. } => Some(workload::uncontended(&clients, length, &servers).await?),
        Kind::Hot { .. } => Some(workload::hot(&clients, length, &servers).await?),
        Kind::Mixed { .. } => Some(workload::mixed(&clients, length, &servers).await?),
        _ => workload::reads_beside(&clients, &writers, length, &servers).await?,
    };
    close_all(clients).await?;
    close_all(writers).await?;
    Ok(turn)
}
