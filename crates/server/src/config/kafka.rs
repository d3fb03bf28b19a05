//! `[kafka]`: where events are published.

use serde::Deserialize;

use super::check::{self, CheckError};
use super::{Address, defaults};

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
        check::in_range("kafka.partitions", self.partitions, 1..=1_000)?;
        check::in_range("kafka.replication", self.replication, 0..=100)?;
        check::in_range("kafka.events_in_flight", self.events_in_flight, 1..=100_000)?;
        check::in_range("kafka.timeout_ms", self.timeout_ms, 100..=300_000)
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
        ] {
            let error = with(&format!("[kafka]\n{settings}")).unwrap_err();
            assert!(error.contains(word), "{settings}: {error}");
        }
    }
}
