//! The wallet: workers move money between accounts on a real PostgreSQL, under locks of a real cluster, while
//! some of them fall asleep for longer than their lease and wake up in the belief that they hold it.
//!
//! A guard of the library would give such a sleeper no token any more. But a program can be stopped between
//! asking its guard and writing, and then only the resource can tell. So the sleepers here take their
//! tokens before they fall asleep, and write when others have used the accounts meanwhile.
//!
//! With the fence not a cent is lost. The same run without it must lose money, or it shows nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use holdfast_client::{Client, GuardAll};
use holdfast_fence::postgres::{CheckError, check, migrate};
use holdfast_fence::{Accepts, Claim, admit};
use tokio_postgres::Transaction;

use crate::servers::postgres::PostgresServer;
use crate::support::{Cluster, eventually};

const BUSY_WORKERS: u64 = 6;
const SLEEPERS: u64 = 3;
const SLEEPS: u64 = 6;
const ACCOUNTS: u64 = 6;
const START_CENTS: i64 = 100_000;

/// Of the holds of sleepers.
const SHORT_TTL: Duration = Duration::from_millis(300);
const LONG: Duration = Duration::from_secs(60);
const PATIENCE: Duration = Duration::from_secs(120);

const TABLES: &str = "
    CREATE TABLE accounts (name text PRIMARY KEY, cents bigint NOT NULL);
    CREATE TABLE transfers (source text, target text, cents bigint);";

/// What of the money does not agree with the transfers that were made, account by account.
const WRONG: &str = "
    SELECT name, cents - $1
        + coalesce((SELECT sum(cents)::bigint FROM transfers WHERE source = name), 0)
        - coalesce((SELECT sum(cents)::bigint FROM transfers WHERE target = name), 0)
    FROM accounts";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fencing {
    On,
    Off,
}

struct Wallet {
    fencing: Fencing,
    /// The sleepers are done, and so are all.
    closing: AtomicBool,
    made: AtomicU64,
    late_refused: AtomicU64,
    late_accepted: AtomicU64,
}

/// One worker: its session with the cluster, and its connection to the database.
struct Worker {
    wallet: Arc<Wallet>,
    locks: Client,
    database: tokio_postgres::Client,
    dice: u64,
}

/// Money that is about to move, under tokens of both accounts.
struct Transfer {
    /// Source and target.
    claims: [Claim; 2],
    cents: i64,
    /// What both accounts had when they were read.
    seen: [i64; 2],
}

impl Worker {
    fn roll(&mut self, sides: u64) -> u64 {
        self.dice = self
            .dice
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.dice >> 33) % sides
    }

    /// Locks two accounts, tells the tokens, and reads what is in them. None: a client with a higher token
    /// was faster.
    async fn begin(&mut self, ttl: Option<Duration>) -> Option<(GuardAll, Transfer)> {
        let source = self.roll(ACCOUNTS);
        let target = (source + 1 + self.roll(ACCOUNTS - 1)) % ACCOUNTS;
        let cents = 1 + self.roll(5_000) as i64;
        let names = [source, target].map(|account| format!("account/{account}"));
        let mut request = self.locks.lock_all(names.clone()).wait(LONG);
        if let Some(ttl) = ttl {
            request = request.ttl(ttl);
        }
        let guards = request.acquire().await.unwrap();
        let fences = guards.fences().ok()?;
        let claim = |at: usize| admit(&fences[at], &names[at], Accepts::Linearizable).unwrap();
        let claims = [claim(0), claim(1)];

        let transaction = self.database.transaction().await.unwrap();
        if !passes(self.wallet.fencing, &transaction, &claims).await {
            return None;
        }
        let mut seen = [0; 2];
        for (name, seen) in names.iter().zip(&mut seen) {
            let query = "SELECT cents FROM accounts WHERE name = $1";
            *seen = transaction.query_one(query, &[name]).await.unwrap().get(0);
        }
        transaction.commit().await.unwrap();
        Some((guards, Transfer { claims, cents, seen }))
    }

    /// Writes what was reckoned from what was read. False: it was refused.
    async fn finish(&mut self, transfer: &Transfer) -> bool {
        let Transfer { claims, cents, seen } = transfer;
        let (source, target) = (claims[0].resource(), claims[1].resource());
        let transaction = self.database.transaction().await.unwrap();
        if !passes(self.wallet.fencing, &transaction, claims).await {
            return false;
        }
        let mut writes = [(source, seen[0] - cents), (target, seen[1] + cents)];
        // In one order, so that the database sees no deadlock where there is no fence to keep one.
        writes.sort();
        for (name, cents) in writes {
            let update = "UPDATE accounts SET cents = $2 WHERE name = $1";
            transaction.execute(update, &[&name, &cents]).await.unwrap();
        }
        let insert = "INSERT INTO transfers VALUES ($1, $2, $3)";
        transaction.execute(insert, &[&source, &target, cents]).await.unwrap();
        transaction.commit().await.unwrap();
        self.wallet.made.fetch_add(1, Ordering::SeqCst);
        true
    }

    async fn work(mut self) {
        while !self.wallet.closing.load(Ordering::SeqCst) {
            if let Some((guards, transfer)) = self.begin(None).await {
                self.finish(&transfer).await;
                guards.release().await.unwrap();
            }
        }
    }

    async fn sleep_and_work(mut self) {
        let mut sleeps = 0;
        while sleeps < SLEEPS {
            let Some((guards, transfer)) = self.begin(Some(SHORT_TTL)).await else { continue };
            guards.lost().await;
            self.others_have_used(&transfer).await;
            let counter = match self.finish(&transfer).await {
                true => &self.wallet.late_accepted,
                false => &self.wallet.late_refused,
            };
            counter.fetch_add(1, Ordering::SeqCst);
            sleeps += 1;
        }
    }

    /// Returns when the two accounts do not have together what they had.
    async fn others_have_used(&self, transfer: &Transfer) {
        let names = transfer.claims.each_ref().map(Claim::resource).to_vec();
        let before: i64 = transfer.seen.iter().sum();
        eventually("a client uses the accounts", LONG, || async {
            let query = "SELECT sum(cents)::bigint FROM accounts WHERE name = ANY($1)";
            let now: i64 = self.database.query_one(query, &[&names]).await.unwrap().get(0);
            (now != before).then_some(())
        })
        .await;
    }
}

/// In the order of the names, so that two transfers do not wait for each other.
async fn passes(fencing: Fencing, transaction: &Transaction<'_>, claims: &[Claim; 2]) -> bool {
    if fencing == Fencing::Off {
        return true;
    }
    let mut claims = claims.each_ref();
    claims.sort_by_key(|claim| claim.resource());
    for claim in claims {
        match check(transaction, claim).await {
            Ok(()) => {}
            Err(CheckError::Refused(_)) => return false,
            Err(CheckError::Postgres(error)) => panic!("{error:?}"),
        }
    }
    true
}

/// Moves money for a while, and returns how many cents are not where they should be; none if there
/// is no PostgreSQL.
async fn cents_in_the_wrong_place(fencing: Fencing) -> Option<i64> {
    let server = PostgresServer::start().await?;
    let cluster = Cluster::start_alone(3).await;
    let mut database = server.connect().await;
    migrate(&mut database).await.unwrap();
    database.batch_execute(TABLES).await.unwrap();
    for account in 0..ACCOUNTS {
        let name = format!("account/{account}");
        database
            .execute("INSERT INTO accounts VALUES ($1, $2)", &[&name, &START_CENTS])
            .await
            .unwrap();
    }

    let wallet = Arc::new(Wallet {
        fencing,
        closing: AtomicBool::new(false),
        made: AtomicU64::new(0),
        late_refused: AtomicU64::new(0),
        late_accepted: AtomicU64::new(0),
    });
    let (mut busy, mut sleepers) = (Vec::new(), Vec::new());
    for number in 0..BUSY_WORKERS + SLEEPERS {
        let worker = Worker {
            wallet: Arc::clone(&wallet),
            locks: cluster.library().await,
            database: server.connect().await,
            dice: number * 7_919 + 17,
        };
        if number < BUSY_WORKERS {
            busy.push(tokio::spawn(worker.work()));
        } else {
            sleepers.push(tokio::spawn(worker.sleep_and_work()));
        }
    }
    let all_done = async {
        for sleeper in sleepers {
            sleeper.await.unwrap();
        }
        wallet.closing.store(true, Ordering::SeqCst);
        for worker in busy {
            worker.await.unwrap();
        }
    };
    tokio::time::timeout(PATIENCE, all_done).await.expect("a client waits for ever");

    let (refused, accepted) =
        (wallet.late_refused.load(Ordering::SeqCst), wallet.late_accepted.load(Ordering::SeqCst));
    let mut wrong = 0;
    for row in database.query(WRONG, &[&START_CENTS]).await.unwrap() {
        wrong += row.get::<_, i64>(1).abs();
    }
    let total: i64 =
        database.query_one("SELECT sum(cents)::bigint FROM accounts", &[]).await.unwrap().get(0);
    println!(
        "fence {fencing:?}: {} transfers, {refused} late writes refused, {accepted} accepted; {} cents \
         appeared or vanished, {wrong} are in the wrong place",
        wallet.made.load(Ordering::SeqCst),
        total - START_CENTS * ACCOUNTS as i64,
    );
    match fencing {
        Fencing::On => assert_eq!((refused, accepted), (SLEEPERS * SLEEPS, 0)),
        Fencing::Off => assert_eq!((refused, accepted), (0, SLEEPERS * SLEEPS)),
    }
    assert!(wallet.made.load(Ordering::SeqCst) > accepted, "no other client worked");
    Some(wrong)
}

#[tokio::test(flavor = "multi_thread")]
async fn with_the_fence_not_a_cent_is_lost() {
    let Some(wrong) = cents_in_the_wrong_place(Fencing::On).await else { return };
    assert_eq!(wrong, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_fence_the_same_run_loses_money() {
    let Some(wrong) = cents_in_the_wrong_place(Fencing::Off).await else { return };
    assert!(wrong > 0, "the test cannot tell a fence from none");
}
