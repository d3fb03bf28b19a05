//! Single calls, without a stream and without heartbeats: for looking, and for scripts that hold a
//! lock across commands.
//!
//! Operators look after the cluster in the same way, and step in by hand; see `cluster`, `intervene`.
//!
//! A call asks one node after the other, follows the leader, and repeats itself under the same
//! request id until it is answered or its time is over.

mod access;
mod check_token;
mod cluster;
mod history;
mod intervene;
pub(crate) mod resume;
mod watch;

pub use check_token::TokenState;
pub use cluster::SnapshotPieces;

use std::path::PathBuf;
use std::time::Duration;

use holdfast_client_core::backoff::Backoff;
use holdfast_client_core::connect_errors::{ConnectErrors, Contact, REFUSED_PATIENCE};
use holdfast_client_core::endpoints::InvalidEndpoints;
use holdfast_client_core::error::{Cycle, Rejection, Since, Unavailable, retry_after};
use holdfast_client_core::groups::GroupId;
use holdfast_client_core::hold::ReleaseOutcome;
use holdfast_client_core::tier::Tier;
use holdfast_client_core::wire_time::whole_ms;
use holdfast_proto::failure::refused;
use holdfast_proto::v1;
use holdfast_proto::v1::acquire_response::Outcome;
use holdfast_proto::v1::lock_service_client::LockServiceClient;
use holdfast_proto::v1::{Failure, Reason};
use holdfast_proto::{PublicSessionId, SessionId};
use holdfast_tls::explain_any;
use tokio::time::{Instant, timeout};
use tonic::{Response, Status};

use crate::auth_file::AuthFileError;
use crate::connection::{self, NodeChannel, Transport};
use crate::jitter_seed;
use crate::known_nodes::KnownNodes;
use crate::tls::{Tls, TlsError};

pub use history::Past;
pub use intervene::Why;
pub use watch::{Watch, Watched};

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);
/// A node that is silent for this long, beyond the call's own wait, is left for the next.
const ATTEMPT_PATIENCE: Duration = Duration::from_secs(2);
/// Nodes give up a change of the members or of the policy after this time; it is longer than most calls take.
const CHANGE_PATIENCE: Duration = Duration::from_secs(5);
const PAGE_SIZE: u32 = 1000;

/// Single calls to a cluster.
#[derive(Debug, Clone)]
pub struct Unary {
    nodes: KnownNodes,
    transport: Transport,
    /// Asked first, if it is known.
    leader: String,
    timeout: Duration,
    waits_for_rates: bool,
    tier: Tier,
    /// None: all groups.
    group: Option<GroupId>,
}

/// The numbers of a call that changes a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallId {
    /// Above 0, and not used by the session before.
    pub request_id: u64,
    /// The answers up to this id may be forgotten, and no request that is still to be answered has
    /// one of these ids. The servers keep a limited number of answers per session, so a session of
    /// many calls has to move this on.
    pub acked_through: u64,
}

/// Why a single call has no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    #[error(transparent)]
    Rejected(Rejection),
    #[error(transparent)]
    Unavailable(Unavailable),
}

/// What a single acquire found.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Acquired {
    Granted(v1::Grant),
    Busy,
    TimedOut,
    Deadlock(Cycle),
    /// An older actor is in the way.
    Died {
        since: Since,
    },
}

impl CallError {
    pub fn is_retryable(&self) -> bool {
        match self {
            CallError::Rejected(rejection) => rejection.is_retryable(),
            CallError::Unavailable(_) => true,
        }
    }

    pub fn may_have_happened(&self) -> bool {
        match self {
            CallError::Rejected(rejection) => rejection.may_have_happened,
            CallError::Unavailable(unavailable) => unavailable.may_have_happened,
        }
    }
}

impl Unary {
    /// `endpoints` as in [`crate::Client::connect`]. Nothing is connected yet.
    pub fn new(endpoints: &str) -> Result<Unary, InvalidEndpoints> {
        Ok(Unary::to(KnownNodes::new(endpoints.parse()?), Transport::default()))
    }

    pub(crate) fn to(nodes: KnownNodes, transport: Transport) -> Unary {
        let (leader, timeout, tier) = (String::new(), DEFAULT_TIMEOUT, Tier::default());
        Unary { nodes, transport, leader, timeout, waits_for_rates: true, tier, group: None }
    }

    /// Reaches the nodes with TLS, and in no other way. The files are read at once.
    pub fn tls(mut self, tls: Tls) -> Result<Unary, TlsError> {
        self.transport = self.transport.with_tls(tls, Duration::ZERO)?;
        Ok(self)
    }

    /// Shows the token in this file; see [`crate::ClientBuilder::auth_file`]. The file is read at once.
    pub fn auth_file(mut self, path: impl Into<PathBuf>) -> Result<Unary, AuthFileError> {
        self.transport = self.transport.with_auth_file(path.into())?;
        Ok(self)
    }

    /// Asks this node before the others; an empty address is none.
    pub(crate) fn first_asking(mut self, leader: &str) -> Unary {
        leader.clone_into(&mut self.leader);
        self
    }

    /// A connection to one node, made when it is first used: for programs that ask single nodes. `None` if the address is
    /// none.
    pub fn channel(&self, address: &str) -> Option<NodeChannel> {
        self.transport.open_lazily(address).ok()
    }

    /// How long a call may take, beyond its own wait; 5 s by default. If all that the nodes ever do is
    /// to refuse the connection it takes a second at most.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Unary {
        self.timeout = timeout;
        self
    }

    /// Fails at once with [`Reason::RateLimited`] where the rate of a quota is used up. By default a call waits until there
    /// is room, as long as it may take.
    #[must_use]
    pub fn fail_if_rate_limited(mut self) -> Unary {
        self.waits_for_rates = false;
        self
    }

    /// Which kind of lock these calls are about. The operations of the efficiency tier do not keep a session
    /// alive: that takes [`Unary::keep_alive`].
    #[must_use]
    pub fn tier(mut self, tier: Tier) -> Unary {
        self.tier = tier;
        self
    }

    /// In which group of the cluster sessions are opened, kept alive and closed by these calls; in all groups by default.
    /// The other calls find their group by the name of the lock. A session has to be open in the group of a lock before it
    /// can acquire the lock. Each group ends it on its own.
    #[must_use]
    pub fn in_group(mut self, group: u32) -> Unary {
        self.group = Some(GroupId::from_wire(group));
        self
    }

    /// As requests have it: 0 means all groups.
    fn group_on_wire(&self) -> u32 {
        self.group.map_or(0, GroupId::number)
    }

    /// Of the lock in both tiers, whatever the [tier](Unary::tier) of these calls.
    pub async fn status(&self, name: &str) -> Result<v1::StatusResponse, CallError> {
        let request = v1::StatusRequest { name: name.to_owned(), request_id: 0 };
        self.call(
            Duration::ZERO,
            request,
            |mut node, request| async move { node.status(request).await },
        )
        .await
    }

    /// Why a lock is not free: holders, queue, expected wait.
    pub async fn why(&self, name: &str) -> Result<v1::WhyResponse, CallError> {
        let request = v1::WhyRequest { name: name.to_owned() };
        self.call(
            Duration::ZERO,
            request,
            |mut node, request| async move { node.why(request).await },
        )
        .await
    }

    /// All locks whose name starts with `prefix`, page by page: what changes meanwhile may be seen
    /// or missed.
    pub async fn list(&self, prefix: &str) -> Result<Vec<v1::LockSummary>, CallError> {
        let prefix = prefix.to_owned();
        self.list_all(v1::ListRequest { prefix, ..Default::default() }).await
    }

    /// All locks that this session holds, of the correctness tier. It costs the leader something in proportion to all
    /// locks that there are.
    pub async fn list_held_by(
        &self,
        session: PublicSessionId,
    ) -> Result<Vec<v1::LockSummary>, CallError> {
        let holder_public_session_id = session.to_string();
        self.list_all(v1::ListRequest { holder_public_session_id, ..Default::default() }).await
    }

    async fn list_all(&self, wanted: v1::ListRequest) -> Result<Vec<v1::LockSummary>, CallError> {
        let mut locks = Vec::new();
        let mut page = String::new();
        loop {
            let request = v1::ListRequest { page_size: PAGE_SIZE, page, ..wanted.clone() };
            let answer: v1::ListResponse = self
                .call(Duration::ZERO, request, |mut node, request| async move {
                    node.list(request).await
                })
                .await?;
            locks.extend(answer.locks);
            if answer.next_page.is_empty() {
                return Ok(locks);
            }
            page = answer.next_page;
        }
    }

    pub async fn sessions(&self) -> Result<Vec<v1::SessionInfo>, CallError> {
        let mut sessions = Vec::new();
        let mut page = String::new();
        loop {
            let request = v1::ListSessionsRequest { page_size: PAGE_SIZE, page };
            let answer: v1::ListSessionsResponse = self
                .call(Duration::ZERO, request, |mut node, request| async move {
                    node.list_sessions(request).await
                })
                .await?;
            sessions.extend(answer.sessions);
            if answer.next_page.is_empty() {
                return Ok(sessions);
            }
            page = answer.next_page;
        }
    }

    /// The leader's view if it can be had, since only the leader knows how far the others are; else
    /// that of the first node that answers.
    pub async fn cluster_status(&self) -> Result<v1::ClusterStatusResponse, CallError> {
        let first: v1::ClusterStatusResponse = self
            .call(
                Duration::ZERO,
                v1::ClusterStatusRequest::default(),
                |mut node, request| async move { node.cluster_status(request).await },
            )
            .await?;
        let Some(leader) = address_of_another_leader(&first) else {
            return Ok(first);
        };
        let leader_view = async {
            let mut node = self.transport.connect(&leader).await.ok()?;
            Some(node.cluster_status(v1::ClusterStatusRequest::default()).await.ok()?.into_inner())
        };
        Ok(timeout(ATTEMPT_PATIENCE, leader_view).await.ok().flatten().unwrap_or(first))
    }

    pub async fn open_session(
        &self,
        session: SessionId,
        ttl: Duration,
        linger: Option<Duration>,
        owner: v1::Owner,
    ) -> Result<v1::OpenSessionResponse, CallError> {
        let request = v1::OpenSessionRequest {
            session_id: session.to_secret_text(),
            request_id: 0,
            ttl_ms: whole_ms(ttl),
            linger_ms: linger.map(whole_ms),
            owner: Some(owner),
            group: self.group_on_wire(),
        };
        self.call(Duration::ZERO, request, |mut node, request| async move {
            node.open_session(request).await
        })
        .await
    }

    /// It leaves no answer behind, so it acknowledges nothing: an acquire may be under way beside it.
    pub async fn keep_alive(
        &self,
        session: SessionId,
        request_id: u64,
    ) -> Result<v1::KeepAliveResponse, CallError> {
        let request = v1::KeepAliveRequest {
            session_id: session.to_secret_text(),
            request_id,
            acked_through: 0,
            group: self.group_on_wire(),
        };
        self.call(Duration::ZERO, request, |mut node, request| async move {
            node.keep_alive(request).await
        })
        .await
    }

    /// For a program that looks after many sessions: 1 to 4,096 at a time. For each there is its TTL in milliseconds,
    /// counted from when this was called; 0 if it has ended. It acknowledges nothing.
    pub async fn keep_alive_many(
        &self,
        sessions: &[SessionId],
    ) -> Result<v1::KeepAliveManyResponse, CallError> {
        let session_ids = sessions.iter().map(|session| session.to_secret_text()).collect();
        let request = v1::KeepAliveManyRequest { session_ids, group: self.group_on_wire() };
        self.call(Duration::ZERO, request, |mut node, request| async move {
            node.keep_alive_many(request).await
        })
        .await
    }

    pub async fn close_session(
        &self,
        session: SessionId,
        request_id: u64,
    ) -> Result<v1::CloseSessionResponse, CallError> {
        let (session_id, group) = (session.to_secret_text(), self.group_on_wire());
        let request = v1::CloseSessionRequest { session_id, request_id, group };
        self.call(Duration::ZERO, request, |mut node, request| async move {
            node.close_session(request).await
        })
        .await
    }

    /// `request` without its session and tier. The call may take the request's own wait longer than others.
    pub async fn acquire(
        &self,
        session: SessionId,
        request: v1::AcquireRequest,
    ) -> Result<Acquired, CallError> {
        let wait = Duration::from_millis(request.wait_ms);
        let (session_id, tier) = (session.to_secret_text(), self.tier.to_wire().into());
        let request = v1::AcquireRequest { session_id, tier, ..request };
        let answer: v1::AcquireResponse = self
            .call(wait, request, |mut node, request| async move { node.acquire(request).await })
            .await?;
        match answer.outcome {
            Some(Outcome::Granted(grant)) => Ok(Acquired::Granted(grant)),
            Some(Outcome::Busy(_)) => Ok(Acquired::Busy),
            Some(Outcome::TimedOut(_)) => Ok(Acquired::TimedOut),
            Some(Outcome::Deadlock(deadlock)) => Ok(Acquired::Deadlock(Cycle::of(deadlock))),
            Some(Outcome::Died(died)) => Ok(Acquired::Died { since: Since(died.since_ms) }),
            Some(Outcome::Cancelled(_) | Outcome::AllGranted(_)) | None => Err(unknown_outcome()),
        }
    }

    pub async fn release(
        &self,
        session: SessionId,
        id: CallId,
        name: &str,
        token: u64,
    ) -> Result<ReleaseOutcome, CallError> {
        let request = v1::ReleaseRequest {
            session_id: session.to_secret_text(),
            request_id: id.request_id,
            acked_through: id.acked_through,
            name: name.to_owned(),
            token,
            tier: self.tier.to_wire().into(),
            ..Default::default()
        };
        let answer: v1::ReleaseResponse = self
            .call(Duration::ZERO, request, |mut node, request| async move {
                node.release(request).await
            })
            .await?;
        ReleaseOutcome::from_wire(answer.outcome()).ok_or_else(unknown_outcome)
    }

    pub async fn renew(
        &self,
        session: SessionId,
        id: CallId,
        name: &str,
        token: u64,
        ttl: Option<Duration>,
    ) -> Result<v1::RenewResponse, CallError> {
        let request = v1::RenewRequest {
            session_id: session.to_secret_text(),
            request_id: id.request_id,
            acked_through: id.acked_through,
            name: name.to_owned(),
            token,
            ttl_ms: ttl.map(whole_ms),
            tier: self.tier.to_wire().into(),
            ..Default::default()
        };
        self.call(
            Duration::ZERO,
            request,
            |mut node, request| async move { node.renew(request).await },
        )
        .await
    }

    async fn call<R: Clone, T, F: Asked<T>>(
        &self,
        own_wait: Duration,
        request: R,
        ask: impl Fn(LockServiceClient<NodeChannel>, R) -> F,
    ) -> Result<T, CallError> {
        let ask = |channel, request| ask(connection::lock_service(channel), request);
        self.call_on(own_wait, request, ask).await
    }

    async fn call_on<R: Clone, T, F: Asked<T>>(
        &self,
        own_wait: Duration,
        request: R,
        ask: impl Fn(NodeChannel, R) -> F,
    ) -> Result<T, CallError> {
        let deadline = Instant::now() + own_wait + self.timeout;
        let attempt_patience = move || {
            (own_wait + ATTEMPT_PATIENCE).min(deadline.saturating_duration_since(Instant::now()))
        };
        self.repeat_until(deadline, attempt_patience, request, ask).await
    }

    /// Like [`Unary::call_on`] for what one node may take long to answer, but not for longer than others in vain: no
    /// attempt begins after the time of a usual call.
    async fn call_slow<R: Clone, T, F: Asked<T>>(
        &self,
        answer_patience: Duration,
        request: R,
        ask: impl Fn(NodeChannel, R) -> F,
    ) -> Result<T, CallError> {
        let deadline = Instant::now() + self.timeout;
        let attempt_patience = move || answer_patience + ATTEMPT_PATIENCE;
        self.repeat_until(deadline, attempt_patience, request, ask).await
    }

    /// No attempt begins after the deadline.
    async fn repeat_until<R: Clone, T, F: Asked<T>>(
        &self,
        deadline: Instant,
        attempt_patience: impl Fn() -> Duration,
        request: R,
        ask: impl Fn(NodeChannel, R) -> F,
    ) -> Result<T, CallError> {
        let refused_deadline = deadline.min(Instant::now() + REFUSED_PATIENCE);
        let mut endpoints = self.nodes.now();
        endpoints.follow_leader(&self.leader);
        let mut backoff = Backoff::new(jitter_seed());
        let mut may_have_happened = false;
        let mut troubles = ConnectErrors::default();
        let mut only_refused = true;
        loop {
            let address = endpoints.next_address();
            let (contact, failure) = match self
                .attempt(&address, attempt_patience(), |node| ask(node, request.clone()))
                .await
            {
                Ok(answer) => return Ok(answer),
                Err(failed) => failed,
            };
            troubles.note(&address, contact, &failure);
            only_refused &= contact == Contact::Refused;
            may_have_happened |= failure.may_have_happened;
            if contact != Contact::Made {
                endpoints.could_not_reach(&address);
            }
            // Another node may accept the certificate.
            let may_be_let_in = contact == Contact::Denied && troubles.count() < endpoints.count();
            if !failure.retryable && !may_be_let_in {
                return Err(CallError::Rejected(Rejection::of(failure)));
            }
            endpoints.follow_leader(&failure.leader);
            let pause = backoff.delay_after(retry_after(&failure));
            let no_node_there = only_refused && troubles.count() >= endpoints.count();
            let give_up_at = if no_node_there { refused_deadline } else { deadline };
            let is_too_often = !self.waits_for_rates && failure.reason() == Reason::RateLimited;
            if Instant::now() + pause >= give_up_at || is_too_often {
                if failure.retry_after_ms > 0 {
                    let rejection = Rejection { may_have_happened, ..Rejection::of(failure) };
                    return Err(CallError::Rejected(rejection));
                }
                return Err(CallError::Unavailable(troubles.to_unavailable(may_have_happened)));
            }
            tokio::time::sleep(pause).await;
        }
    }

    async fn attempt<T, F: Asked<T>>(
        &self,
        address: &str,
        patience: Duration,
        ask: impl FnOnce(NodeChannel) -> F,
    ) -> Result<T, (Contact, Failure)> {
        let denied = |words| (Contact::Denied, refused(Reason::Unauthenticated, words));
        let node =
            self.transport.open(address).await.map_err(|error| {
                match connection::why_not(&error) {
                    (Contact::Denied, words) => denied(words),
                    (contact, words) => (contact, unreachable(&words, false)),
                }
            })?;
        match timeout(patience, ask(node)).await {
            Ok(Ok(answer)) => Ok(answer.into_inner()),
            // A node that does not accept our certificate says so after the handshake.
            Ok(Err(status)) => Err(match explain_any(&status) {
                Some(words) => denied(words),
                None => (Contact::Made, Failure::from_status(&status)),
            }),
            Err(_) => Err((Contact::Made, unreachable("no answer in time", true))),
        }
    }
}

/// A call under way. The futures of calls are made of these, and can be handed to another thread.
pub(crate) trait Asked<T>: Future<Output = Result<Response<T>, Status>> + Send {}

impl<T, F: Future<Output = Result<Response<T>, Status>> + Send> Asked<T> for F {}

fn unreachable(words: &str, may_have_happened: bool) -> Failure {
    Failure {
        reason: Reason::Unspecified.into(),
        message: words.to_owned(),
        retryable: true,
        may_have_happened,
        ..Failure::default()
    }
}

fn unknown_outcome() -> CallError {
    CallError::Rejected(Rejection {
        reason: Reason::Unspecified,
        message: "an outcome that this version does not know".to_owned(),
        may_have_happened: true,
        retry_after: None,
        map_epoch: 0,
    })
}

/// The leader of the first group, if it is not the node that answered.
fn address_of_another_leader(view: &v1::ClusterStatusResponse) -> Option<String> {
    let leader = view.groups.first()?.leader;
    if leader == view.answered_by {
        return None;
    }
    let node = view.nodes.iter().find(|node| node.id == leader)?;
    Some(node.client_address.clone())
}
