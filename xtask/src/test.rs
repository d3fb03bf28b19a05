//! `cargo xtask test`: everything the tests need, then the tests. With `--fast`, only those that start no node.
//!
//! A test that needs a real `holdfast` process gets it from cargo, which builds the binary before
//! the tests of its crate. A test that needs a database server starts one of its own; that there is
//! one to start is seen to in [`run`]; without it the tests in question are skipped, and in CI they fail.

use std::ffi::{OsStr, OsString};
use std::num::NonZero;
use std::thread::available_parallelism;
use std::time::Instant;

use crate::failure::Failure;
use crate::process;
use crate::servers::{self, Server};

const SERVERS: [Server; 7] = [
    Server { name: "PostgreSQL", program: "initdb", debian_package: "postgresql" },
    Server { name: "Redis", program: "redis-server", debian_package: "redis-server" },
    Server { name: "Prometheus", program: "prometheus", debian_package: "prometheus" },
    Server { name: "Chromium", program: "chromium", debian_package: "chromium" },
    Server { name: "ChromeDriver", program: "chromedriver", debian_package: "chromium-driver" },
    Server { name: "Java", program: "java", debian_package: "default-jre-headless" },
    // It brings Kafka.
    Server { name: "Maven", program: "mvn", debian_package: "maven" },
];

/// Packages with tests that start nodes, processes or servers. Their unit tests start none.
const WITH_NODES: [&str; 4] = ["holdfast", "holdfast-client", "holdfast-fence", "holdfast-server"];
/// A package whose unit tests need a Redis server.
const WITH_SERVER: &str = "holdfast-redis-locks";

/// How many tests of one program run at the same time, for each processor core. Tests that start processes wait for most
/// of their time.
const TESTS_PER_CORE: usize = 2;
/// The variable by which a test program is told.
const THREADS: &str = "RUST_TEST_THREADS";

pub(crate) struct Options {
    /// Without the tests that start nodes, processes or servers.
    fast: bool,
    /// Passed on to `cargo test` as they are.
    cargo_arguments: Vec<OsString>,
}

impl Options {
    pub(crate) fn parse(arguments: &[OsString]) -> Result<Options, Failure> {
        let (fast, rest) = match arguments.split_first() {
            Some((first, rest)) if first == "--fast" => (true, rest),
            _ => (false, arguments),
        };
        match rest.split_first() {
            None => Ok(Options { fast, cargo_arguments: Vec::new() }),
            Some((separator, rest)) if separator == "--" => {
                Ok(Options { fast, cargo_arguments: rest.to_vec() })
            }
            Some((unknown, _)) => Err(Failure::Usage(format!(
                "`test` does not know `{}`; arguments for `cargo test` go after `--`",
                unknown.display()
            ))),
        }
    }
}

pub(crate) fn run(options: Options) -> Result<(), Failure> {
    if options.fast {
        return run_fast(&options.cargo_arguments);
    }
    servers::see_to(&SERVERS)?;
    build(&["--workspace"])?;
    test("the tests of the workspace", &["--workspace"], &options.cargo_arguments)
}

fn run_fast(cargo_arguments: &[OsString]) -> Result<(), Failure> {
    let (mut others, mut units) =
        (vec!["--workspace".to_owned(), format!("--exclude={WITH_SERVER}")], Vec::new());
    for package in WITH_NODES {
        others.push(format!("--exclude={package}"));
        units.push(format!("--package={package}"));
    }
    units.extend(["--lib".to_owned(), "--bins".to_owned()]);
    build(&others)?;
    build(&units)?;
    test("the tests that start no node", &others, cargo_arguments)?;
    test("the unit tests of the other packages", &units, cargo_arguments)
}

/// Apart from the tests, so that the times of both are told.
fn build(selection: &[impl AsRef<OsStr>]) -> Result<(), Failure> {
    let began = Instant::now();
    process::run(process::cargo(["test", "--locked", "--no-run", "--quiet"]).args(selection))?;
    eprintln!("xtask: built in {} s", began.elapsed().as_secs());
    Ok(())
}

fn test(
    what: &str,
    selection: &[impl AsRef<OsStr>],
    cargo_arguments: &[OsString],
) -> Result<(), Failure> {
    eprintln!("xtask: running {what}");
    let began = Instant::now();
    let mut cargo = process::cargo(["test", "--locked"]);
    if std::env::var_os(THREADS).is_none() {
        let cores = available_parallelism().map_or(2, NonZero::get);
        cargo.env(THREADS, (cores * TESTS_PER_CORE).to_string());
    }
    process::run(cargo.args(selection).args(cargo_arguments))?;
    eprintln!("xtask: {what} passed in {} s", began.elapsed().as_secs());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<Options, Failure> {
        Options::parse(&arguments.iter().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn what_follows_the_first_separator_goes_to_cargo_untouched() {
        let Ok(options) = parse(&["--", "a_late_release", "--", "--nocapture"]) else {
            panic!("the arguments are well formed");
        };
        assert_eq!(options.cargo_arguments, ["a_late_release", "--", "--nocapture"]);
    }

    #[test]
    fn fast_comes_before_the_separator() {
        let parsed = |arguments| parse(arguments).map(|options| options.fast).ok();
        assert_eq!(parsed(&["--fast"]), Some(true));
        assert_eq!(parsed(&["--fast", "--", "a_late_release"]), Some(true));
        assert_eq!(parsed(&["--", "--fast"]), Some(false));
        assert!(matches!(parse(&["--fast", "a_late_release"]), Err(Failure::Usage(_))));
    }

    #[test]
    fn an_argument_before_the_separator_is_wrong_usage() {
        assert!(matches!(parse(&["a_late_release"]), Err(Failure::Usage(_))));
    }
}
