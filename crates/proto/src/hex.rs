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
    // Looked at once, at the end: digits of an id are random, and so is every way that depends on one.
    let mut seen = 0;
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let [high, low] = [pair[0], pair[1]].map(|digit| VALUES[usize::from(digit)]);
        seen |= high | low;
        *byte = high << 4 | low;
    }
    (seen < NO_DIGIT).then_some(bytes)
}

const NO_DIGIT: u8 = 16;

/// Of every byte.
static VALUES: [u8; 256] = {
    let mut values = [NO_DIGIT; 256];
    let mut value = 0;
    while value < 16 {
        values[b"0123456789abcdef"[value] as usize] = value as u8;
        value += 1;
    }
    values
};

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

    #[test]
    fn every_other_byte_is_no_digit_wherever_it_stands() {
        for byte in 0..=127 {
            let is_digit = b"0123456789abcdef".contains(&byte);
            let byte = char::from(byte);
            for text in [format!("{byte}000"), format!("f{byte}ff"), format!("aaa{byte}")] {
                assert_eq!(parse_hex::<2>(&text).is_some(), is_digit, "{text}");
            }
        }
    }
}
