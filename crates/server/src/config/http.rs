//! `[http]`: what the HTTP port offers beyond looking.

use std::fmt;
use std::path::{Path, PathBuf};

use holdfast_dashboard::{Actions, Hosts};
use serde::Deserialize;

use super::address::is_host_name;
use super::{Address, CheckError, ConfigError, ListenConfig, MemberConfig};
use crate::private_file::is_readable_by_others;

const SECRET_CHARS_MIN: usize = 12;

#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpConfig {
    /// With it people can act from the dashboard. A file keeps it out of the configuration.
    #[serde(default)]
    pub actions_secret: Option<String>,
    /// Its first line is the secret.
    #[serde(default)]
    pub actions_secret_file: Option<PathBuf>,
    /// Names by which browsers reach the dashboard, besides those of the nodes. `*` is any.
    #[serde(default)]
    pub hosts: Vec<String>,
}

impl fmt::Debug for HttpConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpConfig")
            .field("actions_secret", &self.actions_secret.as_ref().map(|_| ".."))
            .field("actions_secret_file", &self.actions_secret_file)
            .field("hosts", &self.hosts)
            .finish()
    }
}

impl HttpConfig {
    pub(super) fn check(&self) -> Result<(), CheckError> {
        match self.hosts.iter().find(|host| *host != "*" && !is_host_name(host)) {
            Some(host) => Err(CheckError::HostName { host: host.clone() }),
            None => Ok(()),
        }
    }

    /// By which the nodes know themselves and each other, and those that were given.
    pub(crate) fn hosts(&self, nodes: &[MemberConfig], listen: &ListenConfig) -> Hosts {
        let of_nodes = nodes.iter().flat_map(|node| {
            [Some(&node.client), Some(&node.peer), node.http.as_ref()].into_iter().flatten()
        });
        let of_nodes =
            of_nodes.chain(listen.addresses().filter(|address| !address.is_unspecified()));
        Hosts::new(of_nodes.map(Address::host).chain(self.hosts.iter().map(String::as_str)))
    }

    /// Reads the file, if there is one.
    pub(crate) fn actions(&self) -> Result<Actions, ConfigError> {
        let secret = match (&self.actions_secret, &self.actions_secret_file) {
            (None, None) => return Ok(Actions::Off),
            (Some(_), Some(_)) => return Err(CheckError::TwoSecrets.into()),
            (Some(secret), None) => secret.clone(),
            (None, Some(path)) => first_line(path)?,
        };
        if secret.chars().count() < SECRET_CHARS_MIN {
            return Err(CheckError::ShortSecret.into());
        }
        Ok(Actions::Secret(secret))
    }
}

fn first_line(path: &Path) -> Result<String, ConfigError> {
    let unreadable = |source| ConfigError::Secret { path: path.to_owned(), source };
    if is_readable_by_others(&std::fs::metadata(path).map_err(unreadable)?) {
        return Err(ConfigError::SecretIsReadable { path: path.to_owned() });
    }
    let text = std::fs::read_to_string(path).map_err(unreadable)?;
    Ok(text.lines().next().unwrap_or_default().trim().to_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn without_a_secret_nothing_can_be_done() {
        assert_eq!(HttpConfig::default().actions().unwrap(), Actions::Off);
    }

    #[test]
    fn a_secret_is_the_first_line_of_a_file_and_not_too_short() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secret");
        let config =
            HttpConfig { actions_secret_file: Some(path.clone()), ..HttpConfig::default() };
        let error = config.actions().unwrap_err().to_string();
        assert!(error.contains("secret"), "{error}");
        std::fs::write(&path, "correct horse\nbattery\n").unwrap();
        let set_mode = |mode| std::fs::set_permissions(&path, PermissionsExt::from_mode(mode));
        for mode in [0o644, 0o640] {
            set_mode(mode).unwrap();
            let error = config.actions().unwrap_err().to_string();
            assert!(error.contains("chmod 600") && !error.contains("horse"), "{error}");
        }
        set_mode(0o600).unwrap();
        assert_eq!(config.actions().unwrap(), Actions::Secret("correct horse".to_owned()));
        std::fs::write(&path, "short\n").unwrap();
        assert!(config.actions().unwrap_err().to_string().contains("12 characters"));
        let both = HttpConfig { actions_secret: Some("x".repeat(20)), ..config };
        assert!(both.actions().unwrap_err().to_string().contains("keep one"));
        assert!(!format!("{both:?}").contains("xxx"));
    }
}
