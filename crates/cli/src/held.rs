//! What `holdfast lock` holds: one lock, or several together.

use holdfast_client::{Guard, GuardAll, LossReason, Lost, ReleaseError};

#[derive(Debug)]
pub(crate) enum Held {
    One(Guard),
    All(GuardAll),
}

impl Held {
    /// What the command finds in its environment. Each variable is set, so that none is inherited from
    /// a lock around this one.
    pub(crate) fn environment(&self) -> Result<[(&'static str, String); 5], Lost> {
        let (names, tokens, fences) = match self {
            Held::One(guard) => (vec![guard.name()], vec![guard.token()?], vec![guard.fence()?]),
            Held::All(guard) => (guard.names().collect(), guard.tokens()?, guard.fences()?),
        };
        let tokens: Vec<String> = tokens.iter().map(u64::to_string).collect();
        Ok([
            ("HOLDFAST_LOCK", names.join(",")),
            ("HOLDFAST_TOKEN", tokens.first().cloned().unwrap_or_default()),
            ("HOLDFAST_FENCE", fences.first().cloned().unwrap_or_default()),
            ("HOLDFAST_TOKENS", tokens.join(",")),
            ("HOLDFAST_FENCES", fences.join(",")),
        ])
    }

    pub(crate) fn is_lost(&self) -> bool {
        match self {
            Held::One(guard) => guard.token().is_err(),
            Held::All(guard) => guard.tokens().is_err(),
        }
    }

    /// Returns when it is lost, or a part of it.
    pub(crate) async fn lost(&self) -> LossReason {
        match self {
            Held::One(guard) => guard.lost().await,
            Held::All(guard) => guard.lost().await,
        }
    }

    pub(crate) async fn release(self) -> Result<(), ReleaseError> {
        match self {
            Held::One(guard) => guard.release().await.map(drop),
            Held::All(guard) => guard.release().await,
        }
    }
}
