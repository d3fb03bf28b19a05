package holdfast

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	pb "holdfast/sdks/go/holdfastv1"
)

const (
	nameBytesMax     = 512
	metadataBytesMax = 1024
	// waitMax is the longest that a cluster lets a request wait.
	waitMax = 24 * time.Hour
)

// LockOption is a term on which a lock is asked for.
type LockOption func(*terms)

type terms struct {
	wait                    time.Duration
	ttl, maxHold, lockDelay *time.Duration
	isNotRenewed            bool
	mode                    pb.Mode
	permits                 uint32
	isReentrant             bool
	metadata                []byte
	actor                   *uint64
	policy                  pb.Policy
	since                   *uint64
	isPreemptible           bool
	tier                    pb.Tier
	traceparent             string
	onQueued                func(uint64)
}

// Wait waits in the queue for so long. Without it, a lock that is held is [ErrBusy].
func Wait(wait time.Duration) LockOption {
	return func(t *terms) { t.wait = min(max(wait, 0), waitMax) }
}

// Shared takes the lock together with other readers. They have one token.
func Shared() LockOption { return func(t *terms) { t.mode = pb.Mode_MODE_SHARED } }

// Permits takes one of so many permits. All who use a semaphore state the same number; 0 stands for the number that an
// operator has set. A permit has no fencing token.
func Permits(permits uint32) LockOption {
	return func(t *terms) { t.mode, t.permits = pb.Mode_MODE_PERMIT, permits }
}

// Reentrant lets the same actor take the lock again. See [WithActor].
func Reentrant() LockOption { return func(t *terms) { t.isReentrant = true } }

// TTL gives the hold a TTL of its own. The client renews it, unless [WithoutRenewal] is given.
func TTL(ttl time.Duration) LockOption { return func(t *terms) { t.ttl = &ttl } }

// WithoutRenewal makes that a hold with a [TTL] ends after it, unless the program calls [Guard.Renew].
func WithoutRenewal() LockOption { return func(t *terms) { t.isNotRenewed = true } }

// MaxHold ends the hold after this time, whatever is renewed.
func MaxHold(maxHold time.Duration) LockOption { return func(t *terms) { t.maxHold = &maxHold } }

// LockDelay keeps the lock closed for so long if the hold ends without being given back.
func LockDelay(delay time.Duration) LockOption { return func(t *terms) { t.lockDelay = &delay } }

// Metadata is shown to people who look at the lock; at most 1,024 bytes.
func Metadata(metadata []byte) LockOption { return func(t *terms) { t.metadata = metadata } }

// Actor says which task of the session asks; 0 is the session itself. By default the context says it: see [WithActor].
func Actor(actor uint64) LockOption { return func(t *terms) { t.actor = &actor } }

// Policy says what to do when another actor is in the way.
type Policy string

const (
	// Detect waits, unless that would close a cycle. It is the default.
	Detect Policy = "detect"
	// WaitAlways waits, whatever comes of it.
	WaitAlways Policy = "wait"
	// WaitDie waits for younger actors only, and fails with [ErrDied] otherwise.
	WaitDie Policy = "wait_die"
	// WoundWait takes the preemptible holds of younger actors away, and waits for the rest.
	WoundWait Policy = "wound_wait"
)

// WithPolicy sets the policy of a lock.
func WithPolicy(policy Policy) LockOption {
	return func(t *terms) {
		switch policy {
		case WaitAlways:
			t.policy = pb.Policy_POLICY_WAIT
		case WaitDie:
			t.policy = pb.Policy_POLICY_WAIT_DIE
		case WoundWait:
			t.policy = pb.Policy_POLICY_WOUND_WAIT
		default:
			t.policy = pb.Policy_POLICY_DETECT
		}
	}
}

// Since is the age with which to ask, as [DiedError] and [Guard.Since] tell it.
func Since(since uint64) LockOption { return func(t *terms) { t.since = &since } }

// Preemptible lets an older actor with [WoundWait] take the hold away.
func Preemptible() LockOption { return func(t *terms) { t.isPreemptible = true } }

// Efficiency takes the lock in the efficiency tier: faster, and for a moment two can hold it. It ends with the leader of
// the cluster. For work that is wasted, not damaged, when it is done twice.
func Efficiency() LockOption { return func(t *terms) { t.tier = pb.Tier_TIER_EFFICIENCY } }

// Traceparent says of which span the call is part, as the W3C writes it. See also [WithTraceparent].
func Traceparent(traceparent string) LockOption {
	return func(t *terms) { t.traceparent = traceparent }
}

// OnQueued calls back, in a goroutine, when the request waits in the queue; 1 is next in line.
func OnQueued(callback func(position uint64)) LockOption {
	return func(t *terms) { t.onQueued = callback }
}

func (c *Client) termsOf(ctx context.Context, options []LockOption) (*terms, error) {
	t := &terms{mode: pb.Mode_MODE_EXCLUSIVE, policy: pb.Policy_POLICY_DETECT, tier: pb.Tier_TIER_CORRECTNESS}
	for _, option := range options {
		option(t)
	}
	if t.actor == nil {
		actor := actorOf(ctx)
		t.actor = &actor
	}
	if t.traceparent == "" && c.traceparent != nil {
		t.traceparent = c.traceparent(ctx)
	}
	return t, checkMetadata(t.metadata)
}

// renews returns the TTL that the client renews; 0: none.
func (t *terms) renews() time.Duration {
	if t.ttl == nil || t.isNotRenewed {
		return 0
	}
	return *t.ttl
}

func (t *terms) acquire(name string) *pb.AcquireRequest {
	return &pb.AcquireRequest{
		Name: name, Mode: t.mode, WaitMs: *ms(&t.wait), TtlMs: ms(t.ttl), MaxHoldMs: ms(t.maxHold), Actor: *t.actor,
		Metadata: t.metadata, Permits: t.permits, Policy: t.policy, SinceMs: t.since, Preemptible: t.isPreemptible,
		Reentrant: t.isReentrant, LockDelayMs: ms(t.lockDelay), Tier: t.tier, Traceparent: t.traceparent,
	}
}

func (t *terms) acquireAll(names []string) *pb.AcquireAllRequest {
	fields := &pb.AcquireAllRequest{
		WaitMs: *ms(&t.wait), TtlMs: ms(t.ttl), MaxHoldMs: ms(t.maxHold), Actor: *t.actor, Metadata: t.metadata,
		Policy: t.policy, SinceMs: t.since, Preemptible: t.isPreemptible, LockDelayMs: ms(t.lockDelay), Tier: t.tier,
		Traceparent: t.traceparent,
	}
	for _, name := range names {
		fields.Members = append(fields.Members, &pb.Member{Name: name, Mode: t.mode, Permits: t.permits})
	}
	return fields
}

func ms(span *time.Duration) *uint64 {
	if span == nil {
		return nil
	}
	whole := uint64(max(0, span.Milliseconds()))
	return &whole
}

func checkName(name string) error {
	if name == "" || len(name) > nameBytesMax || !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) {
		words := "a lock name has 1 to %d bytes of UTF-8 and no control characters; choose another"
		return &RejectedError{Reason: "invalid_name", Message: fmt.Sprintf(words, nameBytesMax)}
	}
	return nil
}

func checkMetadata(metadata []byte) error {
	if len(metadata) > metadataBytesMax {
		words := fmt.Sprintf("metadata has at most %d bytes; send less", metadataBytesMax)
		return &RejectedError{Reason: "invalid_metadata", Message: words}
	}
	return nil
}
