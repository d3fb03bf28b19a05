//! Programs that cargo knows as examples.

use std::path::PathBuf;
use std::process::Command;

use super::text;

/// Builds the examples into the directory to which this test was built, if they are not there
/// yet. Gives the directory in which they are.
pub(crate) fn build_examples() -> PathBuf {
    let this = std::env::current_exe().unwrap();
    let profile = this.ancestors().nth(2).unwrap();
    let mut command = Command::new(env!("CARGO"));
    // Of the whole workspace, because that is what `cargo test --workspace` has built: other features of dependencies
    // would be another build.
    command.args(["build", "--quiet", "--workspace", "--examples", "--target-dir"]);
    command.arg(profile.parent().unwrap());
    if profile.ends_with("release") {
        command.arg("--release");
    }
    command.current_dir(env!("CARGO_MANIFEST_DIR"));
    let built = command.output().unwrap();
    assert!(built.status.success(), "{}", text(&built.stderr));
    profile.join("examples")
}
