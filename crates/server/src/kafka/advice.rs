//! Why brokers cannot be reached, in words for the one who has to mend it.
//!
//! The client's errors keep their causes as text alone, so words in that text are what is compared. The tests with a real
//! broker show that these are the words.

/// Before the cause of a client that does not try again.
const PREAMBLE: &str = "Connection error: all retries failed: Retry exceeded deadline. Source: ";

const OWN_CERTIFICATE: &str = "the broker does not take this node's certificate, or wants one and gets none: name one that the \
                               broker trusts with cert and key in [kafka.tls]";

/// Words of an error, and what to do. The first that fits counts.
const ADVICE: &[(&str, &str)] = &[
    (
        "UnknownIssuer",
        "the broker's certificate is signed by an authority that is not in kafka.tls.ca: name the file of the authority that \
         signs the brokers' certificates",
    ),
    (
        "NotValidForName",
        "the broker's certificate is not for the host that was dialled: write the host that it is for into kafka.brokers and \
         the broker's advertised.listeners",
    ),
    (
        "invalid peer certificate",
        "the broker's certificate is not good: issue a new one, or compare the clocks",
    ),
    ("fatal alert: BadCertificate", OWN_CERTIFICATE),
    ("fatal alert: CertificateRequired", OWN_CERTIFICATE),
    ("fatal alert: CertificateUnknown", OWN_CERTIFICATE),
    ("fatal alert: CertificateExpired", OWN_CERTIFICATE),
    ("fatal alert: UnknownCA", OWN_CERTIFICATE),
    ("fatal alert: ProtocolVersion", "the broker does not speak TLS 1.3: allow it there"),
    (
        "tls handshake eof",
        "the broker's port speaks no TLS: name the port that does, or take [kafka.tls] out",
    ),
    (
        "SaslAuthenticationFailed",
        "the broker refuses the user or the password: compare kafka.sasl.user and the password file with the brokers' users",
    ),
    (
        "UnsupportedSaslMechanism",
        "the broker does not offer this mechanism: choose another kafka.sasl.mechanism, or enable it there",
    ),
    (
        "IllegalSaslState",
        "the broker's port takes no user: name the port that does, or take [kafka.sasl] out",
    ),
    (
        "cannot sync versions: Request error: Connection is poisoned",
        "the broker ended the connection at once: a port that speaks TLS needs [kafka.tls]",
    ),
    ("early eof", "the broker ended the connection: a port that wants a user needs [kafka.sasl]"),
];

/// What happened, then what to do, if that is known.
pub(super) fn explain(error: &str) -> String {
    let cause = error.strip_prefix(PREAMBLE).unwrap_or(error);
    match ADVICE.iter().find(|(words, _)| cause.contains(words)) {
        Some((_, advice)) => format!("{cause}; {advice}"),
        None => cause.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_is_explained_and_what_is_not_stays_as_it_is() {
        let refused =
            "error connecting to broker \"b:1\": IO Error: Connection refused (os error 111)";
        assert_eq!(explain(&format!("{PREAMBLE}{refused}")), refused);
        let words = explain("Sasl handshake failed: API error: SaslAuthenticationFailed");
        assert!(words.starts_with("Sasl handshake failed") && words.contains("password file"));
    }
}
