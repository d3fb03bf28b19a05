//! Rules that the driver can be told to break. Most are planted bugs of the library; the rest is done by the driver.

/// What the driver itself does wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Misbehaviour {
    /// A bug of the library is active.
    Library,
    /// A watch begins again without its position.
    ForgetPosition,
    /// Only the configured endpoints are used.
    IgnoreMembers,
    /// The file with the credential is read once.
    CredentialOnce,
    /// The session has a shorter TTL than was asked for, and so more heartbeats.
    Chatty,
}

impl Misbehaviour {
    /// None if this build cannot.
    pub(crate) fn begin(mode: &str) -> Option<Misbehaviour> {
        match mode {
            "forget-position" => Some(Misbehaviour::ForgetPosition),
            "ignore-members" => Some(Misbehaviour::IgnoreMembers),
            "credential-once" => Some(Misbehaviour::CredentialOnce),
            "chatty" => Some(Misbehaviour::Chatty),
            mode => activate(mode).then_some(Misbehaviour::Library),
        }
    }
}

#[cfg(feature = "planted")]
fn activate(mode: &str) -> bool {
    use holdfast_client_core::planted::{Bug, activate};
    let bug = match mode {
        "no-margin" => Bug::NoMargin,
        "retry-new-id" => Bug::ResendUnderNewId,
        "ack-early" => Bug::AckEarly,
        "forget-cancel" => Bug::ForgetCancel,
        "no-clock" => Bug::TokenPastLease,
        "count-failures" => Bug::FailureIsSample,
        "ignore-map" => Bug::MapIgnored,
        "trust-any-node" => {
            holdfast_tls::planted::trust_any_node();
            return true;
        }
        _ => return false,
    };
    activate(Some(bug));
    true
}

#[cfg(not(feature = "planted"))]
fn activate(_: &str) -> bool {
    false
}
