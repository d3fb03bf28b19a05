package core

import (
	"sync"
	"time"
)

// Time is a moment of the local clock, in nanoseconds.
type Time int64

// Add returns the moment after a span.
func (t Time) Add(span time.Duration) Time { return t + Time(span) }

// Never is later than every other moment.
const Never = Time(1 << 62)

const (
	// marginPercent is 1 % for the cluster's clock and 1 % for ours.
	marginPercent = 2
	// slack is for logical times, which are cut to whole milliseconds, two of them.
	slack = 2 * time.Millisecond
	// spanMsMax keeps the arithmetic within 64 bits. It is more than two years.
	spanMsMax = 80_000_000_000
)

// safeEnd returns the moment before which a span that began after sentAt is certainly not over.
func safeEnd(sentAt Time, span time.Duration) Time {
	if IsPlanted(NoMargin) {
		return sentAt.Add(span)
	}
	return sentAt.Add(max(0, span*(100-marginPercent)/100-slack))
}

// sample is a request that was sent at sentAt and answered with the logical time logicalMs.
type sample struct {
	sentAt    Time
	logicalMs uint64
}

// isBetterThan compares sentAt - 0.98 x logical time.
func (s sample) isBetterThan(other sample) bool {
	logical := clampMs(int64(s.logicalMs - other.logicalMs))
	sent := min(max(int64(s.sentAt-other.sentAt), -spanMsMax*1_000_000), spanMsMax*1_000_000)
	return sent > logical*(10_000*(100-marginPercent))
}

func (s sample) safeEndOf(deadlineMs uint64) Time {
	return safeEnd(s.sentAt, s.until(deadlineMs))
}

func (s sample) until(deadlineMs uint64) time.Duration {
	if deadlineMs <= s.logicalMs {
		return 0
	}
	return time.Duration(min(deadlineMs-s.logicalMs, spanMsMax)) * time.Millisecond
}

func clampMs(ms int64) int64 { return min(max(ms, -spanMsMax), spanMsMax) }

type unansweredRenewal struct {
	// end is when the hold may end if the renewal is applied; nil: the renewal keeps the TTL.
	end *Time
	// isOvertaken says that another renewal was answered since this one was sent. Which of the two was applied last is
	// not known.
	isOvertaken bool
}

type holdLease struct {
	isBestEffort bool
	ownDeadline  *uint64
	ownSpan      time.Duration
	unanswered   map[uint64]*unansweredRenewal
}

// Leases says how long a client may trust its session and the holds of it. docs/protocol.md derives the rules.
//
// Guards read it from any goroutine.
type Leases struct {
	mu sync.Mutex
	// span is the shorter of TTL and linger: the cluster may end the session so long after its last answered request.
	span               time.Duration
	best               sample
	lastAnsweredSentAt Time
	bestEffort         *sample
	holds              map[uint64]*holdLease
}

// NewLeases returns the leases of a session whose opening was sent at sentAt.
func NewLeases(sentAt Time, logicalMs uint64, ttl, linger time.Duration) *Leases {
	return &Leases{
		span:               min(ttl, linger),
		best:               sample{sentAt, logicalMs},
		lastAnsweredSentAt: sentAt,
		holds:              map[uint64]*holdLease{},
	}
}

// Answered notes a request that took effect. Refusals are not noted.
func (l *Leases) Answered(sentAt Time, logicalMs uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if it := (sample{sentAt, logicalMs}); it.isBetterThan(l.best) {
		l.best = it
	}
	l.lastAnsweredSentAt = max(l.lastAnsweredSentAt, sentAt)
}

// AnsweredBestEffort is as Answered, for the efficiency tier, which does not keep the session alive.
func (l *Leases) AnsweredBestEffort(sentAt Time, logicalMs uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if it := (sample{sentAt, logicalMs}); l.bestEffort == nil || it.isBetterThan(*l.bestEffort) {
		l.bestEffort = &it
	}
}

// BestEffortRestarts drops the samples of the efficiency tier: another leader has another clock.
func (l *Leases) BestEffortRestarts() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bestEffort = nil
}

// LeaderLost ends the holds of the efficiency tier, and returns which they were.
func (l *Leases) LeaderLost() map[uint64]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	ended := map[uint64]bool{}
	for id, lease := range l.holds {
		if lease.isBestEffort {
			ended[id] = true
			delete(l.holds, id)
		}
	}
	return ended
}

// Granted notes a new hold. A nil deadline: only the session bounds it.
func (l *Leases) Granted(hold uint64, deadlineMs *uint64, isBestEffort bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lease := &holdLease{isBestEffort: isBestEffort, ownDeadline: deadlineMs}
	l.measure(lease)
	l.holds[hold] = lease
}

func (l *Leases) measure(lease *holdLease) {
	lease.ownSpan = 0
	if it := l.sampleFor(lease); it != nil && lease.ownDeadline != nil {
		lease.ownSpan = it.until(*lease.ownDeadline)
	}
}

// RenewalSent bounds the hold from the first sending of a renewal. A nil TTL keeps the one that the hold has.
func (l *Leases) RenewalSent(hold, renewal uint64, sentAt Time, ttl *time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lease := l.holds[hold]
	if lease == nil || lease.unanswered[renewal] != nil {
		return
	}
	sent := &unansweredRenewal{}
	if ttl != nil {
		end := safeEnd(sentAt, *ttl)
		sent.end = &end
	}
	if lease.unanswered == nil {
		lease.unanswered = map[uint64]*unansweredRenewal{}
	}
	lease.unanswered[renewal] = sent
}

// Renewed takes the deadline of the renewal that was applied last. If that is not known, the earlier one counts.
func (l *Leases) Renewed(hold, renewal uint64, deadlineMs *uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lease := l.holds[hold]
	if lease == nil {
		return
	}
	sent := lease.unanswered[renewal]
	switch {
	case sent == nil || !sent.isOvertaken || lease.ownDeadline == nil:
		lease.ownDeadline = deadlineMs
	case deadlineMs != nil:
		earlier := min(*lease.ownDeadline, *deadlineMs)
		lease.ownDeadline = &earlier
	}
	delete(lease.unanswered, renewal)
	for _, other := range lease.unanswered {
		other.isOvertaken = true
	}
	l.measure(lease)
}

// RenewalRefused notes that the renewal did not take effect, and will not.
func (l *Leases) RenewalRefused(hold, renewal uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if lease := l.holds[hold]; lease != nil {
		delete(lease.unanswered, renewal)
	}
}

// Ended forgets a hold.
func (l *Leases) Ended(hold uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.holds, hold)
}

// SessionValidUntil returns until when the session certainly lives.
func (l *Leases) SessionValidUntil() Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sessionEnd()
}

func (l *Leases) sessionEnd() Time { return safeEnd(l.lastAnsweredSentAt, l.span) }

// ValidUntil returns until when the hold certainly lives; false if there is no such hold.
func (l *Leases) ValidUntil(hold uint64) (Time, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lease := l.holds[hold]
	if lease == nil {
		return 0, false
	}
	end, hasOwn := l.ownEnd(lease)
	if session := l.sessionEnd(); !hasOwn || session < end {
		return session, true
	}
	return end, true
}

// HasOwnEnd says whether more than the session bounds the hold.
func (l *Leases) HasOwnEnd(hold uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	lease := l.holds[hold]
	if lease == nil {
		return false
	}
	_, hasOwn := l.ownEnd(lease)
	return hasOwn
}

// EndsBeforeSession says whether the hold's own time is over before the session's.
func (l *Leases) EndsBeforeSession(hold uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	lease := l.holds[hold]
	if lease == nil {
		return false
	}
	end, hasOwn := l.ownEnd(lease)
	return hasOwn && end < l.sessionEnd()
}

// AtRiskFrom returns from when a third of the hold's time is left; false if there is no such hold.
func (l *Leases) AtRiskFrom(hold uint64) (Time, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lease := l.holds[hold]
	if lease == nil {
		return 0, false
	}
	atRisk := max(0, l.sessionEnd().Add(-l.span/3))
	if end, hasOwn := l.ownEnd(lease); hasOwn {
		atRisk = min(atRisk, max(0, end.Add(-lease.ownSpan/3)))
	}
	return atRisk, true
}

// HeartbeatDue returns when the next heartbeat has to be sent.
func (l *Leases) HeartbeatDue() Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if IsPlanted(Chatty) {
		return l.lastAnsweredSentAt.Add(l.span / 60)
	}
	return l.lastAnsweredSentAt.Add(l.span / 3)
}

func (l *Leases) ownEnd(lease *holdLease) (Time, bool) {
	end, hasOwn := Never, false
	for _, sent := range lease.unanswered {
		if sent.end != nil {
			end, hasOwn = min(end, *sent.end), true
		}
	}
	if lease.ownDeadline != nil {
		deadline := Time(0)
		if it := l.sampleFor(lease); it != nil {
			deadline = it.safeEndOf(*lease.ownDeadline)
		}
		end, hasOwn = min(end, deadline), true
	}
	return end, hasOwn
}

func (l *Leases) sampleFor(lease *holdLease) *sample {
	if lease.isBestEffort {
		return l.bestEffort
	}
	return &l.best
}
