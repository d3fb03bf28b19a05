//! `Door`: the only object through which gRPC and HTTP code sends inputs to the shard. All front ends, framed ones too,
//! also use it to send operations to the efficiency tier. Methods that carry out a client's request take [`Admitted`]
//! actions only, so a request that the service did not admit cannot be carried out. The others report what happened to
//! a connection, a stream or a caller.
//!
//! Front ends get a `Door` and never a `ShardHandle`. Each action names the Raft group that it is for (`groups.rs`). An
//! operation on a stream is for the group of the stream.

use std::sync::Arc;
use std::time::Duration;

use holdfast_core::{Command, LockName, Rejection, RequestId, SessionId};
use holdfast_engine::{
    Answer, CallRef, ChangeAnswer, LiveCall, Query, ReadAnswer, ReadData, StreamKey, Touched,
};
use holdfast_proto::failure::rejected;
use holdfast_proto::v1::{Failure, GroupMap};
use holdfast_replica::{GroupId, HandOverRefusal, Leadership, MembershipChange, NodeId};
use holdfast_service::{About, Admitted, Authorised, Caller, Method, Permit, Service};
use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};
use tokio::time::{sleep, timeout};

use super::failure::{bug, dropped_by_shard, overloaded, stopping, unavailable, unsure};
use crate::boot_clock;
use crate::efficiency_tier::{EfficiencyTier, TierStream};
use crate::inbox::{Connection, Deferrable, GroupView, Input, OwnTable, ShardHandle};
use crate::membership::Membership;
use crate::outbox::{ReplyTo, TaskOutbox};
use crate::stopping::Stopping;

/// How long to wait until a quorum confirms that this node leads. After that the node refuses, as
/// if it had no quorum.
pub(super) const ADMISSION_TIMEOUT: Duration = Duration::from_secs(1);
/// If the shard's inbox is full, the door waits this long before it offers the input again.
const INBOX_FULL_PAUSE: Duration = Duration::from_millis(10);

/// Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Door {
    service: Service,
    shard: ShardHandle,
    /// The efficiency tier. Its table is in memory only, so names here say `memory`.
    memory: Arc<EfficiencyTier>,
    membership: Arc<Membership>,
    stopping: Stopping,
}

/// An operation for the efficiency tier, and where its answer goes.
pub(super) type InMemory = (Admitted<Command>, ReplyTo);

/// What the efficiency tier did with operations.
#[derive(Debug)]
pub(super) enum MemoryStep {
    Done,
    /// None of them was carried out.
    Refused(Vec<InMemory>, Failure),
    /// The tier does not know the session, or this node is not sure that it still leads. The caller must have the shard
    /// run this query, and then call [`Door::finish_in_memory`] with the answer.
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

    pub(super) fn leadership(&self, group: GroupId) -> Leadership {
        self.shard.leadership(group)
    }

    pub(super) fn watch_leadership(&self, group: GroupId) -> watch::Receiver<Leadership> {
        self.shard.watch_leadership(group)
    }

    /// Waits until all groups have this generation of the policy, and returns those that do not have it in time.
    pub(super) async fn groups_behind(&self, generation: u64, patience: Duration) -> Vec<GroupId> {
        self.shard.policy_generations().groups_behind(generation, patience).await
    }

    /// Which group owns which slots, and where each of them is led. None if there is one group.
    pub(super) fn group_map(&self) -> Option<GroupMap> {
        let leader_of = |group| self.membership.client_address(self.leadership(group).leader);
        self.membership.groups.to_message(leader_of)
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
        group: GroupId,
        command: Admitted<Command>,
        call: Option<CallRef>,
    ) -> Result<Answer, Failure> {
        let command = command.into_inner();
        self.ask(|reply| Input::Call { group, command, reply, call }).await
    }

    /// The caller hung up before it had its answer.
    pub(super) fn abandon(
        &self,
        group: GroupId,
        session: SessionId,
        request: RequestId,
        call: LiveCall,
    ) {
        let abandoned = Input::Abandoned { group, session, request, call };
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
        group: GroupId,
        sessions: Admitted<Vec<SessionId>>,
    ) -> Result<Touched, Failure> {
        let sessions = sessions.into_inner();
        let answer = self.ask(|reply| Input::Touches { group, sessions, reply });
        answer.await?.map_err(|reason| unavailable(reason, &self.membership))
    }

    /// A linearizable read. This node should lead.
    pub(super) async fn read(
        &self,
        group: GroupId,
        query: Admitted<Query>,
    ) -> Result<ReadAnswer, Failure> {
        let query = query.into_inner();
        self.read_at_shard(group, query).await
    }

    /// A linearizable read that an action needs. It changes nothing.
    pub(super) async fn read_for<T>(
        &self,
        group: GroupId,
        _: &Admitted<T>,
        query: Query,
    ) -> Result<ReadAnswer, Failure> {
        self.read_at_shard(group, query).await
    }

    async fn read_at_shard(&self, group: GroupId, query: Query) -> Result<ReadAnswer, Failure> {
        let answer = self.ask(|reply| Input::Read { group, query, reply }).await?;
        let answer: ReadAnswer = answer.map_err(|reason| unavailable(reason, &self.membership))?;
        match answer.data {
            ReadData::Refused(rejection) => Err(rejected(rejection)),
            _ => Ok(answer),
        }
    }

    /// What this node sees of its groups; needs no quorum.
    pub(super) async fn inspect(
        &self,
        with_digests: Admitted<bool>,
    ) -> Result<Vec<GroupView>, Failure> {
        let with_digests = with_digests.into_inner();
        self.ask(|reply| Input::Inspect { with_digests, reply }).await
    }

    /// This node's own copies of the tables of all groups, with at most so many locks each; needs no quorum.
    pub(super) async fn own_tables(
        &self,
        locks_max: Admitted<usize>,
    ) -> Result<Vec<OwnTable>, Failure> {
        let locks_max = locks_max.into_inner();
        let mut tables = Vec::new();
        for group in self.membership.groups.all() {
            tables.push(self.ask(|reply| Input::ReadOwnTable { group, locks_max, reply }).await?);
        }
        Ok(tables)
    }

    /// Changes the members of the root group. With several groups the caller has refused the request already.
    pub(super) async fn change_membership(
        &self,
        change: Admitted<MembershipChange>,
    ) -> Result<ChangeAnswer, Failure> {
        let (group, change) = (GroupId::FIRST, change.into_inner());
        self.ask(|reply| Input::ChangeMembership { group, change, reply }).await
    }

    pub(super) async fn hand_over(
        &self,
        group: GroupId,
        to: Admitted<Option<NodeId>>,
    ) -> Result<Result<NodeId, HandOverRefusal>, Failure> {
        let to = to.into_inner();
        self.ask(|reply| Input::HandOver { group, to, reply }).await
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

    /// Retries until the shard's inbox has room. If the shard missed this input, it would believe that the stream is
    /// open, and the session would outlive its client by its TTL.
    pub(super) async fn close_stream(&self, stream: StreamKey, client_gone: bool) {
        while self.shard.send(Input::StreamClosed { stream, client_gone }).is_err() {
            if self.shard.is_gone() {
                return;
            }
            sleep(INBOX_FULL_PAUSE).await;
        }
    }

    /// Puts the operations of one frame into the inbox. If there is no room, returns them together with the failure.
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

    /// Puts the reads of one frame into the inbox. If there is no room, returns them together with the failure.
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

    /// Carries out operations of one session in the efficiency tier. Each is answered through its own `ReplyTo`; if all
    /// are refused, returns them together with the failure. Until the tier opens after an election, it refuses at once
    /// instead of waiting, so that other operations on the session's stream are not held up.
    pub(super) async fn carry_out_in_memory(
        &self,
        session: SessionId,
        operations: Vec<InMemory>,
    ) -> Result<(), (Vec<InMemory>, Failure)> {
        match self.begin_in_memory(session, operations) {
            MemoryStep::Done => Ok(()),
            MemoryStep::Refused(operations, failure) => Err((operations, failure)),
            MemoryStep::Admit(operations, query) => {
                // The tier follows the root group.
                let admission = self.read_at_shard(GroupId::FIRST, query);
                let answer = timeout(ADMISSION_TIMEOUT, admission).await;
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
