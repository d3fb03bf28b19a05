//! The names of the many locks that are held at once.

use crate::PREFIX;

/// 20 bytes.
pub(crate) fn held_name(number: usize) -> String {
    format!("{PREFIX}held/{number:09}")
}
