//! May this principal do that? The one place where it is decided, between decode and queue.

use holdfast_core::Command;
use holdfast_proto::v1::Failure;

const ANONYMOUS: &str = "anonymous";

/// On whose behalf a request is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Principal(String);

impl Principal {
    pub(super) fn anonymous() -> Principal {
        Principal(ANONYMOUS.to_owned())
    }

    /// As the forwarding node established it.
    pub(super) fn forwarded(name: &str) -> Principal {
        Principal(name.to_owned())
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

/// As [`authorise`], for those who change the cluster itself.
pub(super) fn authorise_operator(_principal: &Principal) -> Result<(), Failure> {
    Ok(())
}

/// There is no authentication yet, so everybody is anonymous and may do everything. That is why a
/// node binds to loopback alone unless its configuration says `insecure`.
pub(super) fn authorise(_principal: &Principal, _command: &Command) -> Result<(), Failure> {
    Ok(())
}
