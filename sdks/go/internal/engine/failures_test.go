package engine

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pb "holdfast/sdks/go/holdfastv1"
)

// A proxy that denies a call is no node. The reason is kept for the caller.
func TestADenialWithoutTheMetadataOfANodeIsNotOfANode(t *testing.T) {
	err := status.Error(codes.Unauthenticated, "who are you?")
	for _, c := range []struct {
		trailer  metadata.MD
		isOfNode bool
		reason   pb.Reason
	}{
		{nil, false, pb.Reason_REASON_UNAUTHENTICATED},
		{metadata.Pairs("holdfast-reason", "credential_expired"), true, pb.Reason_REASON_CREDENTIAL_EXPIRED},
	} {
		if isOfNode(c.trailer) != c.isOfNode {
			t.Errorf("%v: a node said so: %v", c.trailer, !c.isOfNode)
		}
		if failure := FailureOf(err, c.trailer); failure.GetReason() != c.reason || failure.GetRetryable() {
			t.Errorf("%v: %v", c.trailer, failure)
		}
	}
}
