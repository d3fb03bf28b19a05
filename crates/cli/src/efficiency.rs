//! What serves the efficiency tier, and what to do when that is down.

use clap::{Args, ValueEnum};
use holdfast_client::{ClientBuilder, Efficiency, WhenDown};

const HEADING: &str = "With --tier efficiency";

#[derive(Debug, Args)]
pub(crate) struct EfficiencyArgs {
    /// The Redis that grants the lock, instead of the cluster. Three or more, separated by commas, are a
    /// Redlock: a majority of them has to grant.
    #[arg(long, value_name = "URL,URL", env = "HOLDFAST_EFFICIENCY", hide_env_values = true,
          help_heading = HEADING)]
    efficiency_redis: Option<String>,
    /// What to do when what grants the lock is down.
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = WhenDownArg::Fail,
          help_heading = HEADING)]
    when_down: WhenDownArg,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum WhenDownArg {
    /// End with 69; the command does not run.
    Fail,
    /// Run the command without a lock; HOLDFAST_TOKEN is empty then.
    GoWithout,
    /// Ask the correctness tier for the lock.
    FallBack,
}

impl EfficiencyArgs {
    /// Whether the cluster knows nothing of who holds the lock.
    pub(crate) fn is_outside(&self) -> bool {
        self.urls().is_some()
    }

    /// A variable that is set to nothing is as good as not set.
    fn urls(&self) -> Option<&str> {
        self.efficiency_redis.as_deref().filter(|urls| !urls.is_empty())
    }

    pub(crate) fn on(&self, builder: ClientBuilder) -> ClientBuilder {
        let builder = builder.when_down(match self.when_down {
            WhenDownArg::Fail => WhenDown::Fail,
            WhenDownArg::GoWithout => WhenDown::GoWithout,
            WhenDownArg::FallBack => WhenDown::FallBack,
        });
        match self.urls() {
            Some(urls) => builder.efficiency(Efficiency::redis(urls)),
            None => builder,
        }
    }
}
