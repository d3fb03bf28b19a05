//! Who speaks to whom: the checks that both sides make before a message passes.
//!
//! Caveat: this keeps mistakes out (a copied configuration, a wiped node, two clusters on one
//! machine), not attackers. Until peers authenticate, whoever reaches the peer port can claim to be
//! any node.

use std::sync::Arc;

use holdfast_proto::peer_v1::{Hello, Welcome};
use holdfast_replica::NodeId;
use tonic::Status;

use super::PROTOCOL_VERSION;
use crate::identity::{DataDirId, Identity};
use crate::known_peers::{KnownPeers, StrangerError};
use crate::membership::Membership;

#[derive(Debug)]
pub(crate) struct Handshake {
    pub(super) identity: Identity,
    pub(super) membership: Arc<Membership>,
    known_peers: KnownPeers,
}

/// Why this node does not talk to the other one.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    #[error(
        "{me} speaks version {PROTOCOL_VERSION} of the peer protocol, the other side version \
         {theirs}; upgrade the older node"
    )]
    Version { me: String, theirs: u32 },
    #[error("{me}; the other side says it belongs to cluster '{theirs}'")]
    OtherCluster { me: String, theirs: String },
    #[error("{me}; the caller wants node {wanted}: its address for that node is wrong")]
    NotTheOneWanted { me: String, wanted: u64 },
    #[error("{me}; node {wanted} was expected at this address, and node {found} answered")]
    AnotherAnswered { me: String, wanted: NodeId, found: u64 },
    #[error("{me}, which has no node {caller}; add it to [[nodes]] of every node's configuration")]
    NotAMember { me: String, caller: u64 },
    #[error("{me}; the caller says it is that node itself")]
    Myself { me: String },
    #[error("the other side's data_dir_id is not 32 lower-case hexadecimal digits")]
    MalformedDataDir,
    #[error(transparent)]
    Stranger(#[from] StrangerError),
}

impl Handshake {
    pub(crate) fn new(
        identity: Identity,
        membership: Arc<Membership>,
        known_peers: KnownPeers,
    ) -> Handshake {
        Handshake { identity, membership, known_peers }
    }

    pub(super) fn hello(&self, to: NodeId) -> Hello {
        Hello {
            version: PROTOCOL_VERSION,
            cluster: self.identity.cluster.clone(),
            from_node: self.identity.node.0,
            to_node: to.0,
            data_dir_id: self.identity.data_dir.to_string(),
        }
    }

    pub(super) fn welcome(&self) -> Welcome {
        Welcome {
            version: PROTOCOL_VERSION,
            cluster: self.identity.cluster.clone(),
            node: self.identity.node.0,
            data_dir_id: self.identity.data_dir.to_string(),
        }
    }

    /// Who dials.
    pub(super) fn check_hello(&self, hello: &Hello) -> Result<NodeId, Refusal> {
        self.check_cluster(hello.version, &hello.cluster)?;
        let me = self.introduction();
        if hello.to_node != self.identity.node.0 {
            return Err(Refusal::NotTheOneWanted { me, wanted: hello.to_node });
        }
        let caller = NodeId(hello.from_node);
        if caller == self.identity.node {
            return Err(Refusal::Myself { me });
        }
        if self.membership.get(caller).is_none() {
            return Err(Refusal::NotAMember { me, caller: hello.from_node });
        }
        self.check_data_dir(caller, &hello.data_dir_id)?;
        Ok(caller)
    }

    /// Who answered at the address of `wanted`.
    pub(super) fn check_welcome(&self, wanted: NodeId, welcome: &Welcome) -> Result<(), Refusal> {
        self.check_cluster(welcome.version, &welcome.cluster)?;
        if welcome.node != wanted.0 {
            let me = self.introduction();
            return Err(Refusal::AnotherAnswered { me, wanted, found: welcome.node });
        }
        self.check_data_dir(wanted, &welcome.data_dir_id)
    }

    fn check_cluster(&self, version: u32, cluster: &str) -> Result<(), Refusal> {
        let me = self.introduction();
        if version != PROTOCOL_VERSION {
            return Err(Refusal::Version { me, theirs: version });
        }
        if cluster != self.identity.cluster {
            return Err(Refusal::OtherCluster { me, theirs: cluster.to_owned() });
        }
        Ok(())
    }

    fn check_data_dir(&self, node: NodeId, text: &str) -> Result<(), Refusal> {
        let shown = DataDirId::parse(text).ok_or(Refusal::MalformedDataDir)?;
        Ok(self.known_peers.admit(node, shown)?)
    }

    fn introduction(&self) -> String {
        format!("this is node {} of cluster '{}'", self.identity.node, self.identity.cluster)
    }
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Status {
        let words = refusal.to_string();
        match refusal {
            Refusal::MalformedDataDir => Status::invalid_argument(words),
            Refusal::NotAMember { .. } | Refusal::Myself { .. } => Status::permission_denied(words),
            // The disk, not the caller.
            Refusal::Stranger(StrangerError::NotRemembered { .. }) => Status::unavailable(words),
            Refusal::Version { .. }
            | Refusal::OtherCluster { .. }
            | Refusal::NotTheOneWanted { .. }
            | Refusal::AnotherAnswered { .. }
            | Refusal::Stranger(StrangerError::OtherDirectory { .. }) => {
                Status::failed_precondition(words)
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::path::Path;

    use tonic::Code;

    use super::*;
    use crate::config::NodeConfig;

    /// Node `node` of a cluster of three, with a data directory of its own.
    pub(in crate::peers) fn handshake_of(node: usize, dir: &Path, base_port: u16) -> Handshake {
        let configs = NodeConfig::dev_cluster(3, dir, base_port).unwrap();
        let config = &configs[node - 1];
        let identity =
            Identity::load_or_create(&config.data_dir, &config.cluster, config.node_id()).unwrap();
        let known_peers = KnownPeers::load(&config.data_dir).unwrap();
        Handshake::new(identity, Arc::new(Membership::of(config)), known_peers)
    }

    #[test]
    fn two_nodes_of_one_cluster_let_each_other_in() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (handshake_of(1, dir.path(), 7420), handshake_of(2, dir.path(), 7420));
        assert_eq!(two.check_hello(&one.hello(NodeId(2))).unwrap(), NodeId(1));
        one.check_welcome(NodeId(2), &two.welcome()).unwrap();
    }

    #[test]
    fn every_wrong_hello_is_refused_in_words_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (handshake_of(1, dir.path(), 7420), handshake_of(2, dir.path(), 7420));
        let good = one.hello(NodeId(2));
        let cases = [
            (Hello { version: 2, ..good.clone() }, Code::FailedPrecondition, "version 2"),
            (
                Hello { cluster: "b".into(), ..good.clone() },
                Code::FailedPrecondition,
                "this is node 2 of cluster 'dev'; the other side says it belongs to cluster 'b'",
            ),
            (Hello { to_node: 3, ..good.clone() }, Code::FailedPrecondition, "wants node 3"),
            (Hello { from_node: 9, ..good.clone() }, Code::PermissionDenied, "no node 9"),
            (Hello { from_node: 2, ..good.clone() }, Code::PermissionDenied, "that node itself"),
            (Hello { data_dir_id: "x".into(), ..good.clone() }, Code::InvalidArgument, "32"),
        ];
        for (hello, code, words) in cases {
            let status = Status::from(two.check_hello(&hello).unwrap_err());
            assert_eq!(status.code(), code, "{status}");
            assert!(status.message().contains(words), "{status}");
        }
    }

    #[test]
    fn a_wiped_node_is_refused_by_whom_it_dials_and_by_who_dials_it() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (handshake_of(1, dir.path(), 7420), handshake_of(2, dir.path(), 7420));
        one.check_hello(&two.hello(NodeId(1))).unwrap();

        std::fs::remove_dir_all(dir.path().join("node-2")).unwrap();
        let wiped = handshake_of(2, dir.path(), 7420);
        let status = Status::from(one.check_hello(&wiped.hello(NodeId(1))).unwrap_err());
        assert_eq!(status.code(), Code::FailedPrecondition);
        assert!(status.message().contains("lost its data directory"), "{status}");
        assert!(one.check_welcome(NodeId(2), &wiped.welcome()).is_err());
    }

    #[test]
    fn another_node_behind_the_address_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let (one, three) = (handshake_of(1, dir.path(), 7420), handshake_of(3, dir.path(), 7420));
        let words = one.check_welcome(NodeId(2), &three.welcome()).unwrap_err().to_string();
        assert!(words.contains("node 2 was expected") && words.contains("node 3"), "{words}");
    }
}
