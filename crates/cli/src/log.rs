//! Logs, on stderr: `HOLDFAST_LOG` says which, in the words of `tracing`'s filter.

use std::io;

use holdfast_server::LogFormat;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::reload::{self, Handle};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry, fmt};

const VARIABLE: &str = "HOLDFAST_LOG";

/// With which what is logged can be changed while the program runs.
#[derive(Clone, Debug)]
pub(crate) struct LogControl {
    filter: Handle<EnvFilter, Registry>,
}

pub(crate) fn to_stderr(default_filter: &str) {
    start(default_filter, LogFormat::Text);
}

/// The environment goes before the default.
pub(crate) fn start(default_filter: &str, format: LogFormat) -> LogControl {
    let filter =
        EnvFilter::try_from_env(VARIABLE).unwrap_or_else(|_| EnvFilter::new(default_filter));
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
        let filter = EnvFilter::try_new(filter).map_err(|error| error.to_string())?;
        self.filter.reload(filter).map_err(|error| error.to_string())
    }
}
