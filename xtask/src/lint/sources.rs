//! The source files that checks read.

use std::fs;
use std::path::{Path, PathBuf};

use crate::failure::Failure;

pub(super) fn rust_files(directory: &Path) -> Result<Vec<PathBuf>, Failure> {
    let unreadable = |error| Failure::Failed(format!("{}: {error}", directory.display()));
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if path.is_dir() {
            files.extend(rust_files(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

pub(super) fn read(file: &Path) -> Result<String, Failure> {
    fs::read_to_string(file)
        .map_err(|error| Failure::Failed(format!("{}: {error}", file.display())))
}
