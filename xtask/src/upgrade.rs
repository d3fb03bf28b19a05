//! `cargo xtask upgrade --from PATH`: a rolling upgrade from an older binary to this build, under load.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::failure::Failure;
use crate::process;

const TEST: &str = "upgrade::nodes_are_upgraded_one_by_one_under_load_and_nothing_is_lost";

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Options {
    from: PathBuf,
}

impl Options {
    pub(crate) fn parse(arguments: &[OsString]) -> Result<Options, Failure> {
        match arguments {
            [flag, path] if flag == "--from" => Ok(Options { from: PathBuf::from(path) }),
            _ => Err(Failure::Usage("upgrade needs --from PATH: the older binary".to_owned())),
        }
    }
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let from = options.from.canonicalize().map_err(|error| {
        Failure::Usage(format!("there is no older binary at {}: {error}", options.from.display()))
    })?;
    let arguments = ["test", "--package", "holdfast", "--test", "cluster", "--locked", "--"];
    let mut test = process::cargo(arguments);
    test.args(["--ignored", "--exact", TEST, "--nocapture"]).env("HOLDFAST_OLD_BINARY", from);
    process::run(&mut test)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_older_binary_must_be_named_and_there() {
        for arguments in [&[][..], &["--from".into()], &["old".into(), "new".into()]] {
            assert!(matches!(Options::parse(arguments), Err(Failure::Usage(_))), "{arguments:?}");
        }
        let options = Options::parse(&["--from".into(), "/no/such/binary".into()]).unwrap();
        assert!(matches!(run(&options), Err(Failure::Usage(_))));
    }
}
