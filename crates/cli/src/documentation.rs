//! What the documentation says about commands is what the program understands and prints.
//!
//! These tests write `docs/reference/commands.md`, `docs/reference/configuration.md` and
//! `crates/cli/tests/golden/help.txt`: `UPDATE_GOLDEN=1 cargo test -p holdfast --bins documentation`. Read the
//! difference before you commit it.

use std::collections::HashSet;
use std::fs;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use clap::{Command, CommandFactory};
use holdfast_server::NodeConfig;

use crate::cli::{self, Cli};
use crate::exit::usage_message;

const COMMANDS: &str = "docs/reference/commands.md";
const CONFIGURATION: &str = "docs/reference/configuration.md";
/// The help and the usage errors, for review. `tests/cluster/messages.rs` writes the messages beside it.
const HELP: &str = "crates/cli/tests/golden/help.txt";

/// One mistake or more for each command.
const USAGE_ERRORS: &[&str] = &[
    "holdfast lokc a",
    "holdfast unlock a",
    "holdfast lock",
    "holdfast lock a true",
    "holdfast lock a --all b,c -- true",
    "holdfast lock ' ' -- true",
    "holdfast lock a --wait 5 -- true",
    "holdfast lock a --wait 25h -- true",
    "holdfast lock a --timeout 5s -- true",
    "holdfast lock a --ttl 10ms -- true",
    "holdfast lock a --shared --permits 2 -- true",
    "holdfast lock a --status-fd 1 -- true",
    "holdfast elect a",
    "holdfast elect a --wait soon -- true",
    "holdfast observe",
    "holdfast acquire",
    "holdfast acquire a --lease 5s",
    "holdfast release a",
    "holdfast release a --session x --token 7",
    "holdfast release a --session 000102030405060708090a0b0c0d0e0f --session-file x --token 7",
    "holdfast renew a",
    "holdfast check-token a",
    "holdfast check-token a seven",
    "holdfast advise-ttl --samples 1 --operation 1s",
    "holdfast bench --clients 0",
    "holdfast status",
    "holdfast why a b",
    "holdfast ls a b",
    "holdfast watch --line",
    "holdfast top --interval 1ms",
    "holdfast history a --limit 0",
    "holdfast who a",
    "holdfast sessions a",
    "holdfast break a",
    "holdfast transfer a --reason test",
    "holdfast freeze a --for 31d --reason test",
    "holdfast thaw a",
    "holdfast reopen a",
    "holdfast freezes a",
    "holdfast set-permits a --reason test",
    "holdfast kill-session a",
    "holdfast cluster status --cheque",
    "holdfast cluster add",
    "holdfast cluster add --id 0 --peer-address a:1 --client-address a:2",
    "holdfast cluster remove x",
    "holdfast cluster replace 1",
    "holdfast cluster promote",
    "holdfast cluster transfer --to 0",
    "holdfast cluster limits --bytes 1 --reason test",
    "holdfast snapshot save",
    "holdfast snapshot inspect",
    "holdfast snapshot restore file",
    "holdfast recover",
    "holdfast fence mysql",
    "holdfast access bootstrap",
    "holdfast access can billing read a",
    "holdfast access can cert:billing rread a",
    "holdfast access apply",
    "holdfast access user create cert:billing",
    "holdfast access user revoke",
    "holdfast access role create billing --allow read:",
    "holdfast access token create token:billing --expires soon",
    "holdfast access reset",
    "holdfast completions tcsh",
    "holdfast man",
    "holdfast server --log-format xml",
    "holdfast dev --nodes 9",
    "holdfast dev --port 0",
    "holdfast demo --slow",
    "holdfast --output yaml ls",
];

/// As a shell would take the line apart, as far as our examples need it. None: it is not ours.
fn words_of(example: &str) -> Option<Vec<String>> {
    let start = example.find("holdfast ")?;
    let (mut words, mut word, mut quote) = (Vec::new(), String::new(), None);
    for c in example[start..].chars().chain([' ']) {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), c) => word.push(c),
            (None, '\'' | '"') => {
                quote = Some(c);
                // So that an empty one is a word too.
                word.push('\u{0}');
            }
            (None, ' ') if word.is_empty() => {}
            (None, ' ') => words.push(std::mem::take(&mut word).replace('\u{0}', "")),
            (None, c) => word.push(c),
        }
    }
    let is_end = |word: &String| {
        ["|", "&&", "#"].contains(&word.as_str()) || word.contains('>') || word == "||"
    };
    let end = words.iter().position(is_end).unwrap_or(words.len());
    words.truncate(end);
    Some(words.into_iter().map(|word| word.trim_end_matches([')', ';']).to_owned()).collect())
}

/// With what a script would have put into its variables.
fn filled_in(word: &str) -> String {
    word.replace("$session", &"ab".repeat(16))
        .replace("$token", "7")
        .replace("$fence", "hf1.L.5e8c9902207afaeb.7")
}

#[test]
fn every_example_is_understood() {
    fn check(command: &clap::Command, status_fd: &str, count: &mut usize) {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        // One that goes on in the next line is one.
        let help = help.replace("\\\n", "");
        let lines = help.lines().skip_while(|line| !line.starts_with("Examples:")).skip(1);
        for line in lines.take_while(|line| line.starts_with("  ")) {
            let line = line.replace("--status-fd 3", status_fd);
            // A step of the script around it.
            let Some(words) = words_of(&line) else { continue };
            let words = words.iter().map(|word| filled_in(word));
            if let Err(error) = cli::command().try_get_matches_from(words) {
                panic!("{line}\n{error}");
            }
            *count += 1;
        }
        command.get_subcommands().for_each(|verb| check(verb, status_fd, count));
    }
    // What an example writes to is opened by the shell.
    let opened = std::fs::File::options().append(true).open("/dev/null").unwrap();
    let status_fd = format!("--status-fd {}", opened.as_raw_fd());
    let mut count = 0;
    check(&cli::command(), &status_fd, &mut count);
    assert!(count > 70, "{count}");
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Markdown that tells what a command is now. Decisions, results and changes tell what it was.
fn pages() -> Vec<(PathBuf, String)> {
    let root = repository();
    let mut paths = vec![root.join("README.md")];
    for directory in ["docs", "docs/performance", "docs/reference", "docs/stories"] {
        let entries = fs::read_dir(root.join(directory)).unwrap();
        paths.extend(entries.map(|entry| entry.unwrap().path()));
    }
    let pages = paths.into_iter().filter(|path| path.extension().is_some_and(|it| it == "md"));
    pages.map(|path| (path.clone(), fs::read_to_string(path).unwrap())).collect()
}

/// The commands in the code blocks of a page, with or without a prompt or variables (`NAME=value`) in front, and in
/// lines of a crontab.
fn commands(page: &str) -> Vec<String> {
    // What the shell puts together is one word.
    let page = page.replace("\\\n", "").replace("$(date +%F)", "2026-11-15");
    let blocks = page.split("\n```").skip(1).step_by(2);
    let lines = blocks.flat_map(|block| block.lines().skip(1).map(str::to_owned));
    let is_schedule = |word: &str| word.chars().all(|c| "*/,-$".contains(c) || c.is_ascii_digit());
    let may_precede = |word: &str| is_schedule(word) || is_assignment(word);
    lines
        .filter(|line| {
            let start = line.split_once("holdfast ").map(|(start, _)| start);
            start.is_some_and(|start| start.split(' ').all(may_precede))
        })
        .filter(|line| !line.starts_with(' '))
        .collect()
}

/// Whether the word is `NAME=value`.
fn is_assignment(word: &str) -> bool {
    let is_of_name = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    word.split_once('=').is_some_and(|(name, _)| !name.is_empty() && name.chars().all(is_of_name))
}

#[test]
fn every_command_in_the_documentation_is_understood() {
    let mut count = 0;
    for (path, page) in pages() {
        for line in commands(&page) {
            let words = words_of(&line).unwrap();
            let words = words.iter().map(|word| filled_in(word));
            if let Err(error) = cli::command().try_get_matches_from(words) {
                panic!("{}: {line}\n{error}", path.display());
            }
            count += 1;
        }
    }
    assert!(count > 60, "{count}");
}

#[test]
fn a_command_that_the_program_does_not_understand_is_found_on_a_page() {
    let page = "\n```sh\nholdfast lock a \\\n  -- true\nHOLDFAST_CA=ca.pem holdfast unlock a\n```\n\n\
        ```text\n*/10 * * * *  holdfast lokc a\nwith holdfast a\n```\n";
    let found = commands(page);
    assert_eq!(
        found,
        [
            "holdfast lock a   -- true",
            "HOLDFAST_CA=ca.pem holdfast unlock a",
            "*/10 * * * *  holdfast lokc a"
        ]
    );
    let is_understood =
        |line: &str| cli::command().try_get_matches_from(words_of(line).unwrap()).is_ok();
    assert_eq!(
        found.iter().map(|line| is_understood(line)).collect::<Vec<_>>(),
        [true, false, false]
    );
}

/// Compares a page with what it should be, or writes it.
fn check_page(path: &str, expected: &str) {
    let file = repository().join(path);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(file, expected).unwrap();
        return;
    }
    let page = fs::read_to_string(file).unwrap_or_default();
    let differs = page.lines().zip(expected.lines()).position(|(is, should)| is != should);
    let line = differs.map_or(page.lines().count().min(expected.lines().count()), |line| line) + 1;
    assert!(
        page == expected,
        "{path}:{line} is not what the program says; run UPDATE_GOLDEN=1 cargo test -p holdfast --bins documentation"
    );
}

#[test]
fn the_reference_of_commands_is_their_help() {
    let mut page = "# Commands\n\n\
        The help of every command, as `holdfast COMMAND --help` prints it, without the global options at the end. A test\n\
        writes this page. [The command line](../cli.md) says what scripts may rely on.\n"
        .to_owned();
    let mut root = cli::command().term_width(100);
    root.build();
    page.push_str(&help_of(root.clone(), "holdfast", str::to_owned));
    // In the order in which the help lists them.
    for verb in Cli::command().get_subcommands() {
        let verb = root.find_subcommand(verb.get_name()).unwrap();
        write_help(&mut page, verb, "holdfast");
    }
    check_page(COMMANDS, &page);
}

#[test]
fn the_short_help_and_the_usage_errors_of_all_commands_are_in_the_golden_file() {
    // A width of 0 breaks no lines.
    let mut root = cli::command().term_width(0);
    root.build();
    let mut text = "Help and usage errors of the command line, for review. A test writes this file:\n  \
        UPDATE_GOLDEN=1 cargo test -p holdfast --bins documentation\n\
        messages.txt has the other messages, and is the file to read first. docs/reference/commands.md has the full help, \
        with the examples.\n\n\
        ==== Help: `-h` of each command. `as above` lists options that read as in an earlier command ====\n"
        .to_owned();
    let mut seen = HashSet::new();
    write_short_help(&mut text, &root, "holdfast", &mut seen);
    for verb in Cli::command().get_subcommands() {
        let verb = root.find_subcommand(verb.get_name()).unwrap();
        write_short_help_of_all(&mut text, verb, "holdfast", &mut seen);
    }
    text.push_str("\n==== Usage errors, without the usage line ====\n");
    let outcomes: Vec<(&str, String)> =
        USAGE_ERRORS.iter().map(|line| (*line, usage_error_of(line))).collect();
    for group in outcomes.chunk_by(|(_, one), (_, next)| one == next) {
        let lines: String = group.iter().map(|(line, _)| format!("$ {line}\n")).collect();
        text.push_str(&format!("\n{lines}{}\n", group[0].1));
    }
    check_page(HELP, &text);
}

/// What is wrong with the line, without the usage line and the end that all usage errors have.
fn usage_error_of(line: &str) -> String {
    let args = words_of(line).unwrap();
    let error = cli::command().term_width(0).try_get_matches_from(&args).unwrap_err();
    let message = usage_message(error, &args).replace("For more information, try '--help'.", "");
    let is_usage = |paragraph: &&str| paragraph.starts_with("Usage:");
    let paragraphs: Vec<&str> = message.trim().split("\n\n").filter(|it| !is_usage(it)).collect();
    paragraphs.join("\n").trim_end().to_owned()
}

fn write_short_help_of_all(
    text: &mut String,
    command: &Command,
    parent: &str,
    seen: &mut HashSet<String>,
) {
    if command.is_hide_set() || command.get_name() == "help" {
        return;
    }
    let name = format!("{parent} {}", command.get_name());
    write_short_help(text, command, &name, seen);
    for below in command.get_subcommands() {
        write_short_help_of_all(text, below, &name, seen);
    }
}

/// One line for each argument. Those that were `seen` in the help of another command are only named.
fn write_short_help(text: &mut String, command: &Command, name: &str, seen: &mut HashSet<String>) {
    let mut command = command.clone().mut_args(|arg| arg.hide_env_values(true));
    let help = command.render_help().to_string();
    let help = if name == "holdfast" { help } else { without_global_options(&help) };
    let mut known = Vec::new();
    text.push_str(&format!("\n$ {name} -h\n"));
    for line in help.lines().take_while(|line| !line.starts_with("Examples:")) {
        let line = line.trim_end();
        let argument = line.strip_prefix("  ").map(str::trim_start);
        let argument = argument.filter(|it| it.starts_with(['-', '<', '[']));
        match argument.and_then(|it| it.split_once("  ")) {
            Some(("-h, --help" | "-V, --version", _)) => {}
            Some((spec, what)) if seen.insert(format!("{spec} {}", what.trim_start())) => {
                text.push_str(&format!("  {spec}  {}\n", what.trim_start()));
            }
            Some((spec, _)) => known.push(spec.split(' ').next().unwrap_or_default().to_owned()),
            None if line.is_empty() || line.ends_with("ptions:") || line == "Arguments:" => {}
            None => text.push_str(&format!("{line}\n")),
        }
    }
    if !known.is_empty() {
        text.push_str(&format!("  as above: {}\n", known.join(" ")));
    }
}

fn write_help(page: &mut String, command: &Command, parent: &str) {
    if command.is_hide_set() || command.get_name() == "help" {
        return;
    }
    let name = format!("{parent} {}", command.get_name());
    page.push_str(&help_of(command.clone(), &name, without_global_options));
    for below in command.get_subcommands() {
        write_help(page, below, &name);
    }
}

fn help_of(command: Command, name: &str, shorten: fn(&str) -> String) -> String {
    // What stands in the environment of this test belongs to no page.
    let mut command = command.mut_args(|arg| arg.hide_env_values(true));
    let help = shorten(&command.render_long_help().to_string());
    let lines: Vec<&str> = help.trim_end().lines().map(str::trim_end).collect();
    format!("\n## `{name}`\n\n```text\n{}\n```\n", lines.join("\n"))
}

fn without_global_options(help: &str) -> String {
    let Some((before, global)) = help.split_once("Global options:\n") else {
        return help.to_owned();
    };
    // The next part begins at the margin.
    let mut lines = global.split_inclusive('\n');
    let rest = lines.by_ref().skip_while(|line| line.starts_with(' ') || line.trim().is_empty());
    before.to_owned() + &rest.collect::<String>()
}

#[test]
fn the_reference_of_the_configuration_has_the_example_file() {
    let page = fs::read_to_string(repository().join(CONFIGURATION)).unwrap();
    let (before, _) = page.split_once("```toml\n").unwrap();
    check_page(CONFIGURATION, &format!("{before}```toml\n{}```\n", NodeConfig::EXAMPLE));
}
