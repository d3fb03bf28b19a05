//! Where a request comes from: a client, or another node that forwards it.
//!
//! Caveat: a client can set the same metadata. It gains nothing by it today: it would be refused
//! where it could have been forwarded, and every principal may do the same. That ends when nodes
//! authenticate to each other, and then these fields must be believed from nodes only.

use holdfast_proto::failure::refused;
use holdfast_proto::v1::{Failure, Reason};
use holdfast_replica::NodeId;
use tonic::Request;
use tonic::metadata::{AsciiMetadataValue, MetadataMap};

use super::authorise::Principal;

const FORWARDED_BY: &str = "holdfast-forwarded-by";
const PRINCIPAL: &str = "holdfast-principal";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Origin {
    /// The node that forwarded it. It goes no further from here.
    pub(super) forwarded_by: Option<NodeId>,
    pub(super) principal: Principal,
}

impl Origin {
    /// Nobody in between.
    pub(super) fn client() -> Origin {
        Origin { forwarded_by: None, principal: Principal::anonymous() }
    }

    pub(super) fn of(metadata: &MetadataMap) -> Result<Origin, Failure> {
        let Some(forwarder) = metadata.get(FORWARDED_BY) else { return Ok(Origin::client()) };
        let forwarder = forwarder.to_str().ok().and_then(|text| text.parse().ok());
        let Some(forwarder) = forwarder.filter(|id| *id != 0) else {
            let words = "the metadata holdfast-forwarded-by is set by nodes only, to a node's id";
            return Err(refused(Reason::InvalidFrame, words));
        };
        let principal = metadata.get(PRINCIPAL).and_then(|name| name.to_str().ok());
        Ok(Origin {
            forwarded_by: Some(NodeId(forwarder)),
            principal: principal.map_or_else(Principal::anonymous, Principal::forwarded),
        })
    }

    pub(super) fn is_forwarded(&self) -> bool {
        self.forwarded_by.is_some()
    }

    /// The same request as node `me` sends it on.
    pub(super) fn forwarded<T>(&self, me: NodeId, message: T) -> Request<T> {
        let mut request = Request::new(message);
        let metadata = request.metadata_mut();
        metadata.insert(FORWARDED_BY, AsciiMetadataValue::from(me.0));
        if let Ok(principal) = AsciiMetadataValue::try_from(self.principal.as_str()) {
            metadata.insert(PRINCIPAL, principal);
        }
        request
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forwarded_request_says_by_whom_and_for_whom() {
        let client = Origin::of(&MetadataMap::new()).unwrap();
        assert!(!client.is_forwarded());
        let request = client.forwarded(NodeId(2), ());
        let origin = Origin::of(request.metadata()).unwrap();
        assert_eq!(origin.forwarded_by, Some(NodeId(2)));
        assert_eq!(origin.principal, client.principal);
    }

    #[test]
    fn a_forwarder_that_is_no_node_id_is_refused() {
        for wrong in ["", "0", "two", "-1"] {
            let mut metadata = MetadataMap::new();
            metadata.insert(FORWARDED_BY, wrong.parse().unwrap());
            assert!(Origin::of(&metadata).is_err(), "{wrong}");
        }
    }
}
