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

func TestTheMetadataOfARefusalNameTheMapAndTheGroupOfTheLeader(t *testing.T) {
	err := status.Error(codes.FailedPrecondition, "not here")
	told := FailureOf(err, metadata.Pairs("holdfast-reason", "wrong_group", "holdfast-map-epoch", "7",
		"holdfast-leader", "b:2", "holdfast-group", "3"))
	if told.GetReason() != pb.Reason_REASON_WRONG_GROUP || told.GetMapEpoch() != 7 || told.GetGroup() != 3 ||
		told.GetLeader() != "b:2" || told.GetMayHaveHappened() {
		t.Fatal(told)
	}
}
