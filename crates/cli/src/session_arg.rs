//! The session that `acquire` left behind: as an argument, or in a file. Other users can see the arguments of a process.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use clap::Args;
use holdfast_client::SessionId;
use holdfast_server::is_readable_by_others;

use crate::exit::{Code, Problem};

/// More is not what `acquire` prints, and is not read.
const FILE_BYTES_MAX: u64 = 8 * 1024;

#[derive(Debug, Args)]
#[group(id = "session_source", required = true, multiple = false)]
pub(crate) struct SessionArgs {
    /// The session that `acquire` printed. It is a secret, and other users can see it in the list of processes.
    #[arg(long, value_name = "S")]
    session: Option<SessionId>,
    /// Reads the session from this file, which other users must not be able to read. It has the session alone, or the
    /// lines that `acquire` printed.
    #[arg(long, value_name = "FILE")]
    session_file: Option<PathBuf>,
}

impl SessionArgs {
    pub(crate) fn id(self) -> Result<SessionId, Problem> {
        match (self.session, self.session_file) {
            (Some(session), _) => Ok(session),
            (None, Some(path)) => read(&path),
            (None, None) => {
                Err(Problem::new(Code::Usage, "say --session S or --session-file FILE"))
            }
        }
    }
}

/// A message does not repeat what is in the file.
fn read(path: &Path) -> Result<SessionId, Problem> {
    let shown = path.display();
    let wrong = |words: String| Problem::new(Code::Usage, words);
    let unreadable =
        |error: io::Error| wrong(format!("cannot read the session in {shown}: {error}"));
    let file = File::open(path).map_err(unreadable)?;
    if is_readable_by_others(&file.metadata().map_err(unreadable)?) {
        return Err(wrong(format!(
            "{shown} has a session that other users of this machine can read: `chmod 600 {shown}`"
        )));
    }
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX).read_to_end(&mut bytes).map_err(unreadable)?;
    let text = String::from_utf8_lossy(&bytes);
    let of_acquire = text.lines().find_map(|line| line.strip_prefix("session="));
    of_acquire.unwrap_or(&text).trim().parse().map_err(|_| {
        wrong(format!(
            "{shown} has no session: it must have the session alone, or the lines that `holdfast acquire` printed"
        ))
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const SESSION: &str = "000102030405060708090a0b0c0d0e0f";

    fn session_in(text: &str, mode: u32) -> Result<SessionId, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("session");
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        read(&path).map_err(|problem| problem.words)
    }

    #[test]
    fn a_session_file_has_the_session_alone_or_what_acquire_printed() {
        for text in [
            SESSION.to_owned(),
            format!("{SESSION}\n"),
            format!("session={SESSION}\ntoken=7\nfence=1.7\n"),
        ] {
            assert_eq!(session_in(&text, 0o600), Ok(SESSION.parse().unwrap()), "{text}");
        }
    }

    #[test]
    fn a_session_file_that_others_can_read_or_that_has_no_session_is_refused() {
        for mode in [0o644, 0o640, 0o604, 0o660] {
            let refused = session_in(SESSION, mode).unwrap_err();
            assert!(refused.contains("chmod 600"), "{mode:o}: {refused}");
        }
        let two = format!("{SESSION}\n{SESSION}\n");
        for text in ["", "token=7\n", "session=\n", &two, &format!("hft_1_{SESSION}")] {
            let refused = session_in(text, 0o600).unwrap_err();
            assert!(refused.contains("has no session"), "{refused}");
            assert!(!refused.contains(SESSION), "{refused}");
        }
        let missing = read(Path::new("/nowhere/session")).unwrap_err().words;
        assert!(missing.contains("cannot read the session in /nowhere/session"), "{missing}");
    }
}
