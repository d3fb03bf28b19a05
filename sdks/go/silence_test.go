package holdfast_test

import (
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	holdfast "holdfast/sdks/go"
	"holdfast/sdks/go/holdfasttest"
)

// wire carries bytes to a node, until it is frozen. Then connections stay open, and nothing passes any more.
type wire struct {
	address     string
	connections atomic.Int32
	frozen      chan struct{}
}

func newWire(t *testing.T, to string) *wire {
	t.Helper()
	listener := must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	t.Cleanup(func() { _ = listener.Close() })
	w := &wire{address: listener.Addr().String(), frozen: make(chan struct{})}
	go func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			w.connections.Add(1)
			node, err := net.Dial("tcp", to)
			if err != nil {
				_ = from.Close()
				continue
			}
			t.Cleanup(func() { _, _ = from.Close(), node.Close() })
			go w.carry(from, node)
			go w.carry(node, from)
		}
	}()
	return w
}

func (w *wire) carry(from, to net.Conn) {
	buffer := make([]byte, 64<<10)
	for {
		count, err := from.Read(buffer)
		select {
		case <-w.frozen:
			return
		default:
		}
		if err == nil {
			_, err = to.Write(buffer[:count])
		}
		if err != nil {
			_, _ = from.Close(), to.Close()
			return
		}
	}
}

func TestAClientLeavesANodeThatFallsSilentWhileItWaitsAndNoOther(t *testing.T) {
	t.Parallel()
	server := holdfasttest.Start(t)
	w := newWire(t, server.Endpoint)
	held := must[*holdfast.Guard](t)(server.Client(t).Lock(background, "a"))
	client := must[*holdfast.Client](t)(
		holdfast.Connect(background, w.address+","+server.Endpoint, holdfast.WithoutDiscovery()),
	)
	defer client.Close(background)
	isQueued := make(chan struct{})
	granted := make(chan error, 1)
	go func() {
		_, err := client.Lock(background, "a", holdfast.Wait(time.Minute), holdfast.OnQueued(func(uint64) { close(isQueued) }))
		granted <- err
	}()
	<-isQueued
	// Longer than a node may be silent. This one answers pings.
	time.Sleep(5 * time.Second)
	if count := w.connections.Load(); count != 1 {
		t.Fatalf("%d connections to a node that answers", count)
	}
	close(w.frozen)
	froze := time.Now()
	if err := held.Release(background); err != nil {
		t.Fatal(err)
	}
	// The next heartbeat would be due after 10 s, and missed after 13.
	select {
	case err := <-granted:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(patience):
	}
	if passed := time.Since(froze); passed > 9*time.Second {
		t.Fatalf("the client noticed after %v", passed)
	}
}

func TestAProgramThatIsNoNodeIsReportedWithItsAddress(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]string{"silent": "", "another protocol": "220 mail.example.com ESMTP\r\n"} {
		t.Run(name, func(t *testing.T) {
			listener := must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
			defer listener.Close()
			go func() {
				for {
					conn, err := listener.Accept()
					if err != nil {
						return
					}
					go func() {
						_, _ = io.WriteString(conn, answer)
						_, _ = io.Copy(io.Discard, conn)
						_ = conn.Close()
					}()
				}
			}()
			address := listener.Addr().String()
			_, err := holdfast.Connect(background, address, holdfast.WithRequestTimeout(3*time.Second))
			var unavailable *holdfast.UnavailableError
			if !errors.As(err, &unavailable) || !strings.Contains(unavailable.Message, address) {
				t.Fatal(err)
			}
			t.Log(err)
		})
	}
}
