//! What is asked of every service, and the figures that come of it.

use std::time::Duration;

use holdfast_bench::{Length, Outcome, Turn, clients_over, close_all, workload};
use serde::Serialize;

use crate::peer::Service;

/// A workload, with its numbers.
#[derive(Debug, Clone)]
pub(crate) struct Task {
    pub(crate) kind: Kind,
    pub(crate) length: Length,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// W1.
    Uncontended { clients: usize, connections: usize },
    /// W2.
    Hot { clients: usize, connections: usize },
    /// W5.
    Mixed { clients: usize, connections: usize },
    /// W6.
    Reads { clients: usize, connections: usize },
    /// W6, while others write.
    ReadsBeside { readers: usize, writers: usize, connections: usize },
}

/// What one turn has shown.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub(crate) enum Figures {
    Load(Turn),
}

impl Task {
    pub(crate) fn new(kind: Kind, measured: Duration) -> Task {
        Task { kind, length: Length { warm_up: measured / 3, measured } }
    }
}

/// One turn. Clients connect for it, and leave nothing behind.
pub(crate) async fn perform<S: Service>(service: &mut S, task: &Task) -> Outcome<Option<Figures>> {
    let servers = service.servers();
    let length = task.length;
    let turn = match task.kind {
        Kind::Uncontended { clients, connections } => {
            let clients = clients_over(service, clients, connections).await?;
            let turn = workload::uncontended(&clients, length, &servers).await?;
            close_all(clients).await?;
            Some(turn)
        }
        Kind::Hot { clients, connections } => {
            let clients = clients_over(service, clients, connections).await?;
            let turn = workload::hot(&clients, length, &servers).await?;
            close_all(clients).await?;
            Some(turn)
        }
        Kind::Mixed { clients, connections } => {
            let clients = clients_over(service, clients, connections).await?;
            let turn = workload::mixed(&clients, length, &servers).await?;
            close_all(clients).await?;
            Some(turn)
        }
        Kind::Reads { clients, connections } => {
            let clients = clients_over(service, clients, connections).await?;
            let turn = workload::reads(&clients, length, &servers).await?;
            close_all(clients).await?;
            turn
        }
        Kind::ReadsBeside { readers, writers, connections } => {
            let readers = clients_over(service, readers, connections).await?;
            let writers = clients_over(service, writers, connections).await?;
            let turn = workload::reads_beside(&readers, &writers, length, &servers).await?;
            close_all(readers).await?;
            close_all(writers).await?;
            turn
        }
    };
    Ok(turn.map(Figures::Load))
}
