//! The queue before the shard. It is bounded, and never makes a caller wait: a caller that finds it full
//! is told so at once.
//!
//! Clients may fill only a part of it. The rest is for peers and for the node itself: if an overload of
//! clients could crowd out heartbeats, the leader would lose its leadership.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::time::Duration;

use holdfast_replica::{GroupId, Leadership};
use mio::Registry;
use tokio::sync::watch;

use super::connection::WokenConnections;
use super::input::Input;
use super::leaderships::LeadershipWatch;
use super::policy_generations::PolicyGenerations;
use super::poller::{Poller, SocketEvents, Waker, poller};

const INPUTS_MAX: usize = 16_384;
/// Operations of clients that wait for the shard: calls, and what is in frames.
const CLIENT_OPERATIONS_MAX: usize = 65_536;
/// Inputs of clients that wait for the shard, however few operations they hold.
const CLIENT_INPUTS_MAX: usize = INPUTS_MAX / 2;

const INPUTS_PER_TURN_MAX: usize = 4_096;
/// A turn takes no more operations of clients than this. During a turn the leader sends nothing to its peers, and its
/// clock does not advance. A turn of all operations that may wait would cost the leader its leadership.
const OPERATIONS_PER_TURN_MAX: usize = 4_096;

/// There is no room. Nothing was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Overloaded;

/// What clients have in the queue.
#[derive(Debug, Default)]
struct Backlog {
    inputs: AtomicUsize,
    operations: AtomicUsize,
    refusals: AtomicU64,
}

/// Where inputs go in.
#[derive(Clone, Debug)]
pub(crate) struct InboxSender {
    inputs: SyncSender<Input>,
    backlog: Arc<Backlog>,
    waker: Arc<Waker>,
}

/// Where the shard takes them out.
#[derive(Debug)]
pub(crate) struct Inbox {
    inputs: Receiver<Input>,
    backlog: Arc<Backlog>,
    woken: Arc<WokenConnections>,
    poller: Poller,
    /// Seen before waiting.
    next: Option<Input>,
    /// Nothing can be put into it any more.
    is_closed: bool,
    /// Sockets on which something happened.
    touched: Vec<SocketEvents>,
}

pub(crate) fn inbox() -> io::Result<(InboxSender, Inbox)> {
    let (sender, receiver) = sync_channel(INPUTS_MAX);
    let backlog = Arc::new(Backlog::default());
    let (waker, poller) = poller()?;
    let inbox = Inbox {
        inputs: receiver,
        backlog: Arc::clone(&backlog),
        woken: Arc::new(WokenConnections::new(Arc::clone(&waker))),
        poller,
        next: None,
        is_closed: false,
        touched: Vec::new(),
    };
    Ok((InboxSender { inputs: sender, backlog, waker }, inbox))
}

impl InboxSender {
    /// Never blocks. Without room, or without a shard, the input comes back.
    fn offer(&self, input: Input) -> Result<(), Box<Input>> {
        let operations = input.operations_of_clients();
        if operations > 0 && !self.backlog.admit(operations) {
            self.backlog.refusals.fetch_add(1, Ordering::Relaxed);
            return Err(Box::new(input));
        }
        let sent = self.inputs.try_send(input).map_err(|error| {
            let (TrySendError::Full(input) | TrySendError::Disconnected(input)) = error;
            self.backlog.leave(operations);
            self.backlog.refusals.fetch_add(u64::from(operations > 0), Ordering::Relaxed);
            Box::new(input)
        });
        self.waker.wake();
        sent
    }

    /// Waits for room: for the node's own threads.
    pub(crate) fn send_and_wait(&self, input: Input) {
        // A shard that is gone no longer wants to know.
        let _ = self.inputs.send(input);
        self.waker.wake();
    }
}

impl Inbox {
    /// Returns when there is something to take in, or on a socket, and after this time at the latest.
    pub(crate) fn wait(&mut self, patience: Duration) {
        let (inputs, woken) = (&self.inputs, &self.woken);
        let (next, is_closed) = (&mut self.next, &mut self.is_closed);
        let mut look = || {
            if next.is_none() {
                match inputs.try_recv() {
                    Ok(input) => *next = Some(input),
                    Err(TryRecvError::Empty) => {}
                    Err(TryRecvError::Disconnected) => *is_closed = true,
                }
            }
            next.is_some() || *is_closed || !woken.is_empty()
        };
        let patience = if look() { Duration::ZERO } else { patience };
        self.touched.extend(self.poller.wait(patience, look));
    }

    /// What is there now, without waiting.
    pub(crate) fn waiting(&mut self) -> impl Iterator<Item = Input> + '_ {
        let Inbox { inputs, backlog, next, .. } = self;
        let waiting = next.take().into_iter().chain(inputs.try_iter());
        waiting.inspect(|input| backlog.leave(input.operations_of_clients()))
    }

    /// As much of it as one turn may be made of. The rest stays for the next, which begins at once.
    pub(crate) fn take_turn(&mut self) -> Vec<Input> {
        let mut operations = 0;
        let has_room = |operations: &usize| *operations < OPERATIONS_PER_TURN_MAX;
        let mut waiting = self.waiting();
        let inputs = std::iter::from_fn(|| {
            let input = has_room(&operations).then(|| waiting.next()).flatten()?;
            operations += input.operations_of_clients();
            Some(input)
        });
        inputs.take(INPUTS_PER_TURN_MAX).collect()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// The sockets on which something happened since this was last asked.
    pub(crate) fn touched(&mut self) -> impl Iterator<Item = SocketEvents> + '_ {
        self.touched.drain(..)
    }

    /// Framed connections for which a task has something.
    pub(crate) fn woken(&self) -> Arc<WokenConnections> {
        Arc::clone(&self.woken)
    }

    pub(crate) fn registry(&self) -> &Registry {
        self.poller.registry()
    }

    /// Nothing is taken in any more.
    pub(crate) fn into_poller(self) -> Poller {
        self.poller
    }
}

impl Backlog {
    /// Counts them in if there is room. A frame is taken whole when there is room for its first
    /// operation, so that the largest frame is never refused for ever.
    fn admit(&self, operations: usize) -> bool {
        let inputs = self.inputs.fetch_add(1, Ordering::Relaxed);
        let before = self.operations.fetch_add(operations, Ordering::Relaxed);
        let room = inputs < CLIENT_INPUTS_MAX && before < CLIENT_OPERATIONS_MAX;
        if !room {
            self.leave(operations);
        }
        room
    }

    fn leave(&self, operations: usize) {
        if operations > 0 {
            self.inputs.fetch_sub(1, Ordering::Relaxed);
            self.operations.fetch_sub(operations, Ordering::Relaxed);
        }
    }
}

/// The rest of the node's end of the shard.
#[derive(Clone, Debug)]
pub(crate) struct ShardHandle {
    inbox: InboxSender,
    leadership: LeadershipWatch,
    policy_generations: PolicyGenerations,
}

impl ShardHandle {
    pub(crate) fn new(inbox: InboxSender, leadership: LeadershipWatch) -> Self {
        ShardHandle { inbox, leadership, policy_generations: PolicyGenerations::default() }
    }

    /// Which policy each group has here.
    pub(crate) fn policy_generations(&self) -> &PolicyGenerations {
        &self.policy_generations
    }

    /// Never blocks.
    pub(crate) fn send(&self, input: Input) -> Result<(), Overloaded> {
        self.inbox.offer(input).map_err(|_| Overloaded)
    }

    /// As [`ShardHandle::send`], for what is too dear to be made again: a full inbox gives it back.
    pub(crate) fn offer(&self, input: Input) -> Result<(), Box<Input>> {
        self.inbox.offer(input)
    }

    /// Operations of clients that wait, and how often any were refused for want of room.
    pub(crate) fn backlog(&self) -> (u64, u64) {
        let backlog = &self.inbox.backlog;
        let waiting = backlog.operations.load(Ordering::Relaxed) as u64;
        (waiting, backlog.refusals.load(Ordering::Relaxed))
    }

    /// By which the shard is woken.
    pub(crate) fn waker(&self) -> &Waker {
        &self.inbox.waker
    }

    /// The shard has ended; nothing that is sent will be answered.
    pub(crate) fn is_gone(&self) -> bool {
        self.leadership.is_closed()
    }

    /// Of a group that this node runs.
    pub(crate) fn leadership(&self, group: GroupId) -> Leadership {
        self.leadership.of(group).map(|known| *known.borrow()).unwrap_or_default()
    }

    /// Of a group that this node runs; of any other number the root group.
    pub(crate) fn watch_leadership(&self, group: GroupId) -> watch::Receiver<Leadership> {
        self.leadership.of(group).unwrap_or_else(|| self.leadership.root()).clone()
    }

    /// Of all groups, the root group first.
    pub(crate) fn watch_leaderships(&self) -> Vec<watch::Receiver<Leadership>> {
        self.leadership.all().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use holdfast_replica::NodeId;
    use tokio::sync::oneshot;

    use super::*;

    fn inspect() -> Input {
        Input::Inspect { with_digests: false, reply: oneshot::channel().0 }
    }

    #[test]
    fn clients_cannot_crowd_out_the_peers_and_are_welcome_again_when_there_is_room() {
        let (sender, mut inbox) = inbox().unwrap();
        let admitted = (0..INPUTS_MAX).filter(|_| sender.offer(inspect()).is_ok()).count();
        assert_eq!(admitted, CLIENT_INPUTS_MAX);
        assert_eq!(sender.backlog.refusals.load(Ordering::Relaxed), (INPUTS_MAX - admitted) as u64);
        assert!(sender.offer(Input::PeerRefuses(NodeId(2))).is_ok());
        assert_eq!(inbox.waiting().count(), CLIENT_INPUTS_MAX + 1);
        assert!(sender.offer(inspect()).is_ok());
    }

    fn frame(operations: usize) -> Input {
        Input::Frame {
            stream: holdfast_engine::StreamKey {
                group: GroupId::FIRST,
                session: holdfast_core::SessionId(1),
                stream: holdfast_core::StreamId(1),
            },
            operations: vec![
                (holdfast_core::RequestId(1), holdfast_core::Command::Tick);
                operations
            ],
            is_deferrable: false,
        }
    }

    #[test]
    fn a_turn_is_no_longer_for_many_large_frames_than_for_many_small_ones_and_none_is_lost() {
        for in_one in [1, 100, 1_000, 4_096] {
            let (sender, mut inbox) = inbox().unwrap();
            let offered = (0..CLIENT_OPERATIONS_MAX / in_one / 2)
                .filter(|_| sender.offer(frame(in_one)).is_ok())
                .count();
            let mut taken = 0;
            while taken < offered {
                let frames = inbox.take_turn();
                assert!(!frames.is_empty(), "{in_one}: {taken} of {offered} were taken in");
                taken += frames.len();
                let operations: usize = frames.iter().map(Input::operations_of_clients).sum();
                assert!(operations < OPERATIONS_PER_TURN_MAX + in_one, "{operations}");
            }
            assert!(inbox.take_turn().is_empty());
            assert_eq!(sender.backlog.operations.load(Ordering::Relaxed), 0);
        }
    }

    #[test]
    fn many_names_count_like_many_acquires() {
        use holdfast_core::command::{AcquireAll, Call, Member, Mode, Terms};
        use holdfast_core::{ActorId, Command, LockName, RequestId, SessionId};
        const NAMES: usize = 256;
        let members = (0..NAMES).map(|number| Member {
            name: LockName::new(&number.to_string()).unwrap(),
            mode: Mode::Exclusive,
        });
        let (session, request) = (SessionId(1), RequestId(1));
        let acquire = AcquireAll {
            call: Call { session, request, acked_through: RequestId(0) },
            actor: ActorId(0),
            members: members.collect(),
            terms: Terms::default(),
        };
        let frame = || Input::Frame {
            stream: holdfast_engine::StreamKey {
                group: GroupId::FIRST,
                session,
                stream: holdfast_core::StreamId(1),
            },
            operations: vec![(request, Command::AcquireAll(acquire.clone()))],
            is_deferrable: false,
        };
        let (sender, mut inbox) = inbox().unwrap();
        let taken = (0..INPUTS_MAX).filter(|_| sender.offer(frame()).is_ok()).count();
        assert_eq!(taken, CLIENT_OPERATIONS_MAX / NAMES);
        assert_eq!(inbox.take_turn().len(), OPERATIONS_PER_TURN_MAX / NAMES);
        assert_eq!(inbox.waiting().count(), taken - OPERATIONS_PER_TURN_MAX / NAMES);
        assert_eq!(sender.backlog.operations.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn frames_count_by_what_is_in_them() {
        let (sender, mut inbox) = inbox().unwrap();
        assert!(sender.offer(frame(CLIENT_OPERATIONS_MAX + 5)).is_ok());
        assert!(sender.offer(frame(1)).is_err());
        assert_eq!(inbox.waiting().count(), 1);
        assert!(sender.offer(frame(1)).is_ok());
    }
}
