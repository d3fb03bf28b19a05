//! The sessions of a client: one in the root group, and one in each other group of the cluster whose locks it uses.
//!
//! Each is a [`Handle`] with a task, a connection, a lease and a leader of its own. So nothing that happens to one group
//! reaches the sessions in others. The session in the root group is opened first. Its welcome tells which group owns which
//! locks; the cluster of one group tells nothing, and then there is no other session. A session in another group is
//! opened by the first request for a lock of that group.
//!
//! What is decided about groups is in [`holdfast_client_core::groups`]. This has the handles.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use holdfast_client_core::circuit::CircuitState;
use holdfast_client_core::endpoints::Endpoints;
use holdfast_client_core::error::{Rejection, RequestError, Unavailable};
use holdfast_client_core::groups::{GroupId, Redirect, Redirects, Routes};
use holdfast_client_core::session::{NoSessionId, NotOpened, Outcome, Request, Success};
use holdfast_proto::{GroupMap, SessionId};
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;

use super::{Handle, OnQueued, Settings};
use crate::circuit::Circuit;
use crate::error::ConnectError;
use crate::jitter_seed;
use crate::unary::Unary;
use holdfast_lease_clock as clock;

/// The way to the tasks of all sessions of a client.
#[derive(Debug, Clone)]
pub(crate) struct Sessions {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    root: Handle,
    others: Mutex<Others>,
    starter: Starter,
}

/// The sessions outside of the root group.
#[derive(Debug, Default)]
struct Others {
    handles: BTreeMap<GroupId, Handle>,
    /// The program has closed the client, and no further session is opened.
    is_closed: bool,
}

/// What the sessions of a client have in common.
#[derive(Debug, Clone)]
pub(super) struct Starter {
    pub(super) settings: Settings,
    pub(super) routes: Arc<SharedRoutes>,
    pub(super) circuits: Arc<Circuits>,
    pub(super) ids: Arc<SessionIds>,
}

/// What the newest welcome of any session has told of the groups.
#[derive(Debug)]
pub(super) struct SharedRoutes {
    routes: watch::Sender<Routes>,
    /// A node has answered a hello, and has told no map.
    is_one_group: AtomicBool,
}

/// The circuit breakers of all sessions.
#[derive(Debug)]
pub(super) struct Circuits {
    states: Mutex<BTreeMap<GroupId, CircuitState>>,
    worst: watch::Sender<CircuitState>,
    view: Circuit,
}

/// Draws the ids of sessions. The sessions of a client in different groups have the same id, so that a person or the
/// companion finds all of them by one id. A session that was lost is followed by one with a new id, because no group ever
/// sees an id again. So for a while the ids can differ: a group takes the newest one when its own session is lost.
#[derive(Debug, Default)]
pub(super) struct SessionIds(Mutex<(u64, Option<SessionId>)>);

impl Sessions {
    /// Opens the session in the root group. Returns when that is done.
    pub(crate) async fn open(
        endpoints: Endpoints,
        settings: Settings,
    ) -> Result<Sessions, ConnectError> {
        let request_timeout = settings.request_timeout;
        let (opened, when_opened) = oneshot::channel();
        let sessions = Sessions::start(endpoints, settings, Some(opened))?;
        match timeout(request_timeout, when_opened).await {
            Ok(Ok(Ok(()))) => Ok(sessions),
            Ok(Ok(Err(NotOpened::Refused(rejection)))) => Err(ConnectError::Rejected(rejection)),
            Ok(Ok(Err(NotOpened::NotReached))) => {
                Err(ConnectError::Unavailable(sessions.root().unavailable(false)))
            }
            Ok(Err(_)) | Err(_) => {
                Err(ConnectError::Unavailable(sessions.root().unavailable(true)))
            }
        }
    }

    /// Opens a session when a request needs one, and connects to nothing before.
    pub(crate) fn open_when_needed(
        endpoints: Endpoints,
        settings: Settings,
    ) -> Result<Sessions, ConnectError> {
        Sessions::start(endpoints, settings, None)
    }

    fn start(
        endpoints: Endpoints,
        settings: Settings,
        opened: Option<oneshot::Sender<Result<(), NotOpened>>>,
    ) -> Result<Sessions, ConnectError> {
        let starter = Starter {
            settings,
            routes: Arc::new(SharedRoutes::new()),
            circuits: Arc::new(Circuits::new()),
            ids: Arc::default(),
        };
        let root = Handle::start(GroupId::ROOT, endpoints, &starter, opened);
        let root = root.map_err(|NoSessionId| ConnectError::NoRandomness)?;
        let others = Mutex::default();
        Ok(Sessions { shared: Arc::new(Shared { root, others, starter }) })
    }

    /// The session in the root group, which serves the efficiency tier.
    pub(crate) fn root(&self) -> &Handle {
        &self.shared.root
    }

    /// Asks for new locks. Returns the session that has them, for their guards. If the future is dropped, nothing is left
    /// behind.
    pub(crate) async fn acquire(
        &self,
        request: Request,
        wait: Duration,
        on_queued: Option<OnQueued>,
    ) -> (Outcome, Handle) {
        if self.routes().is_one_group.load(Ordering::Relaxed) {
            let outcome = self.root().ask_and_wait(request, wait, on_queued).await;
            return (outcome, self.root().clone());
        }
        // Boxed, so that the future for a cluster of one group does not carry the room for it.
        Box::pin(self.acquire_in_group(&request, wait, on_queued)).await
    }

    /// Asks the group that owns the locks, and follows refusals to the group that owns them now.
    async fn acquire_in_group(
        &self,
        request: &Request,
        wait: Duration,
        on_queued: Option<OnQueued>,
    ) -> (Outcome, Handle) {
        let mut began = clock::now();
        let on_queued = on_queued.map(|on_queued| Arc::new(Mutex::new(Some(on_queued))));
        let mut redirects = Redirects::new(jitter_seed());
        loop {
            let routed =
                self.owner_of(request).and_then(|owner| Ok((owner, self.session_in(owner)?)));
            let (group, handle) = match routed {
                Ok(routed) => routed,
                Err(error) => return (Err(error), self.root().clone()),
            };
            let knows_map = self.routes().routes.borrow().epoch() > 0;
            let left = wait.saturating_sub(clock::now().saturating_since(began));
            if left.is_zero() && !wait.is_zero() {
                return (Err(RequestError::TimedOut), handle);
            }
            let Some(copy) = request.for_other_group(left) else {
                return (Err(RequestError::Closed), handle);
            };
            let outcome = handle.ask_and_wait(copy, left, on_queued.as_ref().map(shared)).await;
            let Err(RequestError::Rejected(refusal)) = &outcome else { return (outcome, handle) };
            if !knows_map {
                // Until then the client was being connected, and could not know whom to ask.
                began = clock::now();
            }
            match self.redirect(&mut redirects, refusal, request, group) {
                Redirect::To(_) => {}
                Redirect::AfterMap { epoch, at_most } => {
                    let is_newer = |routes: &Routes| routes.epoch() >= epoch;
                    let mut routes = self.routes().routes.subscribe();
                    let _ = timeout(at_most, routes.wait_for(is_newer)).await;
                }
                Redirect::After(pause) => tokio::time::sleep(pause).await,
                Redirect::No => return (outcome, handle),
            }
        }
    }

    fn redirect(
        &self,
        redirects: &mut Redirects,
        refusal: &Rejection,
        request: &Request,
        asked: GroupId,
    ) -> Redirect {
        let routes = self.routes().routes.borrow();
        match routes.group_of(request) {
            Ok(owner) => redirects.next(refusal, asked, owner, &routes),
            // The locks are in several groups by now, which the next try finds out.
            Err(_) => Redirect::To(asked),
        }
    }

    fn owner_of(&self, request: &Request) -> Result<GroupId, RequestError> {
        let group = self.routes().routes.borrow().group_of(request);
        group.map_err(|several| RequestError::Rejected(several.into()))
    }

    /// Opened if there is none.
    fn session_in(&self, group: GroupId) -> Result<Handle, RequestError> {
        if group == GroupId::ROOT {
            return Ok(self.root().clone());
        }
        let mut others = self.others();
        if others.is_closed {
            return Err(RequestError::Closed);
        }
        if let Some(handle) = others.handles.get(&group) {
            return Ok(handle.clone());
        }
        let leader = self.routes().routes.borrow().leader_of(group).to_owned();
        let endpoints = self.root().known_nodes().now().of_other_group(&leader);
        let handle = Handle::start(group, endpoints, &self.shared.starter, None);
        let handle =
            handle.map_err(|NoSessionId| RequestError::Unavailable(self.unavailable(false)))?;
        others.handles.insert(group, handle.clone());
        Ok(handle)
    }

    /// Reads something about a lock on the stream of its group. A read opens no session.
    pub(crate) async fn read(&self, request: Request) -> Outcome {
        let handle = match self.owner_of(&request)? {
            GroupId::ROOT => self.root().clone(),
            group => {
                let known = self.others().handles.get(&group).cloned();
                known.ok_or(RequestError::NotServed)?
            }
        };
        match handle.read(request).await {
            // A node that is called finds the group by itself.
            Err(RequestError::Rejected(refusal)) if refusal.is_of_other_group() => {
                Err(RequestError::NotServed)
            }
            outcome => outcome,
        }
    }

    /// Closes all sessions, at the same time. The first that could not be closed is the error.
    pub(crate) fn close(&self) -> impl Future<Output = Result<(), Unavailable>> + use<> {
        let mut handles = vec![self.root().clone()];
        {
            let mut others = self.others();
            others.is_closed = true;
            handles.extend(others.handles.values().cloned());
        }
        let closing: Vec<_> = handles
            .into_iter()
            .map(|handle| {
                let closed = handle.start_close();
                (handle, closed)
            })
            .collect();
        async move {
            let mut all = Ok(());
            for (handle, closed) in closing {
                let closed = closed.await.map(|_: Success| ());
                let closed = closed.map_err(|_| handle.unavailable(true));
                all = all.and(closed);
            }
            all
        }
    }

    /// The worst one of all sessions.
    pub(crate) fn circuit(&self) -> Circuit {
        self.shared.starter.circuits.view.clone()
    }

    /// For calls beside the sessions.
    pub(crate) fn calls(&self) -> Unary {
        self.root().calls()
    }

    pub(crate) fn request_timeout(&self) -> Duration {
        self.root().request_timeout()
    }

    fn unavailable(&self, may_have_happened: bool) -> Unavailable {
        self.root().unavailable(may_have_happened)
    }

    fn routes(&self) -> &SharedRoutes {
        &self.shared.starter.routes
    }

    fn others(&self) -> MutexGuard<'_, Others> {
        self.shared.others.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// It is called once, by whichever try comes to a queue.
fn shared(on_queued: &Arc<Mutex<Option<OnQueued>>>) -> OnQueued {
    let on_queued = Arc::clone(on_queued);
    Box::new(move |position| {
        let taken = on_queued.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(on_queued) = taken {
            on_queued(position);
        }
    })
}

impl SharedRoutes {
    fn new() -> SharedRoutes {
        let (routes, _) = watch::channel(Routes::default());
        SharedRoutes { routes, is_one_group: AtomicBool::new(false) }
    }

    /// A welcome has told this.
    pub(super) fn learn(&self, map: Option<&Arc<GroupMap>>) {
        if let Some(map) = map {
            self.routes.send_modify(|routes| routes.learn(map));
        }
        self.is_one_group.store(self.routes.borrow().is_one_group(), Ordering::Relaxed);
    }
}

impl Circuits {
    fn new() -> Circuits {
        let (worst, view) = watch::channel(CircuitState::Closed);
        Circuits { states: Mutex::default(), worst, view: Circuit(view) }
    }

    pub(super) fn set(&self, group: GroupId, state: CircuitState) {
        let mut states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        states.insert(group, state);
        let is_any = |state| states.values().any(|other| *other == state);
        let worst = [CircuitState::Open, CircuitState::HalfOpen].into_iter().find(|it| is_any(*it));
        let worst = worst.unwrap_or(CircuitState::Closed);
        self.worst.send_if_modified(|now| std::mem::replace(now, worst) != worst);
    }
}

impl SessionIds {
    /// For the sessions in one group, one after the other.
    pub(super) fn of_one_group(
        self: &Arc<SessionIds>,
    ) -> Box<dyn FnMut() -> Option<SessionId> + Send> {
        let (ids, mut used) = (Arc::clone(self), 0);
        Box::new(move || {
            let mut newest = ids.0.lock().unwrap_or_else(PoisonError::into_inner);
            let (number, id) = &mut *newest;
            if *number == used {
                *id = Some(SessionId::random().ok()?);
                *number += 1;
            }
            used = *number;
            *id
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_share_the_newest_id_and_no_group_sees_one_again() {
        let ids = Arc::new(SessionIds::default());
        let (mut one, mut other) = (ids.of_one_group(), ids.of_one_group());
        let first = one().unwrap();
        assert_eq!(other(), Some(first));
        // Both lose their sessions, one of them twice.
        let second = one().unwrap();
        let third = one().unwrap();
        assert!(first != second && second != third && first != third);
        assert_eq!(other(), Some(third));
        assert_eq!(ids.of_one_group()(), Some(third));
    }

    #[test]
    fn the_circuit_of_a_client_is_the_worst_of_its_sessions() {
        let circuits = Circuits::new();
        let [root, other] = [1, 2].map(GroupId::from_wire);
        let worst = || *circuits.worst.borrow();
        assert_eq!(worst(), CircuitState::Closed);
        circuits.set(other, CircuitState::Open);
        circuits.set(root, CircuitState::HalfOpen);
        assert_eq!(worst(), CircuitState::Open);
        circuits.set(other, CircuitState::Closed);
        assert_eq!(worst(), CircuitState::HalfOpen);
        circuits.set(root, CircuitState::Closed);
        assert_eq!(worst(), CircuitState::Closed);
    }
}
