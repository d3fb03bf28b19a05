//! Certificates for the nodes of `holdfast dev --secure`, the configuration file for its clients, and the first
//! administrators.

use std::fs;
use std::path::{Path, PathBuf};

use holdfast_client::Tls;
use holdfast_client::unary::Unary;
use holdfast_core::Principal;
use holdfast_server::{AuthMode, NodeConfig, PeerTlsConfig, TlsConfig, bootstrap_token_file};
use holdfast_tls::{Authority, AuthorityError, Issued, Validity};

use crate::access::first_administrators;
use crate::cert::Directory;
use crate::exit::{Code, Problem};

/// Beside the directories of the nodes.
const CERTIFICATES: &str = "certs";
const CLIENT_CONFIG: &str = "client.toml";
const DASHBOARD_TOKEN: &str = "dashboard.token";
const CLIENT: &str = "dev";
/// By which the nodes are reached.
const HOSTS: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// What the nodes and their clients need.
pub(super) struct SecuredCluster {
    /// The configuration file for clients.
    pub(super) client_config: PathBuf,
    /// For the dashboard's login.
    pub(super) dashboard_token: PathBuf,
    /// Of the first node.
    address: String,
    bootstrap_token: PathBuf,
    tls: Tls,
}

impl SecuredCluster {
    /// Makes the client's certificate an administrator's, and a token for the dashboard. A cluster that was started before
    /// has them.
    pub(super) async fn make_administrators(&self) -> Result<(), Problem> {
        let client = Principal::parse(&format!("cert:{CLIENT}"))
            .map_err(|error| Problem::new(Code::Usage, error.to_string()))?;
        let calls = Unary::new(&self.address)?.tls(self.tls.clone())?;
        if !calls.who_am_i().await?.roles.is_empty() {
            return Ok(());
        }
        let by_bootstrap = calls.clone().auth_file(&self.bootstrap_token)?;
        let made = first_administrators(&by_bootstrap, &client, &self.dashboard_token).await;
        // The node may have learnt of the policy meanwhile.
        match made {
            Err(problem) if calls.who_am_i().await?.roles.is_empty() => Err(problem),
            _ => Ok(()),
        }
    }
}

/// Gives each node its certificate, and makes it demand credentials. An authority that is there already stays; certificates
/// are made at each start.
pub(super) fn secure(
    configs: &mut [NodeConfig],
    data_dir: &Path,
) -> Result<SecuredCluster, Problem> {
    let data_dir = std::path::absolute(data_dir).map_err(|error| broken(data_dir, &error))?;
    let directory = Directory::at(data_dir.join(CERTIFICATES));
    let cluster = configs.first().map_or(CLIENT, |config| &config.cluster);
    let authority = match directory.has_authority() {
        true => directory.load_authority()?,
        false => {
            let authority = Authority::create(cluster, Validity::AUTHORITY).map_err(cannot_make)?;
            directory.write_authority(&authority)?;
            authority
        }
    };
    let write = |stem: &str, issued: Result<Issued, AuthorityError>| {
        directory.write_issued(stem, &issued.map_err(cannot_make)?, true)?;
        Ok::<_, Problem>(directory.paths(stem))
    };
    let (ca, _) = directory.authority_paths();
    let hosts = HOSTS.map(str::to_owned);
    for config in configs.iter_mut() {
        let issued = authority.issue_node(config.node, &hosts, Validity::LEAF);
        let (cert, key) = write(&format!("node-{}", config.node), issued)?;
        config.tls = Some(TlsConfig {
            cert: cert.clone(),
            key: key.clone(),
            client_ca: Some(ca.clone()),
            crl: None,
        });
        config.auth.mode = AuthMode::Required;
        config.peer_tls = Some(PeerTlsConfig { cert, key, ca: ca.clone(), crl: None });
    }
    let issued = authority.issue_client(CLIENT, Validity::LEAF);
    let (cert, key) = write(&format!("client-{CLIENT}"), issued)?;
    let nodes = configs.first().map(|config| &config.nodes[..]).unwrap_or_default();
    let endpoints: Vec<String> = nodes.iter().map(|node| node.client.to_string()).collect();
    let path = data_dir.join(CLIENT_CONFIG);
    let text = format!(
        "context = \"{CLIENT}\"\n\n[contexts.{CLIENT}]\nendpoints = \"{}\"\nca = {}\ncert = {}\nkey = {}\n",
        endpoints.join(","),
        beside(&data_dir, &ca),
        beside(&data_dir, &cert),
        beside(&data_dir, &key)
    );
    fs::write(&path, text).map_err(|error| broken(&path, &error))?;
    let first = configs.first().map(|config| config.data_dir.as_path()).unwrap_or(&data_dir);
    Ok(SecuredCluster {
        client_config: path,
        dashboard_token: data_dir.join(DASHBOARD_TOKEN),
        address: endpoints.into_iter().next().unwrap_or_default(),
        bootstrap_token: bootstrap_token_file(first),
        tls: Tls::new(ca).certificate(cert, key),
    })
}

/// As a text of TOML, relative to the file that it stands in.
fn beside(data_dir: &Path, path: &Path) -> String {
    let path = path.strip_prefix(data_dir).unwrap_or(path);
    format!("{:?}", path.to_string_lossy())
}

fn cannot_make(error: AuthorityError) -> Problem {
    Problem::new(Code::Usage, error.to_string())
}

fn broken(path: &Path, error: &std::io::Error) -> Problem {
    Problem::new(Code::Unavailable, format!("cannot write {}: {error}", path.display()))
}
