package holdfast

import (
	"context"
	"errors"
)

// Election is a lock whose holder leads.
type Election struct {
	client *Client
	name   string
}

// Election returns the election of this name.
func (c *Client) Election(name string) *Election { return &Election{client: c, name: name} }

// Leadership is the lock of a leader. Its token is the epoch.
type Leadership struct{ *Guard }

// Epoch returns the fencing token of this leadership, as [Guard.Token] does.
func (l *Leadership) Epoch() (uint64, error) { return l.Token() }

// Resign steps down: the next candidate leads.
func (l *Leadership) Resign(ctx context.Context) error { return l.Release(ctx) }

// Lead stands for election, and returns when this client leads. The value is what observers see. Without [Wait] it waits
// until the context ends.
func (e *Election) Lead(ctx context.Context, value []byte, options ...LockOption) (*Leadership, error) {
	options = append([]LockOption{Wait(waitMax), Metadata(value)}, options...)
	for {
		guard, err := e.client.Lock(ctx, e.name, options...)
		if err == nil {
			return &Leadership{guard}, nil
		}
		terms, _ := e.client.termsOf(ctx, options)
		if !errors.Is(err, ErrTimedOut) || terms.wait < waitMax {
			return nil, err
		}
	}
}

// Leader returns the value and the epoch of the present leader; false if there is none.
func (e *Election) Leader(ctx context.Context) (Leader, bool, error) {
	status, err := e.client.Status(ctx, e.name)
	if err != nil || len(status.Holders) == 0 {
		return Leader{}, false, err
	}
	holder := status.Holders[0]
	return Leader{Value: holder.Metadata, Epoch: holder.Token, Session: holder.Session}, true, nil
}

// Leader is a client that leads.
type Leader struct {
	Value []byte
	Epoch uint64
	// Session is the public id of the leader's session.
	Session string
}
