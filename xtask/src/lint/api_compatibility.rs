//! Checks that the client API in `proto/` only grows: old clients work with new nodes, and new clients with old ones.
//!
//! Every field, enum value and call is one line of [`RECORDED`], with its number and its type. A recorded line that the
//! files no longer have is an incompatible change. A line that is not recorded is an addition, and fails until
//! `cargo xtask lint --record-api` has written it down. So each change of the API is seen in review.
//!
//! Caveats: the files are scanned for what they use of the language, and anything else is an error. The peer protocol is
//! not part of it: the rules of upgrades bind it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::process;

mod api;

use api::Api;

const FILES: &str = "proto/holdfast/v1";
const RECORDED: &str = "proto/recorded-api.txt";
/// Without them, no code can be generated for these languages.
const OPTIONS: [&str; 2] = ["go_package", "java_package"];
const HEADER: &str = "# The client API, as it was released or is about to be. `cargo xtask lint` checks it; \
                      `cargo xtask lint --record-api` adds to it.\n";

pub(crate) fn check() -> Result<(), Failure> {
    let root = process::repository_root();
    let recorded = read(&root.join(RECORDED))?;
    let mut complaints = Vec::new();
    let mut lines = BTreeSet::new();
    for path in files(&root)? {
        let api = parse(&path)?;
        let missing = OPTIONS.iter().filter(|option| !api.options.contains(**option));
        complaints.extend(missing.map(|option| format!("{}: no option {option}", path.display())));
        lines.extend(api.lines);
    }
    complaints.extend(differences(&recorded, &lines));
    if complaints.is_empty() { Ok(()) } else { Err(Failure::Failed(complaints.join("\nxtask: "))) }
}

/// Adds what is new. What is gone stays recorded, and fails the check.
pub(crate) fn record() -> Result<(), Failure> {
    let root = process::repository_root();
    let path = root.join(RECORDED);
    let recorded = if path.exists() { read(&path)? } else { String::new() };
    let mut lines: BTreeSet<String> = recorded_lines(&recorded).map(str::to_owned).collect();
    for file in files(&root)? {
        lines.extend(parse(&file)?.lines);
    }
    let text: String = lines.into_iter().map(|line| line + "\n").collect();
    fs::write(&path, format!("{HEADER}{text}"))
        .map_err(|error| Failure::Failed(format!("{} cannot be written: {error}", path.display())))
}

fn differences(recorded: &str, lines: &BTreeSet<String>) -> Vec<String> {
    let recorded: BTreeSet<&str> = recorded_lines(recorded).collect();
    let gone = recorded.iter().filter(|line| !lines.contains(**line)).map(|line| {
        format!("`{line}` is gone or changed: clients rely on it. Bring it back, and add beside it")
    });
    let added = lines.iter().filter(|line| !recorded.contains(line.as_str())).map(|line| {
        format!("`{line}` is not recorded: if it is meant, run `cargo xtask lint --record-api`")
    });
    gone.chain(added).collect()
}

fn recorded_lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'))
}

fn files(root: &Path) -> Result<Vec<PathBuf>, Failure> {
    let unreadable = |error| Failure::Failed(format!("{FILES} cannot be read: {error}"));
    let mut files = Vec::new();
    for entry in fs::read_dir(root.join(FILES)).map_err(unreadable)? {
        files.push(entry.map_err(unreadable)?.path());
    }
    files.retain(|path| path.extension().is_some_and(|extension| extension == "proto"));
    files.sort();
    Ok(files)
}

fn read(path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path)
        .map_err(|error| Failure::Failed(format!("{} cannot be read: {error}", path.display())))
}

fn parse(path: &Path) -> Result<Api, Failure> {
    Api::parse(&read(path)?)
        .map_err(|complaint| Failure::Failed(format!("{}: {complaint}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROTO: &str = "syntax = \"proto3\";\npackage p.v1;\noption go_package = \"a\";\n\
        service S {\n  rpc Do(Ask) returns (stream Told); // why\n}\n\
        message Ask {\n  // Its name.\n  string name = 1;\n  optional uint64 ttl_ms = 2;\n\
          reserved 3;\n  oneof kind {\n    Told told = 4;\n  }\n}\n\
        message Told {}\n\
        enum Mode {\n  MODE_UNSPECIFIED = 0;\n  MODE_ONE = 1;\n}\n";

    fn lines(proto: &str) -> BTreeSet<String> {
        Api::parse(proto).unwrap().lines
    }

    fn recorded() -> String {
        lines(PROTO).into_iter().map(|line| line + "\n").collect()
    }

    #[test]
    fn fields_values_and_calls_are_read_with_number_and_type() {
        let lines: Vec<_> = lines(PROTO).into_iter().collect();
        assert_eq!(
            lines,
            [
                "enum p.v1.Mode 0 MODE_UNSPECIFIED",
                "enum p.v1.Mode 1 MODE_ONE",
                "message p.v1.Ask 1 name string",
                "message p.v1.Ask 2 ttl_ms optional uint64",
                "message p.v1.Ask 4 told Told oneof kind",
                "rpc p.v1.S.Do Ask -> stream Told",
            ]
        );
        assert!(Api::parse(PROTO).unwrap().options.contains("go_package"));
    }

    #[test]
    fn an_unchanged_api_has_no_differences() {
        assert_eq!(differences(&recorded(), &lines(PROTO)), [""; 0]);
    }

    #[test]
    fn every_incompatible_change_is_a_difference() {
        for (before, after) in [
            ("string name = 1", "string name = 5"),
            ("string name = 1", "bytes name = 1"),
            ("string name = 1", "string title = 1"),
            ("  string name = 1;\n", ""),
            ("optional uint64", "uint64"),
            ("optional uint64", "repeated uint64"),
            ("MODE_ONE = 1", "MODE_ONE = 2"),
            ("stream Told", "Told"),
            ("oneof kind", "oneof sort"),
        ] {
            let changed = PROTO.replacen(before, after, 1);
            assert_ne!(changed, PROTO);
            let found = differences(&recorded(), &lines(&changed));
            assert!(
                found.iter().any(|it| it.contains("gone or changed")),
                "{before} -> {after}: {found:?}"
            );
        }
    }

    #[test]
    fn an_addition_asks_to_be_recorded() {
        let added = PROTO.replace("string name = 1;", "string name = 1;\n  bool new = 9;");
        let found = differences(&recorded(), &lines(&added));
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("new bool` is not recorded"), "{found:?}");
    }

    #[test]
    fn text_that_is_not_understood_is_an_error() {
        assert!(Api::parse("package p;\nmessage A {\n  map<string, string> a = 1;\n}\n").is_err());
        assert!(Api::parse("package p;\nmessage A {\n").is_err());
    }

    #[test]
    fn the_api_of_this_repository_is_as_recorded() {
        check().unwrap();
    }
}
