//! Tells the program which commit it was built from, if that is known: from the variable `HOLDFAST_COMMIT`, from git, or
//! from what `cargo package` recorded. It never fails. It runs again only when the commit changes, and gives the same
//! answer for the same commit.

use std::path::{Path, PathBuf};
use std::process::Command;

/// As many digits as are printed.
const DIGITS: usize = 12;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=HOLDFAST_COMMIT");
    let folder = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let given = std::env::var("HOLDFAST_COMMIT").ok();
    let commit = given.or_else(|| from_git(&folder)).or_else(|| from_package(&folder));
    let commit = commit.map(|commit| commit.trim().to_owned()).filter(|commit| is_commit(commit));
    let version = std::env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let text = match commit {
        Some(commit) => format!("{version} ({})", &commit[..commit.len().min(DIGITS)]),
        None => format!("{version} (unknown commit)"),
    };
    println!("cargo::rustc-env=HOLDFAST_VERSION={text}");
}

fn is_commit(text: &str) -> bool {
    (7..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// A tarball that lies in a checkout of something else has no commit.
fn from_git(folder: &Path) -> Option<String> {
    git(folder, &["ls-files", "--error-unmatch", "build.rs"])?;
    let commit = git(folder, &["rev-parse", "HEAD"])?;
    let mut watched = vec!["HEAD".to_owned(), "logs/HEAD".to_owned(), "packed-refs".to_owned()];
    watched.extend(git(folder, &["symbolic-ref", "-q", "HEAD"]));
    for name in watched {
        let Some(path) = git(folder, &["rev-parse", "--git-path", &name]) else { continue };
        let path = folder.join(path);
        // A path that is not there would make this run each time.
        if path.exists() {
            println!("cargo::rerun-if-changed={}", path.display());
        }
    }
    Some(commit)
}

fn git(folder: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").arg("-C").arg(folder).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

/// `cargo package` writes `{"git":{"sha1":"…"}}` beside the manifest.
fn from_package(folder: &Path) -> Option<String> {
    let path = folder.join(".cargo_vcs_info.json");
    if path.exists() {
        println!("cargo::rerun-if-changed={}", path.display());
    }
    let text = std::fs::read_to_string(path).ok()?;
    let after = text.split_once("\"sha1\"")?.1.split_once('"')?.1;
    Some(after.split_once('"')?.0.to_owned())
}
