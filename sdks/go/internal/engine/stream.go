package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	pb "holdfast/sdks/go/holdfastv1"
)

const (
	farewellTimeout = time.Second
	pingTimeout     = 2 * time.Second
)

// stream is the stream of a session to one node. A goroutine reads, another one writes.
type stream struct {
	node   *Node
	client grpc.BidiStreamingClient[pb.ClientFrame, pb.ServerFrame]
	cancel context.CancelFunc
	// out has at most one frame: the engine sends the next one when the last one is out.
	out chan *pb.ClientFrame
	// isFull belongs to the engine's lock.
	isFull bool
	// saysFarewell is set before out is closed.
	saysFarewell bool
	hangUpOnce   sync.Once
}

func openStream(ctx context.Context, address string, security *Security) (*stream, error) {
	node, err := Dial(ctx, address, security)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	giveUp := time.AfterFunc(connectTimeout, cancel)
	fail := func(err error) (*stream, error) {
		cancel()
		_ = node.Close()
		return nil, err
	}
	ctx, err = security.WithCredential(ctx)
	if err != nil {
		return fail(err)
	}
	client, err := pb.NewLockServiceClient(node).Session(ctx)
	if node.wasRefused.Load() {
		return fail(&deniedError{refusedWords})
	}
	if !giveUp.Stop() {
		return fail(errors.New("the program there is no Holdfast node, or does not answer"))
	}
	if err != nil {
		words := status.Convert(err).Message()
		return fail(fmt.Errorf("the program there is no Holdfast node, or has just ended: %s", words))
	}
	return &stream{node: node, client: client, cancel: cancel, out: make(chan *pb.ClientFrame, 1)}, nil
}

// write sends what comes through out. It calls back after each frame, and returns at the end of the stream.
func (s *stream) write(sent func()) {
	for frame := range s.out {
		if s.client.Send(frame) != nil {
			// Reading says why.
			return
		}
		sent()
	}
	if s.saysFarewell {
		// A frame without operations. To hang up earlier than the node could overtake it.
		_ = s.client.Send(&pb.ClientFrame{})
		_ = s.client.CloseSend()
	}
}

// read calls back for each frame, and returns why there are no more, and whether a node said so.
func (s *stream) read(received func(*pb.ServerFrame)) (failure *pb.Failure, isFromNode bool) {
	for {
		frame, err := s.client.Recv()
		if err != nil {
			failure, isFromNode = FailureOf(err, s.client.Trailer()), isOfNode(s.client.Trailer())
			if s.node.wasRefused.Load() {
				// That is TLS: the certificate may be replaced.
				failure = &pb.Failure{Reason: pb.Reason_REASON_UNAUTHENTICATED, Message: refusedWords}
				isFromNode = false
			}
			s.hangUp()
			return failure, isFromNode
		}
		received(frame)
	}
}

// leave ends the stream. With a farewell, the node knows that the session goes on elsewhere.
func (s *stream) leave(withFarewell bool) {
	s.saysFarewell = withFarewell
	close(s.out)
	if withFarewell {
		time.AfterFunc(farewellTimeout, s.hangUp)
	} else {
		s.hangUp()
	}
}

func (s *stream) hangUp() {
	s.hangUpOnce.Do(func() {
		s.cancel()
		_ = s.node.Close()
	})
}

// ping calls back if the node is there. gRPC for Go does not ping more often than every 10 s, so this is a call.
func (n *Node) ping(heard func()) {
	ctx, cancel := context.WithTimeout(context.Background(), pingTimeout)
	defer cancel()
	// Whatever the node answers, it is there.
	_, _ = grpc_health_v1.NewHealthClient(n).Check(ctx, &grpc_health_v1.HealthCheckRequest{})
	if ctx.Err() == nil {
		heard()
	}
}
