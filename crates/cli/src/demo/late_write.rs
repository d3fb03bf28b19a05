//! A stands still past its lease, B takes over, A wakes up and writes.

use std::sync::Arc;
use std::time::Duration;

use holdfast_client::Client;
use serde::Serialize;

use super::bank::Bank;
use super::broke;
use super::cluster::DemoCluster;
use super::narrator::{Narrator, Tone};
use super::worker::{Task, Worker};
use crate::exit::Problem;
use crate::token;

const ACCOUNT: &str = "wallet:42";
const AT_FIRST: i64 = 100;
const DEPOSIT_OF_A: i64 = 50;
const DEPOSIT_OF_B: i64 = 30;
const WAIT: Duration = Duration::from_secs(30);

/// What came of it; amounts as the store has them at the end.
#[derive(Debug, Serialize)]
pub(super) struct LateWrite {
    fence: bool,
    #[serde(serialize_with = "token::as_text")]
    token_of_a: u64,
    #[serde(serialize_with = "token::as_text")]
    token_of_b: u64,
    /// How long after A's last request B had the lock.
    takeover_ms: u64,
    late_write_refused: bool,
    /// What the library said to A when it was asked for its token after it woke up.
    library_told_a: Option<String>,
    balance_at_first: i64,
    deposits_acknowledged: i64,
    balance: i64,
    vanished: i64,
}

impl LateWrite {
    pub(super) fn is_as_expected(&self) -> bool {
        let lost = if self.fence { 0 } else { DEPOSIT_OF_B };
        self.token_of_b > self.token_of_a
            && self.late_write_refused == self.fence
            && self.library_told_a.is_some()
            && self.deposits_acknowledged == DEPOSIT_OF_A + DEPOSIT_OF_B
            && self.vanished == lost
    }

    pub(super) fn in_short(&self) -> String {
        let (first, deposits) = (self.balance_at_first, self.deposits_acknowledged);
        format!("{first} + {deposits} makes {}; {} vanished", self.balance, self.vanished)
    }
}

pub(super) async fn play(
    cluster: &DemoCluster,
    has_fence: bool,
    ttl: Duration,
    narrator: &mut Narrator,
) -> Result<LateWrite, Problem> {
    let with = if has_fence { "with" } else { "without" };
    narrator.heading(&format!("The same account, {with} a fence")).await;
    let bank = Arc::new(Bank::open(ACCOUNT, AT_FIRST, has_fence));
    let errand = Task {
        endpoints: cluster.endpoints().to_owned(),
        ttl,
        account: ACCOUNT.to_owned(),
        deposit: DEPOSIT_OF_A,
    };
    let mut a = Worker::start(errand, Arc::clone(&bank)).map_err(broke)?;
    let started = a.started().await.map_err(broke)?;
    let stopped = started.last_request;
    let token_of_a = started.token;
    let (read, wants) = (started.read, started.read + DEPOSIT_OF_A);
    narrator
        .say("A", &format!("holds {ACCOUNT} under token {token_of_a}; its lease is {ttl:?}"))
        .await;
    narrator
        .say("A", &format!("reads {read}, and is about to write {read} + {DEPOSIT_OF_A}"))
        .await;
    narrator.say_as(Tone::Odd, "A", "stands still: a long pause, and no heartbeat is sent").await;

    let client = Client::builder().note("worker B").connect(cluster.endpoints()).await?;
    narrator.say("B", &format!("waits for {ACCOUNT}")).await;
    let request = client.lock(ACCOUNT).wait(WAIT);
    let guard = narrator.while_lease_runs("A's lease", stopped, ttl, request.acquire()).await?;
    let takeover = stopped.elapsed();
    let (token_of_b, fence) = (guard.token().map_err(broke)?, guard.fence().map_err(broke)?);
    narrator
        .say("B", &format!("holds {ACCOUNT} under token {token_of_b}: the lease has run out"))
        .await;
    let read = bank.read(&fence).map_err(broke)?;
    bank.write(&fence, read + DEPOSIT_OF_B, DEPOSIT_OF_B).map_err(broke)?;
    let now = bank.balance();
    narrator.say("B", &format!("reads {read} and writes {read} + {DEPOSIT_OF_B}")).await;
    narrator.say_as(Tone::Good, "store", &format!("done: the balance is {now}")).await;
    guard.release().await.map_err(broke)?;

    narrator.say_as(Tone::Odd, "A", &format!("wakes up where it was, and writes {wants}")).await;
    let ended = a.wake().await.map_err(broke)?;
    match ended.refused() {
        Some((token, highest)) => {
            let words = format!("refused: token {token} is lower than {highest}");
            narrator.say_as(Tone::Good, "store", &words).await;
        }
        None => {
            let words = format!("done: the balance is {}. What B paid in is gone", ended.wrote);
            narrator.say_as(Tone::Bad, "store", &words).await;
        }
    }
    if let Some(token) = ended.repeated {
        let words =
            format!("takes the lock again, token {token}, reads, and writes {}", bank.balance());
        narrator.say("A", &words).await;
    }
    let act = LateWrite {
        fence: has_fence,
        token_of_a,
        token_of_b,
        takeover_ms: u64::try_from(takeover.as_millis()).unwrap_or(u64::MAX),
        late_write_refused: ended.refused().is_some(),
        library_told_a: ended.lost,
        balance_at_first: AT_FIRST,
        deposits_acknowledged: bank.acknowledged(),
        balance: bank.balance(),
        vanished: AT_FIRST + bank.acknowledged() - bank.balance(),
    };
    let tone = if act.vanished == 0 { Tone::Good } else { Tone::Bad };
    narrator.say_as(tone, "store", &act.in_short()).await;
    // If it cannot be closed, it ends by its TTL.
    let _ = client.close().await;
    Ok(act)
}
