//! W3: the leader is killed under load. How long does no client get a lock?

use std::time::Duration;

use holdfast_bench::{Outcome, clients_over, close_all, workload::Steady};

use crate::figures::Figures;
use crate::service::Service;

/// Successes before the kill, and after the silence: it is over when there are many again.
const STEADY: u64 = 500;
const PATIENCE: Duration = Duration::from_secs(60);
/// A second election soon after the first would be part of it.
const AFTERMATH: Duration = Duration::from_secs(2);

pub(super) async fn silence<S: Service>(
    service: &mut S,
    clients: usize,
    connections: usize,
) -> Outcome<Option<Figures>> {
    service.connect_to_all(true);
    let clients = clients_over(service, clients, connections).await?;
    service.connect_to_all(false);
    let steady = Steady::start(&clients);
    if !steady.succeed(STEADY, PATIENCE).await {
        return Err("there was no success before the kill".into());
    }
    steady.forget_silences();
    if !service.kill_leader().await? {
        steady.stop().await?;
        close_all(clients).await?;
        return Ok(None);
    }
    // Those that were answered before the kill and are noted after it.
    tokio::time::sleep(Duration::from_millis(50)).await;
    let is_over = steady.succeed(STEADY, PATIENCE).await;
    tokio::time::sleep(AFTERMATH).await;
    let silence = steady.longest_silence();
    steady.stop().await?;
    service.bring_back().await?;
    // Clients of a node that was killed may fail to say goodbye.
    let _ = close_all(clients).await;
    if !is_over {
        return Err(format!("no client succeeded within {PATIENCE:?} of the kill").into());
    }
    Ok(Some(Figures::Silence { milliseconds: silence.as_secs_f64() * 1e3 }))
}
