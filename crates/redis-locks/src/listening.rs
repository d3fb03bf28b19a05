//! Who waits for a lock, and how it is told that the lock may be free.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

/// What is known about one name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct News {
    /// Releases are heard of.
    is_connected: bool,
    releases: u64,
}

#[derive(Debug)]
struct Waiters {
    count: usize,
    news: watch::Sender<News>,
}

/// The names that callers wait for. The names whose subscription may have to change go to a task by a
/// queue, which has at most two entries for each who waits.
#[derive(Debug)]
pub(super) struct Registry {
    names: Mutex<HashMap<String, Waiters>>,
    changed: mpsc::UnboundedSender<String>,
}

/// One who waits for news of a name.
#[derive(Debug)]
pub(crate) struct Listening {
    name: String,
    news: watch::Receiver<News>,
    registry: Arc<Registry>,
}

impl Registry {
    /// With the names whose waiters came or went.
    pub(super) fn new() -> (Arc<Registry>, mpsc::UnboundedReceiver<String>) {
        let (changed, changes) = mpsc::unbounded_channel();
        (Arc::new(Registry { names: Mutex::default(), changed }), changes)
    }

    pub(super) fn listen(self: &Arc<Registry>, name: &str) -> Listening {
        let mut names = self.names();
        let waiters = names
            .entry(name.to_owned())
            .or_insert_with(|| Waiters { count: 0, news: watch::Sender::default() });
        waiters.count += 1;
        let news = waiters.news.subscribe();
        if waiters.count == 1 {
            let _ = self.changed.send(name.to_owned());
        }
        Listening { name: name.to_owned(), news, registry: Arc::clone(self) }
    }

    pub(super) fn is_awaited(&self, name: &str) -> bool {
        self.names().contains_key(name)
    }

    pub(super) fn awaited(&self) -> Vec<String> {
        self.names().keys().cloned().collect()
    }

    /// From now on releases are heard of. One before may have been missed, so this is news by itself.
    pub(super) fn connected(&self, name: &str) {
        self.tell(name, |news| news.is_connected = true);
    }

    pub(super) fn released(&self, name: &str) {
        self.tell(name, |news| news.releases += 1);
    }

    pub(super) fn disconnected(&self) {
        for waiters in self.names().values() {
            waiters.news.send_modify(|news| news.is_connected = false);
        }
    }

    fn tell(&self, name: &str, change: impl FnOnce(&mut News)) {
        if let Some(waiters) = self.names().get(name) {
            waiters.news.send_modify(change);
        }
    }

    fn names(&self) -> MutexGuard<'_, HashMap<String, Waiters>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Listening {
    pub(super) fn is_connected(&self) -> bool {
        self.news.borrow().is_connected
    }

    /// Returns when there is news that came after the last of which this told, or after so long.
    pub(super) async fn news(&mut self, longest: Duration) {
        let _ = timeout(longest, self.news.changed()).await;
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let mut names = self.registry.names();
        let Some(waiters) = names.get_mut(&self.name) else { return };
        waiters.count -= 1;
        if waiters.count == 0 {
            names.remove(&self.name);
            let _ = self.registry.changed.send(self.name.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn each_waiter_is_notified_of_a_release_and_the_name_is_dropped_with_the_last() {
        let (registry, mut changes) = Registry::new();
        let mut one = registry.listen("a");
        let mut other = registry.listen("a");
        assert_eq!(changes.recv().await.as_deref(), Some("a"));
        assert!(changes.try_recv().is_err(), "one subscription is enough for both");
        registry.released("b");
        registry.released("a");
        one.news(LONG).await;
        other.news(LONG).await;
        drop(one);
        assert!(registry.is_awaited("a"));
        drop(other);
        assert_eq!(changes.recv().await.as_deref(), Some("a"));
        assert!(registry.awaited().is_empty());
    }

    #[tokio::test]
    async fn a_connection_that_is_made_is_news_since_something_may_have_been_missed() {
        let (registry, _changes) = Registry::new();
        let mut listening = registry.listen("a");
        assert!(!listening.is_connected());
        registry.connected("a");
        let asked = std::time::Instant::now();
        listening.news(LONG).await;
        assert!(asked.elapsed() < LONG / 2);
        assert!(listening.is_connected());
        registry.disconnected();
        assert!(!listening.is_connected());
    }
}
