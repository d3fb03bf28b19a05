//! What the nodes wrote into their audit files. All nodes write the same events; the earliest time at which one of them
//! applied an event counts, and the event had happened by then.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::finding::{Checked, violation};

#[derive(Debug, Clone)]
pub(crate) struct Audit {
    pub(crate) files: Vec<PathBuf>,
}

#[derive(Debug, Clone)]
pub(crate) struct Event {
    pub(crate) kind: String,
    pub(crate) names: Vec<String>,
    pub(crate) session: String,
    pub(crate) token: String,
    /// The Raft group that did it.
    pub(crate) group: u64,
    pub(crate) unix_ms: u64,
}

/// How long what was answered may take until it is in a file.
const PATIENCE: Duration = Duration::from_secs(10);
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// Events by which a hold ends.
const ENDS: [&str; 7] =
    ["released", "expired", "wounded", "broken", "killed", "transferred", "converted"];

impl Audit {
    /// In the order of the log of each group; those of group 1 first.
    pub(crate) fn events(&self) -> Vec<Event> {
        let mut events: BTreeMap<(u64, u64, u64), Event> = BTreeMap::new();
        for file in &self.files {
            // A node that was killed may have left half a line.
            let Ok(text) = std::fs::read_to_string(file) else { continue };
            for line in text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
                let number = |key: &str| line[key].as_u64().unwrap_or(0);
                let text = |key: &str| line[key].as_str().unwrap_or_default().to_owned();
                let names = line["names"].as_array().cloned().unwrap_or_default();
                let event = Event {
                    kind: text("event"),
                    names: names.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
                    session: text("session"),
                    token: text("token"),
                    group: number("group"),
                    unix_ms: number("unix_ms"),
                };
                // A login has the position of the event before it.
                let is_event = event.kind != "login";
                if !is_event || event.names.is_empty() && event.session.is_empty() {
                    continue;
                }
                let position = (number("group"), number("index"), number("number"));
                let known = events.entry(position).or_insert_with(|| event.clone());
                known.unix_ms = known.unix_ms.min(event.unix_ms);
            }
        }
        events.into_values().collect()
    }

    /// Those of one lock.
    pub(crate) fn of(&self, name: &str) -> Vec<Event> {
        let is_meant = |event: &Event| event.names.iter().any(|it| it == name);
        self.events().into_iter().filter(is_meant).collect()
    }

    pub(crate) fn count(&self, kind: &str, name: &str) -> usize {
        self.of(name).iter().filter(|event| event.kind == kind).count()
    }

    /// Waits until it is so.
    pub(crate) async fn wait_for(
        &self,
        words: &str,
        is_so: impl Fn(&[Event]) -> bool,
    ) -> Checked<Vec<Event>> {
        let give_up = Instant::now() + PATIENCE;
        loop {
            let events = self.events();
            if is_so(&events) {
                return Ok(events);
            }
            if Instant::now() > give_up {
                return violation(format!("the cluster never wrote down: {words}"));
            }
            tokio::time::sleep(CHECK_INTERVAL).await;
        }
    }

    pub(crate) async fn wait_for_event(&self, kind: &str, name: &str) -> Checked {
        let words = format!("`{kind}` of {name}");
        let is_meant =
            |event: &Event| event.kind == kind && event.names.iter().any(|it| it == name);
        self.wait_for(&words, |events| events.iter().any(is_meant)).await.map(drop)
    }
}

impl Event {
    pub(crate) fn ends_hold(&self) -> bool {
        ENDS.contains(&self.kind.as_str())
    }
}
