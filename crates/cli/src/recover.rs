//! `holdfast recover`: quorum-loss recovery. One node goes on as a new cluster when the majority is lost for good.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use holdfast_server::{GroupVoters, NodeConfig, Recovered, Survivor};
use serde::Serialize;

use crate::exit::{Code, Problem};
use crate::global::Global;
use crate::new_cluster::{NewClusterArgs, NewClusterReport};
use crate::one_shot;
use crate::output::{self, Show};
use crate::text::quoted;

const WARNING: &str = "\
`holdfast recover` abandons the cluster of this node, and creates a new cluster of this node alone.

  * Everything that the old cluster acknowledged and this node does not have is LOST: such locks are free again.
  * Log entries of this node that no other node confirmed become valid.
  * All sessions end. Holders have to acquire again, and get tokens above all earlier ones. A holder that does not
    notice this in time can still write to a resource that does not check tokens.
  * If a majority of the old nodes is alive after all, there will be TWO clusters that both grant locks.
    Make sure that the old nodes never start again: wipe their data directories.
  * Do it on ONE node: the one with the highest `applied` in `holdfast cluster status`, or in its log.

If a majority of the nodes can come back with its data, start those nodes instead.";

/// Recovers from quorum loss: continues with one node when the others are lost for good.
///
/// Loses what that node did not know. Run it on the machine of one stopped node that still has its data. That node
/// becomes the only voter of a new cluster with a new cluster id, so it and other nodes of the old cluster refuse each
/// other. All sessions end. New tokens are higher than all that the old cluster can have granted. The old files are
/// kept aside. Wipe the other machines, and add them with `holdfast cluster add`.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 recovered; 64 the flag is missing, the majority still answers, the node is the
only voter, or there is no data; 69 the disk fails; 75 the node runs.

Examples:
  holdfast recover --config node-3.toml
  holdfast recover --config node-3.toml --i-lost-the-majority"
)]
pub(crate) struct RecoverArgs {
    /// The configuration of the node that is left.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Confirms that the other nodes will not come back, and that what only they knew is lost.
    #[arg(long)]
    i_lost_the_majority: bool,
    #[command(flatten)]
    new: NewClusterArgs,
}

#[derive(Debug, Serialize)]
struct Report {
    data_dir: PathBuf,
    /// The directory to which the old files were moved.
    aside: PathBuf,
    /// A file with the state that this node had, for `holdfast snapshot inspect`.
    state_file: PathBuf,
    /// Null if it completed a recovery that was interrupted.
    new: Option<NewClusterReport>,
    #[serde(skip)]
    config: String,
}

impl Report {
    fn of(recovered: Recovered, config: &NodeConfig, file: String) -> Report {
        let highest = recovered.highest_node;
        Report {
            data_dir: config.data_dir.clone(),
            new: recovered.new.as_ref().map(|new| NewClusterReport::of(new, highest)),
            aside: recovered.aside,
            state_file: recovered.state_file,
            config: file,
        }
    }
}

impl Show for Report {
    fn to_table(&self) -> String {
        let mut text = format!("{} is now the data of a new cluster\n", self.data_dir.display());
        match &self.new {
            Some(new) => text += &new.to_lines(),
            None => text += "  an earlier recovery was interrupted, and is now complete\n",
        }
        text += &format!(
            "  the old files are in {}\n  what this node knew: holdfast snapshot inspect {} --locks ''\n",
            self.aside.display(),
            quoted(&self.state_file.to_string_lossy()),
        );
        let next = |new: &NewClusterReport| new.next_steps(&self.config);
        text + &self.new.as_ref().map(next).unwrap_or_default()
    }
}

pub(crate) async fn run(args: RecoverArgs, global: &Global) -> Result<ExitCode, Problem> {
    if !args.i_lost_the_majority {
        let words = format!("{WARNING}\n\nIf that is what you want, say --i-lost-the-majority");
        return Err(Problem::new(Code::Usage, words));
    }
    output::message(WARNING);
    let config = NodeConfig::load(&args.config)
        .map_err(|error| Problem::new(Code::Usage, error.to_string()))?;
    let survivor = Survivor::open(&config)?;
    let file = quoted(&args.config.to_string_lossy());
    if args.new.token_floor.is_none() && survivor.is_alone() {
        let words = format!(
            "node {} is the only voter of its cluster, so no majority is lost: start it with `holdfast server --config \
             {file}`. Only to raise its tokens, recover it again with --token-floor",
            config.node
        );
        return Err(Problem::new(Code::Usage, words));
    }
    refuse_if_majority_lives(&survivor, &config, global).await?;
    let recovered = survivor.recover_alone((&args.new).into())?;
    output::show(global.output, &Report::of(recovered, &config, file))
}

/// Refuses the recovery if the other voters of a group that answer, together with this node, are a majority: then nothing
/// of that group is lost.
async fn refuse_if_majority_lives(
    survivor: &Survivor,
    config: &NodeConfig,
    global: &Global,
) -> Result<(), Problem> {
    let calls = one_shot::calls(global)?;
    let groups = survivor.voters();
    let others: BTreeSet<(u64, &str)> = groups
        .iter()
        .flat_map(|group| &group.others)
        .map(|(id, address)| (*id, address.as_str()))
        .filter(|(_, address)| !address.is_empty())
        .collect();
    let mut alive = BTreeMap::new();
    for (id, address) in others {
        let view = calls.own_view(address).await;
        let is_it = |view: &holdfast_proto::v1::ClusterStatusResponse| {
            view.answered_by == id && view.cluster == config.cluster
        };
        // A node that denies the call to this caller does run. It may belong to this cluster, so it counts.
        if view.as_ref().is_some_and(is_it) || calls.is_denied_by(address).await {
            alive.insert(id, format!("node {id} at {address}"));
        }
    }
    match groups.iter().find_map(|group| living_majority(group, &alive)) {
        None => Ok(()),
        Some(nodes) => Err(Problem::new(
            Code::Usage,
            format!(
                "{nodes} still answers, and with this node that is a majority: start this node, and nothing is \
                 lost. If their data is lost, stop them first"
            ),
        )),
    }
}

/// The other voters of the group that answer, if they are a majority together with this node.
fn living_majority(group: &GroupVoters, alive: &BTreeMap<u64, String>) -> Option<String> {
    let GroupVoters { others, has_own, .. } = group;
    let alive: Vec<&str> =
        others.iter().filter_map(|(id, _)| alive.get(id)).map(String::as_str).collect();
    let own_vote = usize::from(*has_own);
    let quorum = (others.len() + own_vote) / 2 + 1;
    (!others.is_empty() && alive.len() + own_vote >= quorum).then(|| alive.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_group_with_a_living_majority_is_enough_for_a_refusal() {
        let group = |others: &[u64], has_own| GroupVoters {
            group: 1,
            others: others.iter().map(|id| (*id, format!("host-{id}:7420"))).collect(),
            has_own,
        };
        let alive = BTreeMap::from([(2, "node 2".to_owned())]);
        assert_eq!(living_majority(&group(&[2, 3], true), &alive).as_deref(), Some("node 2"));
        assert_eq!(living_majority(&group(&[2, 3], false), &alive), None, "one of two");
        assert_eq!(living_majority(&group(&[3, 4], true), &alive), None);
        assert_eq!(living_majority(&group(&[2, 3, 4, 5], true), &alive), None);
        assert_eq!(living_majority(&group(&[], true), &alive), None, "it is alone already");
    }
}
