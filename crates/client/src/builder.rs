//! The settings of a client.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use holdfast_client_core::endpoints::Endpoints;
use holdfast_client_core::session as core;
use holdfast_proto::Guarantee;
use holdfast_proto::v1::Owner;

use crate::acquire_call::CurrentSpan;
use crate::client::{Client, host_name};
use crate::companion::Companion;
use crate::connection::Transport;
use crate::efficiency::{self, Efficiency, Route, WhenDown};
use crate::error::ConnectError;
use crate::session::{Sessions, Settings};
use crate::tls::Tls;

const DEFAULT_TTL: Duration = Duration::from_secs(30);
/// With a shorter one no heartbeat would be answered in time. It is also the shortest TTL that the cluster takes.
const LINGER_MIN: Duration = Duration::from_millis(100);
const DEFAULT_REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

impl Client {
    /// Opens a session with the default settings. `endpoints` are one or more `host:port`, separated
    /// by commas; the other nodes of the cluster are learned from them.
    pub async fn connect(endpoints: &str) -> Result<Client, ConnectError> {
        Client::builder().connect(endpoints).await
    }

    pub fn builder() -> ClientBuilder {
        ClientBuilder::new(default_owner())
    }
}

/// This process, as people will see it in listings.
fn default_owner() -> Owner {
    let application = std::env::current_exe()
        .ok()
        .and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()))
        .unwrap_or_default();
    Owner { application, host: host_name(), pid: std::process::id(), note: String::new() }
}

/// The settings of a client; see [`Client::builder`].
#[derive(Debug, Clone)]
#[must_use]
pub struct ClientBuilder {
    settings: Settings,
    tls: Option<Tls>,
    auth_file: Option<PathBuf>,
    efficiency: efficiency::Settings,
    discovers: bool,
    connects_when_needed: bool,
    current_span: Option<CurrentSpan>,
}

impl ClientBuilder {
    pub(crate) fn new(owner: Owner) -> ClientBuilder {
        ClientBuilder {
            settings: Settings {
                session: core::Settings { ttl: DEFAULT_TTL, linger: None, owner },
                request_timeout: DEFAULT_REQUEST_TIMEOUT,
                waits_for_rates: true,
                companion: None,
                transport: Transport::default(),
            },
            tls: None,
            auth_file: None,
            efficiency: efficiency::Settings::default(),
            discovers: true,
            connects_when_needed: false,
            current_span: None,
        }
    }

    /// How long the session outlives the last answered request; 30 s by default. A third of it is the
    /// time between heartbeats.
    pub fn ttl(mut self, ttl: Duration) -> ClientBuilder {
        self.settings.session.ttl = ttl;
        self
    }

    /// How long the session outlives a broken stream; the TTL by default, and 100 ms at least.
    ///
    /// A linger below the TTL frees the locks of a program that died sooner, and costs every live one: the end of a
    /// connection is no evidence of death, so its guards are trusted for this time only instead of the TTL, and
    /// heartbeats go out every third of it. [`ClientBuilder::companion`] frees them sooner at no such price.
    pub fn linger(mut self, linger: Duration) -> ClientBuilder {
        self.settings.session.linger = Some(linger);
        self
    }

    /// Ends the session within about a second if this program is killed. Without it, the session lives for its TTL.
    pub fn companion(mut self, companion: Companion) -> ClientBuilder {
        self.settings.companion = Some(companion);
        self
    }

    /// Who is behind the session, for people who look at it; by default this process.
    pub fn owner(mut self, owner: Owner) -> ClientBuilder {
        self.settings.session.owner = owner;
        self
    }

    /// A word for people who look at the session, beside the default owner.
    pub fn note(mut self, note: impl Into<String>) -> ClientBuilder {
        self.settings.session.owner.note = note.into();
        self
    }

    /// How long a call waits for the cluster, beyond the wait for the lock itself; 10 s by default.
    pub fn request_timeout(mut self, request_timeout: Duration) -> ClientBuilder {
        self.settings.request_timeout = request_timeout;
        self
    }

    /// Reaches the nodes with TLS, and in no other way.
    pub fn tls(mut self, tls: Tls) -> ClientBuilder {
        self.tls = Some(tls);
        self
    }

    /// Shows the token in this file, so that the cluster knows who this client is. The file is read again when it has
    /// changed. It must not be readable by other users.
    pub fn auth_file(mut self, path: impl Into<PathBuf>) -> ClientBuilder {
        self.auth_file = Some(path.into());
        self
    }

    /// Only the endpoints that are given are used, and not the addresses that the nodes tell: for a client
    /// to which these mean nothing, behind a tunnel or a load balancer. Any node serves it; those that do not
    /// lead forward.
    pub fn without_discovery(mut self) -> ClientBuilder {
        self.discovers = false;
        self
    }

    /// What serves locks that are asked for with [`Tier::Efficiency`](crate::Tier::Efficiency); the cluster itself
    /// by default.
    pub fn efficiency(mut self, backend: Efficiency) -> ClientBuilder {
        self.efficiency.backend = backend;
        self
    }

    /// What to do when that is down; fail by default.
    pub fn when_down(mut self, when_down: WhenDown) -> ClientBuilder {
        self.efficiency.when_down = when_down;
        self
    }

    /// No lock of this client is to be held with less: where it is
    /// [`Linearizable`](Guarantee::Linearizable), asking for the efficiency tier is an error. Whatever is
    /// required, no work goes on without a lock: [`WhenDown::GoWithout`] fails.
    pub fn require(self, guarantee: Guarantee) -> ClientBuilder {
        self.require_under("", guarantee)
    }

    /// As [`ClientBuilder::require`], of the names that begin so. Of several that cover a name the strictest
    /// counts.
    pub fn require_under(
        mut self,
        prefix: impl Into<String>,
        guarantee: Guarantee,
    ) -> ClientBuilder {
        self.efficiency.requirements.add(prefix.into(), guarantee);
        self
    }

    /// How the program tells of which span it is part, as the W3C's `traceparent`: with `tracing-opentelemetry` from the
    /// context of `tracing::Span::current()`. It is asked at each acquire, within the span `acquire`, and nodes that
    /// export spans record what becomes of the request as a child of that. See docs/tracing.md.
    pub fn traceparent(
        mut self,
        current: impl Fn() -> Option<String> + Send + Sync + 'static,
    ) -> ClientBuilder {
        self.current_span = Some(CurrentSpan(Arc::new(current)));
        self
    }

    /// The session is opened by the first call that needs one. Until then [`ClientBuilder::connect`] asks no node for
    /// anything, and returns at once. A client whose locks are all in Redis or in a Redlock
    /// ([`ClientBuilder::efficiency`]) needs no session: it works without any cluster, and its endpoints are never used.
    pub fn connect_when_needed(mut self) -> ClientBuilder {
        self.connects_when_needed = true;
        self
    }

    /// Fails at once with [`Reason::RateLimited`](holdfast_proto::v1::Reason::RateLimited) where the rate of a quota is
    /// used up. By default a call waits until there is room, as long as it may take.
    pub fn fail_if_rate_limited(mut self) -> ClientBuilder {
        self.settings.waits_for_rates = false;
        self
    }

    /// Opens the session; see [`Client::connect`] for `endpoints`. If all that the nodes do is to refuse the
    /// connection, it takes a second to say so.
    pub async fn connect(mut self, endpoints: &str) -> Result<Client, ConnectError> {
        let mut endpoints: Endpoints = endpoints.parse()?;
        if self.settings.session.linger.is_some_and(|linger| linger < LINGER_MIN) {
            return Err(ConnectError::LingerTooShort);
        }
        if !self.discovers {
            endpoints.fix();
        }
        if let Some(tls) = self.tls {
            self.settings.transport =
                self.settings.transport.with_tls(tls, self.settings.session.ttl)?;
        }
        if let Some(path) = self.auth_file {
            self.settings.transport = self.settings.transport.with_auth_file(path)?;
        }
        let route = Route::open(self.efficiency, self.settings.session.ttl)?;
        let sessions = match self.connects_when_needed {
            true => Sessions::open_when_needed(endpoints, self.settings)?,
            false => Sessions::open(endpoints, self.settings).await?,
        };
        Ok(Client::new(sessions, Arc::new(route), self.current_span))
    }
}
