//! Golden scripts: scenarios as transcripts. A test gives each command a meaning; this crate reads, runs and compares.
//!
//! A script is a list of blocks, with an empty line between two. A block is one or more command lines, a line of four
//! dashes, and what came of the commands. Lines that begin with `#` are comments, and each script begins with one. With
//! `UPDATE_GOLDEN` in the environment [`check_or_update`] writes the transcripts of its run into the scripts.

use std::fmt::Write;
use std::path::Path;
use std::{fs, io};

/// A script whose transcript is another one than the file has.
#[derive(Debug)]
pub struct WrongScript {
    /// The file's name, without its ending.
    pub name: String,
    pub first_difference: String,
}

/// Runs a script, line by line, and returns it with what this run tells.
pub fn replay(script: &str, mut run: impl FnMut(&str, &mut String)) -> String {
    let mut transcript = String::new();
    for block in script.trim_end().split("\n\n") {
        let commands = block.split("\n----").next().unwrap_or(block).trim_start_matches('\n');
        let mut output = String::new();
        let mut has_command = false;
        for line in commands.lines().filter(|line| !line.starts_with('#')) {
            has_command = true;
            run(line, &mut output);
        }
        // To write into a text cannot fail.
        let _ = if has_command {
            write!(transcript, "{commands}\n----\n{output}\n")
        } else {
            write!(transcript, "{commands}\n\n")
        };
    }
    transcript.trim_end().to_owned() + "\n"
}

/// Runs all scripts of a folder. Those that were wrong and are to be updated are not listed.
pub fn check_or_update(
    folder: &Path,
    transcript_of: impl Fn(&str) -> String,
) -> io::Result<Vec<WrongScript>> {
    let is_to_update = std::env::var_os("UPDATE_GOLDEN").is_some();
    run_all(folder, transcript_of, is_to_update)
}

/// Runs all scripts of a folder, and writes none.
pub fn wrong_scripts(
    folder: &Path,
    transcript_of: impl Fn(&str) -> String,
) -> io::Result<Vec<WrongScript>> {
    run_all(folder, transcript_of, false)
}

fn run_all(
    folder: &Path,
    transcript_of: impl Fn(&str) -> String,
    is_to_update: bool,
) -> io::Result<Vec<WrongScript>> {
    let paths = fs::read_dir(folder)?.map(|entry| Ok(entry?.path()));
    let mut paths = paths.collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    let no_script = || io::Error::other(format!("{} has no scripts", folder.display()));
    paths.first().ok_or_else(no_script)?;
    let mut wrong = Vec::new();
    for path in paths {
        let expected = fs::read_to_string(&path)?;
        if !expected.starts_with("# ") {
            return Err(io::Error::other(format!(
                "{}: first say what it is about",
                path.display()
            )));
        }
        let actual = transcript_of(&expected);
        if actual != expected && is_to_update {
            fs::write(&path, &actual)?;
        } else if actual != expected {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let first_difference = first_difference(&expected, &actual);
            wrong.push(WrongScript { name, first_difference });
        }
    }
    Ok(wrong)
}

fn first_difference(expected: &str, actual: &str) -> String {
    let mut lines = expected.lines().zip(actual.lines()).enumerate();
    match lines.find(|(_, (expected, actual))| expected != actual) {
        Some((number, (expected, actual))) => {
            format!("line {}:\n  - {expected}\n  + {actual}", number + 1)
        }
        None => "one is longer than the other".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_told_again_with_what_its_commands_say_now() {
        let script = "# About nothing.\n\nsay a\n# and\nsay b\n----\nold\n\nsay c\n----\nc\n";
        let reported = replay(script, |line, output| {
            output.push_str(&line["say ".len()..]);
            output.push('\n');
        });
        let expected = "# About nothing.\n\nsay a\n# and\nsay b\n----\na\nb\n\nsay c\n----\nc\n";
        assert_eq!(reported, expected);
        assert_eq!(first_difference(script, &reported), "line 7:\n  - old\n  + a");
    }
}
