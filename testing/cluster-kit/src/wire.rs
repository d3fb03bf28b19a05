//! A TCP connection's way through this process, where it can be held up, slowed down and broken.
//!
//! Caveats: held-up bytes are not lost but come later, as with a network that retransmits. A delay
//! applies to what was read at once, so bytes that come while others wait have up to twice of it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

const BUFFER_BYTES: usize = 64 * 1024;

#[derive(Debug)]
pub struct Wire {
    address: String,
    carried: Arc<Carried>,
    condition: watch::Sender<Condition>,
    accepting: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Carried {
    /// In both directions.
    bytes: AtomicU64,
    request_bytes: AtomicU64,
    request_chunks: AtomicU64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Condition {
    /// What the dialler sends does not arrive.
    are_requests_cut: bool,
    /// What it is sent does not arrive.
    are_answers_cut: bool,
    delay: Duration,
    /// Connections of an earlier count are broken.
    breaks: u64,
}

impl Wire {
    /// A connection to [`Wire::address`] reaches `target`.
    pub async fn to(target: &str) -> io::Result<Wire> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?.to_string();
        let condition = watch::Sender::new(Condition::default());
        let carried = Arc::default();
        let far_end = FarEnd {
            target: target.into(),
            condition: condition.subscribe(),
            carried: Arc::clone(&carried),
        };
        let accepting = tokio::spawn(accept(listener, far_end));
        Ok(Wire { address, carried, condition, accepting })
    }

    pub fn address(&self) -> &str {
        &self.address
    }

    /// How much passed, in both directions, since it was laid.
    pub fn carried_bytes(&self) -> u64 {
        self.carried.bytes.load(Ordering::Relaxed)
    }

    /// What the diallers sent since it was laid: how many bytes, in how many pieces.
    pub fn carried_requests(&self) -> (u64, u64) {
        let Carried { request_bytes, request_chunks, .. } = &*self.carried;
        (request_bytes.load(Ordering::Relaxed), request_chunks.load(Ordering::Relaxed))
    }

    /// Nothing passes any more, and no node is told: connections stay, also new ones can be made.
    pub fn cut(&self) {
        self.cut_requests();
        self.cut_answers();
    }

    /// As [`Wire::cut`], only for what the dialler sends.
    pub fn cut_requests(&self) {
        self.condition.send_modify(|condition| condition.are_requests_cut = true);
    }

    /// As [`Wire::cut`], only for what the dialler is sent. With [`Wire::break_connections`] it is lost for good.
    pub fn cut_answers(&self) {
        self.condition.send_modify(|condition| condition.are_answers_cut = true);
    }

    pub fn delay(&self, delay: Duration) {
        self.condition.send_modify(|condition| condition.delay = delay);
    }

    /// No longer cut or slow.
    pub fn heal(&self) {
        self.condition.send_modify(|condition| {
            *condition = Condition { breaks: condition.breaks, ..Condition::default() };
        });
    }

    /// Ends every connection that there is.
    pub fn break_connections(&self) {
        self.condition.send_modify(|condition| condition.breaks += 1);
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

#[derive(Clone, Copy, Debug)]
enum Direction {
    Requests,
    Answers,
}

impl Condition {
    fn is_cut(&self, direction: Direction) -> bool {
        match direction {
            Direction::Requests => self.are_requests_cut,
            Direction::Answers => self.are_answers_cut,
        }
    }
}

/// What each connection needs to know.
#[derive(Clone, Debug)]
struct FarEnd {
    target: Arc<str>,
    condition: watch::Receiver<Condition>,
    carried: Arc<Carried>,
}

async fn accept(listener: TcpListener, far_end: FarEnd) {
    loop {
        // An error is one connection's, or a lack of descriptors that passes.
        let Ok((near, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        tokio::spawn(carry(near, far_end.clone()));
    }
}

async fn carry(near: TcpStream, far_end: FarEnd) {
    let mut condition = far_end.condition.clone();
    let breaks = condition.borrow().breaks;
    let Ok(far) = TcpStream::connect(&*far_end.target).await else { return };
    let _ = (near.set_nodelay(true), far.set_nodelay(true));
    let (from_near, to_near) = near.into_split();
    let (from_far, to_far) = far.into_split();
    let both = async {
        tokio::join!(
            pump(from_near, to_far, Direction::Requests, breaks, far_end.clone()),
            pump(from_far, to_near, Direction::Answers, breaks, far_end.clone())
        )
    };
    let mut watching = condition.clone();
    tokio::select! {
        _ = both => {}
        _ = watching.wait_for(|condition| condition.breaks != breaks) => {}
    }
    // While the wire is cut, the end of one side is not told to the other either.
    let is_told = |condition: &Condition| {
        let is_cut = condition.are_requests_cut || condition.are_answers_cut;
        !is_cut || condition.breaks != breaks
    };
    let _ = condition.wait_for(is_told).await;
}

async fn pump(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    direction: Direction,
    breaks: u64,
    far_end: FarEnd,
) {
    let FarEnd { mut condition, carried, .. } = far_end;
    let mut buffer = vec![0; BUFFER_BYTES];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        let delay = condition.borrow().delay;
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        let is_over =
            |condition: &Condition| !condition.is_cut(direction) || condition.breaks != breaks;
        // A wire that is broken and healed in one moment has lost what it held up.
        match condition.wait_for(is_over).await {
            Ok(condition) if condition.breaks == breaks => {}
            _ => return,
        }
        if to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
        carried.bytes.fetch_add(count as u64, Ordering::Relaxed);
        if let Direction::Requests = direction {
            carried.request_bytes.fetch_add(count as u64, Ordering::Relaxed);
            carried.request_chunks.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn connected() -> (Wire, TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let wire = Wire::to(&listener.local_addr().unwrap().to_string()).await.unwrap();
        let near = TcpStream::connect(wire.address()).await.unwrap();
        let (far, _) = listener.accept().await.unwrap();
        (wire, near, far)
    }

    #[tokio::test]
    async fn what_is_sent_over_a_cut_wire_arrives_when_it_is_healed() {
        let (wire, mut near, mut far) = connected().await;
        wire.cut();
        near.write_all(b"word").await.unwrap();
        let mut word = [0; 4];
        let early = tokio::time::timeout(Duration::from_millis(100), far.read(&mut word)).await;
        assert!(early.is_err(), "it passed a cut wire");
        wire.heal();
        far.read_exact(&mut word).await.unwrap();
        assert_eq!(&word, b"word");
    }

    #[tokio::test]
    async fn answers_that_are_cut_are_lost_with_the_connection_while_requests_pass() {
        let (wire, mut near, mut far) = connected().await;
        wire.cut_answers();
        far.write_all(b"lost").await.unwrap();
        near.write_all(b"word").await.unwrap();
        let mut word = [0; 4];
        far.read_exact(&mut word).await.unwrap();
        assert_eq!(&word, b"word");
        wire.break_connections();
        wire.heal();
        assert!(matches!(near.read(&mut word).await, Ok(0) | Err(_)));
    }

    #[tokio::test]
    async fn requests_are_counted_apart_from_answers() {
        let (wire, mut near, mut far) = connected().await;
        near.write_all(b"word").await.unwrap();
        far.read_exact(&mut [0; 4]).await.unwrap();
        far.write_all(b"answer").await.unwrap();
        near.read_exact(&mut [0; 6]).await.unwrap();
        while wire.carried_bytes() < 10 {
            tokio::task::yield_now().await;
        }
        assert_eq!(wire.carried_requests(), (4, 1));
    }

    #[tokio::test]
    async fn a_broken_connection_ends_on_both_sides() {
        let (wire, mut near, mut far) = connected().await;
        wire.break_connections();
        assert!(matches!(near.read(&mut [0]).await, Ok(0) | Err(_)));
        assert!(matches!(far.read(&mut [0]).await, Ok(0) | Err(_)));
    }

    #[tokio::test]
    async fn the_end_of_one_side_is_told_to_the_other() {
        let (_wire, near, mut far) = connected().await;
        drop(near);
        assert!(matches!(far.read(&mut [0]).await, Ok(0) | Err(_)));
    }
}
