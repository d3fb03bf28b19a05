// Package hfpgx fences writes to PostgreSQL through pgx: a transaction goes on only if its token is not out of date.
//
//	err = hfpgx.Tx(guard.Context(), pool, guard, func(tx pgx.Tx) error {
//		_, err := tx.Exec(guard.Context(), "UPDATE orders SET paid = true WHERE id = 42")
//		return err
//	})
package hfpgx

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"holdfast/sdks/go/fence"
)

// Execer is a pgx.Tx, a *pgx.Conn or a *pgxpool.Pool.
type Execer interface {
	Exec(ctx context.Context, query string, args ...any) (pgconn.CommandTag, error)
}

// Beginner is a *pgxpool.Pool, a *pgx.Conn, or a pgx.Tx for a transaction within a transaction.
type Beginner interface {
	Begin(ctx context.Context) (pgx.Tx, error)
}

// Check fails with a *[fence.RefusedError] if the token is out of date, and with ErrLost if the lock is lost. Until the
// transaction ends, no other token of this resource passes. After a refusal the transaction can only be rolled back.
func Check(ctx context.Context, tx pgx.Tx, guard fence.Token) error {
	token, err := guard.Fence()
	if err != nil {
		return err
	}
	return CheckToken(ctx, tx, guard.Name(), token, fence.Linearizable)
}

// CheckToken is as [Check], for a token that came from elsewhere. The resource is the name of the lock. It must come from
// the program, not from the sender of the token.
func CheckToken(ctx context.Context, tx pgx.Tx, resource, token string, accepts fence.Accepts) error {
	takesBestEffort := accepts == fence.BestEffortTokens
	_, err := tx.Exec(ctx, "SELECT holdfast.check_fence($1, $2, $3)", resource, token, takesBestEffort)
	return fence.FromPostgres(err)
}

// Tx runs the body in a transaction that begins with [Check], and commits if the body succeeds.
func Tx(ctx context.Context, db Beginner, guard fence.Token, body func(pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		if err := Check(ctx, tx, guard); err != nil {
			return err
		}
		return body(tx)
	})
}

// Migrate creates what Check needs. It can be run again.
func Migrate(ctx context.Context, db Execer) error {
	_, err := db.Exec(ctx, fence.PostgresMigration)
	return err
}
