//! Which cluster the data of `holdfast dev` is of. Its nodes know each other by addresses that are part of the data, so
//! with other ports, or another number of nodes, they would wait for each other for ever.
//!
//! It is a hint in a file of its own, written once the cluster is ready. Data without it is told by its directories alone.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::exit::{Code, Problem};
use crate::text::quoted;

const FILE: &str = "dev.json";
/// More than `dev` ever starts.
const NODES_MAX: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ClusterShape {
    pub(super) nodes: usize,
    /// Of the first node, for clients.
    pub(super) port: u16,
    /// The nodes demand credentials. Without `--secure` they would open the same data to every client.
    #[serde(default)]
    pub(super) secure: bool,
    /// The number of Raft groups never changes.
    #[serde(default = "one_group")]
    pub(super) groups: u32,
}

fn one_group() -> u32 {
    1
}

impl ClusterShape {
    /// Changes nothing.
    pub(super) fn check(self, data_dir: &Path) -> Result<(), Problem> {
        let found = ClusterShape::read(data_dir);
        let nodes = found.map_or_else(|| directories(data_dir), |shape| shape.nodes);
        let port = found.map_or(self.port, |shape| shape.port);
        // A single node has no peers that must find it.
        let is_found = nodes == 1 || port == self.port;
        let was_secure = found.is_some_and(|shape| shape.secure);
        let is_as_secure = self.secure || !was_secure;
        let groups = found.map_or(self.groups, |shape| shape.groups);
        let is_divided_alike = groups == self.groups;
        if nodes == 0 || (nodes == self.nodes && is_found && is_as_secure && is_divided_alike) {
            return Ok(());
        }
        let (secured, with_secure) = if was_secure { ("secured ", " --secure") } else { ("", "") };
        let its_port = found.map(|shape| format!(" on port {}", shape.port)).unwrap_or_default();
        let with_port = found.map(|shape| format!(" --port {}", shape.port)).unwrap_or_default();
        let with_groups = if groups != self.groups || groups > 1 {
            format!(" --groups {groups}")
        } else {
            String::new()
        };
        let dir = data_dir.to_string_lossy();
        let its_groups = match groups {
            1 => String::new(),
            groups => format!(" with {groups} groups"),
        };
        let words = format!(
            "{dir} has the data of a {secured}cluster of {nodes} {}{its_groups}{its_port}: start it with \
             `holdfast dev{with_secure} --nodes {nodes}{with_port}{with_groups} --data-dir {}`, or choose another directory",
            if nodes == 1 { "node" } else { "nodes" },
            quoted(&dir)
        );
        Err(Problem::new(Code::Usage, words))
    }

    /// One that is damaged says nothing, like none.
    fn read(data_dir: &Path) -> Option<ClusterShape> {
        serde_json::from_slice(&fs::read(data_dir.join(FILE)).ok()?).ok()
    }

    /// If it cannot be written, the next start knows less.
    pub(super) fn write(self, data_dir: &Path) {
        if let Ok(text) = serde_json::to_string(&self) {
            let _ = fs::write(data_dir.join(FILE), text + "\n");
        }
    }
}

/// How many nodes have data there.
fn directories(data_dir: &Path) -> usize {
    let is_there = |id: &usize| data_dir.join(format!("node-{id}")).join("log").is_dir();
    (1..=NODES_MAX).take_while(is_there).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    const THREE: ClusterShape = ClusterShape { nodes: 3, port: 7420, secure: false, groups: 1 };

    #[test]
    fn data_is_of_the_nodes_and_ports_that_made_it() {
        let dir = tempfile::tempdir().unwrap();
        let one = ClusterShape { nodes: 1, ..THREE };
        let elsewhere = ClusterShape { port: 8420, ..THREE };
        assert_eq!(elsewhere.check(dir.path()), Ok(()), "nothing is there yet");
        for id in 1..=3 {
            fs::create_dir_all(dir.path().join(format!("node-{id}/log"))).unwrap();
        }
        assert_eq!(one.check(dir.path()).unwrap_err().code, Code::Usage);
        assert_eq!(elsewhere.check(dir.path()), Ok(()), "the ports are not known");
        THREE.write(dir.path());
        assert_eq!(THREE.check(dir.path()), Ok(()));
        for other in [one, elsewhere] {
            let problem = other.check(dir.path()).unwrap_err();
            assert!(problem.words.contains("--nodes 3 --port 7420"), "{problem:?}");
        }
    }

    #[test]
    fn a_node_that_is_alone_goes_on_with_another_port() {
        let dir = tempfile::tempdir().unwrap();
        let one = ClusterShape { nodes: 1, ..THREE };
        one.write(dir.path());
        assert_eq!(ClusterShape { port: 8420, ..one }.check(dir.path()), Ok(()));
        assert!(THREE.check(dir.path()).is_err());
    }

    #[test]
    fn data_of_several_groups_is_opened_with_as_many() {
        let dir = tempfile::tempdir().unwrap();
        let divided = ClusterShape { groups: 4, ..THREE };
        divided.write(dir.path());
        assert_eq!(divided.check(dir.path()), Ok(()));
        for groups in [1, 5] {
            let problem = ClusterShape { groups, ..THREE }.check(dir.path()).unwrap_err();
            assert!(problem.words.contains("--port 7420 --groups 4"), "{problem:?}");
        }
    }

    #[test]
    fn data_of_a_secured_cluster_is_not_opened_without_its_protection() {
        let dir = tempfile::tempdir().unwrap();
        let secured = ClusterShape { secure: true, ..THREE };
        secured.write(dir.path());
        assert_eq!(secured.check(dir.path()), Ok(()));
        let problem = THREE.check(dir.path()).unwrap_err();
        assert!(problem.words.contains("holdfast dev --secure --nodes 3"), "{problem:?}");
        THREE.write(dir.path());
        assert_eq!(secured.check(dir.path()), Ok(()), "protection may be added");
        fs::write(dir.path().join(FILE), r#"{"nodes":3,"port":7420}"#).unwrap();
        assert_eq!(THREE.check(dir.path()), Ok(()), "a file of an older build");
    }
}
