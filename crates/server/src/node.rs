//! One node: everything put together, and taken apart again.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use holdfast_jwt::{JwtError, JwtKeys};
use holdfast_service::{AuditGate, Service};
use holdfast_spans::{ExportError, Exporter, ReceiverTls};
use holdfast_tls::RemoteCertificate;
use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tonic::transport::server::TcpIncoming;

use crate::access::{self, BootstrapError};
use crate::access_reset::{AccessReset, ResetError};
use crate::audit::{Audit, AuditFileError, AuditNotes, AuditSettings};
use crate::config::{Address, ConfigError, NodeConfig, TracingConfig};
use crate::connections::{Connections, Descriptors, PortLimits, TooFewDescriptors};
use crate::efficiency_tier::{self, EfficiencyTier};
use crate::events::EventRings;
use crate::http;
use crate::identity::{Identity, IdentityError};
use crate::inbox::{self, Input, Leaderships, ShardHandle};
use crate::initial_members::{self, InitialMembersError};
use crate::kafka::{self, KafkaFileError, Publisher};
use crate::known_peers::{KnownPeers, KnownPeersError};
use crate::leaderless_warning;
use crate::listener;
use crate::loop_watchdog::LoopWatchdog;
use crate::membership::Membership;
use crate::metrics::Metrics;
use crate::peers::{Handshake, PeerLinks, PeerPort};
use crate::readiness::{self, Readiness, ReadinessSources};
use crate::rpc::{self, DashboardSource, Forwarded, Rpc};
use crate::shard::{self, Channels, ShardError, StopReason};
use crate::stopping::StopSwitch;
use crate::traces::Traces;
use crate::transport::{ClientSide, TlsError, Transport};

/// Longer than the shard takes to hand leadership over.
const DRIVER_STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// How long connections have to end once their streams have.
const SERVERS_STOP_TIMEOUT: Duration = Duration::from_secs(1);
/// For the last spans.
const SPANS_TIMEOUT: Duration = Duration::from_secs(2);

/// A running node. [`Node::shutdown`] stops it and waits until it has; dropping it tells it to stop
/// and waits for nothing.
#[derive(Debug)]
pub struct Node {
    watchdog: Arc<LoopWatchdog>,
    client_address: SocketAddr,
    http_address: Option<SocketAddr>,
    has_client_tls: bool,
    shard: ShardHandle,
    /// Taken when the reason was received.
    shard_end: Option<oneshot::Receiver<StopReason>>,
    ready: watch::Receiver<Readiness>,
    /// Thrown first: the node tells that it does not serve any more.
    leaving: StopSwitch,
    /// Thrown when the shard has ended: streams and servers end.
    stop: StopSwitch,
    tasks: JoinSet<()>,
    servers: JoinSet<()>,
    traces: Option<Arc<Traces>>,
    transport: Transport,
    jwts: Option<Arc<JwtKeys>>,
}

/// Reads the certificates of a node, and the keys of the issuer of JWTs, again.
#[derive(Clone, Debug)]
pub struct CredentialReloader {
    transport: Transport,
    jwts: Option<Arc<JwtKeys>>,
}

/// Why the files were not taken into use.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error(transparent)]
    Jwt(#[from] JwtError),
}

impl CredentialReloader {
    /// Whether a port of the node speaks TLS, or the node takes JWTs.
    pub fn has_files(&self) -> bool {
        self.transport.has_certificates() || self.jwts.is_some()
    }

    /// Takes the files into use that the configuration names, and closes the connections whose certificate they revoke.
    /// If a file of TLS is wrong, TLS stays as it was; if the key set is wrong, the keys do. Neither keeps a revocation
    /// by the other from taking effect.
    pub fn reload(&self, config: &NodeConfig) -> Result<(), ReloadError> {
        let tls = self.transport.reload(config);
        let jwts = holdfast_jwt::checked_again(self.jwts.as_deref(), config.auth.jwt.as_ref())?;
        if let (Some(keys), Some(settings)) = (&self.jwts, jwts) {
            keys.replace(settings);
        }
        Ok(tls?)
    }
}

/// Whether a node's loop turns.
#[derive(Clone, Debug)]
pub struct Liveness {
    watchdog: Arc<LoopWatchdog>,
}

impl Liveness {
    /// One that stands still for long waits for its disk, or has a bug.
    pub fn is_turning(&self) -> bool {
        self.watchdog.stopped_for().is_none()
    }
}

/// Why a node could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error(transparent)]
    KnownPeers(#[from] KnownPeersError),
    #[error(transparent)]
    Founders(#[from] InitialMembersError),
    #[error(
        "the {port} address {address} is in use; another node or program runs there: stop it, or \
         choose another address in the configuration"
    )]
    AddressInUse { port: &'static str, address: Address },
    #[error(
        "cannot listen on the {port} address {address}: {source}; it must be an address of this \
         machine"
    )]
    CannotListen { port: &'static str, address: Address, source: io::Error },
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error(transparent)]
    TooFewDescriptors(#[from] TooFewDescriptors),
    #[error(transparent)]
    Jwt(#[from] JwtError),
    #[error(transparent)]
    Bootstrap(#[from] BootstrapError),
    #[error(transparent)]
    AccessReset(#[from] ResetError),
    #[error(transparent)]
    Audit(#[from] AuditFileError),
    #[error(transparent)]
    Spans(#[from] ExportError),
    #[error(transparent)]
    Kafka(#[from] KafkaFileError),
    #[error(transparent)]
    Shard(#[from] ShardError),
    #[error("the start was broken off: {0}")]
    BrokenOff(#[from] tokio::task::JoinError),
}

impl Node {
    /// Call it within a tokio runtime. When it returns all ports are open; [`Node::serving`] tells
    /// when there is a leader to serve.
    pub async fn start(config: NodeConfig) -> Result<Node, StartError> {
        Node::start_with(config, Service::default()).await
    }

    /// As [`Node::start`], with a service that every action passes.
    pub async fn start_with(config: NodeConfig, service: Service) -> Result<Node, StartError> {
        config.check()?;
        let descriptors = Descriptors::of_node()?;
        let transport = Transport::load(&config)?;
        config.kafka.as_ref().map_or(Ok(()), kafka::check_files)?;
        let jwts = config.auth.jwt.as_ref().map(JwtKeys::load).transpose()?.map(Arc::new);
        let service = match jwts.clone() {
            None => service,
            Some(keys) => service.with_jwts(Arc::new(move |token| keys.verify(token))),
        };
        let actions = config.http.actions()?;
        let hosts = config.http.hosts(&config.nodes, &config.listen);
        // Before anything is written: a start that fails because a port is in use leaves nothing behind.
        let listening = config.listen.of(config.this_node()?);
        let client_listener = listen("client", listening.client).await?;
        let peer_listener = listen("peer", listening.peer).await?;
        let client_address = client_listener
            .local_addr()
            .map_err(|source| cannot_listen("client", listening.client, source))?;
        let http_listener = match listening.http {
            Some(address) => Some(listen("HTTP", address).await?),
            None => None,
        };
        let http_address = http_listener.as_ref().and_then(|listener| listener.local_addr().ok());
        let identity = Identity::load_or_create(
            &config.data_dir,
            &config.cluster,
            config.node_id(),
            config.groups,
        )?;
        let known_peers = KnownPeers::load(&config.data_dir)?;
        let metrics = Arc::new(Metrics::new());
        let audit = config.audit.as_ref();
        let notes = audit.map(|_| Arc::new(AuditNotes::default()));
        let on_failure = audit.map(|audit| audit.on_failure).unwrap_or_default();
        let audit_gate = Arc::new(AuditGate::new(on_failure));
        let service = access::service(service, &config, &metrics, notes.clone())?
            .with_audit(Arc::clone(&audit_gate));
        let access_reset =
            AccessReset::load(&config.data_dir)?.map(|reset| (reset, config.data_dir.clone()));
        let initial_members = initial_members::load_or_create(&config)?;
        let membership = Arc::new(Membership::of(&config, &initial_members));

        let (inbox_sender, inbox) = inbox::inbox().map_err(ShardError::Inbox)?;
        let (leadership, leadership_watch) = Leaderships::new(membership.groups.all());
        let shard = ShardHandle::new(inbox_sender.clone(), leadership_watch);
        let data_dir = identity.data_dir.into();
        let known = Arc::clone(&membership);
        let handshake = Handshake::new(
            identity,
            known,
            known_peers,
            config.timing(),
            config.auth.mode,
            transport.clone(),
        );
        let handshake = Arc::new(handshake);
        let mut tasks = JoinSet::new();
        let limits = PortLimits::of_clients(&config.connections, &descriptors);
        let accepts = || {
            let side = transport.watch_clients();
            move |certificate: &RemoteCertificate| {
                // A check takes a while: not while a reload waits.
                let side = side.as_ref().map(|side| Arc::clone(&side.borrow()));
                side.is_some_and(|side| side.accepts(certificate))
            }
        };
        let clients = Connections::checking(limits, Arc::clone(&descriptors), accepts());
        let on_http = Connections::checking(PortLimits::of_http(), descriptors, accepts());
        for port in [&clients, &on_http] {
            tasks.spawn(Arc::clone(port).keep_closing());
            if let Some(side) = transport.watch_clients() {
                tasks.spawn(close_denied_when_reloaded(Arc::clone(port), side));
            }
        }
        tasks.spawn(transport.clone().keep_warning_of_ends());
        let links = PeerLinks::start(&handshake, &shard, &mut tasks);

        let (spreads_leaders, leaders_stay_for) = (config.spreads_leaders, config.leaders_stay_for);
        let events = EventRings::new(membership.groups.all(), config.events_kept);
        let memory = Arc::new(EfficiencyTier::counting(Arc::clone(&metrics.efficiency)));
        tasks.spawn(efficiency_tier::keep_time(Arc::clone(&memory)));
        let watchdog = Arc::new(LoopWatchdog::new());
        let traces = match &config.tracing {
            Some(TracingConfig { endpoint, tls }) => {
                let instance = config.node_id().0.to_string();
                let tls = tls.as_ref().map(|tls| ReceiverTls::new(&tls.ca, tls.identity()));
                let exporter = Exporter::start(endpoint, tls, "holdfast", &instance)?;
                Some(Arc::new(Traces::new(exporter)))
            }
            None => None,
        };
        let (node, started_unix_ms) = (config.node_id(), shard::unix_ms());
        let audit = match (&config.audit, &notes) {
            (Some(audit), Some(notes)) => {
                let settings = AuditSettings {
                    file: audit.file.clone(),
                    bytes_max: audit.file_bytes,
                    kept: audit.files_kept,
                };
                let metrics = Arc::clone(&metrics);
                let electorate = membership.watch_electorate();
                let (notes, gate) = (Arc::clone(notes), Arc::clone(&audit_gate));
                let shard = shard.clone();
                Some(Audit::open(&settings, &events, shard, electorate, metrics, notes, gate)?)
            }
            _ => None,
        };
        let publisher = config
            .kafka
            .clone()
            .map(|kafka| Publisher::new(kafka, &config.cluster, &events, &shard, &metrics));
        let shard_end = {
            let membership = Arc::clone(&membership);
            let events = events.clone();
            let watchdog = Arc::clone(&watchdog);
            let metrics = Arc::clone(&metrics);
            let memory = Arc::clone(&memory);
            let traces = traces.clone();
            let policy = Arc::clone(service.policy());
            let channels = Channels {
                policy,
                policy_generations: shard.policy_generations().clone(),
                inbox,
                inbox_sender,
                leadership,
                events,
                memory,
                watchdog,
                metrics,
                traces,
                membership,
                initial_members,
                data_dir,
            };
            let links = links.clone();
            // Reads the whole log.
            tokio::task::spawn_blocking(move || shard::start(&config, channels, links)).await??
        };

        let (leaving, stop) = (StopSwitch::new(), StopSwitch::new());
        let (reporter, health) = tonic_health::server::health_reporter();
        let ready = watch::Sender::new(Readiness::NoLeader);
        let ready_watch = ready.subscribe();
        tasks.spawn(leaderless_warning::keep_reporting(
            ready.subscribe(),
            Arc::clone(&membership),
            links.clone(),
        ));
        tasks.spawn(readiness::keep_reporting(
            ReadinessSources {
                shard: shard.clone(),
                links: links.clone(),
                watchdog: Arc::clone(&watchdog),
                metrics: Arc::clone(&metrics),
                audit: audit_gate,
            },
            reporter,
            ready,
            leaving.watch(),
        ));

        let mut servers = JoinSet::new();
        if let Some(audit) = audit {
            servers.spawn(audit.keep_writing(stop.watch()));
        }
        if let Some(publisher) = publisher {
            servers.spawn(publisher.keep_publishing(stop.watch()));
        }
        let lost_on_http = http::explain_to_clients(&membership);
        let rpc = {
            let (shard, metrics) = (shard.clone(), Arc::clone(&metrics));
            Rpc::new(
                service.clone(),
                shard,
                membership,
                links.clone(),
                events,
                memory,
                metrics,
                stop.watch(),
            )
            .with_traces(traces.clone())
            .with_audit(notes.clone())
        };
        if spreads_leaders {
            tasks.spawn(rpc::keep_balanced(rpc.clone(), leaders_stay_for));
        }
        tasks.spawn(rpc::give_up_groups_without_root(rpc.clone()));
        if let Some((reset, data_dir)) = access_reset {
            tasks.spawn(rpc.clone().carry_out_reset(reset, data_dir));
        }
        let peer_port = PeerPort::new(handshake, shard.clone(), links, stop.watch());
        let incoming = keep_alive(TcpIncoming::from(peer_listener).with_nodelay(Some(true)));
        let forwarded = Forwarded::service(rpc.clone(), peer_port.tickets());
        servers.spawn(async move {
            if let Err(error) = peer_port.serve(forwarded, incoming).await {
                tracing::error!(%error, "the peer port is closed");
            }
        });
        let source = Arc::new(DashboardSource::new(rpc.clone()));
        let incoming = keep_alive(TcpIncoming::from(client_listener).with_nodelay(Some(true)));
        let (of_clients, of_port) = (Arc::clone(&clients), transport.clone());
        servers.spawn(async move {
            if let Err(error) = rpc::serve(rpc, of_clients, health, incoming, of_port).await {
                tracing::error!(%error, "the client port is closed");
            }
        });

        let has_client_tls = transport.watch_clients().is_some();
        if let Some(listener) = http_listener {
            let readiness = ready_watch.clone();
            let shard = shard.clone();
            let shown = http::Shown {
                node,
                shard,
                metrics,
                started_unix_ms,
                watchdog: Arc::clone(&watchdog),
                readiness,
                connections: [clients, Arc::clone(&on_http)],
                transport: transport.clone(),
                logins: http::Logins::new(service, has_client_tls, notes),
            };
            let (dashboard, sampling) = holdfast_dashboard::dashboard(source, actions, hosts);
            tasks.spawn(sampling);
            let routes = http::routes(shown, dashboard);
            let (port, stopping) = (transport.clone(), stop.watch());
            servers.spawn(http::serve(listener, on_http, routes, lost_on_http, port, stopping));
        }

        tracing::info!(%client_address, http_address = http_address.map(tracing::field::display), "node started");
        let shard_end = Some(shard_end);
        let ready = ready_watch;
        Ok(Node {
            watchdog,
            client_address,
            http_address,
            has_client_tls,
            shard,
            shard_end,
            ready,
            leaving,
            stop,
            tasks,
            servers,
            traces,
            transport,
            jwts,
        })
    }

    pub fn client_address(&self) -> SocketAddr {
        self.client_address
    }

    /// None if it has no HTTP port.
    pub fn http_address(&self) -> Option<SocketAddr> {
        self.http_address
    }

    /// Of the HTTP port, if there is one, as a browser takes it.
    pub fn http_url(&self) -> Option<String> {
        let scheme = if self.has_client_tls { "https" } else { "http" };
        self.http_address.map(|address| format!("{scheme}://{address}"))
    }

    /// For the program that supervises the node.
    pub fn liveness(&self) -> Liveness {
        Liveness { watchdog: Arc::clone(&self.watchdog) }
    }

    /// For SIGHUP.
    pub fn credential_reloader(&self) -> CredentialReloader {
        CredentialReloader { transport: self.transport.clone(), jwts: self.jwts.clone() }
    }

    /// Returns when the node can serve clients: it leads, or is connected to the node that does. Also
    /// returns if the node stops before.
    pub async fn serving(&self) {
        let _ = self.ready.clone().wait_for(|ready| ready.is_serving()).await;
    }

    /// Returns when the node has ended of its own accord, which is always a failure.
    pub async fn stopped(&mut self) -> StopReason {
        match &mut self.shard_end {
            Some(end) => {
                let reason = end.await.unwrap_or(StopReason::Panicked);
                self.shard_end = None;
                reason
            }
            None => StopReason::Requested,
        }
    }

    /// Hands leadership over, ends all streams and closes all ports. Other nodes take over within
    /// milliseconds if they are up.
    pub async fn shutdown(mut self) {
        self.leaving.throw();
        self.stop_shard().await;
        self.stop.throw();
        let closed = timeout(SERVERS_STOP_TIMEOUT, async {
            while self.servers.join_next().await.is_some() {}
        });
        if closed.await.is_err() {
            tracing::debug!("some connections did not end in time");
        }
        if let Some(traces) = self.traces.take() {
            let finish = move || traces.exporter().finish(SPANS_TIMEOUT);
            let _ = tokio::task::spawn_blocking(finish).await;
        }
        self.servers.shutdown().await;
        self.tasks.shutdown().await;
    }

    async fn stop_shard(&mut self) {
        const PAUSE: Duration = Duration::from_millis(5);
        let stopped = timeout(DRIVER_STOP_TIMEOUT, async {
            while self.shard.send(Input::Shutdown).is_err() && !self.shard.is_gone() {
                sleep(PAUSE).await;
            }
            self.stopped().await
        });
        match stopped.await {
            Ok(reason) => tracing::info!(%reason, "the shard stopped"),
            Err(_) => tracing::warn!("the shard did not stop in time"),
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // After a shutdown the shard is gone and hears nothing.
        let _ = self.shard.send(Input::Shutdown);
        self.stop.throw();
    }
}

/// A certificate that is revoked by the files that were loaded last ends its connections.
async fn close_denied_when_reloaded(
    port: Arc<Connections>,
    mut side: watch::Receiver<Arc<ClientSide>>,
) {
    while side.changed().await.is_ok() {
        let port = Arc::clone(&port);
        if let Err(error) = tokio::task::spawn_blocking(move || port.close_denied()).await {
            tracing::error!(%error, "connections were not compared with the new certificates");
        }
    }
}

async fn listen(port: &'static str, address: &Address) -> Result<TcpListener, StartError> {
    let listening = listener::listen(address.as_str()).await;
    listening.map_err(|error| cannot_listen(port, address, error))
}

fn cannot_listen(port: &'static str, address: &Address, source: io::Error) -> StartError {
    let address = address.clone();
    match source.kind() {
        io::ErrorKind::AddrInUse => StartError::AddressInUse { port, address },
        _ => StartError::CannotListen { port, address, source },
    }
}

/// Dead sockets go within about half a minute.
fn keep_alive(incoming: TcpIncoming) -> TcpIncoming {
    incoming
        .with_keepalive(Some(Duration::from_secs(15)))
        .with_keepalive_interval(Some(Duration::from_secs(5)))
        .with_keepalive_retries(Some(3))
}
