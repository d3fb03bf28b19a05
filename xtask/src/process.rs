//! Starting other programs, always from the root of the repository.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;

use crate::failure::Failure;

pub(crate) fn repository_root() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask).to_path_buf()
}

/// The cargo that runs this command, so that every step uses the same toolchain.
pub(crate) fn cargo<I>(arguments: I) -> Command
where
    I: IntoIterator<Item: AsRef<OsStr>>,
{
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = program(cargo);
    command.args(arguments);
    command
}

pub(crate) fn program(executable: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(executable);
    command.current_dir(repository_root()).stdin(Stdio::null());
    command
}

/// PATH, with this directory before all others.
pub(crate) fn path_with(first: &Path) -> Result<OsString, Failure> {
    let path = env::var_os("PATH").unwrap_or_default();
    let places = std::iter::once(first.to_path_buf()).chain(env::split_paths(&path));
    env::join_paths(places).map_err(|error| {
        Failure::Failed(format!("{} cannot be put into PATH: {error}", first.display()))
    })
}

/// Runs a command whose output is for the reader of the terminal.
pub(crate) fn run(command: &mut Command) -> Result<(), Failure> {
    let status = command.status().map_err(|error| not_started(command, &error))?;
    if status.success() { Ok(()) } else { Err(unsuccessful(command, &status.to_string())) }
}

/// Runs a command beside others. Each line that it prints begins with `label`.
pub(crate) fn run_labelled(label: &str, command: &mut Command) -> Result<(), Failure> {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| not_started(command, &error))?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let status = thread::scope(|scope| {
        scope.spawn(|| print_labelled(label, stdout));
        print_labelled(label, stderr);
        child.wait()
    });
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(unsuccessful(command, &status.to_string())),
        Err(error) => Err(unsuccessful(command, &error.to_string())),
    }
}

fn print_labelled(label: &str, output: Option<impl Read>) {
    let lines = output.into_iter().flat_map(|output| BufReader::new(output).split(b'\n'));
    for line in lines.map_while(Result::ok) {
        eprintln!("{label}: {}", String::from_utf8_lossy(&line));
    }
}

/// Runs a command whose standard output is for us; its standard error still goes to the terminal.
pub(crate) fn read(command: &mut Command) -> Result<String, Failure> {
    let Output { status, stdout, .. } =
        command.stderr(Stdio::inherit()).output().map_err(|error| not_started(command, &error))?;
    if !status.success() {
        return Err(unsuccessful(command, &status.to_string()));
    }
    String::from_utf8(stdout)
        .map_err(|_| Failure::Failed(format!("`{}` did not print UTF-8", line(command))))
}

fn not_started(command: &Command, error: &std::io::Error) -> Failure {
    Failure::Failed(format!("`{}` could not be started: {error}", line(command)))
}

fn unsuccessful(command: &Command, status: &str) -> Failure {
    Failure::Failed(format!("`{}` ended with {status}", line(command)))
}

/// The command as one would type it; the program by its name, without the path.
fn line(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let name = program.file_name().unwrap_or(program.as_os_str());
    let words: Vec<_> =
        std::iter::once(name).chain(command.get_args()).map(OsStr::to_string_lossy).collect();
    words.join(" ")
}
