//! The encoding of memberships in snapshots, and of notes and additions in the log.
//!
//! All numbers are little endian. A text is its length (`u16`) and its bytes. Every piece begins with a version, and an
//! unknown version is refused.

use std::collections::BTreeSet;

use thiserror::Error;

use super::{Configuration, MEMBERS_MAX, Member, Membership};
use crate::id::{ClusterId, DirectoryId, NodeId};

const VERSION: u8 = 1;
const TEXT_BYTES_MAX: usize = 300;
/// Between the halves of a change there are more than `MEMBERS_MAX`.
const NODES_MAX: usize = 2 * MEMBERS_MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum MembershipBytesError {
    #[error("a list of members ends too early")]
    Truncated,
    #[error("a list of members has version {found}; this build reads version {VERSION}")]
    UnknownVersion { found: u8 },
    #[error("a list of members is not possible: {0}")]
    Impossible(&'static str),
}

/// What a leader records about present members.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Note {
    pub(crate) cluster: Option<ClusterId>,
    pub(crate) members: Vec<(NodeId, Member)>,
}

impl Note {
    /// `version, cluster, count (u16), members`.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        put_id(&mut bytes, self.cluster.map(|cluster| cluster.0));
        put_members(&mut bytes, self.members.len(), self.members.iter().map(|(n, m)| (n, m)));
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Note, MembershipBytesError> {
        let mut rest = Rest::of(bytes)?;
        let note = Note { cluster: rest.id()?.map(ClusterId), members: rest.members()? };
        rest.end()?;
        Ok(note)
    }
}

/// The context of a change that adds a node: `version, node, member`.
pub(crate) fn encode_addition(node: NodeId, member: &Member) -> Vec<u8> {
    let mut bytes = vec![VERSION];
    put_member(&mut bytes, node, member);
    bytes
}

pub(crate) fn decode_addition(bytes: &[u8]) -> Result<(NodeId, Member), MembershipBytesError> {
    let mut rest = Rest::of(bytes)?;
    let addition = rest.member()?;
    rest.end()?;
    Ok(addition)
}

impl Membership {
    /// `version, cluster, highest, voters, outgoing, learners, members`.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        put_id(&mut bytes, self.cluster.map(|cluster| cluster.0));
        bytes.extend(self.highest.0.to_le_bytes());
        let Configuration { voters, outgoing, learners } = &self.configuration;
        for set in [voters, outgoing, learners] {
            put_count(&mut bytes, set.len());
            bytes.extend(set.iter().flat_map(|node| node.0.to_le_bytes()));
        }
        put_members(&mut bytes, self.members.len(), self.members.iter());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Membership, MembershipBytesError> {
        let mut rest = Rest::of(bytes)?;
        let cluster = rest.id()?.map(ClusterId);
        let highest = NodeId(rest.number()?);
        let configuration = Configuration {
            voters: rest.nodes()?,
            outgoing: rest.nodes()?,
            learners: rest.nodes()?,
        };
        let members = rest.members()?.into_iter().collect();
        rest.end()?;
        let membership = Membership { cluster, highest, configuration, members };
        let nodes = membership.configuration.nodes();
        if !membership.configuration.is_sound() {
            return Err(MembershipBytesError::Impossible("its voters and learners"));
        }
        if !nodes.iter().eq(membership.members.keys()) {
            return Err(MembershipBytesError::Impossible("members that have no role"));
        }
        if nodes.last().is_some_and(|last| *last > highest) {
            return Err(MembershipBytesError::Impossible("an id above the highest"));
        }
        Ok(membership)
    }
}

fn put_id(bytes: &mut Vec<u8>, id: Option<[u8; 16]>) {
    bytes.push(id.is_some().into());
    bytes.extend(id.unwrap_or_default());
}

/// No list is longer than `NODES_MAX`: longer ones are refused before they get here.
fn put_count(bytes: &mut Vec<u8>, count: usize) {
    bytes.extend((count as u16).to_le_bytes());
}

fn put_text(bytes: &mut Vec<u8>, text: &str) {
    put_count(bytes, text.len());
    bytes.extend(text.as_bytes());
}

fn put_members<'a>(
    bytes: &mut Vec<u8>,
    count: usize,
    members: impl Iterator<Item = (&'a NodeId, &'a Member)>,
) {
    put_count(bytes, count);
    for (node, member) in members {
        put_member(bytes, *node, member);
    }
}

fn put_member(bytes: &mut Vec<u8>, node: NodeId, member: &Member) {
    bytes.extend(node.0.to_le_bytes());
    put_text(bytes, &member.peer_address);
    put_text(bytes, &member.client_address);
    put_id(bytes, member.directory.map(|directory| directory.0));
    bytes.push(member.stays_learner.into());
    bytes.extend(member.replaces.map_or(0, |node| node.0).to_le_bytes());
}

/// What has not been read yet.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn of(bytes: &'a [u8]) -> Result<Rest<'a>, MembershipBytesError> {
        match bytes.split_first() {
            Some((&VERSION, rest)) => Ok(Rest(rest)),
            Some((found, _)) => Err(MembershipBytesError::UnknownVersion { found: *found }),
            None => Err(MembershipBytesError::Truncated),
        }
    }

    fn chunk<const N: usize>(&mut self) -> Result<[u8; N], MembershipBytesError> {
        let (chunk, rest) = self.0.split_first_chunk().ok_or(MembershipBytesError::Truncated)?;
        self.0 = rest;
        Ok(*chunk)
    }

    fn number(&mut self) -> Result<u64, MembershipBytesError> {
        self.chunk().map(u64::from_le_bytes)
    }

    fn flag(&mut self) -> Result<bool, MembershipBytesError> {
        match self.chunk::<1>()? {
            [0] => Ok(false),
            [1] => Ok(true),
            _ => Err(MembershipBytesError::Impossible("a flag that is neither 0 nor 1")),
        }
    }

    fn id(&mut self) -> Result<Option<[u8; 16]>, MembershipBytesError> {
        let is_known = self.flag()?;
        let id = self.chunk()?;
        Ok(is_known.then_some(id))
    }

    fn count(&mut self, most: usize) -> Result<usize, MembershipBytesError> {
        let count = usize::from(u16::from_le_bytes(self.chunk()?));
        if count > most {
            return Err(MembershipBytesError::Impossible("it is longer than any that is written"));
        }
        Ok(count)
    }

    fn nodes(&mut self) -> Result<BTreeSet<NodeId>, MembershipBytesError> {
        let count = self.count(NODES_MAX)?;
        (0..count).map(|_| self.number().map(NodeId)).collect()
    }

    fn text(&mut self) -> Result<String, MembershipBytesError> {
        let length = self.count(TEXT_BYTES_MAX)?;
        let (text, rest) =
            self.0.split_at_checked(length).ok_or(MembershipBytesError::Truncated)?;
        self.0 = rest;
        String::from_utf8(text.to_vec())
            .map_err(|_| MembershipBytesError::Impossible("an address that is no text"))
    }

    fn member(&mut self) -> Result<(NodeId, Member), MembershipBytesError> {
        let node = NodeId(self.number()?);
        let member = Member {
            peer_address: self.text()?,
            client_address: self.text()?,
            directory: self.id()?.map(DirectoryId),
            stays_learner: self.flag()?,
            replaces: Some(NodeId(self.number()?)).filter(|node| *node != NodeId(0)),
        };
        Ok((node, member))
    }

    fn members(&mut self) -> Result<Vec<(NodeId, Member)>, MembershipBytesError> {
        let count = self.count(NODES_MAX)?;
        (0..count).map(|_| self.member()).collect()
    }

    fn end(&self) -> Result<(), MembershipBytesError> {
        match self.0 {
            [] => Ok(()),
            _ => Err(MembershipBytesError::Impossible("it goes on after its end")),
        }
    }
}

pub(super) fn is_short_enough(address: &str) -> bool {
    address.len() <= TEXT_BYTES_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Membership {
        let mut group = Membership::founded_by(&[NodeId(1), NodeId(2), NodeId(3)]);
        let member = Member {
            peer_address: "10.0.0.4:7421".into(),
            client_address: "node-4.example:7420".into(),
            directory: Some(DirectoryId([7; 16])),
            stays_learner: true,
            replaces: Some(NodeId(2)),
        };
        let mut configuration = group.configuration.clone();
        configuration.learners.insert(NodeId(4));
        group.add(NodeId(4), member, configuration);
        group.note(&Note { cluster: Some(ClusterId([3; 16])), members: Vec::new() });
        group.configuration.outgoing = [1, 2].map(NodeId).into();
        group
    }

    #[test]
    fn a_membership_is_read_back_as_written() {
        let group = example();
        assert_eq!(Membership::decode(&group.encode()), Ok(group.clone()));
        let (node, member) = group.members.last_key_value().unwrap();
        let addition = encode_addition(*node, member);
        assert_eq!(decode_addition(&addition), Ok((*node, member.clone())));
        let note = Note { cluster: group.cluster, members: group.members.into_iter().collect() };
        assert_eq!(Note::decode(&note.encode()), Ok(note));
    }

    #[test]
    fn a_truncated_or_overlong_membership_is_refused() {
        let bytes = example().encode();
        for length in 0..bytes.len() {
            assert!(Membership::decode(&bytes[..length]).is_err(), "{length}");
        }
        assert!(Membership::decode(&[&bytes[..], &[0]].concat()).is_err());
        let newer = [&[2], &bytes[1..]].concat();
        let error = Membership::decode(&newer).unwrap_err().to_string();
        assert!(error.contains("version 2"), "{error}");
    }

    #[test]
    fn an_impossible_membership_is_refused() {
        let mut no_voters = example();
        no_voters.configuration.voters.clear();
        assert!(Membership::decode(&no_voters.encode()).is_err());
        let mut both = example();
        both.configuration.learners.insert(NodeId(1));
        assert!(Membership::decode(&both.encode()).is_err());
        let mut incomplete = example();
        incomplete.members.remove(&NodeId(4));
        assert!(Membership::decode(&incomplete.encode()).is_err());
        let mut above = example();
        above.highest = NodeId(3);
        assert!(Membership::decode(&above.encode()).is_err());
    }
}
