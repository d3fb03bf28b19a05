//! With whom the cluster began, as this node was told at its first start.
//!
//! The log says how the membership changed, and not from what: a replica that has no snapshot yet begins with
//! these. So they are kept with the data. If they were read from the configuration at every start, a file that
//! an operator brought up to date would put changes on top of a membership that has them already.

use std::path::{Path, PathBuf};

use holdfast_replica::NodeId;
use serde::{Deserialize, Serialize};

use crate::config::NodeConfig;
use crate::durable_file::{self, FileError};

pub(crate) const FILE: &str = "founders.toml";
const VERSION: u32 = 1;
const HEADER: &str =
    "# With whom the cluster began; empty for a node that joined it. Do not edit.\n";

/// Why it is not known with whom the cluster began.
#[derive(Debug, thiserror::Error)]
pub enum InitialMembersError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("{} is damaged: {what}; restore it from a backup of this directory", path.display())]
    Damaged { path: PathBuf, what: String },
    #[error(
        "{} was written in format {found}, and this build reads format {VERSION}; start this node \
         with the version of holdfast that wrote it", path.display()
    )]
    UnknownVersion { path: PathBuf, found: u32 },
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    version: u32,
    founders: Vec<u64>,
}

#[derive(Deserialize)]
struct StoredVersion {
    version: u32,
}

/// What was written at the first start; at the first start, what the configuration says. A directory of a
/// version that kept no such file has been going by its configuration until now.
pub(crate) fn load_or_create(config: &NodeConfig) -> Result<Vec<NodeId>, InitialMembersError> {
    let path = config.data_dir.join(FILE);
    if let Some(text) = durable_file::read(&path)? {
        return parse(&path, &text);
    }
    let listed = config.nodes.iter().map(|node| NodeId(node.id));
    let founders: Vec<NodeId> = listed.filter(|_| !config.join).collect();
    write(&config.data_dir, &founders)?;
    Ok(founders)
}

/// For a directory that has no such file.
pub(crate) fn write(data_dir: &Path, founders: &[NodeId]) -> Result<(), InitialMembersError> {
    let path = data_dir.join(FILE);
    let founders = founders.iter().map(|node| node.0).collect();
    let text = toml::to_string(&Stored { version: VERSION, founders })
        .map_err(|error| damaged(&path, &error.to_string()))?;
    Ok(durable_file::replace(&path, &format!("{HEADER}{text}"))?)
}

fn parse(path: &Path, text: &str) -> Result<Vec<NodeId>, InitialMembersError> {
    let StoredVersion { version } =
        toml::from_str(text).map_err(|error| damaged(path, &error.to_string()))?;
    if version != VERSION {
        return Err(InitialMembersError::UnknownVersion { path: path.to_owned(), found: version });
    }
    let stored: Stored = toml::from_str(text).map_err(|error| damaged(path, &error.to_string()))?;
    if stored.founders.contains(&0) {
        return Err(damaged(path, "a node has the id 0"));
    }
    Ok(stored.founders.into_iter().map(NodeId).collect())
}

fn damaged(path: &Path, what: &str) -> InitialMembersError {
    InitialMembersError::Damaged { path: path.to_owned(), what: what.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_change_of_the_configuration_does_not_change_the_initial_members() {
        let dir = tempfile::tempdir().unwrap();
        let mut config = NodeConfig::dev_cluster(3, dir.path(), 7420).unwrap().remove(0);
        durable_file::create_dir(&config.data_dir).unwrap();
        let founders = load_or_create(&config).unwrap();
        assert_eq!(founders, [1, 2, 3].map(NodeId));
        config.nodes.truncate(1);
        config.join = true;
        assert_eq!(load_or_create(&config).unwrap(), founders);
    }

    #[test]
    fn a_joining_node_was_no_initial_member_and_stays_so() {
        let dir = tempfile::tempdir().unwrap();
        let mut config = NodeConfig::dev_cluster(1, dir.path(), 7420).unwrap().remove(0);
        durable_file::create_dir(&config.data_dir).unwrap();
        config.join = true;
        assert_eq!(load_or_create(&config).unwrap(), []);
        config.join = false;
        assert_eq!(load_or_create(&config).unwrap(), []);
    }

    #[test]
    fn an_unreadable_file_is_never_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let config = NodeConfig::dev_cluster(1, dir.path(), 7420).unwrap().remove(0);
        durable_file::create_dir(&config.data_dir).unwrap();
        for (text, expected) in [
            ("", "damaged"),
            ("version = 1\nfounders = [0]", "damaged"),
            ("version = 2\nwhatever = 1", "format 2"),
        ] {
            std::fs::write(config.data_dir.join(FILE), text).unwrap();
            let error = load_or_create(&config).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
