//! The bank: workers move money between accounts, each under locks of both. However they take the locks,
//! all transfers are made, no money is lost, and no client starves, unless they rely on deadlines alone.
//!
//! The accounts check fencing tokens, as a resource should; on top of that it is noticed when two reckon
//! with one account at the same time.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use holdfast_client::{AcquireError, Client, Guard, Since};
use tokio::task::yield_now;

use crate::support::Cluster;

const WORKERS: u64 = 8;
const ACCOUNTS: usize = 5;
const START: i64 = 1_000;

const LONG: Duration = Duration::from_secs(60);

/// No client may be so far behind, in percent of the work, when the first is done.
const SHARE_MIN: u64 = 25;

/// No run takes longer, or a client waits for ever.
const PATIENCE: Duration = Duration::from_secs(180);

/// As a database with a fence would keep it.
#[derive(Clone, Copy)]
struct Account {
    cents: i64,
    highest_token: u64,
}

struct Bank {
    /// Of each worker.
    transfers: u64,
    accounts: Mutex<[Account; ACCOUNTS]>,
    /// A worker computes with this account.
    in_use: [AtomicBool; ACCOUNTS],
    made: Vec<AtomicU64>,
    /// How many each worker had made when the first one was done.
    when_first_done: Mutex<Option<Vec<u64>>>,
    begun_anew: AtomicU64,
}

impl Bank {
    fn open(transfers: u64) -> Arc<Bank> {
        Arc::new(Bank {
            transfers,
            accounts: Mutex::new([Account { cents: START, highest_token: 0 }; ACCOUNTS]),
            in_use: Default::default(),
            made: (0..WORKERS).map(|_| AtomicU64::new(0)).collect(),
            when_first_done: Mutex::new(None),
            begun_anew: AtomicU64::new(0),
        })
    }

    /// The balances, and from now on no client with a lower token.
    fn read(&self, between: [usize; 2], tokens: [u64; 2]) -> Option<[i64; 2]> {
        let mut accounts = self.accounts.lock().unwrap();
        for (number, token) in between.into_iter().zip(tokens) {
            if accounts[number].highest_token > token {
                return None;
            }
            accounts[number].highest_token = token;
        }
        Some(between.map(|number| accounts[number].cents))
    }

    /// Both or none.
    fn write(&self, between: [usize; 2], tokens: [u64; 2], cents: [i64; 2]) -> bool {
        let mut accounts = self.accounts.lock().unwrap();
        let is_late = |at: usize| accounts[between[at]].highest_token > tokens[at];
        if is_late(0) || is_late(1) {
            return false;
        }
        for (number, cents) in between.into_iter().zip(cents) {
            accounts[number].cents = cents;
        }
        true
    }

    /// False: the locks were lost on the way, and nothing was written.
    async fn transfer(&self, way: Way, between: [usize; 2], cents: i64, tokens: [u64; 2]) -> bool {
        // A hold that can be wounded may end in the midst of its work: there the tokens alone protect.
        let is_exclusive = way != Way::WoundWait;
        for number in between.into_iter().filter(|_| is_exclusive) {
            assert!(!self.in_use[number].swap(true, Ordering::SeqCst), "two at the same time");
        }
        let done = match self.read(between, tokens) {
            Some([from, to]) => {
                yield_now().await;
                self.write(between, tokens, [from - cents, to + cents])
            }
            None => false,
        };
        for number in between.into_iter().filter(|_| is_exclusive) {
            self.in_use[number].store(false, Ordering::SeqCst);
        }
        assert!(done || !is_exclusive, "a token went back");
        done
    }

    fn note_made(&self, worker: u64) {
        let made = self.made[worker as usize].fetch_add(1, Ordering::SeqCst) + 1;
        if made == self.transfers {
            let mut first = self.when_first_done.lock().unwrap();
            first.get_or_insert_with(|| {
                self.made.iter().map(|made| made.load(Ordering::SeqCst)).collect()
            });
        }
    }

    fn check(&self, way: Way, how: &str) {
        let total: i64 = self.accounts.lock().unwrap().iter().map(|account| account.cents).sum();
        assert_eq!(total, START * ACCOUNTS as i64, "{how}: money was lost or made");
        for made in &self.made {
            assert_eq!(
                made.load(Ordering::SeqCst),
                self.transfers,
                "{how}: a client did not finish"
            );
        }
        let shares = self.when_first_done.lock().unwrap().clone().unwrap();
        let slowest = shares.iter().min().unwrap() * 100 / self.transfers;
        println!(
            "{how}: slowest worker at {slowest} % when the first was done; {} begun again; {shares:?}",
            self.begun_anew.load(Ordering::SeqCst)
        );
        // A client that gives up by a deadline goes to the end of the queue: it has no promised share.
        let is_fair = way != Way::Deadlines;
        assert!(slowest >= SHARE_MIN || !is_fair, "{how}: a client starves: {shares:?}");
    }
}

/// A small generator of its own: the runs differ anyway, by what the processes do.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }

    /// Two different accounts, in any order.
    fn two_accounts(&mut self) -> [usize; 2] {
        let first = self.roll(ACCOUNTS as u64) as usize;
        let step = 1 + self.roll(ACCOUNTS as u64 - 1) as usize;
        [first, (first + step) % ACCOUNTS]
    }
}

fn name(account: usize) -> String {
    format!("account/{account}")
}

/// How a worker gets both accounts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    AllAtOnce,
    Detect,
    WaitDie,
    WoundWait,
    /// No detection: only a short wait ends a deadlock.
    Deadlines,
}

enum Refused {
    /// Begin again, with this age if there is one.
    BeginAnew(Option<Since>),
    Failed(AcquireError),
}

impl From<AcquireError> for Refused {
    fn from(error: AcquireError) -> Refused {
        match error {
            AcquireError::Died { since } => Refused::BeginAnew(Some(since)),
            AcquireError::Deadlock(_) | AcquireError::TimedOut | AcquireError::Lost(_) => {
                Refused::BeginAnew(None)
            }
            other => Refused::Failed(other),
        }
    }
}

/// One lock after the other, in the order that chance wants.
async fn one_by_one(
    client: &Client,
    way: Way,
    between: [usize; 2],
    since: Since,
) -> Result<[Guard; 2], (Refused, Option<Since>)> {
    let ask = |account, since: Option<Since>| {
        let request = client.lock(name(account)).wait(LONG);
        match way {
            Way::WaitDie => request.wait_die().since(since),
            Way::WoundWait => request.wound_wait().preemptible().since(since),
            Way::Deadlines => request.no_detection().wait(Duration::from_millis(100)),
            Way::Detect | Way::AllAtOnce => request,
        }
    };
    let first =
        ask(between[0], Some(since)).acquire().await.map_err(|error| (error.into(), None))?;
    let age = first.since();
    let second = ask(between[1], age).acquire().await.map_err(|error| (error.into(), age))?;
    Ok([first, second])
}

async fn make_one_transfer(bank: &Bank, client: &Client, way: Way, dice: &mut Dice) {
    let (between, cents) = (dice.two_accounts(), dice.roll(100) as i64);
    // Each transfer has an age of its own, and keeps it when it has to begin again.
    let mut since = Since::NOW;
    loop {
        let done = if way == Way::AllAtOnce {
            let all = client.lock_all(between.map(name)).wait(LONG).acquire().await.unwrap();
            let tokens = all.tokens().unwrap();
            let done = bank.transfer(way, between, cents, [tokens[0], tokens[1]]).await;
            all.release().await.unwrap();
            done
        } else {
            match one_by_one(client, way, between, since).await {
                Ok([first, second]) => {
                    let done = match (first.token(), second.token()) {
                        (Ok(one), Ok(two)) => bank.transfer(way, between, cents, [one, two]).await,
                        _ => false,
                    };
                    since = first.since().unwrap_or(since);
                    // One that was wounded is gone already.
                    let _ = (first.release().await, second.release().await);
                    done
                }
                Err((Refused::BeginAnew(age), own)) => {
                    since = age.or(own).unwrap_or(since);
                    false
                }
                Err((Refused::Failed(error), _)) => panic!("{error}"),
            }
        };
        if done {
            return;
        }
        bank.begun_anew.fetch_add(1, Ordering::SeqCst);
        // Two that always begin again at the same moment would meet again.
        let pause_ms_max = if way == Way::Deadlines { 100 } else { 10 };
        tokio::time::sleep(Duration::from_millis(dice.roll(pause_ms_max))).await;
    }
}

async fn work(bank: Arc<Bank>, client: Client, way: Way, worker: u64) {
    let mut dice = Dice(worker * 7_919 + 17);
    for _ in 0..bank.transfers {
        make_one_transfer(&bank, &client, way, &mut dice).await;
        bank.note_made(worker);
    }
}

async fn bank_with(way: Way, transfers: u64, how: &str) {
    let cluster = Cluster::start_alone(3).await;
    let bank = Bank::open(transfers);
    let mut workers = Vec::new();
    for worker in 0..WORKERS {
        let client = cluster.library().await;
        workers.push(tokio::spawn(work(Arc::clone(&bank), client, way, worker)));
    }
    let all_done = async {
        for worker in workers {
            worker.await.unwrap();
        }
    };
    tokio::time::timeout(PATIENCE, all_done).await.expect("a client waits for ever");
    bank.check(way, how);
    let mut left = HashMap::new();
    for account in 0..ACCOUNTS {
        let status = cluster.client().status(&name(account)).await;
        left.insert(account, (status.holder_count, status.waiter_count));
    }
    assert!(left.values().all(|counts| *counts == (0, 0)), "something is left: {left:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn with_acquire_all() {
    bank_with(Way::AllAtOnce, 40, "acquire-all").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_two_locks_in_random_order_under_detection() {
    bank_with(Way::Detect, 40, "detection").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_two_locks_in_random_order_under_wait_die() {
    bank_with(Way::WaitDie, 40, "wait_die").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_two_locks_in_random_order_under_wound_wait() {
    bank_with(Way::WoundWait, 40, "wound_wait").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_detection_deadlocks_end_by_their_deadlines() {
    // Each deadlock costs its whole wait.
    bank_with(Way::Deadlines, 10, "deadlines").await;
}
