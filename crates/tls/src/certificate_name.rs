//! What a certificate is for, as the URI in it says.

use std::fmt;

use thiserror::Error;

const SCHEME: &str = "holdfast://";
const CLUSTER_BYTES_MAX: usize = 64;
const CLIENT_BYTES_MAX: usize = 128;

/// `holdfast://CLUSTER/node/ID`, `holdfast://CLUSTER/client/NAME` or `holdfast://CLUSTER/ca`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CertificateName {
    cluster: String,
    subject: Subject,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Subject {
    /// A node of the cluster, by its id.
    Node(u64),
    /// A client, by the name of its principal.
    Client(String),
    /// The one that signs.
    Authority,
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CertificateNameError {
    #[error(
        "cluster '{0}': the name has 1 to {CLUSTER_BYTES_MAX} characters, each one of a-z, 0-9 and -"
    )]
    Cluster(String),
    #[error(
        "client '{0}': the name has 1 to {CLIENT_BYTES_MAX} characters, each one of a-z, A-Z, 0-9, '.', '_', '@' and '-'"
    )]
    Client(String),
    #[error("node 0: a node's id is 1 or more")]
    NodeZero,
    #[error("'{0}' is not holdfast://CLUSTER/node/ID or holdfast://CLUSTER/client/NAME")]
    Uri(String),
}

impl CertificateName {
    pub fn new(cluster: &str, subject: Subject) -> Result<CertificateName, CertificateNameError> {
        let in_cluster = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if !is_made_of(cluster, CLUSTER_BYTES_MAX, in_cluster) {
            return Err(CertificateNameError::Cluster(cluster.to_owned()));
        }
        let in_client = |c: char| c.is_ascii_alphanumeric() || "._@-".contains(c);
        match &subject {
            Subject::Node(0) => return Err(CertificateNameError::NodeZero),
            Subject::Client(name) if !is_made_of(name, CLIENT_BYTES_MAX, in_client) => {
                return Err(CertificateNameError::Client(name.clone()));
            }
            Subject::Node(_) | Subject::Client(_) | Subject::Authority => {}
        }
        Ok(CertificateName { cluster: cluster.to_owned(), subject })
    }

    /// Reads what [`Display`](fmt::Display) writes, and nothing else: one certificate has one name.
    pub fn parse(uri: &str) -> Result<CertificateName, CertificateNameError> {
        let unknown = || CertificateNameError::Uri(uri.to_owned());
        let rest = uri.strip_prefix(SCHEME).ok_or_else(unknown)?;
        let (cluster, subject) = rest.split_once('/').ok_or_else(unknown)?;
        let subject = match subject.split_once('/') {
            Some(("node", id)) => Subject::Node(id.parse().map_err(|_| unknown())?),
            Some(("client", name)) => Subject::Client(name.to_owned()),
            None if subject == "ca" => Subject::Authority,
            _ => return Err(unknown()),
        };
        let name = CertificateName::new(cluster, subject)?;
        if name.to_string() == uri { Ok(name) } else { Err(unknown()) }
    }

    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    pub fn subject(&self) -> &Subject {
        &self.subject
    }
}

fn is_made_of(text: &str, bytes_max: usize, allowed: impl Fn(char) -> bool) -> bool {
    (1..=bytes_max).contains(&text.len()) && text.chars().all(allowed)
}

impl fmt::Display for CertificateName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CertificateName { cluster, subject } = self;
        match subject {
            Subject::Node(id) => write!(f, "{SCHEME}{cluster}/node/{id}"),
            Subject::Client(name) => write!(f, "{SCHEME}{cluster}/client/{name}"),
            Subject::Authority => write!(f, "{SCHEME}{cluster}/ca"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_uri_is_read_only_as_it_is_written(text in "(holdfast://)?[a-z0-9/+.%]{0,24}") {
            if let Ok(name) = CertificateName::parse(&text) {
                prop_assert_eq!(name.to_string(), text);
            }
        }

        #[test]
        fn names_are_written_and_read(cluster in "[a-z0-9-]{1,64}", id in 1_u64.., client in "[A-Za-z0-9._@-]{1,128}") {
            for subject in [Subject::Node(id), Subject::Client(client), Subject::Authority] {
                let name = CertificateName::new(&cluster, subject).unwrap();
                prop_assert_eq!(CertificateName::parse(&name.to_string()), Ok(name));
            }
        }
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_refused() {
        for wrong in [
            "holdfast://test/node/03",
            "holdfast://test/node/+3",
            "holdfast://test/node/0",
            "holdfast://test/node/3/",
            "holdfast://test/node/3/x",
            "holdfast://test/client/a/b",
            "holdfast://test/client/",
            "holdfast://test/client/a%2fb",
            "holdfast://TEST/node/3",
            "holdfast:///node/3",
            "https://test/node/3",
        ] {
            assert!(CertificateName::parse(wrong).is_err(), "{wrong}");
        }
    }
}
