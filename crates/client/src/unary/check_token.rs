//! Whether a token is still the one under which a lock is held.

use std::time::Duration;

use holdfast_proto::v1;

use super::{CallError, Unary, unknown_outcome};

/// What a token was at the moment when the cluster looked. By the time the answer is read it may be another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TokenState {
    /// The lock is held under this token.
    Current,
    /// The lock is held under a higher one.
    Superseded { current: u64 },
    /// No session holds the lock. If the token was ever this lock's, its hold has ended.
    Free,
    /// No hold of this lock can have had it.
    NeverGiven,
}

impl Unary {
    /// Whether the lock is still held under this token, in the [tier](Unary::tier) of these calls.
    ///
    /// A hint for a holder that wants to stop early, and not a fence: between this answer and the write that
    /// follows it the lock can change hands. What protects a resource is that it refuses old tokens itself.
    pub async fn check_token(&self, name: &str, token: u64) -> Result<TokenState, CallError> {
        let tier = self.tier.to_wire().into();
        let request =
            v1::CheckTokenRequest { name: name.to_owned(), token, tier, ..Default::default() };
        self.ask_token_state(request).await
    }

    /// As [`Unary::check_token`], for a token in full form. That says itself to which lock and tier it
    /// belongs, and is refused if it is another lock's.
    pub async fn check_fence(&self, name: &str, fence: &str) -> Result<TokenState, CallError> {
        let (name, fence) = (name.to_owned(), fence.to_owned());
        self.ask_token_state(v1::CheckTokenRequest { name, fence, ..Default::default() }).await
    }

    async fn ask_token_state(
        &self,
        request: v1::CheckTokenRequest,
    ) -> Result<TokenState, CallError> {
        let answer: v1::CheckTokenResponse = self
            .call(Duration::ZERO, request, |mut node, request| async move {
                node.check_token(request).await
            })
            .await?;
        match answer.state() {
            v1::TokenState::Current => Ok(TokenState::Current),
            v1::TokenState::Superseded => {
                Ok(TokenState::Superseded { current: answer.current_token })
            }
            v1::TokenState::Free => Ok(TokenState::Free),
            v1::TokenState::NeverGiven => Ok(TokenState::NeverGiven),
            v1::TokenState::Unspecified => Err(unknown_outcome()),
        }
    }
}
