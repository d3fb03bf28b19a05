//! Checks that holdfast-core stays free of the standard library and of other crates.
//!
//! The core reads no clock, no file and no socket, which a crate without `std` and without
//! dependencies cannot do by accident. Compiling it for a target that has no `std` would prove more,
//! but such a target is not part of a plain toolchain; so this reads the source text instead.
//! Caveat: the text is searched, not parsed. It guards against a slip, not against a trick.

use super::sources::{read, rust_files};
use crate::failure::Failure;
use crate::process;

const CORE: &str = "crates/core";

pub(crate) fn check() -> Result<(), Failure> {
    let core = process::repository_root().join(CORE);
    let mut complaints = Vec::new();

    let manifest = read(&core.join("Cargo.toml"))?;
    for line in dependency_lines(&manifest) {
        complaints.push(format!("{CORE}/Cargo.toml: the core may depend on nothing: {line}"));
    }

    let root = core.join("src/lib.rs");
    if !declares_no_std(&read(&root)?) {
        complaints.push(format!("{CORE}/src/lib.rs: lacks `#![no_std]`"));
    }
    for file in rust_files(&core.join("src"))? {
        for number in std_outside_tests(&read(&file)?) {
            let file = file.strip_prefix(&core).unwrap_or(&file).display();
            complaints.push(format!(
                "{CORE}/{file}:{number}: `extern crate std` needs `#[cfg(test)]` right above it"
            ));
        }
    }

    if complaints.is_empty() { Ok(()) } else { Err(Failure::Failed(complaints.join("\nxtask: "))) }
}

/// The lines of a manifest that give the crate a dependency, other than for its tests.
fn dependency_lines(manifest: &str) -> Vec<&str> {
    let mut within_dependencies = false;
    let mut found = Vec::new();
    for line in manifest.lines().map(str::trim) {
        if let Some(header) = line.strip_prefix('[') {
            within_dependencies =
                header.contains("dependencies") && !header.contains("dev-dependencies");
            let names_one = header.contains("dependencies.");
            if within_dependencies && names_one {
                found.push(line);
                within_dependencies = false;
            }
        } else if within_dependencies && !line.is_empty() && !line.starts_with('#') {
            found.push(line);
        }
    }
    found
}

fn declares_no_std(crate_root: &str) -> bool {
    crate_root
        .lines()
        .map(str::trim)
        .any(|line| line == "#![no_std]" || line == "#![cfg_attr(not(test), no_std)]")
}

/// The numbers of the lines that bring in `std` for more than the tests.
fn std_outside_tests(source: &str) -> Vec<usize> {
    let mut found = Vec::new();
    let mut previous = "";
    for (index, line) in source.lines().map(str::trim).enumerate() {
        let is_comment = line.starts_with("//");
        if !is_comment && line.contains("extern crate std") && previous != "#[cfg(test)]" {
            found.push(index + 1);
        }
        previous = line;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_table_and_the_needs_of_tests_are_no_dependencies() {
        let manifest = "[package]\nname = \"a\"\n\n[dependencies]\n# none\n\n\
                        [dev-dependencies]\nproptest.workspace = true\n\n\
                        [dev-dependencies.tempfile]\nversion = \"3\"\n\n\
                        [lints]\nworkspace = true\n";
        assert_eq!(dependency_lines(manifest), [""; 0]);
    }

    #[test]
    fn a_dependency_is_found_in_whatever_table_it_stands() {
        let manifest = "[dependencies]\nserde = \"1\"\n\n\
                        [dependencies.libc]\nversion = \"0.2\"\n\n\
                        [build-dependencies]\ncc = \"1\"\n\n\
                        [target.'cfg(unix)'.dependencies]\nnix = \"0.30\"\n";
        assert_eq!(
            dependency_lines(manifest),
            ["serde = \"1\"", "[dependencies.libc]", "cc = \"1\"", "nix = \"0.30\""]
        );
    }

    #[test]
    fn only_an_attribute_of_the_crate_declares_no_std() {
        assert!(declares_no_std("//! Core.\n\n#![no_std]\n"));
        assert!(declares_no_std("#![cfg_attr(not(test), no_std)]\n"));
        assert!(!declares_no_std("//! Should say `#![no_std]`.\n// #![no_std]\n"));
    }

    #[test]
    fn std_is_for_tests_only() {
        assert_eq!(std_outside_tests("extern crate alloc;\n#[cfg(test)]\nextern crate std;\n"), []);
        assert_eq!(std_outside_tests("// no `extern crate std` here\n"), []);
        assert_eq!(std_outside_tests("extern crate alloc;\nextern crate std;\n"), [2]);
    }
}
