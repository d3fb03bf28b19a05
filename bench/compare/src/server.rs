//! A server of another project: a process on loopback that ends with us.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use holdfast_bench::Outcome;

const START_PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(50);

/// Where servers find their programs and keep their files.
#[derive(Debug, Clone)]
pub(crate) struct Installation {
    /// By which a server is started that is to be killed if we are.
    pub(crate) holdfast: PathBuf,
    pub(crate) directory: PathBuf,
}

/// A process, and how it was started.
#[derive(Debug)]
pub(crate) struct Server {
    launcher: Vec<OsString>,
    command: Vec<OsString>,
    log: PathBuf,
    process: Child,
}

impl Installation {
    pub(crate) fn new_directory(&self, name: &str) -> Outcome<PathBuf> {
        let directory = self.directory.join(name);
        std::fs::create_dir_all(&directory)?;
        Ok(directory)
    }
}

impl Server {
    /// What it prints goes to a file beside its data.
    pub(crate) fn start(
        installation: &Installation,
        name: &str,
        program: &Path,
        arguments: impl IntoIterator<Item = impl Into<OsString>>,
    ) -> Outcome<Server> {
        let parent: OsString = std::process::id().to_string().into();
        let launcher =
            [installation.holdfast.clone().into(), "exec-child".into(), "--parent".into(), parent];
        let launcher: Vec<OsString> = launcher.into_iter().chain(["--".into()]).collect();
        let program: OsString = program.into();
        let command: Vec<_> =
            [program].into_iter().chain(arguments.into_iter().map(Into::into)).collect();
        let log = installation.directory.join(format!("{name}.log"));
        let process = spawn(&launcher, &command, &log)?;
        Ok(Server { launcher, command, log, process })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self) -> Outcome {
        self.process.kill()?;
        self.process.wait()?;
        Ok(())
    }

    pub(crate) fn start_again(&mut self) -> Outcome {
        self.process = spawn(&self.launcher, &self.command, &self.log)?;
        Ok(())
    }

    /// The last words of one that has ended.
    fn ended(&mut self) -> Option<String> {
        let status = self.process.try_wait().ok()??;
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let words: Vec<&str> = log.lines().rev().take(5).collect();
        Some(format!("{status}: {}", words.into_iter().rev().collect::<Vec<_>>().join("\n")))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn spawn(launcher: &[OsString], command: &[OsString], log: &Path) -> Outcome<Child> {
    let (program, arguments) = launcher.split_first().ok_or("nothing to start")?;
    let log = File::options().create(true).append(true).open(log)?;
    let process = Command::new(program)
        .args(arguments)
        .args(command)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn();
    process.map_err(|error| format!("{} cannot be started: {error}", program.display()).into())
}

/// Asks again until there is an answer, or a server has ended.
pub(crate) async fn until_ready<T>(
    what: &str,
    servers: &mut [Server],
    ask: impl AsyncFn() -> Outcome<T>,
) -> Outcome<T> {
    let deadline = Instant::now() + START_PATIENCE;
    loop {
        let error = match ask().await {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        if let Some(words) = servers.iter_mut().find_map(Server::ended) {
            return Err(format!("{what} did not start: {words}").into());
        }
        if Instant::now() > deadline {
            return Err(format!("{what} did not start: {error}").into());
        }
        tokio::time::sleep(PAUSE).await;
    }
}
