//! Certificates, keys and lists as they lie in files.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, TrustAnchor};
use thiserror::Error;
use time::OffsetDateTime;
use webpki::{CertRevocationList, OwnedCertRevocationList, anchor_from_trusted_cert};

use crate::details::{Details, DetailsError};
use crate::signature::is_signed_by;

/// More is no certificate, and is not read.
const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Whom to trust, and which of their certificates no longer count.
#[derive(Debug, Clone, Default)]
pub struct TrustFiles {
    pub(crate) authorities: Vec<TrustedAuthority>,
}

/// One that is trusted. Two of them can have the same name, so the lists that an authority has signed stand with it.
#[derive(Debug, Clone)]
pub(crate) struct TrustedAuthority {
    pub(crate) anchor: TrustAnchor<'static>,
    public_key: Vec<u8>,
    pub(crate) revoked: Vec<Arc<CertRevocationList<'static>>>,
}

/// A certificate, with those between it and its authority, and its private key.
pub struct Identity {
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: PrivateKeyDer<'static>,
    pub details: Details,
    /// When the first certificate of the chain ends.
    pub ends_at: OffsetDateTime,
}

#[derive(Debug, Error)]
pub enum FileError {
    #[error("{path}: {error}")]
    Io { path: PathBuf, error: io::Error },
    #[error("{path} has more than {FILE_BYTES_MAX} bytes: that is no certificate")]
    TooLarge { path: PathBuf },
    #[error("{path}: {error}")]
    Certificate { path: PathBuf, error: DetailsError },
    #[error("{path}: there is no private key in it: a key begins with -----BEGIN PRIVATE KEY-----")]
    NoKey { path: PathBuf },
    #[error(
        "{path} is a private key that all users of this machine can read: `chmod o-rwx {path}`"
    )]
    KeyIsReadable { path: PathBuf },
    #[error(
        "{key} is not the key of {certificate}: the two files belong to different certificates"
    )]
    OtherKey { certificate: PathBuf, key: PathBuf },
    #[error("{path}: the certificate ended {days} days ago: issue a new one with `holdfast cert`")]
    Expired { path: PathBuf, days: i64 },
    #[error("{path}: {reason}")]
    Authority { path: PathBuf, reason: String },
    #[error("{path}: this is no list of revoked certificates: {reason}")]
    Revoked { path: PathBuf, reason: String },
    #[error(
        "{path}: a list of revoked certificates that none of the authorities here has signed: take it out, or add the \
         authority that has signed it"
    )]
    ForeignList { path: PathBuf },
}

impl TrustFiles {
    /// Of the certificates of authorities, and perhaps of lists of revoked certificates.
    pub fn load(authorities: &Path, revoked: Option<&Path>) -> Result<TrustFiles, FileError> {
        let mut trust = TrustFiles { authorities: load_authorities(authorities)? };
        revoked.map_or(Ok(()), |path| trust.add_revoked(path))?;
        Ok(trust)
    }

    /// All lists of a file. One that no authority here has signed would have no effect, and the operator would not know.
    fn add_revoked(&mut self, path: &Path) -> Result<(), FileError> {
        let text = read(path)?;
        let wrong = |reason: String| FileError::Revoked { path: path.to_owned(), reason };
        let mut count = 0;
        for der in CertificateRevocationListDer::pem_slice_iter(&text) {
            let der = der.map_err(|error| wrong(error.to_string()))?;
            let list = OwnedCertRevocationList::from_der(&der)
                .map_err(|error| wrong(error.to_string()))?;
            let list = Arc::new(CertRevocationList::from(list));
            let (_, signed) =
                x509_parser::parse_x509_crl(&der).map_err(|error| wrong(error.to_string()))?;
            let (content, signature) =
                (signed.tbs_cert_list.as_ref(), &signed.signature_value.data);
            let mut is_of_one = false;
            for authority in &mut self.authorities {
                if is_signed_by(&authority.public_key, content, signature) {
                    authority.revoked.push(Arc::clone(&list));
                    is_of_one = true;
                }
            }
            if !is_of_one {
                return Err(FileError::ForeignList { path: path.to_owned() });
            }
            count += 1;
        }
        if count == 0 { Err(wrong("it is empty".to_owned())) } else { Ok(()) }
    }
}

/// All authorities of a file.
fn load_authorities(path: &Path) -> Result<Vec<TrustedAuthority>, FileError> {
    let text = read(path)?;
    let wrong = |reason: String| FileError::Authority { path: path.to_owned(), reason };
    let mut authorities = Vec::new();
    for der in CertificateDer::pem_slice_iter(&text) {
        let der = der.map_err(|error| wrong(error.to_string()))?;
        let details = Details::of(&der)
            .map_err(|error| FileError::Certificate { path: path.to_owned(), error })?;
        if !details.is_authority {
            let name = details.common_name;
            return Err(wrong(format!(
                "'{name}' is not an authority, and nothing can be signed by it"
            )));
        }
        let anchor = anchor_from_trusted_cert(&der).map_err(|error| wrong(error.to_string()))?;
        let (anchor, public_key) = (anchor.to_owned(), details.public_key);
        authorities.push(TrustedAuthority { anchor, public_key, revoked: Vec::new() });
    }
    if authorities.is_empty() {
        let error = DetailsError::NoCertificate;
        return Err(FileError::Certificate { path: path.to_owned(), error });
    }
    Ok(authorities)
}

/// A certificate and its key. Both are checked: they fit, and the certificate is not over.
pub fn load_identity(certificate: &Path, key: &Path) -> Result<Identity, FileError> {
    let wrong = |error| FileError::Certificate { path: certificate.to_owned(), error };
    let text = read(certificate)?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let chain = chain.map_err(|error| wrong(DetailsError::Damaged(error.to_string())))?;
    let first = chain.first().ok_or(DetailsError::NoCertificate).map_err(wrong)?;
    let details = Details::of(first).map_err(wrong)?;
    let days = details.days_left(OffsetDateTime::now_utc());
    if OffsetDateTime::now_utc() > details.not_after {
        return Err(FileError::Expired { path: certificate.to_owned(), days: -days });
    }
    let ends = chain.iter().filter_map(|der| Some(Details::of(der).ok()?.not_after));
    let ends_at = ends.fold(details.not_after, OffsetDateTime::min);
    refuse_if_readable(key)?;
    let no_key = |_| FileError::NoKey { path: key.to_owned() };
    let secret = PrivateKeyDer::from_pem_slice(&read(key)?).map_err(no_key)?;
    let other = || FileError::OtherKey { certificate: certificate.to_owned(), key: key.to_owned() };
    let signing = rustls::crypto::ring::sign::any_supported_type(&secret)
        .map_err(|_| FileError::NoKey { path: key.to_owned() })?;
    rustls::sign::CertifiedKey::new(chain.clone(), signing).keys_match().map_err(|_| other())?;
    Ok(Identity { chain, key: secret, details, ends_at })
}

#[cfg(unix)]
fn refuse_if_readable(path: &Path) -> Result<(), FileError> {
    use std::os::unix::fs::PermissionsExt;
    let io = |error| FileError::Io { path: path.to_owned(), error };
    let mode = fs::metadata(path).map_err(io)?.permissions().mode();
    if mode & 0o007 != 0 { Err(FileError::KeyIsReadable { path: path.to_owned() }) } else { Ok(()) }
}

#[cfg(not(unix))]
fn refuse_if_readable(_path: &Path) -> Result<(), FileError> {
    Ok(())
}

fn read(path: &Path) -> Result<Vec<u8>, FileError> {
    let io = |error| FileError::Io { path: path.to_owned(), error };
    if fs::metadata(path).map_err(io)?.len() > FILE_BYTES_MAX {
        return Err(FileError::TooLarge { path: path.to_owned() });
    }
    fs::read(path).map_err(io)
}

impl Identity {
    pub(crate) fn key(&self) -> PrivateKeyDer<'static> {
        self.key.clone_key()
    }
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identity").field("name", &self.details.name).finish_non_exhaustive()
    }
}
