//! Logs, on stderr: `HOLDFAST_LOG` says which, in the words of `tracing`'s filter.

use tracing_subscriber::EnvFilter;

pub(crate) fn to_stderr(default_level: &str) {
    let filter =
        EnvFilter::try_from_env("HOLDFAST_LOG").unwrap_or_else(|_| EnvFilter::new(default_level));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .init();
}
