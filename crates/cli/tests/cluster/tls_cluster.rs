//! A cluster with TLS on all ports that demands credentials, as an operator sets it up: certificates by `holdfast cert`,
//! an administrator by `holdfast access bootstrap`.

use std::path::PathBuf;
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::support::{Cluster, holdfast, output, text};

pub(crate) struct TlsCluster {
    pub(crate) cluster: Cluster,
    /// With the directory `certs`, the tokens of users, and what `{dir}` in settings is.
    dir: TempDir,
}

impl TlsCluster {
    pub(crate) async fn start(nodes: u64, settings: &str) -> TlsCluster {
        let dir = tempfile::tempdir().unwrap();
        TlsCluster::start_in(dir, nodes, settings).await
    }

    pub(crate) async fn start_in(dir: TempDir, nodes: u64, settings: &str) -> TlsCluster {
        let certs = dir.path().join("certs");
        let certs = certs.to_str().unwrap();
        done(&["cert", "ca", "--cluster", "test", "--dir", certs]).await;
        for id in 1..=nodes {
            let id = id.to_string();
            done(&["cert", "node", "--id", &id, "--host", "127.0.0.1", "--dir", certs]).await;
        }
        done(&["cert", "client", "reports", "--dir", certs]).await;
        let settings = format!(
            "auth.mode = \"required\"\n{settings}\n\
             [tls]\ncert = \"{certs}/node-{{node}}.pem\"\nkey = \"{certs}/node-{{node}}-key.pem\"\n\
             client_ca = \"{certs}/ca.pem\"\n\
             [peer_tls]\ncert = \"{certs}/node-{{node}}.pem\"\nkey = \"{certs}/node-{{node}}-key.pem\"\n\
             ca = \"{certs}/ca.pem\"\n"
        );
        let settings = settings.replace("{dir}", dir.path().to_str().unwrap());
        let cluster = Cluster::start_tls(nodes, &settings).await;
        let secured = TlsCluster { cluster, dir };
        let (config, admin) = (secured.cluster.config_path(1), secured.path("admin"));
        let (ca, admin) = (secured.path("certs/ca.pem"), admin.to_str().unwrap().to_owned());
        let ca = ca.to_str().unwrap();
        done(&["--ca", ca, "access", "bootstrap", "--config", &config, "--to", &admin]).await;
        secured
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Without a credential.
    pub(crate) fn anonymous(&self, args: &[&str]) -> Command {
        let mut command = holdfast();
        command.env("HOLDFAST_ENDPOINTS", self.cluster.endpoints());
        command.env("HOLDFAST_CA", self.path("certs/ca.pem")).args(args);
        command
    }

    /// With the credential in the file of this name.
    pub(crate) fn command(&self, user: &str, args: &[&str]) -> Command {
        let mut command = self.anonymous(args);
        command.env("HOLDFAST_AUTH_FILE", self.path(user));
        command
    }

    pub(crate) async fn run(&self, user: &str, args: &[&str]) -> Output {
        output(self.command(user, args)).await
    }

    pub(crate) async fn done(&self, user: &str, args: &[&str]) -> String {
        let output = self.run(user, args).await;
        assert!(output.status.success(), "{args:?}: {output:?}");
        text(&output.stdout)
    }

    /// A user with these rules, whose token is in the file `name`.
    pub(crate) async fn user(&self, name: &str, rules: &[&str]) {
        let (principal, file) = (format!("token:{name}"), self.path(name));
        let mut role = vec!["access", "role", "create", name];
        rules.iter().for_each(|rule| role.extend(["--allow", rule]));
        self.done("admin", &role).await;
        let file = file.to_str().unwrap();
        let create = ["access", "user", "create", &principal, "--role", name, "--to", file];
        self.done("admin", &create).await;
    }
}

pub(crate) async fn done(args: &[&str]) -> String {
    let mut command = holdfast();
    command.args(args);
    let output = output(command).await;
    assert!(output.status.success(), "{args:?}: {output:?}");
    text(&output.stdout)
}
