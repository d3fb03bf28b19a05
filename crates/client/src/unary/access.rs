//! Who may do what. To see and to change it needs the verb `access`.

use std::time::Duration;

use holdfast_proto::v1;
use holdfast_proto::v1::access_service_client::AccessServiceClient;

use super::{CHANGE_PATIENCE, CallError, Unary};
use crate::connection::RESPONSE_BYTES_MAX;

impl Unary {
    /// The whole policy, as of a moment after the call.
    pub async fn show_access(&self) -> Result<v1::ShowAccessResponse, CallError> {
        self.call_on(Duration::ZERO, v1::ShowAccessRequest {}, |node, request| async move {
            let node = AccessServiceClient::new(node);
            node.max_decoding_message_size(RESPONSE_BYTES_MAX).show_access(request).await
        })
        .await
    }

    /// Gives the generation of the changed policy, and the groups that do not have it yet.
    pub async fn change_access(
        &self,
        request: v1::ChangeAccessRequest,
    ) -> Result<v1::ChangeAccessResponse, CallError> {
        self.call_on(CHANGE_PATIENCE, request, |node, request| async move {
            AccessServiceClient::new(node).change_access(request).await
        })
        .await
    }

    /// What the node that answers knows of this client.
    pub async fn who_am_i(&self) -> Result<v1::WhoAmIResponse, CallError> {
        self.call_on(Duration::ZERO, v1::WhoAmIRequest {}, |node, request| async move {
            AccessServiceClient::new(node).who_am_i(request).await
        })
        .await
    }
}
