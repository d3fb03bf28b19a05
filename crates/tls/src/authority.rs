//! The authority of a cluster: makes and signs certificates.

use std::net::IpAddr;
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DistinguishedName,
    DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose,
    RevokedCertParams, SanType, SerialNumber,
};
use ring::rand::{SecureRandom, SystemRandom};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer};
use thiserror::Error;
use time::OffsetDateTime;

use crate::certificate_name::{CertificateName, CertificateNameError, Subject};
use crate::details::{Details, DetailsError};
use crate::signature::is_signed_by;

/// A clock that is a little behind must not refuse a new certificate.
const BACKDATED: Duration = Duration::from_secs(3_600);
const DAY_SECONDS: u64 = 86_400;
const SERIAL_BYTES: usize = 16;

/// How long a certificate is valid, from an hour ago.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity(Duration);

impl Validity {
    pub const AUTHORITY_DAYS: u32 = 3_650;
    pub const LEAF_DAYS: u32 = 365;
    /// An authority outlives what it signs by far.
    pub const AUTHORITY: Validity = Validity::days(Validity::AUTHORITY_DAYS);
    pub const LEAF: Validity = Validity::days(Validity::LEAF_DAYS);

    /// For so many days, less the hour.
    pub const fn days(days: u32) -> Validity {
        Validity(Duration::from_secs(DAY_SECONDS * days as u64))
    }

    /// So long from now.
    pub const fn from_now(span: Duration) -> Validity {
        Validity(BACKDATED.saturating_add(span))
    }
}

pub struct Authority {
    name: CertificateName,
    certificate_pem: String,
    key_pem: String,
    issuer: Issuer<'static, KeyPair>,
    ends_at: OffsetDateTime,
}

/// A certificate with its private key.
pub struct Issued {
    pub name: CertificateName,
    pub certificate_pem: String,
    pub key_pem: String,
}

#[derive(Debug, Error)]
pub enum AuthorityError {
    #[error(transparent)]
    Name(#[from] CertificateNameError),
    #[error("the certificate of the authority cannot be read: {0}")]
    Details(#[from] DetailsError),
    #[error("this is not the certificate of an authority: it is {found}")]
    NotAnAuthority { found: String },
    #[error("the authority's key does not fit its certificate")]
    OtherKey,
    #[error(
        "a certificate cannot outlive its authority, which ends in {days} days: ask for fewer days, or make a new authority"
    )]
    TooLong { days: i64 },
    #[error("'{0}' is no host name and no address")]
    Host(String),
    #[error(
        "this is no list of revoked certificates: remove it, and revoke all certificates again that were in it"
    )]
    List,
    #[error("the system gives no random numbers")]
    NoRandomness,
    #[error("the certificate cannot be made: {0}")]
    Making(#[from] rcgen::Error),
}

impl Authority {
    /// A new one, with a new key.
    pub fn create(cluster: &str, validity: Validity) -> Result<Authority, AuthorityError> {
        let name = CertificateName::new(cluster, Subject::Authority)?;
        let mut params = params(&name, "", validity)?;
        // An authority that follows another one of the cluster has a name of its own: programs tell them apart by it.
        let serial = params.serial_number.as_ref().map(SerialNumber::to_bytes).unwrap_or_default();
        let number: String = serial.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
        let common_name = format!("Holdfast authority of {cluster} ({number})");
        params.distinguished_name.push(DnType::CommonName, common_name);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate()?;
        let certificate_pem = params.self_signed(&key)?.pem();
        Authority::load(&certificate_pem, &key.serialize_pem())
    }

    /// One that was made before, by its PEM texts.
    pub fn load(certificate_pem: &str, key_pem: &str) -> Result<Authority, AuthorityError> {
        let details = Details::of_pem(certificate_pem.as_bytes())?;
        let name = match &details.name {
            Some(name) if details.is_authority && *name.subject() == Subject::Authority => {
                name.clone()
            }
            other => {
                let found = other
                    .as_ref()
                    .map_or_else(|| details.common_name.clone(), |name| name.to_string());
                return Err(AuthorityError::NotAnAuthority { found });
            }
        };
        let key = KeyPair::from_pem(key_pem)?;
        if details.public_key != key.public_key_raw() {
            return Err(AuthorityError::OtherKey);
        }
        let issuer = Issuer::from_ca_cert_pem(certificate_pem, key)?;
        Ok(Authority {
            name,
            certificate_pem: certificate_pem.to_owned(),
            key_pem: key_pem.to_owned(),
            issuer,
            ends_at: details.not_after,
        })
    }

    /// Whether this authority has signed the certificate, and not another one of the cluster.
    pub fn has_signed(&self, certificate_pem: &[u8]) -> bool {
        let Ok(der) = CertificateDer::from_pem_slice(certificate_pem) else { return false };
        x509_parser::parse_x509_certificate(&der).is_ok_and(|(_, certificate)| {
            let content = certificate.tbs_certificate.as_ref();
            let public_key = self.issuer.key().public_key_raw();
            is_signed_by(public_key, content, &certificate.signature_value.data)
        })
    }

    pub fn cluster(&self) -> &str {
        self.name.cluster()
    }

    pub fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }

    /// The secret on which everything depends.
    pub fn key_pem(&self) -> &str {
        &self.key_pem
    }

    /// For a node: good as a server and towards other nodes. The hosts are for clients that compare them.
    pub fn issue_node(
        &self,
        id: u64,
        hosts: &[String],
        validity: Validity,
    ) -> Result<Issued, AuthorityError> {
        let name = CertificateName::new(self.cluster(), Subject::Node(id))?;
        let mut params =
            params(&name, &format!("Holdfast node {id} of {}", self.cluster()), validity)?;
        for host in hosts {
            params.subject_alt_names.push(match host.parse::<IpAddr>() {
                Ok(address) => SanType::IpAddress(address),
                Err(_) => {
                    let wrong = || AuthorityError::Host(host.clone());
                    rustls_pki_types::DnsName::try_from(host.as_str()).map_err(|_| wrong())?;
                    SanType::DnsName(host.as_str().try_into().map_err(|_| wrong())?)
                }
            });
        }
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(name, params)
    }

    /// For a client, which is then the principal `cert:NAME`.
    pub fn issue_client(&self, client: &str, validity: Validity) -> Result<Issued, AuthorityError> {
        let name = CertificateName::new(self.cluster(), Subject::Client(client.to_owned()))?;
        let mut params = params(&name, &format!("Holdfast client {client}"), validity)?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(name, params)
    }

    fn sign(
        &self,
        name: CertificateName,
        mut params: CertificateParams,
    ) -> Result<Issued, AuthorityError> {
        if params.not_after > self.ends_at {
            let days = (self.ends_at - OffsetDateTime::now_utc()).whole_days();
            return Err(AuthorityError::TooLong { days });
        }
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(Issued { name, certificate_pem: certificate.pem(), key_pem: key.serialize_pem() })
    }

    /// A list of those that stand in another one, and of one more, as PEM.
    pub fn revoke_also(
        &self,
        before: Option<&str>,
        serials: &[Vec<u8>],
        validity: Validity,
    ) -> Result<String, AuthorityError> {
        let (mut all, number) = match before {
            Some(list) => entries_of(list)?,
            None => (Vec::new(), 0),
        };
        all.extend(
            serials.iter().filter(|serial| !all.contains(serial)).cloned().collect::<Vec<_>>(),
        );
        self.revoke(&all, number + 1, validity)
    }

    /// A list of the certificates that no longer count, by their serial numbers, as PEM.
    pub fn revoke(
        &self,
        serials: &[Vec<u8>],
        number: u64,
        validity: Validity,
    ) -> Result<String, AuthorityError> {
        let now = OffsetDateTime::now_utc() - BACKDATED;
        let revoked = |serial: &Vec<u8>| RevokedCertParams {
            serial_number: SerialNumber::from_slice(serial),
            revocation_time: now,
            reason_code: None,
            invalidity_date: None,
        };
        let params = CertificateRevocationListParams {
            this_update: now,
            next_update: now + validity.0,
            crl_number: SerialNumber::from(number),
            issuing_distribution_point: None,
            revoked_certs: serials.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        Ok(params.signed_by(&self.issuer)?.pem()?)
    }
}

/// The serial numbers in a list, and the number of the list.
fn entries_of(pem: &str) -> Result<(Vec<Vec<u8>>, u64), AuthorityError> {
    let damaged = |_| AuthorityError::List;
    let der = CertificateRevocationListDer::from_pem_slice(pem.as_bytes()).map_err(damaged)?;
    let (_, list) = x509_parser::parse_x509_crl(&der).map_err(|_| AuthorityError::List)?;
    let serials = list.iter_revoked_certificates().map(|entry| entry.raw_serial().to_vec());
    let number = list.crl_number().and_then(|number| u64::try_from(number).ok()).unwrap_or(0);
    Ok((serials.collect(), number))
}

fn params(
    name: &CertificateName,
    common_name: &str,
    validity: Validity,
) -> Result<CertificateParams, AuthorityError> {
    let mut params = CertificateParams::default();
    let mut serial = [0; SERIAL_BYTES];
    SystemRandom::new().fill(&mut serial).map_err(|_| AuthorityError::NoRandomness)?;
    // A serial number is above zero, and 20 bytes long at most.
    serial[0] = serial[0] & 0x7f | 0x40;
    params.serial_number = Some(SerialNumber::from_slice(&serial));
    let begins_at = OffsetDateTime::now_utc() - BACKDATED;
    params.not_before = begins_at;
    params.not_after = begins_at + validity.0;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params.subject_alt_names = vec![SanType::URI(name.to_string().try_into()?)];
    Ok(params)
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").field("name", &self.name).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Issued {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Issued").field("name", &self.name).finish_non_exhaustive()
    }
}
