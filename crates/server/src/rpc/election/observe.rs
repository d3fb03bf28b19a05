//! `Observe`: the watch of one lock, told as leaders and vacancies. Only exclusive holds lead.
//!
//! Caveat: what is granted in the entry of the log in which its predecessor ended leaves no vacancy. If more
//! happened in that entry than one frame of a watch tells, there may be one all the same.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use holdfast_proto::decode::lock_name;
use holdfast_proto::v1::observe_response::Change;
use holdfast_proto::v1::{
    EventKind, EventPosition, Failure, Leader, LockSummary, Mode, ObserveRequest, ObserveResponse,
    Vacancy, WatchEvent, WatchFrame,
};
use holdfast_service::{Caller, Method};
use tokio_stream::Stream;
use tonic::Status;

use super::super::Rpc;
use super::super::route::Destination;
use super::super::watch::{self, Frames, held_by};

pub(super) type Observed = Pin<Box<dyn Stream<Item = Result<ObserveResponse, Status>> + Send>>;

pub(in crate::rpc) async fn serve(
    rpc: &Rpc,
    caller: Caller,
    request: ObserveRequest,
) -> Result<Observed, Failure> {
    let permit = rpc.door.begin(Method::Observe)?;
    rpc.watch_open_rate.begin(&caller)?;
    let name = lock_name(&request.name)?;
    let group = rpc.membership.groups.owner_of(name.as_str());
    let ask = watch::WatchTarget::of_one(group, &name, request.after.as_ref())?;
    let ask = rpc.door.authorise(&caller, Method::Observe, ask.about())?.admit(ask);
    match rpc.destination(&caller, Method::Observe, group).await? {
        Destination::Here => {
            let frames = watch::follow(rpc, &caller, ask, permit);
            let observation = Observation::after(request.after_epoch);
            Ok(Box::pin(ObserveFrames { frames, observation, ready: VecDeque::new() }))
        }
        Destination::At(leader) => {
            let permits = [permit, rpc.door.begin_relay()?];
            let told =
                rpc.forwarding.stream((leader, None), &caller, Method::Observe, &request).await?;
            Ok(Box::pin(held_by(told, permits)))
        }
    }
}

/// A watch, told as an observation.
struct ObserveFrames {
    frames: Frames,
    observation: Observation,
    ready: VecDeque<ObserveResponse>,
}

impl Stream for ObserveFrames {
    type Item = Result<ObserveResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(told) = self.ready.pop_front() {
                return Poll::Ready(Some(Ok(told)));
            }
            match Pin::new(&mut self.frames).poll_next(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Ready(Some(Err(status))) => return Poll::Ready(Some(Err(status))),
                Poll::Ready(Some(Ok(frame))) => self.ready = self.observation.tell(frame),
            }
        }
    }
}

/// Who leads, as far as it was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Observation {
    /// 0: no leader.
    epoch: u64,
}

impl Observation {
    fn after(epoch: u64) -> Observation {
        Observation { epoch }
    }

    /// Each with the position from which to go on after it.
    fn tell(&mut self, frame: WatchFrame) -> VecDeque<ObserveResponse> {
        let mut told = VecDeque::new();
        if frame.snapshot_complete {
            told.push_back(at(frame.position, self.who_leads(frame.locks.into_iter().next())));
        }
        // The entry in which the last leader's time ended, and which was its epoch.
        let mut ended: Option<(Option<EventPosition>, u64)> = None;
        for event in frame.events.iter() {
            let position = event.position;
            if let Some(epoch) = self.ends_with(&event) {
                self.epoch = 0;
                ended = Some((position, epoch));
            } else if let Some(leader) = self.begins_with(event) {
                let in_one_step = |before: Option<EventPosition>| {
                    before.map(|before| before.index) == position.map(|position| position.index)
                };
                if let Some((before, epoch)) =
                    ended.take().filter(|(before, _)| !in_one_step(*before))
                {
                    told.push_back(at(before, vacancy(epoch)));
                }
                self.epoch = leader.epoch;
                told.push_back(at(position, Change::Leader(leader)));
            }
        }
        if let Some((_, epoch)) = ended {
            told.push_back(at(frame.position, vacancy(epoch)));
        } else if told.is_empty() {
            told.push_back(ObserveResponse { change: None, position: frame.position });
        }
        told
    }

    fn who_leads(&mut self, lock: Option<LockSummary>) -> Change {
        let led = lock.filter(|lock| lock.holder_count > 0 && lock.mode() == Mode::Exclusive);
        self.epoch = led.as_ref().map_or(0, |lock| lock.token);
        led.map_or(vacancy(0), |lock| {
            Change::Leader(Leader {
                value: lock.metadata,
                epoch: lock.token,
                public_session_id: lock.public_session_id,
            })
        })
    }

    /// The epoch of the leader whose time ends with this.
    fn ends_with(&self, event: &WatchEvent) -> Option<u64> {
        let ends = match event.kind() {
            EventKind::Released
            | EventKind::Expired
            | EventKind::Wounded
            | EventKind::Broken
            | EventKind::Transferred
            | EventKind::Killed => true,
            EventKind::Converted => event.mode() != Mode::Exclusive,
            _ => false,
        };
        (ends && self.epoch != 0 && event.token == self.epoch).then_some(self.epoch)
    }

    /// The leader that there is after this, if it tells something new.
    fn begins_with(&self, event: WatchEvent) -> Option<Leader> {
        let is_new = match event.kind() {
            EventKind::Granted | EventKind::Converted => event.mode() == Mode::Exclusive,
            EventKind::Proclaimed => event.token == self.epoch,
            _ => false,
        };
        is_new.then_some(Leader {
            value: event.metadata,
            epoch: event.token,
            public_session_id: event.public_session_id,
        })
    }
}

fn vacancy(last_epoch: u64) -> Change {
    Change::Vacancy(Vacancy { last_epoch })
}

fn at(position: Option<EventPosition>, change: Change) -> ObserveResponse {
    ObserveResponse { change: Some(change), position }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: EventKind, index: u64, token: u64, value: &str) -> WatchEvent {
        WatchEvent {
            kind: kind.into(),
            position: Some(EventPosition { group: 0, index, number: 0 }),
            mode: Mode::Exclusive.into(),
            token,
            metadata: value.into(),
            ..Default::default()
        }
    }

    fn tell(observation: &mut Observation, events: Vec<WatchEvent>) -> Vec<String> {
        let position = events.last().and_then(|event| event.position);
        let events = events.into();
        words(observation.tell(WatchFrame { events, position, ..Default::default() }))
    }

    fn words(told: VecDeque<ObserveResponse>) -> Vec<String> {
        let word = |told: ObserveResponse| match told.change {
            Some(Change::Leader(leader)) => {
                format!("{} {}", leader.epoch, String::from_utf8_lossy(&leader.value))
            }
            Some(Change::Vacancy(vacancy)) => format!("none after {}", vacancy.last_epoch),
            None => "nothing".to_owned(),
        };
        told.into_iter().map(word).collect()
    }

    #[test]
    fn the_snapshot_has_the_leader_and_shared_holders_do_not_lead() {
        let lock = |mode: Mode| LockSummary {
            holder_count: 1,
            mode: mode.into(),
            token: 7,
            metadata: b"a".to_vec(),
            ..Default::default()
        };
        for (locks, told) in [
            (vec![lock(Mode::Exclusive)], "7 a"),
            (vec![lock(Mode::Shared)], "none after 0"),
            (vec![LockSummary { waiter_count: 1, ..Default::default() }], "none after 0"),
            (vec![], "none after 0"),
        ] {
            let frame = WatchFrame { locks, snapshot_complete: true, ..Default::default() };
            assert_eq!(words(Observation::after(0).tell(frame)), [told]);
        }
    }

    #[test]
    fn each_leader_value_and_vacancy_is_sent_once() {
        let mut observation = Observation::after(0);
        let told = tell(
            &mut observation,
            vec![
                event(EventKind::Granted, 5, 7, "a"),
                event(EventKind::Proclaimed, 6, 7, "b"),
                event(EventKind::Expired, 7, 7, ""),
                event(EventKind::Granted, 9, 8, "c"),
                event(EventKind::Released, 10, 8, ""),
            ],
        );
        assert_eq!(told, ["7 a", "7 b", "none after 7", "8 c", "none after 8"]);
        assert_eq!(tell(&mut observation, vec![event(EventKind::Queued, 11, 0, "")]), ["nothing"]);
    }

    #[test]
    fn a_leader_that_follows_at_once_leaves_no_vacancy() {
        for end in [EventKind::Transferred, EventKind::Released, EventKind::Expired] {
            let events = vec![
                event(end, 5, 7, ""),
                event(EventKind::WaitEnded, 5, 0, ""),
                event(EventKind::Granted, 5, 8, "b"),
            ];
            assert_eq!(tell(&mut Observation::after(7), events), ["8 b"], "{end:?}");
        }
    }

    #[test]
    fn events_under_another_token_do_not_change_the_leader() {
        let mut observation = Observation::after(9);
        let events =
            vec![event(EventKind::Released, 5, 7, ""), event(EventKind::Proclaimed, 6, 7, "old")];
        assert_eq!(tell(&mut observation, events), ["nothing"]);
        let mut reader = event(EventKind::Granted, 7, 10, "reader");
        reader.mode = Mode::Shared.into();
        assert_eq!(tell(&mut observation, vec![reader]), ["nothing"]);
        let mut downgraded = event(EventKind::Converted, 8, 9, "");
        downgraded.mode = Mode::Shared.into();
        assert_eq!(tell(&mut observation, vec![downgraded]), ["none after 9"]);
    }
}
