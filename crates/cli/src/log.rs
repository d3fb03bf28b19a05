//! Logs, on stderr: `HOLDFAST_LOG` says which, in the words of `tracing`'s filter.

use std::io;

use holdfast_server::LogFormat;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::reload::{self, Handle};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry, fmt};

use crate::output;

const VARIABLE: &str = "HOLDFAST_LOG";

/// With which what is logged can be changed while the program runs.
#[derive(Clone, Debug)]
pub(crate) struct LogControl {
    filter: Handle<EnvFilter, Registry>,
}

pub(crate) fn to_stderr(default_filter: &str) {
    start(default_filter, LogFormat::Text);
}

/// The environment goes before the default, if it makes sense.
pub(crate) fn start(default_filter: &str, format: LogFormat) -> LogControl {
    let asked = std::env::var(VARIABLE).unwrap_or_else(|_| default_filter.to_owned());
    let filter = parse(&asked).unwrap_or_else(|wrong| {
        output::message(&format!("{VARIABLE} is ignored: {wrong}"));
        parse(default_filter).unwrap_or_default()
    });
    let (filter, handle) = reload::Layer::new(filter);
    let lines = fmt::layer().with_writer(io::stderr).with_ansi(false);
    let lines = match format {
        LogFormat::Text => lines.boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    tracing_subscriber::registry().with(filter).with(lines).init();
    LogControl { filter: handle }
}

impl LogControl {
    /// In words why not, if the filter makes no sense.
    pub(crate) fn set(&self, filter: &str) -> Result<(), String> {
        let filter = parse(filter)?;
        self.filter.reload(filter).map_err(|error| error.to_string())
    }
}

/// A word that is no level would be taken for a part of the program, and all others be silent: so parts come with their level.
pub(crate) fn parse(filter: &str) -> Result<EnvFilter, String> {
    let is_level = |word: &str| word.parse::<LevelFilter>().is_ok();
    let words = filter.split(',').map(str::trim).filter(|word| !word.is_empty());
    match words.clone().find(|word| !word.contains(['=', '[']) && !is_level(word)) {
        Some(word) => Err(format!(
            "'{word}' is no level: write off, error, warn, info, debug or trace, and for a part of the program both, \
             such as info,holdfast_server::kafka=debug"
        )),
        None => EnvFilter::try_new(words.collect::<Vec<_>>().join(","))
            .map_err(|error| format!("'{filter}': {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_made_of_levels_and_of_parts_with_theirs() {
        for right in [
            "info",
            "WARN",
            "off",
            "info,holdfast_server::kafka=debug",
            "",
            "debug ",
            "warn, h2=off",
        ] {
            let parsed = parse(right).unwrap().to_string();
            assert!(!parsed.contains(' ') && !parsed.contains("debug=trace"), "{right}: {parsed}");
        }
        for wrong in ["inof", "debug;", "info,tokio", "foo=bar=baz", "holdfast_server=inof"] {
            let said = parse(wrong).unwrap_err();
            assert!(said.contains('\''), "{said}");
        }
    }
}
