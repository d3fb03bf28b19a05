//! The names of the files in the directory, and what they say.

use crate::block::Sequence;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileName {
    Segment(Sequence),
    Snapshot {
        group: u32,
        index: u64,
    },
    /// Not yet, or no longer, part of the log.
    Temporary,
}

pub(crate) fn segment(sequence: Sequence) -> String {
    format!("log-{:016x}.seg", sequence.0)
}

pub(crate) fn snapshot(group: u32, index: u64) -> String {
    format!("snap-{group}-{index:016x}.snap")
}

pub(crate) fn temporary(number: u64) -> String {
    format!("{number}.tmp")
}

/// None for a file that is not the log's: the directory may hold others.
pub(crate) fn parse(name: &str) -> Option<FileName> {
    if name.strip_suffix(".tmp").is_some_and(|number| number.parse::<u64>().is_ok()) {
        return Some(FileName::Temporary);
    }
    let (file, canonical) = if let Some(digits) =
        name.strip_prefix("log-").and_then(|rest| rest.strip_suffix(".seg"))
    {
        let sequence = Sequence(u64::from_str_radix(digits, 16).ok()?);
        (FileName::Segment(sequence), segment(sequence))
    } else {
        let rest = name.strip_prefix("snap-")?.strip_suffix(".snap")?;
        let (group, index) = rest.split_once('-')?;
        let (group, index) = (group.parse().ok()?, u64::from_str_radix(index, 16).ok()?);
        (FileName::Snapshot { group, index }, snapshot(group, index))
    };
    (canonical == name).then_some(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back_as_they_were_made() {
        let snapshot_name = FileName::Snapshot { group: 7, index: 300 };
        assert_eq!(parse(&segment(Sequence(26))), Some(FileName::Segment(Sequence(26))));
        assert_eq!(segment(Sequence(26)), "log-000000000000001a.seg");
        assert_eq!(parse(&snapshot(7, 300)), Some(snapshot_name));
        assert_eq!(parse(&temporary(3)), Some(FileName::Temporary));
    }

    #[test]
    fn foreign_files_are_left_alone() {
        for name in ["LOCK", "log-1a.seg", "snap-07-000000000000012c.snap", "node.toml", "x.tmp"] {
            assert_eq!(parse(name), None, "{name}");
        }
    }
}
