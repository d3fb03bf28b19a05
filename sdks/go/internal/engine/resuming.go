package engine

import (
	"context"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	pb "holdfast/sdks/go/holdfastv1"
	"holdfast/sdks/go/internal/clock"
	"holdfast/sdks/go/internal/core"
)

const (
	// watchSilence: a stream of events on which nothing came for so long is tested.
	watchSilence   = 4 * time.Second
	watchNodesAway = 3 * time.Second
)

// StreamEnd says how a stream ended.
type StreamEnd struct {
	*pb.Failure
	// IsAway says that no node has served for a while.
	IsAway bool
}

// Resume reads a stream of the cluster, and goes on at another node when it breaks. Each time it opens the stream by
// `open`. It calls `ended` with what a stream ended with, and stops if that or `received` says so. It also ends with the
// context, and with the engine.
func Resume[F any](
	ctx context.Context, e *Engine,
	open func(context.Context, grpc.ClientConnInterface) (grpc.ServerStreamingClient[F], error),
	received func(*F) bool,
	ended func(StreamEnd) bool,
) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.base, cancel)()
	r := resuming[F]{ctx: ctx, engine: e, open: open, pauses: newPauses(), servedAt: clock.Now()}
	for {
		end := r.readOne(received)
		if end == nil || !ended(*end) {
			return
		}
		select {
		case <-time.After(r.pauses.next()):
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			ended(StreamEnd{Failure: &pb.Failure{Message: "the context ended", Retryable: true}})
			return
		}
	}
}

type resuming[F any] struct {
	ctx    context.Context
	engine *Engine
	open   func(context.Context, grpc.ClientConnInterface) (grpc.ServerStreamingClient[F], error)
	pauses pauses
	// next is the place of the next node in the engine's list.
	next int
	// leader is tried first, once.
	leader   string
	denials  int
	servedAt core.Time
}

// readOne reads one stream to its end. It returns nil if `received` wants no more.
func (r *resuming[F]) readOne(received func(*F) bool) *StreamEnd {
	addresses := r.engine.Addresses()
	address := r.leader
	r.leader = ""
	if address == "" {
		address = addresses[r.next%len(addresses)]
		r.next++
	}
	node, err := Dial(r.ctx, address, r.engine.Security())
	if err != nil {
		return r.unreachable(err, len(addresses))
	}
	defer node.Close()
	ctx, cancel := context.WithCancel(r.ctx)
	defer cancel()
	ctx, err = r.engine.Security().WithCredential(ctx)
	if err != nil {
		return r.unreachable(err, len(addresses))
	}
	var heardAt atomic.Int64
	heard := func() { heardAt.Store(int64(clock.Now())) }
	heard()
	stopMinding := mindNode(node, &heardAt, cancel)
	defer stopMinding()
	stream, err := r.open(ctx, node)
	if err != nil {
		return r.unreachable(err, len(addresses))
	}
	for {
		frame, err := stream.Recv()
		if err != nil {
			failure := FailureOf(err, stream.Trailer())
			if node.wasRefused.Load() {
				return r.unreachable(&deniedError{refusedWords}, len(addresses))
			}
			r.leader = failure.GetLeader()
			return r.end(failure)
		}
		heard()
		r.servedAt, r.denials, r.pauses = clock.Now(), 0, newPauses()
		if !received(frame) {
			return nil
		}
	}
}

func (r *resuming[F]) unreachable(err error, nodes int) *StreamEnd {
	if contactOf(err) == core.Denied {
		if r.denials++; r.denials >= nodes {
			r.denials = 0
			return r.end(&pb.Failure{Reason: pb.Reason_REASON_UNAUTHENTICATED, Message: err.Error()})
		}
	}
	return r.end(&pb.Failure{Message: err.Error(), Retryable: true})
}

func (r *resuming[F]) end(failure *pb.Failure) *StreamEnd {
	now := clock.Now()
	isAway := now > r.servedAt.Add(watchNodesAway)
	if isAway {
		r.servedAt = now
	}
	return &StreamEnd{Failure: failure, IsAway: isAway}
}

// mindNode tests a node from which nothing comes, and calls back if the node is gone. It returns how to stop.
func mindNode(node *Node, heardAt *atomic.Int64, gone func()) func() {
	done := make(chan struct{})
	go func() {
		test := time.NewTicker(watchSilence)
		defer test.Stop()
		for {
			select {
			case <-done:
				return
			case <-test.C:
			}
			if clock.Now() < core.Time(heardAt.Load()).Add(watchSilence) {
				continue
			}
			isThere := false
			node.ping(func() { isThere = true })
			if !isThere {
				gone()
				return
			}
		}
	}()
	return func() { close(done) }
}
