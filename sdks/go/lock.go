package holdfast

import (
	"context"
	"errors"

	"holdfast/sdks/go/internal/core"
	"holdfast/sdks/go/internal/engine"
)

// Lock takes a lock. Without [Wait] it tries once.
//
// ctx bounds this call. It is also the parent of [Guard.Context]: when ctx ends, so does the context of the work. To
// bound only the wait, use [Wait]: a deadline of ctx would also end [Guard.Context]. If ctx ends during the call, the
// client cancels the request, or releases the lock, in the background. If no node can be reached, the lock ends with
// the session's TTL.
func (c *Client) Lock(ctx context.Context, name string, options ...LockOption) (*Guard, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	terms, err := c.termsOf(ctx, options)
	if err != nil {
		return nil, err
	}
	held, err := c.acquire(ctx, &core.Acquire{Fields: terms.acquire(name)}, terms)
	if err != nil {
		return nil, err
	}
	return &Guard{held}, nil
}

// LockAll takes several locks, all at one moment or none. In a cluster with several groups they have to be in one group:
// put the same tag into their names, such as "{order-42}/header" and "{order-42}/lines". Otherwise it fails with
// [ErrSeveralGroups].
func (c *Client) LockAll(ctx context.Context, names []string, options ...LockOption) (*GuardAll, error) {
	for _, name := range names {
		if err := checkName(name); err != nil {
			return nil, err
		}
	}
	terms, err := c.termsOf(ctx, options)
	if err != nil {
		return nil, err
	}
	held, err := c.acquire(ctx, &core.AcquireAll{Fields: terms.acquireAll(names)}, terms)
	if err != nil {
		return nil, err
	}
	return &GuardAll{held}, nil
}

func (c *Client) acquire(ctx context.Context, request core.Request, terms *terms) (*held, error) {
	options := engine.Options{Wait: terms.wait, Renews: terms.renews(), OnQueued: terms.onQueued}
	outcome, session, isComplete := c.sessions.Acquire(ctx, request, options)
	if _, err := resultOf(ctx, outcome, isComplete); err != nil {
		return nil, err
	}
	held := &held{engine: session, holds: outcome.Holds, parent: ctx, actor: *terms.actor}
	// The grant may have been so long on its way that it is over by now.
	if err := held.Check(); err != nil {
		go func() { _ = held.Release(session.Base()) }()
		return nil, err
	}
	return held, nil
}

// Do runs the body under a lock, and gives the lock back. The body's context ends when the lock is lost. If it was
// lost, Do fails with [ErrLost], joined with the body's own error. Do waits for the release, also if ctx has ended, for
// up to the request timeout.
func (c *Client) Do(
	ctx context.Context, name string, body func(ctx context.Context, guard *Guard) error, options ...LockOption,
) (err error) {
	guard, err := c.Lock(ctx, name, options...)
	if err != nil {
		return err
	}
	defer func() {
		// A lock whose loss was noticed by the local clock is given back all the same.
		err = errors.Join(err, guard.Release(context.WithoutCancel(ctx)))
	}()
	return body(guard.Context(), guard)
}
