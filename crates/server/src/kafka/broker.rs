//! One connection to Kafka, for the batches of all groups. Any failure ends it, and the publisher connects again.

use std::sync::Arc;
use std::time::Duration;

use rskafka::BackoffConfig;
use rskafka::client::error::{Error, ProtocolError};
use rskafka::client::partition::{Compression, PartitionClient, UnknownTopicHandling};
use rskafka::client::{Client, ClientBuilder};
use tokio::sync::OnceCell;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::advice::explain;
use super::credentials::{Credentials, KafkaFileError};
use super::outbox::{Outbox, RecordBatch};
use crate::config::KafkaConfig;

/// What brokers answer is small.
const ANSWER_BYTES_MAX: usize = 16 << 20;

#[derive(Debug)]
pub(super) struct Broker {
    client: Client,
    topic: String,
    timeout: Duration,
    /// By their numbers. Those are connected that something was sent to.
    partitions: Vec<OnceCell<Arc<PartitionClient>>>,
}

/// Why nothing more is sent.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("{0}")]
    Kafka(#[from] Error),
    #[error("{}", explain(&.0.to_string()))]
    Unreachable(Error),
    #[error(transparent)]
    Files(#[from] KafkaFileError),
    #[error("no answer within {0:?}")]
    Slow(Duration),
    #[error("there is no topic '{0}', and create_topic = false")]
    NoTopic(String),
    #[error("the client failed")]
    Broken,
}

/// What came of sending.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Delivered {
    pub(super) records: u64,
    pub(super) bytes: u64,
    /// Single records that the broker finds too large.
    pub(super) refused: u64,
}

impl Broker {
    pub(super) async fn connect(
        settings: &KafkaConfig,
        client_id: &str,
    ) -> Result<Broker, Failure> {
        let patience = Duration::from_millis(settings.timeout_ms);
        let credentials = Credentials::load(settings)?;
        // What cannot work is tried once, and its reason known at once: only the second client is patient.
        let first = trying_for(Duration::ZERO, settings, &credentials, client_id);
        within(patience, async { first.await.map_err(Failure::Unreachable) }).await?;
        let client = trying_for(patience, settings, &credentials, client_id);
        let client = within(patience, async { Ok(client.await?) }).await?;
        within(patience, Broker::find_topic(client, settings, patience)).await
    }

    async fn find_topic(
        client: Client,
        settings: &KafkaConfig,
        patience: Duration,
    ) -> Result<Broker, Failure> {
        let topic = settings.topic.clone();
        let partitions = match partitions_of(&client, &topic).await? {
            Some(partitions) => partitions,
            None if settings.create_topic => {
                create(&client, settings).await?;
                let partitions = partitions_of(&client, &topic).await?;
                partitions.ok_or_else(|| Failure::NoTopic(topic.clone()))?
            }
            None => return Err(Failure::NoTopic(topic)),
        };
        let partitions = (0..partitions).map(|_| OnceCell::new()).collect();
        Ok(Broker { client, topic, timeout: patience, partitions })
    }

    pub(super) fn partitions(&self) -> i32 {
        i32::try_from(self.partitions.len()).unwrap_or(i32::MAX)
    }

    /// Sends all of it, to each partition in order. After a failure the outbox has what is not known to have
    /// arrived, unless the client itself broke.
    pub(super) async fn deliver(
        &self,
        outbox: &mut Outbox,
        delivered: &mut Delivered,
    ) -> Result<(), Failure> {
        let mut clients = Vec::new();
        for partition in outbox.waiting.keys() {
            clients.push(self.partition(*partition).await?);
        }
        let mut sending = JoinSet::new();
        let waiting = std::mem::take(&mut outbox.waiting);
        for ((partition, batches), client) in waiting.into_iter().zip(clients) {
            sending.spawn(send(client, partition, batches, self.timeout));
        }
        let mut result = Ok(());
        while let Some(sent) = sending.join_next().await {
            let Ok((partition, left, sent, outcome)) = sent else { return Err(Failure::Broken) };
            delivered.records += sent.records;
            delivered.bytes += sent.bytes;
            delivered.refused += sent.refused;
            if !left.is_empty() {
                outbox.waiting.insert(partition, left);
            }
            result = result.and(outcome);
        }
        result
    }

    /// The first group that sends something to the partition connects to it.
    async fn partition(&self, number: i32) -> Result<Arc<PartitionClient>, Failure> {
        let place = usize::try_from(number).ok().and_then(|place| self.partitions.get(place));
        let connect = || async {
            let handling = UnknownTopicHandling::Retry;
            let client = self.client.partition_client(&self.topic, number, handling);
            within(self.timeout, async { Ok(Arc::new(client.await?)) }).await
        };
        match place {
            // A group also waits for another one that connects.
            Some(client) => {
                within(self.timeout, client.get_or_try_init(connect)).await.map(Arc::clone)
            }
            None => connect().await,
        }
    }
}

/// A client that tries again what failed, for so long.
async fn trying_for(
    deadline: Duration,
    settings: &KafkaConfig,
    credentials: &Credentials,
    client_id: &str,
) -> Result<Client, Error> {
    let brokers = settings.brokers.iter().map(ToString::to_string).collect();
    let backoff = BackoffConfig {
        init_backoff: Duration::from_millis(50),
        max_backoff: Duration::from_millis(500),
        base: 2.0,
        deadline: Some(deadline),
    };
    let mut client = ClientBuilder::new(brokers)
        .client_id(client_id)
        .max_message_size(ANSWER_BYTES_MAX)
        .backoff_config(backoff);
    if let Some(tls) = &credentials.tls {
        client = client.tls_config(Arc::clone(tls));
    }
    if let Some(sasl) = &credentials.sasl {
        client = client.sasl_config(sasl.clone());
    }
    client.build().await
}

type RecordBatches = std::collections::VecDeque<RecordBatch>;

async fn send(
    client: Arc<PartitionClient>,
    partition: i32,
    mut batches: RecordBatches,
    patience: Duration,
) -> (i32, RecordBatches, Delivered, Result<(), Failure>) {
    let mut sent = Delivered::default();
    while let Some(batch) = batches.pop_front() {
        let records = batch.records.clone();
        let produced = client.produce(records, Compression::NoCompression);
        match within(patience, async { Ok(produced.await?) }).await {
            Ok(_) => {
                sent.records += batch.records.len() as u64;
                let sizes = batch.records.iter().map(rskafka::record::Record::approximate_size);
                sent.bytes += sizes.sum::<usize>() as u64;
            }
            Err(failure) if failure.is_too_large() => match batch.split() {
                Some([first, second]) => {
                    batches.push_front(second);
                    batches.push_front(first);
                }
                None => sent.refused += 1,
            },
            Err(failure) => {
                batches.push_front(batch);
                return (partition, batches, sent, Err(failure));
            }
        }
    }
    (partition, batches, sent, Ok(()))
}

impl Failure {
    fn is_too_large(&self) -> bool {
        use ProtocolError::{MessageTooLarge, RecordListTooLarge};
        let Failure::Kafka(Error::ServerError { protocol_error, .. }) = self else { return false };
        matches!(protocol_error, MessageTooLarge | RecordListTooLarge)
    }
}

async fn within<T>(
    patience: Duration,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    timeout(patience, work).await.unwrap_or(Err(Failure::Slow(patience)))
}

async fn partitions_of(client: &Client, topic: &str) -> Result<Option<i32>, Failure> {
    let topics = client.list_topics().await?;
    let found = topics.into_iter().find(|found| found.name == topic);
    Ok(found
        .and_then(|found| i32::try_from(found.partitions.len()).ok())
        .filter(|count| *count > 0))
}

async fn create(client: &Client, settings: &KafkaConfig) -> Result<(), Failure> {
    let partitions = i32::try_from(settings.partitions).unwrap_or(i32::MAX);
    let replication = match i16::try_from(settings.replication).unwrap_or(i16::MAX) {
        0 => -1,
        replication => replication,
    };
    let timeout_ms = i32::try_from(settings.timeout_ms).unwrap_or(i32::MAX);
    let controller = client.controller_client()?;
    match controller.create_topic(&settings.topic, partitions, replication, timeout_ms).await {
        Err(Error::ServerError { protocol_error: ProtocolError::TopicAlreadyExists, .. }) => Ok(()),
        created => Ok(created?),
    }
}
