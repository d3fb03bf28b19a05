//! Who is behind the sessions that a watch tells of. Events name sessions alone; a snapshot tells owners, and so does
//! the history of a lock.

use std::collections::BTreeMap;
use std::time::Duration;

use holdfast_client::unary::{Past, Unary, Watched};
use tokio::time::timeout;

use crate::status::OwnerInfo;

/// With more, all are forgotten: who is still there is asked for again.
const KNOWN_MAX: usize = 10_000;
/// How many new sessions are looked up at one time. No reader is faster.
const ASKED_MAX: usize = 8;
const PATIENCE: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(super) struct Owners {
    calls: Unary,
    /// By public session id; empty if it is not known.
    known: BTreeMap<String, String>,
}

impl Owners {
    pub(super) fn new(calls: Unary) -> Owners {
        Owners { calls, known: BTreeMap::new() }
    }

    /// Nothing if it is not known.
    pub(super) fn of(&self, session: &str) -> &str {
        self.known.get(session).map_or("", String::as_str)
    }

    /// So that those of what is about to be told are known.
    pub(super) async fn learn(&mut self, watched: &Watched) {
        match watched {
            Watched::Snapshot { locks, .. } => {
                for lock in locks {
                    let owner = OwnerInfo::from(lock.owner.clone()).in_words();
                    self.put(lock.public_session_id.clone(), owner);
                }
            }
            Watched::Events(events) => {
                let mut asked = 0;
                for event in events.iter() {
                    let (session, name) = (&event.public_session_id, event.names.first());
                    let (false, Some(name)) = (self.known.contains_key(session), name) else {
                        continue;
                    };
                    if session.is_empty() || asked == ASKED_MAX {
                        continue;
                    }
                    asked += 1;
                    self.put(session.clone(), String::new());
                    self.ask(name).await;
                }
            }
            _ => {}
        }
    }

    /// Who had to do with the lock last.
    async fn ask(&mut self, name: &str) {
        let past = Past { limit: 1, ..Past::default() };
        if let Ok(Ok(answer)) = timeout(PATIENCE, self.calls.history(name, past)).await {
            for known in answer.owners {
                self.put(known.public_session_id, OwnerInfo::from(known.owner).in_words());
            }
        }
    }

    fn put(&mut self, session: String, owner: String) {
        if self.known.len() >= KNOWN_MAX {
            self.known.clear();
        }
        self.known.insert(session, owner);
    }
}
