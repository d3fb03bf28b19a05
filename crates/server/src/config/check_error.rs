//! What can be wrong with a configuration that can be read.

use std::fmt;
use std::ops::RangeInclusive;

/// Which key is wrong, how, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckError {
    #[error(
        "cluster = '{name}': the name has 1 to 64 characters, each one of a-z, 0-9 and -; choose \
         another"
    )]
    ClusterName { name: String },
    #[error("data_dir is empty; name a directory that belongs to this node alone")]
    NoDataDir,
    #[error("audit.file is empty; name a file that this node alone writes")]
    NoAuditFile,
    #[error(
        "tls.crl has no meaning without tls.client_ca: name the authorities of the clients, or leave it out"
    )]
    CrlWithoutCa,
    #[error("{key} = {value} is out of range; choose a number from {min} to {max}")]
    OutOfRange { key: &'static str, value: u64, min: u64, max: u64 },
    #[error(
        "heartbeat_ticks = {heartbeat} is too slow for election_ticks = {election}: one late \
         heartbeat would start an election; make election_ticks at least 3 times as large"
    )]
    HeartbeatTooSlow { heartbeat: u64, election: u64 },
    #[error("there are no [[nodes]]; list every node of the cluster, this one included")]
    NoNodes,
    #[error(
        "there are {count} [[nodes]]; a cluster has at most 7, because every grant waits for a \
         majority of them; 3 or 5 are usual"
    )]
    TooManyNodes { count: usize },
    #[error("a node in [[nodes]] has id = 0; ids start at 1")]
    ZeroId,
    #[error("two [[nodes]] have id = {id}; give every node an id of its own")]
    DuplicateId { id: u64 },
    #[error(
        "node = {node} is not in [[nodes]], which has {known}; list this node there or correct \
         node"
    )]
    NodeNotListed { node: u64, known: String },
    #[error("{first} and {second} have the same address {address}; give each its own port")]
    DuplicateAddress { first: String, second: String, address: String },
    #[error(
        "{what} = '{address}' can be reached from other machines, and so needs TLS and authentication. Write {missing} into \
         the configuration (`holdfast cert` makes the files); or use a loopback address; or write insecure = true if every \
         machine that reaches it may do everything"
    )]
    NotLoopback { what: String, address: String, missing: String },
    #[error(
        "{what} = '{address}' is an address to listen on, and others are told it: write where others reach it, and keep \
         {key} = '{own}' in [listen]"
    )]
    CannotBeReached { what: String, address: String, key: &'static str, own: String },
    #[error(
        "join = true and there are {count} [[nodes]]; a node that joins lists itself alone, and learns \
         the others from the cluster"
    )]
    JoinsWithOthers { count: usize },
    #[error("kafka.brokers names {count} brokers; name 1 to 64 of them, each as host:port")]
    KafkaBrokers { count: usize },
    #[error(
        "kafka.topic = '{topic}': a topic has 1 to 249 characters, each one of a-z, A-Z, 0-9, '.', '_' and '-', \
         and is neither '.' nor '..'; choose another"
    )]
    KafkaTopic { topic: String },
    #[error(
        "kafka.brokers has '{broker}', and with [kafka.tls] a broker needs a host name or an IPv4 address: write the name \
         that its certificate is for"
    )]
    KafkaBrokerByNumber { broker: String },
    #[error("kafka.sasl.user is empty; name the user that the brokers know this cluster by")]
    KafkaUser,
    #[error(
        "kafka.sasl.mechanism = 'PLAIN' sends the password as it is, and the connection is not encrypted: add [kafka.tls], \
         or choose 'SCRAM-SHA-512'"
    )]
    KafkaPlainPassword,
    #[error("{table}.{given} is given without {table}.{missing}: give both files, or neither")]
    HalfIdentity { table: &'static str, given: &'static str, missing: &'static str },
    #[error(
        "tracing.endpoint = '{endpoint}' is to be reached by TLS, and nothing says which authority signs the receiver's \
         certificate: name its file with ca in [tracing.tls], or with OTEL_EXPORTER_OTLP_CERTIFICATE if the endpoint is \
         an option or a variable"
    )]
    TracingWithoutCa { endpoint: String },
    #[error(
        "tracing.endpoint = '{endpoint}' speaks no TLS, and there is a [tracing.tls]: write https:// to use it, or take \
         the table out"
    )]
    TracingWithoutTls { endpoint: String },
    #[error("http.actions_secret and http.actions_secret_file are both given; keep one")]
    TwoSecrets,
    #[error(
        "the secret for the dashboard's actions has fewer than 12 characters; choose a longer one"
    )]
    ShortSecret,
    #[error(
        "http.hosts has '{host}', which is no name that a browser asks by; write it without a scheme, a port or a \
         path, such as locks.example.com, or \"*\" for any"
    )]
    HostName { host: String },
    #[error("there are not enough ports above {base_port} for all nodes; choose a lower one")]
    PortsRunOut { base_port: u16 },
}

/// What is wrong with a configuration: at least one fault.
#[derive(Debug, PartialEq, Eq)]
pub struct CheckErrors(Vec<CheckError>);

impl CheckErrors {
    /// All faults that the checks found.
    pub(super) fn of(checks: Vec<Result<(), CheckError>>) -> Result<(), CheckErrors> {
        let faults: Vec<CheckError> = checks.into_iter().filter_map(Result::err).collect();
        if faults.is_empty() { Ok(()) } else { Err(CheckErrors(faults)) }
    }
}

impl From<CheckError> for CheckErrors {
    fn from(error: CheckError) -> CheckErrors {
        CheckErrors(vec![error])
    }
}

impl std::error::Error for CheckErrors {}

/// A line for each.
impl fmt::Display for CheckErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, fault) in self.0.iter().enumerate() {
            let before = if number == 0 { "" } else { "\n  also: " };
            write!(f, "{before}{fault}")?;
        }
        Ok(())
    }
}

pub(super) fn in_range(
    key: &'static str,
    value: u64,
    range: RangeInclusive<u64>,
) -> Result<(), CheckError> {
    if range.contains(&value) {
        return Ok(());
    }
    Err(CheckError::OutOfRange { key, value, min: *range.start(), max: *range.end() })
}
