//! The news that a hold was lost.

use std::sync::{Arc, OnceLock};

use tokio::sync::watch;

use crate::error::LossReason;

/// The first reason for which a hold, or one of several that are held together, was lost. Cheap as long as
/// nobody waits for it, which is the rule: most locks are given back.
#[derive(Debug, Clone, Default)]
pub(crate) struct Loss {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    reason: OnceLock<LossReason>,
    /// Made for the first who wants to be told.
    told: OnceLock<watch::Sender<Option<LossReason>>>,
}

impl Loss {
    /// The first reason stands.
    pub(crate) fn tell(&self, reason: LossReason) {
        if self.shared.reason.set(reason).is_ok()
            && let Some(told) = self.shared.told.get()
        {
            told.send_replace(Some(reason));
        }
    }

    pub(crate) fn reason(&self) -> Option<LossReason> {
        self.shared.reason.get().copied()
    }

    /// Whoever asks for the reason after this is told of every later one.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Option<LossReason>> {
        self.shared.told.get_or_init(|| watch::Sender::new(self.reason())).subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_reason_stands_and_is_told_to_those_who_asked_before() {
        let loss = Loss::default();
        let mut early = loss.subscribe();
        loss.tell(LossReason::Broken);
        loss.tell(LossReason::Ended);
        assert_eq!(loss.reason(), Some(LossReason::Broken));
        assert!(early.has_changed().unwrap());
        assert_eq!(*early.borrow_and_update(), Some(LossReason::Broken));
        assert_eq!(*loss.subscribe().borrow(), Some(LossReason::Broken));
        assert!(!early.has_changed().unwrap());
    }
}
