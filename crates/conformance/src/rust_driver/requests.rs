//! What the suite asks, and what the library does for it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use holdfast_client::{
    Client, Guard, GuardAll, LossReason, Policy, ReleaseOutcome, Since, Tier, Tls,
};
use holdfast_conformance::vectors;
use serde_json::{Value, json};
use tokio::sync::{Mutex as AsyncMutex, Notify};

use crate::errors;
use crate::misbehaviour::Misbehaviour;
use crate::watches::Watches;

type Outcome = Result<Value, Value>;

pub(crate) struct Driver {
    misbehaviour: Option<Misbehaviour>,
    clients: Mutex<BTreeMap<String, Client>>,
    guards: Mutex<BTreeMap<String, Held>>,
    watches: Watches,
    /// Requests that can be cancelled, by their ids.
    cancellations: Mutex<BTreeMap<u64, Arc<Notify>>>,
}

/// What a guard's name stands for.
#[derive(Clone)]
struct Held {
    guard: Arc<AsyncMutex<Option<Kind>>>,
}

enum Kind {
    One(Guard),
    All(GuardAll),
}

impl Driver {
    pub(crate) fn new(misbehaviour: Option<Misbehaviour>) -> Driver {
        Driver {
            misbehaviour,
            clients: Mutex::default(),
            guards: Mutex::default(),
            watches: Watches::new(misbehaviour),
            cancellations: Mutex::default(),
        }
    }

    /// `None` if it needs waiting.
    pub(crate) fn answer_at_once(&self, request: &Value) -> Option<Outcome> {
        match text(request, "op") {
            "hello" => Some(Ok(json!({"name": "rust", "lacks": ["auto_renew", "fork"]}))),
            "vectors" => {
                let cases = request["cases"].as_array().into_iter().flatten();
                let kind = text(request, "kind");
                let answers: Vec<Value> = cases.map(|case| vectors::answer(kind, case)).collect();
                Some(Ok(json!({"answers": answers})))
            }
            "token" => Some(self.token(text(request, "guard"))),
            "cancel" => {
                let call = request["call"].as_u64().unwrap_or(0);
                if let Some(cancelled) = locked(&self.cancellations).get(&call) {
                    cancelled.notify_one();
                }
                Some(Ok(json!({})))
            }
            _ => None,
        }
    }

    pub(crate) fn cancellation_of(&self, request: &Value) -> Arc<Notify> {
        let id = request["id"].as_u64().unwrap_or(0);
        Arc::clone(locked(&self.cancellations).entry(id).or_default())
    }

    pub(crate) fn forget_cancellation(&self, request: &Value) {
        locked(&self.cancellations).remove(&request["id"].as_u64().unwrap_or(0));
    }

    pub(crate) async fn answer(&self, request: &Value) -> Outcome {
        match text(request, "op") {
            "connect" => self.connect(request).await,
            "close" => self.close(request).await,
            "acquire" => self.acquire(request).await,
            "acquire_all" => self.acquire_all(request).await,
            "campaign" => self.campaign(request).await,
            "release" => self.release(request).await,
            "renew" => self.renew(request).await,
            "convert" => self.convert(request).await,
            "transfer" => self.transfer(request).await,
            "await_loss" => self.await_loss(request).await,
            "block" => self.block(request).await,
            "watch" => self.watches.watch(&self.client(request)?, request),
            "observe" => self.watches.observe(&self.client(request)?, request),
            "next" => self.watches.next(request).await,
            "end_watch" => self.watches.end(request),
            op => Err(json!({"kind": "unsupported", "message": format!("no request `{op}`")})),
        }
    }

    async fn connect(&self, request: &Value) -> Outcome {
        let endpoints = request["endpoints"].as_array().into_iter().flatten();
        let endpoints: Vec<&str> = endpoints.filter_map(Value::as_str).collect();
        let mut builder = Client::builder();
        if let Some(ttl) = span(request, "ttl_ms") {
            let is_chatty = self.misbehaviour == Some(Misbehaviour::Chatty);
            builder = builder.ttl(if is_chatty { Duration::from_secs(1) } else { ttl });
        }
        if let Some(timeout) = span(request, "request_timeout_ms") {
            builder = builder.request_timeout(timeout);
        }
        if let Some(ca) = request["ca"].as_str() {
            let tls = Tls::new(ca);
            let identity = (request["cert"].as_str(), request["key"].as_str());
            builder = builder.tls(match identity {
                (Some(certificate), Some(key)) => tls.certificate(certificate, key),
                _ => tls,
            });
        }
        if let Some(file) = request["auth_file"].as_str() {
            builder = match self.misbehaviour {
                Some(Misbehaviour::CredentialOnce) => builder.auth_file(copy_of(file)?),
                _ => builder.auth_file(file),
            };
        }
        if self.misbehaviour == Some(Misbehaviour::IgnoreMembers) {
            builder = builder.without_discovery();
        }
        if request["when_needed"] == true {
            builder = builder.connect_when_needed();
        }
        let client = builder.connect(&endpoints.join(",")).await;
        let client = client.map_err(|error| errors::of_connect(&error))?;
        locked(&self.clients).insert(text(request, "as").to_owned(), client);
        Ok(json!({}))
    }

    async fn close(&self, request: &Value) -> Outcome {
        let client = self.client(request)?;
        client.close().await.map_err(|error| errors::other(&error))?;
        Ok(json!({}))
    }

    async fn acquire(&self, request: &Value) -> Outcome {
        let mut lock = self.client(request)?.lock(text(request, "name"));
        lock = match text(request, "mode") {
            "shared" => lock.shared(),
            "permit" => {
                let permits = request["permits"].as_u64().unwrap_or(0);
                lock.permits(u32::try_from(permits).unwrap_or(u32::MAX))
            }
            _ => lock,
        };
        if request["reentrant"] == true {
            lock = lock.reentrant();
        }
        if let Some(wait) = span(request, "wait_ms") {
            lock = lock.wait(wait);
        }
        if let Some(ttl) = span(request, "ttl_ms") {
            lock = lock.ttl(ttl);
        }
        if let Some(max_hold) = span(request, "max_hold_ms") {
            lock = lock.max_hold(max_hold);
        }
        if let Some(actor) = request["actor"].as_u64() {
            lock = lock.actor(actor);
        }
        lock = match text(request, "policy") {
            "wait" => lock.policy(Policy::Wait),
            "wait_die" => lock.policy(Policy::WaitDie),
            "wound_wait" => lock.policy(Policy::WoundWait),
            _ => lock,
        };
        if let Some(since) = text(request, "since").parse().ok().map(Since) {
            lock = lock.since(since);
        }
        if text(request, "tier") == "efficiency" {
            lock = lock.tier(Tier::Efficiency);
        }
        let guard = lock.acquire().await.map_err(|error| errors::of_acquire(&error))?;
        self.keep(request, Kind::One(guard))
    }

    async fn acquire_all(&self, request: &Value) -> Outcome {
        let names = request["names"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let mut all = self.client(request)?.lock_all(names);
        if let Some(wait) = span(request, "wait_ms") {
            all = all.wait(wait);
        }
        let guards = all.acquire().await.map_err(|error| errors::of_acquire(&error))?;
        self.keep(request, Kind::All(guards))
    }

    async fn campaign(&self, request: &Value) -> Outcome {
        let mut lock = self.client(request)?.lock(text(request, "name"));
        lock = lock.metadata(text(request, "value"));
        if let Some(wait) = span(request, "wait_ms") {
            lock = lock.wait(wait);
        }
        let guard = lock.acquire().await.map_err(|error| errors::of_acquire(&error))?;
        let epoch = guard.token().map_err(|lost| errors::lost(lost.reason))?;
        self.keep(request, Kind::One(guard))?;
        Ok(json!({"epoch": epoch.to_string()}))
    }

    async fn release(&self, request: &Value) -> Outcome {
        let held = self.held(text(request, "guard"))?;
        let guard = held.guard.lock().await.take();
        let outcome = match guard {
            Some(Kind::One(guard)) => guard.release().await,
            Some(Kind::All(all)) => match all.release().await {
                Ok(_) => Ok(ReleaseOutcome::Released),
                Err(error) => Err(error),
            },
            None => Ok(ReleaseOutcome::AlreadyReleased),
        };
        let outcome = outcome.map_err(|error| errors::of_release(&error))?;
        Ok(json!({"outcome": match outcome {
            ReleaseOutcome::Released => "released",
            ReleaseOutcome::NotOwner => "not_owner",
            ReleaseOutcome::AlreadyReleased => "already_released",
            ReleaseOutcome::Expired => "expired",
            _ => "nothing_held",
        }}))
    }

    async fn renew(&self, request: &Value) -> Outcome {
        let held = self.held(text(request, "guard"))?;
        let ttl = span(request, "ttl_ms");
        match &*held.guard.lock().await {
            Some(Kind::One(guard)) => guard.renew(ttl).await,
            Some(Kind::All(all)) => all.renew(ttl).await,
            None => return Err(errors::lost(LossReason::SessionClosed)),
        }
        .map(|()| json!({}))
        .map_err(|error| errors::of_renew(&error))
    }

    async fn convert(&self, request: &Value) -> Outcome {
        let held = self.held(text(request, "guard"))?;
        let mut guard = held.guard.lock().await;
        let Some(Kind::One(guard)) = &mut *guard else {
            return Err(errors::lost(LossReason::SessionClosed));
        };
        let converted = match text(request, "mode") {
            "shared" => guard.convert_to_shared().await,
            _ => guard.convert_to_exclusive(span(request, "wait_ms").unwrap_or_default()).await,
        };
        converted.map(|()| json!({})).map_err(|error| errors::of_convert(&error))
    }

    async fn transfer(&self, request: &Value) -> Outcome {
        let held = self.held(text(request, "guard"))?;
        let mut guard = held.guard.lock().await;
        let Some(Kind::One(guard)) = &mut *guard else {
            return Err(errors::lost(LossReason::SessionClosed));
        };
        let to = text(request, "to").parse().map_err(|error| errors::other(&error))?;
        let token = guard.transfer(to).await.map_err(|error| errors::of_transfer(&error))?;
        Ok(json!({"token": token.to_string()}))
    }

    /// The guard is asked again and again, so that other requests about it are answered meanwhile.
    async fn await_loss(&self, request: &Value) -> Outcome {
        let held = self.held(text(request, "guard"))?;
        loop {
            let reason = match &*held.guard.lock().await {
                Some(Kind::One(guard)) => guard.token().err().map(|lost| lost.reason),
                Some(Kind::All(all)) => all.tokens().err().map(|lost| lost.reason),
                None => Some(LossReason::SessionClosed),
            };
            if let Some(reason) = reason {
                return Ok(json!({"reason": errors::loss_name(reason)}));
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// The runtime has one thread, so the session's task stands still.
    async fn block(&self, request: &Value) -> Outcome {
        let held = self.held(text(request, "guard"))?;
        let guard = held.guard.lock().await;
        std::thread::sleep(span(request, "ms").unwrap_or_default());
        match &*guard {
            Some(kind) => tokens(kind).map_err(errors::lost),
            None => Err(errors::lost(LossReason::SessionClosed)),
        }
    }

    fn token(&self, name: &str) -> Outcome {
        let held = self.held(name)?;
        // The thread that reads requests runs no tasks, so it may block.
        let told = match &*held.guard.blocking_lock() {
            Some(kind) => tokens(kind),
            None => return Err(errors::lost(LossReason::SessionClosed)),
        };
        told.map_err(errors::lost)
    }

    fn keep(&self, request: &Value, kind: Kind) -> Outcome {
        let told = tokens(&kind).map_err(errors::lost)?;
        let held = Held { guard: Arc::new(AsyncMutex::new(Some(kind))) };
        locked(&self.guards).insert(text(request, "as").to_owned(), held);
        Ok(told)
    }

    fn client(&self, request: &Value) -> Result<Client, Value> {
        let client = locked(&self.clients).get(text(request, "client")).cloned();
        client.ok_or_else(|| json!({"kind": "other", "message": "no such client"}))
    }

    fn held(&self, name: &str) -> Result<Held, Value> {
        let held = locked(&self.guards).get(name).cloned();
        held.ok_or_else(|| json!({"kind": "other", "message": "no such guard"}))
    }
}

fn tokens(kind: &Kind) -> Result<Value, LossReason> {
    match kind {
        Kind::One(guard) => {
            let token = guard.token().map_err(|lost| lost.reason)?;
            let fence = guard.fence().map_err(|lost| lost.reason)?;
            Ok(json!({"token": token.to_string(), "fence": fence}))
        }
        Kind::All(all) => {
            let tokens = all.tokens().map_err(|lost| lost.reason)?;
            let tokens: Vec<String> = tokens.iter().map(u64::to_string).collect();
            Ok(json!({"tokens": tokens}))
        }
    }
}

/// What is written into the file later is not in its copy.
fn copy_of(file: &str) -> Result<String, Value> {
    let copy = format!("{file}.copy");
    std::fs::copy(file, &copy).map_err(|error| errors::other(&error))?;
    Ok(copy)
}

pub(crate) fn text<'a>(request: &'a Value, key: &str) -> &'a str {
    request[key].as_str().unwrap_or_default()
}

fn span(request: &Value, key: &str) -> Option<Duration> {
    request[key].as_u64().map(Duration::from_millis)
}

pub(crate) fn locked<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
