package holdfast

import (
	"context"
	"errors"
	"fmt"
	"time"

	"holdfast/sdks/go/internal/core"
)

// For errors.Is. The types below carry the details.
var (
	// ErrBusy: the lock is held, and the request was not to wait.
	ErrBusy = errors.New("the lock is held; wait for it with holdfast.Wait, or try later")
	// ErrTimedOut: the lock did not become free within the wait.
	ErrTimedOut = errors.New("the lock did not become free within the wait")
	// ErrCancelled: the context of the call ended. What the call asked for is taken back.
	ErrCancelled = errors.New("the caller went away")
	// ErrDeadlock: to wait would close a cycle. See [DeadlockError].
	ErrDeadlock = errors.New("to wait would be a deadlock")
	// ErrDied: an older actor is in the way. See [DiedError].
	ErrDied = errors.New("an older actor is in the way")
	// ErrLost: the hold or its session ended. See [LostError].
	ErrLost = errors.New("the lock is lost")
	// ErrRejected: the cluster refused. See [RejectedError].
	ErrRejected = errors.New("the cluster refused the request")
	// ErrUnavailable: no node answered in time. See [UnavailableError].
	ErrUnavailable = errors.New("no answer from the cluster in time")
	// ErrClosed: the program closed the client.
	ErrClosed = errors.New("the client is closed; open another one")
	// ErrUnauthenticated: the cluster does not know this client. It is an ErrRejected, too.
	ErrUnauthenticated = errors.New("the cluster does not know this client")
	// ErrPermissionDenied: the cluster's policy does not allow the request. It is an ErrRejected, too.
	ErrPermissionDenied = errors.New("the cluster does not allow the request to this client")
	// ErrQuotaExceeded: the caller has what its quota allows, or asks more often. It is an ErrRejected, too. See
	// [QuotaExceededError].
	ErrQuotaExceeded = errors.New("the quota of the caller is used up")
	// ErrSeveralGroups: the locks of a [Client.LockAll] are in different groups of the cluster. It is an ErrRejected, too.
	ErrSeveralGroups = errors.New("the locks are in several groups of the cluster; put the same tag into their names")
	// ErrInvalidOptions: an option of the client cannot be used, or a file that it names.
	ErrInvalidOptions = errors.New("the options of the client cannot be used")
	// ErrInvalidEndpoints: the list of endpoints cannot be used.
	ErrInvalidEndpoints = errors.New("the endpoints cannot be used")
)

var losses = map[string]string{
	"expired":            "the cluster did not confirm in time that the session lives",
	"own_time_over":      "the hold's own time is over",
	"hold_ttl":           "the hold's TTL is over",
	"max_hold":           "the hold's longest time is over",
	"session_expired":    "the session's TTL is over",
	"session_closed":     "the session was closed",
	"disconnected":       "the connection broke and did not come back within the linger time",
	"wounded":            "an older actor took the lock away",
	"broken":             "an operator broke the lock",
	"session_killed":     "an operator ended the session",
	"transferred":        "the lock was handed to another session",
	"leader_changed":     "the leader changed, and with it ended what was held in the efficiency tier",
	"leader_unreachable": "the connection to the leader was lost, and with it what was held in the efficiency tier",
	"denied": "no node accepts this client any more, so it can neither keep the lock nor release it; the cluster" +
		" ends the lock when the session's TTL is over, or before. Give the client another credential",
	"released": "the lock was released",
	"ended":    "the cluster ended the hold",
}

// LostError says that the lock is no longer held.
type LostError struct {
	// Reason is one word, such as "expired", "broken" or "session_killed".
	Reason string
}

func (e *LostError) Error() string {
	words, isKnown := losses[e.Reason]
	if !isKnown {
		words = e.Reason
	}
	return fmt.Sprintf("%v: %s", ErrLost, words)
}

// Is makes the error an [ErrLost].
func (e *LostError) Is(target error) bool { return target == ErrLost }

// CycleLink is one of the actors that wait for each other.
type CycleLink struct {
	// Session is the public id of a session.
	Session string
	Actor   uint64
	// WaitsFor is the lock that the next one in the cycle is in the way of.
	WaitsFor string
}

// DeadlockError has the cycle that a wait would have closed. Release what you hold, and begin again.
type DeadlockError struct{ Cycle []CycleLink }

func (e *DeadlockError) Error() string {
	words := ErrDeadlock.Error()
	for _, link := range e.Cycle {
		words += fmt.Sprintf("; session %s waits for %q", link.Session, link.WaitsFor)
	}
	return words
}

// Is makes the error an [ErrDeadlock].
func (e *DeadlockError) Is(target error) bool { return target == ErrDeadlock }

// DiedError says that an older actor is in the way. Release what you hold, and ask again with [Since].
type DiedError struct{ Since uint64 }

func (e *DiedError) Error() string {
	return fmt.Sprintf("%v; release what you hold, and ask again with holdfast.Since(%d)", ErrDied, e.Since)
}

// Is makes the error an [ErrDied].
func (e *DiedError) Is(target error) bool { return target == ErrDied }

// RejectedError says that the cluster refused the request.
type RejectedError struct {
	// Reason is one word, such as "invalid_name". The errors reference has all of them.
	Reason  string
	Message string
	// Retryable says whether the same request may succeed later.
	Retryable       bool
	MayHaveHappened bool
}

func (e *RejectedError) Error() string {
	if e.Message == "" {
		return fmt.Sprintf("%v: %s", ErrRejected, e.Reason)
	}
	return fmt.Sprintf("%s (%s)", e.Message, e.Reason)
}

// Is makes the error an [ErrRejected], and if the reason says so an [ErrUnauthenticated], an [ErrPermissionDenied], an
// [ErrSeveralGroups] or an [ErrQuotaExceeded].
func (e *RejectedError) Is(target error) bool {
	switch target {
	case ErrRejected:
		return true
	case ErrUnauthenticated:
		return e.Reason == "unauthenticated" || e.Reason == "credential_expired"
	case ErrPermissionDenied:
		return e.Reason == "permission_denied"
	case ErrSeveralGroups:
		return e.Reason == "several_groups"
	case ErrQuotaExceeded:
		return e.isOfQuota()
	default:
		return false
	}
}

func (e *RejectedError) isOfQuota() bool {
	return e.Reason == "quota_exceeded" || e.Reason == "rate_limited"
}

// QuotaExceededError says that the caller, or all that use the names with a prefix, have what their quota allows, or ask
// more often. It is a [RejectedError], too.
type QuotaExceededError struct {
	RejectedError
	// RetryAfter is when the cluster would take the request; 0 if it does not know. It knows for a rate.
	RetryAfter time.Duration
}

// Unwrap makes the error a [RejectedError] for [errors.As].
func (e *QuotaExceededError) Unwrap() error { return &e.RejectedError }

// UnavailableError says that no node answered in time.
type UnavailableError struct {
	Message         string
	MayHaveHappened bool
}

func (e *UnavailableError) Error() string { return fmt.Sprintf("%v: %s", ErrUnavailable, e.Message) }

// Is makes the error an [ErrUnavailable].
func (e *UnavailableError) Is(target error) bool { return target == ErrUnavailable }

// isWorthLater: limits can have room again, a freeze ends, and groups come to agree on which has a lock; a wrong request
// stays wrong.
func isWorthLater(reason string) bool {
	switch reason {
	case "too_many_sessions", "too_many_holds", "too_many_waits", "queue_full", "too_many_unacknowledged", "frozen",
		"too_many_locks", "too_many_bytes", "session_too_large", "quota_exceeded", "rate_limited", "wrong_group":
		return true
	default:
		return false
	}
}

func errorOf(failure *core.Failure) error {
	if failure == nil {
		return nil
	}
	switch failure.Kind {
	case core.Busy:
		return ErrBusy
	case core.TimedOut:
		return ErrTimedOut
	case core.Closed:
		return ErrClosed
	case core.Lost:
		return &LostError{Reason: failure.Reason}
	case core.Died:
		return &DiedError{Since: failure.SinceMs}
	case core.Unavailable:
		return &UnavailableError{Message: failure.Message, MayHaveHappened: failure.MayHaveHappened}
	case core.Deadlock:
		told := &DeadlockError{}
		for _, link := range failure.Cycle {
			told.Cycle = append(told.Cycle, CycleLink{
				Session: link.GetPublicSessionId(), Actor: link.GetActor(), WaitsFor: link.GetWaitsFor(),
			})
		}
		return told
	default:
		rejected := RejectedError{
			Reason:          failure.Reason,
			Message:         failure.Message,
			Retryable:       isWorthLater(failure.Reason),
			MayHaveHappened: failure.MayHaveHappened,
		}
		if rejected.isOfQuota() {
			return &QuotaExceededError{rejected, failure.RetryAfter}
		}
		return &rejected
	}
}

// cancelled is an [ErrCancelled], what ended the context, and the context's own error.
func cancelled(ctx context.Context) error {
	cause := context.Cause(ctx)
	if errors.Is(cause, ctx.Err()) {
		return fmt.Errorf("%w: %w", ErrCancelled, cause)
	}
	return fmt.Errorf("%w: %w: %w", ErrCancelled, ctx.Err(), cause)
}

func resultOf(ctx context.Context, outcome core.Outcome, isComplete bool) (core.Outcome, error) {
	if !isComplete {
		return outcome, cancelled(ctx)
	}
	return outcome, errorOf(outcome.Failure)
}
