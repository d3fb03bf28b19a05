//! What operators do by hand. Each of these does no harm when it is done again, so a call repeats itself
//! like any other; a break and a transfer name the token that they mean.

use std::time::Duration;

use holdfast_client_core::wire_time::whole_ms;
use holdfast_proto::v1;
use holdfast_proto::v1::operator_service_client::OperatorServiceClient;

use super::{Asked, CallError, Unary};
use crate::connection::NodeChannel;

/// Who steps in, and why; it is recorded. The reason must not be empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Why {
    pub by: String,
    pub reason: String,
}

impl Why {
    fn to_wire(&self) -> Option<v1::Intervention> {
        Some(v1::Intervention { by: self.by.clone(), reason: self.reason.clone() })
    }
}

impl Unary {
    /// Ends the holds of a lock under this token; returns how many there were.
    pub async fn break_lock(&self, why: &Why, name: &str, token: u64) -> Result<u64, CallError> {
        let request =
            v1::BreakRequest { intervention: why.to_wire(), name: name.to_owned(), token };
        let answer = self
            .operate(request, |mut node, request| async move { node.r#break(request).await })
            .await?;
        Ok(answer.holds)
    }

    /// Hands an exclusive lock, held under this token, to a session that waits for it. Returns the token
    /// under which that holds it.
    pub async fn move_lock(
        &self,
        why: &Why,
        name: &str,
        token: u64,
        to_public_session_id: &str,
    ) -> Result<u64, CallError> {
        let request = v1::MoveLockRequest {
            intervention: why.to_wire(),
            name: name.to_owned(),
            token,
            to_public_session_id: to_public_session_id.to_owned(),
        };
        let answer = self
            .operate(request, |mut node, request| async move { node.move_lock(request).await })
            .await?;
        Ok(answer.token)
    }

    /// Nothing under the prefix is granted for so long.
    pub async fn freeze(&self, why: &Why, prefix: &str, ttl: Duration) -> Result<(), CallError> {
        let (prefix, ttl_ms) = (prefix.to_owned(), whole_ms(ttl));
        let request = v1::FreezeRequest { intervention: why.to_wire(), prefix, ttl_ms };
        self.operate(request, |mut node, request| async move { node.freeze(request).await })
            .await
            .map(drop)
    }

    pub async fn thaw(&self, why: &Why, prefix: &str) -> Result<(), CallError> {
        let prefix = prefix.to_owned();
        let request = v1::ThawRequest { intervention: why.to_wire(), prefix };
        self.operate(request, |mut node, request| async move { node.thaw(request).await })
            .await
            .map(drop)
    }

    pub async fn freezes(&self) -> Result<Vec<v1::Frozen>, CallError> {
        let request = v1::ListFreezesRequest {};
        let answer = self
            .operate(request, |mut node, request| async move { node.list_freezes(request).await });
        answer.await.map(|answer| answer.freezes)
    }

    /// How many permits a semaphore has from now on; `None` forgets the number.
    pub async fn set_permits(
        &self,
        why: &Why,
        name: &str,
        permits: Option<u32>,
    ) -> Result<(), CallError> {
        let request = v1::SetPermitsRequest {
            intervention: why.to_wire(),
            name: name.to_owned(),
            permits: permits.unwrap_or(0),
        };
        self.operate(request, |mut node, request| async move { node.set_permits(request).await })
            .await
            .map(drop)
    }

    /// How large the lock table may become; `None` leaves a limit as it is.
    pub async fn set_limits(
        &self,
        why: &Why,
        bytes: Option<u64>,
        locks: Option<u64>,
    ) -> Result<(), CallError> {
        let request = v1::SetLimitsRequest { intervention: why.to_wire(), bytes, locks };
        self.operate(request, |mut node, request| async move { node.set_limits(request).await })
            .await
            .map(drop)
    }

    /// Ends a session with all its locks and all its places in queues.
    pub async fn kill_session(&self, why: &Why, public_session_id: &str) -> Result<(), CallError> {
        let public_session_id = public_session_id.to_owned();
        let request = v1::KillSessionRequest { intervention: why.to_wire(), public_session_id };
        self.operate(request, |mut node, request| async move { node.kill_session(request).await })
            .await
            .map(drop)
    }

    /// Ends a lock delay before its time.
    pub async fn reopen(&self, why: &Why, name: &str) -> Result<(), CallError> {
        let request = v1::ReopenRequest { intervention: why.to_wire(), name: name.to_owned() };
        self.operate(request, |mut node, request| async move { node.reopen(request).await })
            .await
            .map(drop)
    }

    async fn operate<R: Clone, T, F: Asked<T>>(
        &self,
        request: R,
        ask: impl Fn(OperatorServiceClient<NodeChannel>, R) -> F,
    ) -> Result<T, CallError> {
        let ask = |channel, request| ask(OperatorServiceClient::new(channel), request);
        self.call_on(Duration::ZERO, request, ask).await
    }
}
