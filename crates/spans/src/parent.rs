//! The W3C's `traceparent`: `00-<trace>-<span>-<flags>`, in hexadecimal digits.

use std::fmt;
use std::str::FromStr;

const BYTES: usize = 55;
/// A later version may have more behind what is known of it.
const BYTES_MAX: usize = 256;
const SAMPLED: u8 = 1;

/// A span somewhere, to which another one belongs or points.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceParent {
    pub(crate) trace: u128,
    pub(crate) span: u64,
    pub(crate) flags: u8,
}

/// It is not a `traceparent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a traceparent: 00-<32 hexadecimal digits>-<16>-<2> is one")]
pub struct NotATraceParent;

impl TraceParent {
    /// The program that began the trace wants it recorded.
    pub fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }
}

impl FromStr for TraceParent {
    type Err = NotATraceParent;

    fn from_str(text: &str) -> Result<TraceParent, NotATraceParent> {
        let bytes = text.as_bytes();
        if !(BYTES..=BYTES_MAX).contains(&bytes.len()) || !text.is_ascii() {
            return Err(NotATraceParent);
        }
        let version = number(text, 0..2)?;
        let is_whole = match version {
            0xff => false,
            0 => bytes.len() == BYTES,
            _ => bytes.get(BYTES).is_none_or(|next| *next == b'-'),
        };
        let has_dashes = [2, 35, 52].iter().all(|at| bytes.get(*at) == Some(&b'-'));
        let trace = number(text, 3..35)?;
        let span = u64::try_from(number(text, 36..52)?).map_err(|_| NotATraceParent)?;
        let flags = u8::try_from(number(text, 53..55)?).map_err(|_| NotATraceParent)?;
        if is_whole && has_dashes && trace != 0 && span != 0 {
            Ok(TraceParent { trace, span, flags })
        } else {
            Err(NotATraceParent)
        }
    }
}

/// Small letters only, and no sign.
fn number(text: &str, place: std::ops::Range<usize>) -> Result<u128, NotATraceParent> {
    let digits = text.get(place).ok_or(NotATraceParent)?;
    if !digits.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f')) {
        return Err(NotATraceParent);
    }
    u128::from_str_radix(digits, 16).map_err(|_| NotATraceParent)
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace, self.span, self.flags)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_traceparent_is_read_and_written() {
        let parent: TraceParent = GOOD.parse().unwrap();
        assert!(parent.is_sampled());
        assert_eq!((parent.span, parent.to_string().as_str()), (0xb7ad_6b71_6920_3331, GOOD));
        let unsampled: TraceParent = GOOD.replace("-01", "-00").parse().unwrap();
        assert!(!unsampled.is_sampled());
        let later = format!("{}-more", GOOD.replacen("00", "cc", 1));
        assert_eq!(later.parse(), Ok(parent));
    }

    #[test]
    fn anything_else_is_none() {
        let long = format!("{}-{}", GOOD.replacen("00", "cc", 1), "x".repeat(300));
        for wrong in [
            "",
            "00",
            &GOOD[..54],
            &format!("{GOOD}0"),
            &format!("{GOOD}-more"),
            &GOOD.replacen("00", "ff", 1),
            &GOOD.to_uppercase(),
            &GOOD.replace('-', "_"),
            &GOOD.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)),
            &GOOD.replace("b7ad6b7169203331", &"0".repeat(16)),
            &GOOD.replacen("0af7", "+af7", 1),
            &GOOD.replacen("0af", "é7", 1),
            &long,
        ] {
            assert_eq!(wrong.parse::<TraceParent>(), Err(NotATraceParent), "{wrong}");
        }
    }
}
