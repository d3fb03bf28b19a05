//go:build unix

// Package testservers starts the databases that tests of fences need. Without them the tests are skipped, and in CI they
// fail.
package testservers

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"holdfast/sdks/go/holdfasttest"
)

const upTimeout = 30 * time.Second

// Postgres starts PostgreSQL, and returns its URL.
func Postgres(t testing.TB) string {
	t.Helper()
	initdb, server := find(t, "initdb"), find(t, "postgres")
	// Other users must be able to enter the directory, so it is none of the test's own.
	directory, err := os.MkdirTemp("", "holdfast-postgres-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(directory) })
	account := &syscall.SysProcAttr{}
	if os.Geteuid() == 0 {
		// PostgreSQL refuses to run as root.
		account.Credential = otherUser(t)
		if err := os.Chown(directory, int(account.Credential.Uid), int(account.Credential.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	data, port := filepath.Join(directory, "data"), freePort(t)
	create := exec.Command(initdb, "-U", "postgres", "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C", "-D", data)
	create.Dir, create.SysProcAttr = "/", account
	if out, err := create.CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v: %s", err, out)
	}
	run := exec.Command(server, "-p", strconv.Itoa(port), "-D", data, "-c", "fsync=off",
		"-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=")
	run.Dir, run.SysProcAttr = "/", account
	start(t, run, port)
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", port)
}

// Redis starts Redis, and returns its address.
func Redis(t testing.TB) string {
	t.Helper()
	port := freePort(t)
	run := exec.Command(find(t, "redis-server"), "--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--save", "",
		"--dir", t.TempDir())
	start(t, run, port)
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

func otherUser(t testing.TB) *syscall.Credential {
	t.Helper()
	for _, name := range []string{"postgres", "nobody"} {
		if it, err := user.Lookup(name); err == nil {
			uid, _ := strconv.ParseUint(it.Uid, 10, 32)
			gid, _ := strconv.ParseUint(it.Gid, 10, 32)
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		}
	}
	t.Fatal("no user to run PostgreSQL as")
	return nil
}

func find(t testing.TB, program string) string {
	t.Helper()
	if found, err := exec.LookPath(program); err == nil {
		return found
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + program)
	if len(found) == 0 {
		holdfasttest.SkipUnlessCI(t, program+" is not installed")
	}
	return found[len(found)-1]
}

func freePort(t testing.TB) int {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port
}

func start(t testing.TB, server *exec.Cmd, port int) {
	t.Helper()
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Signal(syscall.SIGQUIT)
		_ = server.Wait()
	})
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	for giveUp := time.Now().Add(upTimeout); ; time.Sleep(20 * time.Millisecond) {
		connected, err := net.Dial("tcp", address)
		if err == nil {
			_ = connected.Close()
			return
		}
		if time.Now().After(giveUp) {
			t.Fatalf("%s did not start: %v", server.Path, err)
		}
	}
}
