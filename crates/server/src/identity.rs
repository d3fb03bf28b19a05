//! Who a data directory belongs to.
//!
//! At its first start a node marks its data directory with the cluster, its own id and a random
//! [`DataDirId`]. From then on a start under another cluster or id is refused: the log in the
//! directory holds promises (votes, acknowledged entries) that another node must not inherit. Peers
//! remember the data-directory id for the same reason: a node that lost its directory, and with it its
//! promises, must not come back under its old id.

use std::fmt;
use std::path::{Path, PathBuf};

use holdfast_proto::GROUPS_MAX;
use holdfast_replica::{ClusterId, DirectoryId, NodeId};
use serde::{Deserialize, Serialize};

use crate::durable_file::{self, FileError};

/// Where the log lives within the data directory.
pub(crate) const LOG_DIR: &str = "log";

pub(crate) const FILE: &str = "identity.toml";

/// Where a recovery keeps its work; there as long as one is under way.
pub(crate) const RECOVERING_DIR: &str = "recovering";

/// The newest version that this build reads. Version 1 names no number of groups: there is one.
const VERSION: u32 = 2;
const ONE_GROUP_VERSION: u32 = 1;
const HEADER: &str = "# Whose directory this is. Made at the first start; do not edit.\n";

/// Made at random with the directory: 16 bytes, shown as 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct DataDirId([u8; 16]);

/// This node, as it shows itself to its peers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) cluster: String,
    pub(crate) node: NodeId,
    pub(crate) data_dir: DataDirId,
    /// How many groups have their logs in the directory. It never changes.
    pub(crate) groups: u32,
}

/// Why a data directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("{} is damaged: {what}; restore it from a backup of this directory", path.display())]
    Damaged { path: PathBuf, what: String },
    #[error(
        "the data directory {} was written in format {found}, and this build reads formats up \
         to {VERSION}; start it with the version of holdfast that wrote it", data_dir.display()
    )]
    UnknownVersion { data_dir: PathBuf, found: u32 },
    #[error(
        "the data directory {} belongs to node {found_node} of cluster '{found_cluster}', and the \
         configuration says node {node} of cluster '{cluster}'; correct the configuration or give \
         this node an empty data_dir", data_dir.display()
    )]
    SomebodyElses {
        data_dir: PathBuf,
        found_cluster: String,
        found_node: u64,
        cluster: String,
        node: u64,
    },
    #[error(
        "the data directory {} has the logs of {found} groups, and the configuration says groups = {groups}; the number of \
         groups cannot change: write groups = {found}", data_dir.display()
    )]
    OtherGroups { data_dir: PathBuf, found: u32, groups: u32 },
    #[error(
        "the data directory {} has a log but no {FILE}, so it is not known whose log it is; \
         restore the file, or give this node an empty data_dir and a new id", data_dir.display()
    )]
    Unmarked { data_dir: PathBuf },
    #[error(
        "a recovery of the data directory {} was interrupted; run `holdfast recover` again, with the \
         same configuration, and it will be completed", data_dir.display()
    )]
    RecoveryInterrupted { data_dir: PathBuf },
    #[error("the operating system gives no random numbers: {0}")]
    NoRandomness(getrandom::Error),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    version: u32,
    cluster: String,
    node: u64,
    data_dir_id: DataDirId,
    /// From version 2 on. A build that knows version 1 only refuses version 2. It would run one group, and forget what the
    /// others have promised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    groups: Option<u32>,
}

/// Read before everything else, so that a file of a later format is refused by its version and not
/// by the first key that is not known here.
#[derive(Deserialize)]
struct StoredVersion {
    version: u32,
}

impl Identity {
    /// Reads the mark of the directory, or makes directory and mark if there are none.
    pub(crate) fn load_or_create(
        data_dir: &Path,
        cluster: &str,
        node: NodeId,
        groups: u32,
    ) -> Result<Identity, IdentityError> {
        durable_file::create_dir(data_dir)?;
        if data_dir.join(RECOVERING_DIR).exists() {
            return Err(IdentityError::RecoveryInterrupted { data_dir: data_dir.to_owned() });
        }
        let path = data_dir.join(FILE);
        match durable_file::read(&path)? {
            Some(text) => {
                let identity = Identity::verified(data_dir, &path, &text, cluster, node)?;
                let (data_dir, found) = (data_dir.to_owned(), identity.groups);
                match found == groups {
                    true => Ok(identity),
                    false => Err(IdentityError::OtherGroups { data_dir, found, groups }),
                }
            }
            None if data_dir.join(LOG_DIR).exists() => {
                Err(IdentityError::Unmarked { data_dir: data_dir.to_owned() })
            }
            None => {
                let identity = Identity { groups, ..Identity::random(cluster, node)? };
                identity.write(data_dir)?;
                Ok(identity)
            }
        }
    }

    /// Reads the mark of a directory; none if it has none.
    pub(crate) fn load(
        data_dir: &Path,
        cluster: &str,
        node: NodeId,
    ) -> Result<Option<Identity>, IdentityError> {
        let path = data_dir.join(FILE);
        let text = durable_file::read(&path)?;
        text.map(|text| Identity::verified(data_dir, &path, &text, cluster, node)).transpose()
    }

    /// How many groups the directory has. None if it has no mark, or one that cannot be read, which is refused when the
    /// directory is used.
    pub(crate) fn groups_in(data_dir: &Path) -> Option<u32> {
        let text = durable_file::read(&data_dir.join(FILE)).ok()??;
        let stored: Stored = toml::from_str(&text).ok()?;
        Some(stored.groups.unwrap_or(1))
    }

    /// Of a directory that is yet to be made, with one group.
    pub(crate) fn random(cluster: &str, node: NodeId) -> Result<Identity, IdentityError> {
        let data_dir = DataDirId::random().map_err(IdentityError::NoRandomness)?;
        Ok(Identity { cluster: cluster.to_owned(), node, data_dir, groups: 1 })
    }

    /// Of a cluster that begins with this directory.
    pub(crate) fn cluster_id(&self) -> ClusterId {
        ClusterId(self.data_dir.0)
    }

    /// Marks a directory that has no mark.
    pub(crate) fn write(&self, data_dir: &Path) -> Result<(), IdentityError> {
        let path = data_dir.join(FILE);
        let groups = Some(self.groups).filter(|groups| *groups > 1);
        let stored = Stored {
            version: groups.map_or(ONE_GROUP_VERSION, |_| VERSION),
            groups,
            cluster: self.cluster.clone(),
            node: self.node.0,
            data_dir_id: self.data_dir,
        };
        let text = toml::to_string(&stored).map_err(|error| damaged(&path, &error))?;
        Ok(durable_file::replace(&path, &format!("{HEADER}{text}"))?)
    }

    fn verified(
        data_dir: &Path,
        path: &Path,
        text: &str,
        cluster: &str,
        node: NodeId,
    ) -> Result<Identity, IdentityError> {
        let StoredVersion { version } =
            toml::from_str(text).map_err(|error| damaged(path, &error))?;
        if !(ONE_GROUP_VERSION..=VERSION).contains(&version) {
            let data_dir = data_dir.to_owned();
            return Err(IdentityError::UnknownVersion { data_dir, found: version });
        }
        let stored: Stored = toml::from_str(text).map_err(|error| damaged(path, &error))?;
        if stored.cluster != cluster || stored.node != node.0 {
            return Err(IdentityError::SomebodyElses {
                data_dir: data_dir.to_owned(),
                found_cluster: stored.cluster,
                found_node: stored.node,
                cluster: cluster.to_owned(),
                node: node.0,
            });
        }
        let groups = match (version, stored.groups) {
            (ONE_GROUP_VERSION, None) => 1,
            (VERSION, Some(groups @ 2..=GROUPS_MAX)) => groups,
            _ => return Err(damaged(path, &"the number of groups is wrong")),
        };
        Ok(Identity { cluster: stored.cluster, node, data_dir: stored.data_dir_id, groups })
    }
}

fn damaged(path: &Path, what: &dyn fmt::Display) -> IdentityError {
    IdentityError::Damaged { path: path.to_owned(), what: what.to_string() }
}

impl DataDirId {
    pub(crate) fn random() -> Result<DataDirId, getrandom::Error> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes)?;
        Ok(DataDirId(bytes))
    }

    /// `None` unless the text is 32 lower-case hexadecimal digits.
    pub(crate) fn parse(text: &str) -> Option<DataDirId> {
        let plain = text.len() == 32
            && text.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
        if !plain {
            return None;
        }
        u128::from_str_radix(text, 16).ok().map(|number| DataDirId(number.to_be_bytes()))
    }
}

impl From<DataDirId> for DirectoryId {
    fn from(id: DataDirId) -> DirectoryId {
        DirectoryId(id.0)
    }
}

impl From<DirectoryId> for DataDirId {
    fn from(id: DirectoryId) -> DataDirId {
        DataDirId(id.0)
    }
}

/// Written like a data directory: 32 hexadecimal digits.
pub(crate) fn cluster_text(id: Option<ClusterId>) -> String {
    id.map(|id| DataDirId(id.0).to_string()).unwrap_or_default()
}

impl fmt::Display for DataDirId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for DataDirId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl TryFrom<String> for DataDirId {
    type Error = &'static str;

    fn try_from(text: String) -> Result<DataDirId, &'static str> {
        DataDirId::parse(&text).ok_or("a data-directory id is 32 lower-case hexadecimal digits")
    }
}

impl From<DataDirId> for String {
    fn from(id: DataDirId) -> String {
        id.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_start_marks_the_directory_and_later_ones_find_the_mark() {
        let dir = tempfile::tempdir().unwrap();
        let data_dir = dir.path().join("not/yet/there");
        let first = Identity::load_or_create(&data_dir, "prod", NodeId(2), 1).unwrap();
        let second = Identity::load_or_create(&data_dir, "prod", NodeId(2), 1).unwrap();
        assert_eq!(first, second);
        assert_eq!(DataDirId::parse(&first.data_dir.to_string()), Some(first.data_dir));
    }

    #[test]
    fn two_directories_are_never_taken_for_one() {
        let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let a = Identity::load_or_create(a.path(), "prod", NodeId(1), 1).unwrap();
        let b = Identity::load_or_create(b.path(), "prod", NodeId(1), 1).unwrap();
        assert_ne!(a.data_dir, b.data_dir);
    }

    #[test]
    fn a_start_as_another_node_or_cluster_is_refused_with_an_error() {
        let dir = tempfile::tempdir().unwrap();
        Identity::load_or_create(dir.path(), "prod", NodeId(2), 1).unwrap();
        for (cluster, node) in [("prod", 3), ("test", 2)] {
            let error = Identity::load_or_create(dir.path(), cluster, NodeId(node), 1).unwrap_err();
            let words = error.to_string();
            assert!(words.contains("belongs to node 2 of cluster 'prod'"), "{words}");
            assert!(words.contains(&format!("node {node} of cluster '{cluster}'")), "{words}");
        }
    }

    #[test]
    fn a_directory_with_one_group_is_marked_as_before_there_were_several() {
        let dir = tempfile::tempdir().unwrap();
        let identity = Identity::load_or_create(dir.path(), "prod", NodeId(1), 1).unwrap();
        let text = std::fs::read_to_string(dir.path().join(FILE)).unwrap();
        let directory = identity.data_dir;
        let as_before = format!(
            "{HEADER}version = 1\ncluster = \"prod\"\nnode = 1\ndata_dir_id = \"{directory}\"\n"
        );
        assert_eq!(text, as_before);
    }

    #[test]
    fn a_build_that_knows_one_group_refuses_a_directory_with_several() {
        let dir = tempfile::tempdir().unwrap();
        Identity::load_or_create(dir.path(), "prod", NodeId(1), 4).unwrap();
        let text = std::fs::read_to_string(dir.path().join(FILE)).unwrap();
        // Those builds read the version before everything else, and refuse all but version 1.
        let StoredVersion { version } = toml::from_str(&text).unwrap();
        assert_ne!(version, ONE_GROUP_VERSION);
    }

    #[test]
    fn the_number_of_groups_of_a_directory_never_changes() {
        let dir = tempfile::tempdir().unwrap();
        let first = Identity::load_or_create(dir.path(), "prod", NodeId(1), 4).unwrap();
        assert_eq!((first.groups, Identity::groups_in(dir.path())), (4, Some(4)));
        assert_eq!(Identity::load_or_create(dir.path(), "prod", NodeId(1), 4).unwrap(), first);
        for groups in [1, 5] {
            let error =
                Identity::load_or_create(dir.path(), "prod", NodeId(1), groups).unwrap_err();
            assert!(matches!(error, IdentityError::OtherGroups { found: 4, .. }), "{error}");
            assert!(error.to_string().contains("write groups = 4"), "{error}");
        }
    }

    #[test]
    fn a_log_without_a_mark_is_not_adopted() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join(LOG_DIR)).unwrap();
        let error = Identity::load_or_create(dir.path(), "prod", NodeId(1), 1).unwrap_err();
        assert!(matches!(error, IdentityError::Unmarked { .. }), "{error}");
    }

    #[test]
    fn a_mark_that_cannot_be_read_is_never_replaced_by_a_new_one() {
        let dir = tempfile::tempdir().unwrap();
        for (text, expected) in [
            ("", "damaged"),
            ("version = 1\ncluster = 'prod'\nnode = 1\ndata_dir_id = 'short'", "damaged"),
            ("version = 3\nsomething = 'new'", "format 3"),
            (
                "version = 1\ncluster = 'prod'\nnode = 1\ngroups = 4\n\
                 data_dir_id = '000102030405060708090a0b0c0d0e0f'",
                "number of groups",
            ),
            (
                "version = 2\ncluster = 'prod'\nnode = 1\ngroups = 65\n\
                 data_dir_id = '000102030405060708090a0b0c0d0e0f'",
                "number of groups",
            ),
        ] {
            std::fs::write(dir.path().join(FILE), text).unwrap();
            let error = Identity::load_or_create(dir.path(), "prod", NodeId(1), 1).unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
        }
    }
}
