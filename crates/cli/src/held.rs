//! What a command runs under: one lock, several together, or a leadership.

use std::time::Duration;

use holdfast_client::{
    Guard, GuardAll, Leadership, LossReason, Lost, ReleaseError, ReleaseOutcome, ServedBy,
};

/// A bound for timers, where nothing is held that could end.
const VALID_FOR_MAX: Duration = Duration::from_secs(24 * 60 * 60);

#[derive(Debug)]
pub(crate) enum Held {
    One(Guard),
    All(GuardAll),
    Leader(Leadership),
    /// There is no lock to be had of these names, and it was asked for to go on without.
    Nothing(Vec<String>),
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
        match self {
            Held::One(guard) if self.is_nothing() => {
                Ok(Proof::of_nothing(vec![guard.name().to_owned()]))
            }
            Held::One(guard) => Proof::of(guard),
            Held::Leader(leadership) => Proof::of(leadership.guard()),
            Held::Nothing(names) => Ok(Proof::of_nothing(names.clone())),
            Held::All(guard) => Ok(Proof {
                names: guard.names().map(str::to_owned).collect(),
                tokens: guard.tokens()?,
                fences: guard.fences()?,
            }),
        }
    }

    /// Returns when it is lost, or a part of it.
    pub(crate) async fn lost(&self) -> LossReason {
        match self {
            Held::One(guard) => guard.lost().await,
            Held::All(guard) => guard.lost().await,
            Held::Leader(leadership) => leadership.lost().await,
            Held::Nothing(_) => std::future::pending().await,
        }
    }

    /// Of several locks those that the cluster has ended.
    pub(crate) fn ended_names(&self) -> Vec<&str> {
        match self {
            Held::All(guard) => guard.ended_names().collect(),
            Held::One(_) | Held::Leader(_) | Held::Nothing(_) => Vec::new(),
        }
    }

    /// What ends it first, if the cluster does not answer any more.
    pub(crate) fn ends_by(&self) -> LossReason {
        match self {
            Held::One(guard) => guard.ends_by(),
            Held::All(guard) => guard.ends_by(),
            Held::Leader(leadership) => leadership.guard().ends_by(),
            Held::Nothing(_) => LossReason::NotLocked,
        }
    }

    /// How long all of it is certainly held, as far as is known now; zero once it is lost.
    pub(crate) fn valid_for(&self) -> Duration {
        match self {
            Held::One(guard) => guard.valid_for().min(VALID_FOR_MAX),
            Held::All(guard) => guard.valid_for(),
            Held::Leader(leadership) => leadership.guard().valid_for(),
            Held::Nothing(_) => VALID_FOR_MAX,
        }
    }

    /// Whether the command runs without a lock, because that was asked for if there is none to be had.
    pub(crate) fn is_nothing(&self) -> bool {
        match self {
            Held::One(guard) => guard.served_by() == ServedBy::NoStore,
            Held::Nothing(_) => true,
            Held::All(_) | Held::Leader(_) => false,
        }
    }

    /// Tells whether all of it was held until then.
    pub(crate) async fn release(self) -> Result<bool, ReleaseError> {
        match self {
            Held::One(guard) => {
                let outcome = guard.release().await?;
                Ok(matches!(outcome, ReleaseOutcome::Released | ReleaseOutcome::NothingHeld))
            }
            Held::All(guard) => {
                let outcomes = guard.release().await?;
                Ok(outcomes.iter().all(|(_, outcome)| *outcome == ReleaseOutcome::Released))
            }
            Held::Leader(leadership) => Ok(leadership.resign().await? == ReleaseOutcome::Released),
            Held::Nothing(_) => Ok(true),
        }
    }
}

impl Proof {
    fn of(guard: &Guard) -> Result<Proof, Lost> {
        Ok(Proof {
            names: vec![guard.name().to_owned()],
            tokens: vec![guard.token()?],
            fences: vec![guard.fence()?],
        })
    }

    /// The names are known, and there is no token.
    fn of_nothing(names: Vec<String>) -> Proof {
        Proof { names, tokens: Vec::new(), fences: Vec::new() }
    }

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
