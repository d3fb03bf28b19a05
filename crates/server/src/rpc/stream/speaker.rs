//! How the driver's answers reach the client of a stream: by the stream's task; or, on a plain connection, straight from the
//! driver's thread, if they are of the kinds that come by the thousand and nothing that was told before waits to be said.
//!
//! So the task sleeps through most answers. To wake it, and to let it look at all it listens to, costs more than to write them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use holdfast_proto::Guarantee;
use holdfast_proto::plain::FrameWriter;
use tokio::sync::mpsc;

use super::super::serve::RESPONSE_BYTES_MAX;
use super::frame::write_if_common;
use super::looks::Looks;
use super::pen::{AtOnce, Pen};
use super::view::View;
use crate::driver::{CutOff, Delivery, Outbox};

/// Lists of deliveries that wait for a slow reader. When it is full the driver lets the stream go.
const LISTS_MAX: usize = 1_024;

/// What a look shows can be long. To make more of it than this is for the task.
const BYTES_WITH_LOOKS_MAX: usize = 64 * 1024;

#[derive(Debug)]
pub(super) struct Speaker {
    lists: mpsc::Sender<Vec<Delivery>>,
    unsaid: Unsaid,
    /// Of a stream whose task has ended the connection is closed, whether the driver has heard of it or not.
    pen: Weak<Pen>,
    view: View,
    looks: Looks,
}

/// How many lists have been given to the task and are not written yet.
#[derive(Clone, Debug, Default)]
pub(super) struct Unsaid(Arc<AtomicUsize>);

impl Unsaid {
    pub(super) fn is_said(&self, lists: usize) {
        self.0.fetch_sub(lists, Ordering::Release);
    }
}

/// What the task takes from.
#[derive(Debug)]
pub(super) struct Lists {
    pub(super) lists: mpsc::Receiver<Vec<Delivery>>,
    pub(super) unsaid: Unsaid,
}

/// Of a plain connection, with what its answers are made of. Otherwise all is left to the task.
pub(super) fn outbox(plain: Option<(&Arc<Pen>, View, &Looks)>) -> (Box<dyn Outbox>, Lists) {
    let (sender, lists) = mpsc::channel(LISTS_MAX);
    let unsaid = Unsaid::default();
    let outbox: Box<dyn Outbox> = match plain {
        Some((pen, view, looks)) => {
            let (unsaid, pen, looks) = (unsaid.clone(), Arc::downgrade(pen), looks.clone());
            Box::new(Speaker { lists: sender, unsaid, pen, view, looks })
        }
        None => Box::new(sender),
    };
    (outbox, Lists { lists, unsaid })
}

impl Outbox for Speaker {
    fn put(&mut self, told: Vec<Delivery>) -> Result<(), CutOff> {
        self.unsaid.0.fetch_add(1, Ordering::Relaxed);
        self.lists.put(told)
    }

    fn say(&mut self, told: Vec<Delivery>, frame: &mut FrameWriter) -> Result<(), CutOff> {
        let written = self.write(&told, frame);
        frame.clear();
        match written {
            AtOnce::Written => Ok(()),
            AtOnce::Not => self.put(told),
            // There is nothing in it; but it wakes the task, and lets nobody write before.
            AtOnce::InPart => self.put(Vec::new()),
        }
    }
}

impl Speaker {
    fn write(&self, told: &[Delivery], frame: &mut FrameWriter) -> AtOnce {
        // Only this thread adds to it.
        if self.unsaid.0.load(Ordering::Acquire) > 0 {
            return AtOnce::Not;
        }
        if !told.iter().all(|delivery| self.write_into(frame, delivery)) {
            return AtOnce::Not;
        }
        let written = match (frame.finish(RESPONSE_BYTES_MAX), self.pen.upgrade()) {
            (Some(piece), Some(pen)) => pen.write_at_once(piece),
            _ => AtOnce::Not,
        };
        if written != AtOnce::Not {
            let is_look = |told: &&Delivery| matches!(told, Delivery::Status { .. });
            self.looks.end(told.iter().filter(is_look).count());
        }
        written
    }

    fn write_into(&self, frame: &mut FrameWriter, delivery: &Delivery) -> bool {
        match delivery {
            // The tier in memory may be busy for long.
            Delivery::Status { .. } if self.view.is_of_both_tiers() => false,
            Delivery::Status { request, name, answer: answer @ Ok(_) } => {
                frame.answer(&self.view.status(*request, name, answer));
                frame.bytes() <= BYTES_WITH_LOOKS_MAX
            }
            _ => write_if_common(frame, delivery, Guarantee::Linearizable),
        }
    }
}

#[cfg(test)]
mod tests {
    use holdfast_core::{LockName, LockStatus, LogicalTime, Outcome, ReleaseAnswer, RequestId};
    use holdfast_proto::plain::{self, Pieces};
    use holdfast_proto::v1::ServerFrame;
    use prost::Message;
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpStream;

    use super::super::pen::tests::connected;
    use super::*;
    use crate::driver::{Answer, ReadAnswer, ReadData, Unavailable};

    fn answer(request: u64, result: Result<Outcome, Unavailable>) -> Delivery {
        let answer = Answer { at: LogicalTime::from_ms(5), result };
        Delivery::Answer { request: RequestId(request), answer }
    }

    fn released(request: u64) -> Delivery {
        answer(request, Ok(Outcome::Release(ReleaseAnswer::Released)))
    }

    fn failed(request: u64) -> Delivery {
        answer(request, Err(Unavailable::Overloaded))
    }

    /// A connection, its other end, where its driver speaks, and what is left to its task.
    async fn speaking() -> (Arc<Pen>, TcpStream, Box<dyn Outbox>, Lists) {
        let (pen, other) = connected().await;
        let pen = Arc::new(pen);
        let (outbox, task) = outbox(Some((&pen, View::of_nothing(), &Looks::default())));
        (pen, other, outbox, task)
    }

    /// The requests that were answered, frame by frame.
    async fn answered(mut other: TcpStream) -> Vec<Vec<u64>> {
        let (mut pieces, mut seen) = (Pieces::new(RESPONSE_BYTES_MAX), Vec::new());
        while other.read_buf(pieces.room()).await.unwrap() > 0 {
            while let Some(piece) = pieces.next_piece().unwrap() {
                assert_eq!(piece.kind, plain::FRAME);
                let frame = ServerFrame::decode(piece.message).unwrap();
                seen.push(frame.answers.iter().map(|answer| answer.request_id).collect());
            }
        }
        seen
    }

    #[tokio::test]
    async fn what_is_told_after_something_for_the_task_waits_until_that_is_said() {
        let (pen, other, mut outbox, mut task) = speaking().await;
        let mut frame = FrameWriter::default();
        let mut say = |told: Vec<Delivery>| {
            outbox.say(told, &mut frame).unwrap();
            assert!(frame.is_empty());
        };
        say(vec![released(1), released(2)]);
        // Such a failure may end the stream: that is the task's to know.
        say(vec![released(3), failed(4)]);
        say(vec![released(5)]);
        let for_task = |task: &mut Lists| {
            let told = std::iter::from_fn(|| task.lists.try_recv().ok());
            told.map(|list| list.len()).collect::<Vec<_>>()
        };
        assert_eq!(for_task(&mut task), [2, 1]);
        // They are taken, but not written yet.
        say(vec![released(6)]);
        task.unsaid.is_said(2);
        say(vec![released(7)]);
        assert_eq!(for_task(&mut task), [1, 1]);
        task.unsaid.is_said(2);
        say(vec![released(8)]);
        pen.end();
        assert_eq!(answered(other).await, [vec![1, 2], vec![8]]);
    }

    #[tokio::test]
    async fn looks_are_answered_at_once_and_make_room_for_others() {
        let (pen, other) = connected().await;
        let (pen, looks) = (Arc::new(pen), Looks::default());
        let (mut outbox, mut task) = outbox(Some((&pen, View::of_nothing(), &looks)));
        let status = |request, answer| {
            let name = LockName::new("wallet").unwrap();
            Delivery::Status { request: RequestId(request), name, answer }
        };
        let seen = || {
            let data = ReadData::Status(LockStatus::default());
            Ok(Box::new(ReadAnswer { at: LogicalTime::from_ms(5), applied_index: 7, data }))
        };
        while looks.begin() {}
        let mut frame = FrameWriter::default();
        outbox.say(vec![status(1, seen()), released(2), status(3, seen())], &mut frame).unwrap();
        assert_eq!([looks.begin(), looks.begin(), looks.begin()], [true, true, false]);
        // What went wrong is the task's to tell, and its looks end with its frame.
        outbox.say(vec![status(4, Err(Unavailable::Overloaded))], &mut frame).unwrap();
        assert_eq!(task.lists.try_recv().unwrap().len(), 1);
        assert!(!looks.begin());
        pen.end();
        assert_eq!(answered(other).await, [[1, 2, 3]]);
    }

    #[tokio::test]
    async fn a_frame_that_is_written_in_part_wakes_the_task_for_the_rest() {
        let (pen, other, mut outbox, mut task) = speaking().await;
        let mut frame = FrameWriter::default();
        let mut said = 0;
        let rest = loop {
            let list = (0..4_096).map(|number| released(said * 4_096 + number)).collect();
            outbox.say(list, &mut frame).unwrap();
            said += 1;
            if let Ok(list) = task.lists.try_recv() {
                break list;
            }
        };
        let reading = tokio::spawn(answered(other));
        let begun = if rest.is_empty() { said } else { said - 1 };
        pen.write(&[]).await.unwrap();
        pen.end();
        let answered = reading.await.unwrap().concat();
        assert_eq!(answered, (0..begun * 4_096).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn without_a_pen_all_is_left_to_the_task_and_a_slow_one_is_cut_off() {
        let (mut outbox, mut task) = outbox(None);
        let mut frame = FrameWriter::default();
        for number in 0..LISTS_MAX as u64 {
            assert_eq!(outbox.say(vec![released(number)], &mut frame), Ok(()));
        }
        assert_eq!(outbox.say(vec![released(0)], &mut frame), Err(CutOff::SlowReader));
        task.lists.close();
        assert_eq!(outbox.put(vec![released(0)]), Err(CutOff::Gone));
    }
}
