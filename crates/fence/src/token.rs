//! The full form of a fencing token, which checkers at the protected resource take.
//!
//! `hf1.L.<name hash>.<number>`: a version, the guarantee (`L` linearizable, `B` best effort), the
//! first 8 bytes of the SHA-256 of the resource's name as 16 hexadecimal digits, and the token's
//! number. Each fence has exactly one spelling, so two can be compared as text for equality.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest, Sha256};

mod text;

pub use text::FenceText;

/// Every token's number is below this, so that it fits a signed 64-bit column.
pub const TOKEN_LIMIT: u64 = 1 << 63;

const VERSION: &str = "hf1";

/// How strong the lock behind a token is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Guarantee {
    /// From the replicated lock table: the token never goes back.
    Linearizable,
    /// From an efficiency tier: two holders can overlap.
    BestEffort,
}

/// A fencing token with the guarantee it carries and the resource it belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fence {
    guarantee: Guarantee,
    name_hash: [u8; 8],
    number: u64,
}

/// Why a text is not a fence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ParseFenceError {
    #[error("a fence has four parts, hf1.<guarantee>.<name hash>.<number>")]
    WrongParts,
    #[error("the fence's version is not known; this build reads hf1")]
    UnknownVersion,
    #[error("the fence's guarantee is neither L (linearizable) nor B (best effort)")]
    UnknownGuarantee,
    #[error("the fence's name hash is not 16 lower-case hexadecimal digits")]
    InvalidNameHash,
    #[error("the fence's number is not a plain decimal below 2^63")]
    InvalidNumber,
}

/// The first 8 bytes of the SHA-256 of a resource's name.
pub fn name_hash(name: &str) -> [u8; 8] {
    let digest = Sha256::digest(name.as_bytes());
    let mut start = [0; 8];
    start.copy_from_slice(&digest[..8]);
    start
}

impl Fence {
    /// `None` if the number is not below [`TOKEN_LIMIT`].
    pub fn new(guarantee: Guarantee, name: &str, number: u64) -> Option<Fence> {
        (number < TOKEN_LIMIT).then(|| Fence { guarantee, name_hash: name_hash(name), number })
    }

    pub fn guarantee(&self) -> Guarantee {
        self.guarantee
    }

    pub fn name_hash(&self) -> [u8; 8] {
        self.name_hash
    }

    pub fn number(&self) -> u64 {
        self.number
    }

    /// Whether the fence belongs to the resource of this name.
    pub fn is_for(&self, name: &str) -> bool {
        self.name_hash == name_hash(name)
    }

    /// For callers that write many: it allocates nothing.
    pub fn text(&self) -> FenceText {
        FenceText::of(self)
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text().as_str())
    }
}

impl FromStr for Fence {
    type Err = ParseFenceError;

    fn from_str(text: &str) -> Result<Fence, ParseFenceError> {
        let mut parts = text.split('.');
        let mut next_part = || parts.next().ok_or(ParseFenceError::WrongParts);
        let (version, guarantee, hash, number) =
            (next_part()?, next_part()?, next_part()?, next_part()?);
        if parts.next().is_some() {
            return Err(ParseFenceError::WrongParts);
        }
        if version != VERSION {
            return Err(ParseFenceError::UnknownVersion);
        }
        let guarantee = match guarantee {
            "L" => Guarantee::Linearizable,
            "B" => Guarantee::BestEffort,
            _ => return Err(ParseFenceError::UnknownGuarantee),
        };
        let name_hash = parse_hash(hash).ok_or(ParseFenceError::InvalidNameHash)?;
        let number = parse_number(number).ok_or(ParseFenceError::InvalidNumber)?;
        Ok(Fence { guarantee, name_hash, number })
    }
}

/// Exactly 16 lower-case digits: `u64::from_str_radix` alone would take capitals and a plus sign.
fn parse_hash(text: &str) -> Option<[u8; 8]> {
    let plain =
        text.len() == 16 && text.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    if !plain {
        return None;
    }
    u64::from_str_radix(text, 16).ok().map(u64::to_be_bytes)
}

/// Refuses what `u64::from_str` would let pass: a plus sign and leading zeros.
fn parse_number(text: &str) -> Option<u64> {
    let plain =
        text.bytes().all(|digit| digit.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    if !plain {
        return None;
    }
    text.parse().ok().filter(|number| *number < TOKEN_LIMIT)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_text_of_a_known_fence_never_changes() {
        let fence = Fence::new(Guarantee::Linearizable, "wallet:user_123", 42).unwrap();
        assert_eq!(fence.to_string(), "hf1.L.0413a35fa3122568.42");
        assert!(fence.is_for("wallet:user_123"));
        assert!(!fence.is_for("wallet:user_124"));
    }

    #[test]
    fn a_number_of_2_to_the_63_is_refused() {
        assert!(Fence::new(Guarantee::Linearizable, "a", TOKEN_LIMIT).is_none());
        assert!(Fence::new(Guarantee::Linearizable, "a", TOKEN_LIMIT - 1).is_some());
    }

    #[test]
    fn each_kind_of_wrong_text_has_its_own_error() {
        use ParseFenceError::*;
        let cases = [
            ("", WrongParts),
            ("hf1.L.0123456789abcdef", WrongParts),
            ("hf1.L.0123456789abcdef.1.2", WrongParts),
            ("hf2.L.0123456789abcdef.1", UnknownVersion),
            ("HF1.L.0123456789abcdef.1", UnknownVersion),
            ("hf1.X.0123456789abcdef.1", UnknownGuarantee),
            ("hf1.L.0123456789ABCDEF.1", InvalidNameHash),
            ("hf1.L.0123456789abcde.1", InvalidNameHash),
            ("hf1.L.+123456789abcdef.1", InvalidNameHash),
            ("hf1.L.0123456789abcdef.", InvalidNumber),
            ("hf1.L.0123456789abcdef.01", InvalidNumber),
            ("hf1.L.0123456789abcdef.+1", InvalidNumber),
            ("hf1.L.0123456789abcdef.-1", InvalidNumber),
            ("hf1.L.0123456789abcdef. 1", InvalidNumber),
            ("hf1.L.0123456789abcdef.9223372036854775808", InvalidNumber),
            ("hf1.L.0123456789abcdef.99999999999999999999", InvalidNumber),
        ];
        for (text, error) in cases {
            assert_eq!(text.parse::<Fence>(), Err(error), "{text}");
        }
    }

    proptest! {
        #[test]
        fn every_fence_survives_its_text(name in ".{1,40}", number in 0..TOKEN_LIMIT, best_effort: bool) {
            let guarantee =
                if best_effort { Guarantee::BestEffort } else { Guarantee::Linearizable };
            let fence = Fence::new(guarantee, &name, number).unwrap();
            prop_assert_eq!(fence.to_string().parse(), Ok(fence));
        }

        #[test]
        fn no_text_has_two_spellings(text in "hf1\\.[LB]\\.[0-9a-f]{16}\\.[+0-9]{1,20}") {
            if let Ok(fence) = text.parse::<Fence>() {
                prop_assert_eq!(fence.to_string(), text);
            }
        }
    }
}
