//! How the simulation names the callers and streams of an engine, and how it tells clients what the engine says.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use holdfast_core::{Command, Outcome, Rejection, RequestId, SessionId, Span, StreamId};
use holdfast_engine::{Answer as EngineAnswer, Delivery, Host, ReadAnswer, ReadData, StreamKey};
use holdfast_engine::{TouchesAnswer, Unavailable, Wait};

use holdfast_replica::GroupId;

use super::Output;
use crate::message::{Answer, AnswerBody, Notice, Refusal, ReplyTo, session_of};

#[derive(Debug)]
pub(super) struct SimHost;

/// Who waits for the answer to a command.
#[derive(Debug)]
pub(super) enum Caller {
    Client(ReplyTo),
    /// What tells how far events are published.
    Publisher(GroupId, PublishedMark),
    /// It looks at the table instead.
    Administrator,
}

/// What a leader said last of how far events are published, in its term.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PublishedMark {
    pub(super) term: u64,
    pub(super) through: u64,
}

/// Who waits for a read.
#[derive(Debug)]
pub(super) enum Reader {
    Client(ReplyTo),
    Backup,
}

/// A stream, and the client at its other end.
#[derive(Debug)]
pub(super) struct ClientStream {
    pub(super) key: StreamKey,
    pub(super) client: usize,
}

impl Host for SimHost {
    type Call = Caller;
    type Read = Reader;
    type Touches = ReplyTo;
    type Change = u64;
    type HandOver = ();
    type Stream = ClientStream;
    type Mark = ();

    fn asked(&mut self, _: &Command, _: Option<Wait>) {}
}

/// What the simulation knows of those who wait, in order to find out whether the engine forgets or deceives any.
#[derive(Debug, Default)]
pub(super) struct CallLedger {
    last_number: u64,
    /// What was sent on streams, by the number under which the engine answers it.
    sendings: BTreeMap<RequestId, ReplyTo>,
    /// Calls without an answer. Of several copies of a request the engine may drop all but one.
    calls: BTreeSet<Wait>,
    /// Open streams.
    streams: BTreeMap<SessionId, BTreeSet<StreamId>>,
    /// Whose heartbeats may wait.
    pub(super) deferrable: BTreeSet<StreamKey>,
    /// Since when heartbeats of these sessions wait to be carried out.
    pub(super) deferred: BTreeMap<SessionId, Duration>,
    pub(super) turn_began: Duration,
    /// Requests that were refused because the disk is full, and have not come again.
    refused: BTreeSet<Wait>,
    /// Callers or streams were told that this node has lost the leadership of the group.
    told_of_loss: bool,
}

/// A heartbeat waits for a tick.
const DEFERRED_FOR_MAX: Duration = Duration::from_secs(5);

impl CallLedger {
    /// A request comes on a stream. Gives the number under which it is answered.
    pub(super) fn sent(&mut self, reply_to: ReplyTo) -> RequestId {
        let wait = (reply_to.session, reply_to.request);
        self.refused.remove(&wait);
        // A copy on a stream takes the place of a call that waits.
        self.calls.remove(&wait);
        self.last_number += 1;
        self.sendings.insert(RequestId(self.last_number), reply_to);
        RequestId(self.last_number)
    }

    pub(super) fn called(&mut self, reply_to: ReplyTo) {
        let wait = (reply_to.session, reply_to.request);
        self.refused.remove(&wait);
        self.calls.insert(wait);
    }

    /// A heartbeat comes that may be deferred. An engine that is halted refuses it at once. Its client sees nothing of
    /// that if the stream ends in the same turn.
    pub(super) fn heartbeat(&mut self, session: SessionId, now: Duration, is_halted: bool) {
        if !is_halted {
            self.deferred.entry(session).or_insert(now);
        }
    }

    /// Tells whether it was not open before.
    pub(super) fn opens(&mut self, key: StreamKey) -> bool {
        self.streams.entry(key.session).or_default().insert(key.stream)
    }

    pub(super) fn closed(&mut self, key: StreamKey) {
        self.deferrable.remove(&key);
        if let Some(streams) = self.streams.get_mut(&key.session) {
            streams.remove(&key.stream);
        }
    }

    pub(super) fn answer_call(&mut self, reply_to: ReplyTo, answer: EngineAnswer) -> Output {
        self.calls.remove(&(reply_to.session, reply_to.request));
        self.answer(reply_to, answer)
    }

    fn answer(&mut self, reply_to: ReplyTo, answer: EngineAnswer) -> Output {
        if answer.result.is_err() {
            self.deferred.remove(&reply_to.session);
        }
        self.told_of_loss |= matches!(answer.result, Err(Unavailable::LeadershipLost { .. }));
        if answer.result == Err(Unavailable::OutOfSpace) {
            self.refused.insert((reply_to.session, reply_to.request));
        }
        let what = match answer.result {
            Ok(outcome) => AnswerBody::Outcome { at: answer.at, outcome, losses: Vec::new() },
            Err(reason) => AnswerBody::Refused(refusal(reason)),
        };
        Output::Answer(Box::new(Answer { reply_to, what }))
    }

    /// One list of a stream. What was lost comes with the answer that resumes the session, in one frame.
    pub(super) fn deliver(
        &mut self,
        stream: &ClientStream,
        list: Vec<Delivery>,
        outputs: &mut Vec<Output>,
    ) {
        let ClientStream { key, client } = *stream;
        let notice = |notice| Output::Notice { client, session: key.session, notice };
        for delivery in list {
            match delivery {
                Delivery::Answer { request, answer } => {
                    if let Some(reply_to) = self.sendings.remove(&request) {
                        outputs.push(self.answer(reply_to, answer));
                    }
                }
                Delivery::Status { request, answer, .. } => {
                    if let Some(reply_to) = self.sendings.remove(&request) {
                        outputs.push(status(reply_to, answer.map(|answer| *answer)));
                    }
                }
                Delivery::Queued { request, .. } => {
                    if let Some(reply_to) = self.sendings.get(&request) {
                        let answer = Answer { reply_to: *reply_to, what: AnswerBody::Queued };
                        outputs.push(Output::Answer(Box::new(answer)));
                    }
                }
                Delivery::Losses(lost) => {
                    if let Some(Output::Answer(answer)) = outputs.last_mut()
                        && let AnswerBody::Outcome { losses, .. } = &mut answer.what
                    {
                        *losses = lost;
                    }
                }
                Delivery::HoldEnded { name, acquire, .. } => {
                    outputs.extend(self.complaint_about_notice(key));
                    outputs.push(notice(Notice::HoldEnded { name, acquire }));
                }
                Delivery::SessionEnded { .. } => {
                    outputs.extend(self.complaint_about_notice(key));
                    outputs.push(notice(Notice::SessionEnded));
                }
                Delivery::LeaderMoved { leader } => {
                    self.closed(key);
                    self.told_of_loss = true;
                    outputs.push(notice(Notice::LeaderMoved { leader }));
                }
                Delivery::MembersChanged => {}
            }
        }
    }

    /// A client reads its newest stream, and may have left the others.
    fn complaint_about_notice(&self, key: StreamKey) -> Option<Output> {
        let newest = *self.streams.get(&key.session)?.last()?;
        (key.stream < newest).then(|| {
            let what = format!("{key:?} gets a notice, though {newest:?} is open");
            Output::Broken { checker: "streams", what }
        })
    }

    /// A node that does not lead has no parked callers: it has told them all.
    pub(super) fn complaint_about_forgotten(&mut self) -> Option<Output> {
        self.sendings.clear();
        self.deferred.clear();
        let forgotten = std::mem::take(&mut self.calls);
        (!forgotten.is_empty()).then(|| {
            let what = format!("it leads no more, and has not told the callers of {forgotten:?}");
            Output::Broken { checker: "callers", what }
        })
    }

    /// The host hears of it after the callers do.
    pub(super) fn leadership_changed(&mut self) {
        self.told_of_loss = false;
    }

    /// A node that still leads a group, whatever happens to other groups, tells no caller that it does not.
    pub(super) fn complaint_about_wrong_loss(&mut self, group: GroupId) -> Option<Output> {
        std::mem::take(&mut self.told_of_loss).then(|| {
            let what = format!(
                "it told callers of group {group} that it had lost a leadership which it has"
            );
            Output::Broken { checker: "blast-radius", what }
        })
    }

    /// A leader that has nothing left to do has carried out the heartbeats that waited.
    pub(super) fn complaint_about_deferred(&mut self) -> Option<Output> {
        let is_old = |at: &Duration| self.turn_began.saturating_sub(*at) > DEFERRED_FOR_MAX;
        let (session, at) = self.deferred.iter().find(|(_, at)| is_old(at))?;
        let what =
            format!("a heartbeat of {session:?} was deferred at {at:?} and is not in the log");
        self.deferred.clear();
        Some(Output::Broken { checker: "callers", what })
    }

    /// A leader proposes these. What it said it had not done must not be among them.
    pub(super) fn complaint_about_entry(&mut self, commands: &[Command]) -> Option<Output> {
        for command in commands {
            if let Command::Touch { session, .. } = command {
                self.deferred.remove(session);
            }
        }
        if self.refused.is_empty() {
            return None;
        }
        let waits = commands.iter().filter_map(Command::wait);
        let mut waits = waits.map(|call| (call.session, call.request));
        let wait = waits.find(|wait| self.refused.contains(wait))?;
        let what = format!("it refused {wait:?} for want of space, and proposes it all the same");
        Some(Output::Broken { checker: "refusals", what })
    }
}

pub(super) fn status(reply_to: ReplyTo, answer: Result<ReadAnswer, Unavailable>) -> Output {
    let what = match answer.map(|answer| (answer.at, answer.data)) {
        Ok((at, ReadData::Refused(rejection))) => {
            AnswerBody::Outcome { at, outcome: Outcome::Rejected(rejection), losses: Vec::new() }
        }
        Ok((_, ReadData::Status(status))) => {
            let holder = status.holders.first();
            AnswerBody::Status {
                holder: holder.map(|holder| (session_of(holder.session), holder.token)),
                waiters: status.waiter_count as u64,
                waiter: status.waiters.last().map(|waiter| waiter.session),
            }
        }
        Ok(_) => AnswerBody::Refused(Refusal::Overloaded),
        Err(reason) => AnswerBody::Refused(refusal(reason)),
    };
    Output::Answer(Box::new(Answer { reply_to, what }))
}

/// The answer says how much time the session has left. This client counts on the whole TTL, so it takes no less for a
/// heartbeat that was heard.
pub(super) fn touched(reply_to: ReplyTo, answer: TouchesAnswer, whole: Option<Span>) -> Output {
    let what = match answer {
        Ok(touched) if touched.ttls.first().copied().flatten() < whole => {
            AnswerBody::Refused(Refusal::Overloaded)
        }
        Ok(touched) => {
            let ttl = touched.ttls.first().copied().flatten();
            let unknown = Outcome::Rejected(Rejection::UnknownSession);
            let outcome = ttl.map_or(unknown, |ttl| Outcome::Touched { ttl, departures: None });
            AnswerBody::Outcome { at: touched.at, outcome, losses: Vec::new() }
        }
        Err(reason) => AnswerBody::Refused(refusal(reason)),
    };
    Output::Answer(Box::new(Answer { reply_to, what }))
}

fn refusal(reason: Unavailable) -> Refusal {
    match reason {
        Unavailable::NotLeader { leader } | Unavailable::LeadershipLost { leader } => {
            Refusal::Elsewhere { leader }
        }
        Unavailable::OutOfSpace => Refusal::OutOfSpace,
        Unavailable::Overloaded | Unavailable::ShuttingDown => Refusal::Overloaded,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SESSION: SessionId = SessionId(7);

    /// What is found 6 s after a heartbeat came.
    fn complaint(is_halted: bool) -> Option<Output> {
        let mut ledger = CallLedger::default();
        ledger.heartbeat(SESSION, Duration::from_secs(1), is_halted);
        ledger.closed(StreamKey { group: GroupId::FIRST, session: SESSION, stream: StreamId(1) });
        ledger.turn_began = Duration::from_secs(7);
        ledger.complaint_about_deferred()
    }

    #[test]
    fn a_deferred_heartbeat_that_is_never_proposed_is_found_though_its_stream_has_ended() {
        assert!(matches!(complaint(false), Some(Output::Broken { checker: "callers", .. })));
    }

    #[test]
    fn a_caller_that_is_told_of_a_lost_leadership_is_found_unless_the_leadership_has_changed() {
        let reply_to = ReplyTo {
            client: 0,
            group: GroupId(2),
            session: SESSION,
            stream: None,
            request: RequestId(1),
            sent: crate::history::RealTime(0),
            via: None,
        };
        for has_changed in [false, true] {
            let mut ledger = CallLedger::default();
            let lost = Unavailable::LeadershipLost { leader: None };
            ledger.answer_call(reply_to, EngineAnswer::failed(lost));
            if has_changed {
                ledger.leadership_changed();
            }
            let complaint = ledger.complaint_about_wrong_loss(GroupId(2));
            assert_eq!(complaint.is_none(), has_changed);
            assert!(ledger.complaint_about_wrong_loss(GroupId(2)).is_none(), "once");
        }
    }

    #[test]
    fn a_heartbeat_that_a_halted_engine_refused_is_not_deferred() {
        assert!(complaint(true).is_none());
    }
}
