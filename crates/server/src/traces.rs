//! Spans of acquires whose clients ask for them: what the leader did with one, and who was in its way.
//!
//! A client that wants its acquire recorded says of which span it is part. From then on this looks on: the request
//! is received, proposed, granted at once or queued, and answered. It remembers, beside the lock table and in memory
//! alone, under which spans locks are held, so that the span of one who waits can point at those who held the lock
//! meanwhile. No answer changes because of it.
//!
//! - Off, it costs one comparison per operation. On, what no client has marked costs a look at a number.
//! - Everything is bounded; beyond that requests are not recorded.
//! - It knows this term of leadership only: what was held before it began has no span here.
//! - Locks of the efficiency tier and conversions are not recorded.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use holdfast_core::{Command, Event, Grant, LockName, Outcome, RequestId, SessionId};
use holdfast_proto::plain::BorrowedOperation;
use holdfast_spans::{Exporter, Kind, Span, TraceParent};

const UNDER_WAY_MAX: usize = 16_384;
const HOLDS_MAX: usize = 65_536;
/// Of one span.
const LINKS_MAX: usize = 32;
/// Of one lock; more would be in no span's links.
const HOLDERS_MAX: usize = 64;
/// Of the names in one span.
const WORDS_BYTES_MAX: usize = 1_024;
/// Whose spans are told of a new holder.
const WAITING_TOLD_MAX: usize = 64;

/// An acquire, as the lock table names it.
type Acquire = (SessionId, RequestId);

#[derive(Debug)]
pub(crate) struct Traces {
    exporter: Exporter,
    /// Requests under way and holds that have spans. While there are none there is nothing to do.
    known: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    under_way: HashMap<Acquire, UnderWay>,
    locks: HashMap<LockName, Lock>,
    holds: usize,
}

#[derive(Debug)]
struct UnderWay {
    span: Span,
    names: Vec<LockName>,
    links: usize,
}

/// What is known of one lock.
#[derive(Debug, Default)]
struct Lock {
    holders: Vec<(Acquire, TraceParent)>,
    waiting: Vec<Acquire>,
}

impl Traces {
    pub(crate) fn new(exporter: Exporter) -> Traces {
        Traces { exporter, known: AtomicUsize::new(0), state: Mutex::default() }
    }

    pub(crate) fn exporter(&self) -> &Exporter {
        &self.exporter
    }

    /// A request came that is part of this span, and is about to be queued.
    pub(crate) fn received(&self, acquire: Acquire, command: &Command, parent: &str) {
        let Ok(parent) = parent.parse::<TraceParent>() else { return };
        let names: Vec<LockName> = match command {
            Command::Acquire(acquire) => vec![acquire.name.clone()],
            Command::AcquireAll(acquire) => {
                acquire.members.iter().map(|member| member.name.clone()).collect()
            }
            _ => return,
        };
        if !parent.is_sampled() {
            return;
        }
        let mut state = self.state();
        // One that is sent again goes on as it was.
        if state.under_way.len() >= UNDER_WAY_MAX || state.under_way.contains_key(&acquire) {
            return;
        }
        let mut span = self.exporter.span("holdfast.acquire", Kind::Server, Some(&parent));
        span.set("holdfast.lock", in_words(&names));
        state.under_way.insert(acquire, UnderWay { span, names, links: 0 });
        self.publish(&state);
    }

    /// As [`Traces::received`], of a call. Tells under what it is known if it is recorded.
    pub(crate) fn received_call(&self, command: &Command, parent: &str) -> Option<Acquire> {
        let call = command.wait().filter(|_| !parent.is_empty())?;
        self.received((call.session, call.request), command, parent);
        Some((call.session, call.request))
    }

    /// It goes into the next entry of the log.
    pub(crate) fn proposed(&self, acquire: Acquire) {
        if let Some(mut state) = self.if_any()
            && let Some(under_way) = state.under_way.get_mut(&acquire)
        {
            under_way.span.reached("proposed");
        }
    }

    /// It was applied, with this outcome; or its wait is over.
    pub(crate) fn answered(&self, acquire: Acquire, outcome: &Outcome) {
        let Some(mut state) = self.if_any() else { return };
        state.answered(acquire, outcome);
        self.publish(&state);
    }

    /// Its outcome is not known here.
    pub(crate) fn failed(&self, acquire: Acquire, words: &str) {
        let Some(mut state) = self.if_any() else { return };
        if let Some(mut ended) = state.end(acquire) {
            ended.span.fail(words);
        }
        self.publish(&state);
    }

    /// A hold that ended blocks no request.
    pub(crate) fn happened(&self, event: &Event) {
        let (Event::Released { name, session, request, .. }
        | Event::HoldEnded { name, session, request, .. }) = event
        else {
            return;
        };
        let Some(mut state) = self.if_any() else { return };
        state.forget_hold(name, (*session, *request));
        self.publish(&state);
    }

    /// This node leads no longer.
    pub(crate) fn forget(&self) {
        let mut state = self.state();
        for (_, mut under_way) in state.under_way.drain() {
            under_way.span.fail("this node leads no longer");
        }
        *state = State::default();
        self.publish(&state);
    }

    fn if_any(&self) -> Option<MutexGuard<'_, State>> {
        (self.known.load(Ordering::Relaxed) > 0).then(|| self.state())
    }

    fn publish(&self, state: &State) {
        self.known.store(state.under_way.len() + state.holds, Ordering::Relaxed);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Of which span a request of a stream is part.
pub(crate) fn parent_of(operation: &BorrowedOperation<'_>) -> Option<String> {
    let parent = operation.traceparent();
    (!parent.is_empty()).then(|| parent.to_owned())
}

impl State {
    fn answered(&mut self, acquire: Acquire, outcome: &Outcome) {
        match outcome {
            Outcome::Queued { position } => self.queued(acquire, *position),
            Outcome::Granted(grant) => self.granted(acquire, std::slice::from_ref(grant)),
            Outcome::GrantedAll(grants) => self.granted(acquire, grants),
            Outcome::Busy => {
                self.point_at_holders(acquire);
                self.end_with(acquire, "busy");
            }
            Outcome::TimedOut => self.end_with(acquire, "timed_out"),
            Outcome::Cancelled => self.end_with(acquire, "cancelled"),
            Outcome::Deadlock(_) => self.end_with(acquire, "deadlock"),
            Outcome::Died { .. } => self.end_with(acquire, "died"),
            _ => self.end_with(acquire, "rejected"),
        }
    }

    fn queued(&mut self, acquire: Acquire, position: u64) {
        self.point_at_holders(acquire);
        let Some(under_way) = self.under_way.get_mut(&acquire) else { return };
        under_way.span.reached("queued");
        under_way.span.set_number("holdfast.queue.position", position);
        for name in under_way.names.clone() {
            let waiting = &mut self.locks.entry(name).or_default().waiting;
            if !waiting.contains(&acquire) && waiting.len() < WAITING_TOLD_MAX {
                waiting.push(acquire);
            }
        }
    }

    fn granted(&mut self, acquire: Acquire, grants: &[Grant]) {
        let Some(mut ended) = self.end(acquire) else { return };
        ended.span.reached("granted");
        ended.span.set("holdfast.outcome", "granted");
        if let Some(first) = grants.first() {
            ended.span.set_number("holdfast.token", first.token.0);
        }
        let holder = ended.span.parent();
        for grant in grants {
            let hold = (acquire.0, grant.acquire);
            if self.holds >= HOLDS_MAX {
                return;
            }
            let lock = self.locks.entry(grant.name.clone()).or_default();
            // A lock that is entered again is held as before.
            let is_new = lock.holders.iter().all(|(known, _)| *known != hold);
            if !is_new || lock.holders.len() >= HOLDERS_MAX {
                continue;
            }
            self.holds += 1;
            lock.holders.push((hold, holder));
            for waiter in &lock.waiting {
                if let Some(waiting) = self.under_way.get_mut(waiter) {
                    waiting.point_at(&holder);
                }
            }
        }
    }

    /// Those who are in its way as far as they are known here.
    fn point_at_holders(&mut self, acquire: Acquire) {
        let Some(under_way) = self.under_way.get_mut(&acquire) else { return };
        for name in under_way.names.clone() {
            let holders = self.locks.get(&name).map(|lock| lock.holders.as_slice());
            for (_, holder) in holders.unwrap_or_default() {
                if under_way.links >= LINKS_MAX {
                    return;
                }
                under_way.point_at(holder);
            }
        }
    }

    fn end_with(&mut self, acquire: Acquire, outcome: &'static str) {
        if let Some(mut ended) = self.end(acquire) {
            ended.span.set("holdfast.outcome", outcome);
        }
    }

    fn end(&mut self, acquire: Acquire) -> Option<UnderWay> {
        let ended = self.under_way.remove(&acquire)?;
        for name in &ended.names {
            if let Some(lock) = self.locks.get_mut(name) {
                lock.waiting.retain(|waiting| *waiting != acquire);
            }
            self.forget_if_unused(name);
        }
        Some(ended)
    }

    fn forget_hold(&mut self, name: &LockName, acquire: Acquire) {
        if let Some(lock) = self.locks.get_mut(name) {
            let before = lock.holders.len();
            lock.holders.retain(|(holder, _)| *holder != acquire);
            self.holds -= before - lock.holders.len();
        }
        self.forget_if_unused(name);
    }

    fn forget_if_unused(&mut self, name: &LockName) {
        let is_used = |lock: &Lock| !(lock.holders.is_empty() && lock.waiting.is_empty());
        if self.locks.get(name).is_some_and(|lock| !is_used(lock)) {
            self.locks.remove(name);
        }
    }
}

impl UnderWay {
    fn point_at(&mut self, holder: &TraceParent) {
        if self.links < LINKS_MAX {
            self.links += 1;
            self.span.point_at(holder, "holder");
        }
    }
}

/// As many of them as a person would read.
fn in_words(names: &[LockName]) -> String {
    let mut words = String::new();
    for (place, name) in names.iter().enumerate() {
        if words.len() + name.as_str().len() > WORDS_BYTES_MAX {
            words += &format!(" and {} more", names.len() - place);
            break;
        }
        if place > 0 {
            words += ", ";
        }
        words += name.as_str();
    }
    words
}

#[cfg(test)]
mod tests {
    use holdfast_core::command::{Acquire as AcquireCommand, Call, Mode, Terms};
    use holdfast_core::{ActorId, FenceToken, LogicalTime};

    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn acquire(name: &str) -> Command {
        Command::Acquire(AcquireCommand {
            call: Call {
                session: SessionId(1),
                request: RequestId(1),
                acked_through: RequestId(0),
            },
            actor: ActorId(0),
            name: LockName::new(name).unwrap(),
            mode: Mode::Exclusive,
            terms: Terms::default(),
        })
    }

    fn traces() -> Traces {
        // No process listens there; spans are dropped.
        Traces::new(Exporter::start("http://127.0.0.1:9", None, "test", "1").unwrap())
    }

    fn known(traces: &Traces) -> usize {
        traces.known.load(Ordering::Relaxed)
    }

    fn by(session: u128, request: u64) -> Acquire {
        (SessionId(session), RequestId(request))
    }

    fn grant(token: u64) -> Grant {
        Grant {
            name: LockName::new("a").unwrap(),
            acquire: RequestId(1),
            token: FenceToken(token),
            mode: Mode::Exclusive,
            deadline: None,
            session_deadline: LogicalTime::ZERO,
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn requests_without_a_valid_trace_parent_are_ignored() {
        let traces = traces();
        let unsampled = PARENT.replace("-01", "-00");
        for parent in ["", "00-1-2-3", unsampled.as_str()] {
            traces.received(by(1, 1), &acquire("a"), parent);
        }
        traces.received(by(1, 1), &Command::Tick, PARENT);
        assert_eq!(known(&traces), 0);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn no_trace_state_is_left_when_all_holders_are_gone() {
        let traces = traces();
        for session in 1..=3 {
            traces.received(by(session, 1), &acquire("a"), PARENT);
        }
        assert_eq!(known(&traces), 3);
        traces.answered(by(1, 1), &Outcome::Granted(grant(5)));
        traces.answered(by(2, 1), &Outcome::Queued { position: 1 });
        traces.answered(by(3, 1), &Outcome::Busy);
        assert_eq!(known(&traces), 2);
        {
            let state = traces.state();
            assert_eq!(state.under_way[&by(2, 1)].links, 1, "it points at the holder");
        }
        let (name, granted_at) = (LockName::new("a").unwrap(), LogicalTime::ZERO);
        let (session, request) = by(1, 1);
        let token = FenceToken(5);
        traces.happened(&Event::Released {
            name,
            session,
            request,
            token,
            granted_at,
            by_close: false,
        });
        traces.answered(by(2, 1), &Outcome::TimedOut);
        assert_eq!(known(&traces), 0);
        assert!(traces.state().locks.is_empty());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_lost_leadership_forgets_everything() {
        let traces = traces();
        traces.received(by(1, 1), &acquire("a"), PARENT);
        traces.answered(by(1, 1), &Outcome::Granted(grant(5)));
        traces.received(by(2, 1), &acquire("a"), PARENT);
        traces.answered(by(2, 1), &Outcome::Queued { position: 1 });
        traces.forget();
        assert_eq!(known(&traces), 0);
        assert!(traces.state().locks.is_empty() && traces.state().under_way.is_empty());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_flood_of_marked_requests_is_bounded() {
        let traces = traces();
        for request in 0..UNDER_WAY_MAX as u64 + 10 {
            traces.received(by(1, request), &acquire("a"), PARENT);
            traces.answered(by(1, request), &Outcome::Queued { position: 1 });
        }
        assert_eq!(known(&traces), UNDER_WAY_MAX);
        let state = traces.state();
        assert_eq!(state.locks[&LockName::new("a").unwrap()].waiting.len(), WAITING_TOLD_MAX);
    }
}
