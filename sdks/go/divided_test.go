package holdfast_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	holdfast "holdfast/sdks/go"
	"holdfast/sdks/go/holdfasttest"
	pb "holdfast/sdks/go/holdfastv1"
)

const groupCount = 4

// namesInEachGroup returns names of locks, one of each group. A node says which group a lock is in, and not the library.
func namesInEachGroup(t *testing.T, server *holdfasttest.Server, prefix string) []string {
	t.Helper()
	node := must[*grpc.ClientConn](t)(
		grpc.NewClient("passthrough:///"+server.Endpoint, grpc.WithTransportCredentials(insecure.NewCredentials())),
	)
	defer node.Close()
	names := make([]string, groupCount)
	for number, missing := 0, groupCount; missing > 0; number++ {
		name := fmt.Sprintf("%s%d", prefix, number)
		status := must[*pb.StatusResponse](t)(pb.NewLockServiceClient(node).Status(background, &pb.StatusRequest{Name: name}))
		if place := status.GetGroup() - 1; names[place] == "" {
			names[place] = name
			missing--
		}
	}
	return names
}

// sessionOf returns the public id under which the locks are held.
func sessionOf(t *testing.T, client *holdfast.Client, names []string) string {
	t.Helper()
	session := ""
	for _, name := range names {
		status := must[*holdfast.Status](t)(client.Status(background, name))
		if len(status.Holders) != 1 || (session != "" && status.Holders[0].Session != session) {
			t.Fatalf("%s is held by %v, and the other locks by %s", name, status.Holders, session)
		}
		session = status.Holders[0].Session
	}
	return session
}

func lockEach(t *testing.T, client *holdfast.Client, names []string) []*holdfast.Guard {
	t.Helper()
	var guards []*holdfast.Guard
	for _, name := range names {
		guards = append(guards, must[*holdfast.Guard](t)(client.Lock(background, name, holdfast.Wait(patience))))
	}
	return guards
}

func TestAClientHoldsLocksInAllGroupsAndKeepsThemWhenLeadersMove(t *testing.T) {
	t.Parallel()
	server := holdfasttest.StartDivided(t, 3, groupCount)
	client, rival := server.Client(t), server.Client(t)
	names := namesInEachGroup(t, server, "held-")
	// A read opens no session, and says that the lock is free.
	for _, name := range names {
		if status := must[*holdfast.Status](t)(rival.Status(background, name)); status.HolderCount != 0 {
			t.Fatal(status)
		}
	}
	guards := lockEach(t, client, names)
	session := sessionOf(t, client, names)
	if seen := sessionOf(t, rival, names); seen != session {
		t.Fatal(seen, session)
	}
	var tokens []uint64
	for _, guard := range guards {
		tokens = append(tokens, must[uint64](t)(guard.Token()))
	}
	_, err := client.LockAll(background, names)
	fails(t, err, holdfast.ErrSeveralGroups)
	both := must[*holdfast.GuardAll](t)(client.LockAll(background, []string{"{" + names[2] + "}/a", "{" + names[2] + "}/b"}))
	if err := both.Release(background); err != nil {
		t.Fatal(err)
	}

	isQueued := make(chan struct{})
	var once sync.Once
	next := later(func() (*holdfast.Guard, error) {
		queued := holdfast.OnQueued(func(uint64) { once.Do(func() { close(isQueued) }) })
		return rival.Lock(background, names[2], holdfast.Wait(time.Minute), queued)
	})
	<-isQueued
	for range 2 {
		server.Command(t, "cluster", "transfer", "--group", "3")
		for place, guard := range guards {
			holds(t, guard, tokens[place])
		}
		// What is asked of the new leader is answered.
		other := must[*holdfast.Guard](t)(client.Lock(background, "{"+names[2]+"}/other", holdfast.Wait(patience)))
		if err := other.Release(background); err != nil {
			t.Fatal(err)
		}
	}
	if err := guards[2].Release(background); err != nil {
		t.Fatal(err)
	}
	if token := must[uint64](t)(next.get(t).Token()); token <= tokens[2] {
		t.Fatalf("the token %d after %d", token, tokens[2])
	}

	// The session is killed in all groups. The next one has another id, and one in all groups.
	server.Command(t, "kill-session", session, "--reason", "a test")
	for place, guard := range guards {
		if place != 2 {
			fails(t, guard.WaitLost(background), holdfast.ErrLost)
		}
	}
	if err := must[*holdfast.Guard](t)(next.wait(t)).Release(background); err != nil {
		t.Fatal(err)
	}
	lockEach(t, client, names)
	if again := sessionOf(t, client, names); again == session {
		t.Fatal("the session that was killed is there again")
	}
	if err := client.Close(background); err != nil {
		t.Fatal(err)
	}
	// All are free.
	for _, name := range names {
		must[*holdfast.Guard](t)(rival.Lock(background, name))
	}
}

func TestLocksInAllGroupsExcludeWhileLeadersMove(t *testing.T) {
	t.Parallel()
	server := holdfasttest.StartDivided(t, 3, groupCount)
	clients := []*holdfast.Client{server.Client(t), must[*holdfast.Client](t)(holdfast.New(server.Endpoint))}
	t.Cleanup(func() { _ = clients[1].Close(background) })
	names := namesInEachGroup(t, server, "contended-")
	inside, turns := make([]atomic.Int32, groupCount), make([]atomic.Int32, groupCount)
	ctx, stop := context.WithCancel(background)
	var workers sync.WaitGroup
	for worker := range 4 * groupCount {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for turn := worker; ctx.Err() == nil; turn++ {
				place := turn % groupCount
				err := clients[worker%2].Do(background, names[place], func(context.Context, *holdfast.Guard) error {
					if inside[place].Add(1) != 1 {
						t.Errorf("two are under the lock %s", names[place])
					}
					inside[place].Add(-1)
					turns[place].Add(1)
					return nil
				}, holdfast.Wait(time.Minute))
				if err != nil {
					t.Error(err)
				}
			}
		}()
	}
	for group := 1; group <= groupCount; group++ {
		server.Command(t, "cluster", "transfer", "--group", strconv.Itoa(group))
		before := turns[group-1].Load()
		for giveUp := time.Now().Add(patience); turns[group-1].Load() < before+10; time.Sleep(time.Millisecond) {
			if time.Now().After(giveUp) {
				t.Fatalf("group %d does not go on", group)
			}
		}
	}
	stop()
	workers.Wait()
}

func TestAWatchOfSeveralGroupsTellsTheEventsOfEachLockInOrder(t *testing.T) {
	t.Parallel()
	server := holdfasttest.StartDivided(t, 1, groupCount)
	client := server.Client(t)
	names := namesInEachGroup(t, server, "watched-")
	guards := lockEach(t, client, names)
	ctx, cancel := context.WithTimeout(background, patience)
	defer cancel()
	seen := map[string][]string{}
	complete := 0
	for update, err := range client.Watch(ctx, "watched-") {
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case update.Lock != nil:
			seen[update.Lock.Name] = append(seen[update.Lock.Name], "held")
		case update.IsSnapshotComplete:
			for _, guard := range guards {
				if err := guard.Release(background); err != nil {
					t.Fatal(err)
				}
			}
			lockEach(t, client, names)
		case update.Event != nil:
			name := update.Event.Names[0]
			if seen[name] = append(seen[name], update.Event.Kind); len(seen[name]) == 3 {
				complete++
			}
		}
		if complete == groupCount {
			break
		}
	}
	for _, name := range names {
		if fmt.Sprint(seen[name]) != "[held released granted]" {
			t.Fatal(name, seen[name])
		}
	}
}
