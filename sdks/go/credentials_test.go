package holdfast_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	holdfast "holdfast/sdks/go"
	"holdfast/sdks/go/holdfasttest"
)

// logged is what a client logs.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(text)
}

func (l *logged) contains(words string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), words)
}

func TestACallerThatDoesNotWaitAsLongAsARateDemandsIsToldWhenToComeBack(t *testing.T) {
	node := holdfasttest.StartSecure(t)
	client, _ := node.User(t, "greedy", holdfast.WithRequestTimeout(time.Second))
	node.Command(t, "access", "quota", "set", "token:greedy", "--rate", "1", "--burst", "1")
	var err error
	for range 20 {
		var guard *holdfast.Guard
		if guard, err = client.Lock(background, "g"); err != nil {
			break
		}
		if err := guard.Release(background); err != nil {
			t.Fatal(err)
		}
	}
	fails(t, err, holdfast.ErrQuotaExceeded)
	fails(t, err, holdfast.ErrRejected)
	var quota *holdfast.QuotaExceededError
	var rejected *holdfast.RejectedError
	if !errors.As(err, &quota) || !errors.As(err, &rejected) {
		t.Fatalf("%T", err)
	}
	if quota.RetryAfter <= 0 || quota.RetryAfter > time.Second {
		t.Fatalf("come back after %v", quota.RetryAfter)
	}
	if rejected.Reason != "rate_limited" || !rejected.Retryable || rejected.MayHaveHappened {
		t.Fatalf("%+v", rejected)
	}
	// A caller that waits longer gets the lock later.
	guard := must[*holdfast.Guard](t)(client.Lock(background, "g", holdfast.Wait(10*time.Second)))
	if err := guard.Release(background); err != nil {
		t.Fatal(err)
	}
}

func TestAUsedUpQuotaIsToldAtOnce(t *testing.T) {
	node := holdfasttest.StartSecure(t)
	client, _ := node.User(t, "hoarder")
	node.Command(t, "access", "quota", "set", "token:hoarder", "--locks", "1")
	guard := must[*holdfast.Guard](t)(client.Lock(background, "first"))
	_, err := client.Lock(background, "second", holdfast.Wait(time.Minute))
	var quota *holdfast.QuotaExceededError
	if !errors.As(err, &quota) || quota.Reason != "quota_exceeded" || quota.RetryAfter != 0 {
		t.Fatalf("%v", err)
	}
	if err := guard.Check(); err != nil {
		t.Fatal(err)
	}
}

func TestAClientWhoseTokenIsRevokedLosesItsLocksWithItsNextHeartbeat(t *testing.T) {
	const ttl = 6 * time.Second
	node := holdfasttest.StartSecure(t)
	log := &logged{}
	logger := slog.New(slog.NewTextHandler(log, nil))
	client, file := node.User(t, "revoked", holdfast.WithTTL(ttl), holdfast.WithLogger(logger))
	guard := must[*holdfast.Guard](t)(client.Lock(background, "revoked"))
	lost := guard.Context()
	token := must[[]byte](t)(os.ReadFile(file))
	node.Command(t, "access", "token", "revoke", strings.Split(string(token), "_")[1])
	began := time.Now()
	<-lost.Done()
	// The lease alone would have told it after 98 % of the TTL.
	if took := time.Since(began); took > ttl*9/10 {
		t.Fatalf("the loss was told after %v", took)
	}
	var loss *holdfast.LostError
	if !errors.As(context.Cause(lost), &loss) || loss.Reason != "denied" {
		t.Fatalf("%v", context.Cause(lost))
	}
	began = time.Now()
	fails(t, guard.Release(background), holdfast.ErrLost)
	_, err := client.Lock(background, "another")
	fails(t, err, holdfast.ErrUnauthenticated)
	if err := client.Close(background); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Fatalf("the client was told after %v", took)
	}
	if !log.contains("may have been revoked") {
		t.Fatal("the log does not say why")
	}
}

func TestAClientWhoseTokenHasExpiredResumesWithTheOneThatItsFileHasThen(t *testing.T) {
	node := holdfasttest.StartSecure(t)
	// The token lives for longer than a client needs to take a lock on this machine.
	began := time.Now()
	client, file := node.User(t, "rotated")
	warm := must[*holdfast.Guard](t)(client.Lock(background, "rotated"))
	if err := warm.Release(background); err != nil {
		t.Fatal(err)
	}
	valid := (2*time.Second + 4*time.Since(began)).Truncate(time.Millisecond)
	lasting := must[[]byte](t)(os.ReadFile(file))
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	node.Command(t, "access", "token", "create", "token:rotated", "--to", file, "--expires", fmt.Sprintf("%dms", valid.Milliseconds()))
	expires := time.Now().Add(valid)
	// Its next connection is made with the short one.
	if err := client.Close(background); err != nil {
		t.Fatal(err)
	}
	client = node.UserClient(t, file)
	guard := must[*holdfast.Guard](t)(client.Lock(background, "rotated"))
	token := must[uint64](t)(guard.Token())
	if err := os.WriteFile(file, lasting, 0o600); err != nil {
		t.Fatal(err)
	}
	// The node ends the stream then.
	waiting, cancel := context.WithDeadline(background, expires.Add(200*time.Millisecond))
	defer cancel()
	fails(t, guard.WaitLost(waiting), holdfast.ErrCancelled)
	other := must[*holdfast.Guard](t)(client.Lock(background, "after", holdfast.Wait(5*time.Second)))
	if err := other.Release(background); err != nil {
		t.Fatal(err)
	}
	if now := must[uint64](t)(guard.Token()); now != token {
		t.Fatalf("the token became %d", now)
	}
}
