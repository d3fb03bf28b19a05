//! The way to the efficiency tier: straight to the memory of this node, which leads. The driver is asked only
//! by a session that is new there, or when this node is not sure that it still leads.

use std::time::Duration;

use holdfast_core::{Command, Rejection, SessionId};
use holdfast_proto::v1::Failure;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use super::Rpc;
use super::failure::{bug, dropped_by_driver, rejected, unsure};
use crate::boot_clock;
use crate::driver::{Answer, Query, ReadData, ReplyTo};

/// A leader that its quorum does not confirm within this time has none.
const ADMISSION_TIMEOUT: Duration = Duration::from_secs(1);

/// What was not carried out, and why.
pub(super) type Refused = (Vec<(Command, ReplyTo)>, Failure);

impl Rpc {
    /// Carries out operations of one session in memory. Each is answered on its own, unless all are refused. Right after
    /// an election they are: what else the session says must not wait until the tier opens.
    pub(super) async fn carry_out_in_memory(
        &self,
        session: SessionId,
        operations: Vec<(Command, ReplyTo)>,
    ) -> Result<(), Refused> {
        let Err(operations) = self.memory.carry_out(session, operations) else { return Ok(()) };
        if !self.memory.opens_in().is_zero() {
            return Err((operations, unsure()));
        }
        if let Err(failure) = self.admit_to_memory(session).await {
            return Err((operations, failure));
        }
        self.memory.carry_out(session, operations).map_err(|operations| (operations, unsure()))
    }

    /// As [`Rpc::call`].
    pub(super) async fn call_in_memory(&self, command: Command) -> Result<Answer, Failure> {
        let session = command.session().ok_or_else(|| bug("a request without a session"))?;
        let opens_in = self.memory.opens_in();
        if !opens_in.is_zero() {
            // For less than an election timeout.
            sleep(opens_in).await;
        }
        let (reply, answer) = oneshot::channel();
        let operations = vec![(command, ReplyTo::Call(reply))];
        self.carry_out_in_memory(session, operations).await.map_err(|(_, failure)| failure)?;
        answer.await.map_err(|_| dropped_by_driver())
    }

    async fn admit_to_memory(&self, session: SessionId) -> Result<(), Failure> {
        let read = self.read(Query::Admit { session, asked: boot_clock::now() });
        match timeout(ADMISSION_TIMEOUT, read).await.unwrap_or_else(|_| Err(unsure()))?.data {
            ReadData::Admitted(true) => Ok(()),
            ReadData::Admitted(false) => Err(rejected(Rejection::UnknownSession)),
            _ => Err(bug("the driver read something else")),
        }
        .map_err(|failure: Failure| Failure { may_have_happened: false, ..failure })
    }
}
