//! The handle through which gRPC and HTTP reach the shard, and through which all front ends reach
//! the efficiency tier. It takes [`Admitted`] actions only, so a request that did not pass the
//! service cannot be carried out.
//!
//! No front end holds a handle of the shard. For gRPC and HTTP, this is also the only place that
//! decides which group an action is for (`shard/inputs.rs` does it for framed connections).

use std::sync::Arc;
use std::time::Duration;

use holdfast_core::{Command, LockName, Rejection, RequestId, SessionId};
use holdfast_proto::failure::rejected;
use holdfast_proto::v1::Failure;
use holdfast_replica::{HandOverRefusal, Leadership, MembershipChange, NodeId};
use holdfast_service::{About, Admitted, Authorised, Caller, Method, Permit, Service};
use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};
use tokio::time::{sleep, timeout};

use super::failure::{bug, dropped_by_shard, overloaded, stopping, unavailable, unsure};
use crate::boot_clock;
use crate::efficiency_tier::{EfficiencyTier, TierStream};
use crate::membership::Membership;
use crate::outbox::{ReplyTo, TaskOutbox};
use crate::shard::{
    Answer, CallRef, ChangeAnswer, Connection, Deferrable, FIRST_GROUP, GroupView, Input, LiveCall,
    OwnTable, Query, ReadAnswer, ReadData, ShardHandle, StreamKey, Touched,
};
use crate::stopping::Stopping;

/// How long to wait until a quorum confirms that this node leads. After that the node refuses, as
/// if it had no quorum.
pub(super) const ADMISSION_TIMEOUT: Duration = Duration::from_secs(1);
/// How long to wait before the shard is told once more, if its inbox is full.
const INBOX_FULL_PAUSE: Duration = Duration::from_millis(10);

/// Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Door {
    service: Service,
    shard: ShardHandle,
    memory: Arc<EfficiencyTier>,
    membership: Arc<Membership>,
    stopping: Stopping,
}

/// An operation for the efficiency tier, and where its answer goes.
pub(super) type InMemory = (Admitted<Command>, ReplyTo);

/// What came of operations for the efficiency tier.
#[derive(Debug)]
pub(super) enum MemoryStep {
    Done,
    /// None of them was carried out.
    Refused(Vec<InMemory>, Failure),
    /// First the quorum has to be asked.
    Admit(Vec<InMemory>, Query),
}

impl Door {
    pub(super) fn new(
        service: Service,
        shard: ShardHandle,
        memory: Arc<EfficiencyTier>,
        membership: Arc<Membership>,
        stopping: Stopping,
    ) -> Door {
        Door { service, shard, memory, membership, stopping }
    }

    /// Room for one more request, for as long as the permit is held.
    pub(super) fn begin(&self, method: Method) -> Result<Permit, Failure> {
        if self.is_stopping() {
            return Err(stopping());
        }
        self.service.begin(method)
    }

    pub(super) fn service(&self) -> &Service {
        &self.service
    }

    pub(super) fn begin_relay(&self) -> Result<Permit, Failure> {
        self.service.begin_relay()
    }

    pub(super) fn authorise(
        &self,
        caller: &Caller,
        method: Method,
        about: About<'_>,
    ) -> Result<Authorised, Failure> {
        self.service.authorise(caller, method, about)
    }

    /// An action that is about no lock in particular.
    pub(super) fn admit<T>(
        &self,
        caller: &Caller,
        method: Method,
        action: T,
    ) -> Result<Admitted<T>, Failure> {
        self.service.admit(caller, method, action)
    }

    // ---- who leads ----

    pub(super) fn leadership(&self) -> Leadership {
        self.shard.leadership()
    }

    pub(super) fn watch_leadership(&self) -> watch::Receiver<Leadership> {
        self.shard.watch_leadership()
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.has_begun() || self.shard.is_gone()
    }

    pub(super) fn is_shard_gone(&self) -> bool {
        self.shard.is_gone()
    }

    // ---- calls: each is answered once ----

    /// Carries out a command at this node, which should be the leader. If `call` is given, the
    /// shard undoes the command when its caller hangs up.
    pub(super) async fn call(
        &self,
        command: Admitted<Command>,
        call: Option<CallRef>,
    ) -> Result<Answer, Failure> {
        let command = command.into_inner();
        self.ask(|reply| Input::Call { group: FIRST_GROUP, command, reply, call }).await
    }

    /// The caller hung up before it had its answer.
    pub(super) fn abandon(&self, session: SessionId, request: RequestId, call: LiveCall) {
        let abandoned = Input::Abandoned { group: FIRST_GROUP, session, request, call };
        if let Err(mut abandoned) = self.shard.offer(abandoned)
            && let Ok(runtime) = Handle::try_current()
        {
            let shard = self.shard.clone();
            runtime.spawn(async move {
                while !shard.is_gone() {
                    sleep(INBOX_FULL_PAUSE).await;
                    match shard.offer(*abandoned) {
                        Ok(()) => return,
                        Err(full) => abandoned = full,
                    }
                }
            });
        }
    }

    pub(super) async fn touch(
        &self,
        sessions: Admitted<Vec<SessionId>>,
    ) -> Result<Touched, Failure> {
        let sessions = sessions.into_inner();
        let answer = self.ask(|reply| Input::Touches { group: FIRST_GROUP, sessions, reply });
        answer.await?.map_err(|reason| unavailable(reason, &self.membership))
    }

    /// A linearizable read. This node should lead.
    pub(super) async fn read(&self, query: Admitted<Query>) -> Result<ReadAnswer, Failure> {
        let query = query.into_inner();
        self.read_at_shard(query).await
    }

    /// A linearizable read that an action needs. It changes nothing.
    pub(super) async fn read_for<T>(
        &self,
        _: &Admitted<T>,
        query: Query,
    ) -> Result<ReadAnswer, Failure> {
        self.read_at_shard(query).await
    }

    async fn read_at_shard(&self, query: Query) -> Result<ReadAnswer, Failure> {
        let answer = self.ask(|reply| Input::Read { group: FIRST_GROUP, query, reply }).await?;
        answer.map_err(|reason| unavailable(reason, &self.membership))
    }

    /// What this node sees of its groups; needs no quorum.
    pub(super) async fn inspect(
        &self,
        with_digests: Admitted<bool>,
    ) -> Result<Vec<GroupView>, Failure> {
        let with_digests = with_digests.into_inner();
        self.ask(|reply| Input::Inspect { with_digests, reply }).await
    }

    /// This node's own copy of the table, with at most so many locks; needs no quorum.
    pub(super) async fn own_table(&self, locks_max: Admitted<usize>) -> Result<OwnTable, Failure> {
        let locks_max = locks_max.into_inner();
        self.ask(|reply| Input::ReadOwnTable { group: FIRST_GROUP, locks_max, reply }).await
    }

    pub(super) async fn change_membership(
        &self,
        change: Admitted<MembershipChange>,
    ) -> Result<ChangeAnswer, Failure> {
        let change = change.into_inner();
        self.ask(|reply| Input::ChangeMembership { group: FIRST_GROUP, change, reply }).await
    }

    pub(super) async fn hand_over(
        &self,
        to: Admitted<Option<NodeId>>,
    ) -> Result<Result<NodeId, HandOverRefusal>, Failure> {
        let to = to.into_inner();
        self.ask(|reply| Input::HandOver { group: FIRST_GROUP, to, reply }).await
    }

    async fn ask<A>(&self, input: impl FnOnce(oneshot::Sender<A>) -> Input) -> Result<A, Failure> {
        let (reply, answer) = oneshot::channel();
        self.shard.send(input(reply)).map_err(|_| self.no_room())?;
        answer.await.map_err(|_| dropped_by_shard())
    }

    fn no_room(&self) -> Failure {
        if self.shard.is_gone() { stopping() } else { overloaded() }
    }

    // ---- streams ----

    /// Both tiers tell the stream what happens to its session. The efficiency tier does so until
    /// the returned [`TierStream`] is dropped.
    pub(super) fn open_stream(
        &self,
        stream: StreamKey,
        outbox: TaskOutbox,
        deferrable: Deferrable,
        memory_outbox: TaskOutbox,
    ) -> Result<TierStream, Failure> {
        let opened = Input::StreamOpened { stream, outbox, deferrable };
        self.shard.send(opened).map_err(|_| self.no_room())?;
        Ok(self.memory.open_stream(stream, memory_outbox))
    }

    /// Must not be lost to a full inbox: a session whose stream the shard believes to be open would outlive its client
    /// by its TTL.
    pub(super) async fn close_stream(&self, stream: StreamKey, client_gone: bool) {
        while self.shard.send(Input::StreamClosed { stream, client_gone }).is_err() {
            if self.shard.is_gone() {
                return;
            }
            sleep(INBOX_FULL_PAUSE).await;
        }
    }

    /// The operations of one frame. If there is no room for them, they come back with the reason.
    pub(super) fn frame(
        &self,
        stream: StreamKey,
        operations: Vec<(RequestId, Admitted<Command>)>,
        is_deferrable: bool,
    ) -> Result<(), (Vec<RequestId>, Failure)> {
        let operations = operations.into_iter().map(|(id, command)| (id, command.into_inner()));
        // `collect` reuses the allocation: `Admitted<Command>` has the size of `Command`.
        let operations = operations.collect();
        let frame = Input::Frame { stream, operations, is_deferrable };
        self.shard.offer(frame).map_err(|frame| {
            let requests = match *frame {
                Input::Frame { operations, .. } => {
                    operations.into_iter().map(|(id, _)| id).collect()
                }
                _ => Vec::new(),
            };
            (requests, self.no_room())
        })
    }

    /// The reads of one frame. If there is no room for them, they come back with the reason.
    pub(super) fn reads_on_stream(
        &self,
        stream: StreamKey,
        reads: Vec<(RequestId, Admitted<LockName>)>,
    ) -> Result<(), (Vec<RequestId>, Failure)> {
        let reads = reads.into_iter().map(|(id, name)| (id, name.into_inner())).collect();
        let input = Input::Reads { stream, reads };
        self.shard.offer(input).map_err(|returned| {
            let requests = match *returned {
                Input::Reads { reads, .. } => reads.into_iter().map(|(id, _)| id).collect(),
                _ => Vec::new(),
            };
            (requests, self.no_room())
        })
    }

    /// The shard owns the connection from now on. A shard that is gone drops it.
    pub(super) async fn hand_over_connection(&self, connection: Box<dyn Connection>) {
        let mut input = Input::Connection(connection);
        while let Err(full) = self.shard.offer(input) {
            if self.shard.is_gone() {
                return;
            }
            sleep(INBOX_FULL_PAUSE).await;
            input = *full;
        }
    }

    // ---- the efficiency tier. The door asks the shard only for a session that the tier does not
    // know yet, or when this node is not sure that it still leads ----

    pub(super) fn memory(&self) -> &Arc<EfficiencyTier> {
        &self.memory
    }

    /// Carries out operations of one session in the efficiency tier. Each is answered through its
    /// own `ReplyTo`; if all are refused, they come back with the reason. Until the tier opens
    /// after an election, it refuses at once instead of waiting, so that other operations on the
    /// session's stream are not held up.
    pub(super) async fn carry_out_in_memory(
        &self,
        session: SessionId,
        operations: Vec<InMemory>,
    ) -> Result<(), (Vec<InMemory>, Failure)> {
        match self.begin_in_memory(session, operations) {
            MemoryStep::Done => Ok(()),
            MemoryStep::Refused(operations, failure) => Err((operations, failure)),
            MemoryStep::Admit(operations, query) => {
                let answer = timeout(ADMISSION_TIMEOUT, self.read_at_shard(query)).await;
                let answer = answer.unwrap_or_else(|_| Err(unsure()));
                self.finish_in_memory(session, operations, answer)
            }
        }
    }

    /// The same for a caller that cannot wait.
    pub(super) fn begin_in_memory(
        &self,
        session: SessionId,
        operations: Vec<InMemory>,
    ) -> MemoryStep {
        let Err(operations) = self.memory.carry_out(session, operations) else {
            return MemoryStep::Done;
        };
        if !self.memory.opens_in().is_zero() {
            return MemoryStep::Refused(operations, unsure());
        }
        if operations.is_empty() {
            return MemoryStep::Done;
        }
        MemoryStep::Admit(operations, Query::Admit { session, asked: boot_clock::now() })
    }

    /// With the answer to the query of [`MemoryStep::Admit`].
    pub(super) fn finish_in_memory(
        &self,
        session: SessionId,
        operations: Vec<InMemory>,
        answer: Result<ReadAnswer, Failure>,
    ) -> Result<(), (Vec<InMemory>, Failure)> {
        let failure = match answer.map(|answer| answer.data) {
            Ok(ReadData::Admitted(true)) => {
                let carried_out = self.memory.carry_out(session, operations);
                return carried_out.map_err(|operations| (operations, unsure()));
            }
            Ok(ReadData::Admitted(false)) => rejected(Rejection::UnknownSession),
            Ok(_) => bug("the shard read something else"),
            Err(failure) => Failure { may_have_happened: false, ..failure },
        };
        Err((operations, failure))
    }

    /// Carries out one command in the efficiency tier, and returns its answer. Right after an
    /// election it first waits until the tier opens.
    pub(super) async fn call_in_memory(
        &self,
        command: Admitted<Command>,
    ) -> Result<Answer, Failure> {
        let session = command.get().session().ok_or_else(|| bug("a request without a session"))?;
        let opens_in = self.memory.opens_in();
        if !opens_in.is_zero() {
            // For less than an election timeout.
            sleep(opens_in).await;
        }
        let (reply, answer) = oneshot::channel();
        let operations = vec![(command, ReplyTo::Call(reply))];
        self.carry_out_in_memory(session, operations).await.map_err(|(_, failure)| failure)?;
        answer.await.map_err(|_| dropped_by_shard())
    }
}
