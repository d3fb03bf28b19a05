//! Which data directory stands behind each peer's id, as first seen.
//!
//! A node that lost its directory has lost its votes and the entries it acknowledged. If it came back
//! under its old id, a majority could forget a grant. So a known id with another directory is refused: when
//! it dials us, and when we dial it.
//!
//! The replicated membership knows the directories. This memory is for the time before: until the first
//! leader has written them down, and while a node that restarts has not heard yet what is committed.
//!
//! Caveat: memory starts at first contact. Until then nothing is known that could be refused.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use holdfast_replica::NodeId;
use serde::{Deserialize, Serialize};

use crate::durable_file::{self, FileError};
use crate::identity::DataDirId;

pub(crate) const FILE: &str = "peers.toml";
const VERSION: u32 = 1;
const HEADER: &str = "# The data directory of each peer, as first seen. Written by holdfast.\n";

#[derive(Debug)]
pub(crate) struct KnownPeers {
    path: PathBuf,
    known: Mutex<BTreeMap<NodeId, DataDirId>>,
}

/// Why the memory of peers cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KnownPeersError {
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

/// Why a peer is not let in.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StrangerError {
    #[error(
        "node {node} is known with another data directory than {shown}, which it shows now; a node that \
         lost its data directory must not come back under its old id, because its promises are \
         lost: give it back its directory, or `holdfast cluster remove {node}` and `holdfast cluster \
         add` it under a new id"
    )]
    OtherDirectory { node: NodeId, shown: DataDirId },
    #[error("the first contact with node {node} cannot be remembered: {source}")]
    NotRemembered { node: NodeId, source: FileError },
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    version: u32,
    /// TOML keys are text.
    peers: BTreeMap<String, DataDirId>,
}

#[derive(Deserialize)]
struct StoredVersion {
    version: u32,
}

impl KnownPeers {
    pub(crate) fn load(data_dir: &Path) -> Result<KnownPeers, KnownPeersError> {
        let path = data_dir.join(FILE);
        let known = match durable_file::read(&path)? {
            Some(text) => parse(&path, &text)?,
            None => BTreeMap::new(),
        };
        Ok(KnownPeers { path, known: Mutex::new(known) })
    }

    /// Lets a peer in that is new or shows the directory it is known by. A new one is on disk when
    /// this returns. It syncs a file, so it is for first contacts and not for a hot path.
    pub(crate) fn admit(&self, node: NodeId, shown: DataDirId) -> Result<(), StrangerError> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        match known.get(&node) {
            Some(known) if *known == shown => Ok(()),
            Some(_) => Err(StrangerError::OtherDirectory { node, shown }),
            None => {
                let mut extended = known.clone();
                extended.insert(node, shown);
                durable_file::replace(&self.path, &render(&extended))
                    .map_err(|source| StrangerError::NotRemembered { node, source })?;
                *known = extended;
                Ok(())
            }
        }
    }
}

fn parse(path: &Path, text: &str) -> Result<BTreeMap<NodeId, DataDirId>, KnownPeersError> {
    let damaged = |what: String| KnownPeersError::Damaged { path: path.to_owned(), what };
    let StoredVersion { version } =
        toml::from_str(text).map_err(|error| damaged(error.to_string()))?;
    if version != VERSION {
        return Err(KnownPeersError::UnknownVersion { path: path.to_owned(), found: version });
    }
    let stored: Stored = toml::from_str(text).map_err(|error| damaged(error.to_string()))?;
    stored
        .peers
        .into_iter()
        .map(|(node, data_dir)| match node.parse() {
            Ok(number) => Ok((NodeId(number), data_dir)),
            Err(_) => Err(damaged(format!("'{node}' is not a node id"))),
        })
        .collect()
}

/// By hand, because it cannot fail: numbers and hexadecimal digits need no escaping.
fn render(known: &BTreeMap<NodeId, DataDirId>) -> String {
    let mut text = format!("{HEADER}version = {VERSION}\n\n[peers]\n");
    for (node, data_dir) in known {
        text.push_str(&format!("{node} = \"{data_dir}\"\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some_id() -> DataDirId {
        DataDirId::random().unwrap()
    }

    #[test]
    fn a_peer_is_remembered_over_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let (second, third) = (some_id(), some_id());
        let peers = KnownPeers::load(dir.path()).unwrap();
        peers.admit(NodeId(2), second).unwrap();
        peers.admit(NodeId(3), third).unwrap();

        let peers = KnownPeers::load(dir.path()).unwrap();
        peers.admit(NodeId(2), second).unwrap();
        peers.admit(NodeId(3), third).unwrap();
    }

    #[test]
    fn a_known_id_with_another_data_directory_is_refused_and_not_learned() {
        let dir = tempfile::tempdir().unwrap();
        let first = some_id();
        let peers = KnownPeers::load(dir.path()).unwrap();
        peers.admit(NodeId(2), first).unwrap();
        for _ in 0..2 {
            let error = peers.admit(NodeId(2), some_id()).unwrap_err();
            assert!(error.to_string().contains("node 2 is known"), "{error}");
        }
        peers.admit(NodeId(2), first).unwrap();
    }

    #[test]
    fn a_peer_that_cannot_be_remembered_is_not_let_in() {
        let dir = tempfile::tempdir().unwrap();
        let peers = KnownPeers::load(dir.path()).unwrap();
        drop(dir);
        let error = peers.admit(NodeId(2), some_id()).unwrap_err();
        assert!(matches!(error, StrangerError::NotRemembered { .. }), "{error}");
    }

    #[test]
    fn a_damaged_memory_is_not_taken_for_an_empty_one() {
        let dir = tempfile::tempdir().unwrap();
        for (text, expected) in [
            ("", "damaged"),
            ("version = 1\n[peers]\n2 = 'short'", "damaged"),
            ("version = 1\n[peers]\ntwo = '00000000000000000000000000000001'", "not a node id"),
            ("version = 9", "format 9"),
        ] {
            std::fs::write(dir.path().join(FILE), text).unwrap();
            let error = KnownPeers::load(dir.path()).unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
        }
    }
}
