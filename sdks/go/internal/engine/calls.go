package engine

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	pb "holdfast/sdks/go/holdfastv1"
	"holdfast/sdks/go/internal/core"
)

// callTimeout is how long a node may take over a read before another one is asked.
const callTimeout = 3 * time.Second

// callStatus reads a lock by a call, which any node passes on to the group of the lock. The second value is false if the
// context ended first.
func (s *Sessions) callStatus(ctx context.Context, name string) (core.Outcome, bool) {
	limited, cancel := context.WithTimeout(ctx, s.config.RequestTimeout)
	defer cancel()
	defer context.AfterFunc(s.root.base, cancel)()
	pauses := newPauses()
	for try := 0; ; try++ {
		status, failure := s.statusAt(limited, try, name)
		switch {
		case failure == nil:
			return core.Outcome{Status: status}, true
		case !failure.GetRetryable() && limited.Err() == nil:
			return core.Outcome{Failure: core.RejectedBy(failure)}, true
		}
		select {
		case <-time.After(pauses.next()):
		case <-limited.Done():
		}
		switch {
		case ctx.Err() != nil:
			return core.Outcome{}, false
		case s.root.base.Err() != nil:
			return core.Outcome{Failure: &core.Failure{Kind: core.Closed}}, true
		case limited.Err() != nil:
			return core.Outcome{Failure: &core.Failure{Kind: core.Unavailable, Message: failure.GetMessage()}}, true
		}
	}
}

// statusAt asks the node of the root session first, on the connection that there is, and then the known nodes in turn.
func (s *Sessions) statusAt(ctx context.Context, try int, name string) (*pb.StatusResponse, *pb.Failure) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	node := s.root.connected()
	if node == nil || try > 0 {
		addresses := s.root.Addresses()
		dialled, err := Dial(ctx, addresses[try%len(addresses)], s.root.Security())
		if err != nil {
			return nil, notReached(err)
		}
		defer dialled.Close()
		node = dialled
	}
	ctx, err := s.root.Security().WithCredential(ctx)
	if err != nil {
		return nil, notReached(err)
	}
	var trailer metadata.MD
	status, err := pb.NewLockServiceClient(node).Status(ctx, &pb.StatusRequest{Name: name}, grpc.Trailer(&trailer))
	if err != nil {
		return nil, FailureOf(err, trailer)
	}
	return status, nil
}

func notReached(err error) *pb.Failure { return &pb.Failure{Message: err.Error(), Retryable: true} }
