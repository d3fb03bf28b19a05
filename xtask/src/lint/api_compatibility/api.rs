//! What a `.proto` file declares, as lines that can be compared.

use std::collections::BTreeSet;

#[derive(Debug, Default)]
pub(super) struct Api {
    /// `message <name> <number> <field> <type>`, `enum <name> <number> <value>`, `rpc <name> <request> -> <response>`.
    pub(super) lines: BTreeSet<String>,
    /// The names of the file's options.
    pub(super) options: BTreeSet<String>,
}

/// An open brace.
enum Block {
    Message(String),
    Enum(String),
    Service(String),
    Oneof(String),
}

impl Api {
    pub(super) fn parse(text: &str) -> Result<Api, String> {
        let mut api = Api::default();
        let mut package = String::new();
        let mut blocks: Vec<Block> = Vec::new();
        for statement in statements(text) {
            let words: Vec<&str> = statement.split_whitespace().collect();
            match (words.as_slice(), blocks.last()) {
                (["syntax", ..] | ["import", ..], None) | (["reserved", ..], _) => {}
                (["package", name], None) => package = (*name).to_owned(),
                (["option", name, ..], None) => {
                    api.options.insert((*name).to_owned());
                }
                (["message", name, "{"], None) => {
                    blocks.push(Block::Message(format!("{package}.{name}")));
                }
                (["enum", name, "{"], None) => {
                    blocks.push(Block::Enum(format!("{package}.{name}")));
                }
                (["service", name, "{"], None) => {
                    blocks.push(Block::Service(format!("{package}.{name}")));
                }
                (["oneof", name, "{"], Some(Block::Message(_))) => {
                    blocks.push(Block::Oneof((*name).to_owned()));
                }
                (["}"], Some(_)) => drop(blocks.pop()),
                (["rpc", ..], Some(Block::Service(service))) => {
                    api.lines.insert(call(service, &statement).ok_or_else(|| unknown(&statement))?);
                }
                ([name, "=", number], Some(Block::Enum(of))) => {
                    api.lines.insert(format!("enum {of} {} {name}", checked(number, &statement)?));
                }
                ([kind @ .., name, "=", number], Some(Block::Message(_) | Block::Oneof(_))) => {
                    let number = checked(number, &statement)?;
                    let kind = field_type(kind).ok_or_else(|| unknown(&statement))?;
                    let line = match blocks.as_slice() {
                        [Block::Message(of)] => format!("message {of} {number} {name} {kind}"),
                        [Block::Message(of), Block::Oneof(one)] => {
                            format!("message {of} {number} {name} {kind} oneof {one}")
                        }
                        _ => return Err(unknown(&statement)),
                    };
                    api.lines.insert(line);
                }
                _ => return Err(unknown(&statement)),
            }
        }
        if blocks.is_empty() { Ok(api) } else { Err("a brace is not closed".to_owned()) }
    }
}

/// What ends with a semicolon or a brace, without comments; the brace is a word of its own.
fn statements(text: &str) -> Vec<String> {
    let mut statements = Vec::new();
    let mut current = String::new();
    for line in text.lines() {
        let code = line.split("//").next().unwrap_or_default();
        for character in code.chars() {
            match character {
                ';' => statements.push(std::mem::take(&mut current)),
                '{' => statements.push(std::mem::take(&mut current) + " {"),
                '}' => statements.extend([std::mem::take(&mut current), "}".to_owned()]),
                other => current.push(other),
            }
        }
        current.push(' ');
    }
    statements.push(current);
    statements.retain(|statement| !statement.trim().is_empty());
    statements
}

/// `rpc Do(Ask) returns (stream Told)`
fn call(service: &str, statement: &str) -> Option<String> {
    let (name, rest) = statement.trim().strip_prefix("rpc ")?.split_once('(')?;
    let (request, rest) = rest.split_once(')')?;
    let (_, response) = rest.split_once('(')?;
    let (response, _) = response.split_once(')')?;
    Some(format!("rpc {service}.{} {} -> {}", name.trim(), request.trim(), response.trim()))
}

fn field_type(words: &[&str]) -> Option<String> {
    let is_name = |word: &str| word.chars().all(|c| c.is_ascii_alphanumeric() || "._".contains(c));
    match words {
        [kind] | ["optional" | "repeated", kind] if is_name(kind) => Some(words.join(" ")),
        _ => None,
    }
}

fn checked<'a>(number: &'a str, statement: &str) -> Result<&'a str, String> {
    if number.parse::<u32>().is_ok() { Ok(number) } else { Err(unknown(statement)) }
}

fn unknown(statement: &str) -> String {
    format!("`{}` is not understood; extend the scanner, or write it plainly", statement.trim())
}
