//! `cargo xtask compare`: builds the `holdfast` binary and compares it with other lock services.

use std::ffi::OsString;

use crate::built::{self, Profile};
use crate::failure::Failure;
use crate::servers::{self, Server};

const SERVERS: [Server; 4] = [
    Server { name: "etcd", program: "etcd", debian_package: "etcd-server" },
    Server { name: "Java", program: "java", debian_package: "default-jre-headless" },
    Server {
        name: "ZooKeeper",
        program: "/usr/share/java/zookeeper.jar",
        debian_package: "zookeeper",
    },
    Server { name: "Redis", program: "redis-server", debian_package: "redis-server" },
];

/// The options are those of the program that compares, and it explains them; but for `--debug`, which takes binaries
/// without optimisation: to see that it works.
pub(crate) fn run(options: &[OsString]) -> Result<(), Failure> {
    let (debug, options): (Vec<_>, Vec<_>) = options.iter().partition(|it| *it == "--debug");
    let profile = if debug.is_empty() { Profile::Dist } else { Profile::Debug };
    // A run that only compares with some, or asks for help, needs no others: the program says what it lacks.
    if let Err(message) = servers::install_missing(&SERVERS) {
        eprintln!("xtask: {message}");
    }
    built::run_on_holdfast("holdfast-compare", profile, &options)
}
