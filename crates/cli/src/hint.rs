//! Commands in messages that work as they are printed: with the connection options of the command that prints them.
//!
//! What came from the environment or from the configuration file is there for the next command too.

use std::borrow::Cow;
use std::sync::OnceLock;

use clap::ArgMatches;
use clap::parser::ValueSource;

use crate::text::quoted;

/// How the cluster is reached, by the ids of the arguments.
const CONNECTION: [&str; 7] = ["endpoints", "ca", "cert", "key", "auth_file", "verify", "context"];
/// What comes before a command in a message.
const BEFORE: [&str; 3] = ["`holdfast ", "(holdfast ", "next: holdfast "];
/// Of commands that reach the cluster. The rest are mentioned, or need no connection.
const VERBS: [&str; 18] = [
    "access can ",
    "access diff ",
    "access quota ",
    "access role ",
    "access token ",
    "access user ",
    "access whoami",
    "break ",
    "cluster status",
    "freezes",
    "history ",
    "kill-session ",
    "lock ",
    "reopen ",
    "sessions",
    "status ",
    "thaw ",
    "why ",
];

static OPTIONS: OnceLock<String> = OnceLock::new();

/// Remembers the options that were given on the command line.
pub(crate) fn remember(matches: &ArgMatches) {
    let _ = OPTIONS.set(given(matches));
}

/// With the options that were remembered.
pub(crate) fn complete(text: &str) -> Cow<'_, str> {
    match OPTIONS.get() {
        Some(options) => with_options(text, options),
        None => Cow::Borrowed(text),
    }
}

/// Each with a space before it.
fn given(matches: &ArgMatches) -> String {
    let value_of = |id: &&str| {
        (matches.value_source(id) == Some(ValueSource::CommandLine)).then_some(())?;
        let value = matches.get_raw(id)?.next()?.to_string_lossy().into_owned();
        Some(format!(" --{} {}", id.replace('_', "-"), quoted(&value)))
    };
    CONNECTION.iter().filter_map(value_of).collect()
}

fn with_options<'a>(text: &'a str, options: &str) -> Cow<'a, str> {
    if options.is_empty() || !text.contains("holdfast ") {
        return Cow::Borrowed(text);
    }
    let mut completed = String::with_capacity(text.len() + options.len());
    let mut rest = text;
    while let Some((at, before)) = first_command(rest) {
        // The options stand before the verb: after `--` they would belong to another program.
        let end = at + before.len();
        completed.push_str(rest[..end].trim_end());
        completed.push_str(options);
        completed.push(' ');
        rest = &rest[end..];
    }
    completed.push_str(rest);
    Cow::Owned(completed)
}

fn first_command(text: &str) -> Option<(usize, &'static str)> {
    let reaches_cluster = |at: usize| {
        let verb = &text[at..];
        VERBS.iter().any(|known| verb.starts_with(known))
    };
    let found = BEFORE.iter().flat_map(|before| {
        text.match_indices(before).map(|(at, _)| (at, *before)).collect::<Vec<_>>()
    });
    found.filter(|(at, before)| reaches_cluster(at + before.len())).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_in_messages_get_the_options_that_were_given() {
        let options = " --ca 'my ca.pem'";
        let told = |text: &'static str| with_options(text, options).into_owned();
        assert_eq!(
            told("see `holdfast why a`, or `holdfast break a --reason TEXT`"),
            "see `holdfast --ca 'my ca.pem' why a`, or `holdfast --ca 'my ca.pem' break a --reason TEXT`"
        );
        assert_eq!(
            told("  next: holdfast lock a -- CMD"),
            "  next: holdfast --ca 'my ca.pem' lock a -- CMD"
        );
        assert_eq!(
            told("first (holdfast access user create token:NAME --role admin)"),
            "first (holdfast --ca 'my ca.pem' access user create token:NAME --role admin)"
        );
        for mention in ["`holdfast dev` starts a cluster", "`holdfast lock`", "a holdfast why b"] {
            assert_eq!(told(mention), mention);
        }
        assert_eq!(with_options("`holdfast why a`", ""), "`holdfast why a`");
    }

    #[test]
    fn only_options_of_the_command_line_are_repeated() {
        let given = |line: &str| {
            let matches = crate::cli::command().try_get_matches_from(line.split(' ')).unwrap();
            given(&matches)
        };
        assert_eq!(
            given("holdfast why a --auth-file x.token --ca ca.pem"),
            " --ca ca.pem --auth-file x.token"
        );
        assert_eq!(given("holdfast --context prod access user list"), " --context prod");
        assert_eq!(given("holdfast why a"), "");
    }
}
