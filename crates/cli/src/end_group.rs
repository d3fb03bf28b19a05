//! Ends the command's process group: SIGTERM, the grace, SIGKILL. Then it waits until nothing of the group runs.
//!
//! SIGKILL takes effect when the kernel gets to it: a process of the group may run on for a moment, or hang in a system
//! call. So the lock is not given back after the signal, but after the group is gone. While the lock is held, it is kept
//! until then. Once it is lost, the wait is short: the companion takes over ([`GroupEnd::StillRunning`]).

use std::io;
use std::pin::pin;
use std::time::Duration;

use nix::sys::signal::Signal;
use tokio::time::{sleep, timeout};

/// How long the group may take to be gone after SIGKILL. Processes that hang in the kernel take longer.
const KILLED_PATIENCE: Duration = Duration::from_secs(1);

const STUCK: &str =
    "some processes of the command do not end; the lock is kept until they are gone";

/// A process group that works under a lock.
pub(crate) trait ProcessGroup {
    /// To the whole group. It may have ended in the meantime.
    fn send(&self, signal: Signal);

    /// Waits until the command itself has ended. Safe to drop and call again.
    async fn ended(&mut self) -> io::Result<Ended>;

    /// Waits until nothing of the group runs. To be called after the command itself has ended.
    async fn is_gone(&self);
}

/// How the command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    Exited(u8),
    BySignal(u8),
}

impl Ended {
    /// As shells report it.
    pub(crate) fn exit_code(self) -> u8 {
        match self {
            Ended::Exited(code) => code,
            Ended::BySignal(number) => 128u8.saturating_add(number),
        }
    }
}

/// Whether the work under the lock is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum GroupEnd {
    Gone,
    /// It was killed, and the kernel has not ended all of it yet.
    StillRunning,
}

pub(crate) fn ask_to_end(group: &impl ProcessGroup) {
    group.send(Signal::SIGTERM);
    // One that was stopped could not even see the signal.
    group.send(Signal::SIGCONT);
}

/// All of the group was asked to end, and has the grace for it. What is left of it then is killed.
pub(crate) async fn end_within(
    grace: Duration,
    group: &mut impl ProcessGroup,
) -> io::Result<GroupEnd> {
    match timeout(grace, all_ended(group)).await {
        Ok(ended) => ended.map(|()| GroupEnd::Gone),
        Err(_) => kill(group).await,
    }
}

/// As [`end_within`], while the lock is held: then it returns after the group is gone, however long that takes. What is
/// left when the lock is lost is killed at once. The lease may be renewed meanwhile; that gives the group the rest of
/// the grace.
pub(crate) async fn end_while_held<L>(
    grace: Duration,
    group: &mut impl ProcessGroup,
    lost: impl Future<Output = L>,
    say: impl Fn(&str),
) -> io::Result<(GroupEnd, Option<L>)> {
    let mut lost = pin!(lost);
    let reason = tokio::select! {
        biased;
        ended = all_ended(group) => return ended.map(|()| (GroupEnd::Gone, None)),
        reason = &mut lost => Some(reason),
        () = sleep(grace) => None,
    };
    if reason.is_some() {
        return Ok((kill(group).await?, reason));
    }
    group.send(Signal::SIGKILL);
    let mut is_said = false;
    loop {
        tokio::select! {
            biased;
            ended = all_ended(group) => return ended.map(|()| (GroupEnd::Gone, None)),
            reason = &mut lost => return Ok((GroupEnd::StillRunning, Some(reason))),
            () = sleep(KILLED_PATIENCE), if !is_said => {
                is_said = true;
                say(STUCK);
            }
        }
    }
}

pub(crate) async fn kill(group: &mut impl ProcessGroup) -> io::Result<GroupEnd> {
    group.send(Signal::SIGKILL);
    match timeout(KILLED_PATIENCE, all_ended(group)).await {
        Ok(ended) => ended.map(|()| GroupEnd::Gone),
        Err(_) => Ok(GroupEnd::StillRunning),
    }
}

async fn all_ended(group: &mut impl ProcessGroup) -> io::Result<()> {
    group.ended().await?;
    group.is_gone().await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::future::{pending, poll_fn};
    use std::pin::Pin;
    use std::task::Poll;

    use tokio::sync::{Notify, oneshot, watch};

    use super::*;

    /// The command itself has ended. Something of its group ends only when the test says so.
    struct DiesLate {
        sent: RefCell<Vec<Signal>>,
        was_killed: Notify,
        is_gone: watch::Receiver<bool>,
    }

    impl DiesLate {
        fn new() -> (DiesLate, watch::Sender<bool>) {
            let (end, is_gone) = watch::channel(false);
            let (sent, was_killed) = (RefCell::default(), Notify::new());
            (DiesLate { sent, was_killed, is_gone }, end)
        }
    }

    impl ProcessGroup for &DiesLate {
        fn send(&self, signal: Signal) {
            self.sent.borrow_mut().push(signal);
            if signal == Signal::SIGKILL {
                self.was_killed.notify_one();
            }
        }

        async fn ended(&mut self) -> io::Result<Ended> {
            Ok(Ended::BySignal(Signal::SIGUSR1 as u8))
        }

        async fn is_gone(&self) {
            let _ = self.is_gone.clone().wait_for(|is_gone| *is_gone).await;
        }
    }

    async fn poll_once<F: Future>(mut future: Pin<&mut F>) -> Poll<F::Output> {
        poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await
    }

    #[tokio::test]
    async fn the_end_of_a_group_that_was_killed_is_awaited_while_the_lock_is_held() {
        let (group, end) = DiesLate::new();
        let mut ours = &group;
        let mut ending = pin!(end_while_held(Duration::ZERO, &mut ours, pending::<()>(), |_| ()));
        tokio::select! {
            biased;
            ended = &mut ending => panic!("{ended:?}, and a process of the group runs"),
            () = group.was_killed.notified() => {}
        }
        assert!(poll_once(ending.as_mut()).await.is_pending(), "a process of the group runs");
        end.send(true).unwrap();
        assert_eq!(ending.await.unwrap(), (GroupEnd::Gone, None));
        assert_eq!(*group.sent.borrow(), [Signal::SIGKILL]);
    }

    #[tokio::test]
    async fn a_lock_that_is_lost_ends_the_wait_for_a_group_that_was_killed() {
        let (group, _end) = DiesLate::new();
        let (lose, lost) = oneshot::channel();
        let mut ours = &group;
        let mut ending = pin!(end_while_held(Duration::ZERO, &mut ours, lost, |_| ()));
        tokio::select! {
            biased;
            ended = &mut ending => panic!("{ended:?}, and the lock is held"),
            () = group.was_killed.notified() => {}
        }
        lose.send("expired").unwrap();
        assert_eq!(ending.await.unwrap(), (GroupEnd::StillRunning, Some(Ok("expired"))));
    }

    #[tokio::test]
    async fn a_group_that_outlives_a_loss_and_sigkill_is_not_taken_for_gone() {
        let (group, _end) = DiesLate::new();
        assert_eq!(kill(&mut &group).await.unwrap(), GroupEnd::StillRunning);
        let (group, end) = DiesLate::new();
        end.send(true).unwrap();
        assert_eq!(kill(&mut &group).await.unwrap(), GroupEnd::Gone);
    }
}
