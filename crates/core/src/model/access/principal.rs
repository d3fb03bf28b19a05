//! By which name an authenticated client is known.

use alloc::sync::Arc;
use core::fmt;

use crate::model::codec::{DecodeError, Reader, Sink};

/// `cert:NAME`, `token:NAME` or `jwt:ISSUER:SUBJECT`. A new credential of the same name is the same principal.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Principal(Arc<str>);

pub const PRINCIPAL_BYTES_MAX: usize = 256;

/// Why a text is not a principal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrincipalError {
    UnknownKind,
    NameMissing,
    TooLong { bytes: usize },
    ControlCharacter,
}

impl Principal {
    pub fn parse(text: &str) -> Result<Principal, PrincipalError> {
        if text.len() > PRINCIPAL_BYTES_MAX {
            return Err(PrincipalError::TooLong { bytes: text.len() });
        }
        if text.chars().any(char::is_control) {
            return Err(PrincipalError::ControlCharacter);
        }
        let (kind, name) = text.split_once(':').ok_or(PrincipalError::UnknownKind)?;
        let named = match kind {
            "cert" | "token" => !name.is_empty(),
            "jwt" => name
                .rsplit_once(':')
                .is_some_and(|(issuer, subject)| !issuer.is_empty() && !subject.is_empty()),
            _ => return Err(PrincipalError::UnknownKind),
        };
        if named { Ok(Principal(text.into())) } else { Err(PrincipalError::NameMissing) }
    }

    /// Whether tokens prove it.
    pub fn is_token(&self) -> bool {
        self.0.starts_with("token:")
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

pub(crate) fn write_principal(sink: &mut impl Sink, principal: &Principal) {
    sink.bytes(principal.as_str().as_bytes());
}

pub(crate) fn read_principal(reader: &mut Reader<'_>) -> Result<Principal, DecodeError> {
    Principal::parse(reader.text()?)
        .map_err(|error| DecodeError::Inconsistent(alloc::format!("a principal: {error}")))
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for PrincipalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PrincipalError::UnknownKind => {
                f.write_str("a principal is `cert:NAME`, `token:NAME` or `jwt:ISSUER:SUBJECT`")
            }
            PrincipalError::NameMissing => f.write_str("the principal has no name after its kind"),
            PrincipalError::TooLong { bytes } => {
                write!(f, "a principal has at most {PRINCIPAL_BYTES_MAX} bytes, not {bytes}")
            }
            PrincipalError::ControlCharacter => {
                f.write_str("a principal has no control characters")
            }
        }
    }
}

impl core::error::Error for PrincipalError {}
