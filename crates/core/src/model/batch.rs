//! One log entry: the leader's stamp and the commands of one loop turn.

use alloc::vec::Vec;

use crate::model::codec::{DecodeError, Reader, Sink};
use crate::model::command::Command;
use crate::model::rules_version::RulesVersion;
use crate::model::time::LogicalTime;

/// The newest that is read. Version 1 is that of 0.1, which had only exclusive locks; version 3 can say how far
/// events are published; version 4 can adopt rules, and has the commands that need adopted rules; version 5 has the
/// commands that say who may do what; version 6 names the identity that intervenes, or changes the policy; version 7
/// sets quotas; version 8 sets which slots the group owns; version 10 adopts a policy; version 11 moves slots. Rules 8
/// have no new command, so no entry has version 9.
const VERSION: u8 = 11;
const VERSION_OF_ADOPTED_POLICY: u8 = 10;
const VERSION_OF_OWNERSHIP: u8 = 8;
const VERSION_OF_QUOTAS: u8 = 7;
const VERSION_OF_IDENTITIES: u8 = 6;
const VERSION_OF_POLICY: u8 = 5;
const VERSION_OF_RULES: u8 = 4;
const VERSION_OF_PUBLICATION: u8 = 3;
/// What is written as long as nothing needs more, so that older nodes can read it.
const VERSION_USUAL: u8 = 2;

/// Room for the commands of a usual turn, so that a batch is written without growing often.
const BATCH_BYTES_USUAL: usize = 4_096;

/// What one proposal carries. All its commands are applied at the same logical time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    pub at: LogicalTime,
    pub commands: Vec<Command>,
}

/// A batch that is written command by command, for who wants to know when it is large enough.
#[derive(Clone, Debug)]
pub struct BatchWriter {
    version: u8,
    count: usize,
    commands: Vec<u8>,
}

impl Default for BatchWriter {
    fn default() -> BatchWriter {
        let commands = Vec::with_capacity(BATCH_BYTES_USUAL);
        BatchWriter { version: VERSION_USUAL, count: 0, commands }
    }
}

impl BatchWriter {
    pub fn push(&mut self, command: &Command) {
        self.version = self.version.max(version_needed(command));
        self.count += 1;
        command.encode(&mut self.commands);
    }

    /// Of its commands.
    pub fn bytes(&self) -> usize {
        self.commands.len()
    }

    /// Version, stamp, number of commands, commands.
    pub fn finish(self, at: LogicalTime) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(16 + self.commands.len());
        bytes.u8(self.version);
        bytes.varint(at.as_ms());
        bytes.count(self.count);
        bytes.put(&self.commands);
        bytes
    }
}

/// The oldest version that can say this.
fn version_needed(command: &Command) -> u8 {
    match command {
        Command::AdoptRules { .. } => VERSION_OF_RULES,
        Command::EventsPublished { .. } => VERSION_OF_PUBLICATION,
        command if command.rules_needed() >= RulesVersion::TEN => VERSION,
        command if command.rules_needed() >= RulesVersion::NINE => VERSION_OF_ADOPTED_POLICY,
        command if command.rules_needed() >= RulesVersion::SEVEN => VERSION_OF_OWNERSHIP,
        command if command.rules_needed() >= RulesVersion::SIX => VERSION_OF_QUOTAS,
        command if command.rules_needed() >= RulesVersion::FIVE => VERSION_OF_IDENTITIES,
        command if command.rules_needed() >= RulesVersion::FOUR => VERSION_OF_POLICY,
        command if command.rules_needed() > RulesVersion::ONE => VERSION_OF_RULES,
        _ => VERSION_USUAL,
    }
}

impl Batch {
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = BatchWriter::default();
        self.commands.iter().for_each(|command| writer.push(command));
        writer.finish(self.at)
    }

    pub fn decode(bytes: &[u8]) -> Result<Batch, DecodeError> {
        let mut reader = Reader::new(bytes);
        let (version, at) = Batch::decode_header(&mut reader)?;
        let count = reader.count()?;
        // A count is checked against the bytes left, but a command in memory is larger than its
        // shortest encoding: the vector grows with what is really there.
        let mut commands = Vec::with_capacity(count.min(1_024));
        for _ in 0..count {
            commands.push(Command::decode(&mut reader, version)?);
        }
        reader.end()?;
        Ok(Batch { at, commands })
    }

    /// The stamp alone: a new leader looks through its log for the highest.
    pub fn stamp(bytes: &[u8]) -> Result<LogicalTime, DecodeError> {
        Batch::decode_header(&mut Reader::new(bytes)).map(|(_, at)| at)
    }

    fn decode_header(reader: &mut Reader<'_>) -> Result<(u8, LogicalTime), DecodeError> {
        let version = reader.version("log entry", VERSION)?;
        Ok((version, LogicalTime::from_ms(reader.varint()?)))
    }
}
