// Package holdfast is the client of Holdfast, a distributed lock service with fencing tokens.
//
//	client, err := holdfast.Connect(ctx, "127.0.0.1:7420")
//	...
//	defer client.Close(context.WithoutCancel(ctx))
//	guard, err := client.Lock(ctx, "order:42", holdfast.Wait(10*time.Second))
//	if errors.Is(err, holdfast.ErrTimedOut) { ... }
//	defer guard.Release(context.WithoutCancel(ctx))
//	fence, err := guard.Fence() // send it with each write: the resource refuses it if a later holder was there
//
// # What a guard promises
//
// [Guard.Token] and [Guard.Fence] read the clock each time. They fail with [ErrLost] once the lock may have ended, also
// if no message has said so: after a pause of the process, a sleep of the machine, or a cut network. [Guard.Context] is
// cancelled when the lock is lost, with a *[LostError] as its cause.
//
// A request that was sent twice has one effect. If the context of a caller ends, the client cancels its request, or
// releases its lock, in the background. If no node can be reached, the lock ends with the session's TTL.
//
// No lock can keep a paused process from writing late. Only the resource can: check the token there. The packages fence
// and hfsql, and the modules hfpgx and hfredis, do that.
//
// # Clusters with several groups
//
// A client has a session in each Raft group whose locks it uses, all under one id. A group without a leader delays its own
// locks only. Locks that [Client.LockAll] is to take together need one tag in their names, such as "{order-42}/header".
//
// # Goroutines
//
// All methods of a client and of a guard can be called from any goroutine. Each call of Lock is an actor of its own, so
// two goroutines of one process exclude each other. A Lock call whose context comes from [Guard.Context] belongs to the
// guard's actor: the cluster finds deadlocks between such locks, and [Reentrant] ones can be entered again.
package holdfast
