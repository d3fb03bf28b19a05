//! Who speaks to whom: the checks that both sides make before a message passes.
//!
//! Caveat: this keeps mistakes out (a copied configuration, a wiped node, a removed node, two clusters on
//! one machine), not attackers. With `[peer_tls]`, the certificate of the other side must name the node that the hello
//! names. Without it, every program that reaches the peer port can claim to be any node.

use std::sync::Arc;

use holdfast_proto::peer_v1::{Hello, Timing, Welcome};
use holdfast_replica::{Member, NodeId};
use holdfast_service::AuthMode;
use tonic::{Code, Status};

use super::PROTOCOL_VERSION;
use super::peer_socket::Shown;
use crate::config::Address;
use crate::identity::{DataDirId, Identity, cluster_text};
use crate::known_peers::{KnownPeers, StrangerError};
use crate::membership::Membership;
use crate::transport::Transport;

/// In the metadata of a refusal: the caller was removed from the cluster, and may stop.
pub(super) const REMOVED_KEY: &str = "holdfast-removed";

/// The newest format of log entries that this build reads: 1 has the membership in the log, 2 also how far events
/// are published, 3 the rules of the lock table that the cluster has adopted, 4 rules 3 of
/// them, 5 rules 4, 6 rules 5, 7 rules 6, 8 rules 7, 9 rules 8, 10 rules 9.
pub(crate) const LOG_VERSION: u32 = 10;

#[derive(Debug)]
pub(crate) struct Handshake {
    pub(super) identity: Identity,
    pub(super) membership: Arc<Membership>,
    known_peers: KnownPeers,
    timing: Timing,
    auth_mode: AuthMode,
    pub(super) transport: Transport,
}

/// The other side, let in.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) node: NodeId,
    /// What it says of itself.
    pub(super) member: Member,
    pub(super) log_version: u32,
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
    #[error("{me}; the other side belongs to another cluster of that name")]
    OtherClusterOfThatName { me: String },
    #[error("{me}; the caller wants node {wanted}: its address for that node is wrong")]
    NotTheOneWanted { me: String, wanted: u64 },
    #[error("{me}; node {wanted} was expected at this address, and node {found} answered")]
    AnotherAnswered { me: String, wanted: NodeId, found: u64 },
    #[error("{me}, which has no node {caller}; `holdfast cluster add` adds one")]
    NotAMember { me: String, caller: u64 },
    #[error(
        "{me}; node {caller} was removed from the cluster, and an id is used once: stop that node, and \
         `holdfast cluster add` a new one under a new id and with an empty data directory"
    )]
    Removed { me: String, caller: u64 },
    #[error("{me}; the caller says it is node {caller}, and its certificate is {certificate}")]
    OtherCertificate { me: String, caller: u64, certificate: String },
    #[error("{me}; the caller says it is that node itself")]
    Myself { me: String },
    #[error(
        "{me}, with tick_ms = {} and election_ticks = {}; the other side has tick_ms = {} and election_ticks = {}. \
         They have to be the same on all nodes: correct the configuration of one of them, and restart it",
        ours.tick_ms, ours.election_ticks, theirs.tick_ms, theirs.election_ticks
    )]
    OtherTiming { me: String, ours: Timing, theirs: Timing },
    #[error(
        "{me}, with groups = {ours}; the other side has groups = {theirs}. It has to be the same on all nodes: correct the \
         configuration of the node that is new, and start it with an empty data directory"
    )]
    OtherGroups { me: String, ours: u32, theirs: u32 },
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
        timing: Timing,
        auth_mode: AuthMode,
        transport: Transport,
    ) -> Handshake {
        Handshake { identity, membership, known_peers, timing, auth_mode, transport }
    }

    pub(super) fn hello(&self, to: NodeId) -> Hello {
        let own = self.membership.own();
        Hello {
            version: PROTOCOL_VERSION,
            cluster: self.identity.cluster.clone(),
            from_node: self.identity.node.0,
            to_node: to.0,
            data_dir_id: self.identity.data_dir.to_string(),
            cluster_id: cluster_text(self.membership.now().cluster),
            peer_address: own.peer_address,
            client_address: own.client_address,
            log_version: LOG_VERSION,
            timing: Some(self.timing),
            auth_mode: self.auth_mode.name().to_owned(),
            groups: self.groups_on_wire(),
        }
    }

    /// With the ticket for one wire.
    pub(super) fn welcome(&self, wire_pass: Vec<u8>) -> Welcome {
        let own = self.membership.own();
        Welcome {
            version: PROTOCOL_VERSION,
            cluster: self.identity.cluster.clone(),
            node: self.identity.node.0,
            data_dir_id: self.identity.data_dir.to_string(),
            cluster_id: cluster_text(self.membership.now().cluster),
            peer_address: own.peer_address,
            client_address: own.client_address,
            log_version: LOG_VERSION,
            wire_pass,
            timing: Some(self.timing),
            auth_mode: self.auth_mode.name().to_owned(),
            groups: self.groups_on_wire(),
        }
    }

    /// Who dials.
    pub(super) fn check_hello(&self, hello: &Hello, shown: &Shown) -> Result<Peer, Refusal> {
        self.check_shown(hello.from_node, shown)?;
        self.check_cluster(hello.version, &hello.cluster, &hello.cluster_id)?;
        let me = self.describe_self();
        if hello.to_node != self.identity.node.0 {
            return Err(Refusal::NotTheOneWanted { me, wanted: hello.to_node });
        }
        let caller = NodeId(hello.from_node);
        if caller == self.identity.node {
            return Err(Refusal::Myself { me });
        }
        self.check_member(caller, &hello.cluster_id)?;
        self.check_timing(hello.timing)?;
        self.check_groups(hello.groups)?;
        self.compare_mode(caller, &hello.auth_mode);
        let directory = self.check_data_dir(caller, &hello.data_dir_id)?;
        let member = self_reported_member(&hello.peer_address, &hello.client_address, directory);
        Ok(Peer { node: caller, member, log_version: hello.log_version })
    }

    /// Who answered at the address of `wanted`.
    pub(super) fn check_welcome(&self, wanted: NodeId, welcome: &Welcome) -> Result<Peer, Refusal> {
        self.check_cluster(welcome.version, &welcome.cluster, &welcome.cluster_id)?;
        if welcome.node != wanted.0 {
            let me = self.describe_self();
            return Err(Refusal::AnotherAnswered { me, wanted, found: welcome.node });
        }
        self.check_timing(welcome.timing)?;
        self.check_groups(welcome.groups)?;
        self.compare_mode(wanted, &welcome.auth_mode);
        let directory = self.check_data_dir(wanted, &welcome.data_dir_id)?;
        let member =
            self_reported_member(&welcome.peer_address, &welcome.client_address, directory);
        Ok(Peer { node: wanted, member, log_version: welcome.log_version })
    }

    /// Whether what the connection shows is that node.
    fn check_shown(&self, caller: u64, shown: &Shown) -> Result<(), Refusal> {
        let me = self.describe_self();
        match shown {
            Shown::Nothing => Ok(()),
            Shown::Certificate(shown) if shown.node() == Some(caller) => Ok(()),
            Shown::Certificate(shown) => {
                let certificate = shown.name().to_string();
                Err(Refusal::OtherCertificate { me, caller, certificate })
            }
        }
    }

    /// The refusal for a node that was a member when it connected.
    pub(super) fn removed(&self, caller: NodeId) -> Option<Refusal> {
        let removed = self.membership.now().was_removed(caller);
        removed.then(|| Refusal::Removed { me: self.describe_self(), caller: caller.0 })
    }

    fn check_cluster(&self, version: u32, cluster: &str, id: &str) -> Result<(), Refusal> {
        let me = self.describe_self();
        if version != PROTOCOL_VERSION {
            return Err(Refusal::Version { me, theirs: version });
        }
        if cluster != self.identity.cluster {
            return Err(Refusal::OtherCluster { me, theirs: cluster.to_owned() });
        }
        let ours = cluster_text(self.membership.now().cluster);
        if !ours.is_empty() && !id.is_empty() && ours != id {
            return Err(Refusal::OtherClusterOfThatName { me });
        }
        Ok(())
    }

    /// A change of the mode goes from node to node, so nodes may differ for a while.
    fn compare_mode(&self, node: NodeId, theirs: &str) {
        if let Some(words) = mode_difference(self.auth_mode, node, theirs) {
            tracing::warn!("{words}");
        }
    }

    /// An older node does not say.
    fn check_timing(&self, theirs: Option<Timing>) -> Result<(), Refusal> {
        match theirs {
            Some(theirs) if theirs != self.timing => {
                Err(Refusal::OtherTiming { me: self.describe_self(), ours: self.timing, theirs })
            }
            _ => Ok(()),
        }
    }

    /// A node with one group does not say, as older nodes.
    fn check_groups(&self, theirs: u32) -> Result<(), Refusal> {
        let (ours, theirs) = (self.identity.groups, theirs.max(1));
        if ours == theirs {
            return Ok(());
        }
        Err(Refusal::OtherGroups { me: self.describe_self(), ours, theirs })
    }

    /// What the node says: nothing if it has one group.
    fn groups_on_wire(&self) -> u32 {
        Some(self.identity.groups).filter(|groups| *groups > 1).unwrap_or_default()
    }

    /// A member, or one that may have been added by entries that this node does not have yet: it knows the
    /// id of the cluster, which only its members do.
    fn check_member(&self, caller: NodeId, cluster_id: &str) -> Result<(), Refusal> {
        let now = self.membership.now();
        if let Some(refusal) = self.removed(caller) {
            return Err(refusal);
        }
        let ours = cluster_text(now.cluster);
        let knows_nobody = now.cluster.is_none() && now.configuration.voters.is_empty();
        let is_newer = !cluster_id.is_empty() && (ours == cluster_id || knows_nobody);
        if now.is_member(caller) || is_newer {
            return Ok(());
        }
        Err(Refusal::NotAMember { me: self.describe_self(), caller: caller.0 })
    }

    fn check_data_dir(&self, node: NodeId, text: &str) -> Result<DataDirId, Refusal> {
        let shown = DataDirId::parse(text).ok_or(Refusal::MalformedDataDir)?;
        if self.membership.has_other_directory(node, shown.into()) {
            return Err(StrangerError::OtherDirectory { node, shown }.into());
        }
        let now = self.membership.now();
        if now.members.get(&node).is_some_and(|member| member.directory.is_none()) {
            self.known_peers.admit(node, shown)?;
        }
        Ok(shown)
    }

    fn describe_self(&self) -> String {
        format!("this is node {} of cluster '{}'", self.identity.node, self.identity.cluster)
    }
}

/// Addresses that are none are left out: older nodes do not say theirs.
fn self_reported_member(peer: &str, client: &str, directory: DataDirId) -> Member {
    let checked = |text: &str| Address::new(text).map(|address| address.to_string());
    Member {
        peer_address: checked(peer).unwrap_or_default(),
        client_address: checked(client).unwrap_or_default(),
        directory: Some(directory.into()),
        ..Member::default()
    }
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Status {
        let words = refusal.to_string();
        match refusal {
            Refusal::MalformedDataDir => Status::invalid_argument(words),
            Refusal::Removed { .. } => {
                let mut status = Status::new(Code::PermissionDenied, words);
                status.metadata_mut().insert(REMOVED_KEY, 1.into());
                status
            }
            Refusal::NotAMember { .. } | Refusal::Myself { .. } => Status::permission_denied(words),
            Refusal::OtherCertificate { .. } => Status::unauthenticated(words),
            // The disk, not the caller.
            Refusal::Stranger(StrangerError::NotRemembered { .. }) => Status::unavailable(words),
            Refusal::Version { .. }
            | Refusal::OtherCluster { .. }
            | Refusal::OtherClusterOfThatName { .. }
            | Refusal::NotTheOneWanted { .. }
            | Refusal::AnotherAnswered { .. }
            | Refusal::OtherTiming { .. }
            | Refusal::OtherGroups { .. }
            | Refusal::Stranger(StrangerError::OtherDirectory { .. }) => {
                Status::failed_precondition(words)
            }
        }
    }
}

/// The words for an operator. A client is checked by the node that leads, whatever the others demand.
fn mode_difference(ours: AuthMode, node: NodeId, theirs: &str) -> Option<String> {
    let theirs: AuthMode = theirs.parse().ok().filter(|theirs| *theirs != ours)?;
    Some(format!(
        "node {node} has auth.mode = \"{}\", and this node \"{}\"; the mode of the leader is in force for all clients: \
         set the same on all nodes",
        theirs.name(),
        ours.name()
    ))
}

#[cfg(test)]
pub(super) mod tests {
    use std::path::Path;

    use holdfast_replica::{ClusterId, DirectoryId, GroupId, Membership as Replicated};

    use super::*;
    use crate::config::NodeConfig;

    /// Node `node` of a cluster of three, with a data directory of its own.
    pub(in crate::peers) fn handshake_of(node: usize, dir: &Path, base_port: u16) -> Handshake {
        let configs = NodeConfig::dev_cluster(3, dir, base_port).unwrap();
        let config = &configs[node - 1];
        let identity = Identity::load_or_create(
            &config.data_dir,
            &config.cluster,
            config.node_id(),
            config.groups,
        )
        .unwrap();
        let known_peers = KnownPeers::load(&config.data_dir).unwrap();
        let initial_members = [1, 2, 3].map(NodeId);
        let membership = Arc::new(Membership::of(config, &initial_members));
        let (timing, transport) = (config.timing(), Transport::default());
        Handshake::new(identity, membership, known_peers, timing, AuthMode::Off, transport)
    }

    #[test]
    fn nodes_tell_each_other_their_mode_and_a_difference_is_worth_a_warning() {
        let dir = tempfile::tempdir().unwrap();
        let one = handshake_of(1, dir.path(), 7420);
        let (hello, welcome) = (one.hello(NodeId(2)), one.welcome(Vec::new()));
        assert_eq!((&*hello.auth_mode, &*welcome.auth_mode), ("off", "off"));
        let of = |theirs| mode_difference(AuthMode::Required, NodeId(3), theirs);
        for theirs in ["required", "", "of a later version"] {
            assert_eq!(of(theirs), None, "{theirs:?}");
        }
        for theirs in ["off", "permissive"] {
            let words = of(theirs).unwrap();
            assert!(words.contains("node 3") && words.contains(theirs), "{words}");
        }
    }

    #[test]
    fn nodes_with_different_ticks_refuse_each_other_and_an_older_node_without_ticks_is_admitted() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (handshake_of(1, dir.path(), 7420), handshake_of(2, dir.path(), 7420));
        let good = one.timing;
        assert_eq!((good.tick_ms, good.election_ticks), (50, 10));
        for other in [Timing { tick_ms: 60, ..good }, Timing { election_ticks: 20, ..good }] {
            let hello = Hello { timing: Some(other), ..one.hello(NodeId(2)) };
            let status = Status::from(two.check_hello(&hello, &Shown::Nothing).unwrap_err());
            assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
            assert!(status.message().contains("tick_ms = 50"), "{status}");
            assert!(status.message().contains("the same on all nodes"), "{status}");
            let welcome = Welcome { timing: Some(other), ..two.welcome(Vec::new()) };
            let words = one.check_welcome(NodeId(2), &welcome).unwrap_err().to_string();
            assert!(words.contains("the same on all nodes"), "{words}");
        }
        two.check_hello(&Hello { timing: None, ..one.hello(NodeId(2)) }, &Shown::Nothing).unwrap();
        let older = Welcome { timing: None, ..two.welcome(Vec::new()) };
        one.check_welcome(NodeId(2), &older).unwrap();
    }

    #[test]
    fn nodes_with_different_numbers_of_groups_refuse_each_other() {
        let dir = tempfile::tempdir().unwrap();
        let (one, mut two) = (handshake_of(1, dir.path(), 7420), handshake_of(2, dir.path(), 7420));
        let hello = one.hello(NodeId(2));
        assert_eq!(hello.groups, 0, "a node with one group says what older nodes say");
        two.identity.groups = 4;
        let status = Status::from(two.check_hello(&hello, &Shown::Nothing).unwrap_err());
        assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
        assert!(status.message().contains("with groups = 4"), "{status}");
        let welcome = two.welcome(Vec::new());
        assert_eq!(welcome.groups, 4);
        let words = one.check_welcome(NodeId(2), &welcome).unwrap_err().to_string();
        assert!(words.contains("the other side has groups = 4"), "{words}");
        two.check_hello(&Hello { groups: 4, ..hello }, &Shown::Nothing).unwrap();
    }

    #[test]
    fn two_nodes_of_one_cluster_let_each_other_in() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (handshake_of(1, dir.path(), 7420), handshake_of(2, dir.path(), 7420));
        assert_eq!(
            two.check_hello(&one.hello(NodeId(2)), &Shown::Nothing).unwrap().node,
            NodeId(1)
        );
        one.check_welcome(NodeId(2), &two.welcome(Vec::new())).unwrap();
    }

    #[test]
    fn every_wrong_hello_is_refused_with_its_own_error() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (handshake_of(1, dir.path(), 7420), handshake_of(2, dir.path(), 7420));
        let good = one.hello(NodeId(2));
        let cases = [
            (Hello { version: 1, ..good.clone() }, Code::FailedPrecondition, "version 1"),
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
            let status = Status::from(two.check_hello(&hello, &Shown::Nothing).unwrap_err());
            assert_eq!(status.code(), code, "{status}");
            assert!(status.message().contains(words), "{status}");
        }
    }

    #[test]
    fn a_wiped_node_is_refused_as_caller_and_as_callee() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (handshake_of(1, dir.path(), 7420), handshake_of(2, dir.path(), 7420));
        one.check_hello(&two.hello(NodeId(1)), &Shown::Nothing).unwrap();

        std::fs::remove_dir_all(dir.path().join("node-2")).unwrap();
        let wiped = handshake_of(2, dir.path(), 7420);
        let status =
            Status::from(one.check_hello(&wiped.hello(NodeId(1)), &Shown::Nothing).unwrap_err());
        assert_eq!(status.code(), Code::FailedPrecondition);
        assert!(status.message().contains("lost its data directory"), "{status}");
        assert!(one.check_welcome(NodeId(2), &wiped.welcome(Vec::new())).is_err());
    }

    /// What every member knows once the cluster has written it down.
    fn written_down(handshake: &Handshake) -> Replicated {
        let mut known = (*handshake.membership.now()).clone();
        known.cluster = Some(ClusterId([7; 16]));
        known
    }

    #[test]
    fn a_removed_node_gets_an_error_and_an_unknown_newer_node_is_admitted() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (handshake_of(1, dir.path(), 7420), handshake_of(2, dir.path(), 7420));
        let mut known = written_down(&two);
        known.members.remove(&NodeId(1));
        known.configuration.voters.remove(&NodeId(1));
        two.membership.publish(GroupId::FIRST, known);
        let status =
            Status::from(two.check_hello(&one.hello(NodeId(2)), &Shown::Nothing).unwrap_err());
        assert!(status.metadata().contains_key(REMOVED_KEY), "{status:?}");
        assert!(status.message().contains("was removed"), "{status}");

        let mut newer = one.hello(NodeId(2));
        newer.from_node = 9;
        let status = Status::from(two.check_hello(&newer, &Shown::Nothing).unwrap_err());
        assert!(status.message().contains("no node 9"), "{status}");
        newer.cluster_id = cluster_text(Some(ClusterId([7; 16])));
        assert_eq!(two.check_hello(&newer, &Shown::Nothing).unwrap().node, NodeId(9));
        newer.cluster_id = cluster_text(Some(ClusterId([8; 16])));
        let status = Status::from(two.check_hello(&newer, &Shown::Nothing).unwrap_err());
        assert!(status.message().contains("another cluster of that name"), "{status}");
    }

    #[test]
    fn the_replicated_directory_counts_though_this_node_never_met_the_other() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (handshake_of(1, dir.path(), 7420), handshake_of(2, dir.path(), 7420));
        let mut known = written_down(&two);
        known.members.get_mut(&NodeId(1)).unwrap().directory = Some(DirectoryId([1; 16]));
        two.membership.publish(GroupId::FIRST, known);
        let status =
            Status::from(two.check_hello(&one.hello(NodeId(2)), &Shown::Nothing).unwrap_err());
        assert!(status.message().contains("cluster remove 1"), "{status}");
    }

    #[test]
    fn another_node_behind_the_address_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let (one, three) = (handshake_of(1, dir.path(), 7420), handshake_of(3, dir.path(), 7420));
        let words =
            one.check_welcome(NodeId(2), &three.welcome(Vec::new())).unwrap_err().to_string();
        assert!(words.contains("node 2 was expected") && words.contains("node 3"), "{words}");
    }
}
