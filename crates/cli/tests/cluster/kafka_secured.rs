//! Events reach a real broker of Kafka over TLS, with a user or with a certificate. What the broker or the node refuses is
//! told in words, and locks go on without it.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::servers::kafka::{BrokerTls, KafkaServer, PLAIN_PASSWORD, SCRAM_PASSWORD, USER};
use crate::support::{
    Cluster, ClusterOptions, eventually, holdfast, metric, metrics, output, text, words,
};
use crate::tls_cluster::done;

/// A JVM on a busy machine is slow.
const LONG: Duration = Duration::from_secs(120);
const WRONG_PASSWORD: &str = "wrong-secret";

/// Two authorities, one of which the broker does not have.
struct Files(TempDir);

impl Files {
    async fn make() -> Files {
        let files = Files(tempfile::tempdir().unwrap());
        for authority in ["brokers", "others"] {
            let dir = files.path(authority);
            let dir = dir.to_str().unwrap();
            done(&["cert", "ca", "--cluster", authority, "--dir", dir]).await;
            done(&["cert", "client", USER, "--dir", dir]).await;
        }
        let brokers = files.path("brokers");
        let brokers = brokers.to_str().unwrap();
        done(&["cert", "node", "--id", "1", "--host", "127.0.0.1", "--dir", brokers]).await;
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn of_broker(&self) -> BrokerTls {
        BrokerTls {
            certificate: self.path("brokers/node-1.pem"),
            key: self.path("brokers/node-1-key.pem"),
            client_ca: self.path("brokers/ca.pem"),
        }
    }

    fn password(&self, name: &str, password: &str) -> PathBuf {
        let path = self.path(name);
        write_private(&path, password);
        path
    }

    fn tls(&self, authority: &str) -> String {
        format!("[kafka.tls]\nca = \"{}\"\n", self.path(authority).join("ca.pem").display())
    }

    /// With the certificate that this authority signed.
    fn mutual_tls(&self, authority: &str) -> String {
        let dir = self.path(authority);
        let dir = dir.display();
        let own =
            format!("cert = \"{dir}/client-{USER}.pem\"\nkey = \"{dir}/client-{USER}-key.pem\"\n");
        self.tls("brokers") + &own
    }

    fn sasl(&self, mechanism: &str, password_file: &Path) -> String {
        format!(
            "[kafka.sasl]\nmechanism = \"{mechanism}\"\nuser = \"{USER}\"\npassword_file = \"{}\"\n",
            password_file.display()
        )
    }
}

fn write_private(path: &Path, text: &str) {
    let new = path.with_extension("new");
    std::fs::write(&new, format!("{text}\n")).unwrap();
    std::fs::set_permissions(&new, PermissionsExt::from_mode(0o600)).unwrap();
    std::fs::rename(&new, path).unwrap();
}

async fn publishing_node(broker: &str, topic: &str, security: &str) -> Cluster {
    let settings = format!(
        "[kafka]\nbrokers = [\"{broker}\"]\ntopic = \"{topic}\"\npartitions = 1\ntimeout_ms = 5000\n{security}"
    );
    Cluster::start_with(ClusterOptions { nodes: 1, settings }).await
}

/// Takes a lock, whatever becomes of the events.
async fn take(cluster: &Cluster, name: &str) {
    words(cluster, 0, &["lock", name, "--", "true"]).await;
}

/// The grant of this lock is in the topic.
async fn arrives(kafka: &KafkaServer, topic: &str, name: &str) {
    eventually(&format!("{name} is in {topic}"), LONG, || async {
        let records = kafka.read_if_there(topic).await?.into_iter().flatten();
        let mut lines =
            records.map(|record| serde_json::from_slice(&record.value.unwrap()).unwrap());
        lines
            .any(|line: Value| line["event"] == "granted" && line["names"][0] == name)
            .then_some(())
    })
    .await;
}

/// The node says why it cannot publish, counts it, and grants locks.
async fn is_told(cluster: &Cluster, words: &str) {
    take(cluster, "meanwhile").await;
    eventually(&format!("the log says '{words}'"), LONG, || {
        let log = cluster.log_of(1);
        let told = log.lines().any(|line| line.contains("takes no events") && line.contains(words));
        std::future::ready(told.then_some(()))
    })
    .await;
    let page = metrics(&cluster.http_address(1)).await;
    assert!(metric(&page, "holdfast_kafka_failures_total") >= 1.0, "{page}");
    assert_eq!(metric(&page, "holdfast_kafka_connected"), 0.0);
    take(cluster, "afterwards").await;
}

fn has_no_password(cluster: &Cluster) {
    let log = cluster.log_of(1);
    for password in [PLAIN_PASSWORD, SCRAM_PASSWORD, WRONG_PASSWORD] {
        assert!(!log.contains(password), "{log}");
    }
}

/// One broker for all of it: a broker takes seconds to start.
#[tokio::test(flavor = "multi_thread")]
async fn events_reach_kafka_over_tls_and_what_is_refused_is_told() {
    let files = Files::make().await;
    let Some(kafka) = KafkaServer::start_secured(&files.of_broker()).await else { return };
    let (sasl, mutual) = (kafka.sasl_address(), kafka.mutual_address());
    let scram = files.sasl("SCRAM-SHA-512", &files.password("scram", SCRAM_PASSWORD));
    let plain = files.sasl("PLAIN", &files.password("plain", PLAIN_PASSWORD));
    let tls = files.tls("brokers");

    for (topic, broker, security) in [
        ("scram", &sasl, format!("{tls}{scram}")),
        ("plain", &sasl, format!("{tls}{plain}")),
        ("mutual", &mutual, files.mutual_tls("brokers")),
    ] {
        let cluster = publishing_node(broker, topic, &security).await;
        take(&cluster, "first").await;
        arrives(&kafka, topic, "first").await;
        has_no_password(&cluster);
    }
    for (broker, security, words) in [
        (&sasl, format!("{}{scram}", files.tls("others")), "not in kafka.tls.ca"),
        (&sasl, tls.clone(), "[kafka.sasl]"),
        (&sasl, scram.clone(), "[kafka.tls]"),
        (&sasl, format!("{tls}{}", scram.replace("512", "256")), "kafka.sasl.mechanism"),
        (&mutual, tls.clone(), "cert and key in [kafka.tls]"),
        (&mutual, files.mutual_tls("others"), "cert and key in [kafka.tls]"),
        (&kafka.address(), tls.clone(), "speaks no TLS"),
        (&kafka.address(), scram.clone(), "takes no user"),
        (&mutual.replace("127.0.0.1", "localhost"), tls.clone(), "is not for the host"),
    ] {
        let cluster = publishing_node(broker, "refused", &security).await;
        is_told(&cluster, words).await;
        has_no_password(&cluster);
    }
    assert!(kafka.read_if_there("refused").await.is_none());
    a_password_is_replaced_while_the_node_runs(&files, &kafka).await;
}

async fn a_password_is_replaced_while_the_node_runs(files: &Files, kafka: &KafkaServer) {
    for (mechanism, password) in [("PLAIN", PLAIN_PASSWORD), ("SCRAM-SHA-512", SCRAM_PASSWORD)] {
        let file = files.password("replaced", WRONG_PASSWORD);
        let security = files.tls("brokers") + &files.sasl(mechanism, &file);
        let topic = format!("replaced-{mechanism}");
        let cluster = publishing_node(&kafka.sasl_address(), &topic, &security).await;
        is_told(&cluster, "refuses the user or the password").await;
        write_private(&file, password);
        arrives(kafka, &topic, "meanwhile").await;
        has_no_password(&cluster);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_does_not_start_with_files_that_cannot_be_used() {
    let files = Files::make().await;
    let readable = files.password("readable", SCRAM_PASSWORD);
    std::fs::set_permissions(&readable, PermissionsExt::from_mode(0o644)).unwrap();
    let missing = files.path("missing");
    let cluster = Cluster::start(1).await;
    let config = std::fs::read_to_string(cluster.config_path(1)).unwrap();
    for (security, words) in [
        (files.sasl("SCRAM-SHA-512", &readable), "chmod 600"),
        (files.sasl("SCRAM-SHA-512", &missing), "cannot read the password"),
        (files.tls("nowhere"), "[kafka.tls]"),
    ] {
        let kafka =
            format!("[kafka]\nbrokers = [\"127.0.0.1:1\"]\ntopic = \"t\"\n{security}\n[[nodes]]");
        let file = files.path("node.toml");
        std::fs::write(&file, config.replacen("[[nodes]]", &kafka, 1)).unwrap();
        let mut server = holdfast();
        server.args(["server", "--config"]).arg(&file);
        let ended = output(server).await;
        let said = text(&ended.stderr);
        assert!(ended.status.code() == Some(64) && said.contains(words), "{said}");
        assert!(!said.contains(SCRAM_PASSWORD), "{said}");
    }
}
