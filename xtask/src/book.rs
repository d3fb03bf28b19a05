//! `cargo xtask book`: the documentation as a site, with mdBook.

use std::ffi::OsString;

use crate::failure::Failure;
use crate::process;
use crate::tools::Tool;

const MDBOOK: Tool = Tool {
    name: "mdbook",
    version: "0.5.4",
    // Without the server that shows pages while they are edited, which is most of its dependencies.
    options: &["--no-default-features", "--features=search"],
    prints: "mdbook v0.5.4",
};

/// `book.toml` says what it is made of, and where it goes.
pub(crate) fn run(options: &[OsString]) -> Result<(), Failure> {
    if let Some(unknown) = options.first() {
        return Err(Failure::Usage(format!("`book` does not know `{}`", unknown.display())));
    }
    let mdbook = MDBOOK.find_or_install()?;
    process::run(process::program(mdbook).arg("build"))?;
    let page = process::repository_root().join("target/book/index.html");
    eprintln!("xtask: the book is in {}", page.display());
    Ok(())
}
