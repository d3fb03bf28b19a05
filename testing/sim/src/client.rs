//! A simulated client. It does what the client library does, over the simulated network: one session at
//! a time, retries under the same request id, heartbeats at a third of the TTL, the library's own lease
//! logic to know how long it may believe in its locks.
//!
//! It is driven by [`Client::think`] (do something), [`Client::timer`] (no answer came) and
//! [`Client::receive`]; what it wants done comes out as [`Output`]s. Who drives it keeps back its input
//! while it is paused.

mod answers;
mod ask;
mod choose;
mod operate;
mod session;

use std::collections::BTreeMap;

use holdfast_client_core::lease::LocalTime;
use holdfast_core::{FenceToken, LockName, PublicSessionId, RequestId, SessionId, Span, StreamId};

use self::ask::Ask;
use self::choose::Choice;
use self::session::{Pending, Session};
use crate::clock::LocalClock;
use crate::history::RealTime;
use crate::message::{Body, BrokenStream, ReplyTo, Request, session_of};
use crate::names::Names;
use crate::recorder::Recorder;
use crate::rng::Rng;

#[derive(Debug)]
pub(crate) struct Client {
    index: usize,
    clock: LocalClock,
    rng: Rng,
    /// Those that it was told of.
    pub(crate) nodes: Vec<usize>,
    names: Names,
    /// What it last saw of each lock.
    seen: BTreeMap<LockName, Seen>,
    session: Option<Session>,
    sessions_begun: u64,
    streams_begun: u64,
    /// The node that it believes to lead.
    leader: usize,
    /// Who leads, as a node said that does not.
    hint: Option<usize>,
    pub(crate) paused: u32,
    /// It stopped for ever, without a word.
    pub(crate) dead: bool,
    /// It starts nothing new.
    pub(crate) draining: bool,
}

/// What a read told.
#[derive(Clone, Copy, Debug)]
struct Seen {
    holder: Option<(SessionId, FenceToken)>,
    /// One of those who wait.
    waiter: Option<PublicSessionId>,
}

#[derive(Debug)]
pub(crate) enum Output {
    Send {
        to: usize,
        request: Box<Request>,
    },
    /// Call [`Client::timer`] after this much real time.
    Timer {
        after_us: u64,
        timer: Timer,
    },
    Write {
        after_us: u64,
        write: Write,
    },
    StreamBroke {
        node: usize,
        broken: BrokenStream,
    },
}

/// Which sending of which request a timer is about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timer {
    session: SessionId,
    request: RequestId,
    attempt: u32,
}

/// A write on its way to the protected resource.
#[derive(Clone, Debug)]
pub(crate) struct Write {
    pub(crate) believed: RealTime,
    pub(crate) session: SessionId,
    pub(crate) name: LockName,
    pub(crate) token: FenceToken,
    pub(crate) clock_stood_still: bool,
}

impl Client {
    pub(crate) fn new(
        index: usize,
        clock: LocalClock,
        rng: Rng,
        nodes: Vec<usize>,
        names: Names,
    ) -> Client {
        Client {
            index,
            clock,
            rng,
            nodes,
            names,
            seen: BTreeMap::new(),
            session: None,
            sessions_begun: 0,
            streams_begun: 0,
            leader: 0,
            hint: None,
            paused: 0,
            dead: false,
            draining: false,
        }
    }

    /// Does something, perhaps. Gives the real time until it thinks again.
    pub(crate) fn think(
        &mut self,
        now: RealTime,
        pace_us: u64,
        recorder: &mut Recorder,
        outputs: &mut Vec<Output>,
    ) -> u64 {
        let local = self.local(now);
        match self.session.take() {
            None if self.draining => {}
            None => self.open(now, recorder, outputs),
            Some(mut session) => {
                self.write_under_locks(&session, now, local, outputs);
                let choice = match self.choose(&session, local) {
                    Choice::Nothing if self.draining => self.choose_last(&session),
                    choice => choice,
                };
                if !matches!(choice, Choice::Abandon) {
                    self.act(&mut session, choice, now, recorder, outputs);
                    self.session = Some(session);
                }
            }
        }
        self.pause_us(local, pace_us)
    }

    /// Until it thinks again: some time, or just as long as a lease lasts.
    fn pause_us(&mut self, local: LocalTime, pace_us: u64) -> u64 {
        let pause_us = 1_000 + self.rng.around(pace_us);
        let last_moment = self.session.as_ref().and_then(|session| session.last_moment(local));
        match last_moment {
            Some(left) if self.rng.percent(50) => pause_us.min(self.clock.real_us_of(left)),
            _ => pause_us,
        }
    }

    /// No answer came to a sending: the same again, to another node.
    pub(crate) fn timer(&mut self, now: RealTime, timer: Timer, outputs: &mut Vec<Output>) {
        let Some(mut session) = self.session.take() else { return };
        let is_due = session.id == timer.session
            && session
                .pending
                .get(&timer.request)
                .is_some_and(|pending| pending.attempt == timer.attempt);
        if is_due {
            self.leader = self.hint.take().unwrap_or_else(|| self.any_node());
            self.send(&mut session, timer.request, now, outputs);
        }
        self.session = Some(session);
    }

    pub(crate) fn stop_clock(&mut self, now: RealTime) {
        self.clock.stop(now);
        if let Some(session) = &mut self.session {
            session.clock_stood_still = true;
        }
    }

    pub(crate) fn start_clock(&mut self, now: RealTime) {
        self.clock.go_on(now);
    }

    pub(crate) fn leap_clock(&mut self, ahead_us: u64) {
        self.clock.leap(ahead_us);
    }

    /// Its operations have other numbers in the history from now on.
    pub(crate) fn operations_moved(&mut self, moved: &BTreeMap<usize, usize>) {
        let pending = self.session.iter_mut().flat_map(|session| session.pending.values_mut());
        for pending in pending {
            if let Some(now) = moved.get(&pending.operation) {
                pending.operation = *now;
            }
        }
    }

    /// The process ends without a word.
    pub(crate) fn die(&mut self) {
        self.dead = true;
        self.session = None;
    }

    /// Everything that it asked has an answer.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.session.as_ref().is_none_or(|session| session.pending.is_empty())
    }

    /// What it waits for, for people.
    pub(crate) fn unanswered(&self) -> Vec<String> {
        let pending = self.session.iter().flat_map(|session| &session.pending);
        pending.map(|(request, pending)| format!("{} {:?}", request.0, pending.ask)).collect()
    }

    fn local(&self, now: RealTime) -> LocalTime {
        LocalTime(self.clock.at(now))
    }

    fn open(&mut self, now: RealTime, recorder: &mut Recorder, outputs: &mut Vec<Output>) {
        self.sessions_begun += 1;
        let public = PublicSessionId((self.index as u64 + 1) << 32 | self.sessions_begun);
        let ttl = Span::from_ms(self.rng.between(10_000, 60_000));
        let short = Span::from_ms(self.rng.between(500, 5_000));
        let mut session = Session {
            id: session_of(public),
            public,
            ttl,
            linger: if self.rng.percent(20) { short } else { ttl },
            stream: self.next_stream(),
            stream_node: self.leader,
            is_unary: self.rng.percent(25),
            is_stream_broken: false,
            leases: None,
            holds: Default::default(),
            pending: Default::default(),
            last_request: RequestId(0),
            closing: false,
            given_back: None,
            clock_stood_still: self.clock.is_stopped(),
            since: None,
        };
        let stream = (!session.is_unary).then_some(session.stream);
        let linger = session.linger;
        let open = Ask::Open { public: session.public, stream, ttl, linger };
        self.ask(&mut session, open, now, recorder, outputs);
        self.session = Some(session);
    }

    fn act(
        &mut self,
        session: &mut Session,
        choice: Choice,
        now: RealTime,
        recorder: &mut Recorder,
        outputs: &mut Vec<Output>,
    ) {
        match choice {
            Choice::Nothing | Choice::Abandon => {}
            Choice::Ask(ask) => {
                self.ask(session, ask, now, recorder, outputs);
            }
            Choice::AcquireAndCancel(acquire) => {
                let target = self.ask(session, acquire, now, recorder, outputs);
                self.ask(session, Ask::Cancel { target }, now, recorder, outputs);
            }
            Choice::BreakStream { comes_back } => {
                let broken = BrokenStream { session: session.id, stream: session.stream };
                outputs.push(Output::StreamBroke { node: session.stream_node, broken });
                session.is_stream_broken = true;
                if comes_back {
                    self.attach(session, now, recorder, outputs);
                }
            }
            Choice::NoticeBrokenStream => self.attach(session, now, recorder, outputs),
        }
    }

    fn attach(
        &mut self,
        session: &mut Session,
        now: RealTime,
        recorder: &mut Recorder,
        outputs: &mut Vec<Output>,
    ) {
        session.stream = self.next_stream();
        session.stream_node = self.leader;
        session.is_stream_broken = false;
        let stream = session.stream;
        self.ask(session, Ask::Attach { stream }, now, recorder, outputs);
    }

    fn any_node(&mut self) -> usize {
        self.rng.pick(&self.nodes).copied().unwrap_or(self.leader)
    }

    fn next_stream(&mut self) -> StreamId {
        self.streams_begun += 1;
        StreamId((self.index as u64 + 1) << 32 | self.streams_begun)
    }

    fn ask(
        &mut self,
        session: &mut Session,
        ask: Ask,
        now: RealTime,
        recorder: &mut Recorder,
        outputs: &mut Vec<Output>,
    ) -> RequestId {
        session.no_longer_believes(&ask);
        let request = session.next_request();
        let operation = recorder.invoke(now, session.id, request, ask.input());
        let pending =
            Pending { ask, operation, first_sent: self.local(now), last_sent: now, attempt: 0 };
        session.renewal_goes_out(request, &pending);
        session.pending.insert(request, pending);
        self.send(session, request, now, outputs);
        request
    }

    fn send(
        &mut self,
        session: &mut Session,
        request: RequestId,
        now: RealTime,
        outputs: &mut Vec<Output>,
    ) {
        let acked_through = session.acked_through();
        let Some(pending) = session.pending.get_mut(&request) else { return };
        pending.attempt += 1;
        pending.last_sent = now;
        let stream = (!session.is_unary).then_some(session.stream);
        let (client, via) = (self.index, None);
        let reply_to = ReplyTo { client, session: session.id, stream, request, sent: now, via };
        let body = pending.ask.body(session.id, request, acked_through);
        // Whoever reads may come by a node that has not heard that it leads no more.
        let to = match body {
            Body::Status(_) if self.rng.percent(50) => self.any_node(),
            _ => self.leader,
        };
        outputs.push(Output::Send { to, request: Box::new(Request { reply_to, body }) });
        let timer = Timer { session: session.id, request, attempt: pending.attempt };
        outputs.push(Output::Timer { after_us: self.rng.between(1_000_000, 3_000_000), timer });
    }
}
