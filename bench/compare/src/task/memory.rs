//! W4: what a held lock costs each server. Buffers that any load fills are filled before.

use std::time::Duration;

use holdfast_bench::{Length, Locks, Outcome, clients_over, close_all, workload};

use crate::figures::Figures;
use crate::service::Service;

const CLIENTS: usize = 256;
const CONNECTIONS: usize = 8;
const LOAD_BEFORE: Length = Length { warm_up: Duration::ZERO, measured: Duration::from_secs(3) };

/// The mean of the servers.
pub(super) async fn of_locks<S: Service>(service: &mut S, locks: usize) -> Outcome<Figures>
where
    <S::Client as Locks>::Held: 'static,
{
    let clients = clients_over(service, CLIENTS, CONNECTIONS).await?;
    workload::uncontended(&clients, LOAD_BEFORE, &service.servers()).await?;
    let before = service.memory()?;
    let held = workload::hold(&clients, locks).await?;
    let after = service.memory()?;
    // In this order: the releases of all others at once would keep the first from being closed.
    close_all(clients).await?;
    drop(held);
    let grown: u64 =
        after.iter().zip(&before).map(|(after, before)| after.saturating_sub(*before)).sum();
    let bytes_per_lock = grown as f64 / locks as f64 / before.len().max(1) as f64;
    Ok(Figures::Memory { bytes_per_lock })
}
