//! The token by which a client proves who it is: `hft_<id>_<secret>`.
//!
//! The id is public, and finds the token's record. The secret is 32 random bytes. The cluster keeps its SHA-256 alone, which
//! is enough for a secret that cannot be guessed. `Debug` does not print the secret.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest, Sha256};

use crate::hex;

const PREFIX: &str = "hft_";
const ID_DIGITS: usize = 16;
const SECRET_CHARACTERS: usize = 43;
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

#[derive(Clone, PartialEq, Eq)]
pub struct AccessToken {
    pub id: u64,
    secret: String,
}

/// Why a text is not a token. It does not repeat the text, which is a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a token is written as hft_<16 hexadecimal digits>_<43 letters, digits, - or _>")]
pub struct ParseAccessTokenError;

impl AccessToken {
    /// Fails only if the operating system has no randomness to give.
    pub fn random() -> Result<AccessToken, getrandom::Error> {
        let mut bytes = [0; 40];
        getrandom::fill(&mut bytes)?;
        let (id, secret) = bytes.split_at(8);
        let id = u64::from_be_bytes(id.try_into().unwrap_or_default());
        Ok(AccessToken { id, secret: text_of(secret) })
    }

    /// What the cluster keeps of it.
    pub fn digest(&self) -> [u8; 32] {
        Sha256::digest(self.secret.as_bytes()).into()
    }

    /// Takes as long for a wrong secret as for the right one.
    pub fn has_digest(&self, digest: &[u8; 32]) -> bool {
        let pairs = self.digest().into_iter().zip(digest);
        pairs.fold(0, |differing, (own, other)| differing | (own ^ other)) == 0
    }

    /// The whole token. It is a secret.
    pub fn to_secret_text(&self) -> String {
        format!("{PREFIX}{:016x}_{}", self.id, self.secret)
    }
}

/// Six bits for each character.
fn text_of(bytes: &[u8]) -> String {
    let bits = |at: usize| {
        let byte = |at: usize| bytes.get(at).copied().unwrap_or(0);
        let pair = u16::from_be_bytes([byte(at / 8), byte(at / 8 + 1)]);
        usize::from(pair >> (10 - at % 8) & 0x3f)
    };
    let ends = (0..bytes.len() * 8).step_by(6);
    ends.filter_map(|at| ALPHABET.get(bits(at))).copied().map(char::from).collect()
}

impl FromStr for AccessToken {
    type Err = ParseAccessTokenError;

    fn from_str(text: &str) -> Result<AccessToken, ParseAccessTokenError> {
        let rest = text.strip_prefix(PREFIX).ok_or(ParseAccessTokenError)?;
        let (id, secret) = rest.split_once('_').ok_or(ParseAccessTokenError)?;
        let is_secret = secret.len() == SECRET_CHARACTERS
            && secret.bytes().all(|byte| ALPHABET.contains(&byte));
        if id.len() != ID_DIGITS || !is_secret {
            return Err(ParseAccessTokenError);
        }
        let id: [u8; 8] = hex::parse_hex(id).ok_or(ParseAccessTokenError)?;
        Ok(AccessToken { id: u64::from_be_bytes(id), secret: secret.to_owned() })
    }
}

impl fmt::Debug for AccessToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AccessToken({:016x})", self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_back_as_it_was_written() {
        for _ in 0..100 {
            let token = AccessToken::random().unwrap();
            let text = token.to_secret_text();
            assert_eq!(text.len(), 4 + ID_DIGITS + 1 + SECRET_CHARACTERS);
            let read: AccessToken = text.parse().unwrap();
            assert_eq!(read, token);
            assert!(read.has_digest(&token.digest()));
            assert!(!AccessToken::random().unwrap().has_digest(&token.digest()));
            assert!(!format!("{token:?}").contains(&token.secret));
        }
    }

    #[test]
    fn what_is_not_a_token_is_refused() {
        let good = AccessToken::random().unwrap().to_secret_text();
        let cut = &good[..good.len() - 1];
        let long = format!("{good}A");
        let other = good.replacen("hft_", "hfx_", 1);
        let space = format!("{cut} ");
        for wrong in ["", "hft_", "hft__", cut, &long, &other, &space, "hft_00_x"] {
            assert_eq!(wrong.parse::<AccessToken>(), Err(ParseAccessTokenError), "{wrong}");
        }
    }
}
