package holdfast

import (
	"context"
	"sync/atomic"
)

type actorKey struct{}

var lastActor atomic.Uint64

// WithActor returns a context for one task. Lock calls with it belong together: the cluster finds deadlocks between the
// locks of different tasks, and a task can enter its [Reentrant] locks again. [Guard.Context] is such a context, too.
func WithActor(ctx context.Context) context.Context {
	return context.WithValue(ctx, actorKey{}, lastActor.Add(1))
}

// actorOf returns the actor of a context, or a new one.
func actorOf(ctx context.Context) uint64 {
	if actor, is := ctx.Value(actorKey{}).(uint64); is {
		return actor
	}
	return lastActor.Add(1)
}
