package holdfast_test

import (
	"context"
	"net"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	pb "holdfast/sdks/go/holdfastv1"
)

// fakeNode shows a test what a client sends, and lets the test answer. Real nodes never disagree about the owner of a lock.
type fakeNode struct {
	pb.UnimplementedLockServiceServer
	address string
	server  *grpc.Server
	streams chan *servedStream

	mu sync.Mutex
	// status answers calls that read a lock.
	status *pb.StatusResponse
}

func newFakeNode(t *testing.T) *fakeNode {
	t.Helper()
	listener := must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	node := &fakeNode{
		address: listener.Addr().String(), server: grpc.NewServer(), streams: make(chan *servedStream, 64),
	}
	pb.RegisterLockServiceServer(node.server, node)
	go func() { _ = node.server.Serve(listener) }()
	t.Cleanup(node.server.Stop)
	return node
}

func (n *fakeNode) Session(server grpc.BidiStreamingServer[pb.ClientFrame, pb.ServerFrame]) error {
	stream := &servedStream{server: server, frames: make(chan *pb.ClientFrame, 64)}
	n.streams <- stream
	defer close(stream.frames)
	for {
		frame, err := server.Recv()
		if err != nil {
			return nil
		}
		stream.frames <- frame
	}
}

func (n *fakeNode) Status(_ context.Context, request *pb.StatusRequest) (*pb.StatusResponse, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.status.Name = request.GetName()
	return n.status, nil
}

// welcome answers the hello of the next stream.
func (n *fakeNode) welcome(t *testing.T, told *pb.OpenSessionResponse) (*servedStream, *pb.Operation) {
	t.Helper()
	select {
	case stream := <-n.streams:
		hello := stream.operation(t)
		told.TtlMs, told.LingerMs = 30_000, 30_000
		id := hello.GetOpen().GetRequestId()
		answer := &pb.Answer{RequestId: id, Result: &pb.Answer_Open{Open: told}}
		if resume := hello.GetResume(); resume != nil {
			answer = &pb.Answer{RequestId: resume.GetRequestId(), Result: &pb.Answer_Resume{Resume: told}}
		}
		stream.send(t, &pb.ServerFrame{Answers: []*pb.Answer{answer}})
		return stream, hello
	case <-time.After(patience):
		t.Fatal("the client does not connect")
		return nil, nil
	}
}

type servedStream struct {
	server grpc.BidiStreamingServer[pb.ClientFrame, pb.ServerFrame]
	frames chan *pb.ClientFrame
	// ahead are operations of a frame that the test has not asked for yet.
	ahead []*pb.Operation
}

func (s *servedStream) send(t *testing.T, frame *pb.ServerFrame) {
	t.Helper()
	if err := s.server.Send(frame); err != nil {
		t.Fatal(err)
	}
}

// frame returns the next frame. The stream must not have ended.
func (s *servedStream) frame(t *testing.T) *pb.ClientFrame {
	t.Helper()
	select {
	case frame, isThere := <-s.frames:
		if !isThere {
			t.Fatal("the stream ended")
		}
		return frame
	case <-time.After(patience):
		t.Fatal("the client sends nothing")
	}
	return nil
}

// operation returns the next operation.
func (s *servedStream) operation(t *testing.T) *pb.Operation {
	t.Helper()
	if len(s.ahead) == 0 {
		if s.ahead = slices.Clone(s.frame(t).GetOperations()); len(s.ahead) == 0 {
			t.Fatal("the client says farewell")
		}
	}
	first := s.ahead[0]
	s.ahead = s.ahead[1:]
	return first
}

func (s *servedStream) acquire(t *testing.T, name string) *pb.AcquireRequest {
	t.Helper()
	operation := s.operation(t)
	if operation.GetAcquire().GetName() != name {
		t.Fatalf("%v, and not an acquire of %s", operation, name)
	}
	return operation.GetAcquire()
}

func (s *servedStream) answer(t *testing.T, answer *pb.Answer) {
	t.Helper()
	s.send(t, &pb.ServerFrame{Answers: []*pb.Answer{answer}})
}

func (s *servedStream) grant(t *testing.T, request *pb.AcquireRequest, token uint64) {
	t.Helper()
	grant := &pb.Grant{
		Name: request.GetName(), Token: token, Fence: "hf1." + strconv.FormatUint(token, 10), Mode: pb.Mode_MODE_EXCLUSIVE,
		AcquireRequestId: request.GetRequestId(), Guarantee: pb.Guarantee_GUARANTEE_LINEARIZABLE,
	}
	response := &pb.AcquireResponse{Outcome: &pb.AcquireResponse_Granted{Granted: grant}}
	s.answer(t, &pb.Answer{RequestId: request.GetRequestId(), Result: &pb.Answer_Acquire{Acquire: response}})
}

func (s *servedStream) refuse(t *testing.T, id, mapEpoch uint64) {
	t.Helper()
	failure := &pb.Failure{Reason: pb.Reason_REASON_WRONG_GROUP, Message: "not here", MapEpoch: mapEpoch}
	s.answer(t, &pb.Answer{RequestId: id, Result: &pb.Answer_Failure{Failure: failure}})
}

// close answers a close, which must come next.
func (s *servedStream) close(t *testing.T) {
	t.Helper()
	operation := s.operation(t)
	if operation.GetClose() == nil {
		t.Fatalf("%v, and not a close", operation)
	}
	id := operation.GetClose().GetRequestId()
	s.answer(t, &pb.Answer{RequestId: id, Result: &pb.Answer_Close{Close: &pb.CloseSessionResponse{}}})
}
