//! What the nodes wrote into their audit files: each event that they applied, in each group.

use std::io;
use std::path::{Path, PathBuf};

use holdfast_core::FenceToken;
use serde_json::Value;

/// Where in the log of a group: the entry, and the number of the event in it.
pub(crate) type Position = (u64, u64);

/// The lines that are about no event of a group's log.
const OTHER_LINES: [&str; 8] = [
    "leadership",
    "membership",
    "positions",
    "denied",
    "would_be_denied",
    "login",
    "requested",
    "notes_lost",
];

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AuditedEvent {
    pub(crate) group: u32,
    pub(crate) at: Position,
    pub(crate) kind: String,
    pub(crate) names: Vec<String>,
    pub(crate) token: Option<FenceToken>,
    pub(crate) public_session_id: String,
    pub(crate) request_id: u64,
}

/// Events of these entries may be missing in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AuditedGap {
    pub(crate) group: u32,
    pub(crate) after_index: u64,
    /// Of the next event in the file.
    pub(crate) index: u64,
}

/// The file of one node.
#[derive(Clone, Debug, Default)]
pub(crate) struct AuditFile {
    pub(crate) node: u64,
    pub(crate) events: Vec<AuditedEvent>,
    pub(crate) gaps: Vec<AuditedGap>,
}

pub(crate) fn path(dir: &Path, node: &str) -> PathBuf {
    dir.join(format!("audit-{node}.jsonl"))
}

impl AuditFile {
    /// To be called when the node has stopped.
    pub(crate) fn read(dir: &Path, node: u64) -> io::Result<AuditFile> {
        let mut file = AuditFile { node, ..AuditFile::default() };
        for (number, line) in
            std::fs::read_to_string(path(dir, &node.to_string()))?.lines().enumerate()
        {
            let broken = || {
                let what = format!("line {} of the audit file of node {node}: {line}", number + 1);
                io::Error::new(io::ErrorKind::InvalidData, what)
            };
            let value: Value = serde_json::from_str(line).map_err(|_| broken())?;
            file.take(&value).ok_or_else(broken)?;
        }
        Ok(file)
    }

    /// The same with the events of one group told of the other, and the other way round.
    pub(crate) fn with_groups_swapped(&self, one: u32, other: u32) -> AuditFile {
        let mut file = self.clone();
        for event in &mut file.events {
            event.group = match event.group {
                group if group == one => other,
                group if group == other => one,
                group => group,
            };
        }
        file
    }

    /// None if the line is not as it has to be.
    fn take(&mut self, line: &Value) -> Option<()> {
        let number = |field: &str| line[field].as_u64();
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let kind = text(&line["event"])?;
        let group = u32::try_from(number("group")?).ok()?;
        let at = (number("index")?, number("number")?);
        match kind.as_str() {
            "gap" => {
                let after_index = number("after_index")?;
                self.gaps.push(AuditedGap { group, after_index, index: at.0 });
            }
            "beginning" => self.gaps.push(AuditedGap { group, after_index: 0, index: at.0 }),
            other if OTHER_LINES.contains(&other) => {}
            _ => {
                let names = line["names"].as_array().into_iter().flatten().map(text);
                let token = match line.get("token") {
                    Some(token) => Some(FenceToken(token.as_str()?.parse().ok()?)),
                    None => None,
                };
                self.events.push(AuditedEvent {
                    group,
                    at,
                    kind,
                    names: names.collect::<Option<Vec<String>>>()?,
                    token,
                    public_session_id: text(&line["session"]).unwrap_or_default(),
                    request_id: number("request_id").unwrap_or_default(),
                });
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_and_gaps_are_read_and_other_lines_are_left_out() {
        let lines = [
            r#"{"event":"granted","time":"x","unix_ms":1,"group":3,"index":7,"number":1,"names":["a"],"session":"00ff","request_id":4,"token":"12"}"#,
            r#"{"event":"leadership","group":3,"index":7,"number":1,"leader":2,"term":5}"#,
            r#"{"event":"gap","group":2,"index":90,"number":0,"lost":5,"after_index":60}"#,
        ];
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(path(dir.path(), "4"), lines.join("\n")).unwrap();
        let file = AuditFile::read(dir.path(), 4).unwrap();
        let event = AuditedEvent {
            group: 3,
            at: (7, 1),
            kind: "granted".into(),
            names: vec!["a".into()],
            token: Some(FenceToken(12)),
            public_session_id: "00ff".into(),
            request_id: 4,
        };
        assert_eq!(file.events, [event]);
        assert_eq!(file.gaps, [AuditedGap { group: 2, after_index: 60, index: 90 }]);
        std::fs::write(path(dir.path(), "4"), "{\"event\":").unwrap();
        assert!(AuditFile::read(dir.path(), 4).is_err());
    }
}
