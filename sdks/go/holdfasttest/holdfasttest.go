// Package holdfasttest starts a real node for the tests of programs that use locks, and takes locks away as operators and
// expiries do.
//
//	func TestALossIsNoticed(t *testing.T) {
//		server := holdfasttest.Start(t)
//		client := server.Client(t)
//		guard, err := client.Lock(t.Context(), "job")
//		...
//		server.BreakLock(t, "job")
//		<-guard.Context().Done()
//	}
//
// The program `holdfast` must be in PATH, or named by HOLDFAST_BIN. Without it the tests are skipped, and in CI (CI=true)
// they fail.
package holdfasttest

import (
	"bufio"
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	holdfast "holdfast/sdks/go"
)

const (
	readyTimeout   = 60 * time.Second
	commandTimeout = 30 * time.Second
	portTries      = 5
)

// Server is a cluster, of one node unless the test asks for more.
type Server struct {
	// Endpoint is `host:port`, of the first node.
	Endpoint string
	binary   string
	data     string
	isSecure bool
}

// Start starts a node on loopback, and stops it after the test.
func Start(t testing.TB) *Server {
	t.Helper()
	return start(t, false, "--nodes", "1")
}

// StartDivided starts a cluster of several nodes on loopback, whose locks are divided over several Raft groups, and stops it
// after the test.
func StartDivided(t testing.TB, nodes, groups int) *Server {
	t.Helper()
	return start(t, false, "--nodes", strconv.Itoa(nodes), "--groups", strconv.Itoa(groups))
}

// StartSecure starts a node that speaks TLS and demands credentials. [Server.User] makes clients of it. Commands are those
// of its administrator.
func StartSecure(t testing.TB) *Server {
	t.Helper()
	return start(t, true, "--nodes", "1", "--secure")
}

// start runs `holdfast dev` with these arguments.
func start(t testing.TB, isSecure bool, arguments ...string) *Server {
	t.Helper()
	binary := os.Getenv("HOLDFAST_BIN")
	if binary == "" {
		found, err := exec.LookPath("holdfast")
		if err != nil {
			SkipUnlessCI(t, "the program `holdfast` is not in PATH; set HOLDFAST_BIN to where it is")
		}
		binary = found
	}
	for range portTries {
		port := freePorts(t)
		server := &Server{
			Endpoint: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)),
			binary:   binary,
			data:     filepath.Join(t.TempDir(), "data"),
			isSecure: isSecure,
		}
		if server.start(t, port, arguments) {
			return server
		}
	}
	t.Fatal("no holdfast node could be started")
	return nil
}

// SkipUnlessCI skips a test that needs something which is not there. In CI it fails.
func SkipUnlessCI(t testing.TB, words string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(words)
	}
	t.Skip(words)
}

func (s *Server) start(t testing.TB, port int, arguments []string) bool {
	t.Helper()
	own := []string{"dev", "--no-http", "--port", strconv.Itoa(port), "--data-dir", s.data}
	node := exec.Command(s.binary, append(own, arguments...)...)
	out, err := node.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := node.Start(); err != nil {
		t.Fatal(err)
	}
	stop := func() {
		_ = node.Process.Kill()
		_ = node.Wait()
	}
	giveUp := time.AfterFunc(readyTimeout, func() { _ = node.Process.Kill() })
	defer giveUp.Stop()
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if strings.TrimSpace(lines.Text()) == "ready" {
			t.Cleanup(stop)
			return true
		}
	}
	stop()
	return false
}

// Client returns a client of the node, and closes it after the test.
func (s *Server) Client(t testing.TB, options ...holdfast.Option) *holdfast.Client {
	t.Helper()
	client, err := holdfast.Connect(context.Background(), s.Endpoint, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close(context.Background()) })
	return client
}

// User returns a client of a new user, and the file with the user's token. It closes the client after the test. The node
// is one of [StartSecure].
func (s *Server) User(t testing.TB, name string, options ...holdfast.Option) (*holdfast.Client, string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), name+".token")
	s.Command(t, "access", "user", "create", "token:"+name, "--role", "user", "--to", file)
	return s.UserClient(t, file, options...), file
}

// UserClient returns a client that shows the token in this file, and closes it after the test. The node is one of
// [StartSecure].
func (s *Server) UserClient(t testing.TB, file string, options ...holdfast.Option) *holdfast.Client {
	t.Helper()
	tls := holdfast.WithTLS(holdfast.TLS{CA: filepath.Join(s.data, "certs", "ca.pem")})
	return s.Client(t, append([]holdfast.Option{tls, holdfast.WithAuthFile(file)}, options...)...)
}

// BreakLock takes a lock away from its holder, as an operator does.
func (s *Server) BreakLock(t testing.TB, name string) {
	t.Helper()
	s.Command(t, "break", name, "--reason", "a test")
}

// EndSession ends the session of a lock's holder, as if it had expired.
func (s *Server) EndSession(t testing.TB, name string) {
	t.Helper()
	status, err := s.Client(t).Status(context.Background(), name)
	if err != nil {
		t.Fatal(err)
	}
	for _, holder := range status.Holders {
		s.Command(t, "kill-session", holder.Session, "--reason", "a test")
	}
}

// Command runs `holdfast` with these arguments against the node, and returns what it prints.
func (s *Server) Command(t testing.TB, arguments ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), commandTimeout)
	defer cancel()
	command := exec.CommandContext(ctx, s.binary, arguments...)
	command.Env = append(os.Environ(), "HOLDFAST_ENDPOINTS="+s.Endpoint)
	if s.isSecure {
		command.Env = append(command.Env, "HOLDFAST_CONFIG="+filepath.Join(s.data, "client.toml"))
	}
	out, err := command.Output()
	if err != nil {
		t.Fatalf("holdfast %s: %v: %s", strings.Join(arguments, " "), err, out)
	}
	return string(out)
}

// freePorts returns a port that is free. So is the one after it, which peers use.
func freePorts(t testing.TB) int {
	t.Helper()
	for {
		first, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		port := first.Addr().(*net.TCPAddr).Port
		second, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port+1)))
		_ = first.Close()
		if err == nil {
			_ = second.Close()
			return port
		}
	}
}
