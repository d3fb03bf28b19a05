package holdfast_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	holdfast "holdfast/sdks/go"
	pb "holdfast/sdks/go/holdfastv1"
)

// fakeCluster has the leaders of the root group and of group 2. The slots: orders 138, wallet 2814.
type fakeCluster struct{ root, second *fakeNode }

func newFakeCluster(t *testing.T) *fakeCluster {
	return &fakeCluster{root: newFakeNode(t), second: newFakeNode(t)}
}

// told gives group 2 the slots from here on.
func (c *fakeCluster) told(epoch uint64, from uint32) *pb.OpenSessionResponse {
	route := func(group uint32, node *fakeNode, first, count uint32) *pb.GroupRoute {
		slots := []*pb.SlotRun{{First: first, Count: count}}
		return &pb.GroupRoute{Group: group, Leader: node.address, Slots: slots}
	}
	groups := []*pb.GroupRoute{route(1, c.root, 0, from), route(2, c.second, from, 4096-from)}
	return &pb.OpenSessionResponse{
		Map: &pb.GroupMap{Epoch: epoch, Groups: groups}, Endpoints: []string{c.root.address, c.second.address},
	}
}

// connect returns a client, its stream in the root group, and the id of its session there.
func (c *fakeCluster) connect(t *testing.T, from uint32, options ...holdfast.Option) (*holdfast.Client, *servedStream, string) {
	t.Helper()
	connected := later(func() (*holdfast.Client, error) { return holdfast.Connect(background, c.root.address, options...) })
	root, hello := c.root.welcome(t, c.told(1, from))
	if hello.GetOpen().GetGroup() != 0 {
		t.Fatal(hello)
	}
	client := connected.get(t)
	t.Cleanup(func() { abandon(client) })
	return client, root, hello.GetOpen().GetSessionId()
}

// abandon closes a client without waiting for the answers.
func abandon(client *holdfast.Client) {
	over, cancel := context.WithCancel(background)
	cancel()
	_ = client.Close(over)
}

// holding has the guards of orders and wallet, with the tokens 7 and 8.
type holding struct {
	orders, wallet *holdfast.Guard
	second         *servedStream
	// id is that of the session in group 2.
	id string
}

func (c *fakeCluster) holdBoth(t *testing.T, client *holdfast.Client, root *servedStream) holding {
	t.Helper()
	orders := lock(client, "orders")
	root.grant(t, root.acquire(t, "orders"), 7)
	wallet := lock(client, "wallet")
	second, hello := c.second.welcome(t, c.told(1, 2000))
	if hello.GetOpen().GetGroup() != 2 {
		t.Fatal(hello)
	}
	second.grant(t, second.acquire(t, "wallet"), 8)
	return holding{orders.get(t), wallet.get(t), second, hello.GetOpen().GetSessionId()}
}

// call is one that a goroutine makes.
type call[T any] struct {
	done  chan struct{}
	value T
	err   error
}

func later[T any](ask func() (T, error)) *call[T] {
	it := &call[T]{done: make(chan struct{})}
	go func() {
		defer close(it.done)
		it.value, it.err = ask()
	}()
	return it
}

func (c *call[T]) wait(t *testing.T) (T, error) {
	t.Helper()
	select {
	case <-c.done:
	case <-time.After(patience):
		t.Fatal("the call goes on")
	}
	return c.value, c.err
}

func (c *call[T]) get(t *testing.T) T {
	t.Helper()
	value, err := c.wait(t)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

func lock(client *holdfast.Client, name string) *call[*holdfast.Guard] {
	return later(func() (*holdfast.Guard, error) { return client.Lock(background, name, holdfast.Wait(time.Minute)) })
}

func holds(t *testing.T, guard *holdfast.Guard, token uint64) {
	t.Helper()
	if told := must[uint64](t)(guard.Token()); told != token {
		t.Fatalf("the token %d, and not %d", told, token)
	}
}

func TestAClientHasASessionWithOneIDInEachGroupWhoseLocksItUses(t *testing.T) {
	t.Parallel()
	cluster := newFakeCluster(t)
	client, root, id := cluster.connect(t, 2000)
	held := cluster.holdBoth(t, client, root)
	if held.id != id {
		t.Fatal("the sessions have different ids")
	}
	holds(t, held.orders, 7)
	holds(t, held.wallet, 8)
	// A guard is released in the session that has the hold.
	released := later(func() (struct{}, error) { return struct{}{}, held.wallet.Release(background) })
	release := held.second.operation(t).GetRelease()
	if release.GetToken() != 8 {
		t.Fatal(release)
	}
	outcome := &pb.ReleaseResponse{Outcome: pb.ReleaseOutcome_RELEASE_OUTCOME_RELEASED}
	held.second.answer(t, &pb.Answer{RequestId: release.GetRequestId(), Result: &pb.Answer_Release{Release: outcome}})
	released.get(t)
	// To close the client is to close all of them.
	closed := later(func() (struct{}, error) { return struct{}{}, client.Close(background) })
	root.close(t)
	select {
	case <-closed.done:
		t.Fatal("the client is closed though one session is not")
	default:
	}
	held.second.close(t)
	closed.get(t)
	fails(t, held.orders.WaitLost(background), holdfast.ErrLost)
	_, err := client.Lock(background, "wallet")
	fails(t, err, holdfast.ErrClosed)
}

func TestAClosedClientOpensNoSessionInAnotherGroup(t *testing.T) {
	t.Parallel()
	cluster := newFakeCluster(t)
	client, root, _ := cluster.connect(t, 2000)
	closed := later(func() (struct{}, error) { return struct{}{}, client.Close(background) })
	root.close(t)
	closed.get(t)
	_, err := client.Lock(background, "wallet")
	fails(t, err, holdfast.ErrClosed)
	if len(cluster.second.streams) != 0 {
		t.Fatal("there is another session")
	}
}

func TestTheEndOfASessionInOneGroupLeavesTheLocksOfOthersAlone(t *testing.T) {
	t.Parallel()
	cluster := newFakeCluster(t)
	client, root, id := cluster.connect(t, 2000)
	held := cluster.holdBoth(t, client, root)
	orders, wallet := held.orders.Context(), held.wallet.Context()
	ended := &pb.SessionEnded{Reason: pb.EndReason_END_REASON_KILLED}
	notice := &pb.Notice{Kind: &pb.Notice_SessionEnded{SessionEnded: ended}}
	held.second.send(t, &pb.ServerFrame{Notices: []*pb.Notice{notice}})
	select {
	case <-wallet.Done():
	case <-time.After(patience):
		t.Fatal("the context goes on")
	}
	var lost *holdfast.LostError
	if !errors.As(context.Cause(wallet), &lost) || lost.Reason != "session_killed" {
		t.Fatal(context.Cause(wallet))
	}
	holds(t, held.orders, 7)
	// The next lock of that group is asked for in a new session there.
	again := lock(client, "wallet")
	second, hello := cluster.anyWelcome(t)
	if open := hello.GetOpen(); open.GetGroup() != 2 || open.GetSessionId() == id || open.GetSessionId() == "" {
		t.Fatal(hello)
	}
	second.grant(t, second.acquire(t, "wallet"), 9)
	holds(t, again.get(t), 9)
	holds(t, held.orders, 7)
	if orders.Err() != nil {
		t.Fatal(context.Cause(orders))
	}
}

// anyWelcome answers the next hello, whichever node it comes to.
func (c *fakeCluster) anyWelcome(t *testing.T) (*servedStream, *pb.Operation) {
	t.Helper()
	select {
	case stream := <-c.root.streams:
		c.root.streams <- stream
		return c.root.welcome(t, c.told(1, 2000))
	case stream := <-c.second.streams:
		c.second.streams <- stream
		return c.second.welcome(t, c.told(1, 2000))
	case <-time.After(patience):
		t.Fatal("the client does not connect")
		return nil, nil
	}
}

func TestARefusalByANewerMapIsFollowedToTheGroupThatOwnsTheLock(t *testing.T) {
	t.Parallel()
	cluster := newFakeCluster(t)
	// By this map wallet is in the root group.
	client, root, _ := cluster.connect(t, 3000)
	acquiring := lock(client, "wallet")
	first := root.acquire(t, "wallet")
	root.refuse(t, first.GetRequestId(), 2)
	// The newer map comes with a fresh welcome of the same node. The old stream ends with a farewell.
	fresh, hello := cluster.root.welcome(t, cluster.told(2, 2000))
	if hello.GetResume() == nil {
		t.Fatal(hello)
	}
	if farewell := root.frame(t); len(farewell.GetOperations()) != 0 {
		t.Fatal(farewell)
	}
	second, hello := cluster.second.welcome(t, cluster.told(2, 2000))
	again := second.acquire(t, "wallet")
	if hello.GetOpen().GetGroup() != 2 || again.GetWaitMs() <= 50_000 || again.GetWaitMs() >= first.GetWaitMs() {
		t.Fatal(hello, again.GetWaitMs())
	}
	second.grant(t, again, 8)
	holds(t, acquiring.get(t), 8)
	// What was refused is not asked for again in the root group.
	orders := lock(client, "orders")
	fresh.grant(t, fresh.acquire(t, "orders"), 7)
	holds(t, orders.get(t), 7)
}

func TestGroupsThatNeverAgreeRefuseTheRequestToItsCaller(t *testing.T) {
	t.Parallel()
	cluster := newFakeCluster(t)
	client, root, _ := cluster.connect(t, 2000)
	acquiring := lock(client, "orders")
	tries := 0
	for isOver := false; !isOver; {
		select {
		case frame := <-root.frames:
			for _, operation := range frame.GetOperations() {
				root.refuse(t, operation.GetAcquire().GetRequestId(), 1)
				tries++
			}
		case <-acquiring.done:
			isOver = true
		case <-time.After(patience):
			t.Fatal("the client sends nothing, and says nothing")
		}
	}
	var rejected *holdfast.RejectedError
	if !errors.As(acquiring.err, &rejected) || rejected.Reason != "wrong_group" || rejected.MayHaveHappened || !rejected.Retryable {
		t.Fatal(acquiring.err)
	}
	if tries != 9 {
		t.Fatalf("%d tries", tries)
	}
}

func TestAnAcquireAllInSeveralGroupsIsRefusedBeforeItIsSent(t *testing.T) {
	t.Parallel()
	cluster := newFakeCluster(t)
	client, root, _ := cluster.connect(t, 2000)
	_, err := client.LockAll(background, []string{"orders", "wallet"})
	fails(t, err, holdfast.ErrSeveralGroups)
	fails(t, err, holdfast.ErrRejected)
	var rejected *holdfast.RejectedError
	if !errors.As(err, &rejected) || rejected.MayHaveHappened || rejected.Retryable ||
		!strings.Contains(err.Error(), `put the same tag into their names, such as "{order}/orders"`) {
		t.Fatal(err)
	}
	// Nothing of it is on the stream.
	orders := lock(client, "orders")
	root.grant(t, root.acquire(t, "orders"), 7)
	holds(t, orders.get(t), 7)
}

func TestACallerThatGoesAwayWhileItWaitsForANewerMapIsToldSo(t *testing.T) {
	t.Parallel()
	cluster := newFakeCluster(t)
	client, root, _ := cluster.connect(t, 2000)
	ctx, cancel := context.WithCancel(background)
	acquiring := later(func() (*holdfast.Guard, error) { return client.Lock(ctx, "orders", holdfast.Wait(time.Minute)) })
	root.refuse(t, root.acquire(t, "orders").GetRequestId(), 9)
	cluster.root.welcome(t, cluster.told(1, 2000))
	cancel()
	_, err := acquiring.wait(t)
	fails(t, err, holdfast.ErrCancelled)
}

func TestAReadOfALockOpensNoSession(t *testing.T) {
	t.Parallel()
	cluster := newFakeCluster(t)
	client, root, _ := cluster.connect(t, 2000)
	// More than a stream tells.
	told := &pb.StatusResponse{HolderCount: 12, WaiterCount: 3}
	for range 12 {
		told.Holders = append(told.Holders, &pb.Holder{Token: 5, PublicSessionId: "abc"})
	}
	cluster.root.mu.Lock()
	cluster.root.status = told
	cluster.root.mu.Unlock()
	status := must[*holdfast.Status](t)(client.Status(background, "wallet"))
	if status.HolderCount != 12 || len(status.Holders) != 10 || status.Holders[0].Token != 5 || status.WaiterCount != 3 {
		t.Fatal(status)
	}
	// A session that there is serves the read.
	reading := later(func() (*holdfast.Status, error) { return client.Status(background, "orders") })
	operation := root.operation(t).GetStatus()
	if operation.GetName() != "orders" {
		t.Fatal(operation)
	}
	response := &pb.StatusResponse{Name: "orders", WaiterCount: 2}
	root.answer(t, &pb.Answer{RequestId: operation.GetRequestId(), Result: &pb.Answer_Status{Status: response}})
	if status := reading.get(t); status.WaiterCount != 2 {
		t.Fatal(status)
	}
	// The map that the client has is out of date, and the node finds the group.
	reading = later(func() (*holdfast.Status, error) { return client.Status(background, "orders") })
	root.refuse(t, root.operation(t).GetStatus().GetRequestId(), 1)
	if status := reading.get(t); status.HolderCount != 12 {
		t.Fatal(status)
	}
	if len(cluster.second.streams) != 0 || len(cluster.root.streams) != 0 {
		t.Fatal("a read has opened a session")
	}
	// Without a stream, a node that can be reached is called.
	cluster.second.mu.Lock()
	cluster.second.status = &pb.StatusResponse{HolderCount: 1}
	cluster.second.mu.Unlock()
	cluster.root.server.Stop()
	if status := must[*holdfast.Status](t)(client.Status(background, "wallet")); status.HolderCount != 1 {
		t.Fatal(status)
	}
	for len(cluster.second.streams) > 0 {
		// The session in the root group looks for a node.
		if hello := (<-cluster.second.streams).operation(t); hello.GetOpen() != nil {
			t.Fatal("a read has opened a session", hello)
		}
	}
}

func TestTheEfficiencyTierIsInTheRootGroupWhateverTheName(t *testing.T) {
	t.Parallel()
	cluster := newFakeCluster(t)
	client, root, _ := cluster.connect(t, 2000)
	acquiring := later(func() (*holdfast.Guard, error) { return client.Lock(background, "wallet", holdfast.Efficiency()) })
	root.grant(t, root.acquire(t, "wallet"), 3)
	holds(t, acquiring.get(t), 3)
	both := later(func() (*holdfast.GuardAll, error) {
		return client.LockAll(background, []string{"orders", "wallet"}, holdfast.Efficiency())
	})
	all := root.operation(t).GetAcquireAll()
	if len(all.GetMembers()) != 2 {
		t.Fatal(all)
	}
	response := &pb.AcquireResponse{Outcome: &pb.AcquireResponse_Busy{Busy: &pb.Busy{}}}
	root.answer(t, &pb.Answer{RequestId: all.GetRequestId(), Result: &pb.Answer_Acquire{Acquire: response}})
	_, err := both.wait(t)
	fails(t, err, holdfast.ErrBusy)
}

func TestAGroupThatIsNotServedFailsItsOwnCallsAtOnceAndNoOthers(t *testing.T) {
	t.Parallel()
	cluster := newFakeCluster(t)
	client, root, _ := cluster.connect(t, 2000)
	// No node serves group 2.
	stop := make(chan struct{})
	defer close(stop)
	for _, node := range []*fakeNode{cluster.root, cluster.second} {
		go func() {
			for {
				select {
				case stream := <-node.streams:
					operations := (<-stream.frames).GetOperations()
					if len(operations) == 0 {
						continue
					}
					hello := operations[0].GetOpen()
					failure := &pb.Failure{Reason: pb.Reason_REASON_NO_QUORUM, Retryable: true}
					answer := &pb.Answer{RequestId: hello.GetRequestId(), Result: &pb.Answer_Failure{Failure: failure}}
					_ = stream.server.Send(&pb.ServerFrame{Answers: []*pb.Answer{answer}})
				case <-stop:
					return
				}
			}
		}()
	}
	lock(client, "wallet")
	for giveUp := time.Now().Add(patience); client.Circuit() == holdfast.CircuitClosed; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(giveUp) {
			t.Fatal("the circuit stays closed")
		}
	}
	began := time.Now()
	_, err := client.Lock(background, "wallet", holdfast.Wait(time.Minute))
	fails(t, err, holdfast.ErrUnavailable)
	if time.Since(began) > time.Second {
		t.Fatal("the call did not fail at once")
	}
	orders := lock(client, "orders")
	root.grant(t, root.acquire(t, "orders"), 7)
	holds(t, orders.get(t), 7)
}

func TestAClusterThatTellsNoMapGetsOneSessionForAllLocks(t *testing.T) {
	t.Parallel()
	node := newFakeNode(t)
	connected := later(func() (*holdfast.Client, error) { return holdfast.Connect(background, node.address) })
	root, hello := node.welcome(t, &pb.OpenSessionResponse{})
	client := connected.get(t)
	if hello.GetOpen().GetGroup() != 0 {
		t.Fatal(hello)
	}
	for token, name := range []string{"orders", "wallet"} {
		acquiring := lock(client, name)
		root.grant(t, root.acquire(t, name), uint64(token))
		holds(t, acquiring.get(t), uint64(token))
	}
	all := later(func() (*holdfast.GuardAll, error) { return client.LockAll(background, []string{"orders", "wallet"}) })
	if members := root.operation(t).GetAcquireAll().GetMembers(); len(members) != 2 {
		t.Fatal(members)
	}
	closed := later(func() (struct{}, error) { return struct{}{}, client.Close(background) })
	root.close(t)
	closed.get(t)
	_, err := all.wait(t)
	fails(t, err, holdfast.ErrClosed)
	if len(node.streams) != 0 {
		t.Fatal("there is another session")
	}
}

func TestAClientThatKnowsNoMapOpensTheSessionInTheRootGroupBeforeItAsks(t *testing.T) {
	t.Parallel()
	cluster := newFakeCluster(t)
	client := must[*holdfast.Client](t)(holdfast.New(cluster.root.address))
	t.Cleanup(func() { abandon(client) })
	acquiring := later(func() (*holdfast.Guard, error) {
		return client.Lock(background, "wallet", holdfast.Wait(50*time.Millisecond))
	})
	var stream *servedStream
	select {
	case stream = <-cluster.root.streams:
	case <-time.After(patience):
		t.Fatal("the client does not connect")
	}
	// The first answer of the cluster takes longer than the caller wants to wait for the lock.
	select {
	case <-acquiring.done:
		t.Fatal(acquiring.err)
	case <-time.After(100 * time.Millisecond):
	}
	cluster.root.streams <- stream
	root, _ := cluster.root.welcome(t, cluster.told(1, 2000))
	second, _ := cluster.second.welcome(t, cluster.told(1, 2000))
	asked := second.acquire(t, "wallet")
	if asked.GetWaitMs() != 50 {
		t.Fatal(asked)
	}
	second.grant(t, asked, 8)
	holds(t, acquiring.get(t), 8)
	if len(root.frames) != 0 {
		t.Fatal("the root group was asked, too")
	}
}

func TestOneRequestTimeoutIsForAllTriesTogether(t *testing.T) {
	t.Parallel()
	cluster := newFakeCluster(t)
	client, root, _ := cluster.connect(t, 2000, holdfast.WithRequestTimeout(500*time.Millisecond))
	began := time.Now()
	acquiring := later(func() (*holdfast.Guard, error) { return client.Lock(background, "orders") })
	// No node knows the newer map, for which a request may wait for two seconds.
	root.refuse(t, root.acquire(t, "orders").GetRequestId(), 9)
	_, err := acquiring.wait(t)
	fails(t, err, holdfast.ErrRejected)
	if time.Since(began) > 1500*time.Millisecond {
		t.Fatal("the pause was longer than the call may take")
	}
}
