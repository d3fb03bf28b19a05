//! Lower-case hexadecimal digits of fixed-size ids.

use std::fmt;

pub(crate) fn write_hex(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

/// Exactly `2 * N` lower-case digits, or nothing: every id has one spelling only, so that ids can be
/// compared as text too.
pub(crate) fn parse_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    if digits.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = digit_value(pair[0])? << 4 | digit_value(pair[1])?;
    }
    Some(bytes)
}

fn digit_value(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lower_case_digits_of_the_exact_length_are_taken() {
        assert_eq!(parse_hex::<2>("00ff"), Some([0x00, 0xff]));
        for wrong in ["", "00f", "00ff0", "00FF", "0x0f", "00fg", "é0f"] {
            assert_eq!(parse_hex::<2>(wrong), None, "{wrong}");
        }
    }
}
