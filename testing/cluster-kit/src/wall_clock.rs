//! Wall clocks that jump, through libfaketime where it is installed.
//!
//! Each node reads its own file, which says by how much its wall clock is off. The monotonic clock is
//! left alone: its rate is the one thing that nodes trust.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

const PLACES: &[&str] = &[
    "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1",
    "/usr/lib/aarch64-linux-gnu/faketime/libfaketimeMT.so.1",
    "/usr/lib64/faketime/libfaketimeMT.so.1",
    "/usr/lib/faketime/libfaketimeMT.so.1",
    "/usr/local/lib/faketime/libfaketimeMT.so.1",
];

#[derive(Clone, Debug)]
pub struct WallClocks {
    library: Option<PathBuf>,
    dir: PathBuf,
}

impl WallClocks {
    /// The files are kept in `dir`.
    pub fn detect(dir: &Path) -> WallClocks {
        let library = PLACES.iter().map(PathBuf::from).find(|place| place.exists());
        WallClocks { library, dir: dir.to_owned() }
    }

    /// No node tampers with them.
    pub fn untouched(dir: &Path) -> WallClocks {
        WallClocks { library: None, dir: dir.to_owned() }
    }

    pub fn can_jump(&self) -> bool {
        self.library.is_some()
    }

    /// By how many seconds the node's wall clock is off from now on.
    pub fn set(&self, node: u64, seconds: i64) -> io::Result<()> {
        fs::write(self.file(node), format!("{seconds:+}s\n"))
    }

    /// Makes a process that is about to be started read its node's clock.
    pub fn apply(&self, node: u64, command: &mut Command) {
        if let Some(library) = &self.library {
            command
                .env("LD_PRELOAD", library)
                .env("FAKETIME_TIMESTAMP_FILE", self.file(node))
                .env("FAKETIME_NO_CACHE", "1")
                .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
                .env("DONT_FAKE_MONOTONIC", "1");
        }
    }

    fn file(&self, node: u64) -> PathBuf {
        self.dir.join(format!("clock-{node}"))
    }
}
