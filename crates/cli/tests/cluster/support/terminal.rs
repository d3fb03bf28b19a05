//! A terminal, for programs that behave differently on one. `script` of util-linux makes it.

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tempfile::TempDir;

use super::{Cluster, eventually};

const PATIENCE: Duration = Duration::from_secs(20);

/// A program on a terminal of 100 by 30.
pub(crate) struct Terminal {
    process: Child,
    keyboard: ChildStdin,
    shown: Arc<Mutex<Vec<u8>>>,
    dir: TempDir,
}

impl Terminal {
    /// The settings of the terminal are written to `before` and `after`, the exit code to `code`.
    pub(crate) fn start(cluster: &Cluster, args: &str) -> Terminal {
        let dir = tempfile::tempdir().unwrap();
        let script = format!(
            "stty rows 30 cols 100; stty -g > before; $HF {args}; echo $? > code; stty -g > after"
        );
        // A shell that runs the tests in the background has them ignore Control-C, and all that they start.
        let mut process = Command::new("env")
            .args(["--default-signal=INT,QUIT,TSTP", "script", "-qec", &script, "/dev/null"])
            .current_dir(dir.path())
            .env("HF", env!("CARGO_BIN_EXE_holdfast"))
            .env("HOLDFAST_ENDPOINTS", cluster.endpoints())
            .env("TERM", "xterm-256color")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let keyboard = process.stdin.take().unwrap();
        let mut screen = process.stdout.take().unwrap();
        let shown = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&shown);
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = screen.read(&mut buffer) {
                seen.lock().unwrap().extend_from_slice(&buffer[..count]);
            }
        });
        Terminal { process, keyboard, shown, dir }
    }

    pub(crate) fn shown(&self) -> String {
        String::from_utf8_lossy(&self.shown.lock().unwrap()).into_owned()
    }

    /// One word: of what lies between two, only the difference to what was there before is sent.
    pub(crate) async fn shows(&self, word: &str) {
        eventually(&format!("the terminal shows {word}"), PATIENCE, || {
            std::future::ready(self.shown().contains(word).then_some(()))
        })
        .await;
    }

    pub(crate) fn press(&mut self, keys: &[u8]) {
        self.keyboard.write_all(keys).unwrap();
    }

    /// Waits for the end and returns the exit code; the terminal must have the settings that it had before.
    pub(crate) async fn ended(&mut self) -> i32 {
        eventually("it ends", PATIENCE, || std::future::ready(self.process.try_wait().unwrap()))
            .await;
        let file = |name: &str| std::fs::read_to_string(self.dir.path().join(name)).unwrap();
        assert_eq!(file("before"), file("after"), "the terminal has other settings");
        file("code").trim().parse().unwrap()
    }

    /// Presses a key and waits for the end; the terminal must look as it did before.
    pub(crate) async fn leaves_the_screen_by(mut self, key: &[u8]) {
        self.press(key);
        assert_eq!(self.ended().await, 0);
        let shown = self.shown();
        let (entered, left) = (shown.rfind("\x1b[?1049h"), shown.rfind("\x1b[?1049l"));
        assert!(entered.is_some() && left > entered, "{shown:?}");
        assert!(shown.rfind("\x1b[?25h") > shown.rfind("\x1b[?25l"), "the cursor is hidden");
    }
}
