package holdfast

import (
	"testing"

	pb "holdfast/sdks/go/holdfastv1"
)

func TestAWatchGoesOnAfterTheLastPositionOfEachGroup(t *testing.T) {
	at := func(group uint32, index uint64) *pb.EventPosition {
		return &pb.EventPosition{Group: group, Index: index}
	}
	w := &watch{prefix: "a"}
	if request := w.request(); request.After != nil || request.AfterGroups != nil {
		t.Fatal(request)
	}
	for _, position := range []*pb.EventPosition{at(1, 3), nil, at(1, 5)} {
		w.note(position)
	}
	// As before, in a cluster of one group.
	if request := w.request(); request.GetAfter().GetIndex() != 5 || request.AfterGroups != nil {
		t.Fatal(request)
	}
	w.note(at(4, 2))
	w.note(at(2, 1))
	w.note(at(4, 9))
	request := w.request()
	if groups := request.AfterGroups; request.After != nil || len(groups) != 3 || groups[0].Index != 5 ||
		groups[1].Index != 1 || groups[2].Index != 9 {
		t.Fatal(request)
	}
}
