//! What starting any server takes.

use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a server may take to come up, on a machine that is busy with other things.
const START_PATIENCE: Duration = Duration::from_secs(180);

/// What is installed nowhere is skipped loudly, or fails in CI.
pub(super) fn not_installed(server: &str, package: &str) {
    let advice =
        format!("{server} is not installed: `cargo xtask test` or `apt-get install {package}`");
    assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{advice}");
    // Past the capture of the test harness, which would show it only on failure.
    let _ = writeln!(std::io::stderr(), "SKIPPED a test: {advice}");
}

/// In one of the directories of PATH, or in one of these.
pub(super) fn find_program(name: &str, elsewhere: Vec<PathBuf>) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories = std::env::split_paths(&path).chain(elsewhere);
    directories.map(|directory| directory.join(name)).find(|program| program.is_file())
}

/// A port on which no process listened a moment ago.
pub(super) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Asks until there is an answer, or until the server has ended or the patience is over.
pub(super) async fn until_it_answers<T, F: Future<Output = Option<T>>>(
    process: &mut std::process::Child,
    log: &Path,
    mut ask: impl FnMut() -> F,
) -> Option<T> {
    let give_up = Instant::now() + START_PATIENCE;
    loop {
        if let Some(answer) = ask().await {
            return Some(answer);
        }
        if process.try_wait().unwrap().is_some() {
            return None;
        }
        let log = || std::fs::read_to_string(log).unwrap_or_default();
        assert!(Instant::now() < give_up, "the server does not come up: {}", log());
        // The interval of asking, not a guess at how long it takes.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
