//! Round trips to the cluster, as a holder of a lock makes them.

use std::time::{Duration, Instant};

use holdfast_client::{Client, Owner, RenewError, SessionId};
use serde::Serialize;

use crate::exit::{Code, Problem};
use crate::global::Global;
use crate::one_shot;

const TTL: Duration = Duration::from_secs(30);

/// How long one kind of request took, in milliseconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct RoundTrips {
    pub(super) request: &'static str,
    pub(super) samples: usize,
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
    pub(super) longest_ms: f64,
}

impl RoundTrips {
    pub(super) fn of(request: &'static str, mut took: Vec<Duration>) -> RoundTrips {
        took.sort_unstable();
        let us = |place: usize| took.get(place).map_or(0, |took: &Duration| took.as_micros());
        let ms = |place: usize| us(place) as f64 / 1_000.0;
        RoundTrips {
            request,
            samples: took.len(),
            p50_ms: ms(took.len() / 2),
            p99_ms: ms(took.len() * 99 / 100),
            longest_ms: ms(took.len().saturating_sub(1)),
        }
    }
}

/// Acquires, renewals and releases go over the stream of one session. A heartbeat is timed with a new connection,
/// as one that is sent after the old one broke.
pub(super) async fn round_trips(global: &Global, samples: u32) -> Result<Vec<RoundTrips>, Problem> {
    let builder = Client::builder().ttl(TTL).note("holdfast advise-ttl");
    let client = global.reaching(builder).connect(&global.endpoints).await?;
    // No other client asks for it.
    let session = SessionId::random().map_err(|error| {
        Problem::new(Code::Unavailable, format!("no random number for a name: {error}"))
    })?;
    let name = format!("holdfast/advise-ttl/{}", session.public_id());
    let calls = global.calls()?;
    calls.open_session(session, TTL, None, Owner::default()).await?;

    let [mut acquires, mut renewals, mut releases, mut heartbeats] = [const { Vec::new() }; 4];
    for _ in 0..samples {
        let began = Instant::now();
        let guard = client.lock(&name).ttl(TTL).acquire().await?;
        acquires.push(began.elapsed());
        let began = Instant::now();
        guard.renew(None).await.map_err(not_renewed)?;
        renewals.push(began.elapsed());
        let began = Instant::now();
        let _ = guard.release().await;
        releases.push(began.elapsed());
        let began = Instant::now();
        calls.keep_alive(session, one_shot::next_request_id()).await?;
        heartbeats.push(began.elapsed());
    }
    let _ = one_shot::close_session(&calls, session).await;
    // If it cannot be closed, it ends by its TTL.
    let _ = client.close().await;
    Ok(vec![
        RoundTrips::of("acquire", acquires),
        RoundTrips::of("renew", renewals),
        RoundTrips::of("release", releases),
        RoundTrips::of("heartbeat", heartbeats),
    ])
}

fn not_renewed(error: RenewError) -> Problem {
    let code = match &error {
        RenewError::Lost(_) => Code::LockLost,
        _ => Code::Unavailable,
    };
    Problem::new(code, error.to_string())
}
