//! Watches and observations that the suite has begun, by their names.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use holdfast_client::unary::{Watch, Watched};
use holdfast_client::{Client, Observed, Observer};
use holdfast_proto::v1;
use serde_json::{Value, json};
use tokio::sync::Mutex as AsyncMutex;

use crate::errors;
use crate::misbehaviour::Misbehaviour;
use crate::requests::{locked, text};

type Outcome = Result<Value, Value>;

pub(crate) struct Watches {
    misbehaviour: Option<Misbehaviour>,
    begun: Mutex<BTreeMap<String, Arc<AsyncMutex<Begun>>>>,
}

struct Begun {
    kind: Kind,
    /// To begin it again.
    client: Client,
    of: String,
}

enum Kind {
    Watch(Watch),
    Observation(Observer),
}

impl Watches {
    pub(crate) fn new(misbehaviour: Option<Misbehaviour>) -> Watches {
        Watches { misbehaviour, begun: Mutex::default() }
    }

    pub(crate) fn watch(&self, client: &Client, request: &Value) -> Outcome {
        let prefix = text(request, "prefix");
        let watch = client.watch(prefix);
        let watch = if request["snapshot"] == false { watch.without_snapshot() } else { watch };
        self.keep(request, client, prefix, Kind::Watch(watch))
    }

    pub(crate) fn observe(&self, client: &Client, request: &Value) -> Outcome {
        let name = text(request, "name");
        self.keep(request, client, name, Kind::Observation(client.election(name).observe()))
    }

    fn keep(&self, request: &Value, client: &Client, of: &str, kind: Kind) -> Outcome {
        let begun = Begun { kind, client: client.clone(), of: of.to_owned() };
        let begun = Arc::new(AsyncMutex::new(begun));
        locked(&self.begun).insert(text(request, "as").to_owned(), begun);
        Ok(json!({}))
    }

    pub(crate) async fn next(&self, request: &Value) -> Outcome {
        let begun = locked(&self.begun).get(text(request, "watch")).cloned();
        let begun = begun.ok_or_else(|| json!({"kind": "other", "message": "no such watch"}))?;
        let mut begun = begun.lock().await;
        let items = match &mut begun.kind {
            Kind::Watch(watch) => watch.next().await.map(items_of),
            Kind::Observation(observer) => observer.next().await.map(|it| vec![item_of(it)]),
        };
        if self.misbehaviour == Some(Misbehaviour::ForgetPosition) {
            begun.begin_again();
        }
        items.map(|items| json!({"items": items})).map_err(|error| errors::of_call(&error))
    }

    pub(crate) fn end(&self, request: &Value) -> Outcome {
        locked(&self.begun).remove(text(request, "watch"));
        Ok(json!({}))
    }
}

impl Begun {
    fn begin_again(&mut self) {
        self.kind = match self.kind {
            Kind::Watch(_) => Kind::Watch(self.client.watch(&self.of).without_snapshot()),
            Kind::Observation(_) => Kind::Observation(self.client.election(&self.of).observe()),
        };
    }
}

fn items_of(watched: Watched) -> Vec<Value> {
    match watched {
        Watched::Snapshot { locks, complete } => {
            let lock = |it: v1::LockSummary| {
                let (name, holders, waiters) = (it.name, it.holder_count, it.waiter_count);
                json!({"lock": {"name": name, "holders": holders, "waiters": waiters}})
            };
            let mut items: Vec<Value> = locks.into_iter().map(lock).collect();
            items.extend(complete.then(|| json!({"snapshot_complete": true})));
            items
        }
        Watched::Events(events) => events.iter().map(event_of).collect(),
        _ => vec![json!({"restarted": true})],
    }
}

fn event_of(event: v1::WatchEvent) -> Value {
    let kind = event.kind().as_str_name().trim_start_matches("EVENT_KIND_").to_lowercase();
    let token = event.token.to_string();
    json!({"event": {"kind": kind, "names": event.names, "token": token}})
}

fn item_of(observed: Observed) -> Value {
    match observed {
        Observed::Leader(leader) => {
            let (value, epoch) = (String::from_utf8_lossy(&leader.value), leader.epoch.to_string());
            json!({"leader": {"value": value, "epoch": epoch}})
        }
        Observed::Vacant => json!({"vacant": true}),
        _ => json!({"missed": true}),
    }
}
