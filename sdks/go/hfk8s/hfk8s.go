// Package hfk8s lets Kubernetes operators elect their leader with Holdfast: it is a resourcelock.Interface of client-go,
// which controller-runtime takes, too.
//
//	lock := hfk8s.New(client, "my-operator", identity)
//	leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
//		Lock: lock, LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
//		ReleaseOnCancel: true,
//		Callbacks: leaderelection.LeaderCallbacks{...},
//	})
//
// In controller-runtime: ctrl.Options{LeaderElection: true, LeaderElectionResourceLockInterface: lock}.
//
// The leader is the holder of a Holdfast lock, and not who wrote a record last. So no candidate takes over while the
// leader's session lives, whatever the clocks of the candidates say; and a leader that is gone is followed at once when
// its session ends. [Lock.Fence] is the fencing token of the leadership: send it with each write.
package hfk8s

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	holdfast "holdfast/sdks/go"
)

// ErrJustLost says that this candidate led, and lost the lock a moment ago. It must stop to lead before it stands again.
var ErrJustLost = errors.New("the leadership was lost; the elector must stop leading first")

// defaultLeaseDuration is that of client-go.
const defaultLeaseDuration = 15 * time.Second

// Lock is an election as client-go wants it. It is safe for concurrent use.
type Lock struct {
	client   *holdfast.Client
	name     string
	identity string
	// lease is for how long a candidate that lost the leadership does not stand again. Within it the elector has noticed.
	lease time.Duration

	mu     sync.Mutex
	guard  *holdfast.Guard
	lostAt time.Time
}

var _ resourcelock.Interface = (*Lock)(nil)

// Option configures a [Lock].
type Option func(*Lock)

// WithLeaseDuration says the LeaseDuration of the elector; by default 15 s.
func WithLeaseDuration(lease time.Duration) Option { return func(l *Lock) { l.lease = lease } }

// New returns the election of this name, for a candidate with this identity.
func New(client *holdfast.Client, name, identity string, options ...Option) *Lock {
	lock := &Lock{client: client, name: name, identity: identity, lease: defaultLeaseDuration}
	for _, option := range options {
		option(lock)
	}
	return lock
}

// Get returns the record of the present leader. Without a leader it fails with NotFound, as client-go expects.
func (l *Lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	leader, isThere, err := l.client.Election(l.name).Leader(ctx)
	if err != nil {
		return nil, nil, err
	}
	if !isThere {
		return nil, nil, apierrors.NewNotFound(schema.GroupResource{Group: "holdfast", Resource: "elections"}, l.name)
	}
	record := &resourcelock.LeaderElectionRecord{}
	if err := json.Unmarshal(leader.Value, record); err != nil {
		// The lock is held, and not by an elector. So no candidate may lead.
		record = &resourcelock.LeaderElectionRecord{HolderIdentity: "session " + leader.Session}
	}
	return record, leader.Value, nil
}

// Create stands for election.
func (l *Lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.Update(ctx, record)
}

// Update renews the record of a leader, or stands for election. A record without a holder steps down.
func (l *Lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	value, err := json.Marshal(record)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.guard != nil {
		if err := l.guard.Check(); err != nil {
			return l.lose(err)
		}
		if record.HolderIdentity == "" {
			guard := l.guard
			l.guard = nil
			return guard.Release(ctx)
		}
		if err := l.guard.Proclaim(ctx, value); err != nil {
			return l.lose(err)
		}
		return nil
	}
	if record.HolderIdentity == "" {
		return nil
	}
	if !l.lostAt.IsZero() && time.Since(l.lostAt) < l.lease {
		return ErrJustLost
	}
	// The guard outlives the call: only its loss and the release end it.
	guard, err := l.client.Lock(ctx, l.name, holdfast.Metadata(value))
	if err != nil {
		return err
	}
	l.guard = guard
	return nil
}

// lose notes a loss, if the error is one.
func (l *Lock) lose(err error) error {
	if errors.Is(err, holdfast.ErrLost) {
		l.guard, l.lostAt = nil, time.Now()
	}
	return err
}

// Fence returns the fencing token of the leadership in full form, which the protected resource checks. It reads the
// clock, and fails with holdfast.ErrLost unless this candidate certainly leads.
func (l *Lock) Fence() (string, error) {
	l.mu.Lock()
	guard := l.guard
	l.mu.Unlock()
	if guard == nil {
		return "", fmt.Errorf("%w: this candidate does not lead", holdfast.ErrLost)
	}
	return guard.Fence()
}

// Name returns the name of the election. With [Lock.Fence] it makes the lock a fence.Token.
func (l *Lock) Name() string { return l.name }

// RecordEvent does nothing: the cluster has its own record of who led when.
func (l *Lock) RecordEvent(string) {}

// Identity returns the identity of this candidate.
func (l *Lock) Identity() string { return l.identity }

// Describe names the election for logs.
func (l *Lock) Describe() string { return "holdfast/" + l.name }
