//! How the parts of a node learn that it is about to stop.

use tokio::sync::watch;

/// Held by the node; thrown once.
#[derive(Debug)]
pub(crate) struct StopSwitch {
    thrown: watch::Sender<bool>,
}

/// Held by whatever has to end when the node does.
#[derive(Clone, Debug)]
pub(crate) struct Stopping {
    thrown: watch::Receiver<bool>,
}

impl StopSwitch {
    pub(crate) fn new() -> StopSwitch {
        StopSwitch { thrown: watch::Sender::new(false) }
    }

    pub(crate) fn throw(&self) {
        self.thrown.send_replace(true);
    }

    pub(crate) fn watch(&self) -> Stopping {
        Stopping { thrown: self.thrown.subscribe() }
    }
}

impl Stopping {
    pub(crate) fn has_begun(&self) -> bool {
        *self.thrown.borrow()
    }

    /// Returns when the node begins to stop. A switch that is gone counts as thrown.
    pub(crate) async fn begun(&self) {
        let _ = self.thrown.clone().wait_for(|thrown| *thrown).await;
    }
}
