//! The configurations in `deploy/`: three real nodes run with each, with certificates as its comments make them. A client
//! with a credential gets a lock, and others are refused. Paths are below a directory of the test, and addresses are on
//! loopback; all else is as it stands in the file.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use holdfast_server::{AuthMode, NodeConfig};
use tempfile::TempDir;
use toml::{Table, Value};
use yaml_rust2::{Yaml, YamlLoader};

use crate::support::{Cluster, holdfast, output, text};
use crate::tls_cluster::done;

const DENIED: i32 = 77;
const NODES: u64 = 3;

fn path_of(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(file)
}

fn read(file: &str) -> String {
    std::fs::read_to_string(path_of(file)).unwrap()
}

/// A text in one of the documents of a YAML file.
fn in_yaml(file: &str, find: impl Fn(&Yaml) -> Option<&str>) -> String {
    let documents = YamlLoader::load_from_str(&read(file)).unwrap();
    documents.iter().find_map(find).unwrap().to_owned()
}

fn kubernetes() -> String {
    in_yaml("kubernetes/holdfast.yaml", |document| document["data"]["node.toml"].as_str())
}

fn compose() -> String {
    in_yaml("docker/compose.yaml", |document| document["configs"]["cluster"]["content"].as_str())
}

/// The file of node 1, or of all nodes, as that of this one: the files differ in `node` alone.
fn of_node(file: &str, id: u64) -> Table {
    let mut config: Table = file.replace("NODE", &id.to_string()).parse().unwrap();
    config.insert("node".to_owned(), Value::Integer(id.try_into().unwrap()));
    config
}

/// A machine for the nodes of a configuration, with the authority beside them.
struct Machine {
    dir: TempDir,
    file: String,
}

impl Machine {
    /// With the certificates that the nodes need.
    async fn new(file: String) -> Machine {
        let machine = Machine { dir: tempfile::tempdir().unwrap(), file };
        let cluster = of_node(&machine.file, 1)["cluster"].as_str().unwrap().to_owned();
        machine.cert(&["ca", "--cluster", &cluster]).await;
        for id in 1..=NODES {
            let config = NodeConfig::from_toml(&of_node(&machine.file, id).to_string()).unwrap();
            let host = config.this_node().unwrap().client.to_string();
            let host = host.rsplit_once(':').unwrap().0;
            machine.cert(&["node", "--id", &id.to_string(), "--host", host]).await;
        }
        machine
    }

    async fn cert(&self, args: &[&str]) {
        let certs = self.path("certs");
        done(&[&["cert"], args, &["--dir", certs.to_str().unwrap()]].concat()).await;
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The directory that stands for `/` of the node's machine.
    fn root(&self, id: u64) -> String {
        self.path(&format!("root-{id}")).to_str().unwrap().to_owned()
    }

    /// The node's configuration, with all that it names in place.
    fn configuration(&self, cluster: &Cluster, id: u64) -> String {
        let mut config = Value::Table(of_node(&self.file, id));
        relocate(&mut config, &self.root(id), cluster, id);
        for (table, key) in [
            ("tls", "cert"),
            ("tls", "key"),
            ("tls", "client_ca"),
            ("peer_tls", "cert"),
            ("peer_tls", "key"),
            ("peer_tls", "ca"),
        ] {
            let path = Path::new(config[table][key].as_str().unwrap());
            let issued = path.file_name().unwrap().to_str().unwrap();
            let issued = issued.replace("node", &format!("node-{id}"));
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::copy(self.path("certs").join(issued), path).unwrap();
        }
        let audit = config.get("audit").map(|audit| &audit["file"]);
        for file in [Some(&config["data_dir"]), audit].into_iter().flatten() {
            let parent = Path::new(file.as_str().unwrap()).parent().unwrap();
            std::fs::create_dir_all(parent).unwrap();
        }
        toml::to_string(&config).unwrap()
    }

    fn command(&self, cluster: &Cluster, options: &[&str], args: &[&str]) -> Command {
        let mut command = holdfast();
        command.env("HOLDFAST_ENDPOINTS", cluster.endpoints()).args(options).args(args);
        command
    }
}

/// Paths are below `root`, and the conventional ports are those of the node to which they belong.
fn relocate(value: &mut Value, root: &str, cluster: &Cluster, node: u64) {
    match value {
        Value::String(text) if text.starts_with('/') => text.insert_str(0, root),
        Value::String(text) => match text.rsplit_once(':') {
            Some((_, "7420")) => *text = cluster.client_address(node),
            Some((_, "7421")) => *text = cluster.peer_address(node),
            Some((_, "7422")) => *text = cluster.http_address(node),
            _ => {}
        },
        Value::Array(values) => {
            values.iter_mut().for_each(|value| relocate(value, root, cluster, node));
        }
        Value::Table(table) => {
            let id = table.get("id").and_then(Value::as_integer);
            let node = id.map_or(node, |id| id.try_into().unwrap());
            table.iter_mut().for_each(|(_, value)| relocate(value, root, cluster, node));
        }
        _ => {}
    }
}

/// Returns the machine with the nodes, which have granted a lock.
async fn serves_clients_with_credentials_alone(file: String) -> (Machine, Cluster) {
    const LOCK: &[&str] = &["lock", "a", "--", "true"];
    for id in 1..=NODES {
        let config = NodeConfig::from_toml(&of_node(&file, id).to_string()).unwrap();
        assert!(!config.insecure && config.tls.is_some() && config.peer_tls.is_some());
        assert_eq!((config.auth.mode, config.nodes.len()), (AuthMode::Required, NODES as usize));
    }
    let machine = Machine::new(file).await;
    let cluster =
        Cluster::start_configured(NODES, |cluster, id| machine.configuration(cluster, id));
    let cluster = cluster.await;
    let of_certs = |name: &str| machine.path("certs").join(name).to_str().unwrap().to_owned();
    let (ca, admin) = (of_certs("ca.pem"), machine.path("admin").to_str().unwrap().to_owned());
    let run = async |options: &[&str], args: &[&str]| {
        output(machine.command(&cluster, options, args)).await
    };

    for (options, words) in
        [(&[][..], "speaks TLS"), (&["--ca", &ca][..], "demands to know who calls")]
    {
        let refused = run(options, LOCK).await;
        assert_eq!(refused.status.code(), Some(DENIED), "{refused:?}");
        assert!(text(&refused.stderr).contains(words), "{refused:?}");
    }
    let config = cluster.config_path(1);
    let as_admin = ["--ca", &ca, "--auth-file", &admin];
    for (options, args) in [
        (&as_admin[..2], &["access", "bootstrap", "--config", &config, "--to", &admin][..]),
        (&as_admin[..], &["access", "user", "create", "cert:app", "--role", "user"]),
    ] {
        let output = run(options, args).await;
        assert!(output.status.success(), "{output:?}");
    }
    machine.cert(&["client", "app"]).await;
    let (cert, key) = (of_certs("client-app.pem"), of_certs("client-app-key.pem"));
    let taken = run(&["--ca", &ca, "--cert", &cert, "--key", &key], LOCK).await;
    assert!(taken.status.success(), "{taken:?}");
    (machine, cluster)
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_with_the_configuration_of_the_kubernetes_manifest_serve_clients_with_credentials_alone()
 {
    serves_clients_with_credentials_alone(kubernetes()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_with_the_configuration_of_docker_compose_serve_clients_with_credentials_alone() {
    serves_clients_with_credentials_alone(compose()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_with_the_configuration_for_a_container_serve_clients_with_credentials_alone() {
    serves_clients_with_credentials_alone(read("docker/node.toml")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_with_the_configuration_for_systemd_serve_clients_with_credentials_alone_and_audit() {
    let file = read("systemd/node.toml");
    let (machine, mut cluster) = serves_clients_with_credentials_alone(file).await;
    // A node that stops writes what is left.
    cluster.terminate(1).await;
    let audit = format!("{}/var/log/holdfast/audit.jsonl", machine.root(1));
    let audit = std::fs::read_to_string(audit).unwrap();
    let granted = audit.lines().find(|line| line.contains("\"granted\"")).expect("no grant");
    assert!(granted.contains("cert:app"), "{granted}");
}

/// The unit hands over what the file names.
#[test]
fn the_unit_of_systemd_loads_the_credentials_that_its_configuration_names() {
    let config = NodeConfig::from_toml(&read("systemd/node.toml")).unwrap();
    let (unit, tls) = (read("systemd/holdfast.service"), config.tls.unwrap());
    for path in [Some(tls.cert), Some(tls.key), tls.client_ca].into_iter().flatten() {
        let name = path.file_name().unwrap().to_str().unwrap();
        assert_eq!(path.parent().unwrap().to_str(), Some("/run/credentials/holdfast.service"));
        assert!(
            unit.contains(&format!("\nLoadCredential={name}:/etc/holdfast/{name}\n")),
            "{name}"
        );
    }
}

#[test]
fn in_a_container_ports_listen_on_all_addresses_and_no_client_is_told_such_an_address() {
    for file in [kubernetes(), compose(), read("docker/node.toml")] {
        let config = NodeConfig::from_toml(&of_node(&file, 1).to_string()).unwrap();
        let listen = [&config.listen.client, &config.listen.peer, &config.listen.http];
        let listen = listen.map(|address| address.as_ref().unwrap().to_string());
        assert_eq!(listen, ["0.0.0.0:7420", "0.0.0.0:7421", "0.0.0.0:7422"]);
        for member in &config.nodes {
            assert!(!member.client.is_unspecified() && member.http.is_some(), "{member:?}");
        }
    }
}

/// What systemd says of a unit; None where systemd is not installed.
fn verified(unit: &str) -> Option<String> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("holdfast.service");
    // It looks for the program, too.
    let unit = unit.replace("/usr/local/bin/holdfast", env!("CARGO_BIN_EXE_holdfast"));
    std::fs::write(&path, unit).unwrap();
    let verified = Command::new("systemd-analyze").arg("verify").arg(&path).output().ok()?;
    // Other units of this machine are not ours.
    let of_unit = text(&verified.stderr);
    Some(of_unit.lines().filter(|line| line.contains("holdfast")).collect::<Vec<_>>().join("\n"))
}

#[test]
fn systemd_finds_no_fault_with_the_unit() {
    let unit = read("systemd/holdfast.service");
    let Some(said) = verified(&unit) else {
        let _ = writeln!(std::io::stderr(), "SKIPPED a test: systemd-analyze is not installed");
        return;
    };
    assert_eq!(said, "");
    let misspelt = unit.replace("ProtectClock=", "ProtectClok=");
    assert!(verified(&misspelt).unwrap().contains("ProtectClok"));
}
