// Package hfsql fences writes to PostgreSQL through database/sql: a transaction goes on only if its token is not out of
// date. For pgx without database/sql there is the module hfpgx.
//
//	err = hfsql.Tx(guard.Context(), db, guard, func(tx *sql.Tx) error {
//		_, err := tx.ExecContext(guard.Context(), "UPDATE orders SET paid = true WHERE id = 42")
//		return err
//	})
package hfsql

import (
	"context"
	"database/sql"
	"errors"

	"holdfast/sdks/go/fence"
)

// Execer is a *sql.Tx, or a *sql.Conn within a transaction.
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// Check fails with a *[fence.RefusedError] if the token is out of date, and with ErrLost if the lock is lost. Until the
// transaction ends, no other token of this resource passes. After a refusal the transaction can only be rolled back.
func Check(ctx context.Context, tx Execer, guard fence.Token) error {
	token, err := guard.Fence()
	if err != nil {
		return err
	}
	return CheckToken(ctx, tx, guard.Name(), token, fence.Linearizable)
}

// CheckToken is as [Check], for a token that came from elsewhere. The resource is the name of the lock. It must come from
// the program, not from the sender of the token.
func CheckToken(ctx context.Context, tx Execer, resource, token string, accepts fence.Accepts) error {
	takesBestEffort := accepts == fence.BestEffortTokens
	_, err := tx.ExecContext(ctx, "SELECT holdfast.check_fence($1, $2, $3)", resource, token, takesBestEffort)
	return fence.FromPostgres(err)
}

// Tx runs the body in a transaction that begins with [Check], and commits if the body succeeds.
func Tx(ctx context.Context, db *sql.DB, guard fence.Token, body func(*sql.Tx) error) (err error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() {
		// After a commit there is nothing to roll back.
		if undone := tx.Rollback(); undone != nil && !errors.Is(undone, sql.ErrTxDone) {
			err = errors.Join(err, undone)
		}
	}()
	if err := Check(ctx, tx, guard); err != nil {
		return err
	}
	if err := body(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// Migrate creates what Check needs. It can be run again.
func Migrate(ctx context.Context, db *sql.DB) error {
	_, err := db.ExecContext(ctx, fence.PostgresMigration)
	return err
}
