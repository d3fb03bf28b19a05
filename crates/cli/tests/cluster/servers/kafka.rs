//! A Kafka broker of one's own: one process that is broker and controller (KRaft). Maven brings it.
//!
//! It has a plain port, through which tests read what arrived. The secured one has two more: one wants a user, the other a
//! client's certificate, and both speak TLS.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rskafka::BackoffConfig;
use rskafka::client::partition::{OffsetAt, UnknownTopicHandling};
use rskafka::client::{Client, ClientBuilder};
use rskafka::record::Record;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::start::{find_program, free_port, not_installed, until_it_answers};

const POM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cluster/servers/pom.xml");
const CLUSTER_ID: &str = "AAAAAAAAAAAAAAAAAAAAAQ";
const START_ATTEMPTS_MAX: usize = 3;
const FETCH_BYTES_MAX: i32 = 4 << 20;

pub(crate) const USER: &str = "events";
pub(crate) const PLAIN_PASSWORD: &str = "plain secret";
pub(crate) const SCRAM_PASSWORD: &str = "scram-secret";

pub(crate) struct KafkaServer {
    directory: TempDir,
    jars: PathBuf,
    port: u16,
    /// Wants a user.
    sasl_port: u16,
    /// Wants a certificate.
    mutual_port: u16,
    process: Option<Child>,
}

/// Files in PEM.
pub(crate) struct BrokerTls {
    /// The broker's certificate.
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
    /// Who signs clients' certificates.
    pub(crate) client_ca: PathBuf,
}

impl KafkaServer {
    /// None if there is no Java, or no Maven to bring Kafka.
    pub(crate) async fn start() -> Option<KafkaServer> {
        KafkaServer::start_with(None).await
    }

    /// With [`USER`], and ports for TLS.
    pub(crate) async fn start_secured(tls: &BrokerTls) -> Option<KafkaServer> {
        KafkaServer::start_with(Some(tls)).await
    }

    async fn start_with(tls: Option<&BrokerTls>) -> Option<KafkaServer> {
        let jars = jars()?;
        for _ in 0..START_ATTEMPTS_MAX {
            let directory = tempfile::tempdir().unwrap();
            let (port, sasl_port, mutual_port, process) = (0, 0, 0, None);
            let jars = jars.clone();
            let mut server = KafkaServer { directory, jars, port, sasl_port, mutual_port, process };
            server.format(tls);
            if server.launch().await {
                return Some(server);
            }
        }
        panic!("Kafka does not start");
    }

    fn format(&mut self, tls: Option<&BrokerTls>) {
        let mut ports = BTreeSet::new();
        while ports.len() < 4 {
            ports.insert(free_port());
        }
        let mut ports = ports.into_iter();
        let mut port = || ports.next().unwrap();
        let (broker, controller) = (port(), port());
        (self.port, self.sasl_port, self.mutual_port) = (broker, port(), port());
        let (sasl, mutual) = (self.sasl_port, self.mutual_port);
        let more = match tls {
            None => String::new(),
            Some(_) => format!(",SASL://127.0.0.1:{sasl},MUTUAL://127.0.0.1:{mutual}"),
        };
        let data = self.path("data");
        let mut settings = format!(
            "process.roles=broker,controller\n\
             node.id=1\n\
             controller.quorum.voters=1@127.0.0.1:{controller}\n\
             listeners=PLAINTEXT://127.0.0.1:{broker}{more},CONTROLLER://127.0.0.1:{controller}\n\
             advertised.listeners=PLAINTEXT://127.0.0.1:{broker}{more}\n\
             controller.listener.names=CONTROLLER\n\
             log.dirs={}\n\
             auto.create.topics.enable=false\n\
             log.index.size.max.bytes=1048576\n\
             num.recovery.threads.per.data.dir=1\n",
            data.display()
        );
        settings += &tls.map(|tls| self.secured_settings(tls)).unwrap_or_default();
        fs::write(self.path("server.properties"), settings).unwrap();
        let mut format = self.java("kafka.tools.StorageTool");
        format.args(["format", "--cluster-id", CLUSTER_ID, "--config"]);
        format.arg(self.path("server.properties"));
        if tls.is_some() {
            let user = format!("SCRAM-SHA-512=[name={USER},password={SCRAM_PASSWORD}]");
            format.args(["--add-scram", &user]);
        }
        let output = format.output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }

    fn secured_settings(&self, tls: &BrokerTls) -> String {
        let keystore = self.path("keystore.pem");
        let read = |path: &PathBuf| fs::read_to_string(path).unwrap();
        fs::write(&keystore, read(&tls.key) + &read(&tls.certificate)).unwrap();
        format!(
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_SSL,MUTUAL:SSL\n\
             inter.broker.listener.name=PLAINTEXT\n\
             ssl.keystore.type=PEM\n\
             ssl.keystore.location={}\n\
             ssl.truststore.type=PEM\n\
             ssl.truststore.location={}\n\
             listener.name.mutual.ssl.client.auth=required\n\
             listener.name.sasl.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512\n\
             listener.name.sasl.plain.sasl.jaas.config=\
             org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}=\"{PLAIN_PASSWORD}\";\n\
             listener.name.sasl.scram-sha-512.sasl.jaas.config=\
             org.apache.kafka.common.security.scram.ScramLoginModule required;\n",
            keystore.display(),
            tls.client_ca.display()
        )
    }

    /// On the data that there is. False if another process has taken a port.
    pub(crate) async fn launch(&mut self) -> bool {
        let log = self.path("log");
        let output = File::options().create(true).append(true).open(&log).unwrap();
        let mut process = self
            .java("kafka.Kafka")
            .arg(self.path("server.properties"))
            .stdin(Stdio::null())
            .stdout(output.try_clone().unwrap())
            .stderr(output)
            .spawn()
            .unwrap();
        let address = self.address();
        let answer = || async { client(&address).await?.list_topics().await.ok() };
        let answered = until_it_answers(&mut process, &log, answer).await.is_some();
        self.process = Some(process);
        answered
    }

    /// `kill -9`.
    pub(crate) fn crash(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// It takes connections, and answers nothing.
    pub(crate) fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    pub(crate) fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(self.process.as_ref().unwrap()), signal).unwrap();
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(crate) fn sasl_address(&self) -> String {
        format!("127.0.0.1:{}", self.sasl_port)
    }

    pub(crate) fn mutual_address(&self) -> String {
        format!("127.0.0.1:{}", self.mutual_port)
    }

    /// All records of a topic, by partition.
    pub(crate) async fn read(&self, topic: &str) -> Vec<Vec<Record>> {
        self.read_if_there(topic).await.expect("the topic is there")
    }

    /// The same; none if there is no such topic.
    pub(crate) async fn read_if_there(&self, topic: &str) -> Option<Vec<Vec<Record>>> {
        let client = client(&self.address()).await.unwrap();
        let topics = client.list_topics().await.unwrap();
        let found = topics.into_iter().find(|found| found.name == topic)?;
        let mut partitions = Vec::new();
        for number in found.partitions {
            let handling = UnknownTopicHandling::Retry;
            let partition = client.partition_client(topic, number, handling).await.unwrap();
            let end = partition.get_offset(OffsetAt::Latest).await.unwrap();
            let mut records = Vec::new();
            let mut next = 0;
            while next < end {
                let (some, _) =
                    partition.fetch_records(next, 1..FETCH_BYTES_MAX, 1_000).await.unwrap();
                next = some.last().map_or(next, |last| last.offset + 1);
                records.extend(some.into_iter().map(|record| record.record));
            }
            partitions.push(records);
        }
        Some(partitions)
    }

    fn java(&self, class: &str) -> Command {
        let mut java = Command::new("java");
        // Quick to start rather than quick to run.
        java.args(["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp"]);
        java.arg(self.jars.join("*")).arg(class);
        java
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

impl Drop for KafkaServer {
    fn drop(&mut self) {
        self.crash();
    }
}

async fn client(address: &str) -> Option<Client> {
    let backoff = BackoffConfig {
        init_backoff: Duration::from_millis(20),
        max_backoff: Duration::from_millis(200),
        base: 2.0,
        deadline: Some(Duration::from_secs(5)),
    };
    ClientBuilder::new(vec![address.to_owned()]).backoff_config(backoff).build().await.ok()
}

/// Maven brings them once; they are kept beside what cargo has built. One test at a time looks for them: Maven's copies
/// into one directory disturb each other.
fn jars() -> Option<PathBuf> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    for program in ["java", "mvn"] {
        if find_program(program, Vec::new()).is_none() {
            not_installed("Java or Maven, which brings Kafka,", "maven default-jre-headless");
            return None;
        }
    }
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kafka");
    let complete = directory.join("complete");
    let pom = fs::read(POM).unwrap();
    if fs::read(&complete).is_ok_and(|of| of == pom) {
        return Some(directory.join("jars"));
    }
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).unwrap();
    let output = Command::new("mvn")
        .args(["--batch-mode", "--quiet", "--file", POM, "dependency:copy-dependencies"])
        .arg(format!("-DoutputDirectory={}", directory.join("jars").display()))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stdout);
        not_installed(&format!("Kafka (Maven cannot bring it: {words})"), "maven");
        return None;
    }
    fs::write(complete, pom).unwrap();
    Some(directory.join("jars"))
}
