package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	holdfast "holdfast/sdks/go"
	"holdfast/sdks/go/holdfasttest"
)

var background = context.Background()

// patience is longer than anything here takes.
const patience = 20 * time.Second

func must[T any](t *testing.T) func(T, error) T {
	return func(value T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

func fails(t *testing.T, err, wanted error) {
	t.Helper()
	if !errors.Is(err, wanted) {
		t.Fatalf("%v, and not %v", err, wanted)
	}
}

func TestALockIsHeldUntilItIsReleased(t *testing.T) {
	server := holdfasttest.Start(t)
	client, rival := server.Client(t), server.Client(t)
	guard := must[*holdfast.Guard](t)(client.Lock(background, "a"))
	first := must[uint64](t)(guard.Token())
	fence := must[string](t)(guard.Fence())
	if !strings.HasPrefix(fence, "hf1.L.") || guard.Name() != "a" || guard.Mode() != holdfast.ModeExclusive {
		t.Fatal(fence, guard.Name(), guard.Mode())
	}
	_, err := rival.Lock(background, "a")
	fails(t, err, holdfast.ErrBusy)
	_, err = rival.Lock(background, "a", holdfast.Wait(50*time.Millisecond))
	fails(t, err, holdfast.ErrTimedOut)
	work := guard.Context()
	if err := guard.Release(background); err != nil {
		t.Fatal(err)
	}
	_, err = guard.Token()
	fails(t, err, holdfast.ErrLost)
	<-work.Done()
	fails(t, context.Cause(work), holdfast.ErrLost)
	if err := guard.Release(background); err != nil {
		t.Fatal("a second release:", err)
	}
	next := must[*holdfast.Guard](t)(rival.Lock(background, "a"))
	if second := must[uint64](t)(next.Token()); second <= first {
		t.Fatalf("the token %d after %d", second, first)
	}
}

func TestGoroutinesOfOneClientExcludeEachOther(t *testing.T) {
	t.Parallel()
	client := holdfasttest.Start(t).Client(t)
	var all sync.WaitGroup
	inside, count := 0, 0
	for range 8 {
		all.Add(1)
		go func() {
			defer all.Done()
			err := client.Do(background, "a", func(context.Context, *holdfast.Guard) error {
				if inside++; inside != 1 {
					t.Error("two goroutines are under one lock")
				}
				runtime.Gosched()
				inside--
				count++
				return nil
			}, holdfast.Wait(patience))
			if err != nil {
				t.Error(err)
			}
		}()
	}
	all.Wait()
	if count != 8 {
		t.Fatal(count)
	}
}

func TestALossEndsTheContextWithItsReason(t *testing.T) {
	t.Parallel()
	server := holdfasttest.Start(t)
	client := server.Client(t)
	guard := must[*holdfast.Guard](t)(client.Lock(background, "a"))
	work := guard.Context()
	server.BreakLock(t, "a")
	select {
	case <-work.Done():
	case <-time.After(patience):
		t.Fatal("the context goes on")
	}
	var lost *holdfast.LostError
	if !errors.As(context.Cause(work), &lost) || lost.Reason != "broken" {
		t.Fatal(context.Cause(work))
	}
	fails(t, guard.Release(background), holdfast.ErrLost)
}

func TestDoTellsTheLossAndTheErrorOfItsBody(t *testing.T) {
	t.Parallel()
	server := holdfasttest.Start(t)
	client := server.Client(t)
	own := errors.New("the body's own")
	err := client.Do(background, "a", func(ctx context.Context, _ *holdfast.Guard) error {
		server.EndSession(t, "a")
		<-ctx.Done()
		return own
	})
	fails(t, err, own)
	fails(t, err, holdfast.ErrLost)
	// The next request opens another session.
	if err := client.Do(background, "a", func(context.Context, *holdfast.Guard) error { return nil }); err != nil {
		t.Fatal(err)
	}
}

func TestACallerWhoseContextEndsLeavesNoWaiterBehind(t *testing.T) {
	t.Parallel()
	server := holdfasttest.Start(t)
	client, rival := server.Client(t), server.Client(t)
	guard := must[*holdfast.Guard](t)(rival.Lock(background, "a"))
	ctx, cancel := context.WithCancelCause(background)
	why := errors.New("the request was withdrawn")
	_, err := client.Lock(ctx, "a", holdfast.Wait(patience), holdfast.OnQueued(func(uint64) { cancel(why) }))
	fails(t, err, holdfast.ErrCancelled)
	fails(t, err, context.Canceled)
	fails(t, err, why)
	for giveUp := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		if must[*holdfast.Status](t)(rival.Status(background, "a")).WaiterCount == 0 {
			break
		}
		if time.Now().After(giveUp) {
			t.Fatal("the waiter stays")
		}
	}
	if err := guard.Release(background); err != nil {
		t.Fatal(err)
	}
	must[*holdfast.Guard](t)(rival.Lock(background, "a"))
}

func TestLocksThatAreTakenWithAGuardsContextBelongToItsActor(t *testing.T) {
	t.Parallel()
	client := holdfasttest.Start(t).Client(t)
	outer := must[*holdfast.Guard](t)(client.Lock(background, "a", holdfast.Reentrant()))
	inner := must[*holdfast.Guard](t)(client.Lock(outer.Context(), "a", holdfast.Reentrant()))
	if must[uint64](t)(outer.Token()) != must[uint64](t)(inner.Token()) {
		t.Fatal("one hold has two tokens")
	}
	_, err := client.Lock(background, "a", holdfast.Reentrant())
	fails(t, err, holdfast.ErrBusy)
	other := must[*holdfast.Guard](t)(client.Lock(background, "b"))
	done := make(chan error, 1)
	isQueued := make(chan struct{})
	go func() {
		_, err := client.Lock(outer.Context(), "b", holdfast.Wait(patience), holdfast.OnQueued(func(uint64) { close(isQueued) }))
		done <- err
	}()
	<-isQueued
	_, err = client.Lock(other.Context(), "a", holdfast.Wait(patience))
	var deadlock *holdfast.DeadlockError
	if !errors.As(err, &deadlock) || len(deadlock.Cycle) != 2 {
		t.Fatal(err)
	}
	fails(t, err, holdfast.ErrDeadlock)
	if err := other.Release(background); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestReadersPermitsAndSeveralLocks(t *testing.T) {
	t.Parallel()
	server := holdfasttest.Start(t)
	client, rival := server.Client(t), server.Client(t)
	reader := must[*holdfast.Guard](t)(client.Lock(background, "r", holdfast.Shared()))
	other := must[*holdfast.Guard](t)(rival.Lock(background, "r", holdfast.Shared()))
	fails(t, reader.ConvertToExclusive(background, 0), holdfast.ErrBusy)
	if err := other.Release(background); err != nil {
		t.Fatal(err)
	}
	if err := reader.ConvertToExclusive(background, patience); err != nil || reader.Mode() != holdfast.ModeExclusive {
		t.Fatal(err, reader.Mode())
	}
	for range 2 {
		must[*holdfast.Guard](t)(client.Lock(background, "p", holdfast.Permits(2)))
	}
	_, err := rival.Lock(background, "p", holdfast.Permits(2))
	fails(t, err, holdfast.ErrBusy)
	both := must[*holdfast.GuardAll](t)(client.LockAll(background, []string{"z", "y"}))
	if tokens := must[[]uint64](t)(both.Tokens()); len(tokens) != 2 || fmt.Sprint(both.Names()) != "[z y]" {
		t.Fatal(tokens, both.Names())
	}
	server.BreakLock(t, "y")
	fails(t, both.WaitLost(background), holdfast.ErrLost)
	_, err = both.Tokens()
	fails(t, err, holdfast.ErrLost)
	// What is left is released.
	fails(t, both.Release(background), holdfast.ErrLost)
	must[*holdfast.Guard](t)(rival.Lock(background, "z", holdfast.Wait(patience)))
}

func TestALockOfTheEfficiencyTierSaysSo(t *testing.T) {
	client := holdfasttest.Start(t).Client(t)
	guard := must[*holdfast.Guard](t)(client.Lock(background, "a", holdfast.Efficiency()))
	if fence := must[string](t)(guard.Fence()); !guard.IsBestEffort() || !strings.HasPrefix(fence, "hf1.B.") {
		t.Fatal(fence)
	}
	if err := guard.Release(background); err != nil {
		t.Fatal(err)
	}
}

func TestALockWithItsOwnTTLIsRenewedUnlessToldOtherwise(t *testing.T) {
	t.Parallel()
	client := holdfasttest.Start(t).Client(t)
	ends := must[*holdfast.Guard](t)(client.Lock(background, "a", holdfast.TTL(time.Second), holdfast.WithoutRenewal()))
	lives := must[*holdfast.Guard](t)(client.Lock(background, "b", holdfast.TTL(time.Second)))
	var lost *holdfast.LostError
	if err := ends.WaitLost(background); !errors.As(err, &lost) {
		t.Fatal(err)
	}
	deadline := time.Now().Add(1500 * time.Millisecond)
	for time.Now().Before(deadline) {
		must[uint64](t)(lives.Token())
		time.Sleep(10 * time.Millisecond)
	}
}

func TestAnElectionShowsItsLeaderAndObserversSeeEachChange(t *testing.T) {
	t.Parallel()
	server := holdfasttest.Start(t)
	client, rival := server.Client(t), server.Client(t)
	ctx, cancel := context.WithTimeout(background, patience)
	defer cancel()
	election := client.Election("e")
	var seen []string
	var leadership *holdfast.Leadership
	for observed, err := range rival.Election("e").Observe(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case observed.Leader == nil && leadership == nil:
			leadership = must[*holdfast.Leadership](t)(election.Lead(ctx, []byte("one")))
			seen = append(seen, "vacant")
		case observed.Leader != nil && string(observed.Leader.Value) == "one":
			leader, isThere, err := rival.Election("e").Leader(ctx)
			if err != nil || !isThere || leader.Epoch != must[uint64](t)(leadership.Epoch()) {
				t.Fatal(leader, isThere, err)
			}
			if err := leadership.Proclaim(ctx, []byte("two")); err != nil {
				t.Fatal(err)
			}
			seen = append(seen, "one")
		case observed.Leader != nil:
			seen = append(seen, string(observed.Leader.Value))
			if err := leadership.Resign(ctx); err != nil {
				t.Fatal(err)
			}
		default:
			seen = append(seen, "vacant")
		}
		if len(seen) == 4 {
			break
		}
	}
	if fmt.Sprint(seen) != "[vacant one two vacant]" {
		t.Fatal(seen)
	}
}

func TestAWatchBeginsWithASnapshotAndTellsWhatHappens(t *testing.T) {
	t.Parallel()
	server := holdfasttest.Start(t)
	client := server.Client(t)
	guard := must[*holdfast.Guard](t)(client.Lock(background, "p/a"))
	ctx, cancel := context.WithTimeout(background, patience)
	defer cancel()
	var seen []string
	for update, err := range client.Watch(ctx, "p/") {
		if err != nil {
			fails(t, err, context.Canceled)
			seen = append(seen, "cancelled")
			continue
		}
		switch {
		case update.Lock != nil:
			seen = append(seen, update.Lock.Name)
		case update.IsSnapshotComplete:
			seen = append(seen, "complete")
			if err := guard.Release(background); err != nil {
				t.Fatal(err)
			}
		case update.Event != nil:
			seen = append(seen, update.Event.Kind)
			cancel()
		}
	}
	if fmt.Sprint(seen) != "[p/a complete released cancelled]" {
		t.Fatal(seen)
	}
}

func TestAWatchAndAWaitForALossEndWithTheirClient(t *testing.T) {
	t.Parallel()
	server := holdfasttest.Start(t)
	client := server.Client(t)
	guard := must[*holdfast.Guard](t)(client.Lock(background, "a"))
	ended := make(chan error, 2)
	go func() { ended <- guard.WaitLost(background) }()
	for update, err := range client.Watch(background, "") {
		if err != nil {
			fails(t, err, holdfast.ErrClosed)
		} else if update.IsSnapshotComplete {
			if err := client.Close(background); err != nil {
				t.Fatal(err)
			}
		}
	}
	fails(t, <-ended, holdfast.ErrLost)
}

func TestAWaitForALossEndsWithTheReleaseOrTheContext(t *testing.T) {
	t.Parallel()
	client := holdfasttest.Start(t).Client(t)
	guard := must[*holdfast.Guard](t)(client.Lock(background, "a"))
	ctx, cancel := context.WithCancel(background)
	cancel()
	fails(t, guard.WaitLost(ctx), holdfast.ErrCancelled)
	ended := make(chan error, 1)
	go func() { ended <- guard.WaitLost(background) }()
	if err := guard.Release(background); err != nil {
		t.Fatal(err)
	}
	fails(t, <-ended, holdfast.ErrLost)
}

func TestTheVersionIsThatOfTheCluster(t *testing.T) {
	cargo := string(must[[]byte](t)(os.ReadFile("../../Cargo.toml")))
	if !strings.Contains(cargo, fmt.Sprintf("\nversion = %q\n", holdfast.Version)) {
		t.Fatalf("set holdfast.Version, %s, to that of Cargo.toml", holdfast.Version)
	}
}

func TestAClientWithoutAClusterSaysSo(t *testing.T) {
	before := runtime.NumGoroutine()
	began := time.Now()
	_, err := holdfast.Connect(background, "127.0.0.1:1")
	var unavailable *holdfast.UnavailableError
	if !errors.As(err, &unavailable) || unavailable.MayHaveHappened || time.Since(began) > 5*time.Second {
		t.Fatal(err, time.Since(began))
	}
	for giveUp := time.Now().Add(patience); runtime.NumGoroutine() > before; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(giveUp) {
			t.Fatalf("%d goroutines are left of %d", runtime.NumGoroutine(), before)
		}
	}
}

func TestAClosedClientLeavesNoGoroutineAndTakesNothingMore(t *testing.T) {
	server := holdfasttest.Start(t)
	before := runtime.NumGoroutine()
	client := server.Client(t)
	guard := must[*holdfast.Guard](t)(client.Lock(background, "a"))
	if err := client.Close(background); err != nil {
		t.Fatal(err)
	}
	_, err := guard.Token()
	fails(t, err, holdfast.ErrLost)
	_, err = client.Lock(background, "a")
	fails(t, err, holdfast.ErrClosed)
	for giveUp := time.Now().Add(patience); runtime.NumGoroutine() > before; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(giveUp) {
			t.Fatalf("%d goroutines are left of %d", runtime.NumGoroutine(), before)
		}
	}
}

func TestWrongNamesEndpointsAndFilesAreToldAtOnce(t *testing.T) {
	client := must[*holdfast.Client](t)(holdfast.New("127.0.0.1:1"))
	for _, name := range []string{"", strings.Repeat("x", 513), "a\x00b", "a\xff"} {
		_, err := client.Lock(background, name)
		var rejected *holdfast.RejectedError
		if !errors.As(err, &rejected) || rejected.Reason != "invalid_name" {
			t.Fatal(err)
		}
	}
	_, err := client.Lock(background, "a", holdfast.Metadata(make([]byte, 1025)))
	fails(t, err, holdfast.ErrRejected)
	_, err = holdfast.New("localhost")
	fails(t, err, holdfast.ErrInvalidEndpoints)
	file := filepath.Join(t.TempDir(), "token")
	for _, mode := range []os.FileMode{0o644, 0o600} {
		if err := os.WriteFile(file, []byte("no token"), mode); err != nil {
			t.Fatal(err)
		}
		_, err = holdfast.New("a:1", holdfast.WithAuthFile(file))
		fails(t, err, holdfast.ErrInvalidOptions)
		if strings.Contains(err.Error(), "no token") && !strings.Contains(err.Error(), "has no token") {
			t.Fatal("the error repeats the file:", err)
		}
	}
	_, err = holdfast.New("a:1", holdfast.WithTLS(holdfast.TLS{CA: file}))
	fails(t, err, holdfast.ErrInvalidOptions)
	_, err = holdfast.New("a:1", holdfast.WithTLS(holdfast.TLS{Cert: file, Key: file}))
	fails(t, err, holdfast.ErrInvalidOptions)
}

func TestATraceparentGoesFromTheContextToTheCluster(t *testing.T) {
	server := holdfasttest.Start(t)
	type key struct{}
	asked := make(chan string, 1)
	client := server.Client(t, holdfast.WithTraceparent(func(ctx context.Context) string {
		traceparent, _ := ctx.Value(key{}).(string)
		asked <- traceparent
		return traceparent
	}))
	sent := "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	must[*holdfast.Guard](t)(client.Lock(context.WithValue(background, key{}, sent), "a"))
	if read := <-asked; read != sent {
		t.Fatal(read)
	}
}
