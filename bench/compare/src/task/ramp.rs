//! W7: more and more is asked for, until the service falls behind.

use std::time::Duration;

use holdfast_bench::{Length, Outcome, clients_over, close_all, workload};

use crate::figures::{Figures, Step};
use crate::service::Service;

const CLIENTS: usize = 256;
/// Operations a second.
const RATES: [f64; 12] = [1e3, 2e3, 4e3, 8e3, 16e3, 32e3, 64e3, 100e3, 150e3, 200e3, 300e3, 400e3];
/// A service that takes longer than this has passed its knee.
const P99_BEYOND: Duration = Duration::from_millis(100);

pub(super) async fn to_the_knee<S: Service>(
    service: &mut S,
    connections: usize,
    length: Length,
) -> Outcome<Figures> {
    let servers = service.servers();
    let mut steps = Vec::new();
    for rate in RATES {
        let clients = clients_over(service, CLIENTS, connections).await?;
        let offered = workload::open_loop(&clients, rate, length, &servers).await?;
        close_all(clients).await?;
        let turn = offered.turn;
        steps.push(Step {
            offered_per_second: rate,
            done_per_second: turn.per_second,
            p50_us: turn.latency.p50_us,
            p99_us: turn.latency.p99_us,
            failure: offered.failure.clone(),
        });
        if offered.overwhelmed
            || offered.failure.is_some()
            || turn.latency.p99_us > P99_BEYOND.as_secs_f64() * 1e6
        {
            break;
        }
    }
    Ok(Figures::Ramp { steps })
}
