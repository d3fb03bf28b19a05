//! `--status-fd`: what happens to the lock, for the program that started us. One JSON object a line, on a
//! file descriptor of its own, because stdin, stdout and stderr belong to the command.

use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;

use serde_json::{Value, json};

use crate::held::Proof;
use crate::nonblocking_output::NonblockingOutput;

/// Clones write to the same place.
#[derive(Debug, Clone)]
pub(crate) struct StatusFd {
    number: i32,
    output: NonblockingOutput,
}

/// To be called before anything else is opened: then the number can only be one that we were given.
pub(crate) fn parse(text: &str) -> Result<StatusFd, String> {
    let number: i32 = match text.parse() {
        Ok(number @ 3..=1023) => number,
        // Closed in the command, their numbers would go to the next files that it opens.
        Ok(0..=2) => {
            let words = "stdin, stdout and stderr are the command's; take a number from 3 on, e.g. --status-fd 3 \
                         with 3>status or 3>&1";
            return Err(words.to_owned());
        }
        _ => return Err("must be the number of an open file descriptor, e.g. 3".to_owned()),
    };
    let file = duplicate(number).map_err(|error| {
        format!("cannot write to file descriptor {number}: {error}; open a pipe or a file for it, e.g. {number}>status")
    })?;
    let output =
        NonblockingOutput::on(file).map_err(|error| format!("cannot start a thread: {error}"))?;
    Ok(StatusFd { number, output })
}

/// The same open file, with the same offset: who wrote to it before us and writes to it after us loses nothing.
#[expect(unsafe_code, reason = "a descriptor that is known by its number alone")]
pub(crate) fn duplicate(number: i32) -> io::Result<File> {
    // SAFETY: it is used for this one call, which fails if no file is open under the number.
    let given = unsafe { BorrowedFd::borrow_raw(number) };
    given.try_clone_to_owned().map(File::from)
}

impl StatusFd {
    /// As the command would inherit it.
    pub(crate) fn number(&self) -> i32 {
        self.number
    }

    fn tell(&self, event: &Value) {
        self.output.write(format!("{event}\n"));
    }
}

/// The events of a lock, for `--status-fd` if it was given.
#[derive(Debug, Clone, Default)]
pub(crate) struct StatusEvents(Option<StatusFd>);

impl StatusEvents {
    pub(crate) fn on(fd: Option<StatusFd>) -> StatusEvents {
        StatusEvents(fd)
    }

    pub(crate) fn has_listener(&self) -> bool {
        self.0.is_some()
    }

    fn tell(&self, event: &Value) {
        if let Some(fd) = &self.0 {
            fd.tell(event);
        }
    }

    pub(crate) fn waiting(&self, position: u64) {
        self.tell(&json!({ "event": "waiting", "position": position }));
    }

    pub(crate) fn held(&self, proof: &Proof) {
        let locks: Vec<Value> = proof
            .iter()
            .map(|(name, token, fence)| json!({ "name": name, "token": token.to_string(), "fence": fence }))
            .collect();
        self.tell(&json!({ "event": "held", "locks": locks }));
    }

    pub(crate) fn started(&self, pid: i32) {
        self.tell(&json!({ "event": "started", "pid": pid }));
    }

    pub(crate) fn not_held(&self, why: &str) {
        self.tell(&json!({ "event": "not_held", "reason": why }));
    }

    pub(crate) fn lost(&self, why: &str) {
        self.tell(&json!({ "event": "lost", "reason": why }));
    }

    pub(crate) fn ended(&self, exit_code: u8) {
        self.tell(&json!({ "event": "ended", "exit_code": exit_code }));
    }

    pub(crate) fn released(&self) {
        self.tell(&json!({ "event": "released" }));
    }
}
