//! Programs of others that cargo can build: a pinned version of each.
//!
//! A program of the pinned version is used if there is one, and otherwise built into the target directory, where it
//! touches nothing else on the machine. So the first use in a clone is slow, and needs a network.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::built;
use crate::failure::Failure;
use crate::process;

pub(crate) struct Tool {
    pub(crate) name: &'static str,
    /// Each version is kept in a directory of its own.
    pub(crate) version: &'static str,
    /// Further arguments of `cargo install`.
    pub(crate) options: &'static [&'static str],
    /// What the program prints with `--version`.
    pub(crate) prints: &'static str,
}

impl Tool {
    pub(crate) fn find_or_install(&self) -> Result<PathBuf, Failure> {
        let Tool { name, version, .. } = self;
        let root = built::target_directory()?.join("tools").join(format!("{name}-{version}"));
        let ours = root.join("bin").join(format!("{name}{}", env::consts::EXE_SUFFIX));
        if ours.exists() {
            return Ok(ours);
        }
        let on_path = Path::new(name);
        if self.is_pinned_version(on_path) {
            return Ok(on_path.to_path_buf());
        }
        eprintln!("xtask: building {name} {version}; this happens once, in a minute or two");
        process::run(&mut self.install_into(&root))?;
        Ok(ours)
    }

    /// Builds without optimisation, which is three times faster; these programs run for seconds either way.
    fn install_into(&self, root: &Path) -> Command {
        let mut install = process::cargo(["install", self.name, "--locked", "--quiet"]);
        install
            .arg(format!("--version={}", self.version))
            .args(self.options)
            .arg("--root")
            .arg(root)
            .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0")
            .env("CARGO_PROFILE_RELEASE_LTO", "off")
            .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16")
            // Without it cargo builds in a temporary directory and removes that afterwards.
            .env_remove("CARGO_TARGET_DIR");
        install
    }

    fn is_pinned_version(&self, executable: &Path) -> bool {
        let printed = process::program(executable).arg("--version").output();
        printed.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).trim() == self.prints)
    }
}
