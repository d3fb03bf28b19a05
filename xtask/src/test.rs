//! `cargo xtask test`: everything the tests need, then the tests.
//!
//! A test that needs a real `holdfast` process gets it from cargo, which builds the binary before
//! the tests of its crate. A test that needs a database server starts one of its own; that there is
//! one to start is seen to in [`run`]; without it the tests in question are skipped, and in CI they fail.

use std::ffi::OsString;

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

pub(crate) struct Options {
    /// Passed on to `cargo test` as they are.
    cargo_arguments: Vec<OsString>,
}

impl Options {
    pub(crate) fn parse(arguments: &[OsString]) -> Result<Options, Failure> {
        match arguments.split_first() {
            None => Ok(Options { cargo_arguments: Vec::new() }),
            Some((separator, rest)) if separator == "--" => {
                Ok(Options { cargo_arguments: rest.to_vec() })
            }
            Some((unknown, _)) => Err(Failure::Usage(format!(
                "`test` does not know `{}`; arguments for `cargo test` go after `--`",
                unknown.display()
            ))),
        }
    }
}

pub(crate) fn run(options: Options) -> Result<(), Failure> {
    servers::see_to(&SERVERS)?;
    let mut tests = process::cargo(["test", "--workspace", "--locked"]);
    tests.args(options.cargo_arguments);

    eprintln!("xtask: running the tests of the workspace");
    process::run(&mut tests)?;
    eprintln!("xtask: the tests passed");
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
    fn an_argument_before_the_separator_is_wrong_usage() {
        assert!(matches!(parse(&["a_late_release"]), Err(Failure::Usage(_))));
    }
}
