//! `[kafka]`: where events are published.

use std::path::PathBuf;

use serde::Deserialize;

use super::check_error::{CheckError, in_range};
use super::{Address, OutgoingTlsConfig, defaults};

const TOPIC_CHARS_MAX: usize = 249;
const BROKERS_MAX: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KafkaConfig {
    /// Some of the brokers; the others are learned from them.
    pub brokers: Vec<Address>,
    pub topic: String,
    /// Whether the topic is created if it is not there.
    #[serde(default = "defaults::kafka_create_topic")]
    pub create_topic: bool,
    /// Of a topic that is created.
    #[serde(default = "defaults::kafka_partitions")]
    pub partitions: u64,
    /// Of a topic that is created; 0 leaves it to the brokers.
    #[serde(default)]
    pub replication: u64,
    /// How many events are on their way at once.
    #[serde(default = "defaults::kafka_events_in_flight")]
    pub events_in_flight: u64,
    /// A broker that takes longer to answer counts as gone.
    #[serde(default = "defaults::kafka_timeout_ms")]
    pub timeout_ms: u64,
    /// Without it connections are plain.
    #[serde(default)]
    pub tls: Option<OutgoingTlsConfig>,
    /// Without it the node shows the brokers no user.
    #[serde(default)]
    pub sasl: Option<SaslConfig>,
}

/// As whom the node speaks to the brokers.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SaslConfig {
    #[serde(default)]
    pub mechanism: SaslMechanism,
    pub user: String,
    /// Its one line is the password.
    pub password_file: PathBuf,
}

/// How the node proves that it knows the password.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum SaslMechanism {
    /// The broker gets to see the password.
    #[serde(rename = "PLAIN")]
    Plain,
    #[serde(rename = "SCRAM-SHA-256")]
    ScramSha256,
    #[default]
    #[serde(rename = "SCRAM-SHA-512")]
    ScramSha512,
}

impl KafkaConfig {
    pub(super) fn check(&self) -> Result<(), CheckError> {
        if self.brokers.is_empty() || self.brokers.len() > BROKERS_MAX {
            return Err(CheckError::KafkaBrokers { count: self.brokers.len() });
        }
        let is_topic = (1..=TOPIC_CHARS_MAX).contains(&self.topic.len())
            && ![".", ".."].contains(&self.topic.as_str())
            && self.topic.bytes().all(|c| c.is_ascii_alphanumeric() || b"._-".contains(&c));
        if !is_topic {
            return Err(CheckError::KafkaTopic { topic: self.topic.clone() });
        }
        in_range("kafka.partitions", self.partitions, 1..=1_000)?;
        in_range("kafka.replication", self.replication, 0..=100)?;
        in_range("kafka.events_in_flight", self.events_in_flight, 1..=100_000)?;
        in_range("kafka.timeout_ms", self.timeout_ms, 100..=300_000)?;
        self.check_security()
    }

    fn check_security(&self) -> Result<(), CheckError> {
        if let Some(tls) = &self.tls {
            tls.check("kafka.tls")?;
            // The client takes all before the first colon for the host whose certificate it wants.
            if let Some(broker) = self.brokers.iter().find(|broker| broker.host().contains(':')) {
                return Err(CheckError::KafkaBrokerByNumber { broker: broker.to_string() });
            }
        }
        let Some(sasl) = &self.sasl else { return Ok(()) };
        if sasl.user.is_empty() {
            return Err(CheckError::KafkaUser);
        }
        if sasl.mechanism == SaslMechanism::Plain && self.tls.is_none() {
            return Err(CheckError::KafkaPlainPassword);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::NodeConfig;
    use super::*;

    fn with(kafka: &str) -> Result<KafkaConfig, String> {
        let text = NodeConfig::EXAMPLE.replace("[[nodes]]\nid = 1", "{kafka}\n[[nodes]]\nid = 1");
        let config = NodeConfig::from_toml(&text.replace("{kafka}", kafka));
        config.map(|config| config.kafka.unwrap()).map_err(|error| error.to_string())
    }

    #[test]
    fn brokers_and_a_topic_are_enough() {
        let kafka =
            with("[kafka]\nbrokers = [\"b1:9092\", \"b2:9092\"]\ntopic = \"locks\"").unwrap();
        assert_eq!((kafka.brokers.len(), kafka.topic.as_str()), (2, "locks"));
        assert!(kafka.create_topic);
        assert_eq!((kafka.partitions, kafka.replication), (8, 0));
    }

    #[test]
    fn an_invalid_kafka_setting_is_refused_by_its_name() {
        let brokers = "brokers = [\"b:9092\"]";
        for (settings, word) in [
            ("topic = \"t\"".to_owned(), "brokers"),
            ("brokers = []\ntopic = \"t\"".to_owned(), "kafka.brokers"),
            ("brokers = [\"b\"]\ntopic = \"t\"".to_owned(), "b"),
            (format!("{brokers}\ntopic = \"\""), "kafka.topic"),
            (format!("{brokers}\ntopic = \"a b\""), "kafka.topic = 'a b'"),
            (format!("{brokers}\ntopic = \"..\""), "kafka.topic"),
            (format!("{brokers}\ntopic = \"t\"\npartitions = 0"), "kafka.partitions"),
            (format!("{brokers}\ntopic = \"t\"\nreplication = 101"), "kafka.replication"),
            (format!("{brokers}\ntopic = \"t\"\nevents_in_flight = 0"), "kafka.events_in_flight"),
            (format!("{brokers}\ntopic = \"t\"\ntimeout_ms = 1"), "kafka.timeout_ms"),
            (format!("{brokers}\ntopic = \"t\"\nacks = 1"), "acks"),
            (format!("{brokers}\ntopic = \"t\"\n[kafka.tls]"), "ca"),
            (
                format!("{brokers}\ntopic = \"t\"\n[kafka.tls]\nca = \"a\"\nkey = \"k\""),
                "kafka.tls.key is given without kafka.tls.cert",
            ),
            (
                "brokers = [\"[::1]:9092\"]\ntopic = \"t\"\n[kafka.tls]\nca = \"a\"".to_owned(),
                "kafka.brokers has '[::1]:9092'",
            ),
            (format!("{brokers}\ntopic = \"t\"\n[kafka.sasl]\nuser = \"u\""), "password_file"),
            (
                format!("{brokers}\ntopic = \"t\"\n[kafka.sasl]\nuser = \"u\"\npassword = \"p\""),
                "password",
            ),
            (
                format!(
                    "{brokers}\ntopic = \"t\"\n[kafka.sasl]\nuser = \"\"\npassword_file = \"p\""
                ),
                "kafka.sasl.user",
            ),
            (
                format!(
                    "{brokers}\ntopic = \"t\"\n[kafka.sasl]\nmechanism = \"PLAIN\"\nuser = \"u\"\n\
                     password_file = \"p\""
                ),
                "add [kafka.tls]",
            ),
            (
                format!(
                    "{brokers}\ntopic = \"t\"\n[kafka.sasl]\nmechanism = \"GSSAPI\"\nuser = \"u\"\n\
                     password_file = \"p\""
                ),
                "SCRAM-SHA-256",
            ),
        ] {
            let error = with(&format!("[kafka]\n{settings}")).unwrap_err();
            assert!(error.contains(word), "{settings}: {error}");
        }
    }
}
