//! What a scenario plays on: the cluster, the driver, a rival, and names of its own.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use holdfast_client::Client;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::driver::{Asked, Driver, Pending, Reply};
use crate::finding::{Checked, broken, ensure, violation};
use crate::judge::{TokenGiven, judge_tokens};

/// How long after a fault is over a client may need.
pub(crate) const RECOVERY: Duration = Duration::from_secs(10);

pub(crate) struct Stage<'a> {
    pub(crate) cluster: &'a mut Cluster,
    pub(crate) driver: &'a Driver,
    pub(crate) rival: Client,
    /// Locks of this scenario have names that begin so.
    pub(crate) prefix: String,
    tokens_given: Mutex<Vec<TokenGiven>>,
}

impl<'a> Stage<'a> {
    pub(crate) fn new(
        cluster: &'a mut Cluster,
        driver: &'a Driver,
        rival: Client,
        prefix: String,
    ) -> Stage<'a> {
        Stage { cluster, driver, rival, prefix, tokens_given: Mutex::default() }
    }

    pub(crate) fn name(&self, name: &str) -> String {
        format!("{}/{name}", self.prefix)
    }

    /// Opens a client of the driver, with this TTL, over the wires.
    pub(crate) async fn connect(&self, client: &str, ttl: Duration) -> Checked {
        self.driver.ok(self.connect_request(client, ttl)).await.map(drop)
    }

    /// To a cluster that speaks TLS it has the authority, and no credential.
    pub(crate) fn connect_request(&self, client: &str, ttl: Duration) -> Value {
        let endpoints = self.cluster.endpoints();
        let mut request = json!({
            "op": "connect", "as": client, "endpoints": endpoints, "ttl_ms": ms(ttl),
        });
        if let Some(ca) = self.cluster.ca() {
            request["ca"] = json!(ca);
        }
        request
    }

    pub(crate) async fn close(&self, client: &str) -> Checked {
        self.driver.ok(json!({"op": "close", "client": client})).await.map(drop)
    }

    /// Takes the lock, and returns its token.
    pub(crate) async fn acquire(&self, request: Value) -> Checked<u64> {
        let pending = self.start_acquire(request).await?;
        self.granted(pending).await
    }

    /// As [`Stage::acquire`], after a fault: while no node serves the client, it may refuse calls at once.
    pub(crate) async fn acquire_again(&self, request: Value) -> Checked<u64> {
        let give_up = Instant::now() + RECOVERY;
        loop {
            let (name, pending) = self.start_acquire(request.clone()).await?;
            let asked = pending.asked;
            match pending.reply().await? {
                Reply::Ok(granted) => return self.note_token(&name, &granted["token"], asked),
                Reply::Err(error)
                    if error["kind"] == "unavailable"
                        && error["may_have_happened"] == false
                        && Instant::now() < give_up =>
                {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                other => return violation(format!("{name} after a fault: {other}")),
            }
        }
    }

    /// `as` is the name of the lock's last part.
    pub(crate) async fn start_acquire(&self, request: Value) -> Checked<(String, Pending)> {
        let mut request = request;
        request["op"] = json!("acquire");
        let short = request["name"].as_str().unwrap_or_default().to_owned();
        let name = self.name(&short);
        request["name"] = json!(name);
        if request.get("as").is_none() {
            request["as"] = json!(short);
        }
        Ok((name, self.driver.send(request).await?))
    }

    pub(crate) async fn granted(&self, (name, pending): (String, Pending)) -> Checked<u64> {
        let asked = pending.asked;
        let granted = pending.ok().await?;
        self.note_token(&name, &granted["token"], asked)
    }

    fn note_token(&self, name: &str, token: &Value, asked: Asked) -> Checked<u64> {
        let Some((token, number)) = token.as_str().and_then(|it| Some((it, it.parse().ok()?)))
        else {
            return violation(format!("the token of {name} is not a text of digits: {token}"));
        };
        let (name, token) = (name.to_owned(), token.to_owned());
        let given = TokenGiven { name, token, asked };
        self.tokens_given.lock().unwrap_or_else(PoisonError::into_inner).push(given);
        Ok(number)
    }

    /// The guard's token, if the driver gives one, and its error otherwise.
    pub(crate) async fn token(&self, name: &str, guard: &str) -> Checked<Result<u64, Value>> {
        let pending = self.driver.send(json!({"op": "token", "guard": guard})).await?;
        self.token_of(name, pending).await
    }

    pub(crate) async fn token_of(
        &self,
        name: &str,
        pending: Pending,
    ) -> Checked<Result<u64, Value>> {
        let asked = pending.asked;
        match pending.reply().await? {
            Reply::Ok(given) => self.note_token(&self.name(name), &given["token"], asked).map(Ok),
            Reply::Err(error) if error["kind"] == "lost" => Ok(Err(error)),
            other => violation(format!("the token of {guard}: {other}", guard = name)),
        }
    }

    /// The guard must be held.
    pub(crate) async fn held(&self, name: &str, guard: &str) -> Checked<u64> {
        match self.token(name, guard).await? {
            Ok(token) => Ok(token),
            Err(error) => violation(format!("{guard} must be held, and is lost: {error}")),
        }
    }

    /// The guard must be lost, for this reason unless it is empty.
    pub(crate) async fn lost(&self, name: &str, guard: &str, reason: &str) -> Checked {
        match self.token(name, guard).await? {
            Ok(token) => violation(format!("{guard} gives the token {token}, and must be lost")),
            Err(error) => ensure(reason.is_empty() || error["reason"] == reason, || {
                format!("{guard} is lost because of {}, and not of {reason}", error["reason"])
            }),
        }
    }

    /// Another node leads the group.
    pub(crate) async fn move_leader(&self, group: u32) -> Checked {
        let calls = self.cluster.calls()?.in_group(group);
        // Right after an election no other node may be ready.
        let give_up = Instant::now() + RECOVERY;
        while let Err(error) = calls.transfer_leadership(None).await {
            if Instant::now() > give_up {
                return Err(broken(error));
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        Ok(())
    }

    pub(crate) async fn release(&self, guard: &str, outcome: &str) -> Checked {
        let released = self.driver.ok(json!({"op": "release", "guard": guard})).await?;
        ensure(released["outcome"] == outcome, || {
            format!("the release of {guard} is {}, and not {outcome}", released["outcome"])
        })
    }

    /// No token that the driver gave was asked for after the hold's true end.
    pub(crate) async fn judge_tokens(&self) -> Checked {
        // What ended by now is in the files a moment later.
        tokio::time::sleep(Duration::from_millis(200)).await;
        let mut given = self.tokens_given.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // The efficiency tier writes no events.
        given.retain(|token| !token.name.contains("/efficiency"));
        judge_tokens(&given, &self.cluster.audit.events())
    }
}

pub(crate) fn ms(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
