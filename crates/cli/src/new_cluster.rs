//! What `snapshot restore` and `recover` share: both make a new cluster of one node.

use std::time::Duration;

use clap::Args;
use holdfast_server::{NewCluster, NewClusterOptions};
use serde::Serialize;

use crate::duration;
use crate::token;

#[derive(Debug, Args)]
pub(crate) struct NewClusterArgs {
    /// New tokens of both tiers are higher than this one: a number, or the full form of a token. In any case they are
    /// higher than the last token of the saved state + 2^40, and than the milliseconds since 1970 x 2^20. State it if
    /// the clock cannot tell which tokens were granted after the state was saved, and if the same state was restored
    /// before with a wrong clock or with a floor.
    #[arg(long, value_name = "TOKEN", value_parser = token::parse_floor)]
    pub(crate) token_floor: Option<u64>,
    /// How long the new cluster grants nothing, so that the holders of the old cluster have ended their work. The
    /// default is the longest TTL of all sessions, and at least 30s. Use 0s if the old cluster has been down for
    /// longer.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    closed_for: Option<Duration>,
}

impl From<&NewClusterArgs> for NewClusterOptions {
    fn from(args: &NewClusterArgs) -> NewClusterOptions {
        NewClusterOptions { token_floor: args.token_floor, closed_for: args.closed_for }
    }
}

/// The new cluster, as programs see it.
#[derive(Debug, Serialize)]
pub(crate) struct NewClusterReport {
    cluster_id: String,
    /// How many Raft groups it has.
    groups: u32,
    sessions_ended: usize,
    holds_ended: usize,
    waits_ended: usize,
    #[serde(serialize_with = "token::as_text")]
    last_token_before: u64,
    /// All new tokens are higher.
    #[serde(serialize_with = "token::as_text")]
    last_token: u64,
    /// All new best-effort tokens are higher; null if there are none left.
    #[serde(serialize_with = "token::as_text_if_any")]
    last_best_effort_token: Option<u64>,
    closed_for_ms: u64,
    /// The lowest id that a node can be added under.
    next_node_id: u64,
}

impl NewClusterReport {
    pub(crate) fn of(new: &NewCluster, highest_node: u64) -> NewClusterReport {
        NewClusterReport {
            cluster_id: new.cluster_id.clone(),
            groups: new.groups,
            sessions_ended: new.sessions_ended,
            holds_ended: new.holds_ended,
            waits_ended: new.waits_ended,
            last_token_before: new.last_token_before,
            last_token: new.last_token,
            last_best_effort_token: new.last_best_effort_token,
            closed_for_ms: u64::try_from(new.closed_for.as_millis()).unwrap_or(u64::MAX),
            next_node_id: highest_node.saturating_add(1),
        }
    }

    pub(crate) fn to_lines(&self) -> String {
        let closed_for = match self.closed_for_ms.div_ceil(1_000) {
            0 => "the cluster grants locks at once".to_owned(),
            seconds => format!(
                "the cluster grants nothing for the first {seconds} s (`holdfast thaw '' --reason TEXT` ends that earlier)"
            ),
        };
        let in_each_group = match self.groups {
            1 => String::new(),
            groups => format!(" (a client can have one in each of the {groups} groups)"),
        };
        let best_effort = match self.last_best_effort_token {
            Some(token) => format!("new ones of the efficiency tier are higher than {token}"),
            None => "the efficiency tier has no tokens left, and is off".to_owned(),
        };
        format!(
            "  the cluster has the new id {}\n  {} sessions ended{in_each_group}, with {} holds and {} waits: clients that come \
             back acquire again\n  tokens went up to {} before; new ones are higher than {}\n  {best_effort}\n  \
             {closed_for}\n",
            self.cluster_id,
            self.sessions_ended,
            self.holds_ended,
            self.waits_ended,
            self.last_token_before,
            self.last_token,
        )
    }

    pub(crate) fn next_steps(&self, config: &str) -> String {
        let next = self.next_node_id;
        format!(
            "next:\n  holdfast server --config {config}\n  holdfast cluster add --id {next} ...   (ids below {next} were \
             used, and stay so)\n"
        )
    }
}
