//! `cargo xtask go`: checks, lints and tests the Go library, and writes its reference.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::built;
use crate::failure::Failure;
use crate::process;
use crate::servers::{self, Server};

const LIBRARY: &str = "sdks/go";

/// Modules with dependencies that the library itself does not have.
const HELPERS: [&str; 3] = ["hfpgx", "hfredis", "hfk8s"];

/// client-go takes a minute to compile, and another one with the race detector.
const WITHOUT_RACE_DETECTOR: [&str; 1] = ["hfk8s"];

const GO: Server = Server { name: "Go", program: "go", debian_package: "golang-go" };

const SERVERS: [Server; 4] = [
    GO,
    Server { name: "protoc", program: "protoc", debian_package: "protobuf-compiler" },
    Server { name: "PostgreSQL", program: "initdb", debian_package: "postgresql" },
    Server { name: "Redis", program: "redis-server", debian_package: "redis-server" },
];

/// Where people who install Go by hand put it.
const USUAL_PLACE: &str = "/usr/local/go/bin/go";

/// From this version on, Go fetches the version that a module asks for by itself.
const FETCHES_TOOLCHAINS_SINCE: u32 = 21;
const TOOLCHAIN: &str = "golang.org/toolchain@v0.0.1-go1.23.12.linux-";
const STATICCHECK: &str = "honnef.co/go/tools/cmd/staticcheck@v0.7.0";

/// The arguments are passed on to `go test` of the library itself.
pub(crate) fn run(arguments: &[OsString]) -> Result<(), Failure> {
    servers::see_to(&SERVERS)?;
    let target = built::target_directory()?;
    let go = Go::find(&target)?;
    process::run(&mut process::cargo(["build", "--locked", "--quiet", "--package=holdfast"]))?;
    go.check_format()?;
    go.check_generated(&target)?;
    let staticcheck = go.install_staticcheck(&target)?;
    go.check("", arguments)?;
    go.staticcheck(&staticcheck, "")?;
    for helper in HELPERS {
        go.check(helper, &[])?;
        go.staticcheck(&staticcheck, helper)?;
    }
    go.write_reference(&target)
}

/// The driver of the conformance suite, beside the other binaries.
pub(crate) fn build_driver(built: &Path) -> Result<(), Failure> {
    servers::see_to(&[GO])?;
    let go = Go::find(&built::target_directory()?)?;
    let driver = built.join(format!("holdfast-go-driver{}", std::env::consts::EXE_SUFFIX));
    let mut build = go.command("", &["build", "-tags=planted", "-o"]);
    process::run(build.arg(driver).arg("./conformance"))
}

struct Go {
    program: PathBuf,
    holdfast: PathBuf,
}

impl Go {
    /// A Go that knows toolchains. An older one, such as Debian 12 has it, is good enough to fetch one.
    fn find(target: &Path) -> Result<Go, Failure> {
        let usual = PathBuf::from(USUAL_PLACE);
        let in_path = process::read(process::program("go").arg("version"));
        let program = if in_path.is_err() && usual.exists() { usual } else { PathBuf::from("go") };
        let version = process::read(process::program(&program).arg("version"))?;
        let holdfast = format!("holdfast{}", std::env::consts::EXE_SUFFIX);
        let mut go = Go { program, holdfast: target.join("debug").join(holdfast) };
        if minor_version(&version).is_none_or(|minor| minor < FETCHES_TOOLCHAINS_SINCE) {
            go.program = go.fetch_toolchain(target, version.trim())?;
        }
        Ok(go)
    }

    fn fetch_toolchain(&self, target: &Path, version: &str) -> Result<PathBuf, Failure> {
        let directory = target.join("tools").join("go");
        make_directory(&directory)?;
        eprintln!("xtask: {version} is too old: fetching a newer one into {}", directory.display());
        let architecture = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
        let mut fetch = process::program(&self.program);
        fetch.args(["mod", "download", "-modcacherw", "-json"]);
        fetch.arg(format!("{TOOLCHAIN}{architecture}"));
        fetch.current_dir(&directory).env("GOMODCACHE", directory.join("modules"));
        let told = process::read(&mut fetch)?;
        let fetched = told.lines().find_map(|line| line.trim().strip_prefix("\"Dir\": \""));
        let fetched = fetched.and_then(|it| it.split('"').next());
        let fetched = fetched.ok_or_else(|| Failure::Failed("no Go was fetched".to_owned()))?;
        // Modules have no executable files.
        let programs = ["bin", "pkg/tool"].map(|part| Path::new(fetched).join(part));
        process::run(process::program("chmod").arg("-R").arg("u+x").args(programs))?;
        Ok(Path::new(fetched).join("bin").join("go"))
    }

    fn command(&self, module: &str, arguments: &[&str]) -> Command {
        let mut command = process::program(&self.program);
        command.args(arguments).current_dir(directory(module));
        // What is built here is not told apart by its commit.
        command.env("GOFLAGS", "-buildvcs=false").env("HOLDFAST_BIN", &self.holdfast);
        // It may be that of another Go.
        command.env_remove("GOROOT");
        command
    }

    fn check_format(&self) -> Result<(), Failure> {
        let gofmt = self.program.with_file_name("gofmt");
        let wrong = process::read(process::program(gofmt).arg("-l").arg(LIBRARY))?;
        if wrong.is_empty() {
            return Ok(());
        }
        Err(Failure::Failed(format!("run `gofmt -w {LIBRARY}`; it would change\n{wrong}")))
    }

    /// The messages are those of the `.proto` files.
    fn check_generated(&self, target: &Path) -> Result<(), Failure> {
        let out = target.join("tools").join("go-generated");
        let mut generate = process::program(directory("").join("generate.sh"));
        process::run(self.first_in_path(generate.arg(&out))?)?;
        let mut compare = process::program("diff");
        compare.arg("-r").arg(directory("holdfastv1")).arg(out.join("holdfastv1"));
        process::run(&mut compare).map_err(|_| {
            Failure::Failed(format!("run {LIBRARY}/generate.sh and commit the result"))
        })
    }

    fn check(&self, module: &str, arguments: &[OsString]) -> Result<(), Failure> {
        let race: &[&str] = if WITHOUT_RACE_DETECTOR.contains(&module) { &[] } else { &["-race"] };
        process::run(self.command(module, &["vet"]).args(race).arg("./..."))?;
        let mut test = self.command(module, &["test", "-vet=off"]);
        process::run(test.args(race).args(arguments).arg("./..."))
    }

    fn install_staticcheck(&self, target: &Path) -> Result<PathBuf, Failure> {
        let tools = target.join("tools").join("bin");
        let install = ["install", STATICCHECK];
        process::run(self.command("", &install).env("GOBIN", &tools).env("GOTOOLCHAIN", "auto"))?;
        Ok(tools.join("staticcheck"))
    }

    fn staticcheck(&self, program: &Path, module: &str) -> Result<(), Failure> {
        let mut check = process::program(program);
        check.arg("./...").current_dir(directory(module));
        process::run(self.first_in_path(&mut check)?)
    }

    /// For programs that start `go` themselves.
    fn first_in_path<'c>(&self, command: &'c mut Command) -> Result<&'c mut Command, Failure> {
        if let Some(directory) = self.program.parent().filter(|it| it.is_absolute()) {
            command.env("PATH", process::path_with(directory)?);
        }
        // It may be that of another Go.
        Ok(command.env_remove("GOROOT"))
    }

    /// Each package's reference, as text.
    fn write_reference(&self, target: &Path) -> Result<(), Failure> {
        let out = target.join("go-doc");
        make_directory(&out)?;
        let packages = [("", "."), ("", "./fence"), ("", "./hfsql"), ("", "./holdfasttest")];
        let packages = packages.into_iter().chain(HELPERS.map(|helper| (helper, ".")));
        for (module, package) in packages {
            let text = process::read(&mut self.command(module, &["doc", "-all", package]))?;
            let name = [module, package.trim_start_matches(['.', '/']), "holdfast"];
            let name = name.into_iter().find(|name| !name.is_empty()).unwrap_or_default();
            let file = out.join(format!("{name}.txt"));
            fs::write(&file, text).map_err(|error| not_written(&file, &error))?;
        }
        eprintln!("xtask: the reference of the Go library is in {}", out.display());
        Ok(())
    }
}

fn directory(module: &str) -> PathBuf {
    process::repository_root().join(LIBRARY).join(module)
}

fn make_directory(path: &Path) -> Result<(), Failure> {
    fs::create_dir_all(path).map_err(|error| not_written(path, &error))
}

fn not_written(path: &Path, error: &std::io::Error) -> Failure {
    Failure::Failed(format!("{} cannot be written: {error}", path.display()))
}

/// 23 for `go version go1.23.4 linux/amd64`.
fn minor_version(told: &str) -> Option<u32> {
    let version = told.split_whitespace().nth(2)?.strip_prefix("go1.")?;
    version.split(|it: char| !it.is_ascii_digit()).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_of_go_is_found_in_what_it_prints() {
        assert_eq!(minor_version("go version go1.19.8 linux/amd64\n"), Some(19));
        assert_eq!(minor_version("go version go1.26rc1 linux/arm64"), Some(26));
        assert_eq!(minor_version("go: not found"), None);
    }
}
