//! What brokers want to see besides events: TLS and a user, out of files.
//!
//! The files are read for every connection, so new ones are in use as soon as a connection breaks. What they contain is
//! never logged.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fmt, fs, io};

use holdfast_tls::{TrustFiles, Verify, client_config, load_identity};
use rskafka::client::{Credentials as UserAndPassword, SaslConfig as Sasl};
use rustls::ClientConfig;

use crate::config::{KafkaConfig, OutgoingTlsConfig, SaslConfig, SaslMechanism};
use crate::private_file::is_readable_by_others;
use crate::transport::TlsError;

const TABLE: &str = "kafka.tls";

/// More is no password, and is not read.
const PASSWORD_FILE_BYTES_MAX: u64 = 8 * 1024;

/// Why no connection can be made with these files. It does not repeat what is in them.
#[derive(Debug, thiserror::Error)]
pub enum KafkaFileError {
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("[kafka.sasl] cannot read the password in {}: {error}", path.display())]
    Unreadable { path: PathBuf, error: io::Error },
    #[error(
        "[kafka.sasl] {} has a password that other users of this machine can read: `chmod 600 {}`",
        path.display(),
        path.display()
    )]
    ReadableByOthers { path: PathBuf },
    #[error(
        "[kafka.sasl] {} has no password: the file must have one line, and the line is the password",
        path.display()
    )]
    NoPassword { path: PathBuf },
}

/// For one connection.
pub(super) struct Credentials {
    pub(super) tls: Option<Arc<ClientConfig>>,
    pub(super) sasl: Option<Sasl>,
}

impl Credentials {
    pub(super) fn load(settings: &KafkaConfig) -> Result<Credentials, KafkaFileError> {
        let tls = settings.tls.as_ref().map(load_tls).transpose()?;
        let sasl = settings.sasl.as_ref().map(load_sasl).transpose()?;
        Ok(Credentials { tls, sasl })
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").finish_non_exhaustive()
    }
}

fn load_tls(settings: &OutgoingTlsConfig) -> Result<Arc<ClientConfig>, TlsError> {
    let file = |error| TlsError::File { table: TABLE, error };
    let trust = TrustFiles::load(&settings.ca, None).map_err(file)?;
    let identity = settings.identity().map(|(cert, key)| load_identity(cert, key));
    let identity = identity.transpose().map_err(file)?;
    client_config(Verify::Host, trust, identity.as_ref(), &[])
        .map(Arc::new)
        .map_err(|error| TlsError::Unusable { table: TABLE, error })
}

fn load_sasl(settings: &SaslConfig) -> Result<Sasl, KafkaFileError> {
    let password = read_password(&settings.password_file)?;
    let credentials = UserAndPassword::new(settings.user.clone(), password);
    Ok(match settings.mechanism {
        SaslMechanism::Plain => Sasl::Plain(credentials),
        SaslMechanism::ScramSha256 => Sasl::ScramSha256(credentials),
        SaslMechanism::ScramSha512 => Sasl::ScramSha512(credentials),
    })
}

fn read_password(path: &Path) -> Result<String, KafkaFileError> {
    let unreadable = |error| KafkaFileError::Unreadable { path: path.to_owned(), error };
    let no_password = || KafkaFileError::NoPassword { path: path.to_owned() };
    let metadata = fs::metadata(path).map_err(unreadable)?;
    if is_readable_by_others(&metadata) {
        return Err(KafkaFileError::ReadableByOthers { path: path.to_owned() });
    }
    if metadata.len() > PASSWORD_FILE_BYTES_MAX {
        return Err(no_password());
    }
    let text = String::from_utf8(fs::read(path).map_err(unreadable)?).map_err(|_| no_password())?;
    let password = text.trim_end_matches(['\r', '\n']);
    if password.is_empty() || password.contains(['\r', '\n']) {
        return Err(no_password());
    }
    Ok(password.to_owned())
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn write(path: &Path, text: &str, mode: u32) {
        fs::write(path, text).unwrap();
        fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_password_is_one_line_of_a_file_that_others_cannot_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("password");
        let refused = |path: &Path| read_password(path).unwrap_err().to_string();
        assert!(refused(&path).contains("cannot read the password"), "{}", refused(&path));
        for mode in [0o644, 0o640, 0o604] {
            write(&path, "hunter2", mode);
            assert!(refused(&path).contains("chmod 600"), "{mode:o}: {}", refused(&path));
        }
        for text in ["", "\n", "hunter2\nhunter3\n", &"x".repeat(9_000)] {
            write(&path, text, 0o600);
            assert!(refused(&path).contains("has no password"), "{}", refused(&path));
            assert!(!refused(&path).contains("hunter"));
        }
        write(&path, " with spaces \r\n", 0o600);
        assert_eq!(read_password(&path).unwrap(), " with spaces ");
    }

    #[test]
    fn what_is_shown_of_credentials_has_no_password() {
        let dir = tempfile::tempdir().unwrap();
        let password_file = dir.path().join("password");
        write(&password_file, "hunter2", 0o600);
        let mechanism = SaslMechanism::Plain;
        let sasl = SaslConfig { mechanism, user: "events".to_owned(), password_file };
        let loaded = Credentials { tls: None, sasl: Some(load_sasl(&sasl).unwrap()) };
        assert!(!format!("{loaded:?}").contains("hunter2"));
    }
}
