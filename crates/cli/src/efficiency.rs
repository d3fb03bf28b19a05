//! What serves the efficiency tier, and what to do when that is down.

use clap::builder::PossibleValue;
use clap::{Args, ValueEnum};
use holdfast_client::{ClientBuilder, Efficiency, WhenDown};

use crate::exit::{Code, Problem};
use crate::tier::TierArg;

const HEADING: &str = "With --tier efficiency";
const VARIABLE: &str = "HOLDFAST_EFFICIENCY";

#[derive(Debug, Args)]
pub(crate) struct EfficiencyArgs {
    /// The Redis that grants the lock, instead of the cluster, which need not run. Three or more URLs, separated by
    /// commas, are a Redlock: a majority has to grant.
    #[arg(long, value_name = "URL,URL", env = VARIABLE, hide_env_values = true,
          help_heading = HEADING)]
    efficiency_redis: Option<String>,
    /// What to do when the efficiency tier is down.
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
    /// What it would mean for a lock of the correctness tier is not to be had: without that nothing is safe.
    pub(crate) fn check_for(&self, tier: TierArg) -> Result<(), Problem> {
        if tier == TierArg::Efficiency {
            return Ok(());
        }
        if self.is_redis_by_option() {
            let words = "--efficiency-redis is for --tier efficiency: only the cluster grants a lock of the correctness \
                         tier. Add --tier efficiency if the work is only wasted when it is done twice, or remove \
                         --efficiency-redis";
            return Err(Problem::new(Code::Usage, words));
        }
        if self.when_down == WhenDownArg::Fail {
            return Ok(());
        }
        let word = self.when_down.to_possible_value();
        let word = word.as_ref().map(PossibleValue::get_name).unwrap_or_default();
        let words = format!(
            "--when-down {word} is for --tier efficiency. In the correctness tier the command never runs without the lock: \
             when the cluster is down, the exit code is 69. Add --tier efficiency if the work is only wasted when it is \
             done twice, or remove --when-down"
        );
        Err(Problem::new(Code::Usage, words))
    }

    /// Whether the command runs without a lock if the cluster, which would have granted it, is down.
    pub(crate) fn goes_without_cluster(&self) -> bool {
        self.when_down == WhenDownArg::GoWithout && !self.uses_external_store()
    }

    /// Whether the cluster knows nothing of who holds the lock.
    pub(crate) fn uses_external_store(&self) -> bool {
        self.urls().is_some()
    }

    /// The variable is set for all commands, whatever their tier.
    fn is_redis_by_option(&self) -> bool {
        self.urls().is_some_and(|urls| std::env::var(VARIABLE).as_deref() != Ok(urls))
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
            // The cluster is asked for nothing, unless a lock falls back to it.
            Some(urls) => builder.efficiency(Efficiency::redis(urls)).connect_when_needed(),
            None => builder,
        }
    }
}
