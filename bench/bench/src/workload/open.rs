//! W7: an open load. Acquires come at a fixed rate, whether or not those before were answered, and each is timed from the
//! moment when it was due: a service that falls behind cannot hide it by slowing its clients down.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;

use super::Timed;
use crate::cpu::CpuTimes;
use crate::turn::Cores;
use crate::{Length, Locks, Outcome, PREFIX, Servers, Turn};

/// Finer than the runtime's timer.
const SLOT: Duration = Duration::from_micros(200);
/// Past it the service is so far behind that nothing is left to learn.
const OUTSTANDING_MAX: usize = 50_000;
/// Names come again after so many, when those before have long been released.
const NAMES: u64 = 1_000_000;
const PATIENCE: Duration = Duration::from_secs(30);

/// What an open load has shown.
#[derive(Debug, Clone)]
pub struct Offered {
    pub turn: Turn,
    /// It fell so far behind that not all of the load was put on it.
    pub overwhelmed: bool,
    /// Why an operation failed, of the first that did.
    pub failure: Option<String>,
}

/// So many operations a second, half of them acquires and half releases.
pub async fn open_loop<L: Locks>(
    clients: &[Arc<L>],
    operations_per_second: f64,
    length: Length,
    servers: &Servers,
) -> Outcome<Offered> {
    let timed = Timed::beginning_now(length)?;
    let state = Arc::new(State::default());
    let pace = Pace {
        clients: clients.to_vec(),
        acquires_per_second: operations_per_second / 2.0,
        began: Instant::now(),
        timed: timed.clone(),
        state: Arc::clone(&state),
        runtime: Handle::current(),
    };
    // A thread of its own: it must be in time also when all of the runtime's are busy.
    let pacer = thread::Builder::new().name("pacer".to_owned()).spawn(move || pace.keep())?;
    tokio::time::sleep_until(timed.window.from.into()).await;
    let before = CpuTimes::now(servers);
    tokio::time::sleep_until(timed.window.end.into()).await;
    let cores = Cores::between(before, CpuTimes::now(servers), timed.window.seconds());
    let deadline = Instant::now() + PATIENCE;
    while !pacer.is_finished() || state.outstanding.load(Ordering::Relaxed) > 0 {
        if Instant::now() > deadline {
            return Err("what was asked for is not answered".into());
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let overwhelmed = state.overwhelmed.load(Ordering::Relaxed);
    Ok(Offered { turn: timed.turn(cores)?, overwhelmed, failure: state.failure.get().cloned() })
}

#[derive(Debug, Default)]
struct State {
    outstanding: AtomicUsize,
    overwhelmed: AtomicBool,
    failure: OnceLock<String>,
}

struct Pace<L> {
    clients: Vec<Arc<L>>,
    acquires_per_second: f64,
    began: Instant,
    timed: Timed,
    state: Arc<State>,
    runtime: Handle,
}

impl<L: Locks> Pace<L> {
    /// Until the window ends, or the service is overwhelmed.
    fn keep(&self) {
        let mut asked: u64 = 0;
        while self.timed.window.is_open() {
            let due = (self.began.elapsed().as_secs_f64() * self.acquires_per_second) as u64;
            for number in asked..due {
                if self.state.outstanding.load(Ordering::Relaxed) >= OUTSTANDING_MAX {
                    self.state.overwhelmed.store(true, Ordering::Relaxed);
                    return;
                }
                self.ask(number);
            }
            asked = due;
            thread::sleep(SLOT);
        }
    }

    fn ask(&self, number: u64) {
        // The first is due after the time that lies between two.
        let after = Duration::from_secs_f64((number + 1) as f64 / self.acquires_per_second);
        let was_due = self.began + after;
        let place = number as usize % self.clients.len();
        let client = Arc::clone(&self.clients[place]);
        let (timed, state) = (self.timed.clone(), Arc::clone(&self.state));
        state.outstanding.fetch_add(1, Ordering::Relaxed);
        self.runtime.spawn(async move {
            let name = format!("{PREFIX}open/{:06}", number % NAMES);
            if let Err(error) = timed.lock_since(was_due, &*client, place, &name).await {
                state.failure.get_or_init(|| error.to_string());
            }
            state.outstanding.fetch_sub(1, Ordering::Relaxed);
        });
    }
}
