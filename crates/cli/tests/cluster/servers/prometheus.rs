//! A Prometheus of one's own, with the configuration and the rules of `deploy/prometheus`.
//!
//! Only times differ from what is shipped: it scrapes and evaluates several times a second, and an alert fires as soon as
//! its condition holds.

use std::fmt::Write;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::start::{find_program, free_port, not_installed, until_it_answers};

const INTERVAL: &str = "250ms";

pub(crate) struct PrometheusServer {
    address: String,
    process: Child,
    _directory: TempDir,
}

impl PrometheusServer {
    /// None if it is not installed, which fails in CI.
    pub(crate) async fn start(shipped: &Path, targets: &[String]) -> Option<PrometheusServer> {
        let Some(program) = find_program("prometheus", Vec::new()) else {
            not_installed("Prometheus", "prometheus");
            return None;
        };
        let directory = tempfile::tempdir().unwrap();
        let path = |file: &str| directory.path().join(file);
        fs::write(path("prometheus.yml"), configuration(shipped, targets)).unwrap();
        fs::write(path("alerts.yml"), impatient_rules(shipped)).unwrap();
        let address = format!("127.0.0.1:{}", free_port());
        let log = File::create(path("log")).unwrap();
        let mut process = Command::new(program)
            .arg(format!("--config.file={}", path("prometheus.yml").display()))
            .arg(format!("--storage.tsdb.path={}", path("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .arg("--log.level=warn")
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let ready =
            || async { get(&address, "/-/ready").await.ok().filter(|(code, _)| *code == 200) };
        let answered = until_it_answers(&mut process, &path("log"), ready).await.is_some();
        assert!(answered, "{}", fs::read_to_string(path("log")).unwrap());
        Some(PrometheusServer { address, process, _directory: directory })
    }

    /// The series of an expression now, each with its labels and its value.
    pub(crate) async fn query(&self, expression: &str) -> Vec<(Value, f64)> {
        let data = self.ask(&format!("/api/v1/query?query={}", escape(expression))).await;
        let series = data["result"].as_array().unwrap_or_else(|| panic!("{expression}: {data}"));
        let value = |one: &Value| one["value"][1].as_str().unwrap().parse().unwrap();
        series.iter().map(|one| (one["metric"].clone(), value(one))).collect()
    }

    /// The names of the alerts that fire.
    pub(crate) async fn firing(&self) -> Vec<String> {
        let data = self.ask("/api/v1/alerts").await;
        let alerts = data["alerts"].as_array().unwrap().iter();
        let firing = alerts.filter(|alert| alert["state"] == "firing");
        firing.map(|alert| alert["labels"]["alertname"].as_str().unwrap().to_owned()).collect()
    }

    /// `data` of an answer of the API; it must be a success.
    pub(crate) async fn ask(&self, path: &str) -> Value {
        let (code, body) = get(&self.address, path).await.unwrap();
        let mut answer: Value = serde_json::from_str(&body).unwrap_or_default();
        assert!(code == 200 && answer["status"] == "success", "{path}: {code} {body}");
        answer["data"].take()
    }
}

impl Drop for PrometheusServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn configuration(shipped: &Path, targets: &[String]) -> String {
    let text = fs::read_to_string(shipped.join("scrape.yml")).unwrap();
    let examples = [1, 2, 3].map(|id| format!("\"locks-{id}.example.com:7422\"")).join(", ");
    let (examples, secured) = (
        &*format!("[{examples}]"),
        [
            "    scheme: https\n",
            "    authorization:\n      credentials_file: /etc/prometheus/holdfast.token\n",
            "    tls_config:\n      ca_file: /etc/prometheus/holdfast-ca.pem\n",
        ],
    );
    assert!(text.contains(examples) && text.contains("scrape_interval: 15s"), "{text}");
    // The nodes of the tests that scrape speak plaintext.
    let text = secured.iter().fold(text, |text, lines| {
        assert!(text.contains(lines), "{text}");
        text.replace(lines, "")
    });
    let text = text.replace(examples, &format!("{targets:?}"));
    let text = text.replace("scrape_interval: 15s", &format!("scrape_interval: {INTERVAL}"));
    format!("global:\n  evaluation_interval: {INTERVAL}\n  scrape_timeout: {INTERVAL}\n{text}")
}

fn impatient_rules(shipped: &Path) -> String {
    let text = fs::read_to_string(shipped.join("alerts.yml")).unwrap();
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("for:"));
    lines.flat_map(|line| [line, "\n"]).collect()
}

fn escape(text: &str) -> String {
    text.bytes().fold(String::new(), |mut escaped, byte| {
        write!(escaped, "%{byte:02X}").unwrap();
        escaped
    })
}

/// In HTTP 1.0, so that the answer comes in one piece.
async fn get(address: &str, path: &str) -> io::Result<(u16, String)> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\nhost: {address}\r\n\r\n").as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let code = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
    Ok((code, body.to_owned()))
}
