//go:build unix

package holdfast_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	holdfast "holdfast/sdks/go"
	"holdfast/sdks/go/holdfasttest"
)

const (
	pausedTTL = 2 * time.Second
	pausedEnv = "HOLDFAST_TEST_PAUSED"
)

// TestMain runs a holder that is to be paused, if a test has started this program as one.
func TestMain(m *testing.M) {
	if endpoint := os.Getenv(pausedEnv); endpoint != "" {
		holdAndPause(endpoint, os.Args[len(os.Args)-1])
		return
	}
	os.Exit(m.Run())
}

// holdAndPause takes a lock. Its first act after the pause is to ask for the token.
func holdAndPause(endpoint, how string) {
	client, err := holdfast.Connect(background, endpoint, holdfast.WithTTL(pausedTTL))
	if err != nil {
		fmt.Println("connect:", err)
		return
	}
	guard, err := client.Lock(background, "a")
	if err != nil {
		fmt.Println("lock:", err)
		return
	}
	fmt.Println("held")
	if how == "collection" {
		holdCollectionUp()
	} else {
		for began := time.Now(); time.Since(began) < pausedTTL; {
			// Until the process is stopped. A gap in time says that it was.
			now := time.Now()
			if time.Since(now) > pausedTTL/2 {
				break
			}
		}
	}
	_, err = guard.Token()
	fmt.Println("token:", err)
}

// holdCollectionUp lets a garbage collection wait for a loop that cannot be interrupted (GODEBUG=asyncpreemptoff=1).
// Meanwhile no goroutine of this program runs.
func holdCollectionUp() {
	const sampled = 1 << 27
	began := time.Now()
	spun += spin(sampled)
	perTurn := float64(time.Since(began)) / sampled
	go func() {
		for {
			runtime.GC()
		}
	}()
	// Other goroutines begin to collect, and then wait for this one.
	runtime.Gosched()
	spun += spin(uint64(float64(2*pausedTTL) / perTurn))
}

// spun keeps the compiler from leaving the loop out.
var spun uint64

//go:noinline
func spin(turns uint64) uint64 {
	sum := uint64(0)
	for turn := uint64(0); turn < turns; turn++ {
		sum ^= turn * turn
	}
	return sum
}

func pausedHolder(t *testing.T, server *holdfasttest.Server, how string) (*os.Process, func() string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	holder := exec.Command(self, how)
	holder.Env = append(os.Environ(), pausedEnv+"="+server.Endpoint, "GODEBUG=asyncpreemptoff=1")
	out, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = holder.Process.Kill()
		_ = holder.Wait()
	})
	lines := bufio.NewScanner(out)
	next := func() string {
		lines.Scan()
		return lines.Text()
	}
	if line := next(); line != "held" {
		t.Fatal(line)
	}
	return holder.Process, next
}

func TestAProcessThatWasStoppedPastItsTTLGetsNoToken(t *testing.T) {
	t.Parallel()
	server := holdfasttest.Start(t)
	holder, next := pausedHolder(t, server, "stopped")
	if err := holder.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	must[*holdfast.Guard](t)(server.Client(t).Lock(background, "a", holdfast.Wait(patience)))
	if err := holder.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if line := next(); !strings.Contains(line, holdfast.ErrLost.Error()) {
		t.Fatal(line)
	}
}

func TestALongPauseOfTheCollectorLosesTheLockBeforeItsTokenIsUsed(t *testing.T) {
	t.Parallel()
	server := holdfasttest.Start(t)
	_, next := pausedHolder(t, server, "collection")
	if line := next(); !strings.Contains(line, holdfast.ErrLost.Error()) {
		t.Fatal(line)
	}
}
