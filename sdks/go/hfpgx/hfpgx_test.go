package hfpgx_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"

	holdfast "holdfast/sdks/go"
	"holdfast/sdks/go/fence"
	"holdfast/sdks/go/hfpgx"
	"holdfast/sdks/go/hfsql"
	"holdfast/sdks/go/holdfasttest"
	"holdfast/sdks/go/internal/testservers"
)

var background = context.Background()

// late is a holder that does not know that its lock is gone, as after a pause that its own clock did not see.
type late struct{ name, fence string }

func (l late) Name() string           { return l.name }
func (l late) Fence() (string, error) { return l.fence, nil }

func lock(t *testing.T, client *holdfast.Client) (*holdfast.Guard, late) {
	t.Helper()
	guard, err := client.Lock(background, "wallet:42", holdfast.Wait(10*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	token, err := guard.Fence()
	if err != nil {
		t.Fatal(err)
	}
	return guard, late{guard.Name(), token}
}

func TestTheLateWriteOfAHolderThatLostItsLockIsRefused(t *testing.T) {
	url := testservers.Postgres(t)
	pool := open(t, url)
	db, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	server := holdfasttest.Start(t)
	client := server.Client(t)
	withPgx := func(guard fence.Token) error {
		return hfpgx.Tx(background, pool, guard, func(tx pgx.Tx) error {
			_, err := tx.Exec(background, "UPDATE wallets SET cents = cents - 1 WHERE id = 42")
			return err
		})
	}
	withSQL := func(guard fence.Token) error {
		return hfsql.Tx(background, db, guard, func(tx *sql.Tx) error {
			_, err := tx.ExecContext(background, "UPDATE wallets SET cents = cents - 1 WHERE id = 42")
			return err
		})
	}
	written := 0
	for name, write := range map[string]func(fence.Token) error{"pgx": withPgx, "database/sql": withSQL} {
		guard, paused := lock(t, client)
		if err := write(guard); err != nil {
			t.Fatal(name, err)
		}
		server.BreakLock(t, guard.Name())
		next, _ := lock(t, client)
		if err := write(next); err != nil {
			t.Fatal(name, err)
		}
		var refused *fence.RefusedError
		if err := write(paused); !errors.As(err, &refused) || refused.Kind != fence.Stale {
			t.Fatal(name, err)
		}
		if token, err := next.Token(); err != nil || refused.Highest != token {
			t.Fatal(name, refused.Highest, token, err)
		}
		if err := write(late{"wallet:42", "hf1.L.0000000000000000.7"}); !errors.As(err, &refused) ||
			refused.Kind != fence.OtherResource {
			t.Fatal(name, err)
		}
		// A guard that knows of its loss does not ask the database.
		if err := write(guard); !errors.Is(err, holdfast.ErrLost) {
			t.Fatal(name, err)
		}
		if err := next.Release(background); err != nil {
			t.Fatal(name, err)
		}
		written += 2
	}
	var cents int
	if err := pool.QueryRow(background, "SELECT cents FROM wallets").Scan(&cents); err != nil || cents != 100-written {
		t.Fatal(cents, err)
	}
}

func open(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(background, url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	// The port is open a moment before the server serves.
	for giveUp := time.Now().Add(30 * time.Second); pool.Ping(background) != nil; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(giveUp) {
			t.Fatal(pool.Ping(background))
		}
	}
	for range 2 {
		if err := hfpgx.Migrate(background, pool); err != nil {
			t.Fatal(err)
		}
	}
	for _, statement := range []string{
		"CREATE TABLE wallets (id int PRIMARY KEY, cents int)", "INSERT INTO wallets VALUES (42, 100)",
	} {
		if _, err := pool.Exec(background, statement); err != nil {
			t.Fatal(err)
		}
	}
	return pool
}
