//! The secret id of a session, and the public id that listings show in its place.
//!
//! A client that knows the secret acts as the session, so it never reaches a log: `Debug` prints the
//! public id, and the secret's digits come out only by the explicit [`SessionId::to_secret_text`].

use std::fmt;
use std::str::FromStr;

use sha2::{Digest, Sha256};

use crate::hex;

/// 16 random bytes; 32 lower-case hexadecimal digits on the wire. Never all zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SessionId([u8; 16]);

/// The first 8 bytes of the SHA-256 of the secret's 16 raw bytes: safe to show.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicSessionId([u8; 8]);

/// Why a text is not a session id. It does not repeat the text, which may be a secret mistyped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ParseSessionIdError {
    #[error("a session id is 32 lower-case hexadecimal digits")]
    InvalidDigits,
    #[error("a session id is chosen at random and never all zero")]
    AllZero,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a public session id is 16 lower-case hexadecimal digits, as `holdfast sessions` shows it")]
pub struct ParsePublicSessionIdError;

impl SessionId {
    /// Fails only if the operating system has no randomness to give.
    pub fn random() -> Result<SessionId, getrandom::Error> {
        loop {
            let mut bytes = [0; 16];
            getrandom::fill(&mut bytes)?;
            if let Some(id) = SessionId::from_bytes(bytes) {
                return Ok(id);
            }
        }
    }

    /// `None` for the all-zero id, which is what a client that forgot to choose one would send.
    pub fn from_bytes(bytes: [u8; 16]) -> Option<SessionId> {
        (bytes != [0; 16]).then_some(SessionId(bytes))
    }

    pub fn to_bytes(self) -> [u8; 16] {
        self.0
    }

    /// The 32 digits that go over the wire. They are a secret.
    pub fn to_secret_text(self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The id by which the lock table knows the session of a principal. A session id that was stolen is another one under
    /// another principal, and what files contain is not what a client has to show.
    pub fn of_principal(self, principal: &str) -> SessionId {
        let digest = Sha256::new()
            .chain_update(b"holdfast session\0")
            .chain_update(principal.as_bytes())
            .chain_update(b"\0")
            .chain_update(self.0)
            .finalize();
        let mut start = [0; 16];
        start.copy_from_slice(&digest[..16]);
        // As good as never all zero.
        SessionId::from_bytes(start).unwrap_or(self)
    }

    pub fn public_id(self) -> PublicSessionId {
        let mut start = [0; 8];
        start.copy_from_slice(&Sha256::digest(self.0)[..8]);
        PublicSessionId(start)
    }

    /// The public id as a number, big endian.
    pub fn public_number(self) -> u64 {
        self.public_id().to_number()
    }
}

impl FromStr for SessionId {
    type Err = ParseSessionIdError;

    fn from_str(text: &str) -> Result<SessionId, ParseSessionIdError> {
        let bytes = hex::parse_hex(text).ok_or(ParseSessionIdError::InvalidDigits)?;
        SessionId::from_bytes(bytes).ok_or(ParseSessionIdError::AllZero)
    }
}

impl FromStr for PublicSessionId {
    type Err = ParsePublicSessionIdError;

    fn from_str(text: &str) -> Result<PublicSessionId, ParsePublicSessionIdError> {
        hex::parse_hex(text).map(PublicSessionId).ok_or(ParsePublicSessionIdError)
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SessionId(public {})", self.public_id())
    }
}

impl PublicSessionId {
    pub fn from_number(number: u64) -> PublicSessionId {
        PublicSessionId(number.to_be_bytes())
    }

    pub fn to_number(self) -> u64 {
        u64::from_be_bytes(self.0)
    }
}

impl fmt::Display for PublicSessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex::write_hex(&self.0, f)
    }
}

impl fmt::Debug for PublicSessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &str = "000102030405060708090a0b0c0d0e0f";

    #[test]
    fn the_public_id_of_a_known_session_never_changes() {
        let id: SessionId = KNOWN.parse().unwrap();
        assert_eq!(id.public_id().to_string(), "be45cb2605bf36be");
        assert_eq!(id.public_number(), 0xbe45_cb26_05bf_36be);
        assert_eq!(PublicSessionId::from_number(id.public_number()), id.public_id());
    }

    #[test]
    fn debug_output_does_not_hold_the_secret() {
        let id: SessionId = KNOWN.parse().unwrap();
        let debug = format!("{id:?}");
        assert!(!debug.contains(KNOWN) && debug.contains(&id.public_id().to_string()), "{debug}");
    }

    #[test]
    fn a_random_id_survives_its_text() {
        let id = SessionId::random().unwrap();
        assert_eq!(id.to_secret_text().parse(), Ok(id));
        assert_ne!(id, SessionId::random().unwrap());
    }

    #[test]
    fn invalid_ids_are_refused_with_an_error() {
        let all_zero = "0".repeat(32);
        assert_eq!(all_zero.parse::<SessionId>(), Err(ParseSessionIdError::AllZero));
        for wrong in ["", "00", &KNOWN.to_uppercase(), &format!("{KNOWN}0")] {
            assert_eq!(wrong.parse::<SessionId>(), Err(ParseSessionIdError::InvalidDigits));
        }
    }
}
