//! `cargo xtask python`: lints, type checks, tests and documents the Python library in an environment of its own.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::built;
use crate::failure::Failure;
use crate::process;
use crate::servers::{self, Server};

const LIBRARY: &str = "sdks/python";

const SERVERS: [Server; 4] = [
    servers::PYTHON,
    // Debian has it in a package of its own.
    Server {
        name: "venv",
        program: "/usr/share/doc/python3-venv/copyright",
        debian_package: "python3-venv",
    },
    Server { name: "PostgreSQL", program: "initdb", debian_package: "postgresql" },
    Server { name: "Redis", program: "redis-server", debian_package: "redis-server" },
];

/// Those of the library that programs import.
const MODULES: [&str; 9] = [
    "",
    ".apscheduler",
    ".celery",
    ".django",
    ".errors",
    ".fence",
    ".postgres",
    ".pytest_plugin",
    ".redis",
];

/// The arguments are passed on to pytest.
pub(crate) fn run(arguments: &[OsString]) -> Result<(), Failure> {
    // Other Pythons bring it along.
    let needs_venv =
        process::read(process::program("python3").args(["-c", "import ensurepip"])).is_err();
    let needed = SERVERS.into_iter().filter(|server| server.name != "venv" || needs_venv);
    servers::see_to(&needed.collect::<Vec<_>>())?;
    process::run(&mut process::cargo(["build", "--locked", "--quiet", "--package=holdfast"]))?;
    let target = built::target_directory()?;
    let programs = environment(&target)?;
    let library = process::repository_root().join(LIBRARY);
    let tool = |name: &str, arguments: &[&str]| {
        let mut command = process::program(programs.join(name));
        process::run(command.args(arguments).current_dir(&library))
    };
    tool("ruff", &["format", "--check", "--no-cache"])?;
    tool("ruff", &["check", "--no-cache"])?;
    tool("mypy", &["--no-incremental"])?;
    // The reference of its API.
    let reference = target.join("doc").join("python").display().to_string();
    let modules = MODULES.iter().map(|it| format!("holdfast{it}")).collect::<Vec<_>>();
    let mut pdoc = process::program(programs.join("pdoc"));
    process::run(pdoc.args(["--output-directory", &reference]).args(modules))?;
    let mut tests = process::program(programs.join("pytest"));
    let holdfast = target.join("debug").join(format!("holdfast{}", std::env::consts::EXE_SUFFIX));
    tests.arg("-q").args(arguments).current_dir(&library).env("HOLDFAST_BIN", holdfast);
    process::run(&mut tests)
}

/// The directory of the environment's programs. It is made once for each state of the library's requirements.
fn environment(target: &Path) -> Result<PathBuf, Failure> {
    let directory = target.join("tools").join("python");
    let (programs, stamp) = (directory.join("bin"), directory.join("requirements"));
    let project = process::repository_root().join(LIBRARY).join("pyproject.toml");
    let unreadable =
        |error| Failure::Failed(format!("{} cannot be read: {error}", project.display()));
    let requirements = std::fs::read_to_string(&project).map_err(unreadable)?;
    if std::fs::read_to_string(&stamp).is_ok_and(|stamp| stamp == requirements) {
        return Ok(programs);
    }
    eprintln!("xtask: making a Python environment in {}", directory.display());
    process::run(process::program("python3").args(["-m", "venv", "--clear"]).arg(&directory))?;
    let mut install = process::program(programs.join("pip"));
    install.args(["install", "--quiet", "--disable-pip-version-check", "--editable"]);
    process::run(install.arg(format!("{LIBRARY}[test]")))?;
    std::fs::write(&stamp, requirements).map_err(|error| {
        Failure::Failed(format!("{} cannot be written: {error}", stamp.display()))
    })?;
    Ok(programs)
}
