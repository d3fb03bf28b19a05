//! What the other end of a connection has shown.

use std::sync::Arc;

use rustls::{CommonState, Error};
use rustls_pki_types::{CertificateDer, UnixTime};
use time::OffsetDateTime;

use crate::certificate_name::{CertificateName, Subject};
use crate::details::Details;
use crate::verify::Check;

/// The certificate of the other end. It was verified when the connection was made.
#[derive(Clone, Debug)]
pub struct RemoteCertificate {
    name: CertificateName,
    ends_at: OffsetDateTime,
    serial: Arc<str>,
    chain: Arc<[CertificateDer<'static>]>,
}

impl RemoteCertificate {
    /// `None` if the other end has shown none, or none with a name of Holdfast.
    pub fn of(connection: &CommonState) -> Option<RemoteCertificate> {
        let chain = connection.peer_certificates()?;
        let details = Details::of(chain.first()?).ok()?;
        let (name, ends_at) = (details.name?, details.not_after);
        let serial: String = details.serial.iter().map(|byte| format!("{byte:02x}")).collect();
        Some(RemoteCertificate {
            name,
            ends_at,
            serial: serial.into(),
            chain: chain.to_vec().into(),
        })
    }

    /// The name of the client, if it is a client's.
    pub fn client(&self) -> Option<&str> {
        match self.name.subject() {
            Subject::Client(name) => Some(name),
            Subject::Node(_) | Subject::Authority => None,
        }
    }

    /// The id of the node, if it is a node's.
    pub fn node(&self) -> Option<u64> {
        match self.name.subject() {
            Subject::Node(id) => Some(*id),
            Subject::Client(_) | Subject::Authority => None,
        }
    }

    /// Equal for connections that have shown the same certificates.
    pub fn bytes(&self) -> Vec<Vec<u8>> {
        self.chain.iter().map(|certificate| certificate.to_vec()).collect()
    }

    pub fn name(&self) -> &CertificateName {
        &self.name
    }

    /// In hexadecimal digits, as `holdfast cert show` prints it.
    pub fn serial(&self) -> &Arc<str> {
        &self.serial
    }

    pub fn is_over(&self, now: OffsetDateTime) -> bool {
        now > self.ends_at
    }

    /// Whether it would be accepted now.
    pub fn check_again(&self, check: &Check) -> Result<(), Error> {
        check.verify(&self.chain, UnixTime::now())
    }
}
