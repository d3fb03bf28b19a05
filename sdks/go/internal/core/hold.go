package core

import (
	"sync"
	"time"

	pb "holdfast/sdks/go/holdfastv1"
)

// Loss is the first reason for which a hold, or one of several that are held together, was lost.
type Loss struct {
	mu        sync.Mutex
	reason    string
	callbacks []func(reason string)
}

// Report notes a loss. Only the first reason counts.
func (l *Loss) Report(reason string) {
	l.mu.Lock()
	if l.reason != "" {
		l.mu.Unlock()
		return
	}
	l.reason = reason
	callbacks := l.callbacks
	l.callbacks = nil
	l.mu.Unlock()
	for _, callback := range callbacks {
		callback(reason)
	}
}

// Reason is empty as long as nothing is lost.
func (l *Loss) Reason() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reason
}

// OnReport calls back at the loss, or at once. The callback must be quick, and must not call the session.
func (l *Loss) OnReport(callback func(reason string)) {
	l.mu.Lock()
	reason := l.reason
	if reason == "" {
		l.callbacks = append(l.callbacks, callback)
	}
	l.mu.Unlock()
	if reason != "" {
		callback(reason)
	}
}

// Held is what the cluster said of a hold.
type Held struct {
	Mode  pb.Mode
	Token uint64
	Fence string
	// IsLeaving says that the hold is being transferred.
	IsLeaving bool
}

// heldAs is shared by guards that entered one hold several times.
type heldAs struct {
	mu   sync.Mutex
	held Held
}

func (h *heldAs) read() Held {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.held
}

func (h *heldAs) convert(grant *pb.Grant) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.held.Mode, h.held.Token, h.held.Fence = grant.GetMode(), grant.GetToken(), grant.GetFence()
}

func (h *heldAs) setLeaving(isLeaving bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.held.IsLeaving = isLeaving
}

// holdKey is the request by which the cluster knows the hold, and a number of the guard's own.
type holdKey struct{ acquire, entry uint64 }

// Hold is a lock that is held, as the session and its guard both know it.
type Hold struct {
	Name         string
	IsBestEffort bool
	// SinceMs is the age with which the lock was asked for; nil if none was given.
	SinceMs *uint64
	Loss    *Loss

	key holdKey
	// lease is one for all guards that entered the same hold.
	lease  uint64
	call   uint64
	heldAs *heldAs
	leases *Leases
	// hasEnded says that the cluster itself ended the hold, so there is nothing to release.
	hasEnded bool
	// renews is the TTL that the library renews; 0: none.
	renews     time.Duration
	renewalDue Time
	isRenewing bool
	// wasEntered says that another acquire has entered the hold.
	wasEntered bool
}

// Read returns what is held, or how it was lost. A hold that was found lost stays lost.
func (h *Hold) Read(now Time) (Held, *Failure) {
	if until, isKnown := h.leases.ValidUntil(h.lease); (!isKnown || now >= until) && !IsPlanted(NoClock) {
		reason := "expired"
		if h.leases.EndsBeforeSession(h.lease) {
			reason = "own_time_over"
		}
		h.Loss.Report(reason)
	}
	held := h.heldAs.read()
	if reason := h.Loss.Reason(); reason != "" {
		return held, lost(reason)
	}
	if held.IsLeaving {
		return held, lost("transferred")
	}
	return held, nil
}

// ValidUntil returns until when the hold certainly lives.
func (h *Hold) ValidUntil() Time {
	until, _ := h.leases.ValidUntil(h.lease)
	return until
}

// AtRiskFrom returns from when a third of the hold's time is left.
func (h *Hold) AtRiskFrom() Time {
	from, _ := h.leases.AtRiskFrom(h.lease)
	return from
}

// Held returns what the cluster said last, whether or not the hold still lives.
func (h *Hold) Held() Held { return h.heldAs.read() }

// end notes that the cluster has reported the end of the hold.
func (h *Hold) end(reason string) {
	h.hasEnded = true
	// The cluster has one reason for both.
	if reason == "hold_ttl" && !h.leases.HasOwnEnd(h.lease) {
		reason = "session_expired"
	}
	h.Loss.Report(reason)
}

func (h *Hold) tier() pb.Tier { return tierOf(h.IsBestEffort) }

func tierOf(isBestEffort bool) pb.Tier {
	if isBestEffort {
		return pb.Tier_TIER_EFFICIENCY
	}
	return pb.Tier_TIER_CORRECTNESS
}
