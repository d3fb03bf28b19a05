//! What writes a plain connection. The stream's task has it, and the driver, who takes it only while nobody writes and nothing
//! waits to be written.

use std::io::{self, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::Duration;

use holdfast_proto::plain;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::timeout;

use super::watched::watch;

/// A client that takes nothing for so long is let go of, though its connection stands.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(super) struct Pen {
    socket: AsyncFd<TcpStream>,
    page: Mutex<Page>,
    patience: Duration,
    broken: Broken,
}

/// How the connection broke, if that was noticed in writing: the system tells it once, and whoever reads finds but an end.
#[derive(Clone, Debug, Default)]
pub(super) struct Broken(Arc<OnceLock<io::ErrorKind>>);

impl Broken {
    #[cfg(test)]
    pub(super) fn by(kind: io::ErrorKind) -> Broken {
        Broken(Arc::new(kind.into()))
    }

    pub(super) fn kind(&self) -> Option<io::ErrorKind> {
        self.0.get().copied()
    }
}

#[derive(Debug, Default)]
struct Page {
    /// What the connection had no room for.
    unwritten: Vec<u8>,
    /// Only the task writes from now on.
    is_last: bool,
}

/// What became of what was to be written at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AtOnce {
    Written,
    /// The task has to see to the rest.
    InPart,
    /// Nothing is written.
    Not,
}

/// The connection has ended, or its client takes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NobodyReads;

impl Pen {
    /// For a socket that does not block.
    pub(super) fn new(socket: TcpStream) -> io::Result<Pen> {
        let socket = watch(socket, Interest::WRITABLE)?;
        Ok(Pen { socket, page: Mutex::default(), patience: PATIENCE, broken: Broken::default() })
    }

    pub(super) fn broken(&self) -> Broken {
        self.broken.clone()
    }

    /// For the stream's task: all of it, after what is not written yet.
    pub(super) async fn write(&self, bytes: &[u8]) -> Result<(), NobodyReads> {
        let mut is_written = self.put(&mut self.page(), bytes)?;
        while !is_written {
            let room = timeout(self.patience, self.socket.writable()).await;
            let _ = room.map_err(|_| NobodyReads)?.map_err(|_| NobodyReads)?;
            is_written = self.put(&mut self.page(), &[])?;
        }
        Ok(())
    }

    /// For the driver. Waits neither for room nor for the task.
    pub(super) fn write_at_once(&self, bytes: &[u8]) -> AtOnce {
        let mut page = match self.page.try_lock() {
            Ok(page) => page,
            Err(TryLockError::Poisoned(page)) => page.into_inner(),
            Err(TryLockError::WouldBlock) => return AtOnce::Not,
        };
        if page.is_last || !page.unwritten.is_empty() {
            return AtOnce::Not;
        }
        match self.try_write(bytes) {
            Ok(taken) if taken == bytes.len() => AtOnce::Written,
            Ok(taken) if taken > 0 => {
                page.unwritten.extend_from_slice(bytes.get(taken..).unwrap_or_default());
                AtOnce::InPart
            }
            // If the connection has ended, the task finds out why.
            _ => AtOnce::Not,
        }
    }

    /// The driver writes nothing more.
    pub(super) fn keep_to_the_task(&self) {
        self.page().is_last = true;
    }

    /// Nothing comes after what was written.
    pub(super) fn end(&self) {
        self.keep_to_the_task();
        // The client may have gone already.
        let _ = self.socket.get_ref().shutdown(Shutdown::Write);
    }

    /// Tells whether all is written.
    fn put(&self, page: &mut Page, mut bytes: &[u8]) -> Result<bool, NobodyReads> {
        while !page.unwritten.is_empty() {
            match self.take(&page.unwritten)? {
                0 => break,
                taken => drop(page.unwritten.drain(..taken)),
            }
        }
        while page.unwritten.is_empty() && !bytes.is_empty() {
            match self.take(bytes)? {
                0 => break,
                taken => bytes = bytes.get(taken..).unwrap_or_default(),
            }
        }
        page.unwritten.extend_from_slice(bytes);
        let is_written = page.unwritten.is_empty();
        if is_written {
            plain::reuse(&mut page.unwritten);
        }
        Ok(is_written)
    }

    /// How much the connection has taken.
    fn take(&self, bytes: &[u8]) -> Result<usize, NobodyReads> {
        match self.try_write(bytes) {
            Ok(0) => Err(NobodyReads),
            Ok(taken) => Ok(taken),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
            Err(_) => Err(NobodyReads),
        }
    }

    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.socket.try_io(Interest::WRITABLE, |mut socket| socket.write(bytes));
        written.inspect_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => {}
            kind => drop(self.broken.0.set(kind)),
        })
    }

    fn page(&self) -> MutexGuard<'_, Page> {
        self.page.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whoever reads the connection may keep it open for longer.
impl Drop for Pen {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
pub(super) mod tests {
    use tokio::io::AsyncReadExt;
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    /// More than the buffers of a connection hold.
    const MUCH: usize = 32 * 1024 * 1024;

    /// The other end reads when it likes.
    pub(in super::super) async fn connected() -> (Pen, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let pen = Pen::new(socket.into_std().unwrap()).unwrap();
        // Whoever does not wait has to be told first that there is room.
        let _ = pen.socket.writable().await.unwrap();
        (pen, listener.accept().await.unwrap().0)
    }

    #[tokio::test]
    async fn what_there_is_no_room_for_comes_before_what_the_task_writes() {
        let (pen, mut other) = connected().await;
        let mut expected: Vec<u8> = (0..MUCH).map(|number| (number % 251) as u8).collect();
        assert_eq!(pen.write_at_once(&expected), AtOnce::InPart);
        assert_eq!(pen.write_at_once(b"too early"), AtOnce::Not);
        expected.extend_from_slice(b"the task's");
        let reading = tokio::spawn(async move {
            let mut read = Vec::new();
            other.read_to_end(&mut read).await.unwrap();
            read
        });
        pen.write(b"the task's").await.unwrap();
        pen.end();
        assert!(reading.await.unwrap() == expected, "all of it came, in order");
    }

    #[tokio::test]
    async fn after_the_last_word_is_begun_only_the_task_writes() {
        let (pen, mut other) = connected().await;
        assert_eq!(pen.write_at_once(b"one "), AtOnce::Written);
        pen.keep_to_the_task();
        assert_eq!(pen.write_at_once(b"two "), AtOnce::Not);
        pen.write(b"three").await.unwrap();
        pen.end();
        let mut read = String::new();
        other.read_to_string(&mut read).await.unwrap();
        assert_eq!(read, "one three");
    }

    #[tokio::test]
    async fn how_a_connection_broke_is_remembered_and_that_it_is_full_is_not_that() {
        let (pen, other) = connected().await;
        assert_eq!(pen.write_at_once(&vec![0; MUCH]), AtOnce::InPart);
        assert_eq!(pen.broken().kind(), None);
        // It closes with much unread, which resets the connection.
        drop(other);
        assert_eq!(pen.write(b"more").await, Err(NobodyReads));
        assert_eq!(pen.broken().kind(), Some(io::ErrorKind::ConnectionReset));
    }

    #[tokio::test]
    async fn a_client_that_takes_nothing_is_not_waited_for_without_end() {
        let (mut pen, _other) = connected().await;
        pen.patience = Duration::from_millis(20);
        assert_eq!(pen.write_at_once(&vec![0; MUCH]), AtOnce::InPart);
        assert_eq!(pen.write(b"more").await, Err(NobodyReads));
    }
}
