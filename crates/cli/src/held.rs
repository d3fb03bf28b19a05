//! What a command runs under: one lock, several together, or a leadership.

use holdfast_client::{
    Guard, GuardAll, Leadership, LossReason, Lost, ReleaseError, ReleaseOutcome,
};

#[derive(Debug)]
pub(crate) enum Held {
    One(Guard),
    All(GuardAll),
    Leader(Leadership),
}

/// The proof of what is held, as it was at one moment. Of each there is one per name, in the same order.
#[derive(Debug)]
pub(crate) struct Proof {
    names: Vec<String>,
    tokens: Vec<u64>,
    fences: Vec<String>,
}

impl Held {
    pub(crate) fn proof(&self) -> Result<Proof, Lost> {
        let (names, tokens, fences) = match self {
            Held::One(guard) => proof_of(guard)?,
            Held::Leader(leadership) => proof_of(leadership.guard())?,
            Held::All(guard) => (guard.names().collect(), guard.tokens()?, guard.fences()?),
        };
        Ok(Proof { names: names.into_iter().map(str::to_owned).collect(), tokens, fences })
    }

    /// Returns when it is lost, or a part of it.
    pub(crate) async fn lost(&self) -> LossReason {
        match self {
            Held::One(guard) => guard.lost().await,
            Held::All(guard) => guard.lost().await,
            Held::Leader(leadership) => leadership.lost().await,
        }
    }

    /// Tells whether there was something left to release.
    pub(crate) async fn release(self) -> Result<bool, ReleaseError> {
        match self {
            Held::One(guard) => Ok(guard.release().await? == ReleaseOutcome::Released),
            Held::All(guard) => guard.release().await.map(|()| true),
            Held::Leader(leadership) => Ok(leadership.resign().await? == ReleaseOutcome::Released),
        }
    }
}

fn proof_of(guard: &Guard) -> Result<(Vec<&str>, Vec<u64>, Vec<String>), Lost> {
    Ok((vec![guard.name()], vec![guard.token()?], vec![guard.fence()?]))
}

impl Proof {
    /// What the command finds in its environment. Each variable is set, so that none is inherited from
    /// a lock around this one.
    pub(crate) fn environment(&self) -> [(&'static str, String); 5] {
        let tokens: Vec<String> = self.tokens.iter().map(u64::to_string).collect();
        [
            ("HOLDFAST_LOCK", self.names.join(",")),
            ("HOLDFAST_TOKEN", tokens.first().cloned().unwrap_or_default()),
            ("HOLDFAST_FENCE", self.fences.first().cloned().unwrap_or_default()),
            ("HOLDFAST_TOKENS", tokens.join(",")),
            ("HOLDFAST_FENCES", self.fences.join(",")),
        ]
    }

    /// Name, token and full form of each.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, u64, &str)> {
        let fences = self.fences.iter().map(String::as_str);
        let tokens = self.tokens.iter().copied();
        self.names
            .iter()
            .zip(tokens)
            .zip(fences)
            .map(|((name, token), fence)| (&**name, token, fence))
    }
}
