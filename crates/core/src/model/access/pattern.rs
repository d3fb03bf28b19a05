//! Which lock names a rule is for.

use alloc::sync::Arc;
use core::fmt;

use crate::model::limits::NAME_BYTES_MAX;

/// An exact name, or all names that begin alike: `billing/invoice` or `billing/*`. A lock name that contains a `*` is
/// matched by a prefix only.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Pattern {
    Exact(Arc<str>),
    Prefix(Arc<str>),
}

/// Why a text is not a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatternError {
    Empty,
    TooLong {
        bytes: usize,
    },
    ControlCharacter,
    /// Only the last character may be a `*`.
    StarInside,
}

impl Pattern {
    pub fn parse(text: &str) -> Result<Pattern, PatternError> {
        let (text, is_prefix) = match text.strip_suffix('*') {
            Some(prefix) => (prefix, true),
            None => (text, false),
        };
        if text.is_empty() && !is_prefix {
            return Err(PatternError::Empty);
        }
        if text.len() > NAME_BYTES_MAX {
            return Err(PatternError::TooLong { bytes: text.len() });
        }
        if text.chars().any(char::is_control) {
            return Err(PatternError::ControlCharacter);
        }
        if text.contains('*') {
            return Err(PatternError::StarInside);
        }
        Ok(if is_prefix { Pattern::Prefix(text.into()) } else { Pattern::Exact(text.into()) })
    }

    pub fn matches(&self, name: &str) -> bool {
        match self {
            Pattern::Exact(exact) => **exact == *name,
            Pattern::Prefix(prefix) => name.starts_with(&**prefix),
        }
    }

    /// Whether it matches every name that begins so. An exact name covers no prefix: others begin like it.
    pub fn covers_prefix(&self, asked: &str) -> bool {
        match self {
            Pattern::Exact(_) => false,
            Pattern::Prefix(prefix) => asked.starts_with(&**prefix),
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Pattern::Exact(name) => f.write_str(name),
            Pattern::Prefix(prefix) => write!(f, "{prefix}*"),
        }
    }
}

impl fmt::Display for PatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PatternError::Empty => {
                f.write_str("a pattern is a lock name, or a prefix and `*`; this one is empty")
            }
            PatternError::TooLong { bytes } => {
                write!(f, "a pattern has at most {NAME_BYTES_MAX} bytes, not {bytes}")
            }
            PatternError::ControlCharacter => f.write_str("a pattern has no control characters"),
            PatternError::StarInside => {
                f.write_str("`*` stands at the end of a pattern only, as in `billing/*`")
            }
        }
    }
}

impl core::error::Error for PatternError {}
