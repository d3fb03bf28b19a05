package engine

import (
	"context"
	"encoding/pem"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestThePatienceWithHandshakesGrowsWhileTheyTakeTooLong(t *testing.T) {
	for ttl, wanted := range map[int][]int{30: {1, 2, 4, 8, 10, 10}, 2: {1, 1, 1}} {
		patience := newHandshakePatience(time.Duration(ttl) * time.Second)
		for tries, seconds := range wanted {
			if found := patience.duration(); found != time.Duration(seconds)*time.Second {
				t.Errorf("%v after %d tries, with a TTL of %d s", found, tries, ttl)
			}
			patience.note(true)
		}
		patience.note(false)
		if found := patience.duration(); found != shortestHandshake {
			t.Errorf("%v after a handshake", found)
		}
	}
}

// slowly listens in front of a node, and lets each connection wait before anything passes.
func slowly(t *testing.T, node string, delay time.Duration) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			time.AfterFunc(delay, func() {
				defer from.Close()
				to, err := net.Dial("tcp", node)
				if err != nil {
					return
				}
				defer to.Close()
				go func() { _, _ = io.Copy(to, from) }()
				_, _ = io.Copy(from, to)
			})
		}
	}()
	return listener.Addr().String()
}

func TestANodeThatIsSlowWithItsHandshakesIsReachedAtLast(t *testing.T) {
	t.Parallel()
	node := httptest.NewUnstartedServer(nil)
	node.EnableHTTP2 = true
	node.StartTLS()
	defer node.Close()
	authority := filepath.Join(t.TempDir(), "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: node.Certificate().Raw})
	if err := os.WriteFile(authority, text, 0o600); err != nil {
		t.Fatal(err)
	}
	address := slowly(t, node.Listener.Addr().String(), 1200*time.Millisecond)
	security := &Security{CA: authority, VerifyHost: true, patience: newHandshakePatience(30 * time.Second)}
	_, err := dialNet(context.Background(), address, security)
	if err == nil || !strings.Contains(err.Error(), "does not end the TLS handshake") {
		t.Fatalf("the first handshake ended with %v", err)
	}
	connected, err := dialNet(context.Background(), address, security)
	if err != nil {
		t.Fatalf("the second handshake has two seconds, and ended with %v", err)
	}
	_ = connected.Close()
	if found := security.patience.duration(); found != shortestHandshake {
		t.Fatalf("%v after a handshake", found)
	}
}
