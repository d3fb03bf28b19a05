//! Whether a topic of Kafka has what docs/events.md promises, for a cluster with several groups.
//!
//! It reads as a consumer does that follows that page, and compares with what the audit file of a node says.

use std::collections::{BTreeMap, BTreeSet};

use rskafka::record::Record;
use serde_json::Value;

use crate::audit::is_event;
use crate::kafka::without_own_fields;

/// Where in the log of a group: the entry, and the number of the event in it.
type Position = (u64, u64);
/// The events of all groups, by group and position.
pub(crate) type Events = BTreeMap<(u64, Position), Value>;

/// A record as a consumer has it.
#[derive(Clone, Debug)]
pub(crate) struct Published {
    pub(crate) key: Option<String>,
    /// Only events have one.
    pub(crate) sequence: Option<u64>,
    pub(crate) value: Value,
}

/// Of one partition: in each group the highest position, and the keys of the records that have it.
#[derive(Debug, Default)]
struct Consumer(BTreeMap<u64, (Position, BTreeSet<Option<String>>)>);

impl Published {
    pub(crate) fn of(record: &Record) -> Published {
        let text = |bytes: &Vec<u8>| String::from_utf8(bytes.clone()).unwrap();
        Published {
            key: record.key.as_ref().map(text),
            sequence: record.headers.get("sequence").map(|digits| text(digits).parse().unwrap()),
            value: serde_json::from_slice(record.value.as_ref().unwrap()).unwrap(),
        }
    }

    pub(crate) fn kind(&self) -> &str {
        self.value["event"].as_str().unwrap()
    }

    pub(crate) fn group(&self) -> u64 {
        group(&self.value)
    }

    fn position(&self) -> Position {
        position(&self.value)
    }
}

impl Consumer {
    /// Skips a record that is below the highest position of its group, or equal to it with the same key.
    fn takes(&mut self, record: &Published) -> bool {
        let (now, key) = (record.position(), record.key.clone());
        match self.0.get_mut(&record.group()) {
            Some((highest, _)) if now < *highest => false,
            Some((highest, keys)) if now == *highest => keys.insert(key),
            _ => {
                self.0.insert(record.group(), (now, BTreeSet::from([key])));
                true
            }
        }
    }
}

pub(crate) fn group(line: &Value) -> u64 {
    line["group"].as_u64().unwrap()
}

pub(crate) fn position(line: &Value) -> Position {
    (line["index"].as_u64().unwrap(), line["number"].as_u64().unwrap())
}

/// The events in the lines of an audit file.
pub(crate) fn events_of(lines: Vec<Value>) -> Events {
    let events = lines.into_iter().filter(is_event);
    events.map(|line| ((group(&line), position(&line)), line)).collect()
}

/// What is wrong with the topic. `happened` has all events that there were. A group's events that happened before its
/// first record do not have to be in the topic.
pub(crate) fn judge(partitions: &[Vec<Published>], happened: &Events) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut found: BTreeMap<(u64, Position), Vec<&Published>> = BTreeMap::new();
    let mut homes: BTreeMap<&str, (usize, u64)> = BTreeMap::new();
    for (number, partition) in partitions.iter().enumerate() {
        let (mut consumer, mut all) = (Consumer::default(), BTreeSet::new());
        for record in partition.iter().filter(|record| record.sequence.is_some()) {
            let (group, at) = (record.group(), record.position());
            let is_first = all.insert((group, at, record.key.clone()));
            if consumer.takes(record) != is_first {
                let what = if is_first { "comes too late" } else { "is not known as a copy" };
                wrong.push(format!("partition {number}: {at:?} of group {group} {what}"));
            }
            if is_first {
                found.entry((group, at)).or_default().push(record);
            }
            if let Some(key) = &record.key
                && *homes.entry(key).or_insert((number, group)) != (number, group)
            {
                wrong.push(format!("'{key}' is in several partitions, or of several groups"));
            }
        }
    }
    let groups: BTreeSet<u64> = happened.keys().map(|(group, _)| *group).collect();
    for group in groups {
        check_group(group, &found, happened, &mut wrong);
    }
    for (group, at) in found.keys().filter(|at| !happened.contains_key(*at)) {
        wrong.push(format!("{at:?} of group {group} never happened"));
    }
    wrong
}

fn check_group(
    group: u64,
    found: &BTreeMap<(u64, Position), Vec<&Published>>,
    happened: &Events,
    wrong: &mut Vec<String>,
) {
    let all = (group, (0, 0))..=(group, (u64::MAX, u64::MAX));
    let Some((begun, _)) = found.range(all.clone()).next() else {
        wrong.push(format!("nothing of group {group} is there"));
        return;
    };
    let expected = happened.range(*begun..=*all.end());
    for (sequence, (at, event)) in (1..).zip(expected) {
        let Some(records) = found.get(at) else {
            wrong.push(format!("{:?} of group {group} is missing: {event}", at.1));
            continue;
        };
        let names = event["names"].as_array().into_iter().flatten();
        let names = names.map(|name| Some(name.as_str().unwrap().to_owned()));
        let mut names: BTreeSet<Option<String>> = names.collect();
        if names.is_empty() {
            names.insert(None);
        }
        let keys: BTreeSet<Option<String>> = records.iter().map(|it| it.key.clone()).collect();
        if keys != names {
            wrong.push(format!("{:?} of group {group} is under {keys:?}, not {names:?}", at.1));
        }
        for record in records {
            if record.sequence != Some(sequence) {
                let counted = record.sequence;
                wrong.push(format!("{:?} of group {group} is {sequence}, not {counted:?}", at.1));
            }
            if without_own_fields(&record.value) != without_own_fields(event) {
                wrong.push(format!("group {group}: {} is not {event}", record.value));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const GROUPS: u64 = 2;

    fn line(group: u64, index: u64, names: &[&str]) -> Value {
        json!({
            "event": "granted", "time": "", "unix_ms": 1, "group": group, "index": index, "number": 0,
            "names": names,
        })
    }

    /// Each group has some events of two locks, an event of both locks and an event without a lock.
    fn sound() -> (Vec<Vec<Published>>, Events) {
        let mut lines = Vec::new();
        let mut partitions = vec![Vec::new(), Vec::new()];
        for group in 1..=GROUPS {
            let (a, b) = (format!("a{group}"), format!("b{group}"));
            let names: [&[&str]; 5] = [&[&a], &[&b], &[&a, &b], &[], &[&a]];
            for (sequence, names) in (1..).zip(names) {
                let value = line(group, 10 + sequence, names);
                lines.push(value.clone());
                let mut put = |partition: usize, key: Option<&str>| {
                    let (key, value) = (key.map(str::to_owned), value.clone());
                    let record = Published { key, sequence: Some(sequence), value };
                    partitions[partition].push(record);
                };
                if names.is_empty() {
                    put(1, None);
                }
                names.iter().for_each(|name| put(usize::from(*name == b), Some(name)));
            }
        }
        (partitions, events_of(lines))
    }

    fn verdict(spoil: impl FnOnce(&mut Vec<Vec<Published>>)) -> String {
        let (mut partitions, happened) = sound();
        spoil(&mut partitions);
        judge(&partitions, &happened).join("\n")
    }

    #[test]
    fn a_sound_topic_is_acquitted_also_with_copies() {
        assert_eq!(verdict(|_| ()), "");
        let again = verdict(|partitions| {
            // The next leader of group 1 begins at its second event.
            let copies: Vec<Published> =
                partitions[0].iter().filter(|it| it.group() == 1).skip(1).cloned().collect();
            partitions[0].extend(copies);
        });
        assert_eq!(again, "");
    }

    #[test]
    fn events_of_two_groups_that_are_swapped_are_found() {
        let words = verdict(|partitions| {
            for record in partitions.iter_mut().flatten() {
                record.value["group"] = Value::from(3 - record.group());
            }
        });
        assert!(words.contains("group 1: ") && words.contains("group 2: "), "{words}");
    }

    #[test]
    fn an_event_that_is_missing_is_found() {
        let words = verdict(|partitions| {
            partitions[0].remove(1);
        });
        assert!(words.contains("is under"), "one of its two records: {words}");
        let words = verdict(|partitions| {
            partitions[0].remove(2);
        });
        assert!(words.contains("(15, 0) of group 1 is missing"), "{words}");
    }

    #[test]
    fn events_of_a_lock_in_the_wrong_order_are_found() {
        let words = verdict(|partitions| partitions[0].swap(0, 1));
        assert!(words.contains("comes too late"), "{words}");
    }

    #[test]
    fn a_count_that_goes_on_in_another_group_is_found() {
        let words = verdict(|partitions| {
            for record in partitions.iter_mut().flatten().filter(|it| it.group() == 2) {
                record.sequence = record.sequence.map(|sequence| sequence + 5);
            }
        });
        assert!(words.contains("of group 2 is 1, not Some(6)"), "{words}");
    }
}
