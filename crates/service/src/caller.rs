//! Who asks for something, and by which way.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use holdfast_core::{CLAIMED_ROLES_MAX, Identity, Principal, RoleName, TokenId};
use holdfast_proto::peer_v1;

use crate::access::{Rights, ShownToken};

/// On whose behalf an action is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OnBehalfOf {
    /// A client that has not proved who it is.
    Anonymous,
    /// A client that has.
    Client(Identity),
    /// A node of the cluster, for what it does of its own accord.
    Node(u64),
}

const ANONYMOUS: &str = "anonymous";
const NODE_PREFIX: &str = "node:";

impl fmt::Display for OnBehalfOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OnBehalfOf::Anonymous => f.write_str(ANONYMOUS),
            OnBehalfOf::Client(identity) => identity.principal.fmt(f),
            OnBehalfOf::Node(node) => write!(f, "{NODE_PREFIX}{node}"),
        }
    }
}

/// The front end by which an action came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protocol {
    /// gRPC: calls and streams.
    Grpc,
    /// Frames without HTTP/2.
    Framed,
    /// The HTTP port.
    Http,
    /// None: the node itself.
    Internal,
}

/// By what a client has proved who it is. [`fmt::Display`] shows what is public of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credential {
    Token(ShownToken),
    /// The serial number of a certificate. Its connection ends with it.
    Certificate(Arc<str>),
    /// The key that signed it, and its id if it has one.
    Jwt {
        id: Arc<str>,
        until_unix_ms: u64,
    },
    /// The token of a new cluster's first administrator.
    Bootstrap,
}

const TOKEN_PREFIX: &str = "token:";
const CERTIFICATE_PREFIX: &str = "cert:";
const JWT_PREFIX: &str = "jwt:";
const BOOTSTRAP: &str = "bootstrap";
/// Of what another node says of a credential.
const CREDENTIAL_TEXT_MAX: usize = 256;

impl fmt::Display for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Credential::Token(token) => write!(f, "{TOKEN_PREFIX}{:016x}", token.id.0),
            Credential::Certificate(serial) => write!(f, "{CERTIFICATE_PREFIX}{serial}"),
            Credential::Jwt { id, .. } => write!(f, "{JWT_PREFIX}{id}"),
            Credential::Bootstrap => f.write_str(BOOTSTRAP),
        }
    }
}

impl Credential {
    /// A node of the build before says nothing of credentials other than tokens.
    fn from_wire(caller: &peer_v1::Caller) -> Result<Option<Credential>, NotACaller> {
        if !caller.token_digest.is_empty() {
            let digest = (&*caller.token_digest).try_into().map_err(|_| NotACaller)?;
            return Ok(Some(Credential::Token(ShownToken {
                id: TokenId(caller.token_id),
                digest,
            })));
        }
        let text = caller.credential.as_str();
        if text.len() > CREDENTIAL_TEXT_MAX {
            return Err(NotACaller);
        }
        let until_unix_ms = caller.credential_until_unix_ms;
        Ok(Some(match text {
            "" => return Ok(None),
            BOOTSTRAP => Credential::Bootstrap,
            _ => match (text.strip_prefix(CERTIFICATE_PREFIX), text.strip_prefix(JWT_PREFIX)) {
                (Some(serial), _) => Credential::Certificate(serial.into()),
                (_, Some(id)) => Credential::Jwt { id: id.into(), until_unix_ms },
                _ => return Err(NotACaller),
            },
        }))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    pub on_behalf_of: OnBehalfOf,
    /// Of the client's end of the connection.
    pub address: Option<IpAddr>,
    pub protocol: Protocol,
    /// The node at which the client is connected, if it is another one.
    pub forwarded_by: Option<u64>,
    /// By which a client has proved who it is.
    pub credential: Option<Credential>,
    pub(crate) rights: Rights,
}

impl Caller {
    /// A client that is connected to this node.
    pub fn client(protocol: Protocol, address: Option<IpAddr>) -> Caller {
        Caller {
            on_behalf_of: OnBehalfOf::Anonymous,
            address,
            protocol,
            forwarded_by: None,
            credential: None,
            rights: Rights::default(),
        }
    }

    /// The same client, which has proved who it is. It is that for as long as its credential is good.
    #[must_use]
    pub fn authenticated(self, identity: Identity, credential: Credential) -> Caller {
        let on_behalf_of = OnBehalfOf::Client(identity);
        Caller { on_behalf_of, credential: Some(credential), rights: Rights::default(), ..self }
    }

    /// A node that acts of its own accord.
    pub fn node(node: u64) -> Caller {
        let on_behalf_of = OnBehalfOf::Node(node);
        Caller { on_behalf_of, ..Caller::client(Protocol::Internal, None) }
    }

    /// The same client, as the node knows it to which this one has forwarded.
    #[must_use]
    pub fn forwarded_from(self, node: Option<u64>) -> Caller {
        Caller { forwarded_by: node, ..self }
    }

    /// Of a client that has proved who it is.
    pub fn identity(&self) -> Option<&Identity> {
        match &self.on_behalf_of {
            OnBehalfOf::Client(identity) => Some(identity),
            OnBehalfOf::Anonymous | OnBehalfOf::Node(_) => None,
        }
    }

    /// As the peer port carries it.
    pub fn to_wire(&self) -> peer_v1::Caller {
        let claimed_roles = match &self.on_behalf_of {
            OnBehalfOf::Client(identity) => {
                identity.claimed.iter().map(RoleName::to_string).collect()
            }
            OnBehalfOf::Anonymous | OnBehalfOf::Node(_) => Vec::new(),
        };
        peer_v1::Caller {
            principal: self.on_behalf_of.to_string(),
            claimed_roles,
            address: self.address.map(|address| address.to_string()).unwrap_or_default(),
            protocol: match self.protocol {
                Protocol::Grpc => peer_v1::Protocol::Grpc,
                Protocol::Framed => peer_v1::Protocol::Framed,
                Protocol::Http => peer_v1::Protocol::Http,
                Protocol::Internal => peer_v1::Protocol::Internal,
            }
            .into(),
            token_id: self.token().map_or(0, |token| token.id.0),
            token_digest: self.token().map(|token| token.digest.to_vec()).unwrap_or_default(),
            credential: self.credential.as_ref().map(Credential::to_string).unwrap_or_default(),
            credential_until_unix_ms: match self.credential {
                Some(Credential::Jwt { until_unix_ms, .. }) => until_unix_ms,
                _ => 0,
            },
        }
    }

    pub(crate) fn token(&self) -> Option<&ShownToken> {
        match &self.credential {
            Some(Credential::Token(token)) => Some(token),
            _ => None,
        }
    }

    /// What node `by` says of its client. A node speaks for its clients and for itself, and for no other node.
    pub fn forwarded(caller: &peer_v1::Caller, by: u64) -> Result<Caller, NotACaller> {
        let own = OnBehalfOf::Node(by);
        let on_behalf_of = match &*caller.principal {
            ANONYMOUS => OnBehalfOf::Anonymous,
            name if name == own.to_string() => own,
            name => OnBehalfOf::Client(identity(name, &caller.claimed_roles)?),
        };
        if !caller.claimed_roles.is_empty() && !matches!(on_behalf_of, OnBehalfOf::Client(_)) {
            return Err(NotACaller);
        }
        let address = match &*caller.address {
            "" => None,
            text => Some(text.parse().map_err(|_| NotACaller)?),
        };
        let protocol = match caller.protocol() {
            peer_v1::Protocol::Grpc => Protocol::Grpc,
            peer_v1::Protocol::Framed => Protocol::Framed,
            peer_v1::Protocol::Http => Protocol::Http,
            peer_v1::Protocol::Internal => Protocol::Internal,
            peer_v1::Protocol::Unspecified => return Err(NotACaller),
        };
        let (forwarded_by, credential) = (Some(by), Credential::from_wire(caller)?);
        Ok(Caller { on_behalf_of, forwarded_by, credential, ..Caller::client(protocol, address) })
    }
}

fn identity(principal: &str, claimed: &[String]) -> Result<Identity, NotACaller> {
    if claimed.len() > CLAIMED_ROLES_MAX {
        return Err(NotACaller);
    }
    let principal = Principal::parse(principal).map_err(|_| NotACaller)?;
    let claimed = claimed.iter().map(|role| RoleName::parse(role).map_err(|_| NotACaller));
    Ok(Identity { principal, claimed: claimed.collect::<Result<_, _>>()? })
}

/// Another node described the caller of a forwarded action in a way that this build does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotACaller;

/// By these headers nodes of version 0.1 told on whose behalf they forwarded a request to the leader's client port.
const IDENTITY_HEADERS: [&str; 2] = ["holdfast-forwarded-by", "holdfast-principal"];

/// The first of these header names by which a client claims an identity.
pub fn identity_header<'a>(names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    names.into_iter().find(|name| IDENTITY_HEADERS.iter().any(|own| name.eq_ignore_ascii_case(own)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_survives_the_way_to_the_leader() {
        let address = Some("192.0.2.7".parse().unwrap());
        for protocol in [Protocol::Grpc, Protocol::Framed, Protocol::Http] {
            let caller = Caller::client(protocol, address);
            let forwarded = Caller::forwarded(&caller.to_wire(), 3).unwrap();
            assert_eq!(forwarded, Caller { forwarded_by: Some(3), ..caller.clone() });
            let mut identity = Identity::of(Principal::parse("jwt:issuer:billing").unwrap());
            identity.claimed.insert(RoleName::parse("user").unwrap());
            for credential in [
                Credential::Token(ShownToken { id: TokenId(7), digest: [8; 32] }),
                Credential::Certificate("07:0f".into()),
                Credential::Jwt { id: "key-1:5".into(), until_unix_ms: 77 },
                Credential::Bootstrap,
            ] {
                let known = caller.clone().authenticated(identity.clone(), credential);
                let forwarded = Caller::forwarded(&known.to_wire(), 3).unwrap();
                assert_eq!(forwarded, Caller { forwarded_by: Some(3), ..known });
            }
        }
        let node = Caller::node(3);
        let forwarded = Caller::forwarded(&node.to_wire(), 3).unwrap();
        assert_eq!(forwarded.on_behalf_of, OnBehalfOf::Node(3));
    }

    #[test]
    fn a_node_cannot_claim_to_be_another_node() {
        let other = Caller::node(2).to_wire();
        assert_eq!(Caller::forwarded(&other, 3), Err(NotACaller));
    }

    #[test]
    fn an_incomplete_caller_is_refused() {
        let good = Caller::client(Protocol::Grpc, None).to_wire();
        for wrong in [
            peer_v1::Caller { principal: String::new(), ..good.clone() },
            peer_v1::Caller { principal: "root".into(), ..good.clone() },
            peer_v1::Caller { address: "here".into(), ..good.clone() },
            peer_v1::Caller { claimed_roles: vec!["user".into()], ..good.clone() },
            peer_v1::Caller {
                principal: "jwt:issuer:billing".into(),
                claimed_roles: vec!["No Role".into()],
                ..good.clone()
            },
            peer_v1::Caller { token_digest: vec![1; 31], ..good.clone() },
            peer_v1::Caller { credential: "password:x".into(), ..good.clone() },
            peer_v1::Caller { credential: "cert:1".repeat(100), ..good.clone() },
            peer_v1::Caller { protocol: 0, ..good.clone() },
            peer_v1::Caller { protocol: 99, ..good },
        ] {
            assert_eq!(Caller::forwarded(&wrong, 3), Err(NotACaller), "{wrong:?}");
        }
    }

    #[test]
    fn identity_headers_are_found_however_they_are_written() {
        assert_eq!(identity_header(["te", "Holdfast-Principal"]), Some("Holdfast-Principal"));
        assert_eq!(identity_header(["holdfast-forwarded-by"]), Some("holdfast-forwarded-by"));
        assert_eq!(identity_header(["te", "grpc-timeout", "traceparent"]), None);
    }
}
