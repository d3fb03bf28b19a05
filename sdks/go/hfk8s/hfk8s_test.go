package hfk8s_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"k8s.io/client-go/tools/leaderelection"

	holdfast "holdfast/sdks/go"
	"holdfast/sdks/go/fence"
	"holdfast/sdks/go/hfk8s"
	"holdfast/sdks/go/holdfasttest"
)

var _ fence.Token = (*hfk8s.Lock)(nil)

const patience = 20 * time.Second

// candidate runs client-go's elector until the context ends.
type candidate struct {
	lock             *hfk8s.Lock
	started, stopped chan struct{}
	done             chan struct{}
}

func stand(ctx context.Context, t *testing.T, client *holdfast.Client, identity string) *candidate {
	t.Helper()
	const lease = 3 * time.Second
	it := &candidate{
		lock:    hfk8s.New(client, "operator", identity, hfk8s.WithLeaseDuration(lease)),
		started: make(chan struct{}, 8), stopped: make(chan struct{}, 8), done: make(chan struct{}),
	}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: it.lock, LeaseDuration: lease, RenewDeadline: time.Second, RetryPeriod: 100 * time.Millisecond,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { it.started <- struct{}{} },
			OnStoppedLeading: func() { it.stopped <- struct{}{} },
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(it.done)
		elector.Run(ctx)
	}()
	return it
}

func await(t *testing.T, what string, it <-chan struct{}) {
	t.Helper()
	select {
	case <-it:
	case <-time.After(patience):
		t.Fatal("not within the time:", what)
	}
}

func TestOneCandidateLeadsUntilItStepsDown(t *testing.T) {
	server := holdfasttest.Start(t)
	ctx, stepDown := context.WithCancel(context.Background())
	first := stand(ctx, t, server.Client(t), "first")
	await(t, "the first leads", first.started)
	one, err := first.lock.Fence()
	if err != nil {
		t.Fatal(err)
	}
	others, end := context.WithCancel(context.Background())
	defer end()
	second := stand(others, t, server.Client(t), "second")
	record, _, err := second.lock.Get(ctx)
	if err != nil || record.HolderIdentity != "first" {
		t.Fatal(record, err)
	}
	if _, err := second.lock.Fence(); !errors.Is(err, holdfast.ErrLost) {
		t.Fatal("the second leads, too:", err)
	}
	stepDown()
	await(t, "the first has stopped", first.done)
	await(t, "the second leads", second.started)
	if two, err := second.lock.Fence(); err != nil || two == one {
		t.Fatal(two, err)
	}
}

func TestALeaderThatLostItsLockStopsLeadingBeforeItStandsAgain(t *testing.T) {
	server := holdfasttest.Start(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	leader := stand(ctx, t, server.Client(t), "leader")
	await(t, "it leads", leader.started)
	server.BreakLock(t, "operator")
	await(t, "it has stopped", leader.stopped)
	if _, err := leader.lock.Fence(); !errors.Is(err, holdfast.ErrLost) {
		t.Fatal(err)
	}
}
