//! Certificates for the nodes of `holdfast dev --secure`, and the configuration file for its clients.

use std::fs;
use std::path::{Path, PathBuf};

use holdfast_server::{NodeConfig, PeerTlsConfig, TlsConfig};
use holdfast_tls::{Authority, AuthorityError, Issued, Validity};

use crate::cert::Directory;
use crate::exit::{Code, Problem};

/// Beside the directories of the nodes.
const CERTIFICATES: &str = "certs";
const CLIENT_CONFIG: &str = "client.toml";
const CLIENT: &str = "dev";
/// By which the nodes are reached.
const HOSTS: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// Gives each node its certificate. An authority that is there already stays; certificates are made at each start.
/// Returns the path of the configuration file for clients.
pub(super) fn secure(configs: &mut [NodeConfig], data_dir: &Path) -> Result<PathBuf, Problem> {
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
    Ok(path)
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
