//! `holdfast companion`: a hidden process beside `holdfast lock`, or beside a program with the client library. It does
//! what the other can no longer do ([`holdfast_client::companion`] is the other side).
//!
//! - If the other is dead, it kills the command's process group, waits until all of it is dead, and then ends the
//!   session. So a killed holder frees its locks at once, and never before its work has stopped.
//! - If the other stands still (SIGSTOP cannot be caught) while its lease ends, it ends the group as the other would
//!   have: SIGTERM, and SIGKILL when the lease is over.
//!
//! Its stdin is a pipe that only the other can write to. The end of it means that the other is dead.
//!
//! It acts on positive evidence only. If it cannot see the group dead, or cannot reach the cluster, it ends after the
//! session's TTL. The cluster ends the session itself at about that time (later if it has no leader).

pub(crate) mod group;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use holdfast_client::Tls;
use holdfast_client::companion::{LINE_BYTES_MAX, Message, ParseMessageError, Session};
use holdfast_client::unary::{CallError, Unary, Why};
use nix::sys::signal::Signal;
use tokio::runtime::Builder;
use tokio::task::JoinSet;

use self::group::Group;
use crate::companion_link::now;
use crate::exit::{Code, Problem};

/// Timers stand still while the machine sleeps.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// How often it looks whether the group is dead.
const GROUP_LOOK_INTERVAL: Duration = Duration::from_millis(5);
/// How long it waits for that if there is no session whose TTL says so.
const GROUP_PATIENCE: Duration = Duration::from_secs(60);
/// How long one call to the cluster may take, and the pause before the next.
const CALL_PATIENCE: Duration = Duration::from_secs(5);
const CALL_PAUSE: Duration = Duration::from_millis(100);
/// No request of the session's own has this number.
const CLOSE_REQUEST: u64 = u64::MAX >> 1;

/// What was watched last.
#[derive(Debug, Default)]
struct WatchedProgram {
    /// One in each group of the cluster in which the other process has one.
    sessions: BTreeMap<u32, Session>,
    tls: Option<Tls>,
    auth_file: Option<PathBuf>,
    has_lock_delay: bool,
    /// What works under the locks. None: the other process itself, and nothing besides.
    group: Option<Group>,
}

pub(crate) fn run() -> Result<ExitCode, Problem> {
    keep_nothing_open();
    let cannot = |error| Problem::new(Code::Unavailable, format!("cannot watch: {error}"));
    let messages = messages_from_stdin().map_err(cannot)?;
    let mut watched = WatchedProgram::default();
    let (mut term_at, mut kill_at) = (Message::NEVER, Message::NEVER);
    loop {
        match next(&messages, term_at.min(kill_at)).map_err(cannot)? {
            Next::Message(Message::EndGroupAt { term, kill }) => (term_at, kill_at) = (term, kill),
            Next::Message(message) => watched.note(message),
            Next::Nonsense(error) => return Err(Problem::new(Code::Usage, error.to_string())),
            Next::End => {
                watched.end_all();
                return Ok(ExitCode::SUCCESS);
            }
            Next::Time => {}
        }
        let now = now().map_err(cannot)?;
        if now >= term_at {
            term_at = Message::NEVER;
            watched.send(Signal::SIGTERM);
            // One that was stopped could not even see the signal.
            watched.send(Signal::SIGCONT);
        }
        if now >= kill_at {
            kill_at = Message::NEVER;
            watched.send(Signal::SIGKILL);
        }
    }
}

enum Next {
    Message(Message),
    Nonsense(ParseMessageError),
    /// The other process is dead.
    End,
    Time,
}

type Messages = Receiver<Result<Message, ParseMessageError>>;

fn next(messages: &Messages, due_at: u64) -> std::io::Result<Next> {
    let received = if due_at == Message::NEVER {
        messages.recv().map_err(|_| RecvTimeoutError::Disconnected)
    } else {
        let left = Duration::from_nanos(due_at.saturating_sub(now()?));
        messages.recv_timeout(left.min(LOOK_INTERVAL))
    };
    Ok(match received {
        Ok(Ok(message)) => Next::Message(message),
        Ok(Err(error)) => Next::Nonsense(error),
        Err(RecvTimeoutError::Disconnected) => Next::End,
        Err(RecvTimeoutError::Timeout) => Next::Time,
    })
}

impl WatchedProgram {
    fn note(&mut self, message: Message) {
        match message {
            Message::Session(session) => drop(self.sessions.insert(session.group, session)),
            Message::Tls(tls) => self.tls = Some(tls),
            Message::AuthFile(path) => self.auth_file = Some(path),
            Message::NoSession { group } => drop(self.sessions.remove(&group)),
            Message::LockDelay => self.has_lock_delay = true,
            Message::Group(group) => self.group = Some(Group::new(group)),
            Message::NoGroup => self.group = None,
            Message::EndGroupAt { .. } => {}
        }
    }

    fn send(&self, signal: Signal) {
        if let Some(group) = &self.group {
            group.send(signal);
        }
    }

    /// To the cluster, in the way in which the other process reached it; none if that is not known.
    fn calls(&self, session: &Session) -> Option<Unary> {
        if session.has_tls && self.tls.is_none() {
            return None;
        }
        let mut calls = Unary::new(&session.endpoints.join(",")).ok()?;
        if let Some(tls) = &self.tls {
            calls = calls.tls(tls.clone()).ok()?;
        }
        if let Some(path) = &self.auth_file {
            calls = calls.auth_file(path).ok()?;
        }
        Some(calls)
    }

    /// The other process is dead.
    fn end_all(self) {
        let died = Instant::now();
        let patience = self.sessions.values().map(|session| session.ttl).max();
        let over = died + patience.unwrap_or(GROUP_PATIENCE);
        if self.group.as_ref().is_none_or(|group| kill(group, over)) {
            end_sessions(self.sessions_to_end(), over);
        }
    }

    /// Each with the calls to end it by.
    fn sessions_to_end(&self) -> Vec<SessionToEnd> {
        let to_end = |session: &Session| {
            let calls = self.calls(session)?.timeout(CALL_PATIENCE).in_group(session.group);
            let (session, has_lock_delay) = (session.clone(), self.has_lock_delay);
            Some(SessionToEnd { session, calls, has_lock_delay })
        };
        self.sessions.values().filter_map(to_end).collect()
    }
}

/// Whether all of the group is dead. SIGKILL cannot be ignored, but a process can be stuck in the kernel.
fn kill(group: &Group, over: Instant) -> bool {
    loop {
        group.send(Signal::SIGKILL);
        if group.is_dead() {
            return true;
        }
        if Instant::now() >= over {
            return false;
        }
        thread::sleep(GROUP_LOOK_INTERVAL);
    }
}

/// A session of the dead process.
struct SessionToEnd {
    session: Session,
    calls: Unary,
    has_lock_delay: bool,
}

/// All at the same time: a group that has no leader must not hold up the others.
fn end_sessions(sessions: Vec<SessionToEnd>, over: Instant) {
    let Ok(runtime) = Builder::new_current_thread().enable_all().build() else { return };
    runtime.block_on(async {
        let mut ending: JoinSet<()> =
            sessions.into_iter().map(|session| session.end(over)).collect();
        while ending.join_next().await.is_some() {}
    });
}

impl SessionToEnd {
    async fn end(self, over: Instant) {
        while Instant::now() < over {
            match self.end_once().await {
                Ok(()) => return,
                // It has ended, or may not be ended.
                Err(error) if !error.is_retryable() => return,
                Err(_) => tokio::time::sleep(CALL_PAUSE).await,
            }
        }
    }

    /// To close a session is to release its locks, and opens them at once. Where a lock delay was asked for, the holder's
    /// death must not look like that.
    async fn end_once(&self) -> Result<(), CallError> {
        if self.has_lock_delay {
            let why = Why {
                by: "holdfast companion".to_owned(),
                reason: "the program that held the lock was killed".to_owned(),
            };
            return self.calls.kill_session(&why, &self.session.id.public_id().to_string()).await;
        }
        self.calls.close_session(self.session.id, CLOSE_REQUEST).await.map(drop)
    }
}

/// Readers of the other process's files wait for the end of them, and its directory may have to be unmounted.
fn keep_nothing_open() {
    let _ = std::env::set_current_dir("/");
    let Ok(open) = std::fs::read_dir("/proc/self/fd") else { return };
    let numbers = open.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    // The directory itself is among them, and closed by then.
    for number in numbers.filter(|number: &i32| *number > 2).collect::<Vec<_>>() {
        let _ = nix::unistd::close(number);
    }
}

/// A thread reads them, because reading has no timeout.
fn messages_from_stdin() -> std::io::Result<Messages> {
    let (tell, watched) = sync_channel(1);
    thread::Builder::new().spawn(move || {
        let mut stdin = BufReader::new(std::io::stdin().lock());
        loop {
            let mut line = String::new();
            let limit = LINE_BYTES_MAX as u64;
            match stdin.by_ref().take(limit).read_line(&mut line) {
                Ok(1..) => {}
                Ok(0) | Err(_) => return,
            }
            if tell.send(line.trim_end_matches('\n').parse()).is_err() {
                return;
            }
        }
    })?;
    Ok(watched)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_a_session_with_tls_is_never_shown_without_tls() {
        let id = holdfast_proto::SessionId::from_bytes([7; 16]).unwrap();
        let (ttl, endpoints) = (Duration::from_secs(30), vec!["127.0.0.1:1".to_owned()]);
        let session = Session { id, group: 1, ttl, endpoints, has_tls: true };
        let mut watched = WatchedProgram::default();
        // The line about TLS was too long, and was not told.
        watched.note(Message::Session(session.clone()));
        assert!(watched.calls(&session).is_none());
        let plain = Session { has_tls: false, ..session };
        assert!(watched.calls(&plain).is_some());
    }

    #[test]
    fn the_session_in_each_group_is_ended_until_the_program_takes_it_back() {
        let id = holdfast_proto::SessionId::from_bytes([7; 16]).unwrap();
        let in_group = |group| Session {
            id,
            group,
            ttl: Duration::from_secs(30),
            endpoints: vec!["127.0.0.1:1".to_owned()],
            has_tls: false,
        };
        let mut watched = WatchedProgram::default();
        for group in [1, 5, 9] {
            watched.note(Message::Session(in_group(group)));
        }
        watched.note(Message::NoSession { group: 5 });
        let to_end = watched.sessions_to_end();
        let groups: Vec<u32> = to_end.iter().map(|ending| ending.session.group).collect();
        assert_eq!(groups, [1, 9]);
    }
}
