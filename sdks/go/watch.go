package holdfast

import (
	"context"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"

	pb "holdfast/sdks/go/holdfastv1"
	"holdfast/sdks/go/internal/core"
	"holdfast/sdks/go/internal/engine"
)

// Update is one thing that a watch tells. One of its fields is set.
type Update struct {
	// Lock is a lock of the snapshot with which a watch begins.
	Lock *LockSummary
	// IsSnapshotComplete says that all locks have been told. Events follow.
	IsSnapshotComplete bool
	Event              *Event
	// IsRestarted says that the watch could not go on without a gap. What was told before may be out of date; a snapshot
	// follows.
	IsRestarted bool
}

// LockSummary is a lock as it was when the watch began.
type LockSummary struct {
	Name                     string
	Mode                     Mode
	HolderCount, WaiterCount uint64
	// Token, Session and Metadata are those of the first holder.
	Token    uint64
	Session  string
	Metadata []byte
}

// Event is something that happened to locks or sessions.
type Event struct {
	// Kind is one word, such as "granted", "queued", "released" or "expired".
	Kind string
	// Names are those of the locks: nearly always one.
	Names []string
	// Session is the public id of a session.
	Session  string
	Actor    uint64
	Token    uint64
	Metadata []byte
	// By and Detail say who did it and why, if an operator did.
	By, Detail string
	// Reason is why a hold ended.
	Reason string
	// HeldFor is for how long a hold that ended was held.
	HeldFor time.Duration
	// At is when the node that tells it applied it. For display only.
	At time.Time
}

// WatchOption says what a watch tells.
type WatchOption func(*watch)

// WithoutSnapshot tells only what happens from now on.
func WithoutSnapshot() WatchOption { return func(w *watch) { w.isWithoutSnapshot = true } }

// Watch tells what is held under a prefix, and then what happens: each event once and in order. In a cluster with several
// groups, the events of one group come in order, hence those of each lock; between the groups there is no order. An empty prefix is
// everything, sessions included. A broken connection is not seen: the watch goes on at another node.
//
// An error is told in the place of an update. After an [ErrUnavailable] the watch goes on if the loop does; other errors
// end it. It ends with an [ErrCancelled] when its context does, and with an [ErrClosed] when the client is closed. It is
// for eyes and dashboards, not for control flow.
func (c *Client) Watch(ctx context.Context, prefix string, options ...WatchOption) iter.Seq2[Update, error] {
	return func(yield func(Update, error) bool) {
		w := &watch{prefix: prefix, yield: yield}
		for _, option := range options {
			option(w)
		}
		open := func(ctx context.Context, conn grpc.ClientConnInterface) (grpc.ServerStreamingClient[pb.WatchFrame], error) {
			return pb.NewWatchServiceClient(conn).Watch(ctx, w.request())
		}
		engine.Resume(ctx, c.sessions.Root(), open, w.take, func(end engine.StreamEnd) bool {
			if isGap(end) || (end.GetRetryable() && ctx.Err() == nil && c.sessions.Root().Base().Err() == nil && w.isCutOff()) {
				w.positions, w.hasSnapshotBegun, w.isWithoutSnapshot = nil, false, false
				return yield(Update{IsRestarted: true}, nil)
			}
			err, isFatal := c.streamError(ctx, end)
			return err == nil || (yield(Update{}, err) && !isFatal)
		})
	}
}

type watch struct {
	prefix            string
	isWithoutSnapshot bool
	// positions is after what to go on, by group; empty before the snapshot is complete.
	positions        map[uint32]*pb.EventPosition
	hasSnapshotBegun bool
	yield            func(Update, error) bool
}

func (w *watch) request() *pb.WatchRequest {
	request := &pb.WatchRequest{Prefix: w.prefix, WithoutSnapshot: w.isWithoutSnapshot}
	for _, group := range slices.Sorted(maps.Keys(w.positions)) {
		request.AfterGroups = append(request.AfterGroups, w.positions[group])
	}
	// Older nodes know one group.
	if len(request.AfterGroups) == 1 {
		request.After, request.AfterGroups = request.AfterGroups[0], nil
	}
	return request
}

func (w *watch) note(position *pb.EventPosition) {
	if position == nil {
		return
	}
	if w.positions == nil {
		w.positions = map[uint32]*pb.EventPosition{}
	}
	group := position.GetGroup()
	w.positions[group] = later(w.positions[group], position)
}

// isCutOff says that a part of the snapshot was told. That cannot be gone on with.
func (w *watch) isCutOff() bool { return len(w.positions) == 0 && w.hasSnapshotBegun }

func (w *watch) take(frame *pb.WatchFrame) bool {
	w.note(frame.GetPosition())
	for _, it := range frame.GetLocks() {
		w.hasSnapshotBegun = true
		lock := &LockSummary{
			Name: it.GetName(), Mode: modeOf(it.GetMode()), HolderCount: it.GetHolderCount(),
			WaiterCount: it.GetWaiterCount(), Token: it.GetToken(), Session: it.GetPublicSessionId(),
			Metadata: it.GetMetadata(),
		}
		if !w.yield(Update{Lock: lock}, nil) {
			return false
		}
	}
	if frame.GetSnapshotComplete() {
		w.hasSnapshotBegun = true
		if !w.yield(Update{IsSnapshotComplete: true}, nil) {
			return false
		}
	}
	for _, it := range frame.GetEvents() {
		if !w.yield(Update{Event: eventOf(it)}, nil) {
			return false
		}
	}
	return true
}

func eventOf(it *pb.WatchEvent) *Event {
	event := &Event{
		Kind:  strings.ToLower(strings.TrimPrefix(it.GetKind().String(), "EVENT_KIND_")),
		Names: it.GetNames(), Session: it.GetPublicSessionId(), Actor: it.GetActor(), Token: it.GetToken(),
		Metadata: it.GetMetadata(), By: it.GetBy(), Detail: it.GetDetail(),
		HeldFor: time.Duration(it.GetHeldForMs()) * time.Millisecond,
		At:      time.UnixMilli(int64(it.GetUnixMs())),
	}
	if it.GetReason() != pb.EndReason_END_REASON_UNSPECIFIED {
		event.Reason = strings.ToLower(strings.TrimPrefix(it.GetReason().String(), "END_REASON_"))
	}
	return event
}

// later returns after what to go on, if a frame has told another position or none.
func later(known, told *pb.EventPosition) *pb.EventPosition {
	if told == nil || (known != nil && core.IsPlanted(core.ForgetPosition)) {
		return known
	}
	return told
}

// isGap says that the events since the position are no longer kept.
func isGap(end engine.StreamEnd) bool {
	reason := end.GetReason()
	return reason == pb.Reason_REASON_COMPACTED || reason == pb.Reason_REASON_SLOW_READER
}

// streamError returns what the program is told of the end of a stream, and whether nothing follows; nil if the stream
// simply goes on elsewhere.
func (c *Client) streamError(ctx context.Context, end engine.StreamEnd) (err error, isFatal bool) {
	switch {
	case ctx.Err() != nil:
		return cancelled(ctx), true
	case c.sessions.Root().Base().Err() != nil:
		return ErrClosed, true
	case !end.GetRetryable():
		reason := core.ReasonName(end.GetReason())
		return &RejectedError{Reason: reason, Message: end.GetMessage(), Retryable: isWorthLater(reason)}, true
	case end.IsAway:
		return &UnavailableError{Message: end.GetMessage()}, false
	default:
		return nil, false
	}
}

// Observed is one thing that an observation of an election tells.
type Observed struct {
	// Leader leads from now on, or has another value; nil if no client leads.
	Leader *Leader
	// IsMissed says that leaders may have come and gone unseen. Who leads now is told next.
	IsMissed bool
}

// Observe tells who leads, and then who comes next: each leader, each value and each vacancy once and in order. Errors
// are told as by [Client.Watch].
func (e *Election) Observe(ctx context.Context) iter.Seq2[Observed, error] {
	return func(yield func(Observed, error) bool) {
		request := &pb.ObserveRequest{Name: e.name}
		open := func(
			ctx context.Context, conn grpc.ClientConnInterface,
		) (grpc.ServerStreamingClient[pb.ObserveResponse], error) {
			return pb.NewElectionServiceClient(conn).Observe(ctx, request)
		}
		take := func(told *pb.ObserveResponse) bool {
			request.After = later(request.After, told.GetPosition())
			switch change := told.GetChange().(type) {
			case *pb.ObserveResponse_Leader:
				request.AfterEpoch = change.Leader.GetEpoch()
				leader := &Leader{
					Value: change.Leader.GetValue(), Epoch: change.Leader.GetEpoch(),
					Session: change.Leader.GetPublicSessionId(),
				}
				return yield(Observed{Leader: leader}, nil)
			case *pb.ObserveResponse_Vacancy:
				request.AfterEpoch = 0
				return yield(Observed{}, nil)
			default:
				return true
			}
		}
		engine.Resume(ctx, e.client.sessions.Root(), open, take, func(end engine.StreamEnd) bool {
			if isGap(end) {
				request.After, request.AfterEpoch = nil, 0
				return yield(Observed{IsMissed: true}, nil)
			}
			err, isFatal := e.client.streamError(ctx, end)
			return err == nil || (yield(Observed{}, err) && !isFatal)
		})
	}
}
