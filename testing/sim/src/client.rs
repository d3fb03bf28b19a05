//! A simulated program with the product's client, or of a program that uses several groups the part with its session
//! in one of them: [`holdfast_client_core`] decides all that a client decides, over the
//! simulated network and a clock of its own. What is here is what the program wants ([`choose`], [`operate`]), the
//! connection that carries its frames ([`wire`]), and what the history tells of it.
//!
//! It is driven by [`Client::think`] (the program does something), [`Client::wake`] (time has passed),
//! [`Client::connected`], [`Client::receive`] and [`Client::notice`]; what it wants done comes out as [`Output`]s. The
//! world keeps back its input while it is paused.

mod choose;
mod operate;
mod wire;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use holdfast_client_core::connect_errors::Contact;
use holdfast_client_core::error::RequestError;
use holdfast_client_core::hold::Hold;
use holdfast_client_core::lease::LocalTime;
use holdfast_client_core::session::{self as core, Config, SessionMachine, Settings, Success};
use holdfast_core::command::{Action, Intervention};
use holdfast_core::{
    ActorId, Command, FenceToken, Identity, LockName, LogicalTime, Outcome, Principal,
    PublicSessionId, RequestId, SessionId, StreamId,
};
use holdfast_proto::v1::{Failure, Mode, Owner};
use holdfast_replica::GroupId;

use self::choose::Choice;
use crate::clock::LocalClock;
use crate::history::{Believed, Input, Output as Returned, RealTime};
use crate::message::{Answer, AnswerBody, Body, EndedStream, Notice, ReplyTo, Request, session_of};
use crate::names::Names;
use crate::recorder::Recorder;
use crate::rng::Rng;

/// So short before the end of a lease that it makes no difference.
const MOMENT: Duration = Duration::from_millis(1);

/// How long a program waits for an answer, beyond its wait for the lock.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);

/// The numbers of an operator's requests, which belong to no session.
const FIRST_INTERVENTION: u64 = 1 << 40;

#[derive(Debug)]
pub(crate) struct Client {
    index: usize,
    /// Of those that share a process, each with a session in another group.
    program_number: u64,
    /// Its session is in this group.
    pub(crate) group: GroupId,
    clock: LocalClock,
    rng: Rng,
    /// Those that it was told of.
    pub(crate) nodes: Vec<usize>,
    names: Names,
    /// What it last saw of each lock.
    seen: BTreeMap<LockName, Seen>,
    /// None before the program starts, and after it died.
    program: Option<Box<Program>>,
    /// When it is woken at the latest, if it was not since.
    wakes: Option<RealTime>,
    sessions_begun: Arc<AtomicU64>,
    interventions: u64,
    pub(crate) paused: u32,
    /// It stopped for ever, without a word.
    pub(crate) dead: bool,
    /// It starts nothing new.
    pub(crate) draining: bool,
}

/// A process that uses the client library.
#[derive(Debug)]
struct Program {
    group: GroupId,
    session: SessionMachine<u64>,
    link: Option<Link>,
    connecting: Option<(u64, usize)>,
    last_number: u64,
    calls: BTreeMap<u64, Asked>,
    guards: BTreeMap<u64, Guard>,
    /// What was sent and has no answer, by the session's id and its own: its number in the history, and whether the
    /// history calls it a touch.
    sent: BTreeMap<(SessionId, RequestId), Sent>,
    /// It had to give way to an older one, and says from now on how long it has been asking.
    since: Option<LogicalTime>,
    /// It has no streams: each request is a call of its own, and nothing else is told.
    is_unary: bool,
    is_closing: bool,
    /// The client's clock did, at some time of this session.
    clock_stood_still: bool,
}

/// The connection to a node.
#[derive(Debug)]
struct Link {
    node: usize,
    since: RealTime,
    /// None until the hello is sent. Its request has the same number.
    stream: Option<StreamId>,
    /// The hello was answered.
    is_open: bool,
    /// Nothing comes through any more, and the client does not know.
    is_dead: bool,
}

#[derive(Debug)]
struct Sent {
    operation: usize,
    input: Input,
}

/// A call of the program without an answer.
#[derive(Debug)]
struct Asked {
    /// Under which the session knows it.
    call: u64,
    actor: ActorId,
    names: Vec<LockName>,
    guard: Option<u64>,
    can_wait: bool,
}

/// A lock that the program holds.
#[derive(Clone, Debug)]
struct Guard {
    hold: Arc<Hold>,
    name: LockName,
    actor: ActorId,
}

/// What a read told.
#[derive(Clone, Copy, Debug)]
struct Seen {
    holder: Option<(SessionId, FenceToken)>,
    /// One of those who wait.
    waiter: Option<PublicSessionId>,
}

/// What is around a client: the time, the history, and what it wants done.
pub(crate) struct ClientContext<'a> {
    pub(crate) now: RealTime,
    /// The nodes demand to know who a client is.
    pub(crate) is_checked: bool,
    pub(crate) recorder: &'a mut Recorder,
    pub(crate) outputs: &'a mut Vec<Output>,
}

#[derive(Debug)]
pub(crate) enum Output {
    Send {
        to: usize,
        request: Box<Request>,
    },
    /// Call [`Client::connected`] when it is known whether there is a connection.
    Connect {
        to: usize,
        attempt: u64,
    },
    /// Call [`Client::wake`] after this much real time.
    Wake {
        after_us: u64,
    },
    Write {
        after_us: u64,
        write: Write,
    },
    StreamEnded {
        node: usize,
        ended: EndedStream,
    },
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
        (program_number, group): (u64, GroupId),
        clock: LocalClock,
        rng: Rng,
        nodes: Vec<usize>,
        names: Names,
    ) -> Client {
        Client {
            index,
            program_number,
            group,
            clock,
            rng,
            nodes,
            names,
            seen: BTreeMap::new(),
            program: None,
            wakes: None,
            sessions_begun: Arc::default(),
            interventions: 0,
            paused: 0,
            dead: false,
            draining: false,
        }
    }

    pub(crate) fn names(&self) -> &Names {
        &self.names
    }

    /// Does something, perhaps. Gives the real time until it thinks again.
    pub(crate) fn think(&mut self, context: &mut ClientContext<'_>, pace_us: u64) -> u64 {
        let local = self.local(context.now);
        match self.program.take() {
            None if self.draining => {}
            None => self.program = self.start(local),
            Some(mut program) => {
                program.session.handle_timeout(local);
                program.session.handle_quiet(local);
                self.settle(&mut program, context);
                self.write_under_locks(&program, local, context);
                let choice = match self.choose(&program) {
                    Choice::Nothing if self.draining => self.choose_last(&program),
                    choice => choice,
                };
                if !matches!(choice, Choice::Abandon) && !program.session.is_finished() {
                    self.act(&mut program, choice, context);
                    self.program = Some(program);
                }
            }
        }
        self.drive(context);
        self.pause_us(local, pace_us)
    }

    /// Until it thinks again: some time, or just as long as a lease lasts.
    fn pause_us(&mut self, local: LocalTime, pace_us: u64) -> u64 {
        let pause_us = 1_000 + self.rng.around(pace_us);
        let last_moment = self.program.as_ref().and_then(|program| program.last_moment(local));
        match last_moment {
            Some(left) if self.rng.percent(50) => pause_us.min(self.clock.real_us_of(left)),
            _ => pause_us,
        }
    }

    /// Time has passed.
    pub(crate) fn wake(&mut self, context: &mut ClientContext<'_>) {
        let local = self.local(context.now);
        // What was planned for later comes again.
        if self.wakes.is_none_or(|planned| planned > context.now) {
            return;
        }
        self.wakes = None;
        if let Some(program) = &mut self.program
            && program.session.next_timeout().is_some_and(|at| at <= local)
        {
            program.session.handle_timeout(local);
            program.session.handle_quiet(local);
        }
        // Nothing is due while its clock stands still.
        if !self.clock.is_stopped() {
            self.drive(context);
        }
    }

    /// There is a connection, or there is none.
    pub(crate) fn connected(
        &mut self,
        context: &mut ClientContext<'_>,
        attempt: u64,
        is_connected: bool,
    ) {
        let local = self.local(context.now);
        let Some(mut program) = self.program.take() else { return };
        if let Some((_, node)) = program.connecting.take_if(|(number, _)| *number == attempt) {
            if !is_connected {
                program.session.handle_connect_failed(local, "no connection", Contact::NotMade);
            } else if program.session.handle_connected(local) {
                self.settle(&mut program, context);
                program.link = Some(Link {
                    node,
                    since: context.now,
                    stream: None,
                    is_open: false,
                    is_dead: false,
                });
            }
        }
        self.program = Some(program);
        self.drive(context);
    }

    pub(crate) fn receive(&mut self, context: &mut ClientContext<'_>, answer: Answer) {
        let Answer { reply_to, what } = answer;
        let local = self.local(context.now);
        let Some(program) = &mut self.program else { return };
        let is_intervention = reply_to.request.0 > FIRST_INTERVENTION;
        if !is_intervention && !program.is_answer_current(&reply_to, &what) {
            return;
        }
        let key = (reply_to.session, reply_to.request);
        let Some(sent) = program.sent.get(&key) else { return };
        let is_touch = matches!(sent.input, Input::Touch);
        let output = match &what {
            AnswerBody::Outcome { outcome, .. } => {
                Some(Returned::Outcome(wire::recorded(is_touch, outcome)))
            }
            AnswerBody::Status { holder, waiters, waiter } => {
                if let Input::Status { name } = &sent.input {
                    self.seen.insert(name.clone(), Seen { holder: *holder, waiter: *waiter });
                }
                Some(Returned::Status { holder: *holder, waiters: *waiters })
            }
            AnswerBody::Queued | AnswerBody::Refused(_) => None,
        };
        if let Some(output) = output {
            context.recorder.returned(sent.operation, context.now, reply_to.sent, output);
            program.sent.remove(&key);
        }
        if !is_intervention {
            let frame = wire::answer_frame(reply_to.request, &what, &self.nodes, is_touch);
            program.session.handle_frame(local, frame);
        }
        // A call is not told what was lost.
        if let AnswerBody::Outcome { at, outcome: Outcome::SessionOpen { .. }, .. } = what
            && is_touch
            && !program.is_unary
        {
            context.recorder.resumed(reply_to.session, at, program.believed_holds(local));
        }
        self.drive(context);
    }

    pub(crate) fn notice(
        &mut self,
        context: &mut ClientContext<'_>,
        session: SessionId,
        notice: &Notice,
    ) {
        let local = self.local(context.now);
        if let Some(program) = &mut self.program
            && program.session_id() == session
            && program.link.as_ref().is_some_and(|link| !link.is_dead && link.stream.is_some())
        {
            program.session.handle_frame(local, wire::notice(notice));
            self.drive(context);
        }
    }

    pub(crate) fn stop_clock(&mut self, now: RealTime) {
        self.clock.stop(now);
        if let Some(program) = &mut self.program {
            program.clock_stood_still = true;
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
        let sent = self.program.iter_mut().flat_map(|program| program.sent.values_mut());
        for sent in sent {
            if let Some(now) = moved.get(&sent.operation) {
                sent.operation = *now;
            }
        }
    }

    /// The process ends without a word.
    pub(crate) fn die(&mut self) {
        self.dead = true;
        self.program = None;
    }

    /// Everything that it asked has an answer, and everything that it held is given back.
    pub(crate) fn is_at_rest(&self) -> bool {
        let rests =
            |program: &Program| !program.session.has_unanswered() && program.guards.is_empty();
        self.program.as_deref().is_none_or(rests)
    }

    /// Its session, if it has one.
    pub(crate) fn session(&self) -> Option<SessionId> {
        let program = self.program.as_ref().filter(|program| program.session.is_open())?;
        Some(program.session_id())
    }

    /// Each of its requests is a call of its own.
    pub(crate) fn is_unary(&self) -> bool {
        self.program.as_ref().is_some_and(|program| program.is_unary)
    }

    /// What it waits for, for people.
    pub(crate) fn unanswered(&self) -> Vec<String> {
        let Some(program) = &self.program else { return Vec::new() };
        let sent = program.sent.iter().map(|((_, id), sent)| format!("{} {:?}", id.0, sent.input));
        let calls = program.calls.values().map(|asked| format!("{asked:?}"));
        let guards = program.guards.values().map(|guard| format!("{guard:?}"));
        calls.chain(guards).chain(sent).collect()
    }

    fn local(&self, now: RealTime) -> LocalTime {
        LocalTime(self.clock.at(now))
    }

    fn start(&mut self, local: LocalTime) -> Option<Box<Program>> {
        let ttl = Duration::from_millis(self.rng.between(10_000, 60_000));
        let short = Duration::from_millis(self.rng.between(500, 5_000));
        let linger = if self.rng.percent(20) { short } else { ttl };
        // The sessions of a program have the same ids in all groups.
        let (program, begun) = (self.program_number + 1, Arc::clone(&self.sessions_begun));
        let config = Config {
            settings: Settings { ttl, linger: Some(linger), owner: Owner::default() },
            group: holdfast_client_core::groups::GroupId::from_wire(self.group.0),
            endpoints: wire::CLUSTER.parse().ok()?,
            opens_at_once: true,
            waits_for_rates: true,
            jitter_seed: self.rng.below(u64::MAX),
            session_ids: Box::new(move || {
                let number = begun.fetch_add(1, Ordering::Relaxed) + 1;
                let id = session_of(PublicSessionId(program << 32 | number));
                holdfast_proto::SessionId::from_bytes(id.0.to_be_bytes())
            }),
        };
        Some(Box::new(Program {
            group: self.group,
            session: SessionMachine::new(config, local).ok()?,
            link: None,
            connecting: None,
            last_number: 0,
            calls: BTreeMap::new(),
            guards: BTreeMap::new(),
            sent: BTreeMap::new(),
            since: None,
            is_unary: self.rng.percent(25),
            is_closing: false,
            clock_stood_still: self.clock.is_stopped(),
        }))
    }

    fn act(&mut self, program: &mut Program, choice: Choice, context: &mut ClientContext<'_>) {
        let local = self.local(context.now);
        match choice {
            Choice::Nothing | Choice::Abandon => {}
            Choice::Ask(ask) => {
                program.ask(local, *ask);
            }
            Choice::AcquireAndCancel(ask) => {
                let number = program.ask(local, *ask);
                // Half of them are on their way by then.
                if self.rng.percent(50) {
                    self.settle(program, context);
                }
                program.abandon(local, number);
            }
            Choice::Cancel(number) => program.abandon(local, number),
            Choice::Release(number) => {
                if let Some(guard) = program.guards.remove(&number) {
                    let request = core::Request::Release { hold: guard.hold };
                    program.session.handle_request(local, request, None, local);
                }
            }
            Choice::Close => {
                program.is_closing = true;
                program.session.handle_close(local, None);
            }
            Choice::Intervene(action) => self.ask_as_operator(program, action, context),
            Choice::BreakStream { comes_back } => {
                let Some(link) = program.link.take() else { return };
                context.outputs.extend(program.stream_end(&link, true));
                if comes_back {
                    program.session.handle_disconnected(local, Failure::default());
                } else {
                    program.link = Some(Link { is_dead: true, ..link });
                }
            }
        }
    }

    /// By a call, beside any session.
    fn ask_as_operator(
        &mut self,
        program: &mut Program,
        action: Action,
        context: &mut ClientContext<'_>,
    ) {
        let Some(to) = self.rng.pick(&self.nodes).copied() else { return };
        self.interventions += 1;
        let (session, request) =
            (program.session_id(), RequestId(FIRST_INTERVENTION + self.interventions));
        // Each has its own reason, so that it is known in the log.
        let (by, reason) = ("operator".into(), format!("{} {}", self.index, self.interventions));
        let reason = reason.into();
        let body =
            Body::Command(Command::Intervene(Intervention { by, reason, action, identity: None }));
        self.send(program, to, (session, request), None, body, context);
    }

    /// Takes in what came, and does what the session wants.
    fn drive(&mut self, context: &mut ClientContext<'_>) {
        let Some(mut program) = self.program.take() else { return };
        self.settle(&mut program, context);
        let local = self.local(context.now);
        if let Some(at) = program.session.next_timeout() {
            let after_us = self.clock.real_us_of(at.saturating_since(local)) + 1;
            let due = RealTime(context.now.0 + after_us);
            if self.wakes.is_none_or(|planned| due < planned) {
                self.wakes = Some(due);
                context.outputs.push(Output::Wake { after_us });
            }
        }
        if !program.session.is_finished() {
            self.program = Some(program);
        }
    }

    fn settle(&mut self, program: &mut Program, context: &mut ClientContext<'_>) {
        while let Some(output) = program.session.poll_output() {
            match output {
                core::Output::Connect { address } => {
                    let node =
                        wire::node_at(&address).or_else(|| self.rng.pick(&self.nodes).copied());
                    let to = node.unwrap_or(0);
                    program.last_number += 1;
                    let attempt = program.last_number;
                    program.connecting = Some((attempt, to));
                    context.outputs.push(Output::Connect { to, attempt });
                }
                core::Output::Disconnect { with_farewell } => {
                    program.connecting = None;
                    if let Some(link) = program.link.take() {
                        context.outputs.extend(program.stream_end(&link, !with_farewell));
                    }
                }
                core::Output::Completed { caller, outcome } => program.completed(caller, outcome),
                core::Output::SessionEnded { session, .. } => {
                    let ended = SessionId(u128::from_be_bytes(session.to_bytes()));
                    program.guards.clear();
                    program.sent.retain(|(session, _), sent| {
                        *session != ended || matches!(sent.input, Input::Intervene(_))
                    });
                    program.clock_stood_still = self.clock.is_stopped();
                }
                _ => {}
            }
        }
        self.flush(program, context);
    }

    /// All that is to be sent.
    fn flush(&mut self, program: &mut Program, context: &mut ClientContext<'_>) {
        let (local, session) = (self.local(context.now), program.session_id());
        while let Some(Link { node, stream, is_dead, .. }) = program.link
            && let Some(frame) = program.session.poll_frame(local)
        {
            let Ok(frame) = frame.decode() else { return };
            let (stream, bodies) = match stream {
                Some(stream) => (stream, wire::operations(frame, session)),
                None => {
                    let opening = wire::opening(
                        &frame,
                        session,
                        program.is_unary,
                        context
                            .is_checked
                            .then(|| principal(self.index).map(Identity::of))
                            .flatten(),
                    );
                    let Some(opening) = opening else { return };
                    if let Some(link) = &mut program.link {
                        link.stream = Some(opening.stream);
                    }
                    (opening.stream, vec![(opening.request, Body::Command(opening.command))])
                }
            };
            if is_dead {
                continue;
            }
            for (request, body) in bodies {
                let stream = Some(stream).filter(|_| !program.is_unary);
                self.send(program, node, (session, request), stream, body, context);
            }
        }
    }

    fn send(
        &mut self,
        program: &mut Program,
        to: usize,
        (session, request): (SessionId, RequestId),
        stream: Option<StreamId>,
        body: Body,
        context: &mut ClientContext<'_>,
    ) {
        program.sent.entry((session, request)).or_insert_with(|| {
            let input = wire::input(&body);
            let operation = context.recorder.invoke(context.now, session, request, input.clone());
            Sent { operation, input }
        });
        let (client, via) = (self.index, None);
        let group = self.group;
        let reply_to = ReplyTo { client, group, session, stream, request, sent: context.now, via };
        context.outputs.push(Output::Send { to, request: Box::new(Request { reply_to, body }) });
    }
}

impl Program {
    /// The servers see the end of a stream that was opened.
    fn stream_end(&self, link: &Link, is_client_gone: bool) -> Option<Output> {
        let (session, stream) = (self.session_id(), link.stream.filter(|_| !self.is_unary)?);
        let ended = EndedStream { group: self.group, session, stream, is_client_gone };
        Some(Output::StreamEnded { node: link.node, ended })
    }

    /// It comes over the present connection; or it is the late answer to an earlier call.
    fn is_answer_current(&mut self, reply_to: &ReplyTo, what: &AnswerBody) -> bool {
        let is_of_session = self.session_id() == reply_to.session;
        let Some(link) = self.link.as_mut().filter(|link| is_of_session && !link.is_dead) else {
            return false;
        };
        let is_late = link.is_open && !matches!(what, AnswerBody::Refused(_));
        let is_heard = match reply_to.stream {
            Some(_) => link.stream == reply_to.stream,
            None => link.since <= reply_to.sent || is_late,
        };
        link.is_open |= is_heard;
        is_heard
    }

    fn believed_holds(&self, now: LocalTime) -> Vec<Believed> {
        let believed = |hold: &Arc<Hold>| {
            let (acquire, token) =
                (RequestId(hold.acquire_id()), FenceToken(hold.token(now).ok()?));
            Some(Believed { acquire, token, is_shared: hold.mode() == Mode::Shared })
        };
        self.guards.values().filter_map(|guard| believed(&guard.hold)).collect()
    }

    fn session_id(&self) -> SessionId {
        SessionId(u128::from_be_bytes(self.session.id().to_bytes()))
    }

    fn ask(&mut self, local: LocalTime, ask: choose::Ask) -> u64 {
        let choose::Ask { request, actor, names, guard, wait } = ask;
        if matches!(request, core::Request::Release { .. }) {
            // It is given up at once, whatever the answer.
            guard.map(|guard| self.guards.remove(&guard));
        }
        self.last_number += 1;
        let number = self.last_number;
        let waits_until = LocalTime(local.0 + wait.unwrap_or_default() + REQUEST_TIMEOUT);
        let call = self.session.handle_request(local, request, Some(number), waits_until);
        let can_wait = wait.is_some();
        let asked = Asked { call, actor, names, guard, can_wait };
        self.calls.insert(number, asked);
        number
    }

    /// The caller is gone.
    fn abandon(&mut self, local: LocalTime, number: u64) {
        if let Some(asked) = self.calls.remove(&number) {
            self.session.handle_abandoned(local, asked.call);
        }
    }

    fn completed(&mut self, number: u64, outcome: core::Outcome) {
        let Some(asked) = self.calls.remove(&number) else { return };
        match outcome {
            Ok(Success::Granted(holds)) => {
                for hold in holds {
                    let Ok(name) = LockName::new(&hold.name) else { continue };
                    self.last_number += 1;
                    self.guards.insert(self.last_number, Guard { hold, name, actor: asked.actor });
                }
            }
            Err(RequestError::Died { since }) => {
                self.since = Some(LogicalTime::from_ms(since.0));
            }
            _ => {}
        }
    }

    /// How long until the last moment at which it may believe in one of its locks.
    fn last_moment(&self, now: LocalTime) -> Option<Duration> {
        let ends = self.guards.values().filter_map(|guard| guard.hold.valid_until());
        let left = ends.map(|end| end.saturating_since(now).saturating_sub(MOMENT));
        left.filter(|left| *left > MOMENT).min()
    }

    /// It has asked something about this hold, and does not know what came of it.
    fn is_busy(&self, guard: u64) -> bool {
        self.calls.values().any(|asked| asked.guard == Some(guard))
    }

    /// It holds the name, or may do so without knowing it.
    fn uses(&self, name: &LockName) -> bool {
        self.guards.values().any(|guard| guard.name == *name) || self.asks_about(name)
    }

    fn asks_about(&self, name: &LockName) -> bool {
        self.calls.values().any(|asked| asked.names.contains(name))
    }
}

/// As whom a client is known where the policy is enforced.
pub(crate) fn principal(client: usize) -> Option<Principal> {
    Principal::parse(&format!("cert:client-{client}")).ok()
}
