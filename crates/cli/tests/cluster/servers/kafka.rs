//! A Kafka broker of one's own: one process that is broker and controller (KRaft). Maven brings it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
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

pub(crate) struct KafkaServer {
    directory: TempDir,
    jars: PathBuf,
    port: u16,
    process: Option<Child>,
}

impl KafkaServer {
    /// None if there is no Java, or no Maven to bring Kafka.
    pub(crate) async fn start() -> Option<KafkaServer> {
        let jars = jars()?;
        for _ in 0..START_ATTEMPTS_MAX {
            let directory = tempfile::tempdir().unwrap();
            let mut server = KafkaServer { directory, jars: jars.clone(), port: 0, process: None };
            server.format();
            if server.launch().await {
                return Some(server);
            }
        }
        panic!("Kafka does not start");
    }

    fn format(&mut self) {
        let broker = free_port();
        let controller = std::iter::repeat_with(free_port).find(|port| *port != broker).unwrap();
        self.port = broker;
        let data = self.path("data");
        let settings = format!(
            "process.roles=broker,controller\n\
             node.id=1\n\
             controller.quorum.voters=1@127.0.0.1:{controller}\n\
             listeners=PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}\n\
             advertised.listeners=PLAINTEXT://127.0.0.1:{broker}\n\
             controller.listener.names=CONTROLLER\n\
             log.dirs={}\n\
             auto.create.topics.enable=false\n\
             log.index.size.max.bytes=1048576\n\
             num.recovery.threads.per.data.dir=1\n",
            data.display()
        );
        fs::write(self.path("server.properties"), settings).unwrap();
        let mut format = self.java("kafka.tools.StorageTool");
        format.args(["format", "--cluster-id", CLUSTER_ID, "--config"]);
        let output = format.arg(self.path("server.properties")).output().unwrap();
        assert!(output.status.success(), "{output:?}");
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

    /// All records of a topic, by partition.
    pub(crate) async fn read(&self, topic: &str) -> Vec<Vec<Record>> {
        let client = client(&self.address()).await.unwrap();
        let topics = client.list_topics().await.unwrap();
        let found = topics.into_iter().find(|found| found.name == topic);
        let mut partitions = Vec::new();
        for number in found.expect("the topic is there").partitions {
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
        partitions
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

/// Maven brings them once; they are kept beside what cargo has built.
fn jars() -> Option<PathBuf> {
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
