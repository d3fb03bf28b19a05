//! What stands in a certificate, for people and for checks.

use ring::digest::{SHA256, digest};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use thiserror::Error;
use time::OffsetDateTime;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::certificate_name::CertificateName;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Details {
    /// `None` for a certificate that was made by others for something else.
    pub name: Option<CertificateName>,
    pub common_name: String,
    pub issuer: String,
    pub is_authority: bool,
    /// Host names and addresses.
    pub hosts: Vec<String>,
    pub not_before: OffsetDateTime,
    pub not_after: OffsetDateTime,
    pub serial: Vec<u8>,
    /// SHA-256 of the certificate.
    pub fingerprint: [u8; 32],
    pub(crate) public_key: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DetailsError {
    #[error("there is no certificate in it: a certificate begins with -----BEGIN CERTIFICATE-----")]
    NoCertificate,
    #[error("the certificate is damaged: {0}")]
    Damaged(String),
}

impl Details {
    /// Of the first certificate in a PEM text.
    pub fn of_pem(pem: &[u8]) -> Result<Details, DetailsError> {
        let der = CertificateDer::from_pem_slice(pem).map_err(|_| DetailsError::NoCertificate)?;
        Details::of(&der)
    }

    /// Of all certificates in a PEM text, in order.
    pub fn of_all_pem(pem: &[u8]) -> Result<Vec<Details>, DetailsError> {
        let mut all = Vec::new();
        for der in CertificateDer::pem_slice_iter(pem) {
            let der = der.map_err(|error| DetailsError::Damaged(error.to_string()))?;
            all.push(Details::of(&der)?);
        }
        if all.is_empty() { Err(DetailsError::NoCertificate) } else { Ok(all) }
    }

    pub fn of(der: &CertificateDer<'_>) -> Result<Details, DetailsError> {
        let damaged = |what: &str| DetailsError::Damaged(what.to_owned());
        let (rest, parsed) =
            X509Certificate::from_der(der).map_err(|error| damaged(&error.to_string()))?;
        if !rest.is_empty() {
            return Err(damaged("bytes follow its end"));
        }
        let names =
            parsed.subject_alternative_name().map_err(|error| damaged(&error.to_string()))?;
        let (mut uris, mut hosts) = (Vec::new(), Vec::new());
        for name in names.iter().flat_map(|names| &names.value.general_names) {
            match name {
                GeneralName::URI(uri) => uris.push(*uri),
                GeneralName::DNSName(host) => hosts.push((*host).to_owned()),
                GeneralName::IPAddress(bytes) => hosts.extend(address(bytes)),
                _ => {}
            }
        }
        let basic = parsed.basic_constraints().map_err(|error| damaged(&error.to_string()))?;
        let moment = |time: &x509_parser::time::ASN1Time| {
            OffsetDateTime::from_unix_timestamp(time.timestamp())
                .map_err(|_| damaged("a date is impossible"))
        };
        let fingerprint = digest(&SHA256, der).as_ref().try_into();
        Ok(Details {
            name: only_name(&uris),
            common_name: common_name(parsed.subject()),
            issuer: common_name(parsed.issuer()),
            is_authority: basic.is_some_and(|basic| basic.value.ca),
            hosts,
            not_before: moment(&parsed.validity().not_before)?,
            not_after: moment(&parsed.validity().not_after)?,
            serial: parsed.raw_serial().to_vec(),
            fingerprint: fingerprint.map_err(|_| damaged("it has no digest"))?,
            public_key: parsed.public_key().subject_public_key.data.to_vec(),
        })
    }

    /// Of how many whole days it has left; below zero once it is over.
    pub fn days_left(&self, now: OffsetDateTime) -> i64 {
        (self.not_after - now).whole_days()
    }
}

/// The name, if the certificate has exactly one. Two names would make it two things at once.
pub(crate) fn only_name(uris: &[&str]) -> Option<CertificateName> {
    match uris {
        [uri] => CertificateName::parse(uri).ok(),
        _ => None,
    }
}

fn common_name(name: &x509_parser::x509::X509Name<'_>) -> String {
    let found = name.iter_common_name().next().and_then(|name| name.as_str().ok());
    found.map_or_else(|| name.to_string(), str::to_owned)
}

fn address(bytes: &[u8]) -> Option<String> {
    if let Ok(four) = <[u8; 4]>::try_from(bytes) {
        return Some(std::net::Ipv4Addr::from(four).to_string());
    }
    <[u8; 16]>::try_from(bytes).ok().map(|sixteen| std::net::Ipv6Addr::from(sixteen).to_string())
}
