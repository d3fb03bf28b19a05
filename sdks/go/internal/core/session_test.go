package core

import (
	"fmt"
	"slices"
	"testing"
	"time"

	pb "holdfast/sdks/go/holdfastv1"
)

const sessionTTL = 30 * time.Second

// player is a session with a clock and a node of the test's own, and what came out of it.
type player struct {
	t         *testing.T
	session   *Session
	now       Time
	logicalMs uint64
	completed map[string]Outcome
	connects  []string
	farewells []bool
	ended     []string
	maps      []*GroupMap
	numbers   map[string]uint64
}

func newPlayer(t *testing.T, endpoints string) *player { return newPlayerInGroup(t, endpoints, 0) }

// newPlayerInGroup is for a session in this group, as messages have it.
func newPlayerInGroup(t *testing.T, endpoints string, group uint32) *player {
	known, err := ParseEndpoints(endpoints, true)
	if err != nil {
		t.Fatal(err)
	}
	drawn := 0
	newID := func() string {
		drawn++
		return fmt.Sprintf("%032x", drawn)
	}
	settings := &pb.OpenSessionRequest{TtlMs: uint64(sessionTTL.Milliseconds()), Owner: &pb.Owner{}, Group: group}
	now := Time(100 * time.Second)
	return &player{
		t: t, now: now, logicalMs: 500_000, completed: map[string]Outcome{}, numbers: map[string]uint64{},
		session: NewSession(known, settings, newID, func() float64 { return 0.5 }, now),
	}
}

func (p *player) after(span time.Duration) *player {
	p.now = p.now.Add(span)
	p.logicalMs += uint64(span.Milliseconds())
	return p
}

func (p *player) call(caller string) *Call {
	return &Call{
		WaitsUntil: p.now.Add(time.Minute),
		Resolve:    func(outcome Outcome) { p.completed[caller] = outcome },
	}
}

func (p *player) ask(caller string, request Request) *player {
	p.numbers[caller] = p.session.HandleRequest(p.now, request, p.call(caller))
	return p.settle()
}

func (p *player) acquire(caller, name string, wait time.Duration) *player {
	fields := &pb.AcquireRequest{Name: name, Mode: pb.Mode_MODE_EXCLUSIVE, WaitMs: uint64(wait.Milliseconds())}
	return p.ask(caller, &Acquire{Fields: fields})
}

func (p *player) settle() *player {
	for outputs := p.session.TakeOutputs(); len(outputs) > 0; outputs = p.session.TakeOutputs() {
		for _, output := range outputs {
			switch output := output.(type) {
			case Completed:
				output.Caller.Resolve(output.Outcome)
			case Connect:
				p.connects = append(p.connects, output.Address)
			case Disconnect:
				p.farewells = append(p.farewells, output.WithFarewell)
			case MapTold:
				p.maps = append(p.maps, output.Map)
			case Ended:
				p.ended = append(p.ended, output.Reason)
			}
		}
	}
	return p
}

func (p *player) frame() *pb.ClientFrame {
	p.t.Helper()
	frame := p.session.NextFrame(p.now)
	if frame == nil {
		p.t.Fatal("there is nothing to send")
	}
	return frame
}

// only returns the one operation of the next frame.
func (p *player) only() *pb.Operation {
	p.t.Helper()
	operations := p.frame().GetOperations()
	if len(operations) != 1 {
		p.t.Fatalf("one operation was expected, and not %v", operations)
	}
	return operations[0]
}

// greets connects, and returns the hello.
func (p *player) greets() (id uint64, isResume bool) {
	p.t.Helper()
	if !p.session.HandleConnected(p.now) {
		p.t.Fatal("the connection is not wanted")
	}
	p.settle()
	operation := p.only()
	if resume := operation.GetResume(); resume != nil {
		return resume.GetRequestId(), true
	}
	return operation.GetOpen().GetRequestId(), false
}

func (p *player) welcome() *player {
	p.t.Helper()
	return p.welcomeIn(1, "")
}

func (p *player) welcomeIn(term uint64, leader string) *player {
	p.t.Helper()
	return p.welcomeWith(&pb.OpenSessionResponse{Term: term, Leader: leader})
}

func (p *player) welcomeWith(told *pb.OpenSessionResponse) *player {
	p.t.Helper()
	id, isResume := p.greets()
	ms := uint64(sessionTTL.Milliseconds())
	told.TtlMs, told.LingerMs, told.LogicalTimeMs = ms, ms, p.logicalMs
	answer := &pb.Answer{RequestId: id, Result: &pb.Answer_Open{Open: told}}
	if isResume {
		answer.Result = &pb.Answer_Resume{Resume: told}
	}
	return p.hear(answer)
}

func (p *player) hear(answers ...*pb.Answer) *player {
	p.session.HandleFrame(p.now, &pb.ServerFrame{Answers: answers})
	return p.settle()
}

func (p *player) notice(notice *pb.Notice) *player {
	p.session.HandleFrame(p.now, &pb.ServerFrame{Notices: []*pb.Notice{notice}})
	return p.settle()
}

func (p *player) fail(id uint64, failure *pb.Failure) *player {
	return p.hear(&pb.Answer{RequestId: id, Result: &pb.Answer_Failure{Failure: failure}})
}

func (p *player) answerAcquire(id uint64, response *pb.AcquireResponse) *player {
	response.LogicalTimeMs = p.logicalMs
	return p.hear(&pb.Answer{RequestId: id, Result: &pb.Answer_Acquire{Acquire: response}})
}

func (p *player) grant(id uint64, grant *pb.Grant) *player {
	if grant.Guarantee == pb.Guarantee_GUARANTEE_UNSPECIFIED {
		grant.Guarantee = pb.Guarantee_GUARANTEE_LINEARIZABLE
	}
	if grant.AcquireRequestId == 0 {
		grant.AcquireRequestId = id
	}
	return p.answerAcquire(id, &pb.AcquireResponse{Outcome: &pb.AcquireResponse_Granted{Granted: grant}})
}

func (p *player) queued(id uint64) *player {
	return p.notice(&pb.Notice{Kind: &pb.Notice_Queued{Queued: &pb.Queued{RequestId: id, Position: 1}}})
}

func (p *player) breaks() *player {
	p.session.HandleDisconnected(p.now, &pb.Failure{Message: "reset", Retryable: true}, false)
	return p.settle()
}

// timePasses moves on to the next timeout.
func (p *player) timePasses() *player {
	p.t.Helper()
	due := p.session.NextTimeout()
	if due == Never {
		p.t.Fatal("nothing is due")
	}
	p.after(time.Duration(max(0, due-p.now)))
	p.session.HandleTimeout(p.now)
	return p.settle()
}

func (p *player) dialsAgain() *player {
	p.t.Helper()
	for before := len(p.connects); len(p.connects) == before; {
		p.timePasses()
	}
	return p
}

func (p *player) reconnects() *player {
	p.t.Helper()
	return p.dialsAgain().welcome()
}

// dialled returns the address of the last connection.
func (p *player) dialled() string {
	return p.connects[len(p.connects)-1]
}

func (p *player) failure(caller string) *Failure {
	p.t.Helper()
	outcome, isComplete := p.completed[caller]
	if !isComplete || outcome.Failure == nil {
		p.t.Fatalf("%s has no failure: %v %v", caller, isComplete, outcome)
	}
	return outcome.Failure
}

func (p *player) hold(caller string) *Hold {
	p.t.Helper()
	holds := p.completed[caller].Holds
	if len(holds) != 1 {
		p.t.Fatalf("%s holds %d locks", caller, len(holds))
	}
	return holds[0]
}

// isLost returns the reason; empty if the guard gives its token.
func (p *player) isLost(hold *Hold) string {
	if _, failure := hold.Read(p.now); failure != nil {
		return failure.Reason
	}
	return ""
}

// holding returns a player that holds the lock `a`.
func holding(t *testing.T, grant *pb.Grant) (*player, *Hold) {
	t.Helper()
	p := newPlayer(t, "a:1,b:2").acquire("g", "a", 0).welcome()
	grant.Name, grant.Token, grant.Mode = "a", 7, max(grant.Mode, pb.Mode_MODE_EXCLUSIVE)
	p.grant(p.only().GetAcquire().GetRequestId(), grant)
	return p, p.hold("g")
}

func expect[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Fatalf("%s: %v, and not %v", what, got, want)
	}
}

func TestASessionIsOpenedByTheFirstRequestAndSendsNothingBeforeItsWelcome(t *testing.T) {
	p := newPlayer(t, "a:1,b:2")
	expect(t, "the timeout of an idle session", p.session.NextTimeout(), Never)
	p.acquire("g", "a", 0)
	expect(t, "connections", fmt.Sprint(p.connects), "[a:1]")
	p.greets()
	if p.session.NextFrame(p.now) != nil {
		t.Fatal("a request went out before the welcome")
	}
}

func TestAnOpenThatIsOlderThanAMinuteGetsAnotherID(t *testing.T) {
	p := newPlayer(t, "a:1").acquire("g", "a", 10*time.Minute)
	ids := map[string]bool{}
	for range 2 {
		for p.session.link != connecting {
			p.timePasses()
		}
		p.session.HandleConnected(p.now)
		ids[p.only().GetOpen().GetSessionId()] = true
		p.after(40 * time.Second).breaks().after(21 * time.Second)
	}
	expect(t, "session ids", len(ids), 2)
}

func TestAnotherSessionIsOpenedWhenAnUnseenOneHasEnded(t *testing.T) {
	exists := &pb.Failure{Reason: pb.Reason_REASON_SESSION_EXISTS}
	p := newPlayer(t, "a:1").acquire("g", "a", 0)
	p.greets()
	p.breaks()
	for before := len(p.connects); len(p.connects) == before; {
		p.timePasses()
	}
	id, _ := p.greets()
	p.fail(id, exists)
	expect(t, "outcomes", len(p.completed), 0)
	p.reconnects()
	expect(t, "what goes out", p.only().GetAcquire().GetName(), "a")
	// The first open of a session cannot be a copy.
	p = newPlayer(t, "a:1").acquire("g", "a", 0)
	id, _ = p.greets()
	p.fail(id, exists)
	expect(t, "the reason", p.failure("g").Reason, "session_exists")
}

func TestAClientThatEveryNodeDeniesIsToldSo(t *testing.T) {
	p := newPlayer(t, "a:1,b:2").acquire("g", "a", 0)
	for range 2 {
		p.session.HandleConnectFailed(p.now, "no TLS connection", Denied)
		p.settle()
	}
	expect(t, "the reason", p.failure("g").Reason, "unauthenticated")
}

func TestAnUnansweredRequestGoesOutAgainUnderItsOldID(t *testing.T) {
	p := newPlayer(t, "a:1,b:2").acquire("g", "a", 0).welcome()
	first := p.only().GetAcquire().GetRequestId()
	p.breaks().reconnects()
	expect(t, "the id", p.only().GetAcquire().GetRequestId(), first)
}

func TestADeniedCopyOfARequestMayHaveHappenedAndAnAcquireIsCancelled(t *testing.T) {
	p, hold := holding(t, &pb.Grant{})
	p.acquire("w", "b", time.Minute)
	acquire := p.only().GetAcquire().GetRequestId()
	p.ask("transfer", &Transfer{Hold: hold, ToPublicSession: "1"})
	transfer := p.only().GetTransfer().GetRequestId()
	p.breaks().reconnects().frame()
	p.fail(transfer, &pb.Failure{Reason: pb.Reason_REASON_PERMISSION_DENIED})
	expect(t, "lost", p.isLost(hold), "transferred")
	p.fail(acquire, &pb.Failure{Reason: pb.Reason_REASON_PERMISSION_DENIED})
	expect(t, "may have happened", p.failure("w").MayHaveHappened, true)
	expect(t, "the target", p.only().GetCancel().GetTarget(), acquire)
}

func TestAResumeHasAHigherNumberThanEveryHelloBefore(t *testing.T) {
	p, _ := holding(t, &pb.Grant{})
	last := uint64(0)
	for range 3 {
		p.breaks()
		for before := len(p.connects); len(p.connects) == before; {
			p.timePasses()
		}
		p.session.HandleConnected(p.now)
		frame := p.frame()
		id := frame.GetOperations()[0].GetResume().GetRequestId()
		if id <= last || frame.GetAckedThrough() >= id {
			t.Fatalf("the resume %d after %d acknowledges through %d", id, last, frame.GetAckedThrough())
		}
		last = id
	}
}

func TestAcknowledgementStopsBeforeTheOldestUnansweredRequest(t *testing.T) {
	p := newPlayer(t, "a:1").acquire("one", "1", 0).acquire("two", "2", 0).welcome()
	operations := p.frame().GetOperations()
	one, two := operations[0].GetAcquire().GetRequestId(), operations[1].GetAcquire().GetRequestId()
	p.grant(two, &pb.Grant{Name: "2", Token: 8}).acquire("three", "3", 0)
	expect(t, "acknowledged", p.frame().GetAckedThrough(), one-1)
	p.grant(one, &pb.Grant{Name: "1", Token: 9}).acquire("four", "4", 0)
	expect(t, "acknowledged", p.frame().GetAckedThrough(), two+1)
}

func TestAQueuedAcquireDoesNotHoldTheAcknowledgementBack(t *testing.T) {
	p := newPlayer(t, "a:1").acquire("one", "1", time.Minute).welcome()
	one := p.only().GetAcquire().GetRequestId()
	p.queued(one).acquire("two", "2", 0)
	if frame := p.frame(); frame.GetAckedThrough() < one {
		t.Fatalf("acknowledged through %d, and %d is queued", frame.GetAckedThrough(), one)
	}
}

func TestTheGuardGivesNoTokenPast98PercentOfTheTTL(t *testing.T) {
	p, hold := holding(t, &pb.Grant{})
	end := sessionTTL*98/100 - 2*time.Millisecond
	p.after(end - 1)
	expect(t, "lost", p.isLost(hold), "")
	p.after(1)
	expect(t, "lost", p.isLost(hold), "expired")
	// A hold that was found lost stays lost, whatever is answered later.
	p.now = p.now.Add(-time.Second)
	expect(t, "lost", p.isLost(hold), "expired")
}

func TestAHeartbeatGoesOutAThirdOfTheTTLAfterTheLastAnsweredSending(t *testing.T) {
	p, hold := holding(t, &pb.Grant{})
	sent := p.now
	p.timePasses()
	expect(t, "the time of the heartbeat", p.now, sent.Add(sessionTTL/3))
	id := p.only().GetKeepAlive().GetRequestId()
	p.after(time.Second)
	told := &pb.KeepAliveResponse{LogicalTimeMs: p.logicalMs}
	p.hear(&pb.Answer{RequestId: id, Result: &pb.Answer_KeepAlive{KeepAlive: told}})
	until := hold.ValidUntil()
	expect(t, "valid until", until, sent.Add(sessionTTL/3+sessionTTL*98/100-2*time.Millisecond))
}

func TestTenThousandLocksCostOneHeartbeat(t *testing.T) {
	p := newPlayer(t, "a:1")
	const locks = 10_000
	for number := range locks {
		p.acquire(fmt.Sprint(number), fmt.Sprint("lock", number), 0)
	}
	p.welcome()
	for p.session.HasFrame() {
		for _, operation := range p.frame().GetOperations() {
			acquire := operation.GetAcquire()
			p.grant(acquire.GetRequestId(), &pb.Grant{Name: acquire.GetName(), Token: acquire.GetRequestId()})
		}
	}
	hold := p.hold(fmt.Sprint(locks - 1))
	for range 3 {
		id := p.timePasses().only().GetKeepAlive().GetRequestId()
		told := &pb.KeepAliveResponse{LogicalTimeMs: p.logicalMs}
		p.hear(&pb.Answer{RequestId: id, Result: &pb.Answer_KeepAlive{KeepAlive: told}})
	}
	expect(t, "lost", p.isLost(hold), "")
}

func TestAReleaseDoesNotKeepTheSessionAlive(t *testing.T) {
	p, hold := holding(t, &pb.Grant{})
	p.acquire("other", "b", 0)
	p.grant(p.only().GetAcquire().GetRequestId(), &pb.Grant{Name: "b", Token: 8})
	until := hold.ValidUntil()
	p.after(time.Second).ask("release", &Release{Hold: p.hold("other")})
	id := p.only().GetRelease().GetRequestId()
	told := &pb.ReleaseResponse{LogicalTimeMs: p.logicalMs, Outcome: pb.ReleaseOutcome_RELEASE_OUTCOME_RELEASED}
	p.hear(&pb.Answer{RequestId: id, Result: &pb.Answer_Release{Release: told}})
	expect(t, "released", p.completed["release"].Released, pb.ReleaseOutcome_RELEASE_OUTCOME_RELEASED)
	expect(t, "valid until", hold.ValidUntil(), until)
}

func TestANodeThatOwesAnAnswerIsLeftWithAFarewell(t *testing.T) {
	p := newPlayer(t, "a:1,b:2").acquire("g", "a", time.Second).welcome()
	p.frame()
	p.after(3900 * time.Millisecond).session.HandleQuiet(p.now)
	expect(t, "farewells", len(p.settle().farewells), 0)
	p.after(200 * time.Millisecond).session.HandleQuiet(p.now)
	expect(t, "farewells", fmt.Sprint(p.settle().farewells), "[true]")
}

func TestACallerThatIsGoneIsCancelledAndAGrantIsGivenBackOnce(t *testing.T) {
	p := newPlayer(t, "a:1").acquire("g", "a", time.Minute).welcome()
	id := p.only().GetAcquire().GetRequestId()
	p.session.HandleAbandoned(p.now, p.numbers["g"])
	cancel := p.only().GetCancel()
	expect(t, "the target", cancel.GetTarget(), id)
	grant := &pb.Grant{Name: "a", Token: 7, AcquireRequestId: id, Guarantee: pb.Guarantee_GUARANTEE_LINEARIZABLE}
	p.hear(&pb.Answer{RequestId: cancel.GetRequestId(), Result: &pb.Answer_Cancel{Cancel: &pb.CancelResponse{
		Outcome: &pb.CancelResponse_AlreadyGranted{AlreadyGranted: grant},
	}}})
	p.grant(id, grant)
	release := p.only().GetRelease()
	expect(t, "the token", release.GetToken(), 7)
	if p.session.NextFrame(p.now) != nil {
		t.Fatal("the lock was released twice")
	}
}

func TestARequestThatNeverWentOutIsForgottenWithItsCaller(t *testing.T) {
	p := newPlayer(t, "a:1").acquire("g", "a", 0)
	p.session.HandleAbandoned(p.now, p.numbers["g"])
	p.settle().welcome()
	if p.session.NextFrame(p.now) != nil {
		t.Fatal("the request went out")
	}
}

func TestWhatWasGrantedAndDidNotReachItsCallerIsReleased(t *testing.T) {
	p, _ := holding(t, &pb.Grant{})
	p.session.HandleAbandoned(p.now, p.numbers["g"])
	expect(t, "the token", p.settle().only().GetRelease().GetToken(), 7)
}

func TestALostSessionIsToldToHoldersAndUnsentAcquiresGoToTheNext(t *testing.T) {
	p, hold := holding(t, &pb.Grant{})
	p.acquire("sent", "b", time.Minute)
	p.frame()
	p.breaks().acquire("unsent", "c", 0)
	for before := len(p.connects); len(p.connects) == before; {
		p.timePasses()
	}
	id, _ := p.greets()
	p.fail(id, &pb.Failure{Reason: pb.Reason_REASON_UNKNOWN_SESSION})
	expect(t, "the hold", p.isLost(hold), "session_expired")
	expect(t, "the waiter", p.failure("sent").Kind, Lost)
	p.welcome()
	expect(t, "what goes to the next session", p.only().GetAcquire().GetName(), "c")
}

func TestAnAcquireWaitsWhileTheLeaseIsOverAndGoesToTheNextSession(t *testing.T) {
	p, hold := holding(t, &pb.Grant{})
	p.after(sessionTTL).acquire("late", "b", 0)
	// A caller may see the pause of the process before the timer fires.
	beat := p.only().GetKeepAlive()
	if p.session.NextFrame(p.now) != nil {
		t.Fatal("the acquire was sent under the old session")
	}
	p.fail(beat.GetRequestId(), &pb.Failure{Reason: pb.Reason_REASON_UNKNOWN_SESSION})
	expect(t, "the guard", p.isLost(hold) != "", true)
	p.welcome()
	acquire := p.only().GetAcquire()
	expect(t, "the acquire of the next session", acquire.GetName(), "b")
	p.grant(acquire.GetRequestId(), &pb.Grant{Name: "b", Token: 8, Mode: pb.Mode_MODE_EXCLUSIVE})
	expect(t, "the new guard", p.isLost(p.hold("late")), "")
}

func TestAnAcquireGoesOutWhenALateHeartbeatWasAnsweredAfterAll(t *testing.T) {
	p, _ := holding(t, &pb.Grant{})
	p.after(sessionTTL).acquire("late", "b", 0)
	beat := p.only().GetKeepAlive()
	alive := &pb.KeepAliveResponse{LogicalTimeMs: p.logicalMs}
	p.hear(&pb.Answer{RequestId: beat.GetRequestId(), Result: &pb.Answer_KeepAlive{KeepAlive: alive}})
	expect(t, "the acquire", p.only().GetAcquire().GetName(), "b")
}

func TestLossesAfterAResumeAreToldByTokenAndOfReadersByTheirAcquire(t *testing.T) {
	p, writer := holding(t, &pb.Grant{})
	p.acquire("r", "r", 0)
	id := p.only().GetAcquire().GetRequestId()
	p.grant(id, &pb.Grant{Name: "r", Token: 9, Mode: pb.Mode_MODE_SHARED})
	ended := func(token, acquire uint64) *pb.Notice {
		return &pb.Notice{Kind: &pb.Notice_HoldEnded{HoldEnded: &pb.HoldEnded{Token: token, AcquireRequestId: acquire}}}
	}
	p.breaks().reconnects().notice(ended(9, 0))
	expect(t, "the reader", p.isLost(p.hold("r")), "")
	p.notice(ended(9, id))
	expect(t, "the reader", p.isLost(p.hold("r")), "ended")
	p.notice(ended(7, 0))
	expect(t, "the writer", p.isLost(writer), "ended")
}

func TestANodeThatDoesNotLeadIsLeftForTheLeaderThatItNames(t *testing.T) {
	p := newPlayer(t, "a:1,b:2").acquire("g", "a", 0).welcome()
	id := p.only().GetAcquire().GetRequestId()
	p.fail(id, &pb.Failure{Reason: pb.Reason_REASON_NOT_LEADER, Retryable: true, Leader: "c:3"}).timePasses()
	expect(t, "the next node", p.connects[len(p.connects)-1], "c:3")
}

func TestAnOverloadedNodeGetsTheRequestAgainAfterAPause(t *testing.T) {
	p := newPlayer(t, "a:1,b:2").acquire("g", "a", 0).welcome()
	id := p.only().GetAcquire().GetRequestId()
	p.fail(id, &pb.Failure{Reason: pb.Reason_REASON_OVERLOADED, Retryable: true})
	if p.session.NextFrame(p.now) != nil {
		t.Fatal("no pause")
	}
	expect(t, "the id", p.timePasses().only().GetAcquire().GetRequestId(), id)
	expect(t, "connections", len(p.connects), 1)
}

func TestAWaitThatEndedUnseenTimedOutOnlyIfItsTimeMayBeOver(t *testing.T) {
	for span, kind := range map[time.Duration]Kind{time.Second: Lost, 9900 * time.Millisecond: TimedOut} {
		p := newPlayer(t, "a:1").acquire("g", "a", 10*time.Second).welcome()
		id := p.only().GetAcquire().GetRequestId()
		p.queued(id).after(span).fail(id, &pb.Failure{Reason: pb.Reason_REASON_ANSWER_DISCARDED})
		expect(t, "the outcome", p.failure("g").Kind, kind)
	}
}

func TestARenewalThatShortensAHoldCountsFromItsSending(t *testing.T) {
	p, hold := holding(t, &pb.Grant{})
	ttl := uint64(1000)
	p.ask("renew", &Renew{Hold: hold, TTLMs: &ttl}).frame()
	expect(t, "valid until", hold.ValidUntil(), p.now.Add(978*time.Millisecond))
	// It may have been applied, so it bounds the hold also without an answer.
	p.breaks().reconnects()
	p.after(time.Second)
	expect(t, "lost", p.isLost(hold), "own_time_over")
}

func TestTheLibraryRenewsAHoldWithATTLOfItsOwn(t *testing.T) {
	p := newPlayer(t, "a:1")
	ttl, deadline := uint64(9000), p.logicalMs+9000
	call := p.call("g")
	call.Renews = 9 * time.Second
	fields := &pb.AcquireRequest{Name: "a", TtlMs: &ttl}
	p.session.HandleRequest(p.now, &Acquire{Fields: fields}, call)
	p.settle().welcome()
	p.grant(p.only().GetAcquire().GetRequestId(), &pb.Grant{Name: "a", Token: 7, DeadlineMs: &deadline})
	granted := p.now
	renew := p.timePasses().only().GetRenew()
	expect(t, "the TTL", renew.GetTtlMs(), 9000)
	expect(t, "the time of the renewal", p.now, granted.Add(3*time.Second))
	later := p.logicalMs + 9000
	p.hear(&pb.Answer{RequestId: renew.GetRequestId(), Result: &pb.Answer_Renew{
		Renew: &pb.RenewResponse{LogicalTimeMs: p.logicalMs, DeadlineMs: &later},
	}})
	p.after(8 * time.Second)
	expect(t, "lost", p.isLost(p.hold("g")), "")
}

func TestRequestsAboutAHoldWaitForTheAnswerToItsConversion(t *testing.T) {
	p, hold := holding(t, &pb.Grant{Mode: pb.Mode_MODE_SHARED})
	p.ask("convert", &Convert{Hold: hold, Mode: pb.Mode_MODE_EXCLUSIVE})
	id := p.only().GetConvert().GetRequestId()
	p.ask("release", &Release{Hold: hold})
	if p.session.NextFrame(p.now) != nil {
		t.Fatal("the release overtakes the conversion")
	}
	grant := &pb.Grant{Name: "a", Token: 8, Mode: pb.Mode_MODE_EXCLUSIVE, AcquireRequestId: hold.key.acquire}
	p.grant(id, grant)
	expect(t, "the token", p.only().GetRelease().GetToken(), 8)
}

func TestATransferThatWasRefusedGivesTheTokenBack(t *testing.T) {
	p, hold := holding(t, &pb.Grant{})
	p.ask("transfer", &Transfer{Hold: hold, ToPublicSession: "1"})
	expect(t, "lost", p.isLost(hold), "transferred")
	id := p.only().GetTransfer().GetRequestId()
	p.fail(id, &pb.Failure{Reason: pb.Reason_REASON_NO_SUCH_WAITER})
	expect(t, "lost", p.isLost(hold), "")
}

func TestHoldsOfTheEfficiencyTierEndWithTheStream(t *testing.T) {
	p, hold := holding(t, &pb.Grant{Guarantee: pb.Guarantee_GUARANTEE_BEST_EFFORT})
	p.breaks()
	expect(t, "lost", p.isLost(hold), "leader_unreachable")
	// If the leader still leads, it is told.
	expect(t, "what is sent", p.reconnects().only().GetRelease().GetToken(), 7)
}

func TestWaitsOfTheEfficiencyTierAreAskedForAgainUnderNewIDsInAnotherTerm(t *testing.T) {
	p := newPlayer(t, "a:1,b:2")
	fields := &pb.AcquireRequest{Name: "a", WaitMs: 60_000, Tier: pb.Tier_TIER_EFFICIENCY}
	p.ask("g", &Acquire{Fields: fields}).welcome()
	id := p.only().GetAcquire().GetRequestId()
	p.queued(id).breaks()
	for before := len(p.connects); len(p.connects) == before; {
		p.timePasses()
	}
	again := p.welcomeIn(2, "").only().GetAcquire()
	if again.GetName() != "a" || again.GetRequestId() <= id {
		t.Fatalf("%v after the id %d", again, id)
	}
}

func TestAClientMovesToTheLeaderAfterAMomentWithAFarewell(t *testing.T) {
	p := newPlayer(t, "a:1").acquire("g", "a", 0).welcomeIn(1, "b:2")
	p.grant(p.only().GetAcquire().GetRequestId(), &pb.Grant{Name: "a", Token: 7})
	p.timePasses()
	expect(t, "connections", fmt.Sprint(p.connects), "[a:1 b:2]")
	p.welcomeIn(1, "b:2")
	expect(t, "farewells", fmt.Sprint(p.farewells), "[true]")
	expect(t, "lost", p.isLost(p.hold("g")), "")
}

func TestNodesThatRefuseTheConnectionAreReportedAfterASecond(t *testing.T) {
	p := newPlayer(t, "a:1,b:2").acquire("g", "a", 0)
	began := p.now
	for len(p.completed) == 0 {
		for p.session.link != connecting {
			p.timePasses()
		}
		p.session.HandleConnectFailed(p.now, "refused", Refused)
		p.settle()
	}
	expect(t, "the outcome", p.failure("g").Kind, Unavailable)
	if waited := time.Duration(p.now - began); waited < time.Second || waited > 2*time.Second {
		t.Fatalf("reported after %v", waited)
	}
}

func TestTheCircuitOpensAfterThreeSecondsAndClosesWithTheFirstNodeThatServes(t *testing.T) {
	p, _ := holding(t, &pb.Grant{})
	p.breaks()
	broke := p.now
	for p.session.Circuit() == CircuitClosed {
		for p.session.link != connecting {
			p.timePasses()
		}
		p.session.HandleConnectFailed(p.now, "unreachable", NotMade)
		p.settle()
	}
	if waited := time.Duration(p.now - broke); waited < 3*time.Second || waited > 4*time.Second {
		t.Fatalf("the circuit opened after %v", waited)
	}
	p.reconnects()
	expect(t, "the circuit", p.session.Circuit(), CircuitClosed)
}

func TestACallerIsLetGoWhenItsTimeIsOver(t *testing.T) {
	p := newPlayer(t, "a:1").acquire("g", "a", 0).welcome()
	p.frame()
	p.after(time.Minute).session.HandleTimeout(p.now)
	failure := p.settle().failure("g")
	if failure.Kind != Unavailable || !failure.MayHaveHappened {
		t.Fatalf("%+v", failure)
	}
}

func TestAClosedSessionTakesNothingMore(t *testing.T) {
	p, hold := holding(t, &pb.Grant{})
	p.session.HandleClose(p.now, p.call("close"))
	p.settle().acquire("late", "b", 0)
	expect(t, "the late one", p.failure("late").Kind, Closed)
	id := p.only().GetClose().GetRequestId()
	p.hear(&pb.Answer{RequestId: id, Result: &pb.Answer_Close{Close: &pb.CloseSessionResponse{}}})
	expect(t, "finished", p.session.IsFinished(), true)
	expect(t, "the hold", p.isLost(hold), "session_closed")
	if p.completed["close"].Failure != nil {
		t.Fatal("the close failed")
	}
}

func TestACloseWithoutAnAnswerIsToldSoAfterTwoSeconds(t *testing.T) {
	p, _ := holding(t, &pb.Grant{})
	p.session.HandleClose(p.now, p.call("close"))
	p.settle().frame()
	p.after(2 * time.Second).session.HandleTimeout(p.now)
	expect(t, "the outcome", p.settle().failure("close").Kind, Unavailable)
	expect(t, "finished", p.session.IsFinished(), true)
}

func TestAnAcquireAllThatIsToldFewerGrantsIsLostAndTheRestReleased(t *testing.T) {
	p := newPlayer(t, "a:1")
	members := []*pb.Member{{Name: "b"}, {Name: "a"}}
	p.ask("all", &AcquireAll{Fields: &pb.AcquireAllRequest{Members: members}}).welcome()
	id := p.only().GetAcquireAll().GetRequestId()
	grants := &pb.Grants{Grants: []*pb.Grant{{Name: "a", Token: 7, Guarantee: pb.Guarantee_GUARANTEE_LINEARIZABLE}}}
	p.answerAcquire(id, &pb.AcquireResponse{Outcome: &pb.AcquireResponse_AllGranted{AllGranted: grants}})
	expect(t, "the outcome", p.failure("all").Kind, Lost)
	expect(t, "what is released", p.only().GetRelease().GetName(), "a")
}

func TestAWatchedHoldIsReportedLostWithoutAMessage(t *testing.T) {
	p, hold := holding(t, &pb.Grant{})
	reported := ""
	hold.Loss.OnReport(func(reason string) { reported = reason })
	p.session.Watch(hold)
	p.breaks()
	for reported == "" {
		if p.session.link == connecting {
			p.session.HandleConnectFailed(p.now, "unreachable", NotMade)
			p.settle()
		}
		p.timePasses()
	}
	expect(t, "the reason", reported, "expired")
	expect(t, "the time", p.now, Time(100*time.Second).Add(sessionTTL*98/100-2*time.Millisecond))
}

func (p *player) refusesResume(failure *pb.Failure) {
	p.t.Helper()
	id, isResume := p.greets()
	expect(p.t, "the hello is a resume", isResume, true)
	p.fail(id, failure)
}

func (p *player) deniesResume() {
	p.t.Helper()
	p.refusesResume(&pb.Failure{Reason: pb.Reason_REASON_UNAUTHENTICATED, Message: "the token is not known"})
}

const patience = 5 * time.Second

func denyAll(p *player) {
	p.t.Helper()
	p.dialsAgain().deniesResume()
}

// denyUnder: the other node may not have applied yet what makes the token known.
func denyUnder(leader string) func(*player) {
	return func(p *player) {
		p.t.Helper()
		if p.dialsAgain().dialled() == leader {
			p.deniesResume()
			return
		}
		p.refusesResume(&pb.Failure{Reason: pb.Reason_REASON_UNAUTHENTICATED, Retryable: true, Leader: leader})
	}
}

// givesUp denies until the client gives its session up, or for 7 s.
func (p *player) givesUp(hold *Hold, deny func(*player)) bool {
	p.t.Helper()
	deny(p)
	began := p.now
	for len(p.ended) == 0 && p.now < began.Add(7*time.Second) {
		expect(p.t, "lost", p.isLost(hold), "")
		deny(p)
	}
	if len(p.ended) == 0 {
		return false
	}
	if span := time.Duration(p.now - began); span < patience || span > patience+time.Second {
		p.t.Fatalf("the session was given up after %v", span)
	}
	expect(p.t, "lost", p.isLost(hold), "denied")
	expect(p.t, "ends", fmt.Sprint(p.ended), "[denied]")
	return true
}

func TestASessionThatAllNodesDenyForThePatienceIsLost(t *testing.T) {
	p, hold := holding(t, &pb.Grant{})
	p.acquire("w", "b", time.Minute).frame()
	p.breaks().ask("r", &Renew{Hold: hold})
	expect(t, "given up", p.givesUp(hold, denyAll), true)
	expect(t, "the waiter's reason", p.failure("w").Reason, "unauthenticated")
	expect(t, "the wait may have happened", p.failure("w").MayHaveHappened, true)
	expect(t, "the renewal may have happened", p.failure("r").MayHaveHappened, false)
	expect(t, "the circuit", p.session.Circuit(), CircuitClosed)
	// A new credential opens a new session.
	p.acquire("next", "a", 0).welcome()
}

func TestACredentialThatIsReplacedWithinThePatienceKeepsTheLocks(t *testing.T) {
	p, hold := holding(t, &pb.Grant{})
	denyAll(p.breaks())
	for began := p.now; p.now < began.Add(patience-time.Second); {
		denyAll(p)
	}
	p.reconnects()
	expect(t, "lost", p.isLost(hold), "")
	expect(t, "ends", len(p.ended), 0)
}

func TestAShortTTLMakesThePatienceShort(t *testing.T) {
	d, denial := newDenials(6*time.Second), &pb.Failure{Reason: pb.Reason_REASON_UNAUTHENTICATED}
	for half := range 5 {
		now := Time(half) * Time(time.Second) / 2
		expect(t, "given up", d.note(now, "a:1", denial, []string{"a:1"}), half == 4)
	}
}

func TestANodeThatCannotBeReachedDoesNotKeepADeniedSession(t *testing.T) {
	p, hold := holding(t, &pb.Grant{})
	expect(t, "given up", p.breaks().givesUp(hold, func(p *player) {
		if p.dialsAgain().dialled() == "b:2" {
			// The next node is dialled at once.
			p.session.HandleConnectFailed(p.now, "no route to the host", NotMade)
			p.settle()
		}
		p.deniesResume()
	}), true)
}

func TestItIsEnoughThatTheLeaderIsSureOfItsDenial(t *testing.T) {
	for _, leader := range []string{"a:1", "b:2"} {
		p, hold := holding(t, &pb.Grant{})
		expect(t, "given up", p.breaks().givesUp(hold, denyUnder(leader)), true)
	}
}

func TestASessionIsNotGivenUpWhileNoNodeIsSureOfItsDenial(t *testing.T) {
	p, hold := holding(t, &pb.Grant{})
	// The named leader is none of the nodes that the client knows, so its word does not count either.
	expect(t, "given up", p.breaks().givesUp(hold, denyUnder("x:9")), false)
	expect(t, "the named leader is asked", slices.Contains(p.connects, "x:9"), true)
	expect(t, "addresses that are kept", len(p.session.denials.answers), 2)
}

func TestANodeThatAnswersAResumeOtherwiseHasNotDeniedIt(t *testing.T) {
	p, hold := holding(t, &pb.Grant{})
	expect(t, "given up", p.breaks().givesUp(hold, func(p *player) {
		if p.dialsAgain().dialled() == "b:2" {
			p.refusesResume(&pb.Failure{Reason: pb.Reason_REASON_NO_QUORUM, Retryable: true})
		} else {
			p.deniesResume()
		}
	}), false)
}

func TestADenialThatNoNodeSaidDoesNotCount(t *testing.T) {
	p, hold := holding(t, &pb.Grant{})
	expect(t, "given up", p.breaks().givesUp(hold, func(p *player) {
		p.dialsAgain().greets()
		denial := &pb.Failure{Reason: pb.Reason_REASON_UNAUTHENTICATED, Message: "a proxy does not know you"}
		p.session.HandleDisconnected(p.now, denial, false)
		p.settle()
	}), false)
}

func TestADenialThatEndsTheStreamCountsIfANodeSaidIt(t *testing.T) {
	p, hold := holding(t, &pb.Grant{})
	expect(t, "given up", p.breaks().givesUp(hold, func(p *player) {
		p.dialsAgain().greets()
		p.session.HandleDisconnected(p.now, &pb.Failure{Reason: pb.Reason_REASON_CREDENTIAL_EXPIRED}, true)
		p.settle()
	}), true)
}

func TestADenialThatIsOlderThanThePatienceDoesNotCount(t *testing.T) {
	p, hold := holding(t, &pb.Grant{})
	denyAll(p.breaks())
	p.dialsAgain().after(patience + time.Millisecond).deniesResume()
	expect(t, "lost", p.isLost(hold), "")
}

func TestANodeThatLetsTheClientResumeEndsTheCountOfDenials(t *testing.T) {
	p, hold := holding(t, &pb.Grant{})
	denyAll(p.breaks())
	began := p.now
	p.reconnects().breaks().dialsAgain()
	p.after(time.Duration(began.Add(patience) - p.now)).deniesResume()
	expect(t, "lost", p.isLost(hold), "")
}

func rateLimited(after time.Duration) *pb.Failure {
	ms := uint64(after.Milliseconds())
	return &pb.Failure{Reason: pb.Reason_REASON_RATE_LIMITED, Retryable: true, RetryAfterMs: ms}
}

func TestACallerThatDoesNotWaitUntilTheNodeTakesTheRequestIsToldAtOnce(t *testing.T) {
	p := newPlayer(t, "a:1").acquire("w", "b", 0).welcome()
	id := p.only().GetAcquire().GetRequestId()
	// The caller waits for a minute.
	p.fail(id, rateLimited(2*time.Second))
	sentBack := p.now
	frame := p.session.NextFrame(p.now)
	for frame == nil {
		p.timePasses()
		frame = p.session.NextFrame(p.now)
	}
	expect(t, "what is sent again", frame.GetOperations()[0].GetAcquire().GetRequestId(), id)
	if p.now < sentBack.Add(2*time.Second) {
		t.Fatalf("it was sent again after %v", time.Duration(p.now-sentBack))
	}
	p.fail(id, rateLimited(58*time.Second))
	told := p.failure("w")
	expect(t, "the reason", told.Reason, "rate_limited")
	expect(t, "the time", told.RetryAfter, 58*time.Second)
}

func TestARequestThatMayHaveBeenCarriedOutIsSentAgainHoweverLongThatTakes(t *testing.T) {
	p := newPlayer(t, "a:1").acquire("w", "b", 0).welcome()
	id := p.only().GetAcquire().GetRequestId()
	p.breaks().reconnects().frame()
	p.fail(id, rateLimited(time.Hour))
	expect(t, "outcomes", len(p.completed), 0)
}

func TestASessionThatMayNotBeOpenedYetIsOpenedWhenTheNodeSaid(t *testing.T) {
	p := newPlayer(t, "a:1").acquire("g", "a", 0)
	id, _ := p.greets()
	p.fail(id, rateLimited(2*time.Second))
	refused := p.now
	p.timePasses()
	expect(t, "connections", len(p.connects), 2)
	if p.now < refused.Add(2*time.Second) {
		t.Fatalf("it was tried again after %v", time.Duration(p.now-refused))
	}
}
