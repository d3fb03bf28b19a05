//! Is the certificate at the other end one that we want there?

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls13_signature};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, SignatureScheme,
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use thiserror::Error as ThisError;
use webpki::{
    EndEntityCert, ExpirationPolicy, KeyUsage, RevocationCheckDepth, RevocationOptionsBuilder,
    UnknownStatusPolicy,
};

use crate::certificate_name::{CertificateName, Subject};
use crate::details::only_name;
use crate::files::{TrustFiles, TrustedAuthority};

/// Whom we want at the other end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// A node of the cluster.
    Node { cluster: String },
    /// This node of the cluster.
    OneNode { cluster: String, id: u64 },
    /// Who has a certificate for the host that was dialled, of whichever cluster.
    Host,
    /// A client of the cluster.
    Client { cluster: String },
}

/// A good certificate of the wrong one.
#[derive(Clone, Debug, PartialEq, Eq, ThisError)]
enum NotWanted {
    #[error("the certificate has no name of Holdfast: wanted {wanted}")]
    NoName { wanted: String },
    #[error("the certificate is for {found}: wanted {wanted}")]
    Other { found: CertificateName, wanted: String },
}

#[derive(Debug)]
pub(crate) struct Verifier {
    pub(crate) wanted: Wanted,
    pub(crate) trust: TrustFiles,
    pub(crate) provider: Arc<CryptoProvider>,
    /// Whether the other end may go without a certificate; for clients only.
    pub(crate) optional: bool,
}

/// Checks a certificate again that is in use: it can be over or revoked by now.
#[derive(Debug)]
pub struct Check(Verifier);

impl Check {
    /// As the client port does.
    pub fn clients(cluster: &str, trust: TrustFiles) -> Check {
        Check::new(Wanted::Client { cluster: cluster.to_owned() }, trust)
    }

    /// As the peer port does.
    pub fn nodes(cluster: &str, trust: TrustFiles) -> Check {
        Check::new(Wanted::Node { cluster: cluster.to_owned() }, trust)
    }

    fn new(wanted: Wanted, trust: TrustFiles) -> Check {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        Check(Verifier { wanted, trust, provider, optional: false })
    }

    /// The chain begins with the certificate itself.
    pub fn verify(&self, chain: &[CertificateDer<'_>], now: UnixTime) -> Result<(), Error> {
        let (certificate, between) = chain.split_first().ok_or(Error::NoCertificatesPresented)?;
        self.0.verify(certificate, between, KeyUsage::client_auth(), None, now)
    }
}

/// The name in the certificate of the other end. It was verified when the connection was made.
pub fn name_in(certificates: Option<&[CertificateDer<'_>]>) -> Option<CertificateName> {
    let certificate = EndEntityCert::try_from(certificates?.first()?).ok()?;
    name_of(&certificate)
}

fn name_of(certificate: &EndEntityCert<'_>) -> Option<CertificateName> {
    only_name(&certificate.valid_uri_names().collect::<Vec<_>>())
}

impl Wanted {
    fn accepts(&self, name: &CertificateName) -> bool {
        match self {
            Wanted::Node { cluster } => {
                name.cluster() == cluster && matches!(name.subject(), Subject::Node(_))
            }
            Wanted::OneNode { cluster, id } => {
                name.cluster() == cluster && *name.subject() == Subject::Node(*id)
            }
            Wanted::Host => true,
            Wanted::Client { cluster } => {
                name.cluster() == cluster && matches!(name.subject(), Subject::Client(_))
            }
        }
    }

    fn words(&self) -> String {
        match self {
            Wanted::Node { cluster } => format!("a node of cluster '{cluster}'"),
            Wanted::OneNode { cluster, id } => format!("node {id} of cluster '{cluster}'"),
            Wanted::Host => "the host that was dialled".to_owned(),
            Wanted::Client { cluster } => format!("a client of cluster '{cluster}'"),
        }
    }
}

impl Verifier {
    /// Signed by one that we trust, not over, not revoked, and for what we want.
    fn verify(
        &self,
        end_entity: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        usage: KeyUsage,
        host: Option<&ServerName<'_>>,
        now: UnixTime,
    ) -> Result<(), Error> {
        let certificate = EndEntityCert::try_from(end_entity).map_err(refusal)?;
        self.verify_chain(&certificate, between, usage, now).map_err(refusal)?;
        if let (Wanted::Host, Some(host)) = (&self.wanted, host) {
            return certificate.verify_is_valid_for_subject_name(host).map_err(refusal);
        }
        let wanted = || self.wanted.words();
        match name_of(&certificate) {
            Some(name) if self.wanted.accepts(&name) => Ok(()),
            Some(found) => Err(not_wanted(NotWanted::Other { found, wanted: wanted() })),
            None => Err(not_wanted(NotWanted::NoName { wanted: wanted() })),
        }
    }

    /// Tries one authority after the other, each with its own lists: by the issuer's name alone, a list of another
    /// authority of the same name would be taken for it.
    fn verify_chain(
        &self,
        certificate: &EndEntityCert<'_>,
        between: &[CertificateDer<'_>],
        usage: KeyUsage,
        now: UnixTime,
    ) -> Result<(), webpki::Error> {
        let mut refused = webpki::Error::UnknownIssuer;
        for authority in &self.trust.authorities {
            match self.verify_by(authority, certificate, between, usage, now) {
                Ok(()) => return Ok(()),
                Err(error) if is_of_another(&refused) => refused = error,
                Err(_) => {}
            }
        }
        Err(refused)
    }

    fn verify_by(
        &self,
        authority: &TrustedAuthority,
        certificate: &EndEntityCert<'_>,
        between: &[CertificateDer<'_>],
        usage: KeyUsage,
        now: UnixTime,
    ) -> Result<(), webpki::Error> {
        // The library asks only the first list of an authority. So each list is asked by itself.
        let lists = authority.revoked.iter().map(|list| Some(&**list));
        let without = authority.revoked.is_empty().then_some(None);
        for list in lists.chain(without) {
            let lists: Vec<_> = list.into_iter().collect();
            let revocation = RevocationOptionsBuilder::new(&lists).ok().map(|options| {
                // An authority without a list has revoked nothing. A list that is over still says what it says: to
                // refuse everyone because a file is old would stop the cluster.
                options
                    .with_depth(RevocationCheckDepth::Chain)
                    .with_status_policy(UnknownStatusPolicy::Allow)
                    .with_expiration_policy(ExpirationPolicy::Ignore)
                    .build()
            });
            let algorithms = self.provider.signature_verification_algorithms.all;
            let anchors = std::slice::from_ref(&authority.anchor);
            certificate
                .verify_for_usage(algorithms, anchors, between, now, usage, revocation, None)?;
        }
        Ok(())
    }

    fn signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }
}

/// Whether it says no more than that the authority has not signed it.
fn is_of_another(error: &webpki::Error) -> bool {
    matches!(error, webpki::Error::UnknownIssuer | webpki::Error::InvalidSignatureForPublicKey)
}

fn not_wanted(why: NotWanted) -> Error {
    Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(why))))
}

fn refusal(error: webpki::Error) -> Error {
    use webpki::Error as Webpki;
    Error::InvalidCertificate(match error {
        Webpki::BadDer | Webpki::BadDerTime | Webpki::TrailingData(_) => {
            CertificateError::BadEncoding
        }
        Webpki::CertNotValidYet { .. } | Webpki::InvalidCertValidity => {
            CertificateError::NotValidYet
        }
        Webpki::CertExpired { .. } => CertificateError::Expired,
        Webpki::CertRevoked => CertificateError::Revoked,
        // Another authority of the same name.
        error if is_of_another(&error) => CertificateError::UnknownIssuer,
        Webpki::CertNotValidForName(_) => CertificateError::NotValidForName,
        other => CertificateError::Other(OtherError(Arc::new(other))),
    })
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        #[cfg(feature = "planted")]
        if crate::planted::trusts_any_node() {
            return Ok(ServerCertVerified::assertion());
        }
        self.verify(end_entity, intermediates, KeyUsage::server_auth(), Some(server_name), now)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("TLS 1.2 is not spoken here".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

impl ClientCertVerifier for Verifier {
    fn client_auth_mandatory(&self) -> bool {
        !self.optional
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        // A client has one certificate for a cluster, and needs no hint.
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.verify(end_entity, intermediates, KeyUsage::client_auth(), None, now)?;
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("TLS 1.2 is not spoken here".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
