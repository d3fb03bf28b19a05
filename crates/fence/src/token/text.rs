//! How a fence is written. A leader writes one for every lock that it grants, so it does without formatting.

use std::fmt;

use super::{Fence, Guarantee, VERSION};

const HASH_AT: usize = "hf1.L.".len();
const NUMBER_AT: usize = HASH_AT + "0123456789abcdef.".len();
/// Of the largest number below 2^63.
const DIGITS_MAX: usize = 19;

/// The text of one fence.
#[derive(Clone, Copy)]
pub struct FenceText {
    bytes: [u8; NUMBER_AT + DIGITS_MAX],
    length: usize,
}

impl FenceText {
    pub(super) fn of(fence: &Fence) -> FenceText {
        let mut bytes = [b'.'; NUMBER_AT + DIGITS_MAX];
        bytes[..VERSION.len()].copy_from_slice(VERSION.as_bytes());
        bytes[HASH_AT - 2] = match fence.guarantee {
            Guarantee::Linearizable => b'L',
            Guarantee::BestEffort => b'B',
        };
        let pairs = bytes[HASH_AT..NUMBER_AT].chunks_exact_mut(2);
        for (pair, byte) in pairs.zip(fence.name_hash) {
            pair[0] = hexadecimal(byte >> 4);
            pair[1] = hexadecimal(byte & 0xf);
        }
        let digits = fence.number.checked_ilog10().unwrap_or_default() as usize + 1;
        let length = NUMBER_AT + digits;
        let mut rest = fence.number;
        for digit in bytes[NUMBER_AT..length].iter_mut().rev() {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        FenceText { bytes, length }
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    pub fn as_str(&self) -> &str {
        // Nothing but plain characters is put there.
        std::str::from_utf8(self.as_bytes()).unwrap_or_default()
    }
}

fn hexadecimal(digit: u8) -> u8 {
    b"0123456789abcdef"[usize::from(digit)]
}

impl fmt::Debug for FenceText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::TOKEN_LIMIT;

    proptest! {
        #[test]
        fn fence_text_equals_the_formatted_token(name_hash: [u8; 8], number in 0..TOKEN_LIMIT, shift in 0..63) {
            // Of every length.
            let number = number >> shift;
            for (guarantee, letter) in [(Guarantee::Linearizable, 'L'), (Guarantee::BestEffort, 'B')] {
                let fence = Fence { guarantee, name_hash, number };
                let hash = u64::from_be_bytes(name_hash);
                let formatted = format!("hf1.{letter}.{hash:016x}.{number}");
                prop_assert_eq!(fence.to_string(), formatted);
            }
        }
    }
}
