//! A companion process, which ends this program's sessions when this program is dead.
//!
//! The end of a connection is no evidence of death: a relay between client and node can die while the client works
//! on. So the cluster keeps the locks of a client that has gone silent for its TTL. A process on the same machine
//! knows better: the kernel closes the pipe between the two when this program ends, however it ends. Then the companion
//! says farewell to the cluster, and the locks are free within about a second.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use holdfast_client::{Client, companion::Companion};
//!
//! let companion = Companion::start("/usr/bin/holdfast")?;
//! let client = Client::builder().companion(companion).connect("127.0.0.1:7420").await?;
//! # Ok(())
//! # }
//! ```
//!
//! Caveats:
//! - the companion sees the end of this process, and not that of processes which this one started. A program whose
//!   children work under its locks must see to it that they end with it, as `holdfast lock` does, or go without a
//!   companion;
//! - if the companion is killed at the same moment, or the machine is gone, or the cluster cannot be reached, the locks
//!   end with the TTL, as without a companion. A companion that was killed before is replaced with the next message.
//!
//! The companion is `holdfast companion`. It reads [`Message`]s from its stdin, one a line, and keeps the last of each
//! kind. At the end of its stdin it acts on what it has: it kills the process group, waits until all of it is dead, and
//! only then ends the session. The session's id is a secret: it travels through the pipe, and never as an argument or
//! in the environment.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::io::{self, PipeWriter, Write};
use std::mem::ManuallyDrop;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use holdfast_client_core::groups::GroupId;
use holdfast_client_core::wire_time::whole_ms;
use holdfast_proto::SessionId;

use crate::tls::Tls;

/// A line of this length, or of less, is written to a pipe as a whole or not at all.
pub const LINE_BYTES_MAX: usize = 4096;

/// A companion that ends at once is not started again and again.
const START_PAUSE: Duration = Duration::from_secs(1);

/// Room for addresses in a line. Nodes beyond are left out.
const ENDPOINTS_BYTES_MAX: usize = LINE_BYTES_MAX - 128;

/// A running companion, for one client. Clones are the same one.
///
/// When the last of them is dropped while the session may still live, the pipe stays open for the session's TTL, or
/// until this program ends: guards may still be trusted, so the companion must not end the session yet.
#[derive(Debug, Clone)]
pub struct Companion(Arc<Process>);

#[derive(Debug)]
struct Process {
    program: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// `None` once it is being dropped, or if it could not be started again.
    running: Option<(Child, PipeWriter)>,
    started: Instant,
    /// What was told last of each kind, for a companion that takes the place of this one.
    told: BTreeMap<(u8, u32), Message>,
}

/// One line of what a companion is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// To be ended if this program dies. It replaces what was told before of a session in the same group of the
    /// cluster.
    Session(Session),
    /// No session is left to be ended in this group of the cluster.
    NoSession { group: u32 },
    /// The locks of the session have a lock delay. Its end must not count as a release, which would open them at once.
    LockDelay,
    /// How the cluster is reached. Without it, in plaintext.
    Tls(Tls),
    /// The file with the token of this program.
    AuthFile(PathBuf),
    /// This process group works under the locks. If this program dies, it is killed before the session ends. To be told
    /// before the group begins to work.
    Group(i32),
    /// There is no such group, or it needs the locks no more.
    NoGroup,
    /// When the group is to be sent SIGTERM and SIGKILL if nothing else is told by then: nanoseconds of the clock
    /// `CLOCK_BOOTTIME`, or [`Message::NEVER`].
    EndGroupAt { term: u64, kill: u64 },
}

/// What it takes to end a session. `Debug` does not print the secret id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    pub id: SessionId,
    /// In which group of the cluster it is. A program has one in each group whose locks it uses.
    pub group: u32,
    /// When this has passed since the program died, the cluster has ended the session itself.
    pub ttl: Duration,
    pub endpoints: Vec<String>,
    /// The program reached the nodes by TLS. A companion that was not told the TLS settings must not send the id.
    pub has_tls: bool,
}

/// A line that is not a [`Message`]. It does not repeat the line, which may contain a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a line that a companion does not understand; both sides must be of the same version")]
pub struct ParseMessageError;

impl Companion {
    /// Starts `PROGRAM companion`, where `program` is the path of the binary `holdfast`. It has its own process group,
    /// no terminal, and neither the working directory nor open files of this program.
    pub fn start(program: impl AsRef<Path>) -> io::Result<Companion> {
        let program = program.as_ref().to_owned();
        let running = Some(spawn(&program)?);
        let state = State { running, started: Instant::now(), told: BTreeMap::new() };
        Ok(Companion(Arc::new(Process { program, state: Mutex::new(state) })))
    }

    /// A companion that takes no more is not told. One that is dead is replaced, and the new one is told everything.
    pub fn tell(&self, message: &Message) {
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        let before = state.told.insert(message.kind(), message.clone());
        // A session is told again and again.
        let is_repeated =
            matches!(message, Message::Session(_) | Message::Tls(_) | Message::AuthFile(_));
        if is_repeated && before.as_ref() == Some(message) {
            return;
        }
        let written = state.write(message);
        if written.is_err_and(|error| error.kind() == io::ErrorKind::BrokenPipe) {
            state.start_again(&self.0.program);
        }
    }

    /// Takes back the sessions that were told: the companion does not end them, their TTL does, in each group.
    pub fn leave_sessions(&self) {
        let groups: Vec<u32> = {
            let state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
            let group = |message: &Message| match message {
                Message::Session(session) => Some(session.group),
                _ => None,
            };
            state.told.values().filter_map(group).collect()
        };
        for group in groups {
            self.tell(&Message::NoSession { group });
        }
    }
}

fn spawn(program: &Path) -> io::Result<(Child, PipeWriter)> {
    let (its_stdin, pipe) = io::pipe()?;
    // A companion that stands still must not hold this program up.
    rustix::io::ioctl_fionbio(&pipe, true)?;
    let process = Command::new(program)
        .arg0("holdfast")
        .arg("companion")
        .stdin(its_stdin)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()?;
    Ok((process, pipe))
}

impl State {
    fn write(&self, message: &Message) -> io::Result<()> {
        let Some((_, pipe)) = &self.running else { return Err(io::ErrorKind::BrokenPipe.into()) };
        let (mut pipe, line) = (pipe, format!("{message}\n"));
        if line.len() > LINE_BYTES_MAX {
            // Paths of this length are rare. The session ends with its TTL, as without a companion: a companion that
            // was not told the TLS settings does not connect in plaintext instead.
            return Ok(());
        }
        pipe.write(line.as_bytes()).map(drop)
    }

    fn start_again(&mut self, program: &Path) {
        if self.started.elapsed() < START_PAUSE {
            return;
        }
        if let Some((mut dead, _)) = self.running.take() {
            let _ = dead.try_wait();
        }
        self.started = Instant::now();
        match spawn(program) {
            Ok(running) => self.running = Some(running),
            Err(error) => tracing::warn!("cannot start another companion: {error}"),
        }
        for message in self.told.values() {
            let _ = self.write(message);
        }
    }

    fn session_ttl(&self) -> Duration {
        let ttl = |message: &Message| match message {
            Message::Session(session) => Some(session.ttl),
            _ => None,
        };
        self.told.values().filter_map(ttl).max().unwrap_or_default()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        let Some((mut process, pipe)) = state.running.take() else { return };
        let session_ttl = state.session_ttl();
        // Without a thread it stays open until this program ends.
        let pipe = ManuallyDrop::new(pipe);
        let reap = move || {
            thread::sleep(session_ttl);
            drop(ManuallyDrop::into_inner(pipe));
            // It ends by itself, and then leaves nothing behind.
            let _ = process.wait();
        };
        if let Err(error) = thread::Builder::new().name("companion".to_owned()).spawn(reap) {
            tracing::debug!("no thread to wait for the companion: {error}");
        }
    }
}

/// The group that a line does not name. So the lines for a cluster of one group are those of older versions.
const ROOT_GROUP: u32 = GroupId::ROOT.number();

/// How the program reached the nodes of its session.
const BY_TLS: &str = "tls";
const BY_PLAINTEXT: &str = "plaintext";

impl Message {
    /// A time that never comes.
    pub const NEVER: u64 = u64::MAX;

    /// A message replaces what was told before of the same kind, for the same group of the cluster. The order is that in
    /// which a new companion is told.
    fn kind(&self) -> (u8, u32) {
        match self {
            Message::Session(Session { group, .. }) | Message::NoSession { group } => (0, *group),
            Message::LockDelay => (1, 0),
            Message::Group(_) | Message::NoGroup => (2, 0),
            Message::EndGroupAt { .. } => (3, 0),
            Message::Tls(_) => (4, 0),
            Message::AuthFile(_) => (5, 0),
        }
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Message::Session(Session { id, group, ttl, endpoints, has_tls }) => {
                let by = if *has_tls { BY_TLS } else { BY_PLAINTEXT };
                match *group {
                    ROOT_GROUP => f.write_str("session ")?,
                    group => write!(f, "session-in {group} ")?,
                }
                write!(f, "{} {} {by} ", id.to_secret_text(), whole_ms(*ttl))?;
                let mut room = ENDPOINTS_BYTES_MAX;
                for (number, endpoint) in endpoints.iter().enumerate() {
                    let Some(left) = room.checked_sub(endpoint.len() + 1) else { break };
                    room = left;
                    write!(f, "{}{endpoint}", if number == 0 { "" } else { "," })?;
                }
                Ok(())
            }
            Message::Tls(tls) => {
                let verify = if tls.verifies_host() { "host" } else { "cluster" };
                write!(f, "tls {verify} {}", path_to_text(tls.ca()))?;
                match tls.identity() {
                    Some((cert, key)) => {
                        write!(f, " {} {}", path_to_text(cert), path_to_text(key))
                    }
                    None => Ok(()),
                }
            }
            Message::AuthFile(path) => write!(f, "auth-file {}", path_to_text(path)),
            Message::NoSession { group: ROOT_GROUP } => f.write_str("no-session"),
            Message::NoSession { group } => write!(f, "no-session-in {group}"),
            Message::LockDelay => f.write_str("lock-delay"),
            Message::Group(group) => write!(f, "group {group}"),
            Message::NoGroup => f.write_str("no-group"),
            Message::EndGroupAt { term, kill } => write!(f, "end-group-at {term} {kill}"),
        }
    }
}

impl FromStr for Message {
    type Err = ParseMessageError;

    fn from_str(line: &str) -> Result<Message, ParseMessageError> {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |text: &str| text.parse::<u64>().map_err(|_| ParseMessageError);
        match *words.as_slice() {
            ["session", id, ttl_ms, by, endpoints] => {
                Session::parse(ROOT_GROUP, id, ttl_ms, by, endpoints).map(Message::Session)
            }
            ["session-in", group, id, ttl_ms, by, endpoints] => {
                Session::parse(other_group(group)?, id, ttl_ms, by, endpoints).map(Message::Session)
            }
            ["tls", verify @ ("host" | "cluster"), ca, ref identity @ ..] => {
                let tls = Tls::new(path_from_text(ca)?);
                let tls = match *identity {
                    [] => tls,
                    [cert, key] => tls.certificate(path_from_text(cert)?, path_from_text(key)?),
                    _ => return Err(ParseMessageError),
                };
                Ok(Message::Tls(if verify == "host" { tls.verify_host() } else { tls }))
            }
            ["auth-file", path] => Ok(Message::AuthFile(path_from_text(path)?)),
            ["no-session"] => Ok(Message::NoSession { group: ROOT_GROUP }),
            ["no-session-in", group] => Ok(Message::NoSession { group: other_group(group)? }),
            ["lock-delay"] => Ok(Message::LockDelay),
            // A signal to 0 goes to the companion's own process group, and one to -1 to all processes.
            ["group", group] => match group.parse() {
                Ok(group @ 2..) => Ok(Message::Group(group)),
                _ => Err(ParseMessageError),
            },
            ["no-group"] => Ok(Message::NoGroup),
            ["end-group-at", term, kill] => {
                Ok(Message::EndGroupAt { term: number(term)?, kill: number(kill)? })
            }
            _ => Err(ParseMessageError),
        }
    }
}

impl Session {
    fn parse(
        group: u32,
        id: &str,
        ttl_ms: &str,
        by: &str,
        endpoints: &str,
    ) -> Result<Session, ParseMessageError> {
        Ok(Session {
            id: id.parse().map_err(|_| ParseMessageError)?,
            group,
            ttl: Duration::from_millis(ttl_ms.parse().map_err(|_| ParseMessageError)?),
            endpoints: endpoints.split(',').map(str::to_owned).collect(),
            has_tls: match by {
                BY_TLS => true,
                BY_PLAINTEXT => false,
                _ => return Err(ParseMessageError),
            },
        })
    }
}

fn other_group(text: &str) -> Result<u32, ParseMessageError> {
    match text.parse() {
        Ok(group) if group > ROOT_GROUP => Ok(group),
        _ => Err(ParseMessageError),
    }
}

/// As hexadecimal digits: a path may have spaces and newlines in it.
fn path_to_text(path: &Path) -> String {
    path.as_os_str()
        .as_bytes()
        .iter()
        .fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

fn path_from_text(text: &str) -> Result<PathBuf, ParseMessageError> {
    let digits = text.as_bytes().chunks(2).map(|pair| {
        let pair = std::str::from_utf8(pair).ok().filter(|pair| pair.len() == 2)?;
        u8::from_str_radix(pair, 16).ok()
    });
    let bytes: Option<Vec<u8>> = digits.collect();
    Ok(OsString::from_vec(bytes.ok_or(ParseMessageError)?).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(endpoints: Vec<String>) -> Message {
        let id = SessionId::from_bytes([7; 16]).unwrap();
        let has_tls = endpoints.len() > 1;
        Message::Session(Session { id, group: 1, ttl: Duration::from_secs(30), endpoints, has_tls })
    }

    fn in_group(group: u32, message: Message) -> Message {
        match message {
            Message::Session(session) => Message::Session(Session { group, ..session }),
            message => message,
        }
    }

    #[test]
    fn companion_messages_are_read_back_as_written() {
        for message in [
            session(vec!["a:1".to_owned(), "[::1]:2".to_owned()]),
            in_group(64, session(vec!["a:1".to_owned()])),
            Message::NoSession { group: 1 },
            Message::NoSession { group: 3 },
            Message::LockDelay,
            Message::Group(4711),
            Message::NoGroup,
            Message::Tls(Tls::new("/etc/a b/ca.pem")),
            Message::Tls(Tls::new("/ca.pem").certificate("/me.pem", "/me key.pem").verify_host()),
            Message::AuthFile("/home/me/a token".into()),
            Message::EndGroupAt { term: 5, kill: Message::NEVER },
        ] {
            assert_eq!(message.to_string().parse(), Ok(message));
        }
    }

    #[test]
    fn a_line_fits_into_one_write_however_many_nodes_there_are() {
        let many = (0..1_000).map(|number| format!("node-{number}.example.com:7420")).collect();
        let line = format!("{}\n", session(many));
        assert!(line.len() <= LINE_BYTES_MAX, "{} bytes", line.len());
        let Ok(Message::Session(read)) = line.trim_end().parse() else { panic!("{line}") };
        assert_eq!(read.endpoints[100], "node-100.example.com:7420");
    }

    #[test]
    fn no_group_but_a_commands_own_can_be_named() {
        for line in [
            "group 0",
            "group 1",
            "group -5",
            "group x",
            "session 00 1 tls a:1",
            "no-session-in 1",
            "no-session-in 0",
            "",
            "goodbye",
        ] {
            assert_eq!(line.parse::<Message>(), Err(ParseMessageError), "{line}");
        }
    }

    /// The companion here is a script that notes what it is told.
    #[test]
    fn a_killed_companion_is_replaced_and_the_new_one_gets_the_whole_state() {
        use std::os::unix::fs::PermissionsExt;

        let folder = tempfile::tempdir().unwrap();
        let (program, notes) = (folder.path().join("holdfast"), folder.path().join("notes"));
        std::fs::write(&program, format!("#!/bin/sh\nexec cat >> {}\n", notes.display())).unwrap();
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
        let companion = Companion::start(&program).unwrap();
        let session = session(vec!["a:1".to_owned()]);
        let other = in_group(3, session.clone());
        companion.tell(&session);
        companion.tell(&other);
        companion.tell(&in_group(4, session.clone()));
        companion.tell(&Message::NoSession { group: 4 });
        companion.tell(&Message::Group(4711));
        {
            let mut state = companion.0.state.lock().unwrap();
            let (process, _) = state.running.as_mut().unwrap();
            process.kill().unwrap();
            process.wait().unwrap();
            state.started -= START_PAUSE;
        }
        std::fs::write(&notes, "").unwrap();
        let end = Message::EndGroupAt { term: 5, kill: 6 };
        companion.tell(&end);
        let expected =
            format!("{session}\n{other}\nno-session-in 4\n{}\n{end}\n", Message::Group(4711));
        let give_up = Instant::now() + Duration::from_secs(60);
        while std::fs::read_to_string(&notes).unwrap() != expected {
            assert!(Instant::now() < give_up, "{:?}", std::fs::read_to_string(&notes));
            thread::yield_now();
        }
        companion.leave_sessions();
        let expected = format!("{expected}no-session\nno-session-in 3\n");
        while std::fs::read_to_string(&notes).unwrap() != expected {
            assert!(Instant::now() < give_up, "{:?}", std::fs::read_to_string(&notes));
            thread::yield_now();
        }
    }

    #[test]
    fn the_secret_of_a_session_is_not_printed() {
        let told = format!("{:?}", session(vec!["a:1".to_owned()]));
        assert!(!told.contains("0707070707"), "{told}");
    }
}
