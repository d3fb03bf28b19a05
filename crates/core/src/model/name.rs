//! The name of a lock.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::borrow::Borrow;
use core::fmt;
use core::ops::Deref;

use crate::model::limits::NAME_BYTES_MAX;

/// A valid lock name: UTF-8, 1 to 512 bytes, no control characters. Cheap to clone: the table
/// keeps one copy of the text however many places refer to it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockName(Arc<str>);

/// Why a text is not a lock name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameError {
    Empty,
    TooLong { bytes: usize },
    ControlCharacter { at_byte: usize },
}

/// The names of one request: nearly always one, which costs no allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Names {
    One(LockName),
    /// In order.
    #[allow(clippy::box_collection, reason = "it keeps the usual case at the size of one name")]
    Many(Box<Vec<LockName>>),
}

impl Names {
    pub fn as_slice(&self) -> &[LockName] {
        match self {
            Names::One(name) => core::slice::from_ref(name),
            Names::Many(names) => names,
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = &LockName> {
        self.as_slice().iter()
    }

    /// Puts one more where it belongs.
    pub(crate) fn add(&mut self, name: LockName) {
        match self {
            Names::One(first) => {
                let mut both = Vec::from([first.clone(), name]);
                both.sort();
                *self = Names::Many(Box::new(both));
            }
            Names::Many(many) => {
                let at = many.partition_point(|other| *other < name);
                many.insert(at, name);
            }
        }
    }
}

impl FromIterator<LockName> for Names {
    fn from_iter<I: IntoIterator<Item = LockName>>(names: I) -> Names {
        let mut names = names.into_iter();
        match (names.next(), names.next()) {
            (Some(only), None) => Names::One(only),
            (first, second) => {
                Names::Many(Box::new(first.into_iter().chain(second).chain(names).collect()))
            }
        }
    }
}

impl LockName {
    pub fn new(text: &str) -> Result<LockName, NameError> {
        if text.is_empty() {
            return Err(NameError::Empty);
        }
        if text.len() > NAME_BYTES_MAX {
            return Err(NameError::TooLong { bytes: text.len() });
        }
        if !is_plain(text.as_bytes())
            && let Some((at_byte, _)) = text.char_indices().find(|(_, c)| c.is_control())
        {
            return Err(NameError::ControlCharacter { at_byte });
        }
        Ok(LockName(Arc::from(text)))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Nothing of the name can be seen: it has spaces and characters without width only. Such names are valid in the
    /// log. Front ends refuse them for new locks, because every use so far was a script with an unset variable.
    pub fn is_blank(text: &str) -> bool {
        let is_invisible = |c: char| {
            c.is_whitespace()
                || matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2060}' | '\u{feff}')
        };
        text.chars().all(is_invisible)
    }
}

/// Are these plain characters, as those of nearly all names are? Eight are looked at at once.
fn is_plain(bytes: &[u8]) -> bool {
    const EACH: u64 = u64::from_le_bytes([1; 8]);
    // The highest bit of a byte tells: it is not ASCII, or below a space, or the one above a tilde. What one byte
    // borrows from the next, or carries to it, makes a difference only where it is not plain itself.
    let is_plain_word = |bytes: &[u8; 8]| {
        let word = u64::from_le_bytes(*bytes);
        let below = word.wrapping_sub(EACH * u64::from(b' '));
        let above = word.wrapping_add(EACH);
        (word | below | above) & (EACH << 7) == 0
    };
    let Some(last) = bytes.last_chunk() else {
        return bytes.iter().all(|byte| matches!(byte, b' '..=b'~'));
    };
    // Of the last eight some may have been looked at before.
    is_plain_word(last) && bytes.as_chunks().0.iter().all(is_plain_word)
}

impl Deref for LockName {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for LockName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NameError::Empty => f.write_str("a lock name must not be empty"),
            NameError::TooLong { bytes } => {
                write!(f, "a lock name has at most {NAME_BYTES_MAX} bytes; this one has {bytes}")
            }
            NameError::ControlCharacter { at_byte } => {
                write!(f, "a lock name must not contain control characters; see byte {at_byte}")
            }
        }
    }
}

impl core::error::Error for NameError {}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;

    #[test]
    fn names_stay_in_order_as_they_are_added() {
        let name = |text| LockName::new(text).unwrap();
        let mut names = Names::One(name("m"));
        for text in ["c", "x", "f", "a", "z"] {
            names.add(name(text));
        }
        let texts: Vec<&str> = names.iter().map(LockName::as_str).collect();
        assert_eq!(texts, ["a", "c", "f", "m", "x", "z"]);
    }

    #[test]
    fn a_character_that_is_not_plain_is_seen_wherever_it_stands() {
        for length in 1..20 {
            for at in 0..length {
                for byte in 0..=u8::MAX {
                    let mut bytes = [b'~'; 20];
                    bytes[at] = byte;
                    let expected = (b' '..=b'~').contains(&byte);
                    assert_eq!(is_plain(&bytes[..length]), expected, "{byte} at {at} of {length}");
                }
            }
        }
    }

    #[test]
    fn a_name_has_one_to_512_bytes_and_no_control_characters() {
        assert_eq!(LockName::new(""), Err(NameError::Empty));
        assert!(LockName::new("a").is_ok());
        assert!(LockName::new("wallet:ünï/漢字 with space").is_ok());
        assert!(LockName::new(&"x".repeat(512)).is_ok());
        assert_eq!(LockName::new(&"x".repeat(513)), Err(NameError::TooLong { bytes: 513 }));
        // The limit is in bytes, not in characters.
        assert!(LockName::new(&"ü".repeat(257)).is_err());
        for c in ['\0', '\n', '\t', '\u{7f}', '\u{85}'] {
            let text = String::from("ab") + c.encode_utf8(&mut [0; 4]) + "c";
            assert_eq!(LockName::new(&text), Err(NameError::ControlCharacter { at_byte: 2 }));
        }
    }
}
