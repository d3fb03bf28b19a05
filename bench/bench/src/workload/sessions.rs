//! W8: very many sessions of Holdfast over a few connections, each on a stream of its own, kept alive by heartbeats.
//!
//! The client library makes a connection for each session, so this is what a gateway would do, and frames are spoken here
//! as they are.

mod keeper;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use holdfast_proto::SessionId;
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};
use tonic::transport::Endpoint;

use self::keeper::Keeper;

use super::Timed;
use crate::cpu::CpuTimes;
use crate::frames::Session;
use crate::turn::Cores;
use crate::{Failure, Length, Outcome, PREFIX, Servers, Turn};

const TTL: Duration = Duration::from_secs(30);
/// As the library does it.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// Opened at the same time.
const OPENING: usize = 64;
/// Closed at the same time.
const CLOSING: usize = 1_000;
const SLOT: Duration = Duration::from_millis(1);

/// How sessions are kept alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heartbeats {
    /// Each session sends its own, on its stream.
    OfEach,
    /// One call for all those of a connection.
    Together,
}

/// Sessions that stay.
#[derive(Debug)]
pub struct Sessions {
    orders: Vec<mpsc::Sender<Order>>,
    tasks: JoinSet<Outcome>,
    /// They go on until they are dropped.
    keepers: JoinSet<Outcome>,
}

/// The secret ids of the sessions of one connection.
type Ids = Arc<Mutex<Vec<String>>>;

/// To take the session's own lock and give it back. It was due then.
#[derive(Debug)]
struct Order {
    was_due: Instant,
    timed: Timed,
}

impl Sessions {
    /// At the leader, so that nothing has to be passed on.
    pub async fn open(
        leader: &str,
        sessions: usize,
        connections: usize,
        heartbeats: Heartbeats,
    ) -> Outcome<Sessions> {
        let (mut channels, mut ids) = (Vec::new(), Vec::new());
        let mut keepers = JoinSet::new();
        for number in 0..connections {
            let node = Endpoint::from_shared(format!("http://{leader}"))?.tcp_nodelay(true);
            let channel = node.connect().await?;
            channels.push(channel.clone());
            let of_connection = Ids::default();
            ids.push(Arc::clone(&of_connection));
            if heartbeats == Heartbeats::Together {
                // Not all connections at the same moment.
                let first = HEARTBEAT * number as u32 / connections as u32;
                keepers.spawn(Keeper::new(channel, of_connection).keep(first));
            }
        }
        let (mut orders, mut tasks) = (Vec::with_capacity(sessions), JoinSet::new());
        let mut opening = JoinSet::new();
        let mut number = 0;
        while number < sessions || !opening.is_empty() {
            while number < sessions && opening.len() < OPENING {
                let channel = channels[number % connections].clone();
                let id = SessionId::random().map_err(|error| error.to_string())?;
                let ttl_ms = TTL.as_millis() as u64;
                opening.spawn(async move {
                    Outcome::Ok((number, Session::open_as(id, channel, ttl_ms).await?))
                });
                number += 1;
            }
            if let Some(opened) = opening.join_next().await {
                let (number, session) = opened??;
                let of_connection = &ids[number % connections];
                let mut of_connection =
                    of_connection.lock().unwrap_or_else(PoisonError::into_inner);
                of_connection.push(session.id().to_owned());
                let (order, ordered) = mpsc::channel(4);
                orders.push(order);
                tasks.spawn(live(session, number, ordered, heartbeats));
            }
        }
        Ok(Sessions { orders, tasks, keepers })
    }

    /// What they cost while no client asks for anything: cores of servers and of the client.
    pub async fn idle(&mut self, length: Duration, servers: &Servers) -> Outcome<Cores> {
        let (began, before) = (Instant::now(), CpuTimes::now(servers));
        tokio::time::sleep(length).await;
        let cores = Cores::between(before, CpuTimes::now(servers), began.elapsed().as_secs_f64());
        self.all_live()?;
        Ok(cores)
    }

    /// So many operations a second, by one session after the other. What comes too late is late, and is not left out.
    pub async fn write(
        &mut self,
        operations_per_second: f64,
        length: Length,
        servers: &Servers,
    ) -> Outcome<Turn> {
        let timed = Timed::beginning_now(length)?;
        let (began, pairs_per_second) = (Instant::now(), operations_per_second / 2.0);
        let mut asked: u64 = 0;
        let mut before = None;
        while timed.window.is_open() {
            if before.is_none() && Instant::now() >= timed.window.from {
                before = Some(CpuTimes::now(servers));
            }
            let due = (began.elapsed().as_secs_f64() * pairs_per_second) as u64;
            for number in asked..due {
                // The first is due after the time that lies between two.
                let after = Duration::from_secs_f64((number + 1) as f64 / pairs_per_second);
                let was_due = began + after;
                let session = &self.orders[number as usize % self.orders.len()];
                let order = Order { was_due, timed: timed.clone() };
                if session.send(order).await.is_err() {
                    return Err(self.why_ended().await);
                }
            }
            asked = due;
            tokio::time::sleep(SLOT).await;
        }
        let after = CpuTimes::now(servers);
        let cores = Cores::between(before.unwrap_or(after), after, timed.window.seconds());
        self.all_live()?;
        timed.turn(cores)
    }

    /// Not all at once: a node refuses what it has no room for.
    pub async fn close(mut self) -> Outcome {
        self.keepers.shutdown().await;
        while !self.orders.is_empty() {
            let left = self.orders.len().saturating_sub(CLOSING);
            self.orders.truncate(left);
            while self.tasks.len() > left
                && let Some(task) = self.tasks.join_next().await
            {
                task??;
            }
        }
        Ok(())
    }

    fn all_live(&mut self) -> Outcome {
        match self.keepers.try_join_next().or_else(|| self.tasks.try_join_next()) {
            None => Ok(()),
            Some(ended) => Err(in_words(ended)),
        }
    }

    /// Of the first that has.
    async fn why_ended(&mut self) -> Failure {
        match self.tasks.join_next().await {
            Some(ended) => in_words(ended),
            None => "there are no sessions".into(),
        }
    }
}

fn in_words(ended: Result<Outcome, JoinError>) -> Failure {
    let why = match ended {
        Ok(Ok(())) => "no client wants it any more".to_owned(),
        Ok(Err(error)) => error.to_string(),
        Err(error) => error.to_string(),
    };
    format!("a session has ended: {why}").into()
}

/// Until no client can give orders any more.
async fn live(
    mut session: Session,
    number: usize,
    mut ordered: mpsc::Receiver<Order>,
    heartbeats: Heartbeats,
) -> Outcome {
    let name = format!("{PREFIX}own/{number:06}");
    loop {
        let order = match heartbeats {
            Heartbeats::OfEach => tokio::time::timeout(HEARTBEAT, ordered.recv()).await.ok(),
            Heartbeats::Together => Some(ordered.recv().await),
        };
        match order {
            None => session.keep_alive().await?,
            Some(None) => return session.close().await,
            Some(Some(Order { was_due, timed })) => {
                session.acquire(vec![name.clone()]).await?;
                let granted = Instant::now();
                session.release(1).await?;
                timed.acquires.note(number, was_due, granted);
                timed.releases.note(number, granted, Instant::now());
            }
        }
    }
}
