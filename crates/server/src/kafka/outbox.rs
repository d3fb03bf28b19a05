//! Records to send: for each partition in order, in batches that a broker accepts.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use chrono::DateTime;
use holdfast_proto::v1::WatchEvent;
use rskafka::record::Record;

use super::murmur::partition_of;

/// Brokers refuse a request of more than 1 MiB for a partition, unless told otherwise.
const RECORD_BATCH_BYTES_MAX: usize = 512 << 10;
/// What a record takes beside its key and value, at most.
const RECORD_BYTES_EXTRA: usize = 64;
/// How many events there were up to this one; none is missing if no number is.
const SEQUENCE: &str = "sequence";

/// What is sent in one request.
#[derive(Clone, Debug, Default)]
pub(super) struct RecordBatch {
    pub(super) records: Vec<Record>,
    bytes: usize,
}

#[derive(Debug)]
pub(super) struct Outbox {
    partitions: i32,
    pub(super) waiting: BTreeMap<i32, VecDeque<RecordBatch>>,
    bytes: usize,
}

impl Outbox {
    /// For a topic with so many partitions.
    pub(super) fn new(partitions: i32) -> Outbox {
        Outbox { partitions, waiting: BTreeMap::new(), bytes: 0 }
    }

    /// Under each of its names once, so that it is in its place in the history of each.
    pub(super) fn put_event(&mut self, event: &WatchEvent, line: &[u8], sequence: u64) {
        let at = event.unix_ms;
        let sequence = Some(sequence);
        if event.names.is_empty() {
            let partition = partition_of(event.public_session_id.as_bytes(), self.partitions);
            return self.put(partition, None, line, at, sequence);
        }
        let names: BTreeSet<&str> = event.names.iter().map(String::as_str).collect();
        for name in names {
            let partition = partition_of(name.as_bytes(), self.partitions);
            self.put(partition, Some(name), line, at, sequence);
        }
    }

    /// A reader of any partition must see that events are missing.
    pub(super) fn put_gap(&mut self, line: &[u8], unix_ms: u64) {
        for partition in 0..self.partitions {
            self.put(partition, None, line, unix_ms, None);
        }
    }

    pub(super) fn put_election(&mut self, line: &[u8], unix_ms: u64) {
        self.put(0, None, line, unix_ms, None);
    }

    pub(super) fn is_for(&self, partitions: i32) -> bool {
        self.partitions == partitions
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    fn put(
        &mut self,
        partition: i32,
        key: Option<&str>,
        line: &[u8],
        unix_ms: u64,
        sequence: Option<u64>,
    ) {
        let value = line.strip_suffix(b"\n").unwrap_or(line).to_vec();
        let bytes = value.len() + key.map_or(0, str::len) + RECORD_BYTES_EXTRA;
        let headers = sequence.map(|number| (SEQUENCE.to_owned(), number.to_string().into_bytes()));
        let unix_ms = i64::try_from(unix_ms).unwrap_or(i64::MAX);
        let record = Record {
            key: key.map(|key| key.as_bytes().to_vec()),
            value: Some(value),
            headers: headers.into_iter().collect(),
            timestamp: DateTime::from_timestamp_millis(unix_ms).unwrap_or_default(),
        };
        let batches = self.waiting.entry(partition).or_default();
        match batches.back_mut() {
            Some(last) if last.bytes + bytes <= RECORD_BATCH_BYTES_MAX => last.add(record, bytes),
            _ => {
                let mut batch = RecordBatch::default();
                batch.add(record, bytes);
                batches.push_back(batch);
            }
        }
        self.bytes += bytes;
    }
}

impl RecordBatch {
    fn add(&mut self, record: Record, bytes: usize) {
        self.records.push(record);
        self.bytes += bytes;
    }

    /// Two smaller ones; none of a single record.
    pub(super) fn split(mut self) -> Option<[RecordBatch; 2]> {
        if self.records.len() < 2 {
            return None;
        }
        let second = self.records.split_off(self.records.len() / 2);
        let bytes = self.bytes / 2;
        Some([RecordBatch { records: self.records, bytes }, RecordBatch { records: second, bytes }])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(names: &[&str], session: &str) -> WatchEvent {
        WatchEvent {
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            public_session_id: session.to_owned(),
            ..Default::default()
        }
    }

    fn keys(outbox: &Outbox) -> Vec<Option<String>> {
        let batches = outbox.waiting.values().flatten();
        let records = batches.flat_map(|batch| &batch.records);
        let key = |key: &Vec<u8>| String::from_utf8_lossy(key).into_owned();
        records.map(|record| record.key.as_ref().map(key)).collect()
    }

    #[test]
    fn an_event_is_in_the_history_of_each_of_its_names_once() {
        let mut outbox = Outbox::new(4);
        outbox.put_event(&event(&["a", "b", "a"], "s"), b"{}\n", 7);
        let mut found = keys(&outbox);
        found.sort();
        assert_eq!(found, [Some("a".to_owned()), Some("b".to_owned())]);
        let mut records = outbox.waiting.values().flatten().flat_map(|batch| &batch.records);
        assert!(records.all(|record| record.value.as_deref() == Some(b"{}")
            && record.headers.get(SEQUENCE).map(Vec::as_slice) == Some(b"7")));
    }

    #[test]
    fn one_name_keeps_to_one_partition_in_order_and_parcels_stay_small() {
        let mut outbox = Outbox::new(3);
        let line = vec![b'x'; RECORD_BATCH_BYTES_MAX / 3];
        for number in 0..10 {
            outbox.put_event(&event(&["a"], "s"), &line, number);
        }
        assert_eq!(outbox.waiting.len(), 1);
        let batches = outbox.waiting.values().next().unwrap();
        assert!(batches.iter().all(|batch| batch.bytes <= RECORD_BATCH_BYTES_MAX), "{batches:?}");
        let records = batches.iter().flat_map(|batch| &batch.records);
        let numbers = records.map(|record| record.headers[SEQUENCE].clone());
        let expected = (0..10_u64).map(|number| number.to_string().into_bytes());
        assert!(numbers.eq(expected));
    }

    #[test]
    fn a_gap_is_published_in_every_partition() {
        let mut outbox = Outbox::new(5);
        outbox.put_gap(b"{}", 0);
        assert_eq!((outbox.waiting.len(), keys(&outbox)), (5, vec![None; 5]));
    }
}
