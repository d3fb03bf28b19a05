//! The options that every verb takes: which cluster, how it is reached, and how data is written.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use holdfast_client::unary::Unary;
use holdfast_client::{ClientBuilder, Tls};

use crate::client_config::{ClientConfig, Context, VerifyBy};
use crate::exit::{Code, Problem};

const GLOBAL_OPTIONS: &str = "Global options";
const DEFAULT_ENDPOINTS: &str = "127.0.0.1:7420";

#[derive(Debug, Args)]
pub(crate) struct GlobalArgs {
    /// One or more nodes of the cluster, host:port, separated by commas. The command finds the others. [default:
    /// 127.0.0.1:7420]
    #[arg(long, global = true, env = "HOLDFAST_ENDPOINTS", value_name = "LIST", help_heading = GLOBAL_OPTIONS)]
    endpoints: Option<String>,
    /// The format of the data on stdout.
    #[arg(
        long,
        global = true,
        value_enum,
        default_value_t = Format::Table,
        value_name = "FORMAT",
        help_heading = GLOBAL_OPTIONS
    )]
    pub(crate) output: Format,
    /// The authorities that sign the nodes' certificates; with it the nodes are reached with TLS.
    #[arg(long, global = true, env = "HOLDFAST_CA", value_name = "FILE", help_heading = GLOBAL_OPTIONS)]
    ca: Option<PathBuf>,
    /// The client's own certificate.
    #[arg(long, global = true, env = "HOLDFAST_CERT", value_name = "FILE", help_heading = GLOBAL_OPTIONS)]
    cert: Option<PathBuf>,
    /// The private key of the client's certificate.
    #[arg(long, global = true, env = "HOLDFAST_KEY", value_name = "FILE", help_heading = GLOBAL_OPTIONS)]
    key: Option<PathBuf>,
    /// The file with the token by which the client proves who it is. Only its owner may read it.
    #[arg(long, global = true, env = "HOLDFAST_AUTH_FILE", value_name = "FILE", help_heading = GLOBAL_OPTIONS)]
    auth_file: Option<PathBuf>,
    /// What has to be right about a node's certificate. [default: cluster]
    #[arg(
        long,
        global = true,
        value_enum,
        env = "HOLDFAST_VERIFY",
        value_name = "WHAT",
        help_heading = GLOBAL_OPTIONS
    )]
    verify: Option<VerifyBy>,
    /// The context of the client's configuration file (HOLDFAST_CONFIG, or ~/.config/holdfast/config.toml).
    #[arg(long, global = true, env = "HOLDFAST_CONTEXT", value_name = "NAME", help_heading = GLOBAL_OPTIONS)]
    context: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Table,
    /// For programs: JSON.
    Json,
}

/// The cluster, how it is reached, and how data is written.
#[derive(Debug)]
pub(crate) struct Global {
    pub(crate) endpoints: String,
    pub(crate) output: Format,
    pub(crate) tls: Option<Tls>,
    pub(crate) auth_file: Option<PathBuf>,
}

impl GlobalArgs {
    /// For verbs that reach no cluster.
    pub(crate) fn without_cluster(self) -> Global {
        let endpoints = self.endpoints.unwrap_or_else(|| DEFAULT_ENDPOINTS.to_owned());
        Global { endpoints, output: self.output, tls: None, auth_file: None }
    }

    /// What is not said here comes from the client's configuration file, if there is one.
    pub(crate) fn resolve(self) -> Result<Global, Problem> {
        let context = ClientConfig::context(self.context.as_deref())?;
        let Context { endpoints, ca, cert, key, verify, auth_file } = context.unwrap_or_default();
        let endpoints = self.endpoints.or(endpoints);
        let endpoints = endpoints.unwrap_or_else(|| DEFAULT_ENDPOINTS.to_owned());
        let (cert, key) = match (&self.cert, &self.key) {
            (None, None) => (cert, key),
            _ => (self.cert, self.key),
        };
        let tls = tls(self.ca.or(ca), cert, key, self.verify.or(verify))?;
        let auth_file = self.auth_file.or(auth_file);
        Ok(Global { endpoints, output: self.output, tls, auth_file })
    }
}

fn tls(
    ca: Option<PathBuf>,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    verify: Option<VerifyBy>,
) -> Result<Option<Tls>, Problem> {
    let missing = |words: &str| Err(Problem::new(Code::Usage, words));
    let tls = match (ca, cert, key) {
        (None, None, None) if verify.is_none() => return Ok(None),
        (None, ..) => {
            return missing(
                "--cert, --key and --verify need --ca FILE: the authority of the cluster",
            );
        }
        (Some(_), Some(_), None) => return missing("--cert needs --key FILE: its private key"),
        (Some(_), None, Some(_)) => return missing("--key needs --cert FILE: its certificate"),
        (Some(ca), None, None) => Tls::new(ca),
        (Some(ca), Some(cert), Some(key)) => Tls::new(ca).certificate(cert, key),
    };
    Ok(Some(match verify {
        Some(VerifyBy::Host) => tls.verify_host(),
        Some(VerifyBy::Cluster) | None => tls,
    }))
}

impl Global {
    /// Single calls to the cluster.
    pub(crate) fn calls(&self) -> Result<Unary, Problem> {
        let mut calls = Unary::new(&self.endpoints)?;
        if let Some(tls) = &self.tls {
            calls = calls.tls(tls.clone())?;
        }
        if let Some(path) = &self.auth_file {
            calls = calls.auth_file(path)?;
        }
        Ok(calls)
    }

    /// A client that reaches the cluster in the same way.
    pub(crate) fn reaching(&self, mut builder: ClientBuilder) -> ClientBuilder {
        if let Some(tls) = &self.tls {
            builder = builder.tls(tls.clone());
        }
        if let Some(path) = &self.auth_file {
            builder = builder.auth_file(path);
        }
        builder
    }
}
