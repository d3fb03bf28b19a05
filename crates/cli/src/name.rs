//! Names of locks, looked at before anybody is asked: a mistake is told with 64, whether or not a cluster is there.

use holdfast_core::{LockName, NameError};

/// By the same rule as the nodes.
pub(crate) fn parse(text: &str) -> Result<String, NameError> {
    LockName::new(text).map(|_| text.to_owned())
}
