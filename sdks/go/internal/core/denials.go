package core

import (
	"slices"
	"time"

	pb "holdfast/sdks/go/holdfastv1"
)

// denialPatienceMax is long enough to replace a credential that has ended.
const denialPatienceMax = 5 * time.Second

// denials tells when a client that the nodes deny gives its session up.
//
// One denial proves little. A node that does not lead may not know the newest credentials yet. A program that renews
// its credential may be late by a moment. So a client gives its session up only when
//   - the latest answer of each known node, if it gave one, is a denial,
//   - at least one of these denials is final, which is what the leader's is,
//   - and denials have gone on for the patience, without a node that served the session.
//
// An answer that is older than the patience does not count: the node may say something else by now.
type denials struct {
	patience time.Duration
	// answers has the latest answer of each known node. It has no other addresses, so leader hints do not make it grow.
	answers map[string]nodeAnswer
	// since is when the first of the denials came that have gone on since; Never if there is none.
	since Time
}

type nodeAnswer struct {
	at       Time
	isDenial bool
	isFinal  bool
}

func newDenials(ttl time.Duration) denials {
	return denials{patience: min(denialPatienceMax, ttl/3), answers: map[string]nodeAnswer{}, since: Never}
}

// reset: a node serves the session, or the session has ended.
func (d *denials) reset() {
	clear(d.answers)
	d.since = Never
}

// note is told that a node has not let the client resume. It returns whether the client has to give its session up.
func (d *denials) note(now Time, address string, failure *pb.Failure, known []string) bool {
	for node, answer := range d.answers {
		if now > answer.at.Add(d.patience) || !slices.Contains(known, node) {
			delete(d.answers, node)
		}
	}
	if !d.hasDenial() {
		d.since = Never
	}
	denies := isDenial(failure.GetReason())
	// A connection that broke is no answer of a node.
	if failure.GetReason() != pb.Reason_REASON_UNSPECIFIED && slices.Contains(known, address) {
		d.answers[address] = nodeAnswer{now, denies, !failure.GetRetryable()}
	}
	if !d.hasDenial() {
		d.since = Never
		return false
	}
	if d.since == Never {
		d.since = now
	}
	isSure := false
	for _, answer := range d.answers {
		if !answer.isDenial {
			return false
		}
		isSure = isSure || answer.isFinal
	}
	return denies && isSure && now >= d.since.Add(d.patience)
}

func (d *denials) hasDenial() bool {
	for _, answer := range d.answers {
		if answer.isDenial {
			return true
		}
	}
	return false
}
