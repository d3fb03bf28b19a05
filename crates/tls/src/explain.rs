//! Why a handshake failed, in words for the one who has to mend it.

use std::error::Error as AnyError;
use std::io;

use rustls::{AlertDescription, CertificateError, Error};

const PORTS: &str =
    "check the port: by convention 7420 is for clients, 7421 for nodes, and 7422 for browsers";

/// The same for an error that a failed handshake caused. `None` if TLS had no part in it.
pub fn explain_any(error: &(dyn AnyError + 'static)) -> Option<String> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<Error>() {
            return Some(explain(error));
        }
        // An I/O error names what it was made of in a way of its own.
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        cause = match inner {
            Some(inner) => Some(inner),
            None => error.source(),
        };
    }
    None
}

/// What happened, then what to do.
pub fn explain(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(why) => certificate(why),
        Error::NoCertificatesPresented => {
            "the other side showed no certificate, and this port needs one".to_owned()
        }
        Error::AlertReceived(alert) => format!("the other side refused: {}", alert_words(*alert)),
        Error::InvalidMessage(_) => {
            "what came is not TLS: the other side speaks plaintext; configure TLS on both sides or on neither"
                .to_owned()
        }
        Error::NoApplicationProtocol => {
            "the two sides have no protocol in common: is this the right port?".to_owned()
        }
        Error::PeerIncompatible(_) => "the other side does not speak TLS 1.3".to_owned(),
        other => other.to_string(),
    }
}

fn certificate(why: &CertificateError) -> String {
    match why {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "the other side's certificate is over: issue a new one, or compare the clocks"
                .to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "the other side's certificate is not valid yet: compare the clocks".to_owned()
        }
        CertificateError::Revoked => "the other side's certificate is revoked".to_owned(),
        CertificateError::UnknownIssuer => {
            "the other side's certificate is signed by an authority that is not trusted here"
                .to_owned()
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "the other side's certificate is not for the host that was dialled".to_owned()
        }
        CertificateError::Other(other) => other.0.to_string(),
        other => format!("the other side's certificate is not good: {other}"),
    }
}

fn alert_words(alert: AlertDescription) -> String {
    match alert {
        AlertDescription::CertificateExpired => "our certificate is over".to_owned(),
        AlertDescription::CertificateRevoked => "our certificate is revoked".to_owned(),
        AlertDescription::UnknownCA => {
            "our certificate is signed by an authority that is not trusted there".to_owned()
        }
        AlertDescription::CertificateRequired => "it wants a certificate".to_owned(),
        AlertDescription::CertificateUnknown | AlertDescription::BadCertificate => {
            format!("our certificate is not one for this port; {PORTS}")
        }
        AlertDescription::NoApplicationProtocol => {
            format!("it does not speak our protocol on this port; {PORTS}")
        }
        other => format!("{other:?}"),
    }
}
