package core

import (
	"strings"
	"time"

	pb "holdfast/sdks/go/holdfastv1"
)

// Kind is one of the errors that all libraries share.
type Kind string

const (
	Busy        Kind = "busy"
	TimedOut    Kind = "timed_out"
	Deadlock    Kind = "deadlock"
	Died        Kind = "died"
	Lost        Kind = "lost"
	Rejected    Kind = "rejected"
	Unavailable Kind = "unavailable"
	Closed      Kind = "closed"
)

// Failure is an outcome other than success.
type Failure struct {
	Kind Kind
	// Reason is why something was lost or rejected.
	Reason          string
	Message         string
	MayHaveHappened bool
	// RetryAfter is when the cluster would take a rejected request; 0 if it does not know.
	RetryAfter time.Duration
	// MapEpoch is that of the map by which a group refused; 0 if it did not refuse by a map.
	MapEpoch uint64
	Cycle    []*pb.CycleLink
	SinceMs  uint64
}

func lost(reason string) *Failure { return &Failure{Kind: Lost, Reason: reason} }

func reasonOf(failure *pb.Failure) string { return ReasonName(failure.GetReason()) }

// ReasonName returns the name by which people know a reason.
func ReasonName(reason pb.Reason) string {
	name, isKnown := pb.Reason_name[int32(reason)]
	if !isKnown {
		return "unspecified"
	}
	return strings.ToLower(strings.TrimPrefix(name, "REASON_"))
}

// RejectedBy is what a caller is told of a request that the cluster refused.
func RejectedBy(failure *pb.Failure) *Failure {
	return &Failure{
		Kind:            Rejected,
		Reason:          reasonOf(failure),
		Message:         failure.GetMessage(),
		MayHaveHappened: failure.GetMayHaveHappened(),
		RetryAfter:      retryAfter(failure),
		MapEpoch:        failure.GetMapEpoch(),
	}
}

func unknownAnswer(words string) *Failure {
	return &Failure{Kind: Rejected, Reason: "unspecified", Message: words, MayHaveHappened: true}
}

// lossOf returns the reason of a loss as the libraries name it.
func lossOf(reason pb.EndReason) string {
	switch reason {
	case pb.EndReason_END_REASON_TTL:
		return "hold_ttl"
	case pb.EndReason_END_REASON_MAX_HOLD:
		return "max_hold"
	case pb.EndReason_END_REASON_CLOSED:
		return "session_closed"
	case pb.EndReason_END_REASON_DISCONNECTED:
		return "disconnected"
	case pb.EndReason_END_REASON_WOUNDED:
		return "wounded"
	case pb.EndReason_END_REASON_BROKEN:
		return "broken"
	case pb.EndReason_END_REASON_KILLED:
		return "session_killed"
	case pb.EndReason_END_REASON_TRANSFERRED:
		return "transferred"
	case pb.EndReason_END_REASON_SESSION_EXPIRED:
		return "session_expired"
	default:
		return "ended"
	}
}
