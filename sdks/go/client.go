package holdfast

import (
	"context"
	"fmt"

	"holdfast/sdks/go/internal/core"
	"holdfast/sdks/go/internal/engine"
)

// Version is that of this library, and of the clusters that it was made with.
const Version = "0.1.0"

// Client has a session with a cluster, and any number of locks in it. It keeps the session alive.
//
// In a cluster with several groups it has a session in each group whose locks it uses. Each has a connection, a lease and a
// leader of its own. A group that has no leader delays its own locks only.
type Client struct {
	sessions    *engine.Sessions
	traceparent func(context.Context) string
}

// New returns a client for a cluster: `host:port`, several separated by commas. The first request opens the session.
func New(endpoints string, options ...Option) (*Client, error) {
	config, err := newConfig(options)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalidOptions, err)
	}
	known, err := core.ParseEndpoints(endpoints, !config.isFixed)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalidEndpoints, err)
	}
	return &Client{
		sessions: engine.New(engine.Config{
			Endpoints:      known,
			Settings:       config.settings(),
			RequestTimeout: config.requestTimeout,
			Security:       config.security,
			Log:            config.log,
		}),
		traceparent: config.traceparent,
	}, nil
}

// Connect is as [New], and opens the session.
func Connect(ctx context.Context, endpoints string, options ...Option) (*Client, error) {
	client, err := New(endpoints, options...)
	if err != nil {
		return nil, err
	}
	outcome, isComplete := client.sessions.Root().Open(ctx)
	if _, err := resultOf(ctx, outcome, isComplete); err != nil {
		// There is no session, so this does not wait.
		_ = client.Close(context.WithoutCancel(ctx))
		return nil, err
	}
	return client, nil
}

// Close ends the session, in all groups: all its locks and places in queues are freed at once. It waits for up to 2 s. If it
// fails, the session ends by its TTL.
func (c *Client) Close(ctx context.Context) error {
	outcome, isComplete := c.sessions.Close(ctx)
	_, err := resultOf(ctx, outcome, isComplete)
	return err
}

// Circuit is the state of a client's circuit breaker.
type Circuit string

const (
	// CircuitClosed is the normal state.
	CircuitClosed = Circuit(core.CircuitClosed)
	// CircuitOpen means that no node has served the session for 3 s: calls fail at once with [ErrUnavailable].
	CircuitOpen = Circuit(core.CircuitOpen)
	// CircuitHalfOpen is as CircuitOpen, while the client tries a node.
	CircuitHalfOpen = Circuit(core.CircuitHalfOpen)
)

// Circuit says whether calls fail at once, because no node serves. In a cluster with several groups it is the worst state of
// all sessions: calls about the locks of one group fail at once, or of several groups.
func (c *Client) Circuit() Circuit { return Circuit(c.sessions.Circuit()) }
