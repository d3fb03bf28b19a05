package core

import (
	"bufio"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	pb "holdfast/sdks/go/holdfastv1"
)

func TestSlotsAreThoseThatTheNodesCompute(t *testing.T) {
	file, err := os.Open("../../../../crates/core/tests/vectors/slots.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	count := 0
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "#") {
			continue
		}
		number, name, _ := strings.Cut(lines.Text(), "\t")
		slot, err := strconv.ParseUint(number, 10, 32)
		if err != nil {
			t.Fatal(err)
		}
		expect(t, "the slot of "+name, SlotOf(name), uint32(slot))
		count++
	}
	if count < 20 {
		t.Fatalf("%d vectors", count)
	}
}

// route gives a group these runs of slots: first, count, first, count.
func route(group uint32, leader string, runs ...uint32) *pb.GroupRoute {
	told := &pb.GroupRoute{Group: group, Leader: leader}
	for ; len(runs) > 0; runs = runs[2:] {
		told.Slots = append(told.Slots, &pb.SlotRun{First: runs[0], Count: runs[1]})
	}
	return told
}

// divided gives group 2 the slots from here on. The slots: orders 138, a 816, wallet 2814.
func divided(epoch uint64, from uint32) *pb.GroupMap {
	return &pb.GroupMap{Epoch: epoch, Groups: []*pb.GroupRoute{route(1, "a:1", 0, from), route(2, "b:2", from, slotCount-from)}}
}

func TestAMapThatDoesNotGiveEachSlotToOneGroupIsNone(t *testing.T) {
	for what, routes := range map[string][]*pb.GroupRoute{
		"a slot of no group":              {route(1, "", 0, 4095)},
		"a slot of two groups":            {route(1, "", 0, 4096), route(2, "", 7, 1)},
		"a slot that one group has twice": {route(1, "", 0, 4096, 7, 1)},
		"one slot twice and one not":      {route(1, "", 0, 4095, 0, 1)},
		"groups out of order":             {route(2, "", 0, 4000), route(1, "", 4000, 96)},
		"a group twice":                   {route(1, "", 0, 4000), route(1, "", 4000, 96)},
		"no group 0":                      {route(0, "", 0, 4096)},
		"no group 65":                     {route(65, "", 0, 4096)},
		"an empty run":                    {route(1, "", 0, 4096, 5, 0)},
		"slots above the last":            {route(1, "", 0, 4097)},
		"a number that overflows":         {route(1, "", 1, math.MaxUint32), route(2, "", 0, 1)},
		"nothing":                         nil,
	} {
		if parseGroupMap(&pb.GroupMap{Epoch: 9, Groups: routes}) != nil {
			t.Errorf("%s is taken for a map", what)
		}
	}
	if parseGroupMap(nil) != nil {
		t.Error("a welcome without a map is taken for one")
	}
	told := parseGroupMap(&pb.GroupMap{Epoch: 9, Groups: []*pb.GroupRoute{route(1, "", 2000, 96, 0, 2000), route(64, "", 2096, 2000)}})
	if told == nil || told.owners[1999] != 1 || told.owners[2095] != 1 || told.owners[2096] != 64 {
		t.Fatal("a map with runs in another order is none")
	}
}

func TestTheMapWithTheHighestEpochCountsAndOfOneEpochTheLaterLeaders(t *testing.T) {
	routes := Routes{}
	expect(t, "the group without a map", routes.groupOfName("wallet"), RootGroup)
	expect(t, "is newer", routes.Learn(parseGroupMap(divided(3, 2000))), true)
	expect(t, "the group", routes.groupOfName("wallet"), 2)
	expect(t, "an older one is newer", routes.Learn(parseGroupMap(divided(2, 4000))), false)
	expect(t, "the group after an older map", routes.groupOfName("wallet"), 2)
	expect(t, "an older one with the same owners is newer", routes.Learn(parseGroupMap(divided(2, 2000))), false)
	expect(t, "the epoch after it", routes.Epoch(), 3)
	expect(t, "no map is newer", routes.Learn(nil), false)
	again := divided(3, 2000)
	again.Groups[1].Leader = "c:3"
	expect(t, "one of the same epoch is newer", routes.Learn(parseGroupMap(again)), false)
	expect(t, "the leader", routes.LeaderOf(2), "c:3")
	expect(t, "one of the same epoch with other owners is newer", routes.Learn(parseGroupMap(divided(3, 4000))), false)
	expect(t, "the group after a map that contradicts", routes.groupOfName("wallet"), 2)
	expect(t, "a higher one is newer", routes.Learn(parseGroupMap(divided(4, 4000))), true)
	expect(t, "the group", routes.groupOfName("wallet"), RootGroup)
	expect(t, "the epoch", routes.Epoch(), 4)
}

func all(tier pb.Tier, names ...string) *AcquireAll {
	fields := &pb.AcquireAllRequest{Tier: tier}
	for _, name := range names {
		fields.Members = append(fields.Members, &pb.Member{Name: name})
	}
	return &AcquireAll{Fields: fields}
}

func TestARequestGoesToTheGroupOfItsLocksAndTheEfficiencyTierToTheRootGroup(t *testing.T) {
	routes := Routes{}
	routes.Learn(parseGroupMap(divided(1, 2000)))
	efficiency := pb.Tier_TIER_EFFICIENCY
	for _, c := range []struct {
		request Request
		group   uint32
	}{
		{&Acquire{Fields: &pb.AcquireRequest{Name: "wallet"}}, 2},
		{&Acquire{Fields: &pb.AcquireRequest{Name: "{a}/wallet"}}, 1},
		{&Acquire{Fields: &pb.AcquireRequest{Name: "wallet", Tier: efficiency}}, 1},
		{&Status{Name: "wallet"}, 2},
		{all(0, "{wallet}/1", "{wallet}/2", "wallet"), 2},
		{all(0), 1},
		{all(efficiency, "a", "wallet"), 1},
	} {
		group, failure := routes.GroupOf(c.request)
		if group != c.group || failure != nil {
			t.Errorf("%v: group %d, and not %d: %v", c.request, group, c.group, failure)
		}
	}
	_, failure := routes.GroupOf(all(0, "a", "orders", "wallet"))
	if failure == nil || failure.Kind != Rejected || failure.Reason != "several_groups" || failure.MayHaveHappened ||
		!strings.Contains(failure.Message, `"{order}/a" and "{order}/wallet"`) {
		t.Fatalf("%+v", failure)
	}
	// In a cluster of one group, the nodes judge.
	if _, failure := (&Routes{}).GroupOf(all(0, "a", "wallet")); failure != nil {
		t.Fatal(failure)
	}
}

func TestARefusalIsFollowedToTheOwnerAndNeverWithoutEnd(t *testing.T) {
	wrong := &Failure{Kind: Rejected, Reason: "wrong_group", MapEpoch: 5}
	older, same := &Routes{}, &Routes{}
	older.Learn(parseGroupMap(divided(4, 2000)))
	same.Learn(parseGroupMap(divided(5, 2000)))
	newRedirects := func() *Redirects { return NewRedirects(func() float64 { return 1 }) }
	expect(t, "the map names another group", newRedirects().Next(wrong, 1, 2, older), Redirect{})
	wait := Redirect{Pause: mapPatience, MapEpoch: 5}
	expect(t, "the map is older and names this group", newRedirects().Next(wrong, 1, 1, older), wait)
	// The map is not older: with pauses that grow.
	redirects := newRedirects()
	for try, pause := range []int{20, 40, 80, 160, 320, 500, 500, 500} {
		told := redirects.Next(wrong, 1, 1, same)
		expect(t, "try "+strconv.Itoa(try), told, Redirect{Pause: time.Duration(pause) * time.Millisecond})
	}
	expect(t, "after the last try", redirects.Next(wrong, 1, 2, same).IsOver, true)
	expect(t, "without a map", newRedirects().Next(wrong, 1, 1, &Routes{}).IsOver, true)
	expect(t, "a client without a map fetches one", (&Routes{}).IsOlderThan(wrong), false)
	for what, failure := range map[string]*Failure{
		"another reason":       {Kind: Rejected, Reason: "frozen"},
		"it may have happened": {Kind: Rejected, Reason: "wrong_group", MayHaveHappened: true},
		"it is several groups": {Kind: Rejected, Reason: "several_groups"},
		"it was carried out":   nil,
		"the session was lost": {Kind: Lost, Reason: "wrong_group"},
	} {
		expect(t, what, newRedirects().Next(failure, 1, 2, older).IsOver, true)
	}
}

func TestAnotherTryHasTheRestOfTheWaitAndLeavesTheFirstAlone(t *testing.T) {
	first := &Acquire{Fields: &pb.AcquireRequest{Name: "a", WaitMs: 9000, Actor: 4}}
	second := WithWait(first, 2500*time.Millisecond).(*Acquire)
	expect(t, "the wait", second.Fields.GetWaitMs(), 2500)
	expect(t, "the first wait", first.Fields.GetWaitMs(), 9000)
	expect(t, "the actor", second.Fields.GetActor(), 4)
	expect(t, "the wait of several", WithWait(all(0, "a", "b"), time.Second).(*AcquireAll).Fields.GetWaitMs(), 1000)
}

func TestTheHellosOfASessionNameItsGroupAndThoseOfTheRootGroupNone(t *testing.T) {
	for _, group := range []uint32{0, 2} {
		p := newPlayerInGroup(t, "a:1,b:2", group).acquire("g", "wallet", 0)
		p.session.HandleConnected(p.now)
		open := p.only().GetOpen()
		expect(t, "the group of the open", open.GetGroup(), group)
		ms := uint64(sessionTTL.Milliseconds())
		told := &pb.OpenSessionResponse{TtlMs: ms, LingerMs: ms, Map: divided(1, 2000)}
		p.hear(&pb.Answer{RequestId: open.GetRequestId(), Result: &pb.Answer_Open{Open: told}})
		expect(t, "maps", len(p.maps), 1)
		p.breaks().dialsAgain()
		p.session.HandleConnected(p.now)
		expect(t, "the group of the resume", p.only().GetResume().GetGroup(), group)
	}
}

func TestAWelcomeWithAnIncompleteMapServesAllTheSame(t *testing.T) {
	p := newPlayer(t, "a:1").acquire("g", "a", 0)
	p.welcomeWith(&pb.OpenSessionResponse{Map: &pb.GroupMap{Epoch: 9, Groups: []*pb.GroupRoute{route(1, "", 0, 4000)}}})
	expect(t, "maps", len(p.maps), 0)
	expect(t, "what goes out", p.only().GetAcquire().GetName(), "a")
}

func TestTheLeaderOfAnotherGroupIsNotFollowed(t *testing.T) {
	for _, c := range []struct {
		group uint32
		next  string
	}{{1, "b:2"}, {2, "c:3"}, {0, "c:3"}} {
		p := newPlayerInGroup(t, "a:1,b:2", 2).acquire("g", "wallet", 0).welcome()
		p.fail(p.only().GetAcquire().GetRequestId(), &pb.Failure{
			Reason: pb.Reason_REASON_NOT_LEADER, Retryable: true, Leader: "c:3", Group: c.group,
		})
		expect(t, "the next node", p.dialsAgain().dialled(), c.next)
	}
	// So it is when a hello fails, and when a stream ends.
	other := &pb.Failure{Reason: pb.Reason_REASON_NOT_LEADER, Retryable: true, Leader: "c:3", Group: 1}
	p := newPlayerInGroup(t, "a:1,b:2", 2).acquire("g", "wallet", 0)
	id, _ := p.greets()
	p.fail(id, other)
	expect(t, "the next node", p.dialsAgain().dialled(), "b:2")
	p.welcome()
	other.Leader = "c:3"
	p.session.HandleDisconnected(p.now, other, true)
	expect(t, "the next node", p.settle().dialsAgain().dialled(), "a:1")
}

func TestANewerMapComesWithAFreshWelcomeOfTheSameNodeAtMostOnceASecond(t *testing.T) {
	p, hold := holding(t, &pb.Grant{})
	p.acquire("w", "b", time.Minute)
	waiting := p.only().GetAcquire().GetRequestId()
	mapWanted := func() *player {
		p.session.HandleMapWanted(p.now)
		p.session.HandleTimeout(p.now)
		return p.settle()
	}
	mapWanted()
	expect(t, "connections", len(p.connects), 2)
	expect(t, "the node", p.dialled(), "a:1")
	// Until there is a connection, the present stream serves. Another caller wants the same.
	mapWanted()
	expect(t, "connections", len(p.connects), 2)
	expect(t, "farewells before", len(p.farewells), 0)
	p.welcomeWith(&pb.OpenSessionResponse{Map: divided(5, 2000)})
	expect(t, "farewells", len(p.farewells) == 1 && p.farewells[0], true)
	expect(t, "maps", len(p.maps), 1)
	expect(t, "what goes out again", p.only().GetAcquire().GetRequestId(), waiting)
	expect(t, "lost", p.isLost(hold), "")
	// The node does not know the newest map yet.
	p.after(300 * time.Millisecond)
	mapWanted()
	p.after(600 * time.Millisecond)
	mapWanted()
	expect(t, "connections", len(p.connects), 2)
	p.timePasses()
	expect(t, "connections", len(p.connects), 3)
	expect(t, "the time", p.now, Time(101*time.Second))
	// It is not reached: the session stays where it is.
	p.session.HandleConnectFailed(p.now, "no connection", NotMade)
	p.settle()
	p.after(2 * time.Second)
	mapWanted()
	expect(t, "connections", len(p.connects), 4)
	expect(t, "farewells", len(p.farewells), 1)
}

func TestAWelcomeThatComesAnywayIsNotAskedFor(t *testing.T) {
	// The session is about to move to the leader.
	p := newPlayer(t, "a:1,b:2").acquire("g", "a", 0).welcomeIn(1, "b:2")
	p.after(settlingTime)
	p.session.HandleTimeout(p.now)
	p.settle()
	expect(t, "the leader", p.dialled(), "b:2")
	p.session.HandleMapWanted(p.now)
	expect(t, "connections", len(p.settle().connects), 2)
	// It has no stream.
	p.breaks()
	p.session.HandleMapWanted(p.now)
	expect(t, "connections", len(p.settle().connects), 2)
	// A map is fetched at the leader if the session was to move there anyway.
	p = newPlayer(t, "a:1,b:2").acquire("g", "a", 0).welcomeIn(1, "b:2")
	p.session.HandleMapWanted(p.now)
	p.session.HandleTimeout(p.now)
	expect(t, "the node", p.settle().dialled(), "b:2")
}

func TestASessionInAnotherGroupTriesTheLeaderOfTheMapFirstAndIsNotTheFirstOfItsClient(t *testing.T) {
	known, err := ParseEndpoints("a:1,b:2", true)
	if err != nil {
		t.Fatal(err)
	}
	known.nextAddress()
	expect(t, "the first node", known.ofGroup("c:3").nextAddress(), "c:3")
	expect(t, "without a leader", known.ofGroup("").nextAddress(), "b:2")
	others := known.ofGroup("")
	others.learn([]string{"d:4"})
	expect(t, "the nodes of the first", len(known.All()), 2)
	fixed, err := ParseEndpoints("a:1", false)
	if err != nil {
		t.Fatal(err)
	}
	expect(t, "with fixed endpoints", fixed.ofGroup("c:3").nextAddress(), "a:1")
	// The nodes are there: the client has a session. So it does not give up after a second of refused connections.
	for group, givesUp := range map[uint32]bool{0: true, 2: false} {
		p := newPlayerInGroup(t, "a:1", group).acquire("g", "wallet", 0)
		for p.now < Time(102*time.Second) && len(p.completed) == 0 {
			p.session.HandleConnectFailed(p.now, "refused", Refused)
			p.settle()
			if len(p.completed) == 0 {
				p.dialsAgain()
			}
		}
		expect(t, "gave up", len(p.completed) == 1, givesUp)
	}
}
