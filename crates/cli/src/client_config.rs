//! The configuration file of clients: clusters by name, each with its endpoints and certificates.
//!
//! ```toml
//! context = "prod"
//!
//! [contexts.prod]
//! endpoints = "locks-1.example.com:7420,locks-2.example.com:7420"
//! ca = "prod-ca.pem"                 # relative to this file
//! cert = "billing.pem"
//! key = "billing-key.pem"
//! verify = "cluster"                 # or "host"
//! auth_file = "billing.token"        # who this client is, unless its certificate says so
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::exit::{Code, Problem};

const VARIABLE: &str = "HOLDFAST_CONFIG";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClientConfig {
    /// Used unless another one is named.
    #[serde(default)]
    context: Option<String>,
    #[serde(default)]
    contexts: BTreeMap<String, Context>,
}

/// One cluster, and how to reach it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Context {
    #[serde(default)]
    pub(crate) endpoints: Option<String>,
    #[serde(default)]
    pub(crate) ca: Option<PathBuf>,
    #[serde(default)]
    pub(crate) cert: Option<PathBuf>,
    #[serde(default)]
    pub(crate) key: Option<PathBuf>,
    #[serde(default)]
    pub(crate) verify: Option<VerifyBy>,
    #[serde(default)]
    pub(crate) auth_file: Option<PathBuf>,
}

/// What of a node's certificate is verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum VerifyBy {
    /// It is for a node of the authority's cluster, at whatever address.
    Cluster,
    /// It is for the host that is dialled.
    Host,
}

impl ClientConfig {
    /// The one that is named, else the one that the file names. None if there is neither.
    pub(crate) fn context(named: Option<&str>) -> Result<Option<Context>, Problem> {
        match file()? {
            Some(path) => ClientConfig::load(&path)?.choose(&path, named),
            None if named.is_some() => {
                let words = format!(
                    "--context needs a configuration file: write ~/.config/holdfast/config.toml, or name one with \
                     {VARIABLE}"
                );
                Err(Problem::new(Code::Usage, words))
            }
            None => Ok(None),
        }
    }

    fn load(path: &Path) -> Result<ClientConfig, Problem> {
        let wrong = |words: String| {
            Problem::new(Code::Usage, format!("{}: {}", path.display(), words.trim_end()))
        };
        let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        toml::from_str(&text).map_err(|error| wrong(error.to_string()))
    }

    fn choose(mut self, path: &Path, named: Option<&str>) -> Result<Option<Context>, Problem> {
        let Some(name) = named.or(self.context.as_deref()).map(str::to_owned) else {
            return Ok(None);
        };
        let Some(context) = self.contexts.remove(&name) else {
            let known: Vec<&str> = self.contexts.keys().map(String::as_str).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            let words =
                format!("{}: there is no context '{name}'; it has: {known}", path.display());
            return Err(Problem::new(Code::Usage, words));
        };
        let beside = |file: PathBuf| path.parent().map_or(file.clone(), |dir| dir.join(&file));
        Ok(Some(Context {
            ca: context.ca.map(beside),
            cert: context.cert.map(beside),
            key: context.key.map(beside),
            auth_file: context.auth_file.map(beside),
            ..context
        }))
    }
}

/// The file that is named must be there. The usual one need not.
fn file() -> Result<Option<PathBuf>, Problem> {
    if let Some(path) = std::env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
        let path = std::path::absolute(PathBuf::from(path));
        let unusable = |error| Problem::new(Code::Usage, format!("{VARIABLE}: {error}"));
        return path.map(Some).map_err(unusable);
    }
    let base = std::env::var_os("XDG_CONFIG_HOME").filter(|base| !base.is_empty());
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".config"));
    let usual = base.map(PathBuf::from).or_else(home).map(|base| base.join("holdfast/config.toml"));
    Ok(usual.filter(|path| path.is_file()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
        context = "prod"
        [contexts.prod]
        endpoints = "a:1,b:2"
        ca = "ca.pem"
        cert = "/etc/holdfast/me.pem"
        key = "me-key.pem"
        verify = "host"
        auth_file = "me.token"
        [contexts.dev]
    "#;

    fn choose(named: Option<&str>) -> Result<Option<Context>, Problem> {
        let config: ClientConfig = toml::from_str(TEXT).unwrap();
        config.choose(Path::new("/home/me/holdfast.toml"), named)
    }

    #[test]
    fn the_context_of_the_file_is_used_and_its_files_are_beside_it() {
        let context = choose(None).unwrap().unwrap();
        assert_eq!(context.endpoints.as_deref(), Some("a:1,b:2"));
        assert_eq!(context.ca.as_deref(), Some(Path::new("/home/me/ca.pem")));
        assert_eq!(context.cert.as_deref(), Some(Path::new("/etc/holdfast/me.pem")));
        assert_eq!(context.auth_file.as_deref(), Some(Path::new("/home/me/me.token")));
        assert_eq!(context.verify, Some(VerifyBy::Host));
    }

    #[test]
    fn another_context_can_be_named_and_must_be_there() {
        assert_eq!(choose(Some("dev")).unwrap(), Some(Context::default()));
        let words = choose(Some("test")).unwrap_err().words;
        assert!(words.contains("no context 'test'; it has: dev, prod"), "{words}");
    }

    #[test]
    fn an_unknown_key_is_an_error() {
        let wrong = TEXT.replace("verify", "verfy");
        assert!(toml::from_str::<ClientConfig>(&wrong).is_err());
    }
}
